//! The functions of operations that exist for several types.

/// The function for an integer type of 16, 32 or 64 bits; `None` for others. Compact for 16 bits.
macro_rules! pick_int {
    ($path:expr, $ty:expr, $map:ident, $f:ident) => {
        match ($ty.bits, $ty.signed()) {
            (16, false) => Some($crate::exec::pick_compact::<$map<$crate::exec::alu::$f<u16>>>()),
            (16, true) => Some($crate::exec::pick_compact::<$map<$crate::exec::alu::$f<i16>>>()),
            (32, false) => Some($crate::exec::pick::<$map<$crate::exec::alu::$f<u32>>>($path)),
            (32, true) => Some($crate::exec::pick::<$map<$crate::exec::alu::$f<i32>>>($path)),
            (64, false) => Some($crate::exec::pick::<$map<$crate::exec::alu::$f<u64>>>($path)),
            (64, true) => Some($crate::exec::pick::<$map<$crate::exec::alu::$f<i64>>>($path)),
            _ => None,
        }
    };
}

/// As [`pick_int`], for operations that do not care about the sign.
macro_rules! pick_bits {
    ($path:expr, $ty:expr, $map:ident, $f:ident) => {
        match $ty.bits {
            16 => Some($crate::exec::pick_compact::<$map<$crate::exec::alu::$f<u16>>>()),
            32 => Some($crate::exec::pick::<$map<$crate::exec::alu::$f<u32>>>($path)),
            64 => Some($crate::exec::pick::<$map<$crate::exec::alu::$f<u64>>>($path)),
            _ => None,
        }
    };
}

/// The function for f32 or f64; compact if there are flags.
macro_rules! pick_float {
    ($path:expr, $ty:expr, $flags:expr, $map:ident, $f:ident) => {
        match ($ty.bits, $flags) {
            (32, 0) => Some($crate::exec::pick::<
                $map<$crate::exec::float::Plain<$crate::exec::float::$f<f32>>>,
            >($path)),
            (32, _) => Some($crate::exec::pick_compact::<$map<$crate::exec::float::$f<f32>>>()),
            (64, 0) => Some($crate::exec::pick::<
                $map<$crate::exec::float::Plain<$crate::exec::float::$f<f64>>>,
            >($path)),
            (64, _) => Some($crate::exec::pick_compact::<$map<$crate::exec::float::$f<f64>>>()),
            _ => None,
        }
    };
}

/// As [`pick_int`], always compact.
macro_rules! compact_int {
    ($ty:expr, $map:ident, $f:ident) => {
        match ($ty.bits, $ty.signed()) {
            (16, false) => Some($crate::exec::pick_compact::<$map<$crate::exec::alu::$f<u16>>>()),
            (16, true) => Some($crate::exec::pick_compact::<$map<$crate::exec::alu::$f<i16>>>()),
            (32, false) => Some($crate::exec::pick_compact::<$map<$crate::exec::alu::$f<u32>>>()),
            (32, true) => Some($crate::exec::pick_compact::<$map<$crate::exec::alu::$f<i32>>>()),
            (64, false) => Some($crate::exec::pick_compact::<$map<$crate::exec::alu::$f<u64>>>()),
            (64, true) => Some($crate::exec::pick_compact::<$map<$crate::exec::alu::$f<i64>>>()),
            _ => None,
        }
    };
}

/// As [`pick_bits`], always compact.
macro_rules! compact_bits {
    ($ty:expr, $map:ident, $f:ident) => {
        match $ty.bits {
            16 => Some($crate::exec::pick_compact::<$map<$crate::exec::alu::$f<u16>>>()),
            32 => Some($crate::exec::pick_compact::<$map<$crate::exec::alu::$f<u32>>>()),
            64 => Some($crate::exec::pick_compact::<$map<$crate::exec::alu::$f<u64>>>()),
            _ => None,
        }
    };
}

/// As [`pick_float`], always compact.
macro_rules! compact_float {
    ($ty:expr, $map:ident, $f:ident) => {
        match $ty.bits {
            32 => Some($crate::exec::pick_compact::<$map<$crate::exec::float::$f<f32>>>()),
            64 => Some($crate::exec::pick_compact::<$map<$crate::exec::float::$f<f64>>>()),
            _ => None,
        }
    };
}

pub(super) use {compact_bits, compact_float, compact_int, pick_bits, pick_float, pick_int};
