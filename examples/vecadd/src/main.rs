//! Adds two vectors: the whole way from a kernel in Rust to its result.
//!
//! ```console
//! $ cargo run -p vecadd
//! $ cargo test -p vecadd
//! ```

use std::error::Error;

use cuda_driver as _; // The driver API: NVIDIA's driver, or the software device without one.
use cuda_std::launch::LaunchConfig;
use cust::prelude::*;
use vecadd_kernels::vecadd;

/// The kernels, as `build.rs` has compiled them.
const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<f32> = (0..1_000_000).map(|i| i as f32).collect();
    let sums = add(&numbers, &numbers)?;
    println!("{} + {} = {}", numbers[1000], numbers[1000], sums[1000]);
    Ok(())
}

fn add(a: &[f32], b: &[f32]) -> Result<Vec<f32>, Box<dyn Error>> {
    let _context = cust::quick_init()?;
    let module = Module::from_ptx(PTX, &[])?;
    let stream = Stream::new(StreamFlags::DEFAULT, None)?;
    // SAFETY: the module was built from this kernel.
    let vecadd = unsafe { vecadd::load(&module) }?;

    let (a, b) = (a.as_dbuf()?, b.as_dbuf()?);
    let mut out = DeviceBuffer::<f32>::zeroed(a.len())?;
    // The parameters are the kernel's: with others this does not compile.
    vecadd.run(&stream, LaunchConfig::for_num_elems(a.len() as u32, 256), &a, &b, &mut out)?;
    Ok(out.as_host_vec()?)
}

#[test]
fn sums_are_those_of_the_cpu() {
    for n in [1, 1000, 4097] {
        let a: Vec<f32> = (0..n).map(|i| i as f32 / 3.0).collect();
        let b: Vec<f32> = a.iter().map(|x| x * x).collect();
        let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(add(&a, &b).unwrap(), expected);
    }
}
