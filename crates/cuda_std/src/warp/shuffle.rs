//! Shuffles.

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use super::lane::lane_id;
#[cfg(target_arch = "nvptx64")]
use crate::intrinsics;

/// A value that shuffles accept: numbers of up to 128 bits.
///
/// A number of more than 32 bits costs an instruction for every 32.
pub trait WarpShuffleValue: Copy {
    /// `shuffle` for all 32-bit words of `self`.
    #[doc(hidden)]
    #[must_use]
    fn map_words(self, shuffle: impl Fn(u32) -> u32) -> Self;
}

macro_rules! values {
    ($($ty:ty, |$value:ident, $shuffle:ident| $result:expr;)*) => {$(
        impl WarpShuffleValue for $ty {
            #[inline(always)]
            fn map_words(self, $shuffle: impl Fn(u32) -> u32) -> $ty {
                let $value = self;
                $result
            }
        }
    )*};
}

values! {
    u8, |value, shuffle| shuffle(value.into()) as u8;
    i8, |value, shuffle| shuffle(value as u32) as i8;
    u16, |value, shuffle| shuffle(value.into()) as u16;
    i16, |value, shuffle| shuffle(value as u32) as i16;
    u32, |value, shuffle| shuffle(value);
    i32, |value, shuffle| shuffle(value as u32) as i32;
    f32, |value, shuffle| f32::from_bits(shuffle(value.to_bits()));
    u64, |value, shuffle| u64::from(shuffle(value as u32)) | u64::from(shuffle((value >> 32) as u32)) << 32;
    i64, |value, shuffle| (value as u64).map_words(shuffle) as i64;
    f64, |value, shuffle| f64::from_bits(value.to_bits().map_words(shuffle));
    u128, |value, shuffle| {
        let (low, high) = (value as u64, (value >> 64) as u64);
        u128::from(low.map_words(&shuffle)) | u128::from(high.map_words(&shuffle)) << 64
    };
    i128, |value, shuffle| (value as u128).map_words(shuffle) as i128;
}

macro_rules! shuffles {
    ($($(#[$doc:meta])* $name:ident($lane:ident) = $intrinsic:ident, |$own:ident, $width:ident| ($clamp:expr, $inside:expr);)*) => {$(
        $(#[$doc])*
        ///
        /// `width` splits the warp into sections that shuffle by themselves; 32 is the whole warp.
        /// The second result is the instruction's predicate: whether the lane that the value comes
        /// from is in reach. If it is not, a lane gets its own `value` back.
        ///
        /// # Safety
        /// See the [module](super). The lane that the value comes from is also in `mask`, and has
        /// not returned. `width` is a power of two from 1 to 32.
        #[gpu_only]
        #[inline(always)]
        #[must_use]
        pub unsafe fn $name<T: WarpShuffleValue>(
            mask: u32,
            value: T,
            $lane: u32,
            $width: u32,
        ) -> (T, bool) {
            let clamp = (32 - $width) << 8 | $clamp;
            let got = value.map_words(|word| {
                // SAFETY: the caller's contract.
                unsafe { intrinsics::$intrinsic(mask, word, $lane, clamp) }
            });
            // This is the instruction's predicate (PTX ISA: "shfl.sync"), and costs nothing if it
            // is not used.
            let $own = lane_id();
            let $lane = $lane % 32;
            (got, $inside)
        }
    )*};
}

shuffles! {
    /// The `value` of the lane `delta % 32` below (`shfl.sync.up`).
    warp_shuffle_up(delta) = shfl_up, |own, width| (0, own % width >= delta);
    /// The `value` of the lane `delta % 32` above (`shfl.sync.down`).
    warp_shuffle_down(delta) = shfl_down, |own, width| (31, own + delta <= own | (width - 1));
    /// The `value` of lane `index % 32` of the section (`shfl.sync.idx`).
    warp_shuffle_idx(index) = shfl_idx, |_own, _width| (31, index < 32);
    /// The `value` of the lane whose number differs in the bits of `bits % 32`
    /// (`shfl.sync.bfly`); sections below the lane's own are in reach, those above are not.
    warp_shuffle_xor(bits) = shfl_bfly, |own, width| (31, own ^ bits <= own | (width - 1));
}
