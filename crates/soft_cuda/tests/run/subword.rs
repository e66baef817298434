//! Atomics of 8 and 16 bits, which compilers make from atomics of the 32-bit word around them: what
//! they do in the last bytes of memory, and what is out of bounds there.

use soft_cuda::{AddressSpace, Config, Device, FaultKind, Isa, LaunchConfig, LaunchError};

/// `%rd4` is the thread's byte, a generic address in `space`, and `%rd5` its word. `%r4` is the
/// number of bits from the word to the byte, and `%r5` the mask of the `bits` bits that change.
fn kernel(space: &str, bits: u32, body: &str) -> String {
    let (mask, step) = ((1u64 << bits) - 1, bits / 8);
    let base = match space {
        ".shared" => "mov.b64 %rd4, tile; cvta.shared.u64 %rd4, %rd4;",
        _ => "mov.b64 %rd4, %rd1;",
    };
    format!(
        ".version 8.0
.target sm_80
.address_size 64
.shared .align 4 .b8 tile[7];
.visible .entry k(.param .u64 p, .param .u32 n)
{{
  .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>;
  ld.param.b64 %rd1, [p]; ld.param.b32 %r9, [n]; mov.u32 %r1, %tid.x; {base}
  rem.u32 %r2, %r1, %r9; mul.lo.u32 %r2, %r2, {step}; cvt.u64.u32 %rd3, %r2; add.s64 %rd4, %rd4, %rd3;
  and.b64 %rd5, %rd4, -4; cvt.u32.u64 %r4, %rd4; and.b32 %r4, %r4, 3; shl.b32 %r4, %r4, 3;
  mov.b32 %r5, {mask}; shl.b32 %r5, %r5, %r4; not.b32 %r6, %r5; mov.b32 %r7, 1; shl.b32 %r7, %r7, %r4;
{body}
  ret;
}}
"
    )
}

/// Adds 1: LLVM's loop.
const ADD: &str = "  ld.relaxed.sys.b32 %r10, [%rd5];
LOOP: add.s32 %r11, %r10, %r7; and.b32 %r11, %r11, %r5; and.b32 %r12, %r10, %r6; or.b32 %r12, %r12, %r11;
  atom.relaxed.sys.cas.b32 %r13, [%rd5], %r10, %r12; setp.ne.b32 %p1, %r13, %r10; mov.b32 %r10, %r13;
  @%p1 bra LOOP;";

/// The same by a compare-exchange of the value that was loaded, as C++ has it: the load is weak.
const COMPARE: &str = "  ld.b32 %r10, [%rd5];
LOOP: and.b32 %r12, %r10, %r6; and.b32 %r14, %r10, %r5; add.s32 %r11, %r10, %r7; and.b32 %r11, %r11, %r5;
  or.b32 %r15, %r12, %r14; or.b32 %r16, %r12, %r11;
  atom.cas.b32 %r13, [%rd5], %r15, %r16; setp.ne.b32 %p1, %r13, %r15; mov.b32 %r10, %r13; @%p1 bra LOOP;";

/// Runs it on `bytes` bytes, all of them 3 or `initial`, and returns them.
fn run_on(isa: Isa, ptx: &str, n: u32, initial: &[u8]) -> Result<Vec<u8>, LaunchError> {
    let instruction_budget = Some(1_000_000);
    let device = Device::new(Config { isa, instruction_budget, ..Config::default() });
    let kernel = device.load(ptx).unwrap().kernel("k").unwrap();
    let p = device.alloc(initial.len() as u64).unwrap();
    device.write(p, initial).unwrap();
    let params = [&p.to_ne_bytes()[..], &n.to_ne_bytes()].concat();
    let config = LaunchConfig { grid: [1; 3], block: [64, 1, 1], dynamic_shared: 0 };
    device.launch(&kernel, config, &params)?;
    let mut bytes = vec![0; initial.len()];
    device.read(p, &mut bytes).unwrap();
    Ok(bytes)
}

fn outcome(ptx: &str, n: u32, initial: &[u8]) -> Result<Vec<u8>, LaunchError> {
    let portable = run_on(Isa::Portable, ptx, n, initial);
    assert_eq!(run_on(Isa::Auto, ptx, n, initial), portable);
    portable
}

fn fault(ptx: &str, n: u32, initial: &[u8]) -> FaultKind {
    match outcome(ptx, n, initial) {
        Err(LaunchError::Fault(fault)) => fault.kind,
        other => panic!("{other:?}"),
    }
}

/// How often each of `n` places is counted in by 64 threads.
fn counts(n: u32) -> impl Iterator<Item = u8> {
    (0..n).map(move |i| (64 / n + u32::from(i < 64 % n)) as u8)
}

#[test]
fn bytes_at_the_end_of_memory_are_counted_in() {
    for n in 1..10 {
        for body in [ADD, COMPARE, &ADD.replace("sys.", "sys.global.")] {
            let want: Vec<u8> = counts(n).map(|count| 3 + count).collect();
            assert_eq!(outcome(&kernel("", 8, body), n, &vec![3; n as usize]), Ok(want), "{n}");
        }
    }
}

#[test]
fn halves_at_the_end_of_memory_are_counted_in() {
    // An address of 2 bytes is rounded down by -3 as well.
    for mask in ["-4", "-3", "0xfffffffffffffffc"] {
        let ptx = kernel("", 16, ADD).replace("%rd4, -4;", &format!("%rd4, {mask};"));
        for n in 1..6 {
            let want: Vec<u8> = counts(n).flat_map(|count| [3 + count, 3]).collect();
            assert_eq!(outcome(&ptx, n, &vec![3; 2 * n as usize]), Ok(want), "{n}");
        }
    }
}

#[test]
fn bits_at_the_end_of_memory() {
    let operand = "mov.b32 %r20, 5; shl.b32 %r20, %r20, %r4;";
    for (op, more, want) in [
        ("or", "", 3 | 5),
        ("xor", "", 3 ^ 5),
        ("and", "or.b32 %r20, %r20, %r6;", 3 & 5),
        ("cas", "", 3),
    ] {
        let values = if op == "cas" { "%r20, %r20" } else { "%r20" };
        for form in ["atom", "red"].into_iter().filter(|form| op != "cas" || *form == "atom") {
            let d = if form == "atom" { "%r21, " } else { "" };
            let body = format!("{operand} {more} {form}.{op}.b32 {d}[%rd5], {values};");
            // Each byte once: twice the same `xor` is none.
            let body = format!("setp.ge.u32 %p1, %r1, %r9; @%p1 exit; {body}");
            let got = outcome(&kernel("", 8, &body), 5, &[3; 5]);
            assert_eq!(got, Ok(vec![want; 5]), "{form}.{op}");
        }
    }
}

#[test]
fn bytes_at_the_end_of_shared_memory_are_counted_in() {
    let begin = "  setp.ge.u32 %p2, %r1, 7; mov.b64 %rd6, tile; cvt.u64.u32 %rd7, %r1;
  add.s64 %rd6, %rd6, %rd7; @!%p2 st.shared.b8 [%rd6], 3; bar.sync 0;";
    let end = "  bar.sync 0; @%p2 bra END; ld.shared.b8 %h1, [%rd6]; add.s64 %rd8, %rd1, %rd7;
  st.global.b8 [%rd8], %h1;
END:";
    for body in [ADD, COMPARE] {
        let ptx = kernel(".shared", 8, &format!("{begin}\n{body}\n{end}"));
        let want: Vec<u8> = counts(7).map(|count| 3 + count).collect();
        assert_eq!(outcome(&ptx, 7, &[0; 7]), Ok(want));
    }
    // By addresses of 32 bits.
    let narrow = kernel(".shared", 8, &format!("{begin}\n{ADD}\n{end}"))
        .replace("sys.b32 %r10, [%rd5]", "sys.shared.b32 %r10, [%r30]")
        .replace("sys.cas.b32 %r13, [%rd5]", "sys.shared.cas.b32 %r13, [%r30]")
        .replace(
            "and.b64 %rd5, %rd4, -4;",
            "mov.b32 %r31, tile; add.s32 %r31, %r31, %r2; and.b32 %r30, %r31, -4;",
        );
    assert_eq!(outcome(&narrow, 7, &[0; 7]), Ok(counts(7).map(|count| 3 + count).collect()));
}

#[test]
fn a_byte_past_the_end_is_out_of_bounds() {
    for body in [ADD, COMPARE, "atom.or.b32 %r10, [%rd5], %r7;", "red.xor.b32 [%rd5], 0;"] {
        let kind = fault(&kernel("", 8, body), 6, &[3; 5]);
        let FaultKind::OutOfBounds { bytes: 1, space: AddressSpace::Generic, .. } = kind else {
            panic!("{kind}")
        };
        assert!(kind.to_string().contains("0 bytes past the end of the 5-byte"), "{kind}");
    }
    let kind = fault(&kernel(".shared", 8, ADD), 8, &[3; 5]);
    assert!(kind.to_string().contains("past the end of the 7-byte"), "{kind}");
    // The lower byte is inside.
    let half = kernel("", 16, "mov.b32 %r10, -1; atom.xor.b32 %r10, [%rd5], %r5;");
    let kind = fault(&half, 3, &[3; 5]);
    assert!(kind.to_string().contains("0 bytes past the end of the 5-byte"), "{kind}");
}

#[test]
fn other_accesses_of_the_last_word_are_out_of_bounds() {
    for body in [
        // No loop around `atom.cas` of the word.
        "ld.b32 %r10, [%rd5];",
        "ld.relaxed.sys.b32 %r10, [%rd5];",
        "st.b32 [%rd5], %r7;",
        "atom.add.b32 %r10, [%rd5], %r7;",
        "atom.exch.b32 %r10, [%rd5], %r7;",
        // Of another register's address.
        "mov.b64 %rd6, %rd5; atom.cas.b32 %r10, [%rd6], 0, 0; ld.b32 %r10, [%rd5];",
        // Not rounded down, or not always.
        "atom.cas.b32 %r10, [%rd1+4], 0, 0;",
        "atom.or.b32 %r10, [%rd1+4], 0;",
        "mov.b64 %rd5, %rd5; atom.or.b32 %r10, [%rd5], %r7;",
        // A word that would change behind the end.
        "atom.or.b32 %r10, [%rd5], -1;",
        "atom.cas.b32 %r10, [%rd5], 0, -1;",
    ] {
        let kind = fault(&kernel("", 8, body), 5, &[3; 5]);
        assert!(matches!(kind, FaultKind::OutOfBounds { .. }), "{body}: {kind}");
    }
}

/// A variable of the thread's own, whose generic address is `%rd4`.
fn local(body: &str) -> String {
    let own = ".local .align 8 .b8 own[16]; st.local.b64 [own], 0; st.local.b64 [own+8], 0;
  mov.b64 %rd4, own; cvta.local.u64 %rd4, %rd4;";
    kernel("", 8, &format!("{own}\n{body}"))
}

#[test]
fn atomics_on_local_memory_are_faults() {
    let atomics = [
        "atom.add.u32 %r10, [%rd4], 1;",
        "red.add.u64 [%rd4], 1;",
        "atom.add.f32 %r10, [%rd4], 0f3F800000;",
        "atom.exch.b64 %rd6, [%rd4], 1;",
        "atom.cas.b32 %r10, [%rd4], 0, 1;",
        "atom.cas.b16 %h1, [%rd4], 0, 1;",
        "red.or.b32 [%rd4], 1;",
        "and.b64 %rd5, %rd4, -4; atom.cas.b32 %r10, [%rd5], 0, 1;",
        // In one lane of many.
        "setp.ne.u32 %p1, %r1, 5; selp.b64 %rd4, %rd1, %rd4, %p1; red.add.u32 [%rd4], 1;",
    ];
    for body in atomics {
        let kind = fault(&local(body), 1, &[3; 8]);
        assert!(matches!(kind, FaultKind::LocalAtomic { .. }), "{body}: {kind}");
        assert_eq!(kind.space(), Some(AddressSpace::Local));
    }
    let device = Device::new(Config::default());
    for body in ["atom.local.add.u32 %r10, [%rd4], 1;", "red.add.u32 [own], 1;"] {
        let module = device.load(&local(body)).unwrap();
        let error = module.kernel("k").unwrap_err().to_string();
        assert!(error.contains("global and shared memory"), "{error}");
    }
}

#[test]
fn generic_loads_and_stores_of_local_memory_branch_by_its_space() {
    let body = "  isspacep.local %p1, %rd4; isspacep.global %p2, %rd4; isspacep.shared %p3, %rd4;
  isspacep.local %p4, %rd1; selp.b32 %r10, 1, 0, %p1; selp.b32 %r11, 2, 0, %p2; selp.b32 %r12, 4, 0, %p3;
  selp.b32 %r13, 8, 0, %p4; add.s32 %r10, %r10, %r11; add.s32 %r10, %r10, %r12; add.s32 %r10, %r10, %r13;
  // Odd lanes have a variable of their own, and add to it by a load and a store.
  and.b32 %r14, %r1, 1; setp.eq.u32 %p5, %r14, 1; selp.b64 %rd5, %rd4, %rd1, %p5;
  isspacep.local %p6, %rd5; @%p6 bra OWN; red.add.u32 [%rd5], 1; bra NEXT;
OWN: ld.b32 %r15, [%rd5]; add.s32 %r15, %r15, %r10; st.b32 [%rd5], %r15; ld.b8 %h1, [%rd5];
  cvt.u32.u16 %r15, %h1; setp.eq.u32 %p7, %r15, 1; @%p7 red.add.u32 [%rd1+4], 1;
NEXT:";
    let got = outcome(&local(body), 1, &[0; 8]);
    assert_eq!(got, Ok(vec![32, 0, 0, 0, 32, 0, 0, 0]));
}
