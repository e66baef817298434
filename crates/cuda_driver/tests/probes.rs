//! Small kernels whose results the PTX ISA defines, through the driver API: on the
//! software device, and on the first GPU where there is one. Both must give the same.
//! `REQUIRE_GPU=1` turns a missing GPU into a failure.

use std::ffi::{CString, c_void};

use cuda_driver::sys::{self, CUdeviceptr, CUresult};
use cust::context::legacy::{Context, ContextFlags};
use cust::device::Device;
use cust::memory::{DeviceBuffer, DeviceCopy};

/// A kernel `probe` of 64 threads that gets the addresses of its input and output, which
/// are then in `%rd1` and `%rd2`; the thread index is in `%r1`.
fn kernel(declarations: &str, body: &str) -> String {
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n{declarations}
.visible .entry probe(.param .u64 input, .param .u64 output)
{{
  .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
  .reg .f32 %f<9>; .reg .f64 %d<9>;
  ld.param.u64 %rd1, [input];
  ld.param.u64 %rd2, [output];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
  mov.u32 %r1, %tid.x;
{body}
  ret;
}}
"
    )
}

/// Runs `f` on every kind of device, in a context of its own.
fn on_every_device(f: impl Fn(&str)) {
    cust::init(cust::CudaFlags::empty()).unwrap();
    let mut ordinals = vec![cuda_driver::soft_ordinal()];
    match cuda_driver::gpu_count() {
        Ok(_) => ordinals.push(0),
        Err(reason) => {
            let required = std::env::var_os("REQUIRE_GPU").is_some_and(|value| value == "1");
            assert!(!required, "REQUIRE_GPU is set and {reason}");
            eprintln!("on the software device alone: {reason}");
        }
    }
    for ordinal in ordinals {
        let device = Device::get_device(ordinal).unwrap();
        let _context = Context::create_and_push(ContextFlags::SCHED_AUTO, device).unwrap();
        f(&device.name().unwrap());
    }
}

/// Loads PTX as it is; cust would say less about why not.
fn load(ptx: &str) -> Result<sys::CUmodule, CUresult> {
    let image = CString::new(ptx).unwrap();
    let mut module = sys::CUmodule::NULL;
    // SAFETY: the image ends with a NUL, and both outlive the call.
    unsafe { sys::cuModuleLoadData(&mut module, image.as_ptr().cast()) }.ok()?;
    Ok(module)
}

/// Launches the probe on `input` and returns its `N` words of output.
fn run<T: DeviceCopy, const N: usize>(ptx: &str, input: &[T]) -> [u64; N] {
    let module = load(ptx).unwrap_or_else(|code| {
        panic!("{code} {}\n{ptx}", cuda_driver::last_error().unwrap_or_default())
    });
    let input = DeviceBuffer::from_slice(input).unwrap();
    let output = DeviceBuffer::from_slice(&[0u64; N]).unwrap();
    let mut addresses =
        [input.as_device_ptr().as_raw(), output.as_device_ptr().as_raw()].map(CUdeviceptr);
    let [first, second] = &mut addresses;
    let mut parameters: [*mut c_void; 2] = [(&raw mut *first).cast(), (&raw mut *second).cast()];
    let mut function = sys::CUfunction::NULL;
    // SAFETY: the kernel has these two parameters, and the buffers outlive the launch.
    unsafe {
        sys::cuModuleGetFunction(&mut function, module, c"probe".as_ptr()).ok().unwrap();
        sys::cuLaunchKernel(
            function,
            1,
            1,
            1,
            64,
            1,
            1,
            0,
            sys::CUstream::NULL,
            parameters.as_mut_ptr(),
            std::ptr::null_mut(),
        )
        .ok()
        .unwrap();
        sys::cuCtxSynchronize().ok().unwrap();
    }
    let words = output.as_host_vec().unwrap().try_into().unwrap();
    // SAFETY: nothing of the module is used any longer.
    unsafe { sys::cuModuleUnload(module) }.ok().unwrap();
    words
}

/// Runs `code` in one thread for every row: `(code, expected word at %rd2)`.
fn check<T: DeviceCopy + std::fmt::Debug>(
    device: &str,
    declarations: &str,
    input: &[T],
    rows: &[(String, u64)],
) {
    for rows in rows.chunks(64) {
        let body: String = rows
            .iter()
            .enumerate()
            .map(|(i, (code, _))| {
                format!(
                    "  setp.ne.u32 %p8, %r1, {i}; @%p8 bra NEXT_{i};
  {code}
NEXT_{i}:
  add.s64 %rd2, %rd2, 8;
"
                )
            })
            .collect();
        let got: [u64; 64] = run(&kernel(declarations, &body), input);
        for ((code, want), got) in rows.iter().zip(got) {
            assert_eq!(got, *want, "{device}: {code} of {input:x?} gave {got:#x}, not {want:#x}");
        }
    }
}

#[test]
fn loops_with_barriers_end_when_they_should() {
    // Each way to wait, in a loop of 20,000 rounds; every thread counts them.
    let round = |declarations: &str, before: &str, wait: &str| {
        let body = format!(
            "  mov.u32 %r2, 0;
  {before}
LOOP:
  {wait}
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p1, %r2, 20000;
  @%p1 bra LOOP;
  mul.wide.u32 %rd3, %r1, 8; add.s64 %rd2, %rd2, %rd3;
  cvt.u64.u32 %rd3, %r2; st.global.b64 [%rd2], %rd3;"
        );
        kernel(declarations, &body)
    };
    let barrier = ".shared .align 8 .b64 bar;";
    let init = "mov.u32 %r3, bar;
  setp.ne.u32 %p2, %r1, 0; @%p2 bra READY; mbarrier.init.shared.b64 [%r3], 64;
READY:
  bar.sync 0;";
    let arrive = "mbarrier.arrive.shared.b64 %rd4, [%r3];
WAIT: mbarrier.test_wait.shared.b64 %p2, [%r3], %rd4; @!%p2 bra WAIT;";
    // Half of a warp goes one way, half the other; they meet in every round.
    let apart = "and.b32 %r4, %r1, 1; setp.eq.u32 %p2, %r4, 0; @%p2 bra EVEN;
  add.u32 %r5, %r5, 1; bra MEET;
EVEN: add.u32 %r5, %r5, 2;
MEET: bar.warp.sync -1;";
    let kernels = [
        round("", "", "bar.sync 0;"),
        round("", "", "barrier.sync 3, 64;"),
        round("", "", "bar.warp.sync -1;"),
        round("", "setp.eq.u32 %p3, %r1, 0;", "bar.red.or.pred %p2, 0, %p3;"),
        round("", "shr.u32 %r6, %r1, 5; add.u32 %r6, %r6, 1;", "bar.sync %r6, 32;"),
        round(barrier, init, arrive),
        round("", "mov.u32 %r5, 0;", apart),
    ];
    on_every_device(|device| {
        for ptx in &kernels {
            assert_eq!(run::<u32, 64>(ptx, &[0]), [20_000; 64], "{device}:\n{ptx}");
        }
    });
}

#[test]
fn nan_to_an_integer() {
    // PTX ISA, `cvt`: 0 if the source is not `.f64` and the destination has no 64 bits,
    // else the highest bit of the destination.
    let mut rows = Vec::new();
    for source in ["f16", "f32", "f64"] {
        for bits in [8u32, 16, 32, 64] {
            for sign in ["u", "s"] {
                for rounding in ["rni", "rzi", "rmi", "rpi"] {
                    let from = match source {
                        "f16" => "%h1",
                        "f32" => "%f1",
                        _ => "%d1",
                    };
                    let to = match bits {
                        64 => "%rd3",
                        16 => "%h2",
                        _ => "%r3",
                    };
                    let code = format!(
                        "ld.global.f64 %d1, [%rd1]; ld.global.f32 %f1, [%rd1+8]; ld.global.b16 %h1, [%rd1+12];
  cvt.{rounding}.{sign}{bits}.{source} {to}, {from}; st.global.b{bits} [%rd2], {to};"
                    );
                    let zero = source != "f64" && bits != 64;
                    rows.push((code, if zero { 0 } else { 1 << (bits - 1) }));
                }
            }
        }
    }
    on_every_device(|device| {
        check(device, "", &[0x7ff8_0000_0000_0000u64, 0x7e00_7fc0_0000], &rows);
    });
}

#[test]
fn integers_saturate_to_one() {
    for value in [2i64, 1, 0, -3] {
        let mut rows = Vec::new();
        for source in ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"] {
            let from = match &source[1..] {
                "64" => "%rd3",
                "16" => "%h1",
                _ => "%r3",
            };
            let one = value > 0 || value < 0 && source.starts_with('u');
            for (to, d, width, want) in [
                ("f16", "%h2", 16, 0x3c00),
                ("f32", "%f1", 32, 0x3f80_0000),
                ("f64", "%d1", 64, 0x3ff0_0000_0000_0000),
            ] {
                let code = format!(
                    "ld.global.{source} {from}, [%rd1];
  cvt.rn.sat.{to}.{source} {d}, {from}; st.global.b{width} [%rd2], {d};"
                );
                rows.push((code, if one { want } else { 0 }));
            }
        }
        on_every_device(|device| check(device, "", &[value], &rows));
    }
}

#[test]
fn constants_in_instructions() {
    let bits = |value: f32| u64::from(value.to_bits());
    let rows = [
        ("mov.f32 %f1, 1.5; st.global.f32 [%rd2], %f1;", bits(1.5)),
        ("mov.f32 %f1, 1.5; add.f32 %f1, %f1, 0d3FF8000000000000; st.global.f32 [%rd2], %f1;", bits(3.0)),
        ("mov.f32 %f1, 1.e+2; fma.rn.f32 %f1, %f1, 2.0, -.5; st.global.f32 [%rd2], %f1;", bits(199.5)),
        ("mov.f64 %d1, 0.1; st.global.f64 [%rd2], %d1;", 0.1f64.to_bits()),
        ("mov.b64 %rd3, 0.1; st.global.b64 [%rd2], %rd3;", 0.1f64.to_bits()),
        ("mov.b32 %r3, 0f40000000; st.global.b32 [%rd2], %r3;", bits(2.0)),
        ("setp.ne.u32 %p1, %r1, -1; selp.f32 %f1, 4.0, 5.0, %p1; st.global.f32 [%rd2], %f1;", bits(4.0)),
        ("mov.f32 %f1, 3.0; setp.lt.f32 %p1, %f1, 0f40800000; selp.u32 %r3, 7, 9, %p1; st.global.u32 [%rd2], %r3;", 7),
        ("st.global.f32 [%rd2], -2.5;", bits(-2.5)),
        ("st.global.f64 [%rd2], -2.5;", (-2.5f64).to_bits()),
        ("st.global.v2.f32 [%rd2], {0f3F800000, 2.0};", bits(2.0) << 32 | bits(1.0)),
        ("cvt.rzi.s32.f32 %r3, 7.9; st.global.u32 [%rd2], %r3;", 7),
        ("cvt.rn.f32.s32 %f1, -3; st.global.f32 [%rd2], %f1;", bits(-3.0)),
        ("mov.u32 %r3, 0x1F; st.global.u32 [%rd2], %r3;", 0x1f),
        ("mov.u32 %r3, 0X1fU; st.global.u32 [%rd2], %r3;", 0x1f),
        ("mov.u32 %r3, 017; st.global.u32 [%rd2], %r3;", 0o17),
        ("mov.u32 %r3, 0b101U; st.global.u32 [%rd2], %r3;", 0b101),
        ("mov.s32 %r3, -1; st.global.u32 [%rd2], %r3;", 0xffff_ffff),
        ("mov.u32 %r3, 0x123456789; st.global.u32 [%rd2], %r3;", 0x2345_6789),
        ("mov.u16 %h1, 70000; st.global.u16 [%rd2], %h1;", 70_000 & 0xffff),
        ("mov.b64 %rd3, {1, -1}; st.global.b64 [%rd2], %rd3;", 0xffff_ffff_0000_0001),
    ]
    .map(|(code, want)| (code.to_owned(), want));
    on_every_device(|device| check(device, "", &[0u32], &rows));
}

#[test]
fn initial_values() {
    let float = |value: f32| u64::from(value.to_bits());
    let declarations = "
.global .f32 pair[2] = {1.5, -2.5};
.global .f32 exact = 0d3FF8000000000000;
.const .f64 tenth = 0.1;
.global .b32 untyped = 1.5;
.global .align 16 .v4 .f32 vector = {1.0, 2.0, 3.0, 4.0};
.global .v2 .f32 vectors[2] = {{1.0, 2.0}, {3.0, 4.0}};
.global .s32 rows[][2] = {{-1, 0}, {1, 2}};
.global .align 8 .u8 bytes[8] = {0xFF, 010, 0b11, 7U, -1};
.global .align 4 .b16 halves[2] = {0x3c00, -2};
.global .u64 ones = -1;
.global .u64 address = rows+8;";
    let load = |name: &str, space: &str, bits: u32| {
        let r = if bits == 64 { "%rd3" } else { "%r3" };
        format!("ld.{space}.b{bits} {r}, [{name}]; st.global.b{bits} [%rd2], {r};")
    };
    let rows = [
        (load("pair", "global", 32), float(1.5)),
        (load("pair+4", "global", 32), float(-2.5)),
        (load("exact", "global", 32), float(1.5)),
        (load("tenth", "const", 64), 0.1f64.to_bits()),
        (load("untyped", "global", 32), float(1.5)),
        (load("vector+8", "global", 64), float(4.0) << 32 | float(3.0)),
        (load("vectors+8", "global", 64), float(4.0) << 32 | float(3.0)),
        (load("rows", "global", 32), 0xffff_ffff),
        (load("rows+12", "global", 32), 2),
        (load("bytes", "global", 64), 0xff_0703_08ff),
        (load("halves", "global", 32), 0xfffe_3c00),
        (load("ones", "global", 64), u64::MAX),
        (
            "ld.global.u64 %rd3, [address]; ld.global.u32 %r3, [%rd3]; st.global.u32 [%rd2], %r3;"
                .into(),
            1,
        ),
    ];
    on_every_device(|device| check(device, declarations, &[0u32], &rows));
}

#[test]
fn constants_of_another_type_do_not_load() {
    let in_instructions = [
        "add.f32 %f1, %f2, 1;",
        "mov.f32 %f1, 1;",
        "add.f64 %d1, %d2, 1;",
        "fma.rn.f32 %f1, %f2, 2, 1.0;",
        "setp.eq.f32 %p1, %f1, 1;",
        "selp.f32 %f1, 1, 2, %p1;",
        "slct.f32.s32 %f1, 1, 2, %r1;",
        "cvt.rzi.s32.f32 %r2, 1;",
        "st.global.f32 [%rd1], 1;",
        "st.global.v2.f32 [%rd1], {1, 2};",
        "st.global.b32 [%rd1], 1.5;",
        "st.global.u32 [%rd1], 0f3F800000;",
        "atom.global.add.f32 %f1, [%rd1], 1;",
        "mov.u32 %r2, 0f3F800000;",
        "mov.u32 %r2, 099;",
        "mov.u32 %r2, 5UU;",
        "add.u32 %r2, %r1, 1.5;",
        "shl.b32 %r2, %r1, 1.5;",
    ];
    let declarations = [
        ".global .f32 v = 1;",
        ".global .f64 v = 1;",
        ".global .u32 v = 1.5;",
        ".global .u32 v = 0f3F800000;",
        ".global .u8 v[2] = {1, 2, 3};",
        ".global .s32 v[2][2] = {1, {2, 3}};",
        ".global .f16 v = 1.0;",
        ".global .u32 v[2] = 1;",
        ".global .u32 v = {1};",
        ".shared .u32 v = 1;",
    ];
    let texts: Vec<String> = in_instructions
        .iter()
        .map(|inst| kernel("", &format!("  {inst}")))
        .chain(declarations.iter().map(|declaration| kernel(declaration, "")))
        .collect();
    on_every_device(|device| {
        for text in &texts {
            let Ok(module) = load(text) else { continue };
            let mut function = sys::CUfunction::NULL;
            // SAFETY: the name ends with a NUL, and all outlive the call.
            let code =
                unsafe { sys::cuModuleGetFunction(&mut function, module, c"probe".as_ptr()) };
            assert_eq!(code, CUresult::CUDA_ERROR_INVALID_PTX, "{device} loaded:\n{text}");
        }
    });
}
