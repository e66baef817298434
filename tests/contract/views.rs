//! Matrices in the memory of others: parts of a matrix, and parts of the caller's buffers.

use cuda_gemm::{
    DeviceMatrix, DeviceMatrixMut, DeviceMatrixRef, Error, Gemm, Layout, Matrix, MatrixMut,
    MatrixRef, find_kernel,
};
use cust::memory::DeviceBuffer;

use crate::common::devices;
use crate::handles::{integers, product};

/// A part of a host matrix.
fn part(matrix: &Matrix, [row, col]: [usize; 2], [rows, cols]: [usize; 2]) -> Matrix {
    Matrix::from_fn(rows, cols, |i, j| matrix.at(row + i, col + j))
}

/// Parts of A, B and C that begin anywhere: what lies around C's stays as it is.
#[test]
fn parts_of_matrices_are_multiplied_in_place() {
    let ([m, n, k], [lda, ldb, ldc]) = ([37, 41, 43], [101, 102, 103]);
    for device in devices() {
        let (a, b, c) = (integers(90, lda, 1), integers(90, ldb, 2), integers(90, ldc, 3));
        let [device_a, device_b] =
            [&a, &b].map(|x| DeviceMatrix::<f32>::from_host(&device, x).unwrap());
        let names: &[_] = match device.info().capability {
            (9, 0) => &["naive", "async_copy", "tile_64x64", "tma", "persistent"],
            _ => &["naive", "async_copy", "tile_64x64"],
        };
        for name in names {
            let kernel = device.kernel(find_kernel(name).unwrap()).unwrap();
            let gemm = Gemm::new(m, n, k).scaled(2.0, -1.0).leading_dimensions(lda, ldb, ldc);
            let plan = kernel.plan(gemm).any_alignment().prepare().unwrap();
            for at in [[0, 0], [1, 2], [4, 8], [53, 58]] {
                let mut device_c = DeviceMatrix::<f32>::from_host(&device, &c).unwrap();
                let [row, col] = at;
                let of_a = device_a.submatrix(row..row + m, col..col + k).unwrap();
                let row_of_b = col.min(90 - k);
                let of_b = device_b.submatrix(row_of_b..row_of_b + k, row..row + n).unwrap();
                let of_c = device_c.submatrix_mut(row..row + m, col..col + n).unwrap();
                assert_eq!((of_a.ld(), of_b.ld()), (lda, ldb));
                plan.run(of_a, of_b, of_c).unwrap();

                let sums = product(&part(&a, at, [m, k]), &part(&b, [row_of_b, row], [k, n]));
                let expected = Matrix::from_fn(90, ldc, |i, j| {
                    let is_inside = (row..row + m).contains(&i) && (col..col + n).contains(&j);
                    match is_inside {
                        true => 2.0 * sums.at(i - row, j - col) - c.at(i, j),
                        false => c.at(i, j),
                    }
                });
                assert!(device_c.download().unwrap() == expected, "{name} at {at:?}");
            }
        }
    }
}

/// The halves of C are two products.
#[test]
fn c_is_written_in_two_parts() {
    for device in devices() {
        let (a, b) = (integers(30, 20, 1), integers(20, 10, 2));
        let device_a = DeviceMatrix::<f32>::from_host(&device, &a).unwrap();
        let device_b = DeviceMatrix::<f32>::from_host(&device, &b).unwrap();
        let mut c = DeviceMatrix::<f32>::zeros(&device, [30, 10]).unwrap();
        let auto = device.auto().unwrap();
        let (above, below) = c.view_mut().split_at_row(12).unwrap();
        for (rows, c) in [(0..12, above), (12..30, below)] {
            let plan = auto.prepare(Gemm::new(rows.len(), 10, 20)).unwrap();
            plan.run(device_a.submatrix(rows, 0..20).unwrap(), &device_b, c).unwrap();
        }
        assert!(c.download().unwrap() == product(&a, &b));
        assert!(c.view_mut().split_at_row(31).is_err());
    }
}

/// Buffers that `cust` allocated, with something around each matrix.
#[test]
fn the_caller_s_buffers_are_borrowed() {
    for device in devices() {
        device.make_current().unwrap();
        let stream = device.stream();
        let (a, b) = (integers(5, 7, 1), integers(7, 6, 2));
        let buffer_a = DeviceBuffer::from_slice(&[&[9.0; 3], a.as_slice()].concat()).unwrap();
        let buffer_b = DeviceBuffer::from_slice(&[b.as_slice(), &[9.0; 5]].concat()).unwrap();
        let buffer_c = DeviceBuffer::from_slice(&[7.0f32; 2 + 4 * 8 + 6 + 1]).unwrap();
        let gemm = Gemm::new(5, 6, 7).leading_dimensions(7, 6, 8);
        let plan = device.auto().unwrap().plan(gemm).unwrap().any_alignment().prepare().unwrap();
        let slice_a = buffer_a.index(3..);
        {
            let mut slice_c = buffer_c.index(2..);
            // SAFETY: the buffers are on this device, and what made them is done; they are
            // looked at again when the stream has been waited for.
            unsafe {
                let a = DeviceMatrixRef::from_slice(&stream, &slice_a, [5, 7], 7).unwrap();
                let b = DeviceMatrixRef::from_slice(&stream, &buffer_b, [7, 6], 6).unwrap();
                let c = DeviceMatrixMut::from_slice(&stream, &mut slice_c, [5, 6], 8).unwrap();
                plan.run(a, b, c).unwrap();
                let short = DeviceMatrixRef::from_slice(&stream, &slice_a, [5, 8], 8).unwrap_err();
                assert!(matches!(short, Error::BufferTooShort { needed: 40, len: 35 }));
                // The last row ends after its last element: one more is one too many.
                assert!(DeviceMatrixRef::from_slice(&stream, &slice_a, [5, 3], 8).is_ok());
                let short = DeviceMatrixRef::from_slice(&stream, &slice_a, [5, 4], 8).unwrap_err();
                assert!(matches!(short, Error::BufferTooShort { needed: 36, len: 35 }));
                let narrow = DeviceMatrixRef::from_slice(&stream, &slice_a, [5, 7], 6).unwrap_err();
                assert!(matches!(narrow, Error::LeadingDimension { .. }));
            }
        }
        stream.synchronize().unwrap();
        let words = buffer_c.as_host_vec().unwrap();
        let expected = product(&a, &b);
        for (i, word) in words.iter().enumerate() {
            let inside = (i >= 2 && (i - 2) % 8 < 6).then(|| [(i - 2) / 8, (i - 2) % 8]);
            let inside = inside.filter(|[row, _]| *row < 5);
            assert_eq!(*word, inside.map_or(7.0, |[row, col]| expected.at(row, col)), "{i}");
        }
    }
}

/// No part is outside, whatever sums of its bounds wrap to; and parts may be empty.
#[test]
fn parts_are_within_the_matrix() {
    for device in devices() {
        let mut matrix = DeviceMatrix::<f32>::from_host(&device, &integers(4, 5, 0)).unwrap();
        let most = usize::MAX;
        #[allow(clippy::reversed_empty_ranges, reason = "one of the things to be refused")]
        for (rows, cols) in [
            (0..5, 0..5),
            (0..4, 0..6),
            (3..2, 0..1),
            (most..most, 0..1),
            (0..1, most..most),
            (most - 1..most, 0..1),
        ] {
            let refused = matrix.submatrix(rows.clone(), cols.clone());
            assert!(matches!(refused, Err(Error::Submatrix { .. })), "{rows:?} {cols:?}");
            assert!(matrix.submatrix_mut(rows, cols).is_err());
        }
        let empty = matrix.submatrix(4..4, 5..5).unwrap();
        assert_eq!(empty.download().unwrap(), Matrix::zeros(0, 0));
        assert_eq!(matrix.submatrix(1..4, 2..2).unwrap().download().unwrap(), Matrix::zeros(3, 0));
        // As many rows as can be counted, of nothing.
        let endless = DeviceMatrix::<f32>::zeros(&device, [most, 0]).unwrap();
        let rest = endless.submatrix(most - 1..most, 0..0).unwrap();
        assert_eq!(rest.download().unwrap(), Matrix::zeros(1, 0));
        assert_eq!(endless.download().unwrap().rows(), most);
        // Rows as long as can be counted, of which there are none.
        let layout = Layout { offset: 0, ld: most, tail: 0 };
        let none = DeviceMatrix::<f32>::zeros_in(&device, [0, most], layout).unwrap();
        assert_eq!(none.submatrix(0..0, most..most).unwrap().download().unwrap().rows(), 0);
    }
}

/// A part of a part has the whole matrix's leading dimension.
#[test]
fn parts_of_parts_are_where_they_should_be() {
    for device in devices() {
        let host = Matrix::from_fn(9, 11, |row, col| (100 * row + col) as f32);
        let mut matrix = DeviceMatrix::<f32>::from_host(&device, &host).unwrap();
        let inner = matrix.submatrix(1..8, 2..9).unwrap().submatrix(2..5, 3..7).unwrap();
        assert_eq!(inner.download().unwrap(), part(&host, [3, 5], [3, 4]));
        let outer = matrix.submatrix_mut(1..8, 2..9).unwrap();
        let mut inner = outer.split_at_row(2).unwrap().1.submatrix(1..2, 3..4).unwrap();
        inner.upload(&Matrix::from_vec(1, 1, vec![-1.0])).unwrap();
        let expected = Matrix::from_fn(9, 11, |row, col| match (row, col) {
            (4, 5) => -1.0,
            _ => host.at(row, col),
        });
        assert_eq!(matrix.download().unwrap(), expected);
    }
}

/// Between device and host with other leading dimensions: what lies between the rows stays.
#[test]
fn copies_keep_what_lies_between_the_rows() {
    for device in devices() {
        let mut matrix = DeviceMatrix::<f32>::from_host(&device, &integers(6, 7, 0)).unwrap();
        let from = [1.0, 2.0, -9.0, 3.0, 4.0];
        let from = MatrixRef::new(&from, 2, 2, 3).unwrap();
        matrix.submatrix_mut(1..3, 4..6).unwrap().upload(from).unwrap();
        let expected = Matrix::from_fn(6, 7, |i, j| match (i, j) {
            (1..3, 4..6) => (2 * (i - 1) + j - 4 + 1) as f32,
            _ => integers(6, 7, 0).at(i, j),
        });
        assert_eq!(matrix.download().unwrap(), expected);
        let mut to = [0.0; 9];
        let part = matrix.submatrix(1..3, 4..6).unwrap();
        part.download_to(MatrixMut::new(&mut to, 2, 2, 5).unwrap()).unwrap();
        assert_eq!(to, [1.0, 2.0, 0.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0]);
        let mut wrong = Matrix::zeros(2, 3);
        assert!(matches!(part.download_to(&mut wrong), Err(Error::Shape { .. })));
    }
}
