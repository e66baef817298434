//! Which work tiles a block computes, and in which order.
//!
//! | scheduler | who takes a work tile |
//! |---|---|
//! | [`raster`] | one block per tile, in an order for the L2 cache |
//! | [`persistent`] | persistent blocks: where a tile lies; the rung's loop steps by the grid |
//! | [`groups`] | blocks of any of these: where a tile of a group lies |
//! | [`split_k`] | the grid's z axis: a product, and a split of its K |
//! | [`stream_k`] | persistent blocks with equal shares of the steps along K |
//! | [`cluster`] | clusters with equal shares of the steps; the blocks of a cluster split K again |

pub mod cluster;
pub mod groups;
pub mod persistent;
pub mod raster;
pub mod split_k;
pub mod stream_k;
