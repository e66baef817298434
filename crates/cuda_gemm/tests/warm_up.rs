//! `Auto::warm_up` loads what products take, and nothing else. A program of one test: what is loaded is of the process.

use cuda_gemm::{
    Compute, Device, DeviceChoice, DeviceHalfMatrix, DeviceHalfRef, DeviceMatrix, Error, Gemm,
    InputType, Product,
};

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

/// Matrices of zeros in 16 bits, without gaps if they are dense, or with whole vectors in their rows.
fn zeros(
    device: &Device,
    input: InputType,
    rows: usize,
    cols: usize,
    dense: bool,
) -> DeviceHalfMatrix {
    let [rows, cols] = if dense { [1, rows * cols] } else { [rows, cols] };
    DeviceHalfMatrix::zeros(device, input, rows, cols).unwrap()
}

/// So many matrices of a shape, one below the other, which lie there.
fn stacked(
    zeros: &DeviceHalfMatrix,
    [rows, cols]: [usize; 2],
    count: usize,
    dense: bool,
) -> DeviceHalfRef<'_> {
    let (on, input, address) = (zeros.stream(), zeros.input(), zeros.address());
    let ld = if dense { cols } else { zeros.ld() };
    // SAFETY: the memory has these elements, and nothing else uses it.
    let all = unsafe { DeviceHalfRef::from_address(on, input, address, rows * count, cols, ld) };
    all.unwrap().split_rows(count).unwrap()
}

/// Enqueues a product of zeros.
fn enqueue(device: &Device, product: &Product, dense: bool) {
    let gemm = product.gemm();
    let ([a, b, c], count) = (gemm.shapes(), gemm.batch);
    let f32 = |[rows, cols]: [usize; 2]| DeviceMatrix::zeros(device, rows * count, cols).unwrap();
    let mut on_c = f32(c);
    let on_c = on_c.view_mut().split_rows(count).unwrap();
    match gemm.compute.input() {
        None => {
            let (on_a, on_b) = (f32(a), f32(b));
            let [a, b] = [&on_a, &on_b].map(|all| all.view().split_rows(count).unwrap());
            product.enqueue(a, b, on_c)
        }
        Some(input) => {
            let [on_a, on_b] =
                [a, b].map(|[rows, cols]| zeros(device, input, rows * count, cols, dense));
            let (a, b) = (stacked(&on_a, a, count, dense), stacked(&on_b, b, count, dense));
            product.enqueue(a, b, on_c)
        }
    }
    .unwrap();
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
                let product = |any_alignment| {
                    let builder = auto.product(gemm)?;
                    if any_alignment { builder.any_alignment() } else { builder }.prepare()
                };
                let names = warm_up.unwrap();
                for any_alignment in BOTH {
                    match product(any_alignment) {
                        Ok(product) if !is_large => {
                            for dense in if any_alignment { &BOTH[..] } else { &BOTH[..1] } {
                                enqueue(&device, &product, *dense);
                            }
                            device.synchronize().unwrap();
                            // Rows that begin on 16 bytes may have a kernel of their own.
                            assert!(names.len() <= 2 && names.contains(&product.kernel_name()));
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
                    let builder = auto.product(gemm).unwrap();
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
