//! Constants that the tensor core kernels share with the host.

/// Step along K: elements of 16 bits in a row of 128 bytes.
pub const BK: u32 = 64;
/// Columns of a panel of B, as in the 128-byte swizzle.
pub const PANEL: u32 = 64;

/// Bytes after which the 128-byte swizzle repeats, and on which its tiles begin.
pub const ALIGNMENT: u32 = 1024;

/// Bytes of shared memory per multiprocessor of compute capability 9.0.
pub const SHARED_MEMORY_PER_MULTIPROCESSOR: u32 = 228 << 10;
/// Bytes of it that the system reserves per block.
pub const RESERVED_SHARED_MEMORY_PER_BLOCK: u32 = 1 << 10;

/// The most parts of K: every device with clusters supports this many blocks in a cluster.
pub const MAX_CLUSTER_SIZE: u32 = 8;

/// The most stages of a kernel that does not say how many it has: more would hold more bytes than a
/// multiprocessor can have in flight.
pub const MAX_STAGES: u32 = 16;

/// Bytes of a stage with this number of lines of A, and of B.
#[inline(always)]
pub const fn stage_bytes([lines_a, lines_b]: [u32; 2]) -> u32 {
    2 * (lines_a + lines_b) * BK
}

/// The number of stages with these lines that fit the bytes, up to [`MAX_STAGES`].
#[inline(always)]
pub const fn stages(lines: [u32; 2], bytes: u32) -> u32 {
    match bytes.checked_div(stage_bytes(lines)) {
        Some(stages) if stages < MAX_STAGES => stages,
        _ => MAX_STAGES,
    }
}

/// The length of each part, if as few as possible of at most `most` make up `all`.
///
/// The last one may be shorter.
#[inline(always)]
pub const fn equal_part(all: u32, most: u32) -> u32 {
    match all.div_ceil(most) {
        0 => 1,
        parts => all.div_ceil(parts),
    }
}

/// The length of each part, if as few as possible of at most `most` make up `all`.
///
/// Several parts have a multiple of eight; the last one may be shorter.
#[inline(always)]
pub const fn even_part(all: u32, most: u32) -> u32 {
    match equal_part(all, most) {
        part if part >= all => all,
        part => part.next_multiple_of(8),
    }
}

/// The terms of the parameter `options`.
pub mod options {
    /// All products of a batch share A, whose map has one product.
    pub const BROADCAST_A: u32 = 1;
    /// All products of a batch share B, whose map has one product.
    pub const BROADCAST_B: u32 = 1 << 1;
    /// C has the type of A and B, rounded to the nearest, ties to even.
    pub const HALF_OUTPUT: u32 = 1 << 2;
    /// C is stored transposed: n x m elements, with `ldc >= m`.
    ///
    /// Only for a kernel with [`KernelAbi::WgmmaClusters`](crate::abi::KernelAbi::WgmmaClusters).
    pub const TRANSPOSED_C: u32 = 1 << 3;

    /// C is an array of addresses, one per product of a batch.
    ///
    /// Only for a kernel with [`KernelAbi::MmaPointers`](crate::abi::KernelAbi::MmaPointers).
    pub const POINTERS_C: u32 = 1 << 7;

    /// Where the columns of a tile begin: see [`columns`].
    const COLUMNS_AT: u32 = 8;

    /// The option for tiles of at most `cols` columns: a multiple of 16, or of 64 if B is not
    /// transposed, or the kernel's own.
    ///
    /// A kernel that [narrows](crate::abi::KernelDescriptor::narrows) needs it. Others ignore it.
    pub const fn columns(cols: u32) -> u32 {
        (cols / 16) << COLUMNS_AT
    }

    /// The columns of [`columns`].
    #[inline(always)]
    pub const fn tile_columns(options: u32) -> u32 {
        let cols = (options >> COLUMNS_AT) % 32 * 16;
        if cols < 16 { 16 } else { cols }
    }

    /// Where the stages begin: see [`stages`].
    const STAGES_AT: u32 = 13;

    /// The option for a number of stages.
    ///
    /// [`stages`](crate::abi::tensor_core::stages) says how many fit.
    ///
    /// A kernel that [narrows](crate::abi::KernelDescriptor::narrows) needs it. Others ignore it.
    pub const fn stages(stages: u32) -> u32 {
        stages << STAGES_AT
    }

    /// The stages of [`stages`].
    #[inline(always)]
    pub const fn tile_stages(options: u32) -> u32 {
        (options >> STAGES_AT) % 32
    }
}

/// The entry points of a kernel with variants of `types`, or of `layouts` and types, optionally
/// followed by those for groups.
///
/// The result is [`KernelDescriptor`](crate::abi::KernelDescriptor)'s `variants`. The suffixes are
/// those of `#[kernel(variants(..))]`: `ta` and `tb` for transposes of A and B, then `f16`.
macro_rules! variants {
    ($kernel:ident, types) => {
        &[&[stringify!($kernel)], &[concat!(stringify!($kernel), "_f16")]]
    };
    ($kernel:ident, layouts $(, $grouped:ident)?) => {
        &[
            variants!(@layouts $kernel, "" $(, $grouped)?),
            variants!(@layouts $kernel, "_f16" $(, $grouped)?),
        ]
    };
    (@layouts $kernel:ident, $type:literal $(, $grouped:ident)?) => {
        &[
            concat!(stringify!($kernel), $type),
            concat!(stringify!($kernel), "_ta", $type),
            concat!(stringify!($kernel), "_tb", $type),
            concat!(stringify!($kernel), "_ta_tb", $type),
            $(
                concat!(stringify!($grouped), $type),
                concat!(stringify!($grouped), "_tb", $type),
            )?
        ]
    };
}
pub(crate) use variants;
