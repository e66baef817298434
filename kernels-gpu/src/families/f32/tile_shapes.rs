//! The shapes of [`tiled`](super::tiled)'s tiles.

use super::kernel::kernel_module;
use super::tiled::Tiled;

// A is copied element by element anyway, and the kernel checks C's alignment itself: so only B is
// vectorized.

kernel_module! {
    /// Large products with misaligned rows, and batches.
    tile_128x128x16,
    "128x128 outputs, 8x8 per thread, 8 warps, no slices",
    Tiled {
        BM: 128, BN: 128, BK: 16, WM: 32, WN: 64, TM: 8, TN: 8, SLICES: 1, STAGES: 4
    },
    vectorized [false, true, false], transposed [Reads::Aligned, Reads::Unaligned],
    transposes_c false, min_blocks 2, "tiled.rs"
}

kernel_module! {
    /// Large products with misaligned rows, and batches, for a smaller C.
    tile_64x128x16,
    "64x128 outputs, 8x8 per thread, 4 warps, no slices",
    Tiled {
        BM: 64, BN: 128, BK: 16, WM: 32, WN: 64, TM: 8, TN: 8, SLICES: 1, STAGES: 4
    },
    vectorized [false, true, false], transposed [Reads::Aligned, Reads::Unaligned],
    transposes_c false, min_blocks 4, "tiled.rs"
}

kernel_module! {
    /// Batches of products of about this size.
    tile_64x64x16,
    "64x64 outputs, 8x4 per thread, 4 warps, no slices",
    Tiled {
        BM: 64, BN: 64, BK: 16, WM: 32, WN: 32, TM: 8, TN: 4, SLICES: 1, STAGES: 5
    },
    vectorized [false, true, false], transposed [Reads::Aligned, Reads::Unaligned],
    transposes_c false, min_blocks 5, "tiled.rs"
}

kernel_module! {
    /// N up to 48, or an N that fills its last tile better than with 64 columns.
    tile_64x48x16,
    "64x48 outputs, 8x4 per thread, 3 warps, no slices",
    Tiled {
        BM: 64, BN: 48, BK: 16, WM: 64, WN: 16, TM: 8, TN: 4, SLICES: 1, STAGES: 4, EPILOGUE_QUADS: 8
    },
    vectorized [false, true, false], transposed [Reads::Aligned, Reads::Unaligned],
    transposes_c false, min_blocks 5, "tiled.rs"
}

kernel_module! {
    /// Batches of the smallest products. If launched for a single small product, short sums are
    /// compensated.
    tile_16x16x16,
    "16x16 outputs, 4x4 per thread, 4 slices of 16 threads",
    Tiled {
        BM: 16, BN: 16, BK: 16, WM: 16, WN: 16, TM: 4, TN: 4, SLICES: 4, STAGES: 4, COMPENSATED_K: 12
    },
    vectorized [false, true, false], transposed [Reads::Aligned, Reads::Unaligned],
    transposes_c false, min_blocks 14, "tiled.rs"
}

kernel_module! {
    /// For a C that is wide and low: M up to 64.
    tile_64x128,
    "64x128 outputs, 8x8 per thread, 2 slices of 4 warps",
    Tiled {
        BM: 64, BN: 128, BK: 32, WM: 32, WN: 64, TM: 8, TN: 8, SLICES: 2, STAGES: 3
    },
    vectorized [false, true, false], transposed [Reads::Aligned, Reads::Unaligned],
    transposes_c false, min_blocks 2, "tiled.rs"
}

kernel_module! {
    /// Mid-sized products with splits.
    tile_64x64,
    "64x64 outputs, 8x8 per thread, 4 slices of 2 warps",
    Tiled {
        BM: 64, BN: 64, BK: 64, WM: 32, WN: 64, TM: 8, TN: 8, SLICES: 4, STAGES: 3
    },
    vectorized [false, true, false], transposed [Reads::Aligned, Reads::Unaligned],
    transposes_c false, min_blocks 2, "tiled.rs"
}

kernel_module! {
    /// Few tiles: a block's slices replace splits, and all of its threads share the epilogue.
    tile_64x48,
    "64x48 outputs, 8x4 per thread, 4 slices of 3 warps",
    Tiled {
        BM: 64, BN: 48, BK: 64, WM: 64, WN: 16, TM: 8, TN: 4, SLICES: 4, STAGES: 3
    },
    vectorized [false, true, false], transposed [Reads::Aligned, Reads::Unaligned],
    transposes_c false, min_blocks 1, "tiled.rs"
}

kernel_module! {
    /// Many rows, and few columns.
    tile_64x32,
    "64x32 outputs, 8x4 per thread, 4 slices of 2 warps",
    Tiled {
        BM: 64, BN: 32, BK: 64, WM: 32, WN: 32, TM: 8, TN: 4, SLICES: 4, STAGES: 3
    },
    vectorized [false, true, false], transposed [Reads::Aligned, Reads::Unaligned],
    transposes_c false, min_blocks 2, "tiled.rs"
}

kernel_module! {
    /// M up to 32.
    tile_32x128,
    "32x128 outputs, 8x8 per thread, 4 slices of 2 warps",
    Tiled {
        BM: 32, BN: 128, BK: 32, WM: 32, WN: 64, TM: 8, TN: 8, SLICES: 4, STAGES: 4
    },
    vectorized [false, true, false], transposed [Reads::Aligned, Reads::Unaligned],
    transposes_c false, min_blocks 2, "tiled.rs"
}

kernel_module! {
    /// M up to 32, for a C that is wide and low.
    tile_32x64,
    "32x64 outputs, 8x8 per thread, 8 slices of 1 warp",
    Tiled {
        BM: 32, BN: 64, BK: 64, WM: 32, WN: 64, TM: 8, TN: 8, SLICES: 8, STAGES: 3
    },
    vectorized [false, true, false], transposed [Reads::Aligned, Reads::Unaligned],
    transposes_c false, min_blocks 2, "tiled.rs"
}

kernel_module! {
    /// The smallest products.
    tile_32x32,
    "32x32 outputs, 8x4 per thread, 8 slices of 1 warp",
    Tiled {
        BM: 32, BN: 32, BK: 64, WM: 32, WN: 32, TM: 8, TN: 4, SLICES: 8, STAGES: 3
    },
    vectorized [false, true, false], transposed [Reads::Aligned, Reads::Unaligned],
    transposes_c false, min_blocks 2, "tiled.rs"
}

kernel_module! {
    /// M up to 16: reads B once.
    tile_16x128,
    "16x128 outputs, 8x8 per thread, 8 slices of 1 warp",
    Tiled {
        BM: 16, BN: 128, BK: 64, WM: 16, WN: 128, TM: 8, TN: 8, SLICES: 8, STAGES: 3
    },
    vectorized [false, true, false], transposed [Reads::Aligned, Reads::Unaligned],
    transposes_c false, min_blocks 2, "tiled.rs"
}

kernel_module! {
    /// M up to 4, including vector times matrix.
    tile_4x128,
    "4x128 outputs, 4x4 per thread, 8 slices of 1 warp",
    Tiled {
        BM: 4, BN: 128, BK: 64, WM: 4, WN: 128, TM: 4, TN: 4, SLICES: 8, STAGES: 3
    },
    vectorized [false, true, false], transposed [Reads::Aligned, Reads::Unaligned],
    transposes_c false, min_blocks 2, "tiled.rs"
}
