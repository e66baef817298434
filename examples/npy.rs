//! Multiplies two matrices of f32 in NumPy's files:
//! `cargo run --example npy a.npy b.npy c.npy`, with `a.npy` from
//! `numpy.save("a.npy", a.astype("float32"))`.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use cuda_gemm::npy::{NpyFile, write_matrix};
use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, gemm};

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<_> = std::env::args_os().skip(1).collect();
    let [a, b, c] = &paths[..] else {
        return Err("usage: cargo run --example npy a.npy b.npy c.npy".into());
    };
    let (a, b) = (NpyFile::open(Path::new(a))?.read()?, NpyFile::open(Path::new(b))?.read()?);

    // A GPU if there is one, else the software device.
    let device = Device::open(DeviceChoice::Auto)?;
    let a = DeviceMatrix::<f32>::from_host(&device, &a)?;
    let b = DeviceMatrix::<f32>::from_host(&device, &b)?;
    let mut product = DeviceMatrix::<f32>::zeros(&device, [a.rows(), b.cols()])?;
    gemm(&a, &b).run(&mut product)?;

    let mut file = BufWriter::new(File::create(c)?);
    write_matrix(&product.download()?, &mut file)?;
    file.flush()?;
    println!("{} x {} by {}", product.rows(), product.cols(), device.info().name);
    Ok(())
}
