//! Small texts that would grow large or slow at load: they load in time that is linear in
//! the text, or are refused with the line and the limit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Case;
use soft_cuda::{Config, Device, Kernel, KernelError, LoadError, Module};

const HEADER: &str = ".version 8.7\n.target sm_80\n.address_size 64\n";

/// Loads, with the last kernel, and fails if that takes long. It takes well under a second.
fn load(text: &str) -> Result<Module, LoadError> {
    let begun = Instant::now();
    let loaded = Device::new(Config::default()).load(&format!("{HEADER}{text}"))?;
    let kernel = loaded.kernel(loaded.names().last().expect("there are kernels"));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    match kernel {
        Err(KernelError::Refused { error, .. }) => Err(error),
        _ => Ok(loaded),
    }
}

fn only_kernel(module: &Module) -> Arc<Kernel> {
    module.names().map(|name| module.kernel(name).unwrap()).next().unwrap()
}

fn loads(text: &str) -> Module {
    load(text).unwrap_or_else(|error| panic!("{error}"))
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(|i| line(i) + "\n").collect()
}

#[test]
fn calls_that_multiply() {
    let chain = |depth: usize| {
        let calls =
            lines(depth, |i| format!(".func f{i}() {{ call f{n}; call f{n}; ret; }}", n = i + 1));
        format!("{calls}.func f{depth}() {{ ret; }}\n.entry k() {{ call f0; ret; }}\n")
    };
    // However often it is called, a function is decoded once for a kernel.
    assert_eq!(loads(&chain(100_000)).names().len(), 1);
    // But for each kernel, which costs nothing until it is asked for.
    let body = "  add.u32 %r1, %r1, 1;\n".repeat(5000);
    let kernels = lines(10_000, |i| format!(".entry k{i}() {{ call f; ret; }}"));
    let module = loads(&format!(".func f() {{\n  .reg .b32 %r<2>;\n{body}  ret;\n}}\n{kernels}"));
    assert_eq!(module.names().len(), 10_000);
}

#[test]
fn registers_cost_what_is_used_of_them() {
    let blocks =
        lines(20_000, |i| format!("L{i}:\n  add.u32 %r{}, %r{}, 1;", 1_048_575 - i, 1_048_575 - i));
    loads(&format!(
        ".entry k() {{\n  .reg .b32 %q<1048576>, %r<1048576>;\n  mov.u32 %q1048575, 1;\n{}  ret;\n}}",
        lines(20_000, |i| format!("L{i}:\n  mov.u32 %q{i}, 1; add.u32 %q{i}, %q{i}, 1;"))
    ));
    let declared = lines(1000, |i| format!("  .reg .b32 %a{i}_<1048576>;"));
    loads(&format!(".entry k() {{\n{declared}  add.u32 %a7_9, %a999_1048575, 1;\n  ret;\n}}"));
    // 20,000 registers that live in 20,000 blocks are too much.
    let error = load(&format!(".entry k() {{\n  .reg .b32 %r<1048576>;\n{blocks}  bra L0;\n}}"))
        .unwrap_err();
    let LoadError::Syntax { line: 4, text, help } = &error else { panic!("{error}") };
    assert_eq!(text, "k");
    assert!(help.contains("268435456 steps"), "{error}");
    let error = load(".entry k() {\n  .reg .b32 %r<1048577>;\n  ret;\n}").unwrap_err();
    let LoadError::Syntax { line: 5, help, .. } = &error else { panic!("{error}") };
    assert!(help.contains("at most 1048576 registers"), "{error}");
}

#[test]
fn scopes_nest_as_deep_as_they_like() {
    let (open, close) = ("{\n".repeat(100_000), "}\n".repeat(100_000));
    let use_them = "  add.u32 %r1, %r1, 1;\n".repeat(1000);
    loads(&format!(".entry k() {{\n  .reg .b32 %r<2>;\n{open}{use_them}{close}  ret;\n}}"));
    loads(&format!(".entry k() {{\n{}  ret;\n}}", "{ L: bra L; }\n".repeat(100_000)));
}

#[test]
fn a_hundred_thousand_kernels() {
    let module = loads(&lines(100_000, |i| format!(".entry k{i}() {{ ret; }}")));
    assert_eq!(module.names().len(), 100_000);
    for i in 0..100_000 {
        assert_eq!(module.kernel(&format!("k{i}")).unwrap().name(), format!("k{i}"));
    }
    let with_variables = lines(20_000, |i| {
        format!(
            ".shared .u32 s{i};\n.global .u32 g{i};\n.func f{i}() {{ ret; }}
.entry k{i}() {{ .reg .b32 %r<2>; ld.global.u32 %r1, [g{i}]; st.shared.u32 [s{i}], %r1; call f{i}; ret; }}"
        )
    });
    let module = loads(&with_variables);
    assert_eq!(module.kernel("k19999").unwrap().static_shared_bytes(), 4);
    let error = load(".entry k() { ret; }\n.entry k() { ret; }").unwrap_err();
    assert!(matches!(error, LoadError::Redeclared { line: 5, .. }), "{error}");
}

#[test]
fn a_register_is_no_call_of_the_function_of_its_name() {
    let body = "add.u32 x, x, x; ".repeat(24_000);
    let kernels = lines(24_000, |i| {
        format!(".entry k{i}() {{ .reg .b32 f, s; mov.u32 f, 1; mov.u32 s, f; ret; }}")
    });
    let module =
        loads(&format!(".shared .b32 s;\n.func f() {{ .reg .b32 x; {body} ret; }}\n{kernels}"));
    assert_eq!(module.names().len(), 24_000);
}

#[test]
fn kernels_that_share_a_call_of_ten_thousand_arguments() {
    let (params, arguments): (Vec<_>, Vec<_>) =
        (0..10_000).map(|i| (format!(".param .b32 p{i}"), "x")).unzip();
    let text = format!(
        ".func g({}) {{ ret; }}
.func f() {{ .param .b32 x; call g, ({}); ret; }}\n{}",
        params.join(", "),
        arguments.join(", "),
        lines(10_000, |i| format!(".entry k{i}() {{ call f; ret; }}"))
    );
    loads(&text);
}

#[test]
fn loops_that_only_an_exit_leaves() {
    let loops = lines(20_000, |i| format!("L{i}: @%p1 bra X; bra L{i};"));
    loads(&format!(".entry k() {{\n  .reg .pred %p<2>;\n{loops}X: ret;\n}}"));
}

#[test]
fn large_inputs_still_run() {
    // 20,000 blocks, each of which adds 1.
    let blocks = lines(20_000, |i| format!("  @%p1 bra L{i};\n  add.u32 %r2, %r2, 1;\nL{i}:"));
    let body = format!("  setp.ne.u32 %p1, %r1, %r1;\n{blocks}  st.global.u32 [%rd1], %r2;");
    let got = Case::new(super::kernel(1, &body), &[vec![0]]).run();
    assert_eq!(got, [20_000]);
}

#[test]
fn variables_beyond_every_device() {
    let refused = |text: &str, name: &str, part: &str| {
        let error = load(text).unwrap_err();
        let LoadError::Syntax { line: 4, text, help } = &error else { panic!("{error}") };
        assert_eq!(text, name);
        assert!(help.contains(part), "{error}");
    };
    let params = |n: usize| {
        let all: Vec<String> = (0..n).map(|i| format!(".param .u32 p{i}")).collect();
        format!(".entry k({}) {{ ret; }}", all.join(", "))
    };
    assert_eq!(only_kernel(&loads(&params(8191))).params_size(), 32_764);
    refused(&params(100_000), "p8191", "more than 32764 bytes of parameters; pass a pointer");
    let huge = "[281474976710655]";
    refused(&format!(".entry k(.param .b8 p{huge}, .param .b8 q{huge}) {{ ret; }}"), "p", "32764");
    let locals: Vec<String> = (0..70_000).map(|i| format!(".local .b8 x{i}{huge};")).collect();
    refused(&format!(".entry k() {{ {} ret; }}", locals.concat()), "x0", "524288 is the limit");
    loads(".entry k() { .local .align 16 .b8 x[524288]; ret; }");
}

#[test]
fn the_version_and_the_target_limit_parameters() {
    // As ptxas has it.
    for (version, target, limit) in [
        ("7.0", "sm_80", 4352),
        ("8.0", "sm_90a", 4352),
        ("8.1", "sm_60", 4352),
        ("8.1", "sm_70", 32_764),
        ("8.7", "sm_80", 32_764),
        ("9.5", "sm_90a", 32_764),
    ] {
        let load = |bytes: u32| {
            let header = format!(".version {version}\n.target {target}\n.address_size 64\n");
            let text = format!("{header}.entry k(\n.param .b8 p[{bytes}]) {{ ret; }}");
            let module = Device::new(Config::default()).load(&text).unwrap();
            match module.kernel("k") {
                Err(KernelError::Refused { error, .. }) => Err(error),
                _ => Ok(module),
            }
        };
        let module = load(limit).unwrap_or_else(|error| panic!("{version} {target}: {error}"));
        assert_eq!(only_kernel(&module).params_size(), limit as usize);
        let Err(error) = load(limit + 1) else { panic!("{version} {target}: loads") };
        let LoadError::Syntax { line: 5, text, help } = &error else { panic!("{error}") };
        assert_eq!(text, "p");
        assert!(help.contains(&format!("more than {limit} bytes")), "{version} {target}: {error}");
        let raise = help.contains("`.version 8.1` and `.target sm_70`");
        assert_eq!(raise, limit == 4352, "{version} {target}: {error}");
    }
}

#[test]
fn a_version_is_a_number_with_a_point() {
    for bad in [".version 8", ".version", ".version -8.1", ".version x"] {
        let error = Device::new(Config::default()).load(&format!("\n{bad}")).unwrap_err();
        assert!(matches!(error, LoadError::Syntax { line: 2, .. }), "{bad}: {error}");
    }
}
