//! Builds kernels in ordinary Rust, and runs them on the software device: they compute what the
//! same functions compute on the host.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use cuda_builder::{CudaArch, CudaBuilder, CudaBuilderError, DebugInfo};
use ptx_syntax::scan::{Kind, lexemes};
use soft_cuda::{Config, Device, FaultKind, LaunchConfig, LaunchError, Module};

mod common;

use common::build;

fn ordinary() -> CudaBuilder {
    CudaBuilder::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ordinary"))
}

/// The PTX with lines, built once.
fn text() -> Option<&'static str> {
    static TEXT: OnceLock<Option<String>> = OnceLock::new();
    let built = || Some(build(ordinary().debug(DebugInfo::LineTables))?.unwrap());
    TEXT.get_or_init(built).as_deref()
}

fn loaded() -> Option<(Device, Module)> {
    let device = Device::new(Config::default());
    let module = device.load(text()?).unwrap_or_else(|error| panic!("{error}"));
    Some((device, module))
}

/// Launches blocks of so many threads; how that ends.
fn launch(
    (device, module): &(Device, Module),
    name: &str,
    (blocks, threads): (u32, u32),
    params: &[&[u8]],
) -> Result<(), LaunchError> {
    let kernel = module.kernel(name).unwrap();
    let mut bytes = vec![0; kernel.params_size()];
    for (place, param) in kernel.params().iter().zip(params) {
        bytes[place.offset..place.offset + place.size].copy_from_slice(param);
    }
    let config = LaunchConfig { grid: [blocks, 1, 1], block: [threads, 1, 1], dynamic_shared: 0 };
    device.launch(&kernel, config, &bytes).map(|_| ())
}

#[test]
fn kernels_compute_what_the_host_does() {
    let Some(on) = loaded() else { return };
    const THREADS: usize = 70;
    for (name, function) in ordinary::FUNCTIONS {
        let out = on.0.alloc(THREADS as u64 * 8).unwrap();
        let ended = launch(&on, name, (1, THREADS as u32), &[&out.to_le_bytes()]);
        ended.unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut bytes = vec![0; THREADS * 8];
        on.0.read(out, &mut bytes).unwrap();
        for (i, found) in (0..).zip(bytes.as_chunks().0) {
            assert_eq!(u64::from_le_bytes(*found), function(i), "{name}, thread {i}");
        }
    }
}

/// What a launch prints, and how it ends.
fn printed(
    name: &str,
    shape: (u32, u32),
    params: &[&[u8]],
) -> Option<(String, Result<(), LaunchError>)> {
    let on = loaded()?;
    let text = Arc::new(Mutex::new(Vec::new()));
    let taken = text.clone();
    on.0.print_to(move |part| taken.lock().unwrap().extend_from_slice(part));
    let out = on.0.alloc(4096).unwrap().to_le_bytes();
    let params: Vec<&[u8]> = params.iter().copied().chain([&out[..]]).collect();
    let ended = launch(&on, name, shape, &params);
    let text = String::from_utf8(text.lock().unwrap().clone()).unwrap();
    Some((text, ended))
}

/// The line of the kernels' source that has this text, from 1.
fn line_of(needle: &str) -> usize {
    let source = include_str!("ordinary/src/lib.rs");
    source.lines().position(|line| line.contains(needle)).unwrap() + 1
}

#[test]
fn a_panic_says_where_and_why() {
    let ways = [
        ("12 / zero", "attempt to divide by zero"),
        (".unwrap(),", "called `Option::unwrap()` on a `None` value"),
        (".expect(", "not negative: TryFromIntError(())"),
        ("[1, 2, 3]", "index out of bounds: the len is 3 but the index is "),
        ("assert_eq!", "assertion `left == right` failed: thread 11\n  left: 0\n right: 1"),
        ("unreachable!", "internal error: entered unreachable code: (\"a tuple\", 11, 0.5)"),
    ];
    for (how, (code, message)) in (0u32..).zip(ways) {
        let Some((text, ended)) = printed("panics", (3, 8), &[&how.to_le_bytes()]) else { return };
        let line = line_of(code);
        let start = "thread (3, 0, 0) of block (1, 0, 0) panicked at ";
        let place = format!("tests/ordinary/src/lib.rs:{line}:");
        assert!(text.starts_with(start) && text.contains(&place), "{how}: {text}");
        assert!(text.contains(message), "{how}: {text}");
        let Err(LaunchError::Fault(fault)) = ended else { panic!("{how}: {ended:?}") };
        let FaultKind::Panic { message: found } = &fault.kind else { panic!("{fault}") };
        assert!(found.contains(&place) && found.contains(message), "{how}: {found}");
        assert_eq!((fault.block, fault.thread), ([1, 0, 0], [3, 0, 0]), "{how}");
    }
}

#[test]
fn slices_are_indexed_and_checked() {
    let Some(on) = loaded() else { return };
    let values: Vec<u8> = (0..40).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let x = on.0.alloc(160).unwrap();
    on.0.write(x, &values).unwrap();
    let (x, out) = (x.to_le_bytes(), on.0.alloc(256).unwrap());
    let length = |length: u64| length.to_le_bytes();
    let add = |threads, shorter| {
        let params = [&x[..], &length(40), &x, &length(shorter), &out.to_le_bytes()];
        launch(&on, "vecadd", (1, threads), &params)
    };
    add(40, 40).unwrap();
    let mut last = [0; 4];
    on.0.read(out + 39 * 4, &mut last).unwrap();
    assert_eq!(f32::from_le_bytes(last), 78.0);
    let error = add(33, 32).unwrap_err().to_string();
    assert!(error.contains("the len is 32 but the index is 32"), "{error}");
    assert!(error.contains("thread (32, 0, 0)"), "{error}");
}

#[test]
fn threads_print_lines_of_their_own() {
    let Some((text, ended)) = printed("prints", (2, 40), &[&1.5f32.to_le_bytes()]) else { return };
    ended.unwrap();
    let line = |i: u32| {
        let thread = (i / 40, i % 40);
        format!("{i}: {:>8.3} 1.5e0 {thread:?} {:#06x} é\n", 1.5 * i as f32, i * 7)
    };
    let rule = format!("{}\n", "-".repeat(600));
    assert!(text.contains(&rule));
    // Warps print in no order, blocks and the threads of a warp in that of their index.
    let text = text.replace(&rule, "");
    for threads in [0..32, 32..40, 40..72, 72..80] {
        assert!(text.contains(&threads.map(line).collect::<String>()), "{text}");
    }
    assert!(text.find("\n40: ") > text.find("\n39: "), "{text}");
    assert_eq!(text.lines().count(), 80);
}

#[test]
fn a_fault_names_the_line_of_the_source() {
    let Some((_, ended)) = printed("out_of_bounds", (1, 1), &[]) else { return };
    let error = ended.unwrap_err().to_string();
    let place = format!("tests/ordinary/src/lib.rs:{}:", line_of("*out.add(5000) = 1"));
    assert!(error.contains(&place), "{error}");
}

#[test]
fn kernels_of_one_macro_have_arrays_of_their_own() {
    let Some(on) = loaded() else { return };
    for name in ["stamped_one", "stamped_two"] {
        let out = on.0.alloc(128).unwrap();
        launch(&on, name, (1, 32), &[&out.to_le_bytes()]).unwrap();
        let mut bytes = [0; 128];
        on.0.read(out, &mut bytes).unwrap();
        let found: Vec<u32> = bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        let expected: Vec<u32> =
            (0..32u32).map(|i| (i + 1) % 32 * 1000 + (31 - i) * (31 - i)).collect();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
#[ignore = "it compiles `core` again: .ci/nightly runs it"]
fn lines_change_no_instruction() {
    let Some(with) = text() else { return };
    let Some(without) = build(ordinary().debug(DebugInfo::None)) else { return };
    assert!(with.contains("\t.loc\t"));
    // LLVM's comments say what was inlined where.
    assert!(with.contains(" @[ "));
    let instructions = |text: &str| -> Vec<String> {
        let text = ptx_syntax::source::without_places(text);
        let lexemes = lexemes(&text).filter(|lexeme| lexeme.kind != Kind::Comment);
        lexemes.map(|lexeme| lexeme.text.to_owned()).collect()
    };
    assert!(instructions(with) == instructions(&without.unwrap()));
    // cargo, which has built both, does not run rustc again.
    let built = || {
        let path = ordinary().debug(DebugInfo::LineTables).build().unwrap();
        assert!(std::fs::read_to_string(&path).unwrap() == with);
        let by_rustc = std::fs::metadata(path.with_file_name("rustc.ptx")).unwrap();
        by_rustc.modified().unwrap()
    };
    assert_eq!(built(), built());
}

#[test]
fn what_is_refused_is_named_with_its_place() {
    let refused = |feature: &str| -> Option<String> {
        let error = build(ordinary().build_args(["--features", feature]))?.unwrap_err();
        assert!(!matches!(error, CudaBuilderError::Compile { .. }), "{error}");
        assert_eq!(format!("{error:?}"), error.to_string(), "`unwrap` shows the sentence");
        Some(error.to_string())
    };
    for (feature, begins, code) in [
        ("no_panic", "kernel `no_panic` can panic, at ", "unsafe { *out = x[i as usize] }"),
        ("no_local_memory", "kernel `no_local_memory` uses local memory, at ", ""),
        (
            "wide_integer",
            "the compiler has no code for the conversion of a float to an integer of 128 bits, in \
             `wide_integer`, at ",
            "unsafe { *out = x as u128 }",
        ),
    ] {
        let Some(error) = refused(feature) else { return };
        assert!(error.starts_with(begins), "{error}");
        if !code.is_empty() {
            assert!(
                error.contains(&format!("tests/ordinary/src/lib.rs:{}:", line_of(code))),
                "{error}"
            );
        }
    }
}

/// The oldest target and the newest: an assembler takes them, where `$PTXAS` names one.
#[test]
#[ignore = "it compiles `core` again: .ci/nightly runs it"]
fn kernels_build_for_all_generations() {
    // A small crate, because the assembler takes minutes for all of the others' kernels.
    let vecadd = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/vecadd/kernels");
    for arch in [CudaArch::Sm75, CudaArch::Sm100a, CudaArch::Sm120a] {
        let Some(text) = build(CudaBuilder::new(&vecadd).arch(arch)) else { return };
        let text = text.unwrap();
        assert!(text.contains(&format!(".target {arch}")), "{arch}");
        common::assemble(&text, arch);
    }
}
