//! Strided batches.

use cuda_gemm::{DeviceMatrixRef, Error};
use host::kernels::abi::{KernelAbi, KernelDescriptor};
use host::verify::{Bound, Method, Problem, Reference};
use host::{Device, DeviceMatrix, Gemm, Limits, Matrix, find_kernel};

use crate::case::{for_each_kernel, kernels, oriented};
use crate::common::devices;

/// How the matrices of an operand lie in the one that is made for all.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Placement {
    Below,
    Beside,
    Shared,
}

/// A batch of random matrices.
struct Batch {
    /// The operand of all products.
    all: Matrix,
    placement: Placement,
    count: usize,
}

impl Batch {
    fn random([rows, cols]: [usize; 2], placement: Placement, count: usize, stream: u64) -> Self {
        let (all_rows, all_cols) = match placement {
            Placement::Below => (rows * count, cols),
            Placement::Beside => (rows, cols * count),
            Placement::Shared => (rows, cols),
        };
        Self { all: Matrix::random(all_rows, all_cols, 51, stream), placement, count }
    }

    /// The leading dimension and the stride.
    fn strides(&self) -> [usize; 2] {
        let [rows, cols] = self.shape();
        let ld = self.all.cols();
        [ld, [rows * ld, cols, 0][self.placement as usize]]
    }

    fn shape(&self) -> [usize; 2] {
        let (rows, cols) = (self.all.rows(), self.all.cols());
        match self.placement {
            Placement::Below => [rows / self.count, cols],
            Placement::Beside => [rows, cols / self.count],
            Placement::Shared => [rows, cols],
        }
    }

    /// One of the matrices, or its transpose.
    fn one(&self, product: usize, trans: bool) -> Matrix {
        let [rows, cols] = self.shape();
        let (row0, col0) = match self.placement {
            Placement::Below => (product * rows, 0),
            Placement::Beside => (0, product * cols),
            Placement::Shared => (0, 0),
        };
        let one = Matrix::from_fn(rows, cols, |row, col| self.all.at(row0 + row, col0 + col));
        if trans { one.transposed() } else { one }
    }
}

fn read(
    matrix: &DeviceMatrix<f32>,
    placement: Placement,
    count: usize,
) -> DeviceMatrixRef<'_, f32> {
    let view = matrix.view();
    match placement {
        Placement::Below => view.batch(count).unwrap(),
        Placement::Beside => view.batch_cols(count).unwrap(),
        Placement::Shared => view.broadcast(count).unwrap(),
    }
}

/// Runs a batch on a kernel, and compares each product with f64.
fn assert_right(
    device: &Device,
    descriptor: &'static KernelDescriptor,
    gemm: Gemm,
    placements: [Placement; 3],
    splits: u32,
) {
    let count = gemm.batch;
    let [a, b, c] =
        [0, 1, 2].map(|i| Batch::random(gemm.shapes()[i], placements[i], count, i as u64));
    let [[lda, stride_a], [ldb, stride_b], [ldc, stride_c]] = [&a, &b, &c].map(Batch::strides);
    let gemm =
        gemm.leading_dimensions(lda, ldb, ldc).batched(count, [stride_a, stride_b, stride_c]);
    let name = format!("{} on {}: {gemm:?}", descriptor.name(), device.info().name);

    let kernel = device.kernel(descriptor).unwrap();
    let splits = match descriptor.abi() {
        KernelAbi::SplitK | KernelAbi::Tf32SplitK => splits,
        _ => 1,
    };
    let plan = kernel.plan(gemm).splits(splits).staged(true).prepare().unwrap();
    let [on_a, on_b] =
        [&a, &b].map(|batch| DeviceMatrix::<f32>::from_host(device, &batch.all).unwrap());
    let mut on_c = DeviceMatrix::<f32>::from_host(device, &c.all).unwrap();
    for again in 0..2 {
        on_c.upload(&c.all).unwrap();
        let batch_a = oriented(&read(&on_a, a.placement, count), gemm.trans_a);
        let batch_b = oriented(&read(&on_b, b.placement, count), gemm.trans_b);
        let batch_c = match c.placement {
            Placement::Below => on_c.view_mut().batch(count),
            Placement::Beside | Placement::Shared => on_c.view_mut().batch_cols(count),
        };
        plan.run(batch_a, batch_b, batch_c.unwrap()).unwrap();
        let result = Batch { all: on_c.download().unwrap(), ..c };
        for product in 0..count {
            let (a, b) = (a.one(product, gemm.trans_a), b.one(product, gemm.trans_b));
            let old = c.one(product, false);
            let problem = Problem {
                a: &a,
                b: &b,
                c: Some(&old),
                alpha: gemm.alpha,
                beta: gemm.beta,
                bound: Bound::Probabilistic,
            };
            let reference = Reference::compute(problem, Method::Full, 0).unwrap();
            let check = reference.check(&result.one(product, false)).unwrap();
            assert!(check.passed(), "{name}, product {product}, call {again}: {check:?}");
        }
    }
}

/// Every kernel, with matrices in every place, aligned or not, transposed or not, with splits,
/// whose counters are ready for the next call.
#[test]
fn every_kernel_takes_batches() {
    use Placement::{Below, Beside, Shared};
    for_each_kernel(|device, descriptor| {
        for ([m, n, k], placements, [trans_a, trans_b], splits) in [
            ([12, 20, 40], [Below, Below, Below], [false, false], 1),
            ([12, 20, 200], [Beside, Shared, Below], [false, true], 3),
            ([33, 7, 17], [Below, Beside, Beside], [true, false], 2),
            ([5, 9, 130], [Shared, Below, Beside], [false, false], 2),
            ([16, 16, 16], [Below, Shared, Below], [false, false], 1),
            ([70, 1, 9], [Below, Below, Below], [true, true], 1),
        ] {
            let gemm = Gemm::new(m, n, k).scaled(1.5, -0.5).transposed(trans_a, trans_b);
            assert_right(device, descriptor, gemm.batched(3, [0; 3]), placements, splits);
        }
    });
}

/// More products than a grid has room for, each with splits, and copies of more than there is room
/// for; and no product at all.
#[test]
fn batches_of_any_length() {
    for device in devices() {
        let limits = Limits { grid: [i32::MAX as u32, 2, 5], ..device.info().limits };
        let kernel = device.kernel(find_kernel("tile_4x128").unwrap()).unwrap();
        let (count, k) = (7, 2 * 64 + 1);
        let gemm = Gemm::new(3, 5, k).transposed(true, false).batched(count, [3 * k, 5 * k, 15]);
        let plan = kernel.plan(gemm).splits(2).staged(true).within(&limits).prepare().unwrap();
        assert_eq!(plan.launch_plan().products_per_launch(), 2);
        let ones = |rows, cols| Matrix::from_fn(rows, cols, |row, _| 1.0 + (row / k) as f32);
        let a = DeviceMatrix::<f32>::from_host(&device, &ones(count * k, 3)).unwrap();
        let b = DeviceMatrix::<f32>::from_host(&device, &ones(count * k, 5)).unwrap();
        let mut c = DeviceMatrix::<f32>::zeros(&device, [count * 3, 5]).unwrap();
        for _ in 0..2 {
            let [a, b] = [&a, &b].map(|matrix| matrix.view().batch(count).unwrap());
            plan.run(a.t(), b, c.view_mut().batch(count).unwrap()).unwrap();
        }
        let sum = |row, _| (k * (1 + row / 3) * (1 + row / 3)) as f32;
        assert_eq!(c.download().unwrap(), Matrix::from_fn(count * 3, 5, sum));

        // Nothing need be there.
        let none = Gemm::new(4, 5, 6).batched(0, [0; 3]);
        for descriptor in kernels(&device) {
            let plan = device.kernel(descriptor).unwrap().prepare(none).unwrap();
            assert!(plan.launch_plan().launches().is_empty());
            // SAFETY: there is no product.
            unsafe { plan.run_raw([0; 3], Default::default()).unwrap() };
        }
        device.synchronize().unwrap();
    }
}

/// What was not prepared for is refused; `auto` takes batches.
#[test]
fn batches_are_as_they_were_planned() {
    for device in devices() {
        let gemm = Gemm::new(4, 5, 6).batched(3, [24, 0, 20]);
        let plan = device.auto().unwrap().prepare(gemm).unwrap();
        let a = DeviceMatrix::<f32>::from_host(&device, &Matrix::random(12, 6, 52, 1)).unwrap();
        let b = DeviceMatrix::<f32>::from_host(&device, &Matrix::random(6, 5, 52, 2)).unwrap();
        let mut c = DeviceMatrix::<f32>::zeros(&device, [12, 5]).unwrap();
        let [three, one] = [3, 1].map(|count| b.view().broadcast(count).unwrap());
        let stacked = a.view().batch(3).unwrap();
        let batch_c = c.view_mut().batch(3).unwrap();
        plan.run(stacked, three, batch_c).unwrap();
        let batch_c = c.view_mut().batch(3).unwrap();
        let refused = plan.run(stacked, one, batch_c);
        assert!(matches!(refused, Err(Error::PlannedBatch { what: "B", count: 1, .. })));
        let batch_c = c.view_mut().batch(3).unwrap();
        let same = a.view().submatrix(0..4, 0..6).unwrap().broadcast(3).unwrap();
        let refused = plan.run(same, three, batch_c);
        assert!(matches!(refused, Err(Error::PlannedBatch { what: "A", stride: 0, .. })));
        for count in [0, 5, 24] {
            assert!(matches!(a.view().batch(count), Err(Error::Split { .. })), "{count}");
        }
        let mut whole = c.view_mut();
        assert!(matches!(whole.view_mut().batch_cols(2), Err(Error::Split { .. })));
    }
}

/// A batch of parts of a wider matrix: the stride counts whole rows of that.
#[test]
fn batches_of_parts_of_matrices() {
    for device in devices() {
        let whole = Matrix::from_fn(6, 5, |row, col| (10 * row + col) as f32);
        let whole = DeviceMatrix::<f32>::from_host(&device, &whole).unwrap();
        let part = whole.view().submatrix(0..6, 1..3).unwrap();
        let a = part.batch(3).unwrap();
        assert_eq!((a.stride(), a.ld()), (10, 5));
        let one =
            DeviceMatrix::<f32>::from_host(&device, &Matrix::from_fn(2, 1, |_, _| 1.0)).unwrap();
        let mut c = DeviceMatrix::<f32>::zeros(&device, [6, 1]).unwrap();
        let gemm = Gemm::new(2, 1, 2).leading_dimensions(5, 1, 1).batched(3, [10, 0, 2]);
        let plan = device.auto().unwrap().prepare(gemm).unwrap();
        let batch_c = c.view_mut().batch(3).unwrap();
        plan.run(a, one.view().broadcast(3).unwrap(), batch_c).unwrap();
        let sums = Matrix::from_fn(6, 1, |row, _| (20 * row + 3) as f32);
        assert_eq!(c.download().unwrap(), sums);
    }
}
