//! Keeping copies in flight: stages and their barriers, bulk copies, roles, dependent launches.
//!
//! A producer waits for `empty` and asks for a stage in [`half_stages::Stages::produce`]. Consumers
//! release the stage in their own loop along K, by an arrival at its `empty`.

pub mod dependent_launch;
pub mod f32_stages;
pub mod half_stages;
pub mod roles;
pub mod state;
pub mod tile_load;
