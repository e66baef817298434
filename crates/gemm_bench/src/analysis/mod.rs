//! What a time means: peaks of the GPU, the units that limit a product, loads per result, and the
//! time that the software device will need.

pub mod explain;
pub mod forecast;
pub mod limit;
pub mod roofline;
