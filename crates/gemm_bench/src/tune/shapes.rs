//! The products that are measured themselves.

use cuda_gemm::{Compute, Device, Gemm};

use crate::shape::{self, Shape};

/// Squares: around powers of two, and odd ones.
const SQUARES: [usize; 16] =
    [64, 128, 192, 256, 384, 512, 768, 1000, 1024, 1536, 2048, 3072, 4095, 4096, 4097, 8192];

/// Small M or small N, with these for the other two.
const SMALL: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const OTHERS: [(usize, usize); 4] = [(4096, 1024), (4096, 4096), (4096, 16384), (11008, 4096)];

/// Tall, wide, deep and odd ones.
const AWKWARD: [(usize, usize, usize); 42] = [
    (333, 777, 1555),
    (777, 333, 1555),
    (200, 5000, 3000),
    (3000, 2000, 1000),
    (5000, 5000, 5000),
    (7, 11008, 4096),
    (48, 6000, 2048),
    (96, 4096, 4096),
    (128, 8192, 2048),
    (256, 8192, 1024),
    (8192, 256, 1024),
    (512, 16384, 512),
    (16384, 512, 512),
    (6000, 300, 900),
    (300, 6000, 900),
    (10000, 100, 100),
    (100, 10000, 100),
    (1920, 1080, 640),
    (1080, 1920, 640),
    (2000, 2000, 500),
    (1001, 999, 2003),
    (100, 2500, 2500),
    (2500, 100, 2500),
    (1500, 1500, 1500),
    (6144, 1536, 1536),
    (511, 513, 2049),
    (1023, 1025, 1027),
    (16, 4096, 11008),
    (64, 4096, 11008),
    (8192, 64, 1024),
    (64, 8192, 1024),
    (16384, 128, 128),
    (128, 16384, 128),
    (4096, 4096, 16),
    (4096, 4096, 64),
    (4096, 4096, 256),
    (256, 256, 16384),
    (128, 128, 32768),
    (32, 32, 32768),
    (2048, 2048, 1024),
    (512, 2048, 512),
    (1000, 1000, 4000),
];

/// A K that is short for its C, of rows that 128-bit accesses do not reach, as they are at random.
const SHORT: [(usize, usize, usize); 16] = [
    (257, 301, 9),
    (9001, 9, 6),
    (21, 7001, 11),
    (997, 397, 14),
    (5003, 61, 7),
    (1501, 1203, 3),
    (801, 3501, 15),
    (4501, 3301, 5),
    (9001, 8003, 10),
    (8001, 9003, 15),
    (307, 2501, 37),
    (9203, 75, 71),
    (2601, 211, 109),
    (701, 1101, 150),
    (1907, 2601, 183),
    (4203, 3001, 45),
];

/// Strided batches of small and middling products.
const BATCHES: [(usize, (usize, usize, usize)); 9] = [
    (900, (16, 16, 16)),
    (3000, (8, 8, 8)),
    (4000, (32, 32, 32)),
    (600, (48, 48, 48)),
    (500, (64, 64, 64)),
    (100, (128, 128, 128)),
    (60, (256, 256, 256)),
    (100, (512, 64, 512)),
    (30, (1, 4096, 128)),
];

/// Products whose B lies as its transpose, which kernels for few rows read slower or faster than one that is not
/// aligned.
const TRANSPOSED: [(usize, usize, usize); 8] = [
    (16, 1800, 1700),
    (16, 6000, 2000),
    (16, 4000, 4000),
    (32, 3000, 1000),
    (64, 2000, 2000),
    (64, 7600, 2600),
    (128, 4000, 4000),
    (128, 3000, 1000),
];

/// On tensor cores, in each of [`COMPUTES`].
const TENSOR_CORES: [(usize, usize, usize); 10] = [
    (16, 4096, 4096),
    (128, 4096, 4096),
    (512, 512, 512),
    (1024, 1024, 1024),
    (1536, 1536, 1536),
    (2048, 2048, 2048),
    (4096, 4096, 1024),
    (3072, 3072, 3072),
    (4096, 4096, 4096),
    (2048, 8192, 8192),
];

/// In f16 kernels take as long as in bf16.
const COMPUTES: [Compute; 3] = [Compute::Bf16, Compute::Tf32, Compute::Tf32x3];

/// How many [`shape::random`] ones there are, of the seed.
const RANDOM: (usize, u64) = (40, 13);

/// What a trial measures in f32, and on tensor cores.
const TRIAL: [(usize, usize, usize); 3] = [(8, 8, 8), (1, 40, 130), (33, 20, 70)];
const TRIAL_OF_TENSOR_CORES: [(usize, usize, usize); 1] = [(64, 64, 128)];

fn size(shape: &Shape) -> usize {
    shape.batch * shape.m * shape.n * shape.k
}

fn shape((m, n, k): (usize, usize, usize)) -> Shape {
    Shape::new(m, n, k)
}

/// All products: those in f32, and those on tensor cores, where there are costs of them.
pub fn products(device: &Device, trial: bool) -> Vec<Gemm> {
    let mut products: Vec<_> = shapes(trial).into_iter().map(Shape::gemm).collect();
    let info = device.info();
    if info.capability == (9, 0) && info.tensor_maps {
        let own: &[_] = if trial { &TRIAL_OF_TENSOR_CORES } else { &TENSOR_CORES };
        for compute in COMPUTES {
            // C is of the type of A and B.
            let output = compute.element();
            let in_compute = |sizes| shape(sizes).gemm().computed_in(compute).stored_as(output);
            products.extend(own.iter().copied().map(in_compute));
        }
    }
    products
}

/// Those in f32, the small ones first.
pub fn shapes(trial: bool) -> Vec<Shape> {
    if trial {
        return TRIAL.map(shape).to_vec();
    }
    let squares = SQUARES.map(|size| shape((size, size, size)));
    let small = OTHERS.iter().flat_map(|&(long, k)| {
        SMALL.iter().flat_map(move |&size| [(size, long, k), (long, size, k)]).map(shape)
    });
    let mut shapes: Vec<_> = squares.into_iter().chain(small).collect();
    shapes.extend(AWKWARD.into_iter().chain(SHORT).map(shape));
    shapes.extend(BATCHES.map(|(batch, sizes)| Shape { batch, ..shape(sizes) }));
    shapes.extend(TRANSPOSED.map(|sizes| Shape { trans_b: true, ..shape(sizes) }));
    shapes.extend(shape::random(RANDOM.0, RANDOM.1));
    shapes.sort_by_key(size);
    shapes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_there_once() {
        for trial in [false, true] {
            let shapes = shapes(trial);
            for (i, shape) in shapes.iter().enumerate() {
                shape.gemm().validate().unwrap();
                assert!(!shapes[..i].contains(shape), "{shape}");
            }
            assert!(shapes.is_sorted_by_key(size));
        }
    }
}
