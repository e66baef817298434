//! The table of the tiles of a grouped product.
//!
//! The rows of C are those of groups, one after the other; so are those of A. Each group has a B of
//! its own. How large groups are is known only on the device, when the product runs. So a kernel
//! ([`group_tiles()`](mod@crate::utility::groups)) first lists the tiles along the rows:
//!
//! ```text
//!   groups of 3, 0 and 6 rows, tiles of 4 rows:
//!
//!   3 tiles | group 0: rows 0 to 3 | group 2: rows 3 to 9 | group 2: rows 3 to 9
//! ```
//!
//! A is not transposed: a bulk copy may begin at any row, but not at any column. No tile of C has
//! rows of two groups. A is still copied in whole tiles: rows of the next group are multiplied, but
//! not stored.

/// An entry of the table. The first entry has the number of tiles in `first`; the next ones are for
/// a tile each.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTile {
    /// The group.
    pub group: u32,
    /// The number of the group's first tile.
    pub first: u32,
    /// The group's first row.
    pub begin: u32,
    /// The row behind its last.
    pub end: u32,
}

/// The most tiles of `size` that `groups` have, of `rows` in all.
pub const fn most_tiles(rows: u64, groups: u64, size: u64) -> u64 {
    // A group with rows has at most one tile that is not full.
    if rows <= groups { rows } else { groups + (rows - groups) / size }
}
