//! Instructions that all lanes of a warp execute together, behind branches.

use super::{Case, kernel, line_of, module};
use soft_cuda::FaultKind;

/// Lane 0 executes so many rounds of a loop, and the other lanes of its warp none.
fn apart(rounds: u32, label: &str) -> String {
    format!(
        "  mov.b32 %r50, 0; and.b32 %r51, %r1, 31; setp.ne.u32 %p10, %r51, 0; @%p10 bra {label}_JOIN;
{label}: add.u32 %r50, %r50, 1; setp.lt.u32 %p11, %r50, {rounds}; @%p11 bra {label};
{label}_JOIN:
"
    )
}

/// Rounds after which the other lanes have gone ahead.
const LONG: u32 = 5000;

/// Instructions whose results are in `%r10` to `%r13`, from what a lane has in `%r20` to `%r25`.
/// The lane's row of a matrix is at `%r30`.
const INSTRUCTIONS: [&str; 5] = [
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r10, %r11, %r12, %r13}, {%r20, %r21, %r22, %r23}, {%r24, %r25}, {%r10, %r11, %r12, %r13};",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r30];",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r30];",
    "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r30], {%r20, %r21}; bar.warp.sync -1;
  ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r30];",
    "movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r20;",
];

/// A kernel that executes `code` with different small numbers as f16 in all lanes, and stores the
/// results.
fn warp(code: &str) -> String {
    let numbers: String = (0..6)
        .map(|i| format!("  mad.lo.u32 %r2{i}, %r1, 0x00010002, {};\n", 0x3c00_3800 + i * 0x0101))
        .collect();
    let body = format!(
        "{numbers}  mov.b32 %r30, tile; mad.lo.u32 %r30, %r1, 16, %r30;
  st.shared.v4.b32 [%r30], {{%r23, %r22, %r21, %r20}}; bar.warp.sync -1;
  mov.b32 %r10, 0; mov.b32 %r11, 0; mov.b32 %r12, 0; mov.b32 %r13, 0;
{code}
STORE:
  mad.wide.u32 %rd5, %r1, 16, %rd1;
  st.global.v4.b32 [%rd5], {{%r10, %r11, %r12, %r13}};
END:"
    );
    let declarations = ".shared .align 128 .b8 tile[2048];";
    module(1, declarations, &body).replace("sm_80", "sm_90a")
}

fn words(ptx: &str, threads: u32) -> Vec<u32> {
    Case::new(ptx.to_owned(), &[vec![0; 4 * threads as usize]]).threads(threads).run()
}

#[test]
fn lanes_that_came_apart_execute_them_together() {
    for instruction in INSTRUCTIONS {
        let code = |rounds| apart(rounds, "LOOP") + instruction;
        let want = words(&warp(&code(1)), 32);
        assert_ne!(want, vec![0; 128], "{instruction}");
        assert_eq!(words(&warp(&code(LONG)), 32), want, "{instruction}");
        // Behind a guard, and twice, with another loop between.
        let guarded =
            format!("{}  setp.lt.u32 %p1, %r1, 32; @%p1 {instruction}\n", apart(LONG, "LOOP"));
        assert_eq!(words(&warp(&guarded), 32), want, "{instruction}");
        let twice = |rounds| code(rounds) + "\n" + &apart(rounds, "AGAIN") + instruction;
        assert_eq!(words(&warp(&twice(LONG)), 32), words(&warp(&twice(1)), 32), "{instruction}");
    }
}

#[test]
fn in_a_function_that_lanes_call_one_after_the_other() {
    let function = ".func (.param .b32 d) transpose(.param .b32 a)
{ .reg .b32 %r<3>; ld.param.b32 %r1, [a];
  movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1; st.param.b32 [d], %r2; ret; }
.visible .entry";
    let called = |rounds| {
        apart(rounds, "LOOP")
            + "{ .param .b32 a; .param .b32 d; st.param.b32 [a], %r20;
  call.uni (d), transpose, (a); ld.param.b32 %r10, [d]; }"
    };
    let ptx = |rounds| warp(&called(rounds)).replace(".visible .entry", function);
    assert_eq!(words(&ptx(LONG), 32), words(&warp(INSTRUCTIONS[4]), 32));
}

#[test]
fn lanes_that_never_come_are_a_fault() {
    for instruction in INSTRUCTIONS {
        let other = "movmatrix.sync.aligned.m8n8.trans.b16 %r11, %r21;";
        for elsewhere in [
            "exit;",
            "bra.uni STORE;",
            "barrier.sync 0; bra.uni STORE;",
            &format!("{other} bra.uni STORE;"),
        ] {
            for rounds in [1, LONG] {
                let code = format!(
                    "{}  setp.ne.u32 %p1, %r1, 3; @%p1 bra ALL; {elsewhere}\nALL:\n  {instruction}",
                    apart(rounds, "LOOP")
                );
                let ptx = warp(&code);
                let fault = Case::new(ptx.clone(), &[vec![0; 128]]).fault();
                let FaultKind::BarrierDivergence { waiting } = &fault.kind else {
                    panic!("{elsewhere} {instruction}: {fault}");
                };
                let lanes = waiting.iter().fold(0, |all, one| all | one.lanes);
                assert_eq!(lanes | 8, u32::MAX, "{fault}");
                let together = "all 32 lanes must execute this instruction together";
                assert!(fault.to_string().contains(together), "{fault}");
                let place = line_of(&ptx, instruction.lines().next().unwrap_or_default());
                assert!(waiting.iter().any(|one| one.line == place), "{fault}");
            }
        }
    }
    // A block with less than a warp.
    let fault = Case::new(warp(INSTRUCTIONS[0]), &[vec![0; 128]]).threads(16).fault();
    assert!(fault.to_string().contains("all 32 lanes must execute"), "{fault}");
}

#[test]
fn lanes_that_go_around_them_do_not_meet_others_in_the_next_round() {
    let code = format!(
        "  mov.b32 %r40, 0;
ROUND: add.u32 %r41, %r40, %r1; and.b32 %r41, %r41, 1; setp.eq.u32 %p1, %r41, 0; @%p1 bra NEXT;
  {}
NEXT: add.u32 %r40, %r40, 1; setp.lt.u32 %p2, %r40, 4; @%p2 bra ROUND;",
        INSTRUCTIONS[0]
    );
    let fault = Case::new(warp(&code), &[vec![0; 128]]).fault();
    assert!(matches!(fault.kind, FaultKind::BarrierDivergence { .. }), "{fault}");
    assert!(fault.to_string().contains("have passed it by"), "{fault}");
}

#[test]
fn warpgroups_whose_lanes_came_apart_multiply() {
    let sums = "{%r10, %r11, %r12, %r13}";
    let body = |rounds: u32| {
        format!(
            "  mov.b32 %r30, tile; mad.lo.u32 %r31, %r1, 64, %r30; mov.b32 %r20, 0x3c003c00; mov.b32 %r32, 0;
FILL: st.shared.b32 [%r31], %r20; add.u32 %r31, %r31, 4; add.u32 %r32, %r32, 1;
  setp.lt.u32 %p3, %r32, 16; @%p3 bra FILL;
  fence.proxy.async; bar.sync 0;
  shr.u32 %r30, %r30, 4; cvt.u64.u32 %rd5, %r30; or.b64 %rd5, %rd5, 0x0000001000080000;
  mov.b32 %r10, 0; mov.b32 %r11, 0; mov.b32 %r12, 0; mov.b32 %r13, 0; setp.eq.u32 %p1, 0, 0;
{}  wgmma.fence.sync.aligned;
{}  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {sums}, %rd5, %rd5, %p1, 1, 1, 0, 0;
{}  wgmma.commit_group.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {sums}, %rd5, %rd5, %p1, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
{}  wgmma.wait_group.sync.aligned 0;
  mad.wide.u32 %rd5, %r1, 16, %rd1; st.global.v4.b32 [%rd5], {sums};",
            apart(rounds, "FENCE"),
            apart(rounds, "MMA"),
            apart(rounds, "COMMIT"),
            apart(rounds, "WAIT")
        )
    };
    for rounds in [1, LONG] {
        let ptx = kernel(1, &body(rounds))
            .replace("sm_80", "sm_90a")
            .replace(".visible", ".shared .align 128 .b8 tile[8192];\n.visible");
        assert_eq!(words(&ptx, 128), [32f32.to_bits(); 512], "{rounds}");
    }
}
