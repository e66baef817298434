//! Multiplies two matrices of `ndarray` on a stream of the program's own:
//! `cargo run -p ndarray_stream`.

use std::error::Error;
use std::sync::Arc;

use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, MatrixMut, MatrixRef, Stream, gemm};
use cust::stream::{Stream as CudaStream, StreamFlags};
use ndarray::{Array2, s};

fn main() -> Result<(), Box<dyn Error>> {
    println!("largest difference from ndarray's product: {}", largest_difference()?);
    Ok(())
}

fn largest_difference() -> Result<f32, Box<dyn Error>> {
    let device = Device::open(DeviceChoice::Auto)?;
    device.make_current()?;
    let own = Arc::new(CudaStream::new(StreamFlags::NON_BLOCKING, None)?);
    // SAFETY: it was just made in the device's context.
    let stream = unsafe { Stream::from_cust(&device, Arc::clone(&own)) };

    // A part of a larger array needs no copy: its rows have a leading dimension of 100.
    let large = Array2::from_shape_fn((80, 100), |(row, col)| ((row * col) % 7) as f32);
    let a = large.slice(s![10..74, 20..68]);
    let b = Array2::from_shape_fn((48, 32), |(row, col)| ((row + 2 * col) % 5) as f32);

    let device_a = DeviceMatrix::<f32>::from_host(&stream, MatrixRef::try_from(a)?)?;
    let device_b = DeviceMatrix::<f32>::from_host(&stream, MatrixRef::try_from(b.view())?)?;
    let mut device_c = DeviceMatrix::<f32>::zeros(&stream, [64, 32])?;
    gemm(&device_a, &device_b).run(&mut device_c)?;
    // What the program enqueues on its stream now comes after the product.
    own.synchronize()?;

    let mut c = Array2::zeros((64, 32));
    device_c.download_to(MatrixMut::try_from(c.view_mut())?)?;
    Ok((&c - &a.dot(&b)).iter().fold(0.0, |largest, x| largest.max(x.abs())))
}

/// The elements and their sums are small integers.
#[test]
fn the_product_is_ndarray_s() {
    assert_eq!(largest_difference().unwrap(), 0.0);
}
