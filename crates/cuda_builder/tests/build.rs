//! Builds a crate of kernels, looks at the PTX, and runs it on the software device.
//!
//! Needs the sources of `core`. Where there are none the tests say so and pass;
//! `REQUIRE_RUST_SRC=1` makes them fail instead.

use std::path::PathBuf;

use cuda_builder::ptx::Refused;
use cuda_builder::{CudaArch, CudaBuilder, CudaBuilderError};
use soft_cuda::{Config, Device, Fill, LaunchConfig, Swizzle, TensorMap};

mod common;

use common::{build, fixture};

fn refused(feature: &str) -> Option<Refused> {
    match build(fixture().strict().build_args(["--features", feature]))? {
        Err(CudaBuilderError::Refused(refused)) => Some(refused),
        other => panic!("{other:?}"),
    }
}

/// This very program, run again with a toolchain that has no sources.
#[cfg(unix)]
#[test]
fn what_is_skipped_is_said_and_can_be_made_to_fail() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no_rust_src");
    std::fs::create_dir_all(&folder).unwrap();
    let rustc = folder.join("rustc");
    let script = "#!/bin/sh\n[ \"$1\" = --print ] && echo /nowhere || echo 'release: 0.0.0'\n";
    // By another process: one that a test beside this starts meanwhile would inherit the open file,
    // and Linux runs no file that is open for writing.
    let write = "printf '%s' \"$1\" > \"$0\" && chmod 755 \"$0\"";
    let mut sh = std::process::Command::new("sh");
    assert!(sh.args(["-c", write]).arg(&rustc).arg(script).status().unwrap().success());
    let path = std::env::var("PATH").unwrap_or_default();
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again
        .args(["settings_reach_the_compiler", "--exact", "--test-threads=2"])
        .env("PATH", format!("{}:{path}", folder.display()))
        .env("CUDA_BUILDER_INSTALL_RUST_SRC", "0")
        .env_remove("REQUIRE_RUST_SRC");
    let skipped = again.output().unwrap();
    let stderr = String::from_utf8_lossy(&skipped.stderr);
    assert!(skipped.status.success(), "{skipped:?}");
    assert!(stderr.starts_with("skipped: settings_reach_the_compiler: "), "{stderr}");
    let failed = again.env("REQUIRE_RUST_SRC", "1").output().unwrap();
    assert_eq!(failed.status.code(), Some(101), "{failed:?}");
}

#[test]
fn launch_bounds_are_in_the_ptx() {
    let Some(text) = build(fixture()) else { return };
    let text = text.unwrap();
    let head = |kernel: &str| -> Vec<_> {
        let entry = ptx_syntax::outline::entry(&text, kernel).unwrap();
        entry.head.iter().map(|lexeme| lexeme.text).collect()
    };
    assert!(head("add_slices").ends_with(&[")", ".maxntid", "64", ".minnctapersm", "2"]));
    assert!(head("reverse").ends_with(&[")", ".reqntid", "32", ",", "2"]));
    assert!(head("grid").ends_with(&[")"]));
    // Two slices and a pointer: five parameters.
    assert_eq!(head("add_slices").iter().filter(|word| **word == ".param").count(), 5);
}

#[test]
fn settings_reach_the_compiler() {
    let Some(text) = build(fixture()) else { return };
    // `a * b + c` is rounded twice, unless contraction is asked for.
    let text = text.unwrap();
    assert!(text.contains(".target sm_80") && text.contains("mul.rn.f32"));
    let text = build(fixture().arch(CudaArch::Sm90a)).unwrap().unwrap();
    assert!(text.contains(".target sm_90a") && text.contains("mul.rn.f32"));
}

#[test]
#[ignore = "it compiles `core` again: .ci/nightly runs it"]
fn flags_reach_the_compiler() {
    let other = fixture().arch(CudaArch::Sm90a).fma_contraction(true).emit_llvm_ir(true);
    let Some(text) = build(other) else { return };
    let text = text.unwrap();
    assert!(text.contains(".target sm_90a"));
    assert!(text.contains("fma.rn.f32") && !text.contains("mul.rn.f32"));
}

#[test]
fn what_a_kernel_must_not_have_is_refused() {
    let Some(panics) = refused("panics") else { return };
    assert!(matches!(&panics, Refused::Panic { kernel, .. } if kernel == "panics"), "{panics}");
    let local = refused("local_memory");
    assert!(
        matches!(&local, Some(Refused::LocalMemory { kernel, .. }) if kernel == "local_memory")
    );
    let undefined = refused("undefined");
    assert!(matches!(
        &undefined,
        Some(Refused::Undefined { kernel, callee, .. })
            if kernel == "undefined" && callee == "from_nowhere"
    ));
    let convergent = refused("convergent");
    assert!(
        matches!(
            &convergent,
            Some(Refused::Convergent { kernel, instruction, .. })
                if kernel == "convergent" && instruction == "shfl.sync.up.b32"
        ),
        "{convergent:?}"
    );
}

#[test]
fn an_empty_slice_is_no_null_reference() {
    let Some(launch) = Launch::new() else { return };
    let out = launch.alloc(&[9, 9]);
    launch.run("empty_slice", [1; 3], [1, 1, 1], 0, &[0, 0, out]);
    assert_eq!(launch.read(out, 2), [0, 7]);
    let x = launch.alloc(&[5]);
    launch.run("empty_slice", [1; 3], [1, 1, 1], 0, &[x, 1, out]);
    assert_eq!(launch.read(out, 2), [0, 5]);
}

#[test]
fn kernels_of_one_macro_have_arrays_of_their_own() {
    let Some(launch) = Launch::new() else { return };
    for (kernel, threads) in [("stamped_32", 32), ("stamped_64", 64)] {
        let out = launch.alloc(&vec![0; threads as usize]);
        launch.run(kernel, [1; 3], [threads, 1, 1], 0, &[out]);
        let expected: Vec<u32> = (0..threads).map(|i| (i + 1) % threads).collect();
        assert_eq!(launch.read(out, threads as usize), expected);
    }
}

/// Neither names nor digests depend on files, lines and modules.
#[test]
fn a_kernel_in_another_file_has_the_same_digest() {
    let build_with = |feature| build(fixture().build_args(["--features", feature]));
    let Some(text) = build_with("arrays") else { return };
    let (text, moved) = (text.unwrap(), build_with("arrays_moved").unwrap().unwrap());
    let functions = |text: &str| {
        let functions = ptx_syntax::outline::functions(text);
        functions.map(|one| one.name.to_owned()).filter(|name| name.contains("exchanged")).collect()
    };
    let (here, there): (Vec<String>, Vec<String>) = (functions(&text), functions(&moved));
    assert!(here.len() == 1 && there.len() == 1 && here != there, "{here:?} {there:?}");
    let arrays = |text: &str| -> Vec<String> {
        let arrays = ptx_syntax::outline::declarations(text).filter_map(|one| one.shared_array());
        arrays.map(|array| array.name.to_owned()).collect()
    };
    for name in ["exchanged_shared_0", "two_arrays_shared_0", "two_arrays_shared_1"] {
        assert!(arrays(&text).contains(&name.to_owned()), "{:?}", arrays(&text));
    }
    assert_eq!(arrays(&text), arrays(&moved));
    assert_eq!(ptx_archive::digests(&text), ptx_archive::digests(&moved));
}

#[test]
fn grid_constants_want_a_newer_architecture() {
    let build_for = |arch| build(fixture().arch(arch).build_args(["--features", "grid_constant"]));
    let (Some(old), Some(new)) = (build_for(CudaArch::Sm80), build_for(CudaArch::Sm90a)) else {
        return;
    };
    assert!(matches!(old, Err(CudaBuilderError::Compile { arch: "sm_80", .. })), "{old:?}");
    assert!(new.unwrap().contains(".param .align 64 .b8 grid_constant_param_0[12]"));
}

#[test]
fn a_folder_without_a_crate_is_an_error() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src");
    let error = CudaBuilder::new(&folder).build().unwrap_err();
    assert!(matches!(error, CudaBuilderError::NoCrate(path) if path == folder));
}

/// A launch on the software device, with parameters packed by hand.
struct Launch {
    device: Device,
    module: soft_cuda::Module,
}

impl Launch {
    fn new() -> Option<Self> {
        Self::of(fixture())
    }

    fn of(builder: CudaBuilder) -> Option<Self> {
        let text = build(builder)?.unwrap();
        let device = Device::new(Config::default());
        let module = device.load(&text).unwrap();
        Some(Launch { device, module })
    }

    fn alloc(&self, words: &[u32]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let address = self.device.alloc(bytes.len() as u64).unwrap();
        self.device.write(address, &bytes).unwrap();
        address
    }

    fn read(&self, address: u64, words: usize) -> Vec<u32> {
        let mut bytes = vec![0; words * 4];
        self.device.read(address, &mut bytes).unwrap();
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    fn run(&self, kernel: &str, grid: [u32; 3], block: [u32; 3], shared: u32, params: &[u64]) {
        let params: Vec<_> = params.iter().map(|param| param.to_le_bytes().to_vec()).collect();
        let config = LaunchConfig { grid, block, dynamic_shared: shared };
        self.run_with(kernel, config, &params);
    }

    /// Runs with parameters of any size, each put where the kernel has it.
    fn run_with(&self, kernel: &str, config: LaunchConfig, params: &[Vec<u8>]) {
        let kernel = self.module.kernel(kernel).unwrap();
        let sizes: Vec<usize> = params.iter().map(Vec::len).collect();
        let expected: Vec<usize> = kernel.params().iter().map(|param| param.size).collect();
        assert_eq!(sizes, expected, "{}", kernel.name());
        let mut bytes = vec![0; kernel.params_size()];
        for (place, param) in kernel.params().iter().zip(params) {
            bytes[place.offset..place.offset + place.size].copy_from_slice(param);
        }
        self.device.launch(&kernel, config, &bytes).unwrap();
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The fixture for sm_90a, with what sm_80 does not have.
fn hopper() -> Option<Launch> {
    Launch::of(fixture().arch(CudaArch::Sm90a))
}

#[test]
fn slices_are_pointer_and_length() {
    let Some(launch) = Launch::new() else { return };
    let x = launch.alloc(&bits(&[1.0, 2.0, 3.0]));
    let y = launch.alloc(&bits(&[10.0, 20.0, 30.0, 40.0]));
    let out = launch.alloc(&[0; 4]);
    launch.run("add_slices", [1; 3], [64, 1, 1], 0, &[x, 3, y, 4, out]);
    assert_eq!(launch.read(out, 4), bits(&[11.0, 22.0, 33.0, 0.0]));
}

#[test]
fn shared_memory_holds_what_was_stored() {
    let Some(launch) = Launch::new() else { return };
    let out = launch.alloc(&[0; 68]);
    launch.run("reverse", [1; 3], [32, 2, 1], 1024, &[out]);
    let found = launch.read(out, 68);
    for (i, &value) in (0..64).zip(&found) {
        assert_eq!(value, (63 - i) * 1001, "thread {i}");
    }
    assert_eq!(found[64..], [64, 1024, 1024 + 256, 16]);
}

#[test]
fn warps_and_blocks_exchange_values() {
    let Some(launch) = Launch::new() else { return };
    let out = launch.alloc(&[0; 64 * 16]);
    launch.run("collectives", [1; 3], [64, 1, 1], 0, &[out]);
    let found = launch.read(out, 64 * 16);
    for (i, found) in (0..64u32).zip(found.chunks_exact(16)) {
        let (first, lane) = (i / 32 * 32, i % 32);
        let expected = [
            u32::MAX,
            if lane == 0 { i } else { i - 1 },
            if lane == 31 { i } else { i + 1 },
            first + 5,
            i ^ 3,
            1,
            0,
            0x5555_5555,
            0xff << (lane / 8 * 8),
            1,
            31 * 32 / 2,
            10,
            0,
            1,
            32,
            lane,
        ];
        assert_eq!(found, expected, "thread {i}");
    }
}

#[test]
fn grids_and_atomics() {
    let Some(launch) = Launch::new() else { return };
    let (out, counters) = (launch.alloc(&[0; 48]), launch.alloc(&[0, 0, 100, 0, 0, 0, 0]));
    launch.run("grid", [2, 3, 1], [4, 2, 1], 0, &[out, counters]);
    assert_eq!(launch.read(out, 48), [4; 48]);
    let found = launch.read(counters, 7);
    // The last counts from 0 to 9 and again: 48 = 4 * 10 + 8.
    assert_eq!(found, [48, 7, 5, 7, 9, 24.0f32.to_bits(), 8]);
}

#[test]
fn floats_round_as_they_say() {
    let Some(launch) = Launch::new() else { return };
    // 24929 * 673 + 2^-40 is just above a tie: only one rounding sees it.
    let tiny = (0.5f32).powi(40);
    let x = launch.alloc(&bits(&[24929.0, 673.0, tiny, 4.0]));
    let (out, wide) = (launch.alloc(&[0; 12]), launch.alloc(&[0; 2]));
    launch.run("floats", [1; 3], [1, 1, 1], 0, &[x, out, wide]);
    let found: Vec<f32> = launch.read(out, 12).into_iter().map(f32::from_bits).collect();
    assert_eq!(found[..4], [16_777_218.0, 2.0, 0.25, 16_777_216.0]);
    for (found, exact) in found[4..7].iter().zip([0.5, 16.0, 2.0]) {
        assert!((found - exact).abs() <= exact * 1e-6, "{found} {exact}");
    }
    assert_eq!(found[8..], [24929.0, 673.0, tiny, 4.0]);
    let words = launch.read(wide, 2);
    let wide = f64::from_bits(u64::from(words[0]) | u64::from(words[1]) << 32);
    assert_eq!(wide, 24929.0 * 673.0 + f64::from(tiny));
}

#[test]
fn asynchronous_copies_arrive_at_the_wait() {
    let Some(launch) = Launch::new() else { return };
    let values: Vec<f32> = (1..=14_u8).map(f32::from).collect();
    let x = launch.alloc(&bits(&values));
    let out = launch.alloc(&[1; 22]);
    launch.run("async_copies", [1; 3], [1, 1, 1], 0, &[x, out]);
    let copied = [[1.0, 2.0, 3.0, 4.0], [0.0; 4]].concat();
    let through_l1 = vec![0.0, 0.0, 0.0, 0.0, 5.0, 6.0, 7.0, 8.0];
    let expected = [copied, vec![9.0, 0.0, 11.0, 12.0, 0.0, 0.0], through_l1].concat();
    assert_eq!(launch.read(out, 22), bits(&expected));
}

#[test]
fn hopper_kernels_are_for_hopper_alone() {
    let Some(text) = build(fixture()) else { return };
    let text = text.unwrap();
    assert!(text.contains(".target sm_80") && text.contains(".entry reverse("));
    for kernel in ["grid_constants", "phases", "pipeline"] {
        assert!(!text.contains(&format!(".entry {kernel}(")), "{kernel}");
    }
}

#[test]
fn grid_constants_are_read_where_the_launch_put_them() {
    let Some(launch) = hopper() else { return };
    let kernel = launch.module.kernel("grid_constants").unwrap();
    let places: Vec<_> = kernel.params().iter().map(|p| (p.offset, p.size, p.align)).collect();
    assert_eq!(
        places,
        [(0, 8, 8), (8, 8, 8), (64, 64, 64), (128, 4, 4), (192, 12, 64), (208, 8, 8)]
    );
    let values: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let (x, out) = (launch.alloc(&bits(&values)), launch.alloc(&[0; 64]));
    let mut factors: Vec<f32> = (0..10).map(|i| 1.0 + i as f32).collect();
    factors.resize(16, f32::NAN);
    let offsets = [100.0, 200.0, 300.0];
    let pointer = |address: u64| address.to_le_bytes().to_vec();
    let params =
        [pointer(x), pointer(64), bytes(&factors), bytes(&[0.5]), bytes(&offsets), pointer(out)];
    let config = LaunchConfig { grid: [2, 1, 1], block: [32, 1, 1], dynamic_shared: 0 };
    launch.run_with("grid_constants", config, &params);
    let expected: Vec<f32> =
        (0..64).map(|i| i as f32 * 0.5 * factors[i % 10] + offsets[i % 3]).collect();
    assert_eq!(launch.read(out, 64), bits(&expected));
}

#[test]
fn mbarriers_go_through_phases() {
    let Some(launch) = hopper() else { return };
    let out = launch.alloc(&[0; 193]);
    launch.run("phases", [1; 3], [64, 1, 1], 0, &[out]);
    let expected: Vec<u32> =
        (0..3).flat_map(|round| (0..64).map(move |i| (63 - i) * 10 + round)).chain([8]).collect();
    assert_eq!(launch.read(out, 193), expected);
}

#[test]
fn tiles_go_through_a_pipeline() {
    let Some(launch) = hopper() else { return };
    // The last of seven tiles lies half outside of the matrix, and so do two of its columns.
    let (rows, columns, stride, tiles) = (52, 30, 36, 7);
    let element = |row: usize, column: usize| {
        if row < rows && column < columns { (row * stride + column) as f32 } else { 0.0 }
    };
    let values: Vec<f32> = (0..rows * stride).map(|i| i as f32).collect();
    let (matrix, out) = (launch.alloc(&bits(&values)), launch.alloc(&vec![0; tiles * 128]));
    let (dims, strides) = ([columns as u64, rows as u64], [stride as u64 * 4]);
    let map = TensorMap::new(matrix, &dims, &strides, &[32, 8], Swizzle::None, Fill::Zeros);
    let params = [
        (tiles as u32).to_le_bytes().to_vec(),
        map.unwrap().to_bytes().to_vec(),
        out.to_le_bytes().to_vec(),
    ];
    let config = LaunchConfig { grid: [1; 3], block: [256, 1, 1], dynamic_shared: 0 };
    launch.run_with("pipeline", config, &params);
    let expected: Vec<f32> = (0..tiles * 128)
        .map(|i| {
            let at = 127 - i % 128;
            let row = i / 128 * 8 + at / 32;
            element(row, at % 32) + element(row + 4, at % 32)
        })
        .collect();
    assert_eq!(launch.read(out, tiles * 128), bits(&expected));
}
