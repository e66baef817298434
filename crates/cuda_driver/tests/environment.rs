//! What the environment says about the software device. One test: the environment is the
//! process's.

use cuda_driver::soft::{self, AlreadyInUse, Settings};
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

    // What is empty is not set.
    for name in ["SOFT_CUDA_CHECK", "SOFT_CUDA_SCHEDULE", "SOFT_CUDA_INSTRUCTION_BUDGET"] {
        set(name, "");
    }
    cust::init(CudaFlags::empty()).unwrap();
    assert_eq!(soft::default_config().checks, Checks::NONE);

    set("SOFT_CUDA_CHECK", "race");
    assert_eq!(cust::init(CudaFlags::empty()), Err(CudaError::InvalidValue));
    let text = cuda_driver::last_error().unwrap_or_default().to_string();
    assert!(text.contains("SOFT_CUDA_CHECK") && text.contains("`race`"), "{text}");

    set("SOFT_CUDA_CHECK", "races,sync");
    for budget in ["0", "-1", "many"] {
        set("SOFT_CUDA_INSTRUCTION_BUDGET", budget);
        assert_eq!(cust::init(CudaFlags::empty()), Err(CudaError::InvalidValue));
        let text = cuda_driver::last_error().unwrap_or_default().to_string();
        let says = format!("of 1 or more, or unset for no limit: `{budget}` is no such number");
        assert!(text.contains(&says), "{text}");
    }
    set("SOFT_CUDA_SCHEDULE", "random:7");
    set("SOFT_CUDA_INSTRUCTION_BUDGET", "1000");
    cust::init(CudaFlags::empty()).unwrap();
    let config = soft::default_config();
    let checks = Checks { races: true, sync: true, ..Checks::NONE };
    assert_eq!((config.checks, config.schedule), (checks, Schedule::Random(7)));
    assert_eq!(config.instruction_budget, Some(1000));

    // What is set in place of a variable stands, whatever the variable says.
    set("SOFT_CUDA_CHECK", "race");
    let settings = Settings { checks: Some(Checks::ALL), ..Settings::default() };
    soft::configure_with(settings).unwrap();
    assert_eq!(soft::configure_with(settings), Err(AlreadyInUse));
    cust::init(CudaFlags::empty()).unwrap();
    let config = soft::device().config();
    assert_eq!((config.checks, config.schedule), (Checks::ALL, Schedule::Random(7)));
    assert_eq!(config.instruction_budget, Some(1000));
    set("SOFT_CUDA_SCHEDULE", "random");
    assert_eq!(cust::init(CudaFlags::empty()), Err(CudaError::InvalidValue));
}
