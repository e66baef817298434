//! Kernels whose names macros could stumble over: keywords, what `#[kernel]` itself uses, and
//! another name for `cuda_std`.

use std::path::Path;

use cuda_builder::{CudaArch, CudaBuilder};
use cust::memory::CopyDestination;
use words::shadows::{shadowed, shadowed_by_parameters};
use words::{r#dyn, r#loop, r#match, r#move, r#static, weigh};

mod common;
#[path = "common/device.rs"]
mod device;

use device::{Api, buffer};

/// The kernels, and their PTX.
fn words() -> Option<(Api, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/words");
    let text = common::ptx("words", CudaBuilder::new(folder), CudaArch::Sm90a)?;
    common::assemble(&text, CudaArch::Sm90a);
    Some((Api::load(&text, CudaArch::Sm90a), text))
}

#[test]
fn keywords_are_names() {
    let Some((api, text)) = words() else { return };
    for (name, bound) in
        [("match", ".maxntid"), ("loop", ")"), ("move_dyn_u8", ")"), ("static", ".reqntid")]
    {
        let entry = ptx_syntax::outline::entry(&text, name).unwrap_or_else(|| panic!("{name}"));
        assert!(entry.head.iter().any(|lexeme| lexeme.text == bound), "{name}");
    }
    let (x, mut out) = (buffer(&[1u32, 2, 3]), buffer(&[9u32; 4]));
    // SAFETY: the module was built from these kernels.
    let kernel = unsafe { r#match::load(&api.module) }.unwrap();
    kernel.run(&api.stream, (1, 32), &x, 10, &mut out).unwrap();
    assert_eq!(api.read(&out), [11, 12, 13, 0]);
    assert!(kernel.run(&api.stream, (1, 65), &x, 10, &mut out).is_err());

    // SAFETY: as above.
    let kernel = unsafe { r#loop::load(&api.module) }.unwrap();
    kernel.run(&api.stream, (1, 32), [5, 6, 7, 8], &mut out).unwrap();
    assert_eq!(api.read(&out), [5, 6, 7, 8]);

    // SAFETY: as above.
    let kernel = unsafe { r#move::<u32, u8>::load(&api.module) }.unwrap();
    kernel.run(&api.stream, (1, 32), &x, 0, &mut out).unwrap();
    assert_eq!(api.read(&out), [1, 2, 3, 8]);
    // SAFETY: as above.
    assert!(unsafe { r#move::<r#dyn, u8>::load(&api.module) }.is_ok());

    let mut constant = api.module.get_global::<[f32; 4]>(c"final").unwrap();
    constant.copy_from(&[0.0, 0.5, 0.0, 0.0]).unwrap();
    let mut out = buffer(&[0.0f32; 32]);
    // SAFETY: as above.
    let kernel = unsafe { r#static::load(&api.module) }.unwrap();
    // SAFETY: one block of 32 threads, and as many elements.
    unsafe { kernel.launch(&api.stream, (1, 32), &mut out) }.unwrap();
    let expected: Vec<f32> = (0..32).map(|i| (31 - i) as f32 + 100.5).collect();
    assert_eq!(api.read(&out), expected);
}

#[test]
fn arrays_come_by_value() {
    let Some((api, text)) = words() else { return };
    let entry = ptx_syntax::outline::entry(&text, "weigh").unwrap();
    assert!(entry.text.contains(".param .align 4 .b8 weigh_param_0[12]"), "{}", entry.text);
    let mut out = buffer(&[1.0f32; 6]);
    // SAFETY: the module was built from these kernels.
    let kernel = unsafe { weigh::load(&api.module) }.unwrap();
    kernel.run(&api.stream, (1, 32), [1.0, 2.0, 3.0], [1.0, 10.0], &mut out).unwrap();
    assert_eq!(api.read(&out), [1.0, 20.0, 3.0, 10.0, 2.0, 30.0]);
}

#[test]
fn a_module_may_use_the_names_of_core() {
    let Some((api, _)) = words() else { return };
    let mut constant = api.module.get_global::<[f32; 4]>(c"shadowed_constant").unwrap();
    constant.copy_from(&[0.25; 4]).unwrap();
    let (x, mut out) = (buffer(&[1.0f32, 2.0, 3.0]), buffer(&[0.0f32; 3]));
    // SAFETY: the module was built from these kernels.
    let kernel = unsafe { shadowed::load(&api.module) }.unwrap();
    kernel.run(&api.stream, (1, 32), &x, 0.5, [10.0, 20.0], &mut out).unwrap();
    assert_eq!(api.read(&out), [11.75, 22.75, 13.75]);
    // SAFETY: as above.
    let kernel = unsafe { shadowed_by_parameters::<f32>::load(&api.module) }.unwrap();
    kernel.run(&api.stream, (1, 32), &x, 7.0, 8.0, &mut out).unwrap();
    assert_eq!(api.read(&out), [1.0, 7.0, 8.0]);
}
