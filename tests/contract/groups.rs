//! Grouped products: rows of A and C that belong to groups, each with a B of its own.

use cuda_gemm::{AnyMatrix, Batching, Error, GroupEnds, RawExtras, Stream, gemm};
use host::kernels::abi::KernelDescriptor;
use host::kernels::abi::tensor_core::BK;
use host::{
    Axis, Compute, Device, DeviceChoice, DeviceMatrix, Element, Epilogue, Extras, Gemm, Layout,
    Matrix, bf16, find_kernel,
};

use crate::tensor_core::{entry_point, for_each};

/// A grouped product on whole numbers, so that sums are exact.
struct Grouped {
    gemm: Gemm,
    ends: Vec<u32>,
    a: Matrix,
    b: Matrix,
    c: Matrix,
    bias: Matrix,
}

/// Small whole numbers, whose sums are exact also in 16 bits.
fn numbers(rows: usize, cols: usize, seed: usize) -> Matrix {
    Matrix::from_fn(rows, cols, |row, col| ((row * 5 + col * 3 + row * col % 7 + seed) % 3) as f32)
}

impl Grouped {
    /// A product with these rows in all, of which the groups have those before the last end.
    fn new(gemm: Gemm, ends: &[u32]) -> Self {
        let count = ends.len();
        let [[rows_a, cols_a], [rows_b, cols_b], [m, n]] = gemm.shapes();
        // The bias of each group.
        let gemm = gemm.then(Epilogue::new().bias(Axis::Column));
        Self {
            gemm: gemm.grouped(count, rows_b * gemm.ldb),
            ends: ends.to_vec(),
            a: numbers(rows_a, cols_a, 0),
            b: numbers(count * rows_b, cols_b, 1),
            c: numbers(m, n, 2),
            bias: numbers(count, n, 0),
        }
    }

    /// The group of a row, if it has one.
    fn group_of(&self, row: usize) -> Option<usize> {
        let mut begin = 0;
        self.ends.iter().position(|end| {
            let end = (*end as usize).min(self.gemm.m).max(begin);
            let has = (begin..end).contains(&row);
            begin = end;
            has
        })
    }

    fn expected(&self) -> Matrix {
        let Self { gemm, a, b, c, bias, .. } = self;
        let [_, [rows_b, _], _] = gemm.shapes();
        Matrix::from_fn(gemm.m, gemm.n, |row, col| {
            let Some(group) = self.group_of(row) else { return c.at(row, col) };
            let sum: f32 = (0..gemm.depth())
                .map(|at| {
                    let [z, w] = if gemm.trans_b { [col, at] } else { [at, col] };
                    a.at(row, at) * b.at(group * rows_b + z, w)
                })
                .sum();
            gemm.alpha * sum + gemm.beta * c.at(row, col) + bias.at(group, col)
        })
    }

    /// Runs the product by a kernel, with ends that may be anything.
    fn run(&self, device: &Device, descriptor: &'static KernelDescriptor) -> Matrix {
        let Self { gemm, ends, a, b, c, bias } = self;
        let on = |matrix: &Matrix, element: Element, ld: usize| {
            let shape = [matrix.rows(), matrix.cols()];
            let layout = Layout { offset: 0, ld, tail: 0 };
            let mut copy = AnyMatrix::zeros_of(device, element, shape, layout).unwrap();
            copy.upload(matrix).unwrap();
            copy
        };
        let half = gemm.compute.element();
        let (a, b) = (on(a, half, gemm.lda), on(b, half, gemm.ldb));
        let c = on(c, gemm.output, gemm.ldc);
        let bias = DeviceMatrix::<f32>::from_host(device, bias).unwrap();
        let bits: Vec<_> = ends.iter().map(|end| f32::from_bits(*end)).collect();
        let ends = DeviceMatrix::from_slice(device, [1, ends.len()], &bits).unwrap();
        let kernel = device.kernel(descriptor).unwrap();
        let plan = kernel.prepare(*gemm).unwrap();
        let mut extras = RawExtras { ends: ends.address(), ..RawExtras::default() };
        extras.bias.address = bias.address();
        extras.bias.stride = gemm.n;
        // SAFETY: the matrices are as planned, and nothing else uses them.
        unsafe { plan.run_raw([a.address(), b.address(), c.address()], extras).unwrap() };
        c.download().unwrap()
    }
}

/// Groups without rows, of one, of a tile and a row more or less, in every layout, and rows behind
/// the last group.
#[test]
fn every_kernel_takes_groups() {
    for_each(|device, descriptor, compute| {
        let [bm, bn] = [descriptor.tile().bm, descriptor.tile().bn];
        let name = entry_point(descriptor, compute);
        for (transposed, n, k, beta, output) in [
            (false, bn + 8, 72, 0.0, Element::F32),
            (true, bn + 8, BK * 2, 2.0, compute.element()),
            (true, bn - 8, 9, 1.0, Element::F32),
            (false, 8, 1, 0.0, compute.element()),
            (false, 8, 0, 2.0, Element::F32),
        ] {
            let ends = [0, 1, bm, 2 * bm, 2 * bm, 3 * bm + 5];
            let [m, n, k] = [ends[5] + 3, n, k].map(|size| size as usize);
            let gemm = Gemm::new(m, n, k).scaled(0.5, beta).computed_in(compute);
            let gemm = gemm.transposed(false, transposed).stored_as(output);
            let grouped = Grouped::new(gemm, &ends);
            if !grouped.gemm.suits(descriptor) {
                let refused = device.kernel(descriptor).unwrap().prepare(grouped.gemm);
                assert!(matches!(refused, Err(Error::Unsuited { .. })), "{name}");
                continue;
            }
            assert!(
                grouped.run(device, descriptor) == grouped.expected().rounded(output),
                "{name}: {gemm:?}"
            );
        }
    });
}

/// Ends that a kernel may have written: in any order, and behind C.
#[test]
fn ends_may_be_anything() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    for name in ["wgmma_persistent", "wgmma_64x128", "mma_64x64"] {
        let descriptor = find_kernel(name).unwrap();
        for ends in
            [[5, 3, 9, 70], [u32::MAX, 0, 1, 2], [0, 0, 0, 0], [90, 95, u32::MAX, 7], [1, 1, 0, 96]]
        {
            let gemm = Gemm::new(96, 24, 16).computed_in(Compute::Bf16);
            let grouped = Grouped::new(gemm, &ends);
            assert!(grouped.run(&device, descriptor) == grouped.expected(), "{name}: {ends:?}");
        }
    }
}

/// Many groups, more than a block of the kernel that lists them has threads; by `auto`, and again
/// with other ends in the same plan.
#[test]
fn a_plan_reads_the_ends_when_it_runs() {
    for choice in [DeviceChoice::Soft, DeviceChoice::SoftSm90] {
        let device = Device::open(choice).unwrap();
        let (count, tokens) = (70, 200);
        let mut grouped = Grouped::new(
            Gemm::new(tokens, 24, 16).computed_in(Compute::Bf16).stored_as(Element::Bf16),
            &(0..count).map(|at| at * at / 30).collect::<Vec<_>>(),
        );
        let on = |matrix: &Matrix| DeviceMatrix::<bf16>::from_host(&device, matrix).unwrap();
        let (a, b, bias) = (on(&grouped.a), on(&grouped.b), &grouped.bias);
        let bias = DeviceMatrix::<f32>::from_host(&device, bias).unwrap();
        let (b, bias) = (b.batch(count as usize).unwrap(), bias.batch(count as usize).unwrap());
        let mut ends = GroupEnds::new(&device.stream(), &grouped.ends).unwrap();
        let plan = device.auto().unwrap().prepare(grouped.gemm).unwrap();
        for turn in 0..2 {
            let mut c = on(&grouped.c);
            plan.run_with(&a, b, &mut c, Extras::new().groups(&ends).bias(bias)).unwrap();
            assert!(c.download().unwrap() == grouped.expected(), "{turn}");
            let mut again = on(&grouped.c);
            gemm(&a, b).groups(&ends).bias(bias).run(&mut again).unwrap();
            assert!(again.download().unwrap() == grouped.expected(), "{turn}");
            grouped.ends.iter_mut().for_each(|end| *end = (2 * *end).min(tokens as u32));
            ends.set(&grouped.ends).unwrap();
        }
    }
}

/// No rows, no columns, no groups.
#[test]
fn nothing_is_computed_of_nothing() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    for (m, n, ends) in [(0, 8, &[0, 0][..]), (4, 0, &[2, 4]), (4, 8, &[])] {
        let a = DeviceMatrix::<bf16>::zeros(&device, [m, 16]).unwrap();
        let b = DeviceMatrix::<bf16>::zeros(&device, [16 * ends.len(), n]).unwrap();
        let plan = Gemm::new(m, n, 16).computed_in(Compute::Bf16).grouped(ends.len(), 16 * n);
        let plan = device.auto().unwrap().prepare(plan).unwrap();
        let ends = GroupEnds::new(&device.stream(), ends).unwrap();
        let c = DeviceMatrix::<f32>::zeros(&device, [m, n]).unwrap();
        let addresses = [a.address(), b.address(), c.address()];
        let extras = RawExtras { ends: ends.address(), ..RawExtras::default() };
        // SAFETY: the matrices are as planned, and nothing else uses them.
        unsafe { plan.run_raw(addresses, extras).unwrap() };
        assert!(c.to_vec().unwrap().iter().all(|element| *element == 0.0));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let auto = device.auto().unwrap();
    let gemm = Gemm::new(20, 8, 16).computed_in(Compute::Bf16);
    let grouped = gemm.grouped(2, 8 * 16);
    let transposed = gemm.transposed(true, false).grouped(2, 8 * 16);
    assert!(matches!(auto.prepare(transposed), Err(Error::GroupedTranspose)));
    let in_f32 = Gemm::new(20, 8, 16).grouped(2, 8 * 16);
    assert!(matches!(auto.prepare(in_f32), Err(Error::Unsuited { what: "groups", .. })));

    let plan = auto.prepare(grouped).unwrap();
    let a = DeviceMatrix::<bf16>::zeros(&device, [20, 16]).unwrap();
    let b = DeviceMatrix::<bf16>::zeros(&device, [32, 8]).unwrap();
    let b = b.batch(2).unwrap();
    let mut c = DeviceMatrix::<f32>::zeros(&device, [20, 8]).unwrap();
    let missing = plan.run(&a, b, &mut c).unwrap_err();
    assert!(matches!(missing, Error::Extras { what: "the ends of groups", is_missing: true }));
    let three = GroupEnds::new(&device.stream(), &[1, 2, 3]).unwrap();
    let wrong = plan.run_with(&a, b, &mut c, Extras::new().groups(&three)).unwrap_err();
    assert!(matches!(wrong, Error::GroupCount { count: 3, groups: 2 }), "{wrong}");
    let elsewhere = Stream::new(&device).unwrap();
    let elsewhere = GroupEnds::new(&elsewhere, &[1, 20]).unwrap();
    let wrong = plan.run_with(&a, b, &mut c, Extras::new().groups(&elsewhere)).unwrap_err();
    assert!(matches!(wrong, Error::WrongStream { .. }), "{wrong}");
    let addresses = [a.address(), b.address(), c.address()];
    // SAFETY: refused.
    let missing = unsafe { plan.run_raw(addresses, RawExtras::default()) }.unwrap_err();
    assert!(matches!(missing, Error::Extras { what: "the ends of groups", is_missing: true }));
    let two = GroupEnds::new(&device.stream(), &[1, 20]).unwrap();
    let one_b = plan.run_with(&a, &a, &mut c, Extras::new().groups(&two)).unwrap_err();
    assert!(matches!(one_b, Error::Shape { what: "B", .. }), "{one_b}");
    plan.run_with(&a, b, &mut c, Extras::new().groups(&two)).unwrap();
    // A and C are one matrix each.
    let of_a = cuda_gemm::gemm(a.batch(2).unwrap(), b).groups(&two).run(&mut c).unwrap_err();
    assert!(matches!(of_a, Error::Shape { .. } | Error::BatchCount { .. }), "{of_a}");
    let strided = Gemm { stride_c: 8, ..grouped };
    assert!(matches!(auto.prepare(strided), Err(Error::GroupedStrides)));
    assert_eq!(grouped.stacked(2).batching, Batching::Strided);
}

/// Batches of one, whose strides lead nowhere, and one B for all groups, with a scale for each.
#[test]
fn groups_may_share_b() {
    for choice in [DeviceChoice::Soft, DeviceChoice::SoftSm90] {
        let device = Device::open(choice).unwrap();
        let on = |matrix: &Matrix| DeviceMatrix::<bf16>::from_host(&device, matrix).unwrap();
        let (a, b, scale) = (numbers(40, 16, 0), numbers(16, 8, 1), numbers(3, 8, 2));
        let ends = GroupEnds::new(&device.stream(), &[3, 20, 40]).unwrap();
        let on_scale = DeviceMatrix::<f32>::from_host(&device, &scale).unwrap();
        let (on_a, on_b) = (on(&a), on(&b));
        let expected = Matrix::from_fn(40, 8, |row, col| {
            let group = usize::from(row >= 3) + usize::from(row >= 20);
            let sum: f32 = (0..16).map(|at| a.at(row, at) * b.at(at, col)).sum();
            sum * scale.at(group, col)
        });
        for b in [on_b.view(), on_b.batch(1).unwrap()] {
            let mut c = DeviceMatrix::<f32>::zeros(&device, [40, 8]).unwrap();
            let product = gemm(on_a.batch(1).unwrap(), b).groups(&ends);
            let product = product.scale(Axis::Column, on_scale.batch(3).unwrap());
            product.run(c.batch_mut(1).unwrap()).unwrap();
            assert!(c.download().unwrap() == expected, "{choice:?}");
        }
        // One group that ends early, and a product of these sizes, whose plan is another.
        let mut c = DeviceMatrix::<f32>::zeros(&device, [40, 8]).unwrap();
        let one = GroupEnds::new(&device.stream(), &[30]).unwrap();
        gemm(&on_a, &on_b).groups(&one).run(&mut c).unwrap();
        assert_eq!(c.download().unwrap().row(39), [0.0; 8]);
        gemm(&on_a, &on_b).run(&mut c).unwrap();
        assert_ne!(c.download().unwrap().row(39), [0.0; 8]);
    }
}

/// The ends are those that the product in front has written.
#[test]
fn a_kernel_in_front_writes_the_ends() {
    for choice in [DeviceChoice::Soft, DeviceChoice::SoftSm90] {
        let device = Device::open(choice).unwrap();
        let grouped =
            Grouped::new(Gemm::new(90, 24, 16).computed_in(Compute::Bf16), &[10, 10, 50, 90]);
        let on = |matrix: &Matrix| DeviceMatrix::<bf16>::from_host(&device, matrix).unwrap();
        let (a, b) = (on(&grouped.a), on(&grouped.b));
        let c = DeviceMatrix::<f32>::from_host(&device, &grouped.c).unwrap();
        let bias = DeviceMatrix::<f32>::from_host(&device, &grouped.bias).unwrap();
        // As f32, whose product with 1 has the same bits.
        let bits: Vec<_> = grouped.ends.iter().map(|end| f32::from_bits(*end)).collect();
        let from = DeviceMatrix::from_slice(&device, [1, 4], &bits).unwrap();
        let one = DeviceMatrix::from_slice(&device, [1, 1], &[1f32]).unwrap();
        let mut ends = DeviceMatrix::<f32>::zeros(&device, [1, 4]).unwrap();
        let plan = device.auto().unwrap().prepare(grouped.gemm).unwrap();
        gemm(&one, &from).run(&mut ends).unwrap();
        let mut extras = RawExtras { ends: ends.address(), ..RawExtras::default() };
        (extras.bias.address, extras.bias.stride) = (bias.address(), grouped.gemm.n);
        // SAFETY: the matrices are as planned, and nothing else uses them.
        unsafe { plan.run_raw([a.address(), b.address(), c.address()], extras).unwrap() };
        assert!(c.download().unwrap() == grouped.expected(), "{choice:?}");
    }
}
