//! Element types: their rounding and their storage.

use std::fmt;

use half::{bf16, f16};

/// The element type of a device matrix.
///
/// On the host elements are f32, which holds all types exactly.
///
/// ```
/// use gemm_matrix::{Element, Matrix};
///
/// assert_eq!(Element::Bf16.round(1.0 + 1.0 / 256.0), 1.0);
/// let bytes = Element::F16.encode(&[1.0, -2.0]);
/// assert_eq!(bytes, [0, 0x3c, 0, 0xc0]);
/// assert_eq!(Element::F16.decode(&bytes), [1.0, -2.0]);
/// let matrix = Matrix::from_vec(1, 2, vec![0.1, 3.0]).rounded(Element::F16);
/// assert_eq!(matrix.as_slice(), [0.099975586, 3.0]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Element {
    /// 24 bits of precision.
    #[default]
    F32,
    /// The upper half of an f32, with 8 bits of precision, rounded to the nearest, ties to even.
    Bf16,
    /// 11 bits of precision, and numbers up to 65504, rounded to the nearest, ties to even.
    F16,
}

impl Element {
    /// All element types.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::F16];

    /// The name of the type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// Bytes of an element in memory.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    /// The largest relative error of rounding to this type.
    pub const fn unit_roundoff(self) -> f64 {
        match self {
            Self::F32 => 1.0 / (1 << 24) as f64,
            Self::F16 => 1.0 / (1 << 11) as f64,
            Self::Bf16 => 1.0 / (1 << 8) as f64,
        }
    }

    /// The smallest number with full precision.
    pub fn min_positive(self) -> f64 {
        match self {
            Self::F16 => f16::MIN_POSITIVE.to_f64(),
            _ => f32::MIN_POSITIVE.into(),
        }
    }

    /// The largest finite number.
    pub fn max(self) -> f64 {
        match self {
            Self::F32 => f32::MAX.into(),
            Self::Bf16 => bf16::MAX.to_f64(),
            Self::F16 => f16::MAX.to_f64(),
        }
    }

    /// Rounds a number to this type.
    #[must_use]
    pub fn round(self, x: f32) -> f32 {
        match self {
            Self::F32 => x,
            Self::Bf16 => bf16::from_f32(x).to_f32(),
            Self::F16 => f16::from_f32(x).to_f32(),
        }
    }

    /// The rounded elements, as stored in memory.
    pub fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => values.iter().flat_map(|&x| x.to_le_bytes()).collect(),
            Self::Bf16 => values.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect(),
            Self::F16 => values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
        }
    }

    /// The elements stored in these bytes; a partial element at the end is ignored.
    pub fn decode(self, bytes: &[u8]) -> Vec<f32> {
        let halves = bytes.as_chunks().0;
        match self {
            Self::F32 => bytes.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect(),
            Self::Bf16 => halves.iter().map(|&half| bf16::from_le_bytes(half).to_f32()).collect(),
            Self::F16 => halves.iter().map(|&half| f16::from_le_bytes(half).to_f32()).collect(),
        }
    }
}

/// A type of matrix elements in device memory: `f32`, `bf16` or `f16`.
///
/// ```
/// use gemm_matrix::{Element, Scalar, bf16};
///
/// assert_eq!(bf16::ELEMENT, Element::Bf16);
/// assert_eq!(bf16::from_f32(257.0).to_f32(), 256.0);
/// ```
///
/// # Safety
///
/// [`ELEMENT`](Scalar::ELEMENT) describes the type's storage, and every bit pattern is a value.
pub unsafe trait Scalar: Copy + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// The type, as a value.
    const ELEMENT: Element;
}

// SAFETY: four bytes, all of whose patterns are numbers or NaN.
unsafe impl Scalar for f32 {
    const ELEMENT: Element = Element::F32;
}

// SAFETY: a transparent `u16`, as `Element` says.
unsafe impl Scalar for bf16 {
    const ELEMENT: Element = Element::Bf16;
}

// SAFETY: a transparent `u16`, as `Element` says.
unsafe impl Scalar for f16 {
    const ELEMENT: Element = Element::F16;
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_the_nearest() {
        for element in Element::ALL {
            for x in [1.0f32, 1.5, 1.000_123_4, -3.217_592_7, 1e-3, 6.0e4, 1.999_999_9] {
                let rounded = element.round(x);
                let error = (f64::from(rounded) - f64::from(x)).abs() / f64::from(x).abs();
                assert!(error <= element.unit_roundoff(), "{element} {x}: {error}");
                assert_eq!(element.round(rounded), rounded);
                assert_eq!(element.decode(&element.encode(&[x])), [rounded]);
            }
            assert!(element.round(f32::NAN).is_nan());
            assert_eq!(element.round(f32::NEG_INFINITY), f32::NEG_INFINITY);
            assert_eq!(f64::from(element.round(element.max() as f32)), element.max());
        }
        // Ties to even.
        assert_eq!(Element::F16.round(1.0 + 1.0 / 2048.0), 1.0);
        assert_eq!(Element::Bf16.round(1.0 + 3.0 / 256.0), 1.0 + 4.0 / 256.0);
        assert_eq!(Element::F16.round(65520.0), f32::INFINITY);
    }
}
