//! Calls: recursion, by address, with arguments in memory; branches by a table; and what the
//! driver's own functions do.

use std::sync::{Arc, Mutex};

use super::{Case, kernel, line_of, module};
use soft_cuda::{Config, Device, FaultKind, LaunchConfig, LaunchError, LaunchOptions};

/// `fibonacci(n)`, and `depth(n)`, which calls itself `n` times and adds up an array of each call.
const RECURSIVE: &str = "
.func (.param .b32 r) fibonacci(.param .b32 n)
{
  .reg .b32 %r<6>;
  .reg .pred %p<2>;
  ld.param.b32 %r1, [n];
  mov.b32 %r4, %r1;
  setp.lt.u32 %p1, %r1, 2;
  @%p1 bra DONE;
  { .param .b32 a; .param .b32 b;
    sub.u32 %r2, %r1, 1;
    st.param.b32 [a], %r2;
    call.uni (b), fibonacci, (a);
    ld.param.b32 %r3, [b]; }
  { .param .b32 a; .param .b32 b;
    sub.u32 %r2, %r1, 2;
    st.param.b32 [a], %r2;
    call.uni (b), fibonacci, (a);
    ld.param.b32 %r4, [b]; }
  add.u32 %r4, %r3, %r4;
DONE:
  st.param.b32 [r], %r4;
  ret;
}
.func (.param .b64 r) depth(.param .b32 n, .param .b64 outer)
{
  .local .align 8 .b8 own[16];
  .reg .b32 %r<4>;
  .reg .b64 %rd<6>;
  .reg .pred %p<2>;
  ld.param.b32 %r1, [n];
  ld.param.b64 %rd1, [outer];
  cvt.u64.u32 %rd2, %r1;
  st.local.b64 [own+8], %rd2;
  ld.b64 %rd3, [%rd1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra DONE;
  { .param .b32 a; .param .b64 b; .param .b64 c;
    sub.u32 %r2, %r1, 1;
    st.param.b32 [a], %r2;
    mov.b64 %rd4, own+8;
    cvta.local.u64 %rd4, %rd4;
    st.param.b64 [b], %rd4;
    call.uni (c), depth, (a, b);
    ld.param.b64 %rd4, [c]; }
  add.u64 %rd3, %rd3, %rd4;
DONE:
  ld.local.b64 %rd5, [own+8];
  add.u64 %rd3, %rd3, %rd5;
  st.param.b64 [r], %rd3;
  ret;
}";

/// A call of `fibonacci` with and for `%r2`.
const FIBONACCI: &str = "
  { .param .b32 a; .param .b32 b;
    st.param.b32 [a], %r2;
    call.uni (b), fibonacci, (a);
    ld.param.b32 %r2, [b]; }
  add.s64 %rd5, %rd1, %rd0;
  st.global.b32 [%rd5], %r2;";

fn fibonacci(n: u32) -> u32 {
    if n < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

#[test]
fn recursion_with_every_lane_at_another_depth() {
    let body = format!("  and.b32 %r2, %r1, 15;{FIBONACCI}");
    let got = Case::new(module(1, RECURSIVE, &body), &[vec![0; 64]]).threads(64).run();
    assert_eq!(got, (0..64).map(|i| fibonacci(i % 16)).collect::<Vec<_>>());
}

#[test]
fn lanes_reconverge_after_a_call() {
    // Some lanes call, from two places, and all vote afterwards.
    let body = format!(
        "  and.b32 %r2, %r1, 3;
  setp.eq.u32 %p1, %r2, 0;
  @%p1 bra SECOND;
  setp.eq.u32 %p1, %r2, 1;
  @%p1 bra JOIN;
  {FIBONACCI}
  bra JOIN;
SECOND:
  mov.b32 %r2, 7;{FIBONACCI}
JOIN:
  activemask.b32 %r3;
  add.s64 %rd5, %rd2, %rd0;
  st.global.b32 [%rd5], %r3;"
    );
    let buffers = [vec![0; 32], vec![0; 32]];
    let got = Case::new(module(2, RECURSIVE, &body), &buffers).outcome().unwrap();
    let expected = |i: u32| match i % 4 {
        0 => 13,
        1 => 0,
        n => fibonacci(n),
    };
    assert_eq!(got[0], (0..32).map(expected).collect::<Vec<_>>());
    assert_eq!(got[1], [u32::MAX; 32]);
}

#[test]
fn each_call_has_variables_of_its_own() {
    let body = "
  .local .align 8 .b8 first[8];
  mov.b64 %rd6, 100; st.local.b64 [first], %rd6;
  { .param .b32 a; .param .b64 b; .param .b64 c;
    st.param.b32 [a], %r1;
    mov.b64 %rd4, first; cvta.local.u64 %rd4, %rd4;
    st.param.b64 [b], %rd4;
    call.uni (c), depth, (a, b);
    ld.param.b64 %rd5, [c]; }
  cvt.u32.u64 %r2, %rd5;
  add.s64 %rd5, %rd1, %rd0;
  st.global.b32 [%rd5], %r2;";
    let got = Case::new(module(1, RECURSIVE, body), &[vec![0; 32]]).run();
    // Each call adds what the one before stored, and what it stored itself.
    let expected = |n: u32| 100 + n * (n + 1) / 2 + n * (n + 1) / 2;
    assert_eq!(got, (0..32).map(expected).collect::<Vec<_>>());
}

#[test]
fn recursion_without_end_overflows_the_stack() {
    let functions = ".func f() { call g; ret; }\n.func g() { call f; ret; }";
    let ptx = module(1, functions, "  setp.eq.u32 %p1, %r1, 5;\n  @%p1 call f;");
    let fault = Case::new(ptx, &[vec![0]]).fault();
    let FaultKind::StackOverflow { function, bytes } = &fault.kind else { panic!("{fault}") };
    assert!(function == "f" || function == "g", "{fault}");
    // One call of each is known.
    assert_eq!((*bytes, fault.thread), ((16 << 10) + 48, [5, 0, 0]));
    assert!(fault.to_string().contains("stack overflow: calling `"), "{fault}");
}

/// Calls itself as often as a number says, with 48 bytes of its own each time.
const DOWN: &str = "
.func down(.param .b32 n)
{ .local .b8 x[40]; .reg .b32 %r<3>; .reg .pred %p<2>;
  ld.param.b32 %r1, [n];
  setp.eq.u32 %p1, %r1, 0; @%p1 ret;
  sub.u32 %r2, %r1, 1;
  { .param .b32 a; st.param.b32 [a], %r2; call down, (a); }
  ret; }";

#[test]
fn a_stack_of_unknown_depth_is_as_large_as_the_launch_says() {
    let device = Device::new(Config::default());
    let run = |calls: u32, own: u32, stack_bytes: u32| {
        let body = format!(
            "  .local .b8 own[{own}];
  {{ .param .b32 a; st.param.b32 [a], {}; call down, (a); }}",
            calls - 1
        );
        let module = device.load(&module(0, DOWN, &body)).unwrap();
        let config = LaunchConfig { grid: [1; 3], block: [32, 1, 1], dynamic_shared: 0 };
        let options = LaunchOptions { stack_bytes, ..LaunchOptions::default() };
        match device.launch_with(&module.kernel("k").unwrap(), config, [1; 3], &[], options) {
            Ok(_) => None,
            Err(LaunchError::Fault(fault)) => match fault.kind {
                FaultKind::StackOverflow { bytes, .. } => Some(bytes),
                other => panic!("{other}"),
            },
            Err(other) => panic!("{other}"),
        }
    };
    // The kernel's own variables, and one call.
    const KNOWN: u32 = 16 + 48;
    assert_eq!(run(10, 8, 1024), None);
    assert_eq!(run(12, 8, 500), Some(512 + KNOWN), "whole frames");
    assert_eq!(run(100, 8, 1024), Some(1024 + KNOWN));
    assert_eq!(run(100, 8, 16 << 10), None);
    assert_eq!(run(1000, 8, 16 << 10), Some((16 << 10) + KNOWN));
    assert_eq!(run(1000, 8, 256 << 10), None);
    // What is known fits in any case.
    assert_eq!(run(1, 2000, 0), None);
    assert_eq!(run(100, 2000, 0), Some(2016 + 48));
    // No GPU has more.
    assert_eq!(run(1 << 20, 8, u32::MAX), Some(512 << 10));
}

#[test]
fn a_stack_of_known_depth_is_no_larger() {
    let functions = "
.func leaf() { .local .b8 x[100]; ret; }
.func middle() { .local .b8 x[40]; call leaf; ret; }";
    let device = Device::new(Config::default());
    let bytes = |body: &str| {
        let loaded = device.load(&module(1, functions, body)).unwrap();
        loaded.kernel("k").unwrap().local_bytes()
    };
    assert_eq!(bytes(""), 0);
    assert_eq!(bytes("  .local .b8 x[20];"), 32);
    assert_eq!(bytes("  .local .b8 x[20]; call leaf;"), 32 + 112);
    assert_eq!(bytes("  .local .b8 x[20]; call leaf; call middle;"), 32 + 48 + 112);
}

/// Functions in a table, as a trait's methods are.
const TABLE: &str = "
.func (.param .b32 r) double(.param .b32 x);
.func (.param .b32 r) square(.param .b32 x);
.func (.param .b64 r) other(.param .b32 x);
.global .align 8 .u64 table[4] = {double, square, 7, generic(other)};
.func (.param .b32 r) double(.param .b32 x)
{ .reg .b32 %r<2>; ld.param.b32 %r1, [x]; shl.b32 %r1, %r1, 1; st.param.b32 [r], %r1; ret; }
.func (.param .b32 r) square(.param .b32 x)
{ .reg .b32 %r<2>; ld.param.b32 %r1, [x]; mul.lo.u32 %r1, %r1, %r1; st.param.b32 [r], %r1; ret; }
.func (.param .b64 r) other(.param .b32 x) { ret; }";

/// Calls entry `%r2` of the table with the thread's index.
const INDIRECT: &str = "
  mul.wide.u32 %rd3, %r2, 8;
  mov.b64 %rd4, table;
  add.u64 %rd4, %rd4, %rd3;
  ld.global.b64 %rd5, [%rd4];
  { .param .b32 a; .param .b32 b;
    st.param.b32 [a], %r1;
    prototype : .callprototype (.param .b32 _) _ (.param .b32 _);
    call (b), %rd5, (a), prototype;
    ld.param.b32 %r3, [b]; }
  activemask.b32 %r4;
  setp.ne.u32 %p1, %r4, -1;
  @%p1 mov.b32 %r3, 0;
  add.s64 %rd5, %rd1, %rd0;
  st.global.b32 [%rd5], %r3;";

#[test]
fn calls_by_address_go_where_each_lane_says() {
    let expected: Vec<u32> = (0..32).map(|i| if i % 2 == 0 { 2 * i } else { i * i }).collect();
    let body = format!("  and.b32 %r2, %r1, 1;{INDIRECT}");
    assert_eq!(Case::new(module(1, TABLE, &body), &[vec![0; 32]]).run(), expected);
    // An address that the code takes itself.
    let body = format!(
        "  mov.b32 %r2, 0;{}",
        INDIRECT.replace("ld.global.b64 %rd5, [%rd4]", "mov.b64 %rd5, square")
    );
    let squares: Vec<u32> = (0..32).map(|i| i * i).collect();
    assert_eq!(Case::new(module(1, TABLE, &body), &[vec![0; 32]]).run(), squares);
}

#[test]
fn a_call_of_no_function_is_a_fault() {
    for (entry, lane) in [(2, 3), (3, 9)] {
        let body =
            format!("  setp.eq.u32 %p2, %r1, {lane};\n  selp.b32 %r2, {entry}, 0, %p2;{INDIRECT}");
        let ptx = module(1, TABLE, &body);
        let fault = Case::new(ptx.clone(), &[vec![0; 32]]).fault();
        assert!(matches!(fault.kind, FaultKind::BadCall { .. }), "{fault}");
        assert_eq!((fault.thread, fault.line), ([lane, 0, 0], line_of(&ptx, "call (b), %rd5")));
    }
}

#[test]
fn branches_by_a_table() {
    let body = "
  and.b32 %r2, %r1, 3;
  mov.b32 %r3, 0;
  TABLE: .branchtargets A, B, A, C;
  brx.idx %r2, TABLE;
A: add.u32 %r3, %r3, 10;
B: add.u32 %r3, %r3, 1;
C:
  activemask.b32 %r4;
  setp.ne.u32 %p1, %r4, -1;
  @%p1 mov.b32 %r3, 99;
  add.s64 %rd5, %rd1, %rd0;
  st.global.b32 [%rd5], %r3;";
    let got = Case::new(kernel(1, body), &[vec![0; 32]]).run();
    let expected = |i: u32| [11, 1, 11, 0][i as usize % 4];
    assert_eq!(got, (0..32).map(expected).collect::<Vec<_>>());
    let beyond = kernel(1, &body.replace("and.b32 %r2, %r1, 3", "and.b32 %r2, %r1, 7"));
    let fault = Case::new(beyond, &[vec![0; 32]]).fault();
    assert_eq!(
        (fault.kind, fault.thread),
        (FaultKind::BadBranch { index: 4, labels: 4 }, [4, 0, 0])
    );
}

const VPRINTF: &str = "
.extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 format[25] = {116, 37, 100, 32, 37, 115, 32, 37, 46, 50, 102, 32, 37, 108, 108, 120, 10};
.global .align 1 .b8 text[4] = {97, 98, 99, 0};
.global .align 1 .b8 panic[20] = {112, 97, 110, 105, 99, 107, 101, 100, 32, 97, 116, 32, 97, 46, 114, 115, 58, 49, 10, 0};";

/// `printf(\"t%d %s %.2f %llx\\n\", thread, \"abc\", 1.5, 255)`
const PRINT: &str = "
  .local .align 8 .b8 buffer[32];
  st.local.b32 [buffer], %r1;
  mov.b64 %rd4, text; cvta.global.u64 %rd4, %rd4; st.local.b64 [buffer+8], %rd4;
  mov.b64 %rd4, 0d3FF8000000000000; st.local.b64 [buffer+16], %rd4;
  mov.b64 %rd4, 255; st.local.b64 [buffer+24], %rd4;
  { .param .b64 a; .param .b64 b; .param .b32 c;
    mov.b64 %rd4, format; cvta.global.u64 %rd4, %rd4; st.param.b64 [a], %rd4;
    mov.b64 %rd4, buffer; cvta.local.u64 %rd4, %rd4; st.param.b64 [b], %rd4;
    call.uni (c), vprintf, (a, b);
    ld.param.b32 %r2, [c]; }";

/// What a kernel without parameters prints, and how it ends.
fn printed(ptx: &str, blocks: u32) -> (String, Result<(), LaunchError>) {
    let device = Device::new(Config::default());
    let text = Arc::new(Mutex::new(Vec::new()));
    let taken = text.clone();
    device.print_to(move |part| taken.lock().unwrap().extend_from_slice(part));
    let loaded = device.load(ptx).unwrap_or_else(|error| panic!("{error}"));
    let config = LaunchConfig { grid: [blocks, 1, 1], block: [3, 1, 1], dynamic_shared: 0 };
    let ended = device.launch(&loaded.kernel("k").unwrap(), config, &[]).map(|_| ());
    let text = String::from_utf8(text.lock().unwrap().clone()).unwrap();
    (text, ended)
}

#[test]
fn threads_print_in_order() {
    let line = |i| format!("t{i} abc 1.50 ff\n");
    let block: String = (0..3).map(line).collect();
    assert_eq!(printed(&module(0, VPRINTF, PRINT), 5), (block.repeat(5), Ok(())));
    let body = format!("{PRINT}\n  setp.ne.u32 %p1, %r2, 4;\n  @%p1 trap;");
    assert_eq!(printed(&module(0, VPRINTF, &body), 1), (block, Ok(())));
}

#[test]
fn a_trap_after_a_message_is_a_panic() {
    let panics = PRINT.replace("mov.b64 %rd4, format", "mov.b64 %rd4, panic");
    let body = format!(
        "  mov.u32 %r5, %ctaid.x;\n  setp.ne.u32 %p1, %r5, 2;\n  @%p1 bra END;\n{panics}\n  trap;\nEND:"
    );
    let (text, ended) = printed(&module(0, VPRINTF, &body), 4);
    assert_eq!(text, "panicked at a.rs:1\n".repeat(3));
    let Err(LaunchError::Fault(fault)) = ended else { panic!("{ended:?}") };
    assert_eq!(fault.kind, FaultKind::Panic { message: "a.rs:1".into() });
    assert_eq!((fault.block, fault.thread), ([2, 0, 0], [0; 3]));
    assert!(fault.to_string().ends_with("panicked at a.rs:1"), "{fault}");
}

#[test]
fn a_format_that_is_nowhere_is_a_fault() {
    let body = PRINT.replace("mov.b64 %rd4, format", "mov.b64 %rd4, 64");
    let fault = Case::new(module(1, VPRINTF, &body), &[vec![0]]).fault();
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { address: 64, .. }), "{fault}");
}

#[test]
fn arguments_that_are_nowhere_are_a_fault() {
    let body =
        PRINT.replace("mov.b64 %rd4, buffer; cvta.local.u64 %rd4, %rd4;", "mov.b64 %rd4, -1;");
    let fault = Case::new(module(1, VPRINTF, &body), &[vec![0]]).fault();
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { address: 0, .. }), "{fault}");
}

/// A call of `__assertfail` in lane 28, with registers that hold something else before.
const ASSERT: &str = "
  mov.b64 %rd50, 0; mov.b64 %rd51, 7; setp.lt.u32 %p1, %r1, 28; @%p1 bra DONE;
  { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
    mov.b64 %rd4, message; cvta.global.u64 %rd4, %rd4; st.param.b64 [a], %rd4;
    mov.b64 %rd5, file; cvta.global.u64 %rd5, %rd5; st.param.b64 [b], %rd5; st.param.b32 [c], 64;
    mov.b64 %rd6, function; cvta.global.u64 %rd6, %rd6;
    st.param.b64 [d], %rd6; st.param.b64 [e], 1;
    call.uni __assertfail, (a, b, c, d, e); }
DONE: st.global.b64 [%rd1], %rd50; st.global.b64 [%rd1+8], %rd51;";

/// What `__assertfail` gets: `i < n`, `a.cu`, `void f()`; and the first one in 16 and in 32 bits.
const TEXTS: &str = ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.global .align 1 .b8 message[6] = {105, 32, 60, 32, 110, 0};
.global .align 1 .b8 file[5] = {97, 46, 99, 117, 0};
.global .align 1 .b8 function[9] = {118, 111, 105, 100, 32, 102, 40, 41, 0};
.global .align 2 .u16 message16[6] = {105, 32, 60, 32, 110, 0};
.global .align 4 .u32 message32[6] = {105, 32, 60, 32, 110, 0};
.global .align 1 .b8 endless[3] = {105, 105, 105};
";

fn assertion(body: &str) -> FaultKind {
    let fault = Case::new(module(1, TEXTS, body), &[vec![0; 4]]).fault();
    assert_eq!(fault.thread, [28, 0, 0]);
    fault.kind
}

#[test]
fn an_assertion_says_where_it_is() {
    let texts = |message: &str, function: &str| FaultKind::Assert {
        message: message.into(),
        file: "a.cu".into(),
        line: 64,
        function: function.into(),
    };
    let kind = assertion(ASSERT);
    assert_eq!(kind, texts("i < n", "void f()"));
    assert!(kind.to_string().ends_with("a.cu:64: void f(): assertion `i < n` failed"), "{kind}");
    for (bytes, name) in [("2", "message16"), ("4", "message32")] {
        let body = ASSERT.replace("message", name).replace("[e], 1", &format!("[e], {bytes}"));
        let wide = assertion(&body.replace("mov.b64 %rd6, function", "mov.b64 %rd6, file"));
        let FaultKind::Assert { message, .. } = wide else { panic!("{wide}") };
        assert_eq!(message, "i < n");
    }
}

#[test]
fn an_assertion_whose_texts_cannot_be_read_is_one_all_the_same() {
    let nowhere = ASSERT.replace("cvta.global.u64 %rd6, %rd6;", "mov.b64 %rd6, 64;");
    let null = ASSERT.replace("cvta.global.u64 %rd6, %rd6;", "mov.b64 %rd6, 0;");
    let endless = ASSERT.replace("%rd6, function", "%rd6, endless");
    let last = ASSERT.replace("cvta.global.u64 %rd6, %rd6;", "mov.b64 %rd6, -1;");
    for (body, expected) in [
        (nowhere, "(no text at 0x40)"),
        (null, "(no text at 0x0)"),
        (endless, "iii"),
        (last, "(no text at 0xffffffffffffffff)"),
    ] {
        let kind = assertion(&body);
        let FaultKind::Assert { message, function, .. } = kind else { panic!("{kind}") };
        assert_eq!((message.as_str(), function.as_str()), ("i < n", expected));
    }
}
