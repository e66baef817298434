//! What the environment says about the software device. One test: the environment is the
//! process's.

use cuda_driver::soft;
use cuda_driver::soft_cuda::{Checks, Config, Schedule};
use cust::CudaFlags;
use cust::error::CudaError;

fn set(name: &str, value: &str) {
    // SAFETY: no other thread of this process reads or writes the environment.
    unsafe { std::env::set_var(name, value) };
}

#[test]
fn the_environment_configures_the_device() {
    let default = Config::default();
    let config = soft::default_config();
    assert_eq!((config.checks, config.schedule), (Checks::NONE, Schedule::InOrder));
    assert_eq!(config.instruction_budget, default.instruction_budget);

    set("SOFT_CUDA_CHECK", "race");
    assert_eq!(cust::init(CudaFlags::empty()), Err(CudaError::InvalidValue));
    let text = cuda_driver::last_error().unwrap_or_default().to_string();
    assert!(text.contains("SOFT_CUDA_CHECK") && text.contains("`race`"), "{text}");

    set("SOFT_CUDA_CHECK", "races,sync");
    set("SOFT_CUDA_INSTRUCTION_BUDGET", "0");
    assert_eq!(cust::init(CudaFlags::empty()), Err(CudaError::InvalidValue));
    set("SOFT_CUDA_SCHEDULE", "random:7");
    set("SOFT_CUDA_INSTRUCTION_BUDGET", "1000");
    cust::init(CudaFlags::empty()).unwrap();
    let config = soft::default_config();
    let checks = Checks { races: true, sync: true, ..Checks::NONE };
    assert_eq!((config.checks, config.schedule), (checks, Schedule::Random(7)));
    assert_eq!(config.instruction_budget, Some(1000));
}
