//! Matrices of `faer` on a device. They are column-major, so their transposes are what
//! `MatrixRef` and `MatrixMut` take, and `C = A * B` is `C^T = B^T * A^T`.

use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Error, MatrixMut, MatrixRef, ViewError, gemm};
use faer::Mat;

#[test]
fn column_major_matrices_are_multiplied_through_their_transposes() -> Result<(), Error> {
    let [m, n, k] = [37, 29, 41];
    let a = Mat::<f32>::from_fn(m, k, |row, col| ((3 * row + col) % 7) as f32 - 3.0);
    let b = Mat::<f32>::from_fn(k, n, |row, col| ((row + 5 * col) % 9) as f32 - 4.0);
    let mut c = Mat::<f32>::zeros(m, n);

    let device = Device::open(DeviceChoice::Soft)?;
    let a_t = DeviceMatrix::<f32>::from_host(&device, MatrixRef::try_from(a.transpose())?)?;
    let b_t = DeviceMatrix::<f32>::from_host(&device, MatrixRef::try_from(b.transpose())?)?;
    let mut c_t = DeviceMatrix::<f32>::zeros(&device, [n, m])?;
    gemm(&b_t, &a_t).run(&mut c_t)?;
    c_t.download_to(MatrixMut::try_from(c.transpose_mut())?)?;

    // Small integers: the sums are exact.
    assert!((0..m * n).all(|i| {
        let (row, col) = (i / n, i % n);
        c[(row, col)] == (0..k).map(|l| a[(row, l)] * b[(l, col)]).sum::<f32>()
    }));
    let refused = MatrixRef::try_from(a.as_ref()).map_err(Error::from);
    assert!(matches!(refused, Err(Error::View(ViewError::NotRowMajor))));
    Ok(())
}
