//! SHA-256 on a GPU, by the crate `sha2` as it is on crates.io: a crate without `std` needs nothing
//! to run in a kernel.
//!
//! ```console
//! $ cargo run -p sha2_digests
//! $ cargo test -p sha2_digests
//! ```

use std::error::Error;

use cuda_driver as _; // The driver API: NVIDIA's driver, or the software device without one.
use cuda_std::launch::LaunchConfig;
use cust::prelude::*;
use sha2_digests_kernels::digests;

const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

/// Looks for a digest that begins with zeros.
fn main() -> Result<(), Box<dyn Error>> {
    let digests = compute(b"a block of a chain", 5000)?;
    let best = digests.iter().enumerate().min_by_key(|(_, digest)| *digest);
    let (number, digest) = best.ok_or("no digests")?;
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("the smallest digest is that of number {number}: {hex}");
    Ok(())
}

fn compute(prefix: &[u8], n: usize) -> Result<Vec<[u8; 32]>, Box<dyn Error>> {
    let _context = cust::quick_init()?;
    let module = Module::from_ptx(PTX, &[])?;
    let stream = Stream::new(StreamFlags::DEFAULT, None)?;
    // SAFETY: the module was built from this kernel.
    let kernel = unsafe { digests::load(&module) }?;

    let prefix = prefix.as_dbuf()?;
    let mut out = DeviceBuffer::<[u8; 32]>::zeroed(n)?;
    kernel.run(&stream, LaunchConfig::for_num_elems(n as u32, 128), &prefix, &mut out)?;
    Ok(out.as_host_vec()?)
}

#[test]
fn digests_are_those_of_the_cpu() {
    use sha2::{Digest, Sha256};
    // One block of the hash, and several.
    for prefix in [&b""[..], b"abc", &[7; 200]] {
        for (i, digest) in compute(prefix, 40).unwrap().into_iter().enumerate() {
            let message = [prefix, &(i as u64).to_le_bytes()].concat();
            assert_eq!(digest, *Sha256::digest(message));
        }
    }
}
