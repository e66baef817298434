//! Lanes that go around an instruction which the others execute together.

use super::{Case, kernel, line_of, module};
use soft_cuda::{Checks, Config, Device, Fault, FaultKind, LaunchConfig, LaunchError, Schedule};

const TARGETS: [&str; 2] = ["sm_80", "sm_90a"];
const SCHEDULES: [Schedule; 4] =
    [Schedule::InOrder, Schedule::Adversarial, Schedule::Random(1), Schedule::Random(2)];

/// Launches `ptx` on every model, in every schedule, and with masks checked. All runs must end
/// alike.
fn outcome(ptx: &str, threads: u32) -> Result<Vec<u32>, Box<Fault>> {
    let mut all = TARGETS.into_iter().flat_map(|target| {
        let checked = (target, Schedule::InOrder, Checks { sync: true, ..Checks::NONE });
        SCHEDULES.map(|schedule| (target, schedule, Checks::NONE)).into_iter().chain([checked])
    });
    let run = |(target, schedule, checks): (&str, Schedule, Checks)| {
        let budget = Some(10_000_000);
        let config = Config { schedule, checks, instruction_budget: budget, ..Config::default() };
        let device = Device::new(config);
        let ptx = ptx.replace(".target sm_80", &format!(".target {target}"));
        let module = device.load(&ptx).unwrap_or_else(|error| panic!("{error}\n{ptx}"));
        let out = device.alloc(u64::from(threads) * 4).unwrap();
        device.write(out, &vec![0; threads as usize * 4]).unwrap();
        let config = LaunchConfig { grid: [1; 3], block: [threads, 1, 1], dynamic_shared: 0 };
        match device.launch(&module.kernel("k").unwrap(), config, &out.to_ne_bytes()) {
            Ok(_) => {}
            Err(LaunchError::Fault(fault)) => return Err(fault),
            Err(error) => panic!("{error}"),
        }
        let mut bytes = vec![0; threads as usize * 4];
        device.read(out, &mut bytes).unwrap();
        Ok(bytes.as_chunks().0.iter().map(|&word| u32::from_ne_bytes(word)).collect())
    };
    let first = run(all.next().unwrap());
    for other in all {
        match (&first, run(other)) {
            (Ok(words), Ok(others)) => assert_eq!(*words, others, "{other:?}\n{ptx}"),
            (Err(fault), Err(its)) => assert_eq!(fault.line, its.line, "{fault}\n{its}"),
            (first, other) => panic!("{first:?} and {other:?}\n{ptx}"),
        }
    }
    first
}

/// What each thread of a warp, which has `code` compute it in `%r10`, stores.
fn lanes(code: &str) -> Vec<u32> {
    words(&kernel(1, &stores(code)), 32)
}

fn words(ptx: &str, threads: u32) -> Vec<u32> {
    outcome(ptx, threads).unwrap_or_else(|fault| panic!("{fault}\n{ptx}"))
}

fn stores(code: &str) -> String {
    format!(
        "  mov.b32 %r10, 100; mov.b32 %r5, 31; mov.b32 %r7, 7; setp.ne.u32 %p9, %r7, 0;
{code}
  add.s64 %rd5, %rd1, %rd0; st.global.b32 [%rd5], %r10;"
    )
}

/// A collective, with `MASK` for its member mask, and what it gives each of some lanes.
struct Collective {
    text: &'static str,
    result: fn(u32) -> u32,
}

const COLLECTIVES: [Collective; 8] = [
    Collective {
        text: "vote.sync.all.pred %p8, %p9, MASK; selp.b32 %r10, 1, 0, %p8;",
        result: |_| 1,
    },
    Collective { text: "vote.sync.ballot.b32 %r10, %p9, MASK;", result: |lanes| lanes },
    Collective {
        // The source is to be the last of the lanes.
        text: "shfl.sync.idx.b32 %r10, %r1, %r5, 31, MASK;",
        result: |lanes| 31 - lanes.leading_zeros(),
    },
    Collective { text: "bar.warp.sync MASK; mov.b32 %r10, 5;", result: |_| 5 },
    Collective { text: "match.any.sync.b32 %r10, %r7, MASK;", result: |lanes| lanes },
    Collective { text: "match.all.sync.b32 %r10|%p8, %r7, MASK;", result: |lanes| lanes },
    Collective { text: "redux.sync.add.u32 %r10, %r1, MASK;", result: |lanes| sum(lanes) },
    Collective { text: "elect.sync %r10|%p8, MASK;", result: |lanes| lanes.trailing_zeros() },
];

fn sum(lanes: u32) -> u32 {
    (0..32).filter(|lane| lanes >> lane & 1 != 0).sum()
}

impl Collective {
    fn with(&self, mask: &str) -> String {
        self.text.replace("MASK", mask)
    }
}

/// Checks, for each collective and some numbers of lanes that go around it, what all lanes store.
fn check(code: impl Fn(&Collective, u32) -> String, want: impl Fn(&Collective, u32, u32) -> u32) {
    for collective in &COLLECTIVES {
        for around in [1, 2, 7] {
            let code = code(collective, around);
            let want: Vec<u32> = (0..32).map(|lane| want(collective, around, lane)).collect();
            assert_eq!(lanes(&code), want, "{}, around: {around}", collective.text);
        }
    }
}

/// The lanes from `first` on.
fn from(first: u32) -> u32 {
    u32::MAX << first
}

#[test]
fn lanes_that_return_are_not_waited_for() {
    check(
        |collective, around| {
            let instruction = collective.with("-1");
            format!("setp.lt.u32 %p1, %r1, {around}; @%p1 bra JOIN;\n{instruction}\nJOIN:")
        },
        |c, around, lane| if lane < around { 100 } else { (c.result)(from(around)) },
    );
}

#[test]
fn lanes_that_go_around_may_meet_elsewhere() {
    // Those who are left have the same mask in the second collective as in the first.
    check(
        |collective, around| {
            let (all, rest) = (collective.with("-1"), collective.with("%r6"));
            format!(
                "setp.lt.u32 %p1, %r1, {around}; selp.b32 %r6, {}, {}, %p1; @%p1 bra JOIN;
{all}
JOIN: @%p1 sub.u32 %r5, {around}, 1;
{rest}",
                !from(around),
                from(around),
            )
        },
        |c, around, lane| (c.result)(if lane < around { !from(around) } else { from(around) }),
    );
}

#[test]
fn nested_branches_are_left_one_by_one() {
    check(
        |collective, around| {
            let instruction = collective.with("0xffff");
            format!(
                "setp.gt.u32 %p2, %r1, 15; @%p2 bra OUTER;
  setp.lt.u32 %p1, %r1, {around}; @%p1 bra INNER;
  mov.b32 %r5, 15; {instruction}
INNER: add.u32 %r10, %r10, 1000;
OUTER:"
            )
        },
        |c, around, lane| match lane {
            16.. => 100,
            _ if lane < around => 1100,
            _ => (c.result)(from(around) & 0xffff) + 1000,
        },
    );
}

#[test]
fn a_function_is_left_before_the_collective() {
    for collective in &COLLECTIVES {
        let declarations = format!(
            ".func (.param .b32 r) together(.param .b32 a)
{{
  .reg .b32 %r<20>; .reg .pred %p<20>;
  ld.param.b32 %r1, [a]; mov.b32 %r5, 31; mov.b32 %r7, 7; setp.ne.u32 %p9, %r7, 0;
  setp.lt.u32 %p1, %r1, 3; @%p1 bra LEAVE;
  {}
  st.param.b32 [r], %r10; ret;
LEAVE: st.param.b32 [r], 200; ret;
}}",
            collective.with("-1")
        );
        let code = "{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r1;
  call.uni (r), together, (a); ld.param.b32 %r10, [r]; }";
        let ptx = module(1, &declarations, &stores(code));
        let want = |lane| if lane < 3 { 200 } else { (collective.result)(from(3)) };
        let want: Vec<u32> = (0..32).map(want).collect();
        assert_eq!(words(&ptx, 32), want, "{}", collective.text);
    }
}

#[test]
fn a_loop_is_left_lane_by_lane() {
    for collective in &COLLECTIVES {
        let code = format!(
            "mov.b32 %r2, 0; mov.b32 %r11, 0;
LOOP: setp.eq.u32 %p1, %r2, %r1; @%p1 bra DONE;
  {}
  add.u32 %r11, %r11, %r10; add.u32 %r2, %r2, 1;
  setp.lt.u32 %p2, %r2, 5; @%p2 bra LOOP;
DONE: mov.b32 %r10, %r11;",
            collective.with("-1")
        );
        // Lane `i` comes to the first `i` of them.
        let of = |lane: u32| (0..lane.min(5)).map(move |i| (collective.result)(from(i + 1)));
        let want: Vec<u32> =
            (0..32).map(|lane| of(lane).fold(0, |sum: u32, one| sum.wrapping_add(one))).collect();
        assert_eq!(lanes(&code), want, "{}", collective.text);
    }
}

#[test]
fn a_lane_may_come_in_another_iteration() {
    // Lane 0 goes around the first of three, and comes to the second with the others' first.
    let code = "mov.b32 %r2, 0; mov.b32 %r11, 0;
LOOP: or.b32 %r3, %r1, %r2; setp.eq.u32 %p1, %r3, 0; @%p1 bra NEXT;
  redux.sync.add.u32 %r10, %r2, -1; mad.lo.u32 %r11, %r11, 100, %r10;
NEXT: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 3; @%p2 bra LOOP;
  mov.b32 %r10, %r11;";
    let want: Vec<u32> = (0..32).map(|lane| if lane > 0 { 13362 } else { 133 }).collect();
    assert_eq!(lanes(code), want);
}

#[test]
fn lanes_of_two_arms_meet() {
    // The arms come to instructions of their own, from and into registers of their own.
    for (low, high, want) in [
        (
            "shfl.sync.bfly.b32 %r10, %r1, 16, 31, -1;",
            "add.u32 %r3, %r1, 100; mov.b32 %r4, 3; shfl.sync.bfly.b32 %r3, %r3, %r4, 31, -1; mov.b32 %r10, %r3;",
            (|lane| if lane < 16 { lane + 116 } else { (lane ^ 3) + 100 }) as fn(u32) -> u32,
        ),
        (
            "setp.lt.u32 %p1, %r1, 4; vote.sync.ballot.b32 %r10, %p1, -1;",
            "setp.lt.u32 %p2, %r1, 20; vote.sync.ballot.b32 %r10, !%p2, -1;",
            |_| 0xfff0_000f,
        ),
        (
            "vote.sync.any.pred %p9, !%p9, -1; selp.b32 %r10, 1, 0, %p9;",
            "setp.eq.u32 %p2, %r1, 20; vote.sync.any.pred %p3, %p2, -1; selp.b32 %r10, 1, 0, %p3;",
            |_| 1,
        ),
        (
            "and.b32 %r2, %r1, 1; match.any.sync.b32 %r10, %r2, -1;",
            "mov.b32 %r3, 1; match.any.sync.b32 %r3, %r3, -1; mov.b32 %r10, %r3;",
            |lane| if lane < 16 && lane % 2 == 0 { 0x5555 } else { 0xffff_aaaa },
        ),
        (
            "mov.b64 %rd8, 0x100000001; match.all.sync.b64 %r10, %rd8, -1;",
            "mov.b64 %rd9, 0x200000001; match.all.sync.b64 %r10, %rd9, -1;",
            |_| 0,
        ),
        (
            "redux.sync.add.u32 %r10, %r1, -1;",
            "add.u32 %r3, %r1, 100; redux.sync.add.u32 %r3, %r3, -1; mov.b32 %r10, %r3;",
            |_| 496 + 1600,
        ),
        ("elect.sync %r10|%p1, -1;", "elect.sync %r10|%p2, -1;", |_| 0),
        (
            "sub.u32 %r2, 0, 1; bar.warp.sync %r2; mov.b32 %r10, 1;",
            "mov.b32 %r2, 5; sub.u32 %r3, 0, 1; bar.warp.sync %r3; mov.b32 %r10, 2;",
            |lane| 1 + lane / 16,
        ),
    ] {
        let code = format!(
            "mov.b32 %r12, 9; setp.gt.u32 %p5, %r1, 15; @%p5 bra HIGH;
  {low}
  add.u32 %r12, %r12, 1; bra.uni JOIN;
HIGH: {high}
JOIN: setp.lt.u32 %p6, %r12, 9; @%p6 mov.b32 %r10, 999;"
        );
        assert_eq!(lanes(&code), (0..32).map(want).collect::<Vec<_>>(), "{low} {high}");
    }
}

#[test]
fn each_mask_is_complete_by_itself() {
    // Lanes 0 to 2 come to the vote together: lanes 0 and 1 vote before lane 3 comes, which waits
    // for lane 0.
    let code = "setp.gt.u32 %p1, %r1, 3; @%p1 bra END;
  setp.lt.u32 %p2, %r1, 2; selp.b32 %r6, 3, 12, %p2;
  setp.eq.u32 %p3, %r1, 3; @%p3 bra THREE;
  vote.sync.ballot.b32 %r10, %p9, %r6;
  setp.eq.u32 %p4, %r1, 0; @!%p4 bra END;
  bar.warp.sync 9; bra.uni END;
THREE: bar.warp.sync 9; vote.sync.ballot.b32 %r10, %p9, %r6;
END:";
    let mut want = vec![100; 32];
    want[..4].copy_from_slice(&[3, 3, 12, 12]);
    assert_eq!(lanes(code), want);
}

#[test]
fn block_barriers_wait_for_no_lane_that_returns() {
    for (barrier, result) in [
        ("barrier.sync 0; mov.b32 %r10, 1;", [1, 1, 1]),
        ("barrier.sync 2, COUNT; mov.b32 %r10, 1;", [1, 1, 1]),
        ("barrier.red.popc.u32 %r10, 0, %p9;", [31, 63, 95]),
        ("barrier.red.and.pred %p8, 0, %p9; selp.b32 %r10, 1, 0, %p8;", [1, 1, 1]),
    ] {
        for (threads, result) in [32, 64, 96].into_iter().zip(result) {
            let barrier = barrier.replace("COUNT", &threads.to_string());
            let code = format!("setp.eq.u32 %p1, %r1, 0; @%p1 bra JOIN;\n  {barrier}\nJOIN:");
            let mut want = vec![result; threads as usize];
            want[0] = 100;
            assert_eq!(words(&kernel(1, &stores(&code)), threads), want, "{barrier}");
        }
    }
}

/// The fault of a kernel, and the lines where lanes wait.
fn stuck(ptx: &str, threads: u32) -> (Box<Fault>, Vec<u32>) {
    let fault = outcome(ptx, threads).expect_err("lanes wait for ever");
    let (FaultKind::BarrierDivergence { waiting } | FaultKind::Deadlock { waiting }) = &fault.kind
    else {
        panic!("{fault}");
    };
    let lines = waiting.iter().map(|one| one.line).collect();
    (fault, lines)
}

#[test]
fn lanes_that_wait_elsewhere_are_a_deadlock() {
    for collective in &COLLECTIVES {
        let vote = "vote.sync.uni.pred %p7, %p9, -1;";
        for elsewhere in [
            if collective.text.starts_with("bar") { vote } else { "bar.warp.sync -1;" },
            "barrier.sync 1, 64;",
        ] {
            let first = collective.with("-1");
            let code = format!(
                "setp.lt.u32 %p1, %r1, 2; @%p1 bra JOIN;\n  {first}\nJOIN: mov.b32 %r2, 3;\n{elsewhere}"
            );
            let ptx = kernel(1, &stores(&code));
            let (fault, mut lines) = stuck(&ptx, 32);
            lines.sort_unstable();
            let places = [&*first, elsewhere].map(|text| line_of(&ptx, text));
            assert_eq!(lines, places, "{fault}");
            assert_eq!(fault.line, places[0], "{fault}");
        }
    }
}

#[test]
fn other_qualifiers_and_masks_do_not_meet() {
    for (low, high) in [
        ("shfl.sync.bfly.b32 %r10, %r1, 1, 31, -1;", "shfl.sync.idx.b32 %r10, %r1, 1, 31, -1;"),
        ("redux.sync.add.u32 %r10, %r1, -1;", "redux.sync.xor.b32 %r10, %r1, -1;"),
        ("redux.sync.add.u32 %r10, %r1, -1;", "redux.sync.add.u32 %r10, %r1, 0xffff0001;"),
        ("vote.sync.any.pred %p8, %p9, -1;", "vote.sync.all.pred %p8, %p9, -1;"),
        ("match.any.sync.b32 %r10, %r1, -1;", "match.any.sync.b64 %r10, %rd0, -1;"),
    ] {
        let code = format!(
            "setp.gt.u32 %p5, %r1, 15; @%p5 bra HIGH;\n  {low}\n  bra.uni JOIN;\nHIGH:\n  {high}\nJOIN:"
        );
        let ptx = kernel(1, &stores(&code));
        let (fault, mut lines) = stuck(&ptx, 32);
        lines.sort_unstable();
        assert_eq!(lines, [low, high].map(|text| line_of(&ptx, text)), "{fault}");
    }
}

#[test]
fn another_block_barrier_is_a_deadlock() {
    let code = "setp.eq.u32 %p1, %r1, 0; @%p1 bra JOIN;\n  barrier.sync 1;\nJOIN: barrier.sync 2;";
    let ptx = kernel(1, &stores(code));
    let (fault, lines) = stuck(&ptx, 64);
    assert_eq!(lines.len(), 3, "{fault}");
}

#[test]
fn a_lane_that_loops_for_ever_ends_with_the_budget() {
    let code = "setp.eq.u32 %p1, %r1, 0; @%p1 bra FOREVER;
  vote.sync.ballot.b32 %r10, %p9, -1; bra.uni JOIN;
FOREVER: bra.uni FOREVER;
JOIN:";
    let fault = outcome(&kernel(1, &stores(code)), 32).expect_err("it never ends");
    assert!(matches!(fault.kind, FaultKind::BudgetExceeded { .. }), "{fault}");
}

#[test]
fn spinning_lanes_keep_nobody_from_meeting() {
    let spin = "SPIN: ld.volatile.shared.b32 %r3, [flag]; setp.ne.u32 %p6, %r3, 77; @%p6 bra SPIN;";
    let set = "st.volatile.shared.b32 [flag], 77;";
    let bodies = [
        // One warp: lanes of two arms meet, and a third part waits for what they do then.
        format!(
            "setp.gt.u32 %p1, %r1, 15; @%p1 bra THIRD; setp.gt.u32 %p2, %r1, 7; @%p2 bra SECOND;
  bar.warp.sync 0xffff; {set} bra.uni END;
SECOND: bar.warp.sync 0xffff; bra.uni END;
THIRD: {spin}
END:"
        ),
        // Two warps meet, and the third one waits for what they do then.
        format!(
            "setp.gt.u32 %p1, %r1, 63; @%p1 bra THIRD; bar.sync 1, 64; {set} bra.uni END;
THIRD: {spin}
END:"
        ),
        // Lanes that wait to reconverge do what another warp waits for.
        format!(
            "setp.gt.u32 %p1, %r1, 31; @%p1 bra OTHER; setp.ne.u32 %p2, %r1, 0; @%p2 bra JOIN;
  barrier.sync 0;
JOIN: setp.eq.u32 %p3, %r1, 0; @%p3 bra END; {set} barrier.sync 0; bra.uni END;
OTHER: {spin} barrier.sync 0;
END:"
        ),
        // Lanes of the same warp, which calls a function in each round.
        format!(
            "setp.gt.u32 %p1, %r1, 15; @%p1 bra JOIN;
SPIN: {{ .param .b32 r; call.uni (r), get; ld.param.b32 %r3, [r]; }}
  setp.ne.u32 %p6, %r3, 77; @%p6 bra SPIN;
JOIN: setp.gt.u32 %p1, %r1, 15; @%p1 {set}"
        ),
    ];
    let declarations = ".shared .align 4 .b32 flag;
.func (.param .b32 r) get()
{ .reg .b32 %r3; ld.volatile.shared.b32 %r3, [flag]; st.param.b32 [r], %r3; ret; }";
    for (body, threads) in bodies.iter().zip([32, 96, 96, 32]) {
        let code = format!(
            "setp.eq.u32 %p9, %r1, 0; @%p9 st.shared.b32 [flag], 0; bar.sync 0; mov.b32 %r10, 1;
{body}"
        );
        let ptx = module(1, declarations, &stores(&code));
        assert_eq!(words(&ptx, threads), vec![1; threads as usize], "{body}");
    }
}

#[test]
fn lanes_that_came_apart_are_together_at_an_aligned_barrier() {
    // Lane 0 loops for so long that the others go ahead.
    for barrier in ["bar.sync 0;", "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"]
    {
        let code = format!(
            "mov.b32 %r3, 0; setp.ne.u32 %p1, %r1, 0; @%p1 bra JOIN;
LOOP: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 5000; @%p2 bra LOOP;
JOIN: {barrier}"
        );
        let ptx = kernel(1, &stores(&code)).replace("sm_80", "sm_90a");
        assert_eq!(Case::new(ptx, &[vec![0; 64]]).threads(64).run(), [100; 64], "{barrier}");
    }
}

#[test]
fn a_long_loop_keeps_its_lanes_together() {
    let code = "and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0; mov.b32 %r3, 0;
LOOP: @%p1 bra EVEN; add.u32 %r4, %r4, 3; add.u32 %r4, %r4, %r3; bra.uni NEXT;
EVEN: xor.b32 %r4, %r4, %r3;
NEXT: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 150000; @%p2 bra LOOP;
  activemask.b32 %r10;";
    let ptx = kernel(1, &stores(code));
    assert_eq!(Case::new(ptx, &[vec![0; 64]]).threads(64).run(), [u32::MAX; 64]);
}
