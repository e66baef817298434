//! A kernel that panics. It is alone in its file, because what a kernel does wrong stays with the
//! process on a GPU.

#[test]
fn a_panic_is_an_error() {
    let error = {{crate_name}}::add(&[1.0; 3], &[1.0; 2]).unwrap_err().to_string();
    // A GPU says no more than that a launch failed, and the panic itself is on stdout.
    let place = error.contains("kernels/src/lib.rs:");
    assert!(place || cuda_driver::gpu_count().is_ok_and(|gpus| gpus > 0), "{error}");
}
