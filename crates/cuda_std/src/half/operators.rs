//! The operators of pairs of 16-bit floats.

use core::ops::{Add, Mul, Neg, Sub};

use super::arithmetic;
use super::pair::{bf16x2, f16x2};

macro_rules! operators {
    ($($ty:ty { $($operator:ident $name:ident($($other:ident)?);)* })*) => {$($(
        impl $operator for $ty {
            type Output = Self;
            #[inline(always)]
            fn $name(self $(, $other: Self)?) -> Self {
                arithmetic::$name(self $(, $other)?)
            }
        }
    )*)*};
}

operators! {
    f16x2 {
        Add add(other);
        Sub sub(other);
        Mul mul(other);
        Neg neg();
    }
    bf16x2 {
        Add add(other);
        Sub sub(other);
        Mul mul(other);
        Neg neg();
    }
}
