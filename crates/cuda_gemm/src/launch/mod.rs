//! From a plan and addresses to launches: operand copies, tensor maps, parameters.

mod enqueue;
mod map_cache;
pub(crate) mod parameters;
mod staging;
mod tensor_map;
mod workspace;

pub(crate) use map_cache::MapCache;
pub(crate) use staging::{Requirement, Staging};
pub(crate) use workspace::Buffers;
