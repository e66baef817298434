//! Operands for many products, without copies from the host.
//!
//! A launch gets the next part of a large buffer, so that it does not find its operands in the L2
//! cache. Inputs are random numbers, in f32 as in 16 bits: equal bits would take less power.

use cuda_gemm::{
    Axis, Batching, Device, DeviceMatrix, Element, Gemm, Matrix, Plan, RawExtra, RawExtras,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::error::Error;

/// The alignment of each operand, in bytes.
const ALIGNMENT: u64 = 256;

/// Different random words; longer buffers repeat them.
const WORDS: usize = 1 << 22;

/// A buffer's size beside a product, in L2 caches.
const TURNOVER: u64 = 3;

/// Buffers of random numbers, and for results.
pub struct OperandPool {
    inputs: Buffer,
    outputs: Buffer,
}

struct Buffer {
    memory: DeviceMatrix<f32>,
    /// Where the next operand begins, in bytes.
    next: u64,
}

impl Buffer {
    fn bytes(&self) -> u64 {
        4 * (self.memory.rows() * self.memory.cols()) as u64
    }

    /// The address of the next operand.
    fn take(&mut self, bytes: u128) -> u64 {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        assert!(bytes <= self.bytes(), "the operand does not fit");
        if self.bytes() - self.next < bytes {
            self.next = 0;
        }
        let address = self.memory.address() + self.next;
        self.next = (self.next + bytes).next_multiple_of(ALIGNMENT).min(self.bytes());
        address
    }
}

/// A random number from -1 to 1 in `bf16`. It is finite in `f16`.
fn random(rng: &mut ChaCha8Rng) -> u32 {
    let bits = rng.next_u32();
    // Magnitudes from 1/16 to below 1.
    (bits & 0x8000) | (0x3d80 + bits % 0x0200)
}

impl OperandPool {
    /// Allocates buffers for products up to `largest` bytes. The L2 cache stays cold.
    ///
    /// Each has about a quarter of the free memory at most.
    pub fn for_products(device: &Device, largest: u128) -> Result<Self, Error> {
        // The software device has no L2 cache.
        let l2_bytes = if device.is_soft() { 0 } else { device.info().l2_bytes };
        let wanted = largest + 2 * ALIGNMENT_OF_ALL + u128::from(TURNOVER * l2_bytes);
        let words = (wanted / 4).min(u128::from(device.free_memory()? / 16)) as usize;
        let (rows, cols) = (words.div_ceil(WORDS), words.clamp(1, WORDS));
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let random: Vec<f32> =
            (0..cols).map(|_| f32::from_bits(random(&mut rng) << 16 | random(&mut rng))).collect();
        let random = Matrix::from_vec(1, cols, random);
        let shape = [rows.max(1), cols];
        let mut inputs = DeviceMatrix::<f32>::zeros(device, shape)?;
        for row in 0..shape[0] {
            inputs.submatrix_mut(row..row + 1, 0..cols)?.upload(&random)?;
        }
        let outputs = DeviceMatrix::zeros(device, shape)?;
        Ok(Self {
            inputs: Buffer { memory: inputs, next: 0 },
            outputs: Buffer { memory: outputs, next: 0 },
        })
    }

    /// Whether a product's operands fit. Batches of pointers and groups have none here.
    pub fn has_room(&self, gemm: &Gemm) -> bool {
        let [inputs @ .., c] = bytes(gemm);
        let inputs = inputs.into_iter().fold(ALIGNMENT_OF_ALL, u128::saturating_add);
        // C has a buffer of its own, of the same size.
        gemm.batching == Batching::Strided && inputs.max(c) <= u128::from(self.inputs.bytes())
    }

    /// Enqueues a product with the next operands.
    ///
    /// # Errors
    ///
    /// The errors of [`Plan::run_raw`]. The product must have [room](OperandPool::has_room).
    pub fn enqueue(&mut self, plan: &Plan<'_>) -> Result<(), Error> {
        let gemm = plan.gemm();
        assert!(self.has_room(gemm), "operands do not fit");
        let [inputs @ .., c] = bytes(gemm);
        let [a, b, scale, bias, residual] = inputs.map(|bytes| self.inputs.take(bytes));
        let c = self.outputs.take(c);
        let vector = |address| RawExtra { address, ..RawExtra::default() };
        let (ld, stride) = (gemm.ldc, gemm.m * gemm.ldc);
        let extras = RawExtras {
            scale: vector(scale),
            bias: vector(bias),
            residual: RawExtra { address: residual, ld, stride },
            ..RawExtras::default()
        };
        // SAFETY: the pool has these bytes, which are initialised and aligned. C has a buffer of
        // its own. The plan, the pool and the memory are on one stream, and freeing memory waits.
        unsafe { plan.run_raw([a, b, c], extras)? };
        Ok(())
    }
}

/// The most that the alignment of operands adds.
const ALIGNMENT_OF_ALL: u128 = 8 * ALIGNMENT as u128;

/// The bytes of A, B, scale, bias, residual and C, from the first product's to the last one's.
fn bytes(gemm: &Gemm) -> [u128; 6] {
    let Gemm { m, n, lda, ldb, ldc, epilogue, output, .. } = *gemm;
    let matrices = |element: Element, [rows, ld]: [usize; 2], stride: usize| {
        let others = gemm.batch.saturating_sub(1) as u128 * stride as u128;
        element.bytes() as u128 * (rows as u128 * ld as u128 + others)
    };
    let vector = |axis: Option<Axis>| axis.map_or(0, |axis| 4 * axis.len(m, n) as u128);
    let (input, [[rows_a, _], [rows_b, _], _]) = (gemm.compute.element(), gemm.shapes());
    [
        matrices(input, [rows_a, lda], gemm.stride_a),
        matrices(input, [rows_b, ldb], gemm.stride_b),
        vector(epilogue.scale),
        vector(epilogue.bias),
        if epilogue.residual { matrices(Element::F32, [m, ldc], m * ldc) } else { 0 },
        matrices(output, [m, ldc], gemm.stride_c),
    ]
}
