//! Matrix descriptors of `wgmma`: where the rows of a tile lie in shared memory.
//!
//! A tile is made of chunks of 16 bytes. K-major, a chunk holds neighbours along K, and the
//! chunks of eight rows along M or N lie one after the other, `span` bytes apart: 16 without a
//! swizzle, else the bytes that are swizzled. MN-major, a chunk holds neighbours along M or N, and
//! eight steps along K lie `span` bytes apart.

use crate::tensor::Swizzle;

/// Bytes of a chunk.
pub(super) const CHUNK: u32 = 16;
/// Rows of a core matrix.
const GROUP: u32 = 8;

/// A descriptor, decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Descriptor {
    /// An address of shared memory.
    start: u32,
    leading: u32,
    stride: u32,
    swizzle: Swizzle,
}

impl Descriptor {
    /// Decodes 64 bits, or says what is wrong with them.
    pub(super) fn decode(bits: u64) -> Result<Descriptor, String> {
        let field = |at: u32, width: u32| (bits >> at) as u32 & ((1 << width) - 1);
        let swizzle = [Swizzle::None, Swizzle::Bytes128, Swizzle::Bytes64, Swizzle::Bytes32]
            [field(62, 2) as usize];
        if field(49, 3) != 0 {
            return Err(format!(
                "the descriptor {bits:#018x} has the base offset {}; the software device knows 0 alone: align the tile to 1024 bytes",
                field(49, 3)
            ));
        }
        Ok(Descriptor {
            start: field(0, 14) * CHUNK,
            leading: field(16, 14) * CHUNK,
            stride: field(32, 14) * CHUNK,
            swizzle,
        })
    }

    /// Bytes from one of eight rows or steps to the next.
    fn span(self) -> u32 {
        match self.swizzle {
            Swizzle::None => CHUNK,
            swizzled => CHUNK << swizzled as u32,
        }
    }

    /// The address of chunk `chunk` along K of row `row` of a K-major tile.
    pub(super) fn k_major(self, row: u32, chunk: u32) -> u32 {
        let step = if self.swizzle == Swizzle::None { self.leading } else { CHUNK };
        self.at(row / GROUP * self.stride + row % GROUP * self.span() + chunk * step)
    }

    /// The address of chunk `chunk` along M or N of step `k` of an MN-major tile.
    pub(super) fn mn_major(self, chunk: u32, k: u32) -> u32 {
        let within = k % GROUP * self.span();
        self.at(match self.swizzle {
            Swizzle::None => chunk * self.stride + within + k / GROUP * self.leading,
            _ => {
                let chunks = self.span() / CHUNK;
                let (column, tile) = (chunk % chunks, chunk / chunks);
                column * CHUNK + tile * self.leading + within + k / GROUP * self.stride
            }
        })
    }

    fn at(self, offset: u32) -> u32 {
        self.swizzle.apply(self.start + offset)
    }
}
