//! Parameters of functions in registers, and vectors of registers.

use super::{Case, kernel, line_of, module};
use soft_cuda::{Config, Device};

/// Functions whose parameters and results are registers, but for `thrice`.
const IN_REGISTERS: &str = "
.func (.reg .u32 r) twice(.reg .u32 x)
{
  add.u32 r, x, x;
  ret;
}
.func (.param .u32 r) thrice(.param .u32 x)
{
  .reg .u32 v;
  ld.param.u32 v, [x];
  mul.lo.u32 v, v, 3;
  st.param.u32 [r], v;
  ret;
}
.func (.reg .b64 sum, .reg .b32 difference) both(.reg .b32 a, .reg .b64 b)
{
  .reg .b64 wide;
  .reg .b32 low;
  cvt.u64.u32 wide, a;
  add.u64 sum, wide, b;
  cvt.u32.u64 low, b;
  sub.u32 difference, a, low;
  ret;
}
.func (.reg .b32 product) factorial(.reg .b32 n)
{
  .reg .pred p;
  .reg .b32 before;
  mov.b32 product, 1;
  setp.eq.u32 p, n, 0;
  @p ret;
  sub.u32 before, n, 1;
  call (product), factorial, (before);
  mul.lo.u32 product, product, n;
  ret;
}";

#[test]
fn parameters_and_arguments_in_registers() {
    let body = "
  call (%r2), twice, (%r1);
  call (%r3), thrice, (%r2);
  call (%r4), thrice, (5);
  { .param .u32 q; st.param.u32 [q], %r3; call (q), twice, (q); ld.param.u32 %r5, [q]; }
  mov.b64 %rd5, 7;
  call (%rd6, %r6), both, (%r5, %rd5);
  cvt.u32.u64 %r7, %rd6;
  and.b32 %r8, %r1, 7;
  setp.ne.u32 %p1, %r8, 3;
  mov.b32 %r9, 99;
  @%p1 call (%r9), factorial, (%r8);
  mov.b64 %rd7, twice;
  P: .callprototype (.reg .u32 _) _ (.reg .u32 _);
  call (%r10), %rd7, (11), P;
  mul.wide.u32 %rd8, %r1, 32;
  add.s64 %rd9, %rd1, %rd8;
  st.global.v4.b32 [%rd9], {%r2, %r3, %r4, %r5};
  st.global.v4.b32 [%rd9+16], {%r7, %r6, %r9, %r10};";
    let got = Case::new(module(1, IN_REGISTERS, body), &[vec![0; 8 * 32]]).run();
    let expected = |i: u32| {
        let factorial = if i % 8 == 3 { 99 } else { (1..=i % 8).product() };
        [2 * i, 6 * i, 15, 12 * i, 12 * i + 7, (12 * i).wrapping_sub(7), factorial, 22]
    };
    assert_eq!(got, (0..32).flat_map(expected).collect::<Vec<_>>());
}

#[test]
fn arguments_that_do_not_fit() {
    let functions = format!("{IN_REGISTERS}\n.func array(.param .b8 x[8]) {{ ret; }}");
    for (call, part) in [
        ("call (%rd2), twice, (%r1);", "64-bit register"),
        ("call (%r2), twice, (%rd1);", "64-bit register"),
        ("call (%r2), twice, (%r1, %r1);", "another number of arguments"),
        ("call array, (%rd1);", "scalars may be registers"),
        ("{ .param .b64 q; call (%r2), twice, (q); }", "arguments of other sizes"),
    ] {
        let device = Device::new(Config::default());
        let loaded = device.load(&module(1, &functions, &format!("  {call}"))).unwrap();
        let error = loaded.kernel("k").unwrap_err().to_string();
        assert!(error.contains(part), "{call}: {error}");
    }
    // As ptxas has it.
    let narrow = ".func f(.reg .u16 x) { ret; }";
    let device = Device::new(Config::default());
    let loaded = device.load(&module(1, narrow, "  call f, (%h1);")).unwrap();
    let error = loaded.kernel("k").unwrap_err().to_string();
    assert!(error.contains("32 or 64 bits"), "{error}");
}

#[test]
fn vectors_of_registers() {
    let body = "
  .reg .v2 .u32 v;
  .reg .v4 .b32 w<2>;
  mov.u32 v.x, 3;
  add.u32 v.g, %r1, v.r;
  add.s64 %rd5, %rd1, %rd0;
  ld.global.v4.b32 w1, [%rd1];
  { .reg .u32 v; mov.u32 v, 100; add.u32 w1.w, w1.a, v; }
  add.u32 w0.x, w1.w, w1.z;
  mul.wide.u32 %rd6, %r1, 16;
  add.s64 %rd6, %rd2, %rd6;
  st.global.v2.u32 [%rd6], v;
  st.global.v2.u32 [%rd6+8], {w0.x, w1.y};";
    let buffers = [vec![5, 6, 7, 8], vec![0; 4 * 32]];
    let got = Case::new(kernel(2, body), &buffers).run();
    assert_eq!(got, (0..32).flat_map(|i| [3, i + 3, 115, 6]).collect::<Vec<_>>());
    for wrong in ["mov.u32 v.z, 3;", "add.u32 %r2, v, 1;", "mov.u32 %r2, u.x;"] {
        let ptx = kernel(1, &format!("  .reg .v2 .u32 v; .reg .u32 u;\n  {wrong}"));
        let loaded = Device::new(Config::default()).load(&ptx).unwrap();
        let error = loaded.kernel("k").unwrap_err().to_string();
        assert!(error.contains(&format!("line {}", line_of(&ptx, wrong))), "{error}");
    }
}
