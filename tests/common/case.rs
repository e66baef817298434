//! A product that is run between guard bands.

use host::kernels::abi::{KernelDescriptor, Shared};
use host::kernels::{LADDER, TILES};
use host::verify::{Bound, Check, Method, Problem, Reference};
use host::{Device, DeviceMatrix, DeviceMatrixRef, Gemm, Layout, Limits, Matrix, PlanBuilder};

use crate::common::{devices, runs_all};

/// What lies around and between the rows of every matrix, and in C where beta is 0: a
/// quiet NaN, so that one which is read shows up in the result.
const GUARD: u32 = 0x7fc0_beef;

/// Runs a test for every kernel on every device that runs all of the contract.
pub fn for_each_kernel(test: impl Fn(&Device, &'static KernelDescriptor)) {
    for_each_kernel_and_device(|device, descriptor| {
        if runs_all(device) {
            test(device, descriptor);
        }
    });
}

/// Runs a test for every kernel on every device that can run it. The test asks [`runs_all`].
pub fn for_each_kernel_and_device(test: impl Fn(&Device, &'static KernelDescriptor)) {
    for device in devices() {
        for descriptor in kernels(&device) {
            test(&device, descriptor);
        }
    }
}

/// The kernels that this device can run: all, but for what only Hopper has.
pub fn kernels(device: &Device) -> impl Iterator<Item = &'static KernelDescriptor> {
    let is_hopper = device.info().capability == (9, 0);
    let all = LADDER.iter().chain(TILES).copied();
    all.filter(move |descriptor| is_hopper || !descriptor.abi().has_tensor_maps())
}

/// What K is split into, in turn, where a kernel can split it.
pub const SPLITS: [u32; 4] = [1, 2, 3, 7];

/// Shapes at the edges of a kernel's tile, of which one has `cols` columns and one so many steps
/// along K, more than there are stages.
pub fn edges([bm, bn, bk]: [usize; 3], cols: usize, steps: usize) -> [[usize; 3]; 12] {
    [
        [1, 1, 1],
        [7, 11, 13],
        [1, 300, 9],
        [300, 1, 70],
        [bm, bn, bk - 1],
        [bm, bn, bk],
        [bm + 1, bn - 1, bk + 1],
        [bm - 1, cols, 3 * bk],
        [bm, bn, steps * bk + 8],
        [0, 5, 5],
        [5, 0, 5],
        [5, 5, 0],
    ]
}

/// A product to run: the matrices, and how they lie in memory.
#[derive(Clone)]
pub struct Case {
    pub gemm: Gemm,
    pub a: Matrix,
    pub b: Matrix,
    pub c: Matrix,
    /// Offset and tail of A's, B's and C's buffer, in elements; `gemm` has the leading
    /// dimensions.
    pub margins: [(usize, usize); 3],
    pub limits: Option<Limits>,
    /// For kernels that can split K.
    pub splits: u32,
}

impl Case {
    /// A product of random matrices, with some guard elements around each.
    pub fn random(gemm: Gemm, seed: u64) -> Self {
        Self::new(gemm, |rows, cols, stream| Matrix::random(rows, cols, seed, stream))
    }

    /// A product of matrices that `make` makes from rows, columns, as they lie in memory, and a
    /// number: 1 for A, 2 for B, 3 for C.
    pub fn new(gemm: Gemm, make: impl Fn(usize, usize, u64) -> Matrix) -> Self {
        let [a, b, c] = gemm.shapes();
        Self {
            gemm,
            a: make(a[0], a[1], 1),
            b: make(b[0], b[1], 2),
            c: make(c[0], c[1], 3),
            margins: [(64, 64); 3],
            limits: None,
            splits: 1,
        }
    }

    /// Runs the product and returns C, having made sure that nothing else was written.
    pub fn run(&self, device: &Device, descriptor: &'static KernelDescriptor) -> Matrix {
        let kernel = device.kernel(descriptor).unwrap();
        let splits = if descriptor.abi().splits_k() { self.splits } else { 1 };
        let limits = self.limits.unwrap_or(device.info().limits);
        let plan = kernel.plan(self.gemm).splits(splits).within(&limits);
        let prepared = self.with_alignment(plan).prepare().unwrap();
        self.run_with(device, descriptor.name(), |a, b, c| prepared.run(a, b, c))
    }

    /// A plan that knows whether the operands begin on 16 bytes.
    pub fn with_alignment(&self, plan: PlanBuilder) -> PlanBuilder {
        match self.margins.iter().all(|(offset, _)| offset % 4 == 0) {
            true => plan,
            false => plan.any_alignment(),
        }
    }

    /// As [`Case::run`], with anything that computes this product.
    pub fn run_with<E: std::fmt::Debug>(
        &self,
        device: &Device,
        name: &str,
        enqueue: impl FnOnce(View<'_>, View<'_>, &mut DeviceMatrix<f32>) -> Result<(), E>,
    ) -> Matrix {
        let Self { gemm, .. } = self;
        let place = |matrix: &Matrix, ld, (offset, tail), fill: bool| {
            let layout = Layout { offset, ld, tail };
            let mut copy =
                DeviceMatrix::<f32>::zeros_in(device, [matrix.rows(), matrix.cols()], layout)
                    .unwrap();
            copy.fill_buffer(GUARD).unwrap();
            if fill {
                copy.upload(matrix).unwrap();
            }
            copy
        };
        let a = place(&self.a, gemm.lda, self.margins[0], true);
        let b = place(&self.b, gemm.ldb, self.margins[1], true);
        let mut c = place(&self.c, gemm.ldc, self.margins[2], gemm.beta != 0.0);
        let before = [&a, &b, &c].map(|matrix| matrix.download_buffer().unwrap());
        let views = [oriented(&a.view(), gemm.trans_a), oriented(&b.view(), gemm.trans_b)];
        enqueue(views[0], views[1], &mut c).unwrap();
        device.synchronize().unwrap();
        let after = [&a, &b, &c].map(|matrix| matrix.download_buffer().unwrap());

        let name = format!("{name} on {}: {gemm:?}", device.info().name);
        assert_same_bits(&before[0], &after[0], |_| true, &format!("{name}: A"));
        assert_same_bits(&before[1], &after[1], |_| true, &format!("{name}: B"));
        let Layout { offset, ld, .. } = c.layout();
        let outside = |i: usize| {
            let inside = i >= offset
                && gemm.n > 0
                && (i - offset) / ld < gemm.m
                && (i - offset) % ld < gemm.n;
            !inside
        };
        assert_same_bits(&before[2], &after[2], outside, &format!("{name}: around C"));
        c.download().unwrap()
    }

    /// Compares a result with the product in f64.
    pub fn verify(&self, result: &Matrix, bound: Bound) -> Check {
        let Self { gemm: Gemm { alpha, beta, trans_a, trans_b, .. }, a, b, c, .. } = self;
        let op = |matrix: &Matrix, trans: bool| match trans {
            true => matrix.transposed(),
            false => matrix.clone(),
        };
        let (a, b) = (op(a, *trans_a), op(b, *trans_b));
        let problem = Problem { a: &a, b: &b, c: Some(c), alpha: *alpha, beta: *beta, bound };
        Reference::compute(problem, Method::Full, 0).unwrap().check(result).unwrap()
    }

    /// Runs the product and insists that it is right, or that it is refused if it needs
    /// more shared memory than the device has.
    pub fn assert_right(
        &self,
        device: &Device,
        descriptor: &'static KernelDescriptor,
        bound: Bound,
    ) {
        let name = format!("{} on {}: {:?}", descriptor.name(), device.info().name, self.gemm);
        if let Err(needed) = fits(device, descriptor, &self.gemm) {
            let kernel = device.kernel(descriptor).unwrap();
            let Err(error) = kernel.prepare(self.gemm) else { panic!("{name}: not refused") };
            let limit = device.info().limits.shared_optin;
            for number in [needed, u64::from(limit)] {
                assert!(error.to_string().contains(&number.to_string()), "{name}: {error}");
            }
            return;
        }
        let check = self.verify(&self.run(device, descriptor), bound);
        assert!(check.passed(), "{name}: {check:?}");
        assert_eq!(check.elements, (self.gemm.m * self.gemm.n) as u64, "{name}");
    }
}

type View<'m> = DeviceMatrixRef<'m, f32>;

/// An operand that lies so, as a product with transposes takes it.
pub fn oriented<'m, T>(
    stored: &DeviceMatrixRef<'m, T>,
    transposed: bool,
) -> DeviceMatrixRef<'m, T> {
    if transposed { stored.t() } else { *stored }
}

/// Whether a block's shared memory holds what this rung needs for this product; the
/// bytes it needs if not.
pub fn fits(device: &Device, descriptor: &KernelDescriptor, gemm: &Gemm) -> Result<(), u64> {
    match descriptor.shared() {
        Shared::Static(_) | Shared::Stages { .. } => Ok(()),
        Shared::Dynamic(bytes) => match bytes(gemm.depth() as u32) {
            needed if needed > u64::from(device.info().limits.shared_optin) => Err(needed),
            _ => Ok(()),
        },
    }
}

fn assert_same_bits(before: &[f32], after: &[f32], which: impl Fn(usize) -> bool, name: &str) {
    assert_eq!(before.len(), after.len());
    for (i, (x, y)) in before.iter().zip(after).enumerate() {
        if which(i) {
            assert_eq!(x.to_bits(), y.to_bits(), "{name}: element {i} of the buffer changed");
        }
    }
}
