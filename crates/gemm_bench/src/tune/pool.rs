//! Operands for many products, without copies from the host.
//!
//! A launch gets the next part of a large buffer, so that it does not find its operands in the L2
//! cache. Inputs are random numbers, in f32 as in 16 bits: equal bits would take less power.

use cuda_gemm::{
    Device, DeviceMatrix, DeviceMatrixRef, Element, Extras, Gemm, Matrix, OperandMut, OperandRef,
    Plan, Stream,
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
    stream: Stream,
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
            stream: device.stream(),
        })
    }

    /// Whether a product's operands fit.
    pub fn has_room(&self, gemm: &Gemm) -> bool {
        let [a, b, c] = gemm.shapes();
        let input = gemm.compute.element();
        let is_small = |bytes: u128| bytes <= u128::from(self.inputs.bytes());
        let all = [
            bytes(gemm, input, a, gemm.lda),
            bytes(gemm, input, b, gemm.ldb),
            if gemm.epilogue.residual { bytes(gemm, Element::F32, c, gemm.ldc) } else { 0 },
            // Scale and bias.
            8 * (gemm.m as u128 + gemm.n as u128),
            ALIGNMENT_OF_ALL,
        ];
        let all = all.into_iter().fold(0, u128::saturating_add);
        // C has a buffer of its own, of the same size.
        is_small(all) && is_small(bytes(gemm, gemm.output, c, gemm.ldc))
    }

    /// Enqueues a product with the next operands.
    ///
    /// # Errors
    ///
    /// The errors of [`Plan::run_with`]. The product must have [room](OperandPool::has_room).
    pub fn enqueue(&mut self, plan: &Plan<'_>) -> Result<(), Error> {
        let gemm = *plan.gemm();
        assert!(self.has_room(&gemm), "operands do not fit");
        let input = gemm.compute.element();
        let [shape_a, shape_b, shape_c] = gemm.shapes();
        let [a, b] = [(shape_a, gemm.lda), (shape_b, gemm.ldb)]
            .map(|(shape, ld)| (self.inputs.take(bytes(&gemm, input, shape, ld)), shape, ld));
        let c = self.outputs.take(bytes(&gemm, gemm.output, shape_c, gemm.ldc));
        let [scale, bias] = [gemm.epilogue.scale, gemm.epilogue.bias].map(|axis| {
            let length = axis?.len(gemm.m, gemm.n);
            Some((self.inputs.take(4 * length as u128), length))
        });
        let residual = gemm
            .epilogue
            .residual
            .then(|| self.inputs.take(bytes(&gemm, Element::F32, shape_c, gemm.ldc)));
        let stream = &self.stream;
        let operand = |(address, shape, ld), element, trans| {
            // SAFETY: the pool has these bytes, which are initialised, and lives as long as the
            // stream's work with them: freeing memory waits.
            let view = unsafe {
                OperandRef::of_element(stream, element, address, stacked(&gemm, shape), ld)
            }?;
            let view = if gemm.batch > 1 { view.batch(gemm.batch)? } else { view };
            Ok::<_, Error>(if trans { view.t() } else { view })
        };
        let a = operand(a, input, gemm.trans_a)?;
        let b = operand(b, input, gemm.trans_b)?;
        // SAFETY: as above, and no other operand is in this buffer.
        let c = unsafe {
            OperandMut::of_element(stream, gemm.output, c, stacked(&gemm, shape_c), gemm.ldc)
        }?;
        let c = if gemm.batch > 1 { c.batch(gemm.batch)? } else { c };
        let mut extras = Extras::new();
        let vector = |(address, length)| {
            // SAFETY: as for A.
            unsafe { DeviceMatrixRef::<f32>::from_address(stream, address, [1, length], length) }
        };
        if let Some(scale) = scale {
            extras = extras.scale(vector(scale)?);
        }
        if let Some(bias) = bias {
            extras = extras.bias(vector(bias)?);
        }
        if let Some(address) = residual {
            let shape = stacked(&gemm, shape_c);
            // SAFETY: as for A.
            let residual =
                unsafe { DeviceMatrixRef::from_address(stream, address, shape, gemm.ldc) }?;
            let residual = if gemm.batch > 1 { residual.batch(gemm.batch)? } else { residual };
            extras = extras.residual(residual);
        }
        Ok(plan.run_with(a, b, c, extras)?)
    }
}

/// The most that the alignment of operands adds.
const ALIGNMENT_OF_ALL: u128 = 8 * ALIGNMENT as u128;

/// The rows of all products, one below the other.
fn stacked(gemm: &Gemm, [rows, cols]: [usize; 2]) -> [usize; 2] {
    [gemm.batch * rows, cols]
}

/// The bytes of an operand's matrices, one below the other.
fn bytes(gemm: &Gemm, element: Element, [rows, _]: [usize; 2], ld: usize) -> u128 {
    let counts = [gemm.batch, rows, ld].into_iter();
    counts.fold(element.bytes() as u128, |bytes, count| bytes.saturating_mul(count as u128))
}
