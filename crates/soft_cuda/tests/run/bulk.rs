//! Bulk copies and mbarriers: what they do, and what is found out about kernels
//! that use them wrongly.

use super::line_of;
use soft_cuda::{
    Config, Device, Fault, FaultKind, Fill, Isa, LaunchConfig, LaunchError, LaunchReport, Swizzle,
    TensorElement, TensorMap, TensorMapError,
};

/// A kernel with a tensor map, and the addresses of a source and of a result in
/// `%rd1` and `%rd2`; the generic address of the map is in `%rd3`. The thread
/// index is in `%r1`, the shared address of `tile` in `%r2`, that of the
/// mbarriers `full` and `empty` in `%r3` and `%r4`.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.0
.target sm_90a
.address_size 64
.shared .align 1024 .b8 tile[16384];
.shared .align 8 .b8 full[32];
.shared .align 8 .b8 empty[32];
.visible .entry k(.param .u32 pad, .param .align 64 .b8 map[128], .param .u64 src, .param .u64 dst)
{{
  .reg .pred %p<20>;
  .reg .b32 %r<100>;
  .reg .b64 %rd<100>;
  ld.param.b64 %rd1, [src];
  ld.param.b64 %rd2, [dst];
  mov.b64 %rd3, map;
  cvta.param.u64 %rd3, %rd3;
  mov.u32 %r1, %tid.x;
  mov.b32 %r2, tile;
  mov.b32 %r3, full;
  mov.b32 %r4, empty;
{body}
  ret;
}}
"
    )
}

/// A launch: the source holds 0.0, 1.0, 2.0, ...
pub(super) struct Case {
    pub(super) ptx: String,
    pub(super) threads: u32,
    pub(super) source: usize,
    pub(super) element: TensorElement,
    /// Dimensions, stride in bytes, box, swizzle, fill.
    pub(super) map: ([u64; 2], u64, [u32; 2], Swizzle, Fill),
    pub(super) result: usize,
    /// Whether the result is the source.
    pub(super) in_place: bool,
}

/// One tensor of 64 by 32, boxes of 32 by 8.
pub(super) fn case(body: &str) -> Case {
    let map = ([64, 32], 256, [32, 8], Swizzle::None, Fill::Zeros);
    let element = TensorElement::F32;
    let (ptx, source, result) = (kernel(body), 64 * 32, 4096);
    Case { ptx, threads: 32, source, element, map, result, in_place: false }
}

type Outcome = Result<(Vec<f32>, LaunchReport), LaunchError>;

impl Case {
    fn run_on(&self, isa: Isa) -> Outcome {
        let config = Config { isa, instruction_budget: Some(10_000_000), ..Config::default() };
        let device = Device::new(config);
        let module = device.load(&self.ptx).unwrap_or_else(|error| panic!("{error}"));
        let kernel = module.kernel("k").expect("the kernel is called k");
        assert_eq!(module.target(), "sm_90a");
        let src = device.alloc(self.source as u64 * 4).unwrap();
        let dst = match self.in_place {
            true => src,
            false => device.alloc(self.result as u64 * 4).unwrap(),
        };
        let values: Vec<u8> =
            (0..self.source).flat_map(|i| (i as f32).to_bits().to_le_bytes()).collect();
        device.fill_u32(dst, (-1f32).to_bits(), self.result as u64).unwrap();
        device.write(src, &values).unwrap();
        let (dims, stride, boxes, swizzle, fill) = self.map;
        let layout = (swizzle, fill);
        let map = TensorMap::of(self.element, src, &dims, &[stride], &boxes, layout).unwrap();
        let mut params = vec![0; 64];
        params.extend(map.to_bytes());
        params.extend(src.to_le_bytes());
        params.extend(dst.to_le_bytes());
        let (grid, block) = ([1; 3], [self.threads, 1, 1]);
        let report =
            device.launch(&kernel, LaunchConfig { grid, block, dynamic_shared: 0 }, &params)?;
        let mut bytes = vec![0; self.result * 4];
        device.read(dst, &mut bytes).unwrap();
        let result = bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        Ok((result, report))
    }

    pub(super) fn outcome(&self) -> Outcome {
        let portable = self.run_on(Isa::Portable);
        let bits = |outcome: &Outcome| {
            let outcome = outcome.as_ref().map_err(Clone::clone);
            outcome.map(|(result, _)| result.iter().map(|v| v.to_bits()).collect::<Vec<_>>())
        };
        for isa in [Isa::Auto, Isa::Avx2] {
            let other = self.run_on(isa);
            assert_eq!(bits(&other), bits(&portable), "{isa:?} and the portable path disagree");
        }
        portable
    }

    pub(super) fn run(&self) -> Vec<f32> {
        self.outcome().unwrap_or_else(|error| panic!("{error}")).0
    }

    pub(super) fn fault(&self) -> Fault {
        match self.outcome() {
            Err(LaunchError::Fault(fault)) => *fault,
            other => panic!("expected a fault, got {:?}", other.map(|(_, report)| report)),
        }
    }

    pub(super) fn threads(mut self, threads: u32) -> Case {
        self.threads = threads;
        self
    }
}

/// Thread 0 initialises `full` for one arrival, and loads the box at `x`, `y`.
pub(super) fn load_box(x: i32, y: i32, bytes: u32) -> String {
    format!(
        "  setp.ne.b32 %p1, %r1, 0;
  @%p1 bra WAIT;
  mbarrier.init.shared::cta.b64 [%r3], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], {bytes};
  mov.b32 %r10, {x};
  mov.b32 %r11, {y};
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd3, {{%r10, %r11}}], [%r3];
WAIT:
  bar.sync 0;
"
    )
}

/// Waits for phase parity 0 of `full`.
pub(super) const WAIT: &str = "SPIN:
  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p2, [%r3], 0, 1000;
  @!%p2 bra SPIN;
";

/// Copies the first `words` words of the tile to the result.
pub(super) fn store_tile(words: u32) -> String {
    format!(
        "  mov.b32 %r20, %r1;
STORE:
  shl.b32 %r21, %r20, 2;
  add.s32 %r22, %r2, %r21;
  ld.shared.b32 %r23, [%r22];
  cvt.u64.u32 %rd20, %r21;
  add.s64 %rd20, %rd2, %rd20;
  st.global.b32 [%rd20], %r23;
  mov.u32 %r24, %ntid.x;
  add.s32 %r20, %r20, %r24;
  setp.lt.u32 %p3, %r20, {words};
  @%p3 bra STORE;
"
    )
}

/// What a box at `x`, `y` of the 64 by 32 source holds, row by row.
pub(super) fn box_at(x: i32, y: i32, columns: i32, rows: i32, outside: f32) -> Vec<f32> {
    let at = |x: i32, y: i32| match (0..64).contains(&x) && (0..32).contains(&y) {
        true => (y * 64 + x) as f32,
        false => outside,
    };
    (0..columns * rows).map(|i| at(x + i % columns, y + i / columns)).collect()
}

#[test]
fn boxes_inside_and_across_every_edge() {
    for (x, y) in [(0, 0), (32, 24), (4, 5), (-8, -3), (52, 30), (-4, 30), (44, -3)] {
        let got = case(&(load_box(x, y, 1024) + WAIT + &store_tile(256))).run();
        assert_eq!(got[..256], box_at(x, y, 32, 8, 0.0), "{x} {y}");
        assert_eq!(got[256], -1.0);
    }
    for (x, y) in [(64, 0), (-32, 0), (0, 32), (0, -8), (i32::MIN, i32::MAX)] {
        let got = case(&(load_box(x, y, 1024) + WAIT + &store_tile(256))).run();
        assert!(got[..256].iter().all(|&v| v == 0.0), "{x} {y}");
    }
    for x in [3, -5, 50] {
        let fault = case(&(load_box(x, 0, 1024) + WAIT)).fault();
        assert_eq!(fault.kind, FaultKind::TensorStart { start: x, store: false });
    }
    let mut nan = case(&(load_box(60, 0, 1024) + WAIT + &store_tile(256)));
    nan.map.4 = Fill::Nan;
    let got = nan.run();
    assert_eq!(got[..4], [60.0, 61.0, 62.0, 63.0]);
    assert!(got[4..32].iter().all(|v| v.is_nan()));
}

#[test]
fn every_swizzle_moves_the_chunks_it_says() {
    for (swizzle, row, bits) in
        [(Swizzle::Bytes32, 8u32, 1), (Swizzle::Bytes64, 16, 3), (Swizzle::Bytes128, 32, 7)]
    {
        let words = row * 16;
        let mut case = case(&(load_box(40, 20, words * 4) + WAIT + &store_tile(words)));
        case.map = ([64, 32], 256, [row, 16], swizzle, Fill::Zeros);
        let got = case.run();
        let plain = box_at(40, 20, row as i32, 16, 0.0);
        for word in 0..words {
            // Chunks of four words; the number of the 128-byte line moves them.
            let moved = word ^ (((word >> 5) & bits) << 2);
            assert_eq!(got[moved as usize], plain[word as usize], "{swizzle:?} {word}");
        }
    }
}

/// A tensor of 32 by 32 elements. Each is two words of the source.
fn case_of_8_bytes(element: TensorElement, x: i32, y: i32) -> Case {
    let map = ([32, 32], 256, [16, 8], Swizzle::None, Fill::Zeros);
    Case { element, map, ..case(&(load_box(x, y, 1024) + WAIT + &store_tile(256))) }
}

#[test]
fn boxes_of_elements_of_8_bytes() {
    use TensorElement::{F64, S64, U64};
    for element in [U64, S64, F64] {
        for (x, y) in [(0, 0), (16, 24), (2, 5), (-4, -3), (26, 30), (-2, 30), (22, -3), (32, 0)] {
            let got = case_of_8_bytes(element, x, y).run();
            assert_eq!(got[..256], box_at(2 * x, y, 32, 8, 0.0), "{element:?} {x} {y}");
            assert_eq!(got[256], -1.0);
        }
        for x in [1, -3] {
            let fault = case_of_8_bytes(element, x, 0).fault();
            assert_eq!(fault.kind, FaultKind::TensorStart { start: x, store: false });
        }
    }
    // Chunks of two elements move as others do.
    for (swizzle, row, bits) in
        [(Swizzle::Bytes32, 4u32, 1), (Swizzle::Bytes64, 8, 3), (Swizzle::Bytes128, 16, 7)]
    {
        let words = 2 * row * 16;
        let body = load_box(20, 20, words * 4) + WAIT + &store_tile(words);
        let map = ([32, 32], 256, [row, 16], swizzle, Fill::Zeros);
        let got = Case { element: F64, map, ..case(&body) }.run();
        let plain = box_at(40, 20, 2 * row as i32, 16, 0.0);
        for word in 0..words {
            let moved = word ^ (((word >> 5) & bits) << 2);
            assert_eq!(got[moved as usize], plain[word as usize], "{swizzle:?} {word}");
        }
    }
}

/// All bits but the sign, as of the other types of numbers.
#[test]
fn nan_outside_of_a_tensor_of_f64() {
    let mut case = case_of_8_bytes(TensorElement::F64, 28, 30);
    case.map.4 = Fill::Nan;
    let bits: Vec<u32> = case.run()[..256].iter().map(|word| word.to_bits()).collect();
    let inside = box_at(56, 30, 32, 8, f32::NAN);
    for (at, (bits, inside)) in bits.iter().zip(inside).enumerate() {
        let nan = [u32::MAX, u32::MAX >> 1][at % 2];
        assert_eq!(*bits, if inside.is_nan() { nan } else { inside.to_bits() }, "word {at}");
    }
    let integers = [TensorElement::U64, TensorElement::S64].map(|element| {
        TensorMap::of(element, 0, &[32, 32], &[256], &[16, 8], (Swizzle::None, Fill::Nan))
    });
    assert_eq!(integers, [Err(TensorMapError::NanOfIntegers), Err(TensorMapError::NanOfIntegers)]);
}

#[test]
fn the_bytes_of_the_whole_box_are_counted() {
    let (_, report) = case(&(load_box(60, 0, 1024) + WAIT + &store_tile(256))).outcome().unwrap();
    assert_eq!(report.bulk_bytes, 1024);
    let fault = case(&(load_box(60, 0, 1040) + WAIT)).fault();
    assert!(matches!(fault.kind, FaultKind::Deadlock { .. }), "{fault}");
    let text = fault.to_string();
    let says = "wait for 0 of 1 arrivals and 16 bytes of bulk copies in phase 0 of the mbarrier";
    assert!(text.contains(says), "{text}");
}

#[test]
fn a_map_in_global_memory() {
    // The kernel copies the map from its parameters to the result, and uses that.
    let copy: String = (0..16)
        .map(|i| {
            let at = i * 8;
            format!("  ld.param.b64 %rd10, [map+{at}];\n  st.global.b64 [%rd2+{at}], %rd10;\n")
        })
        .collect();
    let move_ = "  cvta.global.u64 %rd3, %rd2;\n  prefetch.tensormap [%rd3];\n";
    let body = copy + move_ + &load_box(8, 1, 1024) + WAIT + &store_tile(256);
    assert_eq!(case(&body).run()[..256], box_at(8, 1, 32, 8, 0.0));
}

#[test]
fn plain_bytes() {
    let body = "  setp.ne.b32 %p1, %r1, 0;
  @%p1 bra WAIT;
  mbarrier.init.shared.b64 [%r3], 1;
  mov.b32 %r10, 512;
  mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r3], 512;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+16], [%rd1+64], %r10, [%r3];
  mbarrier.arrive.shared::cta.b64 %rd30, [%r3];
WAIT:
  bar.sync 0;
";
    let got = case(&(body.to_owned() + WAIT + &store_tile(132))).run();
    assert!(got[..4].iter().all(|v| v.is_nan()), "shared memory starts as NaN");
    assert_eq!(got[4..132], (16..144).map(|i| i as f32).collect::<Vec<_>>());
    for (from, to, text) in [
        ("[%r2+16]", "[%r2+8]", "not a multiple of 16"),
        ("[%rd1+64]", "[%rd1+60]", "not a multiple of 16"),
        ("mov.b32 %r10, 512", "mov.b32 %r10, 500", "a bulk copy of 500 bytes"),
        ("[%rd1+64]", "[%rd1+8192]", "out of bounds"),
        ("[%r2+16]", "[%r2+65536]", "out of bounds"),
    ] {
        let fault = case(&(body.replace(from, to) + WAIT)).fault();
        assert_eq!(fault.instruction.split('.').nth(2), Some("bulk"), "{fault}");
        assert!(fault.to_string().contains(text), "{fault}");
    }
}

#[test]
fn wrong_barriers() {
    let init = "  mbarrier.init.shared::cta.b64 [%r3], 40;\n";
    let cases = [
        ("  mbarrier.arrive.shared::cta.b64 _, [%r3];", "`mbarrier.init` has not run"),
        ("  mbarrier.init.shared::cta.b64 [%r3], 0;", "an mbarrier for 0 arrivals"),
        ("  mbarrier.init.shared::cta.b64 [%r3+4], 1;", "not a multiple of 8"),
        ("  mbarrier.init.b64 [%rd2], 1;", "not in shared memory"),
        ("  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;", "has not run"),
        (
            "INIT  st.shared.b32 [%r3], %r1;\n  mbarrier.arrive.shared::cta.b64 _, [%r3];",
            "something overwrote it",
        ),
        (
            "INIT  mbarrier.inval.shared::cta.b64 [%r3];\n  mbarrier.expect_tx.shared::cta.b64 [%r3], 4;",
            "there is no mbarrier at",
        ),
        (
            "INIT  mbarrier.arrive.shared::cta.b64 _, [%r3], 2;",
            "2 arrivals at the mbarrier at 0x4400, whose phase 0 lacks 1 of 3",
        ),
        (
            "INIT  mbarrier.expect_tx.shared::cta.b64 [%r3], 1048575;\n  mbarrier.expect_tx.shared::cta.b64 [%r3], 1;",
            "1048575 is the limit",
        ),
    ];
    for (body, text) in cases {
        let body = body.replace("INIT", &init.replace("40", "3"));
        let fault = case(&body).threads(1 + u32::from(body.contains("], 2"))).fault();
        assert!(fault.to_string().contains(text), "{fault}");
    }
    // Another warp uses it, and nothing says that it was initialised before. That
    // is followed in kernels with bulk copies.
    let early = load_box(0, 0, 1024).replace("WAIT:\n  bar.sync 0;", "WAIT:") + WAIT;
    let fault = case(&early).threads(64).fault();
    assert!(fault.to_string().contains("without a barrier after warp 0"), "{fault}");
}

#[test]
fn wrong_tensor_maps() {
    let copy = |from: &str, to: &str| {
        let fault = case(&(load_box(0, 0, 1024).replace(from, to) + WAIT)).fault();
        assert!(fault.instruction.starts_with("cp.async.bulk"), "{fault}");
        (fault.kind.clone(), fault.to_string())
    };
    let (kind, text) = copy("[%rd3, {", "[%rd1, {");
    assert!(matches!(kind, FaultKind::BadTensorMap { rank: None, .. }), "{text}");
    assert!(text.contains("there is no tensor map of the software device"), "{text}");
    let (kind, text) = copy("[%rd3, {", "[%rd3+32, {");
    assert!(matches!(kind, FaultKind::Misaligned { bytes: 64, .. }), "{text}");
    let line = load_box(0, 0, 1024).replace(".2d.", ".3d.").replace("{%r10,", "{%r10, %r10,");
    let fault = case(&(line + WAIT)).fault();
    assert!(matches!(fault.kind, FaultKind::BadTensorMap { rank: Some(2), .. }), "{fault}");
    let (kind, text) = copy("[%r2], [", "[%r2+64], [");
    assert!(matches!(kind, FaultKind::Misaligned { bytes: 128, .. }), "{text}");
    // A tensor that is larger than its memory.
    let mut large = case(&(load_box(0, 30, 1024) + WAIT));
    large.map.0 = [64, 33];
    let fault = large.fault();
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { .. }), "{fault}");
}

#[test]
fn stores_happen_at_the_wait() {
    let body = |wait: &str| {
        load_box(0, 0, 1024)
            + WAIT
            + &format!(
                "  setp.ne.b32 %p1, %r1, 0;
  @%p1 bra END;
  fence.proxy.async.shared::cta;
  cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r2], 64;
  cp.async.bulk.commit_group;
  {wait}
  st.shared.b32 [%r2], 0f40E00000;
  ld.global.b32 %r20, [%rd2]; st.global.b32 [%rd2+512], %r20;
END:"
            )
    };
    let got = case(&body("cp.async.bulk.wait_group.read 0;")).run();
    assert_eq!(got[..16], box_at(0, 0, 16, 1, 0.0));
    assert_eq!((got[16], got[128]), (-1.0, 0.0));
    // Without a wait: not before the end, when the source is another one.
    let got = case(&body("cp.async.bulk.wait_group 1;")).run();
    assert_eq!((got[0], &got[1..16], got[128]), (7.0, &box_at(1, 0, 15, 1, 0.0)[..], -1.0));
    // To a tensor: what lies outside is left out.
    let tensor = load_box(0, 0, 1024)
        + WAIT
        + "  setp.ne.b32 %p1, %r1, 0;
  @%p1 bra END;
  mov.b32 %r10, 60;
  mov.b32 %r11, -1;
  cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd3, {%r10, %r11}], [%r2];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
  ld.global.v4.b32 {%r20, %r21, %r22, %r23}, [%rd1+240];
  st.global.v4.b32 [%rd2], {%r20, %r21, %r22, %r23};
  ld.global.b32 %r20, [%rd1+256];
  st.global.b32 [%rd2+16], %r20;
END:";
    let got = case(&tensor).run();
    assert_eq!(got[..5], [64.0, 65.0, 66.0, 67.0, 64.0]);
}

#[test]
fn stores_that_nobody_waits_for_happen_at_the_end() {
    let store = "cp.async.bulk.global.shared::cta.bulk_group [%rd4], [%r5], 64;";
    let tensor =
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd3, {%r10, %r11}], [%r2];";
    let body = |copy: &str, commit: &str| {
        let each =
            "mul.wide.u32 %rd4, %r1, 64; add.s64 %rd4, %rd2, %rd4; mad.lo.u32 %r5, %r1, 64, %r2;";
        let exit = "setp.ge.u32 %p3, %r1, 3; @%p3 exit; fence.proxy.async.shared::cta;";
        load_box(0, 8, 1024)
            + WAIT
            + &format!("  mov.b32 %r10, 32; mov.b32 %r11, 16; {each} {exit} {copy} {commit}")
    };
    for commit in ["cp.async.bulk.commit_group;", ""] {
        let got = case(&body(store, commit)).threads(96).run();
        assert_eq!(got[..48], box_at(0, 8, 32, 2, 0.0)[..48]);
        assert_eq!(got[48], -1.0);
        // To a tensor, by one thread.
        let one = format!("setp.ge.u32 %p3, %r1, 1; @%p3 exit; {tensor}");
        let of_tensor = case(&body(&one, commit));
        let got = Case { in_place: true, result: 64 * 32, ..of_tensor }.run();
        for row in 0..32 {
            let inside = if (16..24).contains(&row) { 32 } else { 64 };
            let line = &got[row * 64..][..64];
            let from = if inside == 32 { box_at(0, row as i32 - 8, 32, 1, 0.0) } else { vec![] };
            let want = [box_at(0, row as i32, inside, 1, 0.0), from].concat();
            assert_eq!(line, want, "row {row}");
        }
    }
}

#[test]
fn what_is_refused_at_load() {
    let device = Device::new(Config::default());
    for (inst, part) in [
        ("setmaxnreg.inc.sync.aligned.u32 20;", "multiple of 8 from 24 to 256"),
        ("setmaxnreg.inc.sync.u32 24;", "`.sync.aligned.u32`"),
        ("mbarrier.arrive_drop.shared::cta.b64 %rd5, [%r3];", "unknown"),
        ("mbarrier.init.shared::cta.b64 [%r3];", "an address and a number"),
        ("mbarrier.init.shared::cta.b32 [%r3], 1;", "it takes `.b64`"),
        ("cp.async.bulk.prefetch.L2.global [%rd1], 16;", "only copies from"),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd3, {%r1}], [%r3];",
            "as many coordinates",
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r2], [%rd3, {%r1, %r1}], [%r3];",
            "`.im2col` is unknown",
        ),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r2], [%rd1], 16, [%r3];",
            "a register or a constant of its type",
        ),
        (
            "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.multicast::cluster [%r2], [%rd1], 16, [%r3], %h1;",
            "it copies to `.shared::cluster`",
        ),
        ("fence.proxy.tensormap::generic.release.gpu;", "`.alias` and `.async`"),
        ("ld.global.b32 %r5, [%rd1, {%r1}];", "an address in brackets"),
    ] {
        let ptx = kernel(&format!("  {inst}"));
        let error = device.load(&ptx).unwrap().kernel("k").unwrap_err().to_string();
        assert!(error.starts_with(&format!("PTX line {}: ", line_of(&ptx, inst))), "{error}");
        assert!(error.contains(part), "{error}");
    }
    for inst in [
        "cp.async.bulk.commit_group;",
        "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;",
        "setmaxnreg.inc.sync.aligned.u32 24;",
    ] {
        let old = kernel(&format!("  {inst}")).replace("sm_90a", "sm_80");
        let error = device.load(&old).unwrap().kernel("k").unwrap_err().to_string();
        assert!(error.contains("but the module is for `sm_80`"), "{error}");
    }
}
