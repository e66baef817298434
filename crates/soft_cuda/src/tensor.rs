//! Tensor maps: what a bulk tensor copy knows about the tensor in memory.
//!
//! A GPU's tensor map is 128 opaque bytes that its driver encodes. So is the
//! software device's, with an encoding of its own: a map of one is refused by
//! the other.

/// The most dimensions of a tensor.
const MAX_RANK: usize = 5;
/// The first word of every map of the software device.
const MAGIC: u64 = u64::from_le_bytes(*b"softTMAP");
/// Bytes of an encoded map.
pub(crate) const MAP_BYTES: u32 = 128;

/// How a bulk tensor copy permutes the 16-byte chunks of shared memory, so that
/// reading a column of the box meets no bank conflict. The bits of the shared
/// address that select the chunk are combined with higher ones by exclusive or.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Swizzle {
    /// Not at all.
    #[default]
    None,
    /// Bit 4 with bit 7.
    Bytes32,
    /// Bits 4 and 5 with bits 7 and 8.
    Bytes64,
    /// Bits 4 to 6 with bits 7 to 9.
    Bytes128,
}

impl Swizzle {
    const ALL: [Swizzle; 4] =
        [Swizzle::None, Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128];

    /// Bytes that a row of the box must have; `None` if any number will do.
    fn span(self) -> Option<u32> {
        (self != Swizzle::None).then(|| 16 << self as u32)
    }

    /// Where the byte of shared memory goes that would lie at `address`.
    pub(crate) fn apply(self, address: u32) -> u32 {
        address ^ ((address >> 7 & ((1 << self as u32) - 1)) << 4)
    }
}

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TensorElement {
    /// 16 bits.
    F16,
    /// 16 bits.
    Bf16,
    /// 32 bits.
    #[default]
    F32,
    /// 32 bits. A copy to shared memory rounds f32 to the nearest, ties to even, as an H200 does
    /// (`runs/h200/tf32`).
    Tf32,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    S32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    S64,
    /// 64 bits.
    F64,
}

impl TensorElement {
    const ALL: [TensorElement; 9] = [
        TensorElement::F16,
        TensorElement::Bf16,
        TensorElement::F32,
        TensorElement::Tf32,
        TensorElement::U32,
        TensorElement::S32,
        TensorElement::U64,
        TensorElement::S64,
        TensorElement::F64,
    ];

    /// Bytes of an element.
    pub(crate) fn bytes(self) -> u32 {
        match self {
            TensorElement::F16 | TensorElement::Bf16 => 2,
            TensorElement::F32 | TensorElement::Tf32 => 4,
            TensorElement::U32 | TensorElement::S32 => 4,
            TensorElement::U64 | TensorElement::S64 | TensorElement::F64 => 8,
        }
    }

    /// The types by which the reductions of PTX may call it, its own first.
    pub(crate) fn types(self) -> &'static [&'static str] {
        match self {
            TensorElement::F16 => &["f16"],
            TensorElement::Bf16 => &["bf16"],
            TensorElement::F32 => &["f32"],
            TensorElement::Tf32 => &["tf32"],
            TensorElement::U32 => &["u32", "b32"],
            TensorElement::S32 => &["s32", "b32"],
            TensorElement::U64 => &["u64", "b64"],
            // Sums have the same bits with and without a sign.
            TensorElement::S64 => &["s64", "u64", "b64"],
            TensorElement::F64 => &["f64"],
        }
    }

    fn is_float(self) -> bool {
        self.types()[0].contains('f')
    }
}

/// What a bulk tensor copy writes for elements outside of the tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fill {
    /// Zeros.
    #[default]
    Zeros,
    /// NaN.
    Nan,
}

/// Why there is no tensor map of what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorMapError {
    /// No dimension, or more than five, or lists of different lengths.
    #[error(
        "a tensor of {dims} dimensions with {strides} strides and a box of {box_dims} dimensions; a tensor has 1 to 5, as many as its box, and one stride less"
    )]
    Rank {
        /// Dimensions given.
        dims: usize,
        /// Strides given.
        strides: usize,
        /// Box dimensions given.
        box_dims: usize,
    },
    /// The address of the tensor is not aligned.
    #[error("the tensor starts at {address:#x}, which is not a multiple of 16; align it")]
    Address {
        /// The address.
        address: u64,
    },
    /// The extent of a dimension is out of range.
    #[error("dimension {index} has {extent} elements; 1 to 2^32 are possible")]
    Dimension {
        /// Which one; 0 is the innermost.
        index: usize,
        /// Its elements.
        extent: u64,
    },
    /// A stride is not aligned or out of range.
    #[error(
        "the stride of dimension {index} is {bytes} bytes; it must be a multiple of 16 below 2^40"
    )]
    Stride {
        /// Which dimension; the innermost, 0, has no stride.
        index: usize,
        /// The stride.
        bytes: u64,
    },
    /// The extent of the box in a dimension is out of range.
    #[error("the box has {extent} elements in dimension {index}; 1 to 256 are possible")]
    Box {
        /// Which dimension; 0 is the innermost.
        index: usize,
        /// Elements.
        extent: u32,
    },
    /// The rows of the box are not made of whole 16-byte chunks.
    #[error("a row of the box has {bytes} bytes; it must be a multiple of 16")]
    BoxRow {
        /// Bytes of a row.
        bytes: u32,
    },
    /// The rows of the box are longer than what is swizzled.
    #[error("a row of the box has {bytes} bytes, but the swizzle allows at most {span}")]
    WideRow {
        /// Bytes of a row.
        bytes: u32,
        /// Bytes that the swizzle permutes.
        span: u32,
    },
    /// The rows of the box are shorter than what is swizzled: a GPU can, the
    /// software device cannot.
    #[error(
        "a row of the box has {bytes} bytes, and the software device swizzles only rows of {span}; make the box wider or use another swizzle"
    )]
    NarrowRow {
        /// Bytes of a row.
        bytes: u32,
        /// Bytes that the swizzle permutes.
        span: u32,
    },
    /// NaN outside of a tensor of integers.
    #[error(
        "the elements are integers, but those outside of the tensor would be NaN; fill with zeros"
    )]
    NanOfIntegers,
}

/// A tensor in device memory and the box of it that one copy moves.
///
/// Dimension 0 is the innermost one, whose elements are next to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorMap {
    element: TensorElement,
    address: u64,
    rank: usize,
    dims: [u64; MAX_RANK],
    /// Bytes from one index to the next in each dimension.
    strides: [u64; MAX_RANK],
    box_dims: [u32; MAX_RANK],
    swizzle: Swizzle,
    fill: Fill,
}

/// One row of a box: elements that are neighbours in memory.
pub(crate) struct Row {
    /// Bytes from the start of the box, before swizzling.
    pub at: u32,
    /// The first element that lies in the tensor, counted in the row, and one
    /// past the last; equal if there is none.
    pub inside: std::ops::Range<u32>,
    /// Address of the first element that lies in the tensor.
    pub address: u64,
}

impl TensorMap {
    /// Describes the tensor of f32 at `address` with `dims` elements in each dimension,
    /// `strides[i]` bytes apart in dimension `i + 1`, and boxes of `box_dims`
    /// elements.
    ///
    /// # Errors
    /// [`TensorMapError`], for what the CUDA driver refuses too, and for rows
    /// shorter than the swizzle.
    pub fn new(
        address: u64,
        dims: &[u64],
        strides: &[u64],
        box_dims: &[u32],
        swizzle: Swizzle,
        fill: Fill,
    ) -> Result<TensorMap, TensorMapError> {
        TensorMap::of(TensorElement::F32, address, dims, strides, box_dims, (swizzle, fill))
    }

    /// As [`new`](TensorMap::new), for elements of another type.
    ///
    /// # Errors
    /// As for [`new`](TensorMap::new).
    pub fn of(
        element: TensorElement,
        address: u64,
        dims: &[u64],
        strides: &[u64],
        box_dims: &[u32],
        (swizzle, fill): (Swizzle, Fill),
    ) -> Result<TensorMap, TensorMapError> {
        let rank = dims.len();
        if !(1..=MAX_RANK).contains(&rank) || box_dims.len() != rank || strides.len() + 1 != rank {
            let (strides, box_dims) = (strides.len(), box_dims.len());
            return Err(TensorMapError::Rank { dims: rank, strides, box_dims });
        }
        if !address.is_multiple_of(16) {
            return Err(TensorMapError::Address { address });
        }
        if fill == Fill::Nan && !element.is_float() {
            return Err(TensorMapError::NanOfIntegers);
        }
        let mut map = TensorMap {
            element,
            address,
            rank,
            dims: [1; MAX_RANK],
            strides: [0; MAX_RANK],
            box_dims: [1; MAX_RANK],
            swizzle,
            fill,
        };
        map.strides[0] = element.bytes().into();
        for (index, &extent) in dims.iter().enumerate() {
            if !(1..=1 << 32).contains(&extent) {
                return Err(TensorMapError::Dimension { index, extent });
            }
            map.dims[index] = extent;
        }
        for (index, &bytes) in (1..).zip(strides) {
            if !bytes.is_multiple_of(16) || bytes >= 1 << 40 {
                return Err(TensorMapError::Stride { index, bytes });
            }
            map.strides[index] = bytes;
        }
        for (index, &extent) in box_dims.iter().enumerate() {
            if !(1..=256).contains(&extent) {
                return Err(TensorMapError::Box { index, extent });
            }
            map.box_dims[index] = extent;
        }
        let bytes = map.row_bytes();
        if !bytes.is_multiple_of(16) {
            return Err(TensorMapError::BoxRow { bytes });
        }
        match swizzle.span() {
            Some(span) if bytes > span => Err(TensorMapError::WideRow { bytes, span }),
            Some(span) if bytes < span => Err(TensorMapError::NarrowRow { bytes, span }),
            _ => Ok(map),
        }
    }

    /// The map as kernels take it: 128 bytes, to be passed by value or to lie in
    /// device memory, aligned to 64 bytes.
    pub fn to_bytes(&self) -> [u8; MAP_BYTES as usize] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let b = &self.box_dims;
        let kind = pair(
            self.rank as u32,
            Swizzle::ALL.iter().position(|&s| s == self.swizzle).unwrap_or(0) as u32
                | u32::from(self.fill == Fill::Nan) << 8
                | (TensorElement::ALL.iter().position(|&e| e == self.element).unwrap_or(0) as u32)
                    << 16,
        );
        let boxes = [pair(b[0], b[1]), pair(b[2], b[3]), pair(b[4], 0)];
        let words = [MAGIC, self.address, kind];
        let words = words.iter().chain(&self.dims).chain(&self.strides).chain(&boxes);
        let mut bytes = [0; MAP_BYTES as usize];
        for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        bytes
    }

    /// The map that [`to_bytes`](TensorMap::to_bytes) encoded; `None` for
    /// anything else.
    pub(crate) fn from_bytes(bytes: &[u8; MAP_BYTES as usize]) -> Option<TensorMap> {
        let words: Vec<u64> =
            bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect();
        let rank = words[2] as u32 as usize;
        if words[0] != MAGIC || !(1..=MAX_RANK).contains(&rank) {
            return None;
        }
        let boxes: Vec<u32> =
            words[13..].iter().flat_map(|&word| [word as u32, (word >> 32) as u32]).collect();
        let swizzle = *Swizzle::ALL.get((words[2] >> 32 & 0xff) as usize)?;
        let fill = if words[2] >> 40 & 1 != 0 { Fill::Nan } else { Fill::Zeros };
        let element = *TensorElement::ALL.get((words[2] >> 48 & 0xff) as usize)?;
        // A map whose bytes were changed is none: what `new` checks holds.
        let (dims, strides) = (&words[3..3 + rank], &words[9..8 + rank]);
        TensorMap::of(element, words[1], dims, strides, &boxes[..rank], (swizzle, fill)).ok()
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn swizzle(&self) -> Swizzle {
        self.swizzle
    }

    /// Bits of an element outside of the tensor.
    pub(crate) fn fill_bits(&self) -> u64 {
        match self.fill {
            Fill::Zeros => 0,
            Fill::Nan => i64::MAX as u64 >> (64 - 8 * self.element.bytes()),
        }
    }

    /// What a copy to shared memory makes of the bits of an element of four bytes.
    pub(crate) fn converted(&self, bits: u32) -> u32 {
        /// All that TF32 has not.
        const REST: u32 = (1 << 13) - 1;
        match self.element {
            TensorElement::Tf32 if f32::from_bits(bits).is_nan() => bits & !REST | 1 << 22,
            // A carry into the exponent is right, too.
            TensorElement::Tf32 => (bits + REST / 2 + (bits >> 13 & 1)) & !REST,
            _ => bits,
        }
    }

    pub(crate) fn element(&self) -> TensorElement {
        self.element
    }

    /// Bytes of an element.
    pub(crate) fn element_bytes(&self) -> u32 {
        self.element.bytes()
    }

    /// Bytes of a row of the box.
    pub(crate) fn row_bytes(&self) -> u32 {
        self.box_dims[0] * self.element.bytes()
    }

    /// Bytes of the whole box.
    pub(crate) fn box_bytes(&self) -> u64 {
        self.box_dims.iter().map(|&extent| u64::from(extent)).product::<u64>()
            * u64::from(self.element.bytes())
    }

    /// The rows of the box whose first element has these coordinates.
    pub(crate) fn rows(&self, start: [i32; MAX_RANK]) -> impl Iterator<Item = Row> {
        let [_, b1, b2, b3, b4] = self.box_dims.map(u64::from);
        let (row_bytes, element_bytes) = (self.row_bytes(), u64::from(self.element.bytes()));
        // In i64: an i32 plus an extent of at most 256 does not overflow.
        let first = i64::from(start[0]);
        let length = i64::from(self.box_dims[0]);
        let clamp = |at: i64| (at - first).clamp(0, length) as u32;
        let columns = clamp(0)..clamp(i64::try_from(self.dims[0]).unwrap_or(i64::MAX));
        (0..b1 * b2 * b3 * b4).map(move |row| {
            let steps = [row % b1, row / b1 % b2, row / (b1 * b2) % b3, row / (b1 * b2 * b3)];
            let mut address = self.address;
            let mut outside = columns.is_empty();
            for (d, step) in (1..MAX_RANK).zip(steps) {
                let index = i64::from(start[d]) + step as i64;
                outside |= index < 0 || index as u64 >= self.dims[d];
                address = address.wrapping_add((index as u64).wrapping_mul(self.strides[d]));
            }
            let inside = if outside { 0..0 } else { columns.clone() };
            let index = first + i64::from(inside.start);
            let address = address.wrapping_add((index as u64).wrapping_mul(element_bytes));
            Row { at: row as u32 * row_bytes, inside, address }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(dims: &[u64], strides: &[u64], boxes: &[u32]) -> Result<TensorMap, TensorMapError> {
        TensorMap::new(0x1000, dims, strides, boxes, Swizzle::None, Fill::Zeros)
    }

    #[test]
    fn bytes_and_back() {
        for (i, element) in TensorElement::ALL.into_iter().enumerate() {
            let (rank, swizzle) = (i % 5 + 1, Swizzle::ALL[i % 4]);
            let fill = if element.is_float() { Fill::Nan } else { Fill::Zeros };
            let boxes = [swizzle.span().unwrap_or(64) / element.bytes(), 3, 256, 1, 2];
            let map = TensorMap::of(
                element,
                0x50_0000_0000_0010,
                &[1 << 32, 7, 8, 9, 10][..rank],
                &[1 << 39, 16, 32, 48][..rank - 1],
                &boxes[..rank],
                (swizzle, fill),
            )
            .unwrap();
            assert_eq!(TensorMap::from_bytes(&map.to_bytes()), Some(map));
        }
        assert_eq!(TensorMap::from_bytes(&[0; 128]), None);
        let mut changed = map(&[8], &[], &[8]).unwrap().to_bytes();
        changed[8] = 1;
        assert_eq!(TensorMap::from_bytes(&changed), None);
    }

    #[test]
    fn what_is_refused() {
        use TensorMapError as E;
        let swizzled = |row: u32, swizzle| {
            TensorMap::new(0, &[64, 64], &[256], &[row, 8], swizzle, Fill::Zeros).map(|_| ())
        };
        assert!(matches!(map(&[], &[], &[]), Err(E::Rank { dims: 0, .. })));
        assert!(matches!(map(&[1; 6], &[16; 5], &[4; 6]), Err(E::Rank { dims: 6, .. })));
        assert!(matches!(map(&[4, 4], &[], &[4, 4]), Err(E::Rank { strides: 0, .. })));
        assert_eq!(map(&[4, 0], &[16], &[4, 4]), Err(E::Dimension { index: 1, extent: 0 }));
        let extent = (1 << 32) + 1;
        assert_eq!(map(&[extent], &[], &[4]), Err(E::Dimension { index: 0, extent }));
        let integers = TensorElement::S64;
        let nan = (Swizzle::None, Fill::Nan);
        let integers = TensorMap::of(integers, 0, &[4], &[], &[4], nan);
        assert_eq!(integers, Err(E::NanOfIntegers));
        assert_eq!(map(&[4, 4], &[20], &[4, 4]), Err(E::Stride { index: 1, bytes: 20 }));
        let bytes = 1 << 40;
        assert_eq!(map(&[4, 4], &[bytes], &[4, 4]), Err(E::Stride { index: 1, bytes }));
        assert_eq!(map(&[4, 4], &[16], &[4, 257]), Err(E::Box { index: 1, extent: 257 }));
        assert_eq!(map(&[4, 4], &[16], &[0, 1]), Err(E::Box { index: 0, extent: 0 }));
        assert_eq!(map(&[4], &[], &[6]), Err(E::BoxRow { bytes: 24 }));
        assert_eq!(swizzled(32, Swizzle::Bytes128), Ok(()));
        let wide = Err(E::WideRow { bytes: 256, span: 128 });
        assert_eq!(swizzled(64, Swizzle::Bytes128), wide);
        assert_eq!(swizzled(8, Swizzle::Bytes64), Err(E::NarrowRow { bytes: 32, span: 64 }));
    }

    #[test]
    fn swizzles_are_those_of_the_manual() {
        for (swizzle, bits) in [
            (Swizzle::None, 0),
            (Swizzle::Bytes32, 1),
            (Swizzle::Bytes64, 3),
            (Swizzle::Bytes128, 7),
        ] {
            for address in (0..4096).step_by(4) {
                let wanted = address ^ ((address >> 3) & (bits << 4));
                assert_eq!(swizzle.apply(address), wanted, "{swizzle:?} {address}");
            }
        }
    }

    #[test]
    fn rows_are_clipped_on_both_sides() {
        let map = map(&[10, 3], &[64], &[8, 2]).unwrap();
        let rows = |x, y| -> Vec<_> {
            // The address of a row outside is never used, and may lie before the tensor.
            let offset = |row: &Row| row.address.wrapping_sub(0x1000);
            map.rows([x, y, 0, 0, 0]).map(|r| (r.at, r.inside.clone(), offset(&r))).collect()
        };
        assert_eq!(rows(0, 0), [(0, 0..8, 0), (32, 0..8, 64)]);
        assert_eq!(rows(8, 2)[0], (0, 0..2, 160));
        assert!(rows(8, 2)[1].1.is_empty());
        assert_eq!(rows(-3, -1)[1], (32, 3..8, 0));
        for far in [(10, 0), (-8, 0), (i32::MIN, i32::MIN), (i32::MAX, i32::MAX)] {
            assert!(map.rows([far.0, far.1, 0, 0, 0]).all(|row| row.inside.is_empty()), "{far:?}");
        }
    }
}
