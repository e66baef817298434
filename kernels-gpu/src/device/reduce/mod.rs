//! Adding up partial sums, always in the same order, so that every run gives the same bits.
//!
//! | reduction | where partial sums lie |
//! |---|---|
//! | [`slice_k`] | the block's shared memory |
//! | [`split_k`] | global memory: the last block to arrive adds up |
//! | [`stream_k`] | global memory: a mailbox for each block |
//! | [`cluster`] | distributed shared memory; several clusters meet in global memory |

pub mod cluster;
pub mod slice_k;
pub mod split_k;
pub mod stream_k;
