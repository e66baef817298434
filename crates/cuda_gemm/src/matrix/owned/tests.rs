//! Matrices that own their memory.

use super::*;
use crate::{DeviceChoice, bf16, f16};

#[test]
fn what_is_too_large_is_refused_by_its_size() {
    let device = Device::open(DeviceChoice::Soft).unwrap();
    let (most, max) = (usize::MAX, isize::MAX as usize / 4);
    let refused = DeviceMatrix::<f32>::zeros(&device, [most / 4, 1]).unwrap_err().to_string();
    let says = format!(
        "a matrix of {0} x 1 needs a buffer of {0} elements, and the longest possible has \
         {max}; use a smaller one",
        most / 4
    );
    assert_eq!(refused, says);
    // The matrix and everything around it count.
    let layout = Layout { offset: most, ld: most, tail: most };
    let refused = DeviceMatrix::<f16>::zeros_in(&device, [most, most], layout).unwrap_err();
    assert!(matches!(refused, Error::MatrixTooLarge { elements: u128::MAX, .. }));
}

#[test]
fn a_matrix_moves_to_another_stream() {
    let device = Device::open(DeviceChoice::Soft).unwrap();
    let mut matrix = DeviceMatrix::<f16>::zeros(&device, [1, 3]).unwrap();
    matrix.fill_buffer(0x3c00).unwrap();
    let stream = Stream::new(&device).unwrap();
    matrix.move_to(&stream).unwrap();
    assert!(matrix.stream().is_same(&stream) && matrix.device().is_same(&device));
    assert_eq!(matrix.to_vec().unwrap(), [f16::from_f32(1.0); 3]);
    let other = Device::open(DeviceChoice::Soft).unwrap();
    let refused = matrix.move_to(&other.stream());
    assert!(matches!(refused, Err(Error::WrongDevice { .. })));
}

#[test]
fn shapes_at_the_edges() {
    let device = Device::open(DeviceChoice::Soft).unwrap();
    for [rows, cols] in [[0, 3], [3, 0], [0, 0], [3, 9], [usize::MAX, 0]] {
        let elements = |i| bf16::from_bits(i as u16);
        let elements: Vec<_> = (0..rows * cols).map(elements).collect();
        let matrix = DeviceMatrix::from_slice(&device, [rows, cols], &elements).unwrap();
        assert_eq!(matrix.to_vec().unwrap(), elements);
        let host = matrix.download().unwrap();
        assert_eq!((host.rows(), host.cols()), (rows, cols));
        let layout = Layout { offset: 3, ..Layout::padded(cols) };
        let mut again = DeviceMatrix::<bf16>::zeros_in(&device, [rows, cols], layout).unwrap();
        again.upload(&host).unwrap();
        assert_eq!(again.to_vec().unwrap(), elements);
        assert_eq!(again.t().download().unwrap(), host.transposed());
    }
    let of = |count: usize| DeviceMatrix::from_slice(&device, [2, 2], &vec![0f32; count]);
    let short = of(3);
    assert!(matches!(short, Err(Error::View(ViewError::TooShort { needed: 4, len: 3 }))));
    assert!(matches!(of(5), Err(Error::View(ViewError::TooLong { elements: 4, len: 5 }))));
    let none = DeviceMatrix::from_slice(&device, [0, 9], &[1f32]);
    assert!(matches!(none, Err(Error::View(ViewError::TooLong { elements: 0, len: 1 }))));
}

/// Downloads a part whose rows have gaps into rows of a wider host matrix.
#[test]
fn parts_and_transposes_are_copied() {
    let device = Device::open(DeviceChoice::Soft).unwrap();
    let host = Matrix::from_fn(4, 6, |row, col| (10 * row + col) as f32);
    let part = Matrix::from_fn(2, 3, |row, col| (10 * (row + 1) + col + 2) as f32);
    let matrix = DeviceMatrix::<f16>::from_host(&device, &host).unwrap();
    let view = matrix.submatrix(1..3, 2..5).unwrap();
    assert_eq!(view.download().unwrap(), part);
    assert_eq!(view.t().download().unwrap(), part.transposed());
    assert!(matches!(view.t().to_vec(), Err(Error::Transposed)));
    for view in [view, view.t()] {
        let mut wide = vec![-1.0; 40];
        let [rows, cols] = [view.rows(), view.cols()];
        view.download_to(MatrixMut::new(&mut wide, rows, cols, 7).unwrap()).unwrap();
        let expected = view.download().unwrap();
        for row in 0..rows {
            assert_eq!(wide[7 * row..][..cols], *expected.row(row));
            assert_eq!(wide[7 * row + cols], -1.0);
        }
    }
    let refused = view.download_to(&mut Matrix::zeros(3, 2));
    assert!(matches!(refused, Err(Error::Shape { need_rows: 2, need_cols: 3, .. })));
}

#[test]
fn no_view_of_a_batch_drops_it() {
    let device = Device::open(DeviceChoice::Soft).unwrap();
    let mut matrix = DeviceMatrix::<f32>::zeros(&device, [6, 4]).unwrap();
    let batch = matrix.batch(3).unwrap();
    let part = batch.submatrix(0..1, 1..3).unwrap().t();
    assert_eq!((part.count(), part.stride(), part.rows(), part.cols()), (3, 8, 2, 1));
    let of_columns = matrix.t().batch(2).unwrap();
    assert_eq!((of_columns.stride(), of_columns.rows(), of_columns.cols()), (2, 2, 6));
    let refused = [
        batch.batch(1).map(drop),
        batch.batch_cols(2).map(drop),
        batch.broadcast(2).map(drop),
        batch.rows_as_matrices([1, 1], 1).map(drop),
        batch.download().map(drop),
        batch.to_vec().map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Error::NestedBatch { count: 3 })), "{refused:?}");
    }
    let uploaded = matrix.batch_mut(3).unwrap().upload(&Matrix::zeros(2, 4));
    assert!(matches!(uploaded, Err(Error::NestedBatch { count: 3 })));
    for (refused, what) in [(matrix.batch(4), "rows"), (matrix.batch(0), "rows")] {
        assert!(matches!(refused, Err(Error::Split { what: of, .. }) if of == what));
    }
}
