//! Products of tiles by a warpgroup's tensor cores.
//!
//! The instruction is `wgmma` (sm_90a; PTX ISA: "Asynchronous Warpgroup Level Matrix
//! Instructions").
//!
//! A *warpgroup*, four warps, multiplies a tile of A by a tile of B. A's tile is 64 rows by 64
//! along K, and B's is 64 along K by N columns. With TF32 both are 32 along K. The product is added
//! to sums in f32 in the warpgroup's registers.
//!
//! Both tiles are in shared memory: a [`Tile`] says where and how. Only
//! [`Accumulator::multiply_tf32_registers`] has A in registers.
//!
//! The instruction is asynchronous. [`Accumulator::multiply_bf16`] and its like issue a *group* of
//! four and return. [`wait_group`] waits until the tiles were read, and [`Accumulator::wait`] until
//! the sums are there.
//!
//! # How a tile lies
//!
//! Tiles are as `cp.async.bulk.tensor` copies them with the swizzle of 128 bytes, in boxes of 64
//! elements along the dimension without gaps. They begin on 1024 bytes. A line of 128 bytes is 8
//! chunks of 16, and chunk `c` of line `l` lies at chunk `c ^ (l % 8)` of that line:
//!
//! ```text
//!            16 bytes each
//!   line 0   0 1 2 3 4 5 6 7
//!   line 1   1 0 3 2 5 4 7 6
//!   line 2   2 3 0 1 6 7 4 5
//!   line 3   3 2 1 0 7 6 5 4
//!   line 4   4 5 6 7 0 1 2 3
//!   line 5   5 4 7 6 1 0 3 2
//!   line 6   6 7 4 5 2 3 0 1
//!   line 7   7 6 5 4 3 2 1 0
//! ```
//!
//! - *K-major*: a line is 64 elements along K, or 32 of TF32. There is one line for each row of A,
//!   or each column of B. This is the layout of a row-major A.
//! - *MN-major*: a line is 64 elements along M or N, and there is one for each step along K. A tile
//!   wider than 64 is several such *panels*, each in a box of its own. This is the layout of a
//!   row-major B.
//! - *MN-major and narrow*: a line is 32 or 16 elements, which are 64 or 32 bytes, and so is the
//!   swizzle. Lines in the same 128 bytes have their chunks exchanged alike. In a line of four
//!   chunks, chunk `c` of line `l` lies at chunk `c ^ (l / 2 % 4)`. In a line of two, it lies at `c
//!   ^ (l / 4 % 2)`.
//!
//! # Where the sums are
//!
//! Warp `w` of the warpgroup has rows `16 * w` to `16 * w + 15`. A thread's sum `acc[i]` has this
//! place:
//!
//! - row `16 * w + lane / 4 + i / 2 % 2 * 8`;
//! - column `i / 4 * 8 + lane % 4 * 2 + i % 2`.
//!
//! # Arithmetic
//!
//! Products of two `bf16`, two `f16`, or two TF32 numbers are exact. Sums are in f32. The tensor
//! cores keep only its 24 bits, and truncate where f32 would round to nearest.

use cuda_std_macros::gpu_only;

use crate::shared::SharedPtr;

#[cfg(target_arch = "nvptx64")]
use super::intrinsics;
#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// Bytes of a line that is not narrow: the swizzle's.
const LINE: u32 = 128;

/// A tile of A or B in shared memory: a *matrix descriptor* (PTX ISA: "Matrix Descriptor Format").
///
/// `MN_MAJOR` says which layout it has: see the [module](self). Making one is safe, wherever it
/// points. Nothing is read before an [`Accumulator`] multiplies it, whose contract says how the
/// tile has to lie.
#[derive(Clone, Copy, Debug)]
pub struct Tile<const MN_MAJOR: bool> {
    /// The words of the descriptor. Tiles that lie alike differ in the low one.
    low: u32,
    high: u32,
}

impl Tile<false> {
    /// A tile that begins here, with a line of 128 bytes along K for each row of A or column of B.
    ///
    /// A line is 64 elements of 16 bits, or 32 of TF32.
    #[inline(always)]
    #[must_use]
    pub fn k_major(tile: SharedPtr<u16>) -> Self {
        // A line covers the whole tile along K, so there is no next one.
        Self::at(tile)
    }
}

impl Tile<true> {
    /// A tile that begins here, with a line of 64 elements along M or N for each of 64 steps along
    /// K.
    ///
    /// Further panels of 64 follow in the same way.
    #[inline(always)]
    #[must_use]
    pub fn mn_major(tile: SharedPtr<u16>) -> Self {
        Self::at(tile)
    }
}

impl<const MN_MAJOR: bool> Tile<MN_MAJOR> {
    /// A tile that begins here, K-major or MN-major as its type says.
    #[inline(always)]
    #[must_use]
    pub fn at(tile: SharedPtr<u16>) -> Self {
        Self::with_lines(tile, LINE / 2)
    }

    /// A tile that begins here, whose lines have this number of 16-bit elements.
    ///
    /// Lines of 32 or 16 elements make the tile *narrow*, with that number of columns.
    ///
    /// # Panics
    ///
    /// If a line does not have 64 elements, or in an MN-major tile 64, 32 or 16.
    #[inline(always)]
    #[must_use]
    pub fn with_lines(tile: SharedPtr<u16>, elements: u32) -> Self {
        assert!(
            elements == 64 || MN_MAJOR && (elements == 32 || elements == 16),
            "a line has 64 elements, or in a narrow tile 32 or 16"
        );
        let line = 2 * elements;
        // From one panel to the next. A line of a K-major tile covers all of it along K.
        let leading = if MN_MAJOR { 64 * line } else { line };
        // 1 to 3, the widest swizzle first.
        let swizzle = (2 * LINE / line).trailing_zeros();
        // All three in units of 16 bytes. The swizzle repeats itself after eight lines.
        let [start, leading, stride] =
            [tile.address() & 0x3ffff, leading, 8 * line].map(|bytes| bytes >> 4);
        Self { low: start | leading << 16, high: stride | swizzle << 30 }
    }

    /// The tile that lies like this one, `elements` of 16 bits further in shared memory.
    ///
    /// `elements` is a multiple of 8, else it is rounded down. If the tile is not within shared
    /// memory, the descriptor is of some other layout.
    #[inline(always)]
    #[must_use]
    pub fn offset_by(self, elements: u32) -> Self {
        Self { low: self.low.wrapping_add(elements / 8), ..self }
    }

    /// The descriptor's bits, for assembly of one's own.
    #[inline(always)]
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low)
    }

    /// The low word of the descriptor of the part that a single instruction multiplies.
    ///
    /// A part is 32 bytes along K: 16 elements, or 8 of TF32.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn part(self, part: u32) -> u32 {
        // Further along the lines, which the address swizzles, or 16 lines further.
        let line = 2 * LINE >> (self.high >> 30);
        let elements = if MN_MAJOR { 8 * line } else { 16 };
        self.offset_by(part * elements).low
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A thread's part of the sums of a warpgroup, 64 rows by [`COLS`](Self::COLS) columns.
///
/// # Safety of its operations
///
/// For every operation the caller makes sure that
/// - all threads of the warpgroup, warps `4 * i` to `4 * i + 3` of the block, come to the same call
///   together;
/// - from a call that multiplies until [`wait`](Self::wait), nothing except further such calls
///   reads or changes the sums;
/// - the tiles lie as the [module](self) shows, and whole in the shared memory of the block: each
///   begins on a multiple of 1024 bytes, is swizzled by 128 bytes unless it is narrow, and is
///   K-major or MN-major as its [`Tile`] says;
/// - A's tile is 64 lines;
/// - a K-major tile of B is [`COLS`](Self::COLS) lines;
/// - an MN-major tile of B is panels of 64 lines, one behind the other, with 64 columns each; of
///   the last one, or the only one, the first elements of each line are columns;
/// - only B's tile is narrow, and it then has `COLS` columns;
/// - the tiles hold what is multiplied when the call is made: bulk copies have arrived when their
///   barrier says so, and any other writer has called
///   [`fence_proxy_async`](crate::tma::fence_proxy_async) and then met these threads at a barrier;
/// - nothing writes the tiles until the group is done, which [`wait_group`] says.
///
/// No caller can promise that the compiler copies no sum to another register in flight. The
/// compiler has no reason to while the sums stay one local variable, but nothing forbids it. If it
/// does, `ptxas` warns that it has serialised the instructions, which is right but slow. `cargo
/// xtask build-ptx` makes that warning an error. The software device stops at an access to a
/// register in flight.
pub trait Accumulator: sealed::Sealed {
    /// Columns of B and of the sums.
    const COLS: u32;

    /// Adds the product of two tiles of `bf16` to the sums, or, if not `accumulate`, replaces the
    /// sums.
    ///
    /// The instructions are `wgmma.fence`, four `wgmma.mma_async`, and `wgmma.commit_group`.
    ///
    /// # Safety
    /// See [`Accumulator`].
    unsafe fn multiply_bf16<const A: bool, const B: bool>(
        &mut self,
        a: Tile<A>,
        b: Tile<B>,
        accumulate: bool,
    );

    /// [`multiply_bf16`](Self::multiply_bf16) for tiles of `f16`.
    ///
    /// # Safety
    /// See [`Accumulator`].
    unsafe fn multiply_f16<const A: bool, const B: bool>(
        &mut self,
        a: Tile<A>,
        b: Tile<B>,
        accumulate: bool,
    );

    /// [`multiply_bf16`](Self::multiply_bf16) for tiles of TF32.
    ///
    /// These are f32 whose last 13 bits are ignored: see [`Tf32::round`](crate::mma::Tf32::round).
    /// Tiles are 32 elements along K, and all are K-major.
    ///
    /// # Safety
    /// See [`Accumulator`].
    unsafe fn multiply_tf32(&mut self, a: Tile<false>, b: Tile<false>, accumulate: bool);

    /// [`multiply_tf32`](Self::multiply_tf32) with A in registers.
    ///
    /// `a[4 * i]` to `a[4 * i + 3]` are this thread's elements of columns `8 * i` to `8 * i + 7`.
    /// Among the warp's 16 rows, the first is in row `lane / 4`, and the second 8 rows below. Among
    /// these columns, both are in column `lane % 4`. The third and the fourth are 4 columns
    /// further.
    ///
    /// If the compiler changes a register that the instructions read, before a wait, `ptxas` also
    /// serialises them. So have the elements of the next call in other registers.
    ///
    /// # Safety
    /// See [`Accumulator`].
    unsafe fn multiply_tf32_registers(&mut self, a: [u32; 16], b: Tile<false>, accumulate: bool);

    /// Waits for all groups of this thread (`wgmma.wait_group 0`): the sums may be read.
    ///
    /// # Safety
    /// See [`Accumulator`].
    unsafe fn wait(&mut self);
}

/// Four instructions in one statement of assembly, so that the compiler puts nothing between them.
///
/// LLVM could make `asm!` depend on another condition. But it does not do so to the convergent
/// `wgmma.commit_group` behind it. `cuda_builder` checks that both are in one basic block.
#[cfg(target_arch = "nvptx64")]
macro_rules! multiply {
    (
        $acc:ident, $a:ident, $b:ident, $accumulate:ident, $op:expr,
        $majors:literal [$($major:tt)*], $($i:literal)*
    ) => {
        // SAFETY: the caller's contract.
        unsafe {
            asm!(
                "{{ .reg .pred all, first; .reg .b64 a<4>, b<4>;",
                "mov.b64 a0, {{{a0}, {a}}}; mov.b64 b0, {{{b0}, {b}}};",
                "mov.b64 a1, {{{a1}, {a}}}; mov.b64 b1, {{{b1}, {b}}};",
                "mov.b64 a2, {{{a2}, {a}}}; mov.b64 b2, {{{b2}, {b}}};",
                "mov.b64 a3, {{{a3}, {a}}}; mov.b64 b3, {{{b3}, {b}}};",
                "setp.eq.u32 all, {accumulate}, {accumulate}; setp.ne.u32 first, {accumulate}, 0;",
                "wgmma.fence.sync.aligned;",
                concat!($op, " {{{0}", $(", {", $i, "}",)* "}}, a0, b0, first, 1, 1", $majors, ";"),
                concat!($op, " {{{0}", $(", {", $i, "}",)* "}}, a1, b1, all, 1, 1", $majors, ";"),
                concat!($op, " {{{0}", $(", {", $i, "}",)* "}}, a2, b2, all, 1, 1", $majors, ";"),
                concat!($op, " {{{0}", $(", {", $i, "}",)* "}}, a3, b3, all, 1, 1", $majors, "; }}"),
                inout(reg32) $acc[0],
                $(inout(reg32) $acc[$i],)*
                accumulate = in(reg32) u32::from($accumulate),
                a = in(reg32) $a.high,
                a0 = in(reg32) $a.part(0),
                a1 = in(reg32) $a.part(1),
                a2 = in(reg32) $a.part(2),
                a3 = in(reg32) $a.part(3),
                b = in(reg32) $b.high,
                b0 = in(reg32) $b.part(0),
                b1 = in(reg32) $b.part(1),
                b2 = in(reg32) $b.part(2),
                b3 = in(reg32) $b.part(3),
                $($major)*
                options(nostack, preserves_flags),
            );
            intrinsics::wgmma_commit_group();
        }
    };
}

/// As above, with A in registers.
#[cfg(target_arch = "nvptx64")]
macro_rules! multiply_registers {
    ($acc:ident, $a:ident, $b:ident, $accumulate:ident, $op:expr, $($i:literal)*) => {
        // SAFETY: the caller's contract.
        unsafe {
            asm!(
                "{{ .reg .pred all, first; .reg .b64 b<4>;",
                "mov.b64 b0, {{{b0}, {b}}}; mov.b64 b1, {{{b1}, {b}}};",
                "mov.b64 b2, {{{b2}, {b}}}; mov.b64 b3, {{{b3}, {b}}};",
                "setp.eq.u32 all, {accumulate}, {accumulate}; setp.ne.u32 first, {accumulate}, 0;",
                "wgmma.fence.sync.aligned;",
                concat!($op, " {{{0}", $(", {", $i, "}",)* "}}, {{{a0},{a1},{a2},{a3}}}, b0, first, 1, 1;"),
                concat!($op, " {{{0}", $(", {", $i, "}",)* "}}, {{{a4},{a5},{a6},{a7}}}, b1, all, 1, 1;"),
                concat!($op, " {{{0}", $(", {", $i, "}",)* "}}, {{{a8},{a9},{a10},{a11}}}, b2, all, 1, 1;"),
                concat!($op, " {{{0}", $(", {", $i, "}",)* "}}, {{{a12},{a13},{a14},{a15}}}, b3, all, 1, 1; }}"),
                inout(reg32) $acc[0],
                $(inout(reg32) $acc[$i],)*
                accumulate = in(reg32) u32::from($accumulate),
                a0 = in(reg32) $a[0], a1 = in(reg32) $a[1], a2 = in(reg32) $a[2], a3 = in(reg32) $a[3],
                a4 = in(reg32) $a[4], a5 = in(reg32) $a[5], a6 = in(reg32) $a[6], a7 = in(reg32) $a[7],
                a8 = in(reg32) $a[8], a9 = in(reg32) $a[9], a10 = in(reg32) $a[10], a11 = in(reg32) $a[11],
                a12 = in(reg32) $a[12], a13 = in(reg32) $a[13], a14 = in(reg32) $a[14], a15 = in(reg32) $a[15],
                b = in(reg32) $b.high,
                b0 = in(reg32) $b.part(0),
                b1 = in(reg32) $b.part(1),
                b2 = in(reg32) $b.part(2),
                b3 = in(reg32) $b.part(3),
                options(nostack, preserves_flags),
            );
            intrinsics::wgmma_commit_group();
        }
    };
}

macro_rules! accumulator {
    ([f32; $count:literal] $cols:literal $shape:literal: $($i:literal)*) => {
        impl sealed::Sealed for [f32; $count] {}

        impl Accumulator for [f32; $count] {
            const COLS: u32 = $cols;

            #[gpu_only]
            #[inline(always)]
            unsafe fn multiply_bf16<const A: bool, const B: bool>(
                &mut self,
                a: Tile<A>,
                b: Tile<B>,
                accumulate: bool,
            ) {
                multiply!(self, a, b, accumulate,
                    concat!("wgmma.mma_async.sync.aligned.", $shape, "k16.f32.bf16.bf16"),
                    ", {ta}, {tb}" [ta = const A as u32, tb = const B as u32,], $($i)*);
            }

            #[gpu_only]
            #[inline(always)]
            unsafe fn multiply_f16<const A: bool, const B: bool>(
                &mut self,
                a: Tile<A>,
                b: Tile<B>,
                accumulate: bool,
            ) {
                multiply!(self, a, b, accumulate,
                    concat!("wgmma.mma_async.sync.aligned.", $shape, "k16.f32.f16.f16"),
                    ", {ta}, {tb}" [ta = const A as u32, tb = const B as u32,], $($i)*);
            }

            #[gpu_only]
            #[inline(always)]
            unsafe fn multiply_tf32(&mut self, a: Tile<false>, b: Tile<false>, accumulate: bool) {
                multiply!(self, a, b, accumulate,
                    concat!("wgmma.mma_async.sync.aligned.", $shape, "k8.f32.tf32.tf32"),
                    "" [], $($i)*);
            }

            #[gpu_only]
            #[inline(always)]
            unsafe fn multiply_tf32_registers(
                &mut self,
                a: [u32; 16],
                b: Tile<false>,
                accumulate: bool,
            ) {
                multiply_registers!(self, a, b, accumulate,
                    concat!("wgmma.mma_async.sync.aligned.", $shape, "k8.f32.tf32.tf32"), $($i)*);
            }

            #[gpu_only]
            #[inline(always)]
            unsafe fn wait(&mut self) {
                // SAFETY: the caller's contract. To the compiler the assembly is the place that
                // gives the sums their values. So it moves no use of them before the wait.
                unsafe {
                    intrinsics::wgmma_wait_group(0);
                    asm!(
                        concat!("// {0}", $(" {", $i, "}",)*),
                        inout(reg32) self[0],
                        $(inout(reg32) self[$i],)*
                        options(nostack, preserves_flags),
                    );
                }
            }
        }
    };
}

/// Each type has the registers of the one before, and eight more.
macro_rules! accumulators {
    ([$($before:literal)*]) => {};
    (
        [$($before:literal)*]
        [f32; $count:literal] $cols:literal $shape:literal: $($i:literal)*;
        $($others:tt)*
    ) => {
        accumulator!([f32; $count] $cols $shape: $($before)* $($i)*);
        accumulators!([$($before)* $($i)*] $($others)*);
    };
}

accumulators! {
    []
    [f32; 8] 16 "m64n16": 1 2 3 4 5 6 7;
    [f32; 16] 32 "m64n32": 8 9 10 11 12 13 14 15;
    [f32; 24] 48 "m64n48": 16 17 18 19 20 21 22 23;
    [f32; 32] 64 "m64n64": 24 25 26 27 28 29 30 31;
    [f32; 40] 80 "m64n80": 32 33 34 35 36 37 38 39;
    [f32; 48] 96 "m64n96": 40 41 42 43 44 45 46 47;
    [f32; 56] 112 "m64n112": 48 49 50 51 52 53 54 55;
    [f32; 64] 128 "m64n128": 56 57 58 59 60 61 62 63;
    [f32; 72] 144 "m64n144": 64 65 66 67 68 69 70 71;
    [f32; 80] 160 "m64n160": 72 73 74 75 76 77 78 79;
    [f32; 88] 176 "m64n176": 80 81 82 83 84 85 86 87;
    [f32; 96] 192 "m64n192": 88 89 90 91 92 93 94 95;
    [f32; 104] 208 "m64n208": 96 97 98 99 100 101 102 103;
    [f32; 112] 224 "m64n224": 104 105 106 107 108 109 110 111;
    [f32; 120] 240 "m64n240": 112 113 114 115 116 117 118 119;
    [f32; 128] 256 "m64n256": 120 121 122 123 124 125 126 127;
}

/// Waits until at most the latest `PENDING` groups of this thread are in flight
/// (`wgmma.wait_group`).
///
/// The tiles of the other groups were then read, and may be overwritten. Their sums may be read
/// after [`Accumulator::wait`].
///
/// # Safety
/// All threads of the warpgroup come to the same call together.
#[gpu_only]
#[inline(always)]
pub unsafe fn wait_group<const PENDING: u32>() {
    // SAFETY: the caller's contract.
    unsafe { intrinsics::wgmma_wait_group(const { PENDING as u64 }) }
}
