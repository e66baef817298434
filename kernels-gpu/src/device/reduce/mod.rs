//! Adding up partial sums, always in the same order, so that every run gives the same bits.
//!
//! | reduction | where partial sums lie |
//! |---|---|
//! | [`split_k`], slices | the block's shared memory |
//! | [`split_k`], splits | global memory: the last block to arrive adds up |
//! | [`stream_k`] | global memory: three partial tiles for each block |
//! | [`cluster`] | distributed shared memory; several clusters meet in global memory |

pub mod cluster;
pub mod split_k;
pub mod stream_k;
