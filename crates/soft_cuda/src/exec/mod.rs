//! Executes decoded kernels: one small operation at a time, for a whole warp.
//!
//! A warp's registers are slots of 32 lanes in one register file; an operation
//! is a function pointer and the byte offsets of its slots. The functions are
//! generic over what they compute. What kernels live on is compiled for AVX2
//! and AVX-512, and
//! everything once for any host (see [`op::Handler`]); both give the same bits.

pub(crate) mod access;
pub(crate) mod address;
mod agents;
pub(crate) mod alu;
pub(crate) mod atomic;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod block;
mod boxes;
pub(crate) mod bulk;
mod call;
pub(crate) mod check_access;
pub(crate) mod check_async;
mod check_global;
pub(crate) mod check_product;
pub(crate) mod check_register;
pub(crate) mod checker;
mod chunks;
pub(crate) mod clock;
pub(crate) mod cluster;
mod cluster_sync;
pub(crate) mod code;
pub(crate) mod collective;
pub(crate) mod convert;
pub(crate) mod copy;
mod descriptor;
pub(crate) mod element;
mod entries;
pub(crate) mod facts;
pub(crate) mod float;
pub(crate) mod fma;
mod format;
mod frames;
pub(crate) mod global;
pub(crate) mod groups;
pub(crate) mod half;
pub(crate) mod in_flight;
mod initial;
pub(crate) mod int;
pub(crate) mod knowledge;
pub(crate) mod lanes;
mod lines;
mod loads;
mod local;
pub(crate) mod machine;
pub(crate) mod malloc;
pub(crate) mod mbarrier;
pub(crate) mod mem;
pub(crate) mod members;
pub(crate) mod mma;
pub(crate) mod named;
pub(crate) mod op;
pub(crate) mod order;
pub(crate) mod pack;
mod packed;
pub(crate) mod phases;
pub(crate) mod print;
mod printed;
pub(crate) mod prior;
pub(crate) mod prior_wait;
mod proxies;
pub(crate) mod racecheck;
mod read_log;
mod reads;
pub(crate) mod recorder;
mod reduce;
mod remote;
pub(crate) mod rmw;
pub(crate) mod round;
pub(crate) mod schedule;
pub(crate) mod shadow;
pub(crate) mod shared_loads;
pub(crate) mod special;
mod split;
mod standstill;
mod stripes;
mod stuck;
pub(crate) mod subword;
pub(crate) mod tensor_core;
mod unwaited;
pub(crate) mod warp;
pub(crate) mod wgmma;
mod word_reads;
mod word_writes;
mod writes;

pub(crate) use machine::{FULL, NO_SLOT};
pub(crate) use op::{Guarded, Op, OpFn, Path, pick, pick_compact};
