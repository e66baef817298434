//! `Auto::warm_up` loads what products take, and nothing else. A program of one test: what is
//! loaded is of the process.

use cuda_gemm::{AnyMatrix, Compute, Device, DeviceChoice, Error, Gemm, Layout, OperandRef, Plan};

const SHAPES: [[usize; 3]; 5] = [[1, 1, 43], [1, 70, 43], [70, 1, 43], [70, 33, 1], [3, 200, 64]];
/// Too large to be computed here.
const LARGE: [[usize; 3]; 2] = [[4096, 1, 4096], [4095, 4097, 4099]];
const BOTH: [bool; 2] = [false, true];

/// The products of a shape, in everything that entry points are chosen by.
fn products([m, n, k]: [usize; 3]) -> Vec<Gemm> {
    let mut all = Vec::new();
    for compute in Compute::ALL {
        for [trans_a, trans_b] in BOTH.map(|a| BOTH.map(|b| [a, b])).concat() {
            let gemm = Gemm::new(m, n, k).transposed(trans_a, trans_b).computed_in(compute);
            all.push(gemm);
            if trans_a && !trans_b {
                all.push(gemm.stacked(3));
            }
        }
    }
    all
}

/// Enqueues a product of zeros. Each matrix begins at an offset, in elements, in its memory.
fn run(device: &Device, plan: &Plan<'_>, skip: usize) {
    let gemm = plan.gemm();
    let (input, count) = (gemm.compute.element(), gemm.batch);
    let [a, b, mut c] = [0, 1, 2].map(|i| {
        let (element, [rows, cols]) = ([input, input, gemm.output][i], gemm.shapes()[i]);
        let layout = Layout { offset: skip, ..Layout::dense(cols) };
        AnyMatrix::zeros_of(device, element, [rows * count, cols], layout).unwrap()
    });
    fn each(matrix: &AnyMatrix, count: usize, transposed: bool) -> OperandRef<'_> {
        let batch = matrix.view().batch(count).unwrap();
        if transposed { batch.t() } else { batch }
    }
    let (a, b) = (each(&a, count, gemm.trans_a), each(&b, count, gemm.trans_b));
    plan.run(a, b, c.view_mut().batch(count).unwrap()).unwrap();
}

#[test]
fn after_a_warm_up_nothing_is_loaded() {
    let mut checked = 0;
    for choice in [DeviceChoice::Soft, DeviceChoice::SoftSm90] {
        for (shape, is_large) in
            SHAPES.map(|shape| (shape, false)).into_iter().chain(LARGE.map(|shape| (shape, true)))
        {
            for gemm in products(shape) {
                // With the last device goes what was loaded on it.
                let device = Device::open(choice).unwrap();
                assert_eq!(device.loaded(), [""; 0]);
                let auto = device.auto().unwrap();
                let warm_up = auto.warm_up(&[gemm]);
                let loaded = device.loaded();
                let prepare = |any_alignment| {
                    let builder = auto.plan(gemm)?;
                    if any_alignment { builder.any_alignment() } else { builder }.prepare()
                };
                let names = warm_up.unwrap();
                for any_alignment in BOTH {
                    match prepare(any_alignment) {
                        Ok(plan) if !is_large => {
                            for skip in 0..=usize::from(any_alignment) {
                                run(&device, &plan, skip);
                            }
                            device.synchronize().unwrap();
                            assert_eq!(names, [plan.configuration().kernel.name()]);
                        }
                        Ok(_) | Err(Error::DeviceMemory { .. }) => {}
                        Err(error) => panic!("{gemm:?}: {error}"),
                    }
                    assert_eq!(device.loaded(), loaded, "{gemm:?}");
                }
                drop((auto, device));

                let device = Device::open(choice).unwrap();
                let auto = device.auto().unwrap();
                for any_alignment in BOTH {
                    let builder = auto.plan(gemm).unwrap();
                    match if any_alignment { builder.any_alignment() } else { builder }.prepare() {
                        Ok(_) | Err(Error::DeviceMemory { .. }) => {}
                        Err(error) => panic!("{gemm:?}: {error}"),
                    }
                }
                assert_eq!(device.loaded(), loaded, "{gemm:?}");
                checked += 1;
            }
        }
    }
    assert!(checked > 200, "{checked}");
}
