//! Typed launches; what does not compile is in the documentation of `api::typed`.

use api::typed::{Line, Power, Thirds, axpy, lines, map, numbers, reverse, scale};
use cuda_builder::CudaArch;
use cuda_std::launch::{LaunchConfig, LaunchError};
use cust::memory::{CopyDestination, DeviceBox, DeviceBuffer};
use cust::module::Module;

mod common;
#[path = "common/device.rs"]
mod device;

use device::{Api, buffer};

fn api() -> Option<Api> {
    Api::of(common::api(), CudaArch::Sm80)
}

#[test]
fn a_safe_kernel_runs_without_unsafe() {
    let Some(api) = api() else { return };
    let x: Vec<f32> = (0..1000).map(|i| i as f32 * 0.1).collect();
    let y: Vec<f32> = (0..1003).map(|i| i as f32).collect();
    let expected: Vec<f32> =
        (0..y.len()).map(|i| x.get(i).map_or(y[i], |x| 1.5f32.mul_add(*x, y[i]))).collect();
    // SAFETY: the module was built from these kernels.
    let axpy = unsafe { axpy::load(&api.module) }.unwrap();
    for config in [LaunchConfig::for_num_elems(1003, 128), (2, (8, 4, 2)).into(), (1, 1).into()] {
        let (a, mut c) = (buffer(&x), buffer(&y));
        axpy.run(&api.stream, config, 1.5, &a, &mut c).unwrap();
        assert_eq!(api.read(&c), expected);
    }
    // No elements are a null pointer.
    let (a, mut c) = (buffer::<f32>(&[]), buffer::<f32>(&[]));
    axpy.run(&api.stream, (1, 32), 1.5, &a, &mut c).unwrap();
}

#[test]
fn each_thread_has_the_element_of_its_number() {
    let Some(api) = api() else { return };
    // SAFETY: the module was built from these kernels.
    let numbers = unsafe { numbers::load(&api.module) }.unwrap();
    for (config, threads) in [
        (LaunchConfig::from(((2, 3, 2), (4, 2, 2))), 192),
        (LaunchConfig::from((5, 64)), 320),
        (LaunchConfig::from(((1, 1, 3), (1, 3, 1))), 9),
    ] {
        let mut out = buffer(&[u32::MAX; 200]);
        numbers.run(&api.stream, config, &mut out).unwrap();
        let expected: Vec<u32> = (0..200).map(|i| if i < threads { i } else { u32::MAX }).collect();
        assert_eq!(api.read(&out), expected);
    }
}

#[test]
fn generic_kernels_have_their_variants() {
    let Some(api) = api() else { return };
    let (x, mut out) = (buffer(&[1.0f32, 2.0, 3.0]), buffer(&[0.0f32; 3]));
    // SAFETY: the module was built from these kernels.
    let narrow = unsafe { scale::<f32>::load(&api.module) }.unwrap();
    narrow.run(&api.stream, (1, 32), &x, 2.5, &mut out).unwrap();
    assert_eq!(api.read(&out), [2.5, 5.0, 7.5]);
    let (x, mut out) = (buffer(&[1u64 << 40, 2, 3]), buffer(&[0u64; 3]));
    // SAFETY: the module was built from these kernels.
    let wide = unsafe { scale::<u64>::load(&api.module) }.unwrap();
    wide.run(&api.stream, (1, 32), &x, 3, &mut out).unwrap();
    assert_eq!(api.read(&out), [3 << 40, 6, 9]);

    let line = Line { slope: 0.5, start: 1.0 };
    let (x, mut out) = (buffer(&[3u16, 4, 5]), buffer(&[0.0f64; 3]));
    // SAFETY: the module was built from these kernels.
    let halves = unsafe { lines::<f64, u16>::load(&api.module) }.unwrap();
    // SAFETY: three elements, and the launch is waited for.
    unsafe { halves.launch(&api.stream, (1, 32), line, &x, &mut out, 3) }.unwrap();
    assert_eq!(api.read(&out), [2.5, 3.0, 3.5]);
    let (x, mut out) = (buffer(&[3u32, 4, 5]), buffer(&[0.0f32; 3]));
    // SAFETY: the module was built from these kernels.
    let words = unsafe { lines::<f32, u32>::load(&api.module) }.unwrap();
    // SAFETY: as above.
    unsafe { words.launch(&api.stream, (1, 32), line, &x, &mut out, 2) }.unwrap();
    assert_eq!(api.read(&out), [2.5, 3.0, 0.0]);
}

#[test]
fn kernels_take_what_closures_capture() {
    let Some(api) = api() else { return };
    let (x, mut out) = (buffer(&[1.0f32, 2.0, 3.0, 4.0]), buffer(&[0.0f32; 4]));
    // SAFETY: the module was built from these kernels.
    let powers = unsafe { map::<Power>::load(&api.module) }.unwrap();
    powers.run(&api.stream, (1, 3), Power { exponent: 2, start: 0.5 }, &x, &mut out).unwrap();
    assert_eq!(api.read(&out), [4.5, 8.5, 12.5, 16.5]);
    // SAFETY: as above.
    let thirds = unsafe { map::<Thirds>::load(&api.module) }.unwrap();
    thirds.run(&api.stream, (1, 32), Thirds { value: -1.0 }, &x, &mut out).unwrap();
    assert_eq!(api.read(&out), [-1.0, 2.0, 3.0, -1.0]);
}

#[test]
fn statics_in_shared_memory_are_the_blocks() {
    let Some(api) = api() else { return };
    let x: Vec<f32> = (0..64).map(|i| (i + 7) as f32).collect();
    let (input, mut out) = (buffer(&x), buffer(&[0.0f32; 64]));
    let mut sum = DeviceBox::new(&1.0f32).unwrap();
    // SAFETY: the module was built from these kernels.
    let reverse = unsafe { reverse::load(&api.module) }.unwrap();
    // SAFETY: 64 elements, one block, and the launch is waited for.
    unsafe { reverse.launch(&api.stream, (1, 64, 256), &input, &mut out, &mut sum, 0) }.unwrap();
    let expected: Vec<f32> = x.iter().rev().map(|x| x + 7.0).collect();
    assert_eq!(api.read(&out), expected);
    let mut found = 0.0;
    sum.copy_to(&mut found).unwrap();
    assert_eq!(found, 1.0 + x.iter().sum::<f32>());
}

#[test]
fn a_launch_that_does_not_fit_is_refused() {
    let Some(api) = api() else { return };
    let (input, mut out) = (buffer(&[0.0f32; 64]), buffer(&[0.0f32; 64]));
    let mut sum = DeviceBox::new(&0.0f32).unwrap();
    let mut launch = |config: LaunchConfig| {
        // SAFETY: the module was built from these kernels.
        let reverse = unsafe { reverse::load(&api.module) }.unwrap();
        // SAFETY: refused.
        unsafe { reverse.launch(&api.stream, config, &input, &mut out, &mut sum, 0) }
    };
    assert_eq!(
        launch((1, (8, 8), 256).into()),
        Err(LaunchError::Block { kernel: "reverse", wanted: [64, 1, 1], found: [8, 8, 1] })
    );
    assert_eq!(
        launch((1, 64, 255).into()),
        Err(LaunchError::DynamicShared { kernel: "reverse", wanted: 256, found: 255 })
    );
    let mut out = buffer(&[0u32; 4]);
    // SAFETY: the module was built from these kernels.
    let numbers = unsafe { numbers::load(&api.module) }.unwrap();
    let error = numbers.run(&api.stream, (1, 65), &mut out).unwrap_err();
    assert_eq!(error, LaunchError::Threads { kernel: "numbers", most: 64, found: 65 });
    assert_eq!(error.to_string(), "kernel `numbers` takes blocks of at most 64 threads, not of 65");
    let (x, mut c): (_, DeviceBuffer<f32>) = (buffer(&[0.0f32]), buffer(&[0.0f32]));
    // SAFETY: the module was built from these kernels.
    let axpy = unsafe { axpy::load(&api.module) }.unwrap();
    let error = axpy.run(&api.stream, (1, (64, 64)), 1.0, &x, &mut c).unwrap_err();
    assert!(matches!(error, LaunchError::Threads { found: 4096, .. }), "{error}");

    let empty = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry other() { ret; }";
    let module = Module::from_ptx(empty, &[]).unwrap();
    let error = axpy_of(&module).unwrap_err();
    assert!(matches!(error, LaunchError::NoKernel { kernel: "axpy", .. }), "{error}");
}

fn axpy_of(module: &Module) -> Result<axpy<'_>, LaunchError> {
    // SAFETY: no module of these tests has another kernel of this name.
    unsafe { axpy::load(module) }
}
