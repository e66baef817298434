//! What works, and what it needs.

use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, Matrix, find_kernel};
use gemm_verify::{Bound, Method, Problem, Reference};

use super::finding::{Finding, State};

/// What needs nothing but what was found, and what to type for it.
const NEEDS: [(&str, &[&str], &str); 6] = [
    ("bench", &["gpu"], "rungs bench"),
    ("next-to-cublas", &["gpu", "cublas"], "rungs --kernel all --size 4096"),
    ("build-ptx", &["rustc", "rust-src"], "cargo xtask build-ptx"),
    ("spills", &["ptxas"], "cargo xtask build-ptx"),
    ("sass", &["ptxas", "cuobjdump"], "cargo xtask sass tile2d"),
    ("sanitize", &["gpu", "compute-sanitizer"], "tests/sanitize.sh HOST"),
];

/// What follows from what the machine has.
pub fn findings(machine: &[Finding]) -> Vec<Finding> {
    let finding = |(name, needs, command): (&str, &[&str], &str)| {
        let is_there =
            |need: &str| machine.iter().any(|has| has.name == need && has.state == State::Ok);
        let missing: Vec<_> = needs.iter().copied().filter(|need| !is_there(need)).collect();
        match missing.is_empty() {
            true => Finding::ok(name, command),
            false => Finding::needs(name, &missing.join(", ")),
        }
    };
    NEEDS.map(finding).into()
}

/// Both models of the software device, tried.
pub fn soft() -> Finding {
    for choice in [DeviceChoice::Soft, DeviceChoice::SoftSm90] {
        let tried = Device::open(choice).map_err(|error| error.to_string());
        if let Err(reason) = tried.and_then(|device| check(&device)) {
            let remedy = match reason.contains("SOFT_CUDA_") {
                true => "correct or unset that variable",
                false => "free memory, or report this",
            };
            return Finding::broken("soft", reason, remedy);
        }
    }
    Finding::ok("soft", "rungs --kernel tile2d --size 512 --device soft (or soft-sm90)")
}

/// Whether a product is right on a device, with bulk copies if it has them; why not.
pub fn check(device: &Device) -> Result<(), String> {
    let name = if device.info().capability == (9, 0) { "tma" } else { "tile2d" };
    let gemm = Gemm::new(40, 36, 44);
    let (a, b) = (Matrix::random(40, 44, 1, 1), Matrix::random(44, 36, 1, 2));
    let product = || -> Result<bool, gemm_bench::Error> {
        let plan = device.kernel(find_kernel(name)?)?.prepare(gemm)?;
        let on = |matrix| DeviceMatrix::<f32>::from_host(device, matrix);
        let mut c = DeviceMatrix::<f32>::zeros(device, [40, 36])?;
        plan.run(&on(&a)?, &on(&b)?, &mut c)?;
        let bound = Bound::Probabilistic;
        let problem = Problem { a: &a, b: &b, c: None, alpha: 1.0, beta: 0.0, bound };
        Ok(Reference::compute(problem, Method::Full, 0)?.check(&c.download()?)?.passed())
    };
    match product() {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("the product of {name} is wrong")),
        Err(error) => Err(error.to_string()),
    }
}
