//! Clusters of blocks: their registers and barrier, and the shared memory of other blocks.

use super::{Case, kernel, module};
use soft_cuda::{
    AddressSpace, Config, Device, FaultKind, InvalidLaunch, LaunchConfig, LaunchError, LaunchReport,
};

/// A kernel for clusters of this shape.
fn clustered(shape: &str, ptx: &str) -> String {
    let head = format!(")\n.reqnctapercluster {shape}\n{{");
    let ptx = ptx.replacen(")\n{", &head, 1).replace(".target sm_80", ".target sm_90a");
    assert!(ptx.contains(".reqnctapercluster"));
    ptx
}

/// Shared memory of 32 words, `tile`, an mbarrier, `full`, and a buffer of four words, `far`.
const SHARED: &str = ".shared .align 128 .b8 tile[128];
.shared .align 8 .b64 full;
.shared .align 16 .b8 far[16];";

/// The buffer's word of this thread of this block, in `%rd5`.
const PLACE: &str = "
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;
  mul.wide.u32 %rd5, %r4, 4; add.s64 %rd5, %rd1, %rd5;";

const SYNC: &str = "
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;";

#[test]
fn special_registers_say_where_a_block_is() {
    let registers = [
        "%ctaid.x",
        "%ctaid.y",
        "%clusterid.x",
        "%clusterid.y",
        "%nclusterid.x",
        "%nclusterid.y",
        "%cluster_ctaid.x",
        "%cluster_ctaid.y",
        "%cluster_nctaid.x",
        "%cluster_nctaid.y",
        "%cluster_ctarank",
        "%cluster_nctarank",
    ];
    let mut body = "
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ctaid.y; mov.u32 %r4, %nctaid.x;
  mad.lo.u32 %r5, %r3, %r4, %r2; mul.lo.u32 %r5, %r5, 48;
  cvt.u64.u32 %rd5, %r5; add.s64 %rd5, %rd1, %rd5;\n"
        .to_owned();
    for (i, register) in registers.iter().enumerate() {
        body += &format!("  mov.u32 %r6, {register}; st.global.b32 [%rd5+{}], %r6;\n", i * 4);
    }
    let mut case = Case::new(clustered("2, 3", &kernel(1, &body)), &[vec![0; 4 * 6 * 12]]);
    (case.grid, case.block) = ([4, 6, 1], [1, 1, 1]);
    let found = case.run();
    for (block, found) in (0u32..).zip(found.chunks_exact(12)) {
        let (x, y) = (block % 4, block / 4);
        let rank = y % 3 * 2 + x % 2;
        assert_eq!(found, [x, y, x / 2, y / 3, 2, 2, x % 2, y % 3, 2, 3, rank, 6], "{block}");
    }
}

#[test]
fn blocks_read_each_others_shared_memory() {
    // Each thread reads its word of the next block of the cluster, by three kinds of address.
    let body = format!(
        "{PLACE}
  mov.u32 %r10, tile; mad.lo.u32 %r11, %r1, 4, %r10; st.shared.b32 [%r11], %r4;
  {SYNC}
  mov.u32 %r12, %cluster_ctarank; add.u32 %r12, %r12, 1; and.b32 %r12, %r12, 3;
  mapa.shared::cluster.u32 %r13, %r11, %r12;
  ld.shared::cluster.b32 %r14, [%r13];
  cvt.u64.u32 %rd6, %r11; cvta.shared.u64 %rd6, %rd6;
  mapa.u64 %rd7, %rd6, %r12; ld.b32 %r15, [%rd7];
  mapa.shared::cluster.u32 %r16, tile, %r12; mad.lo.u32 %r16, %r1, 4, %r16;
  ld.shared::cluster.b32 %r17, [%r16];
  // Its own, as an address of the cluster.
  mov.u32 %r18, %cluster_ctarank; mapa.shared::cluster.u32 %r19, %r11, %r18;
  ld.shared::cluster.b32 %r19, [%r19]; ld.shared::cluster.b32 %r20, [%r11];
  add.u32 %r21, %r14, %r15; add.u32 %r21, %r21, %r17; add.u32 %r21, %r21, %r19;
  add.u32 %r21, %r21, %r20;
  // Whose they are.
  getctarank.shared::cluster.u32 %r22, %r13; getctarank.u64 %r23, %rd7;
  getctarank.shared::cluster.u32 %r24, %r11;
  mad.lo.u32 %r22, %r22, 100, %r23; mad.lo.u32 %r22, %r22, 100, %r24;
  isspacep.shared::cluster %p1, %rd7; isspacep.shared::cta %p2, %rd7; isspacep.shared %p3, %rd6;
  selp.u32 %r25, 1, 0, %p1; selp.u32 %r26, 2, 0, %p2; selp.u32 %r27, 4, 0, %p3;
  add.u32 %r25, %r25, %r26; add.u32 %r25, %r25, %r27;
  mad.lo.u32 %r22, %r22, 10, %r25; mad.lo.u32 %r21, %r22, 1000, %r21;
  st.global.b32 [%rd5], %r21;
  {SYNC}"
    );
    let case = Case::new(clustered("4", &module(1, SHARED, &body)), &[vec![0; 8 * 32]]).blocks(8);
    for (i, found) in (0u32..).zip(case.run()) {
        let (block, thread) = (i / 32, i % 32);
        let (rank, next) = (block % 4, (block + 1) % 4);
        let value = (block / 4 * 4 + next) * 32 + thread;
        let ranks = (next * 100 + next) * 100 + rank;
        assert_eq!(found, (ranks * 10 + 5) * 1000 + 3 * value + 2 * i, "{i}");
    }
}

#[test]
fn atomics_and_stores_reach_other_blocks() {
    let body = format!(
        "{PLACE}
  mov.u32 %r10, tile; mad.lo.u32 %r11, %r1, 4, %r10; mov.u32 %r12, 0; st.shared.b32 [%r11], %r12;
  {SYNC}
  mapa.shared::cluster.u32 %r13, %r10, 1;
  atom.shared::cluster.add.u32 %r14, [%r13], 1;
  red.relaxed.cluster.shared::cluster.max.u32 [%r13+4], %r4;
  setp.eq.u32 %p1, %r1, 0; mov.u32 %r15, %cluster_ctarank;
  mad.lo.u32 %r16, %r15, 4, %r13; mov.b32 %r17, 77;
  @%p1 st.shared::cluster.b32 [%r16+8], %r17;
  {SYNC}
  ld.shared.b32 %r18, [%r11]; st.global.b32 [%rd5], %r18;"
    );
    let case = Case::new(clustered("2", &module(1, SHARED, &body)), &[vec![9; 4 * 32]]).blocks(4);
    let found = case.run();
    for cluster in 0..2 {
        let blocks = &found[cluster * 64..][..64];
        assert_eq!(blocks[..32], [0; 32]);
        assert_eq!(blocks[32..36], [64, cluster as u32 * 64 + 63, 77, 77]);
        assert_eq!(blocks[36..], [0; 28]);
    }
}

#[test]
fn arrivals_come_from_other_blocks() {
    // Block 1 fills the tile of block 0, whose mbarrier counts it.
    let body = format!(
        "{PLACE}
  mov.u32 %r10, full; mov.u32 %r11, tile; mad.lo.u32 %r11, %r1, 4, %r11;
  mov.u32 %r12, %cluster_ctarank; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r12, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r10], 32;
  fence.mbarrier_init.release.cluster;
  {SYNC}
  @%p2 bra WAIT;
  mapa.shared::cluster.u32 %r13, %r11, 0; add.u32 %r14, %r4, 500;
  st.shared::cluster.b32 [%r13], %r14;
  mapa.shared::cluster.u32 %r15, %r10, 0;
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r15];
  bra END;
WAIT:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r10], 0;
  @!%p3 bra WAIT;
  ld.shared.b32 %r16, [%r11]; st.global.b32 [%rd5], %r16;
END:"
    );
    let case = Case::new(clustered("2", &module(1, SHARED, &body)), &[vec![0; 64]]).blocks(2);
    let expected: Vec<u32> = (0..64).map(|i| if i < 32 { 532 + i } else { 0 }).collect();
    assert_eq!(case.run(), expected);
}

#[test]
fn bulk_copies_go_to_several_blocks() {
    // Block 1 loads for blocks 1 and 3; then each block copies its first words to block 2.
    let body = format!(
        "{PLACE}
  mov.u32 %r10, full; mov.u32 %r11, tile; mov.u32 %r12, %cluster_ctarank;
  setp.ne.u32 %p1, %r1, 0; @%p1 bra SYNC;
  mbarrier.init.shared::cta.b64 [%r10], 1;
  fence.mbarrier_init.release.cluster;
SYNC:
  {SYNC}
  and.b32 %r13, %r12, 1; setp.eq.u32 %p4, %r13, 0;
  @%p4 bra LOADED;
  @%p1 bra WAIT;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 128;
  setp.ne.u32 %p2, %r12, 1; @%p2 bra WAIT;
  mov.u16 %h1, 10;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r11], [%rd1], 128, [%r10], %h1;
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0;
  @!%p3 bra WAIT;
  mad.lo.u32 %r14, %r1, 4, %r11; ld.shared.b32 %r15, [%r14];
  mad.lo.u32 %r15, %r12, 1000, %r15; mul.wide.u32 %rd6, %r4, 4; add.s64 %rd6, %rd2, %rd6;
  st.global.b32 [%rd6], %r15;
LOADED:
  {SYNC}
  setp.ne.u32 %p2, %r12, 2; @%p2 bra SEND;
  @!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 16;
WAIT2:
  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0;
  @!%p3 bra WAIT2;
  mov.u32 %r16, far; and.b32 %r17, %r1, 3; mad.lo.u32 %r16, %r17, 4, %r16;
  ld.shared.b32 %r18, [%r16]; mul.wide.u32 %rd6, %r4, 4; add.s64 %rd6, %rd2, %rd6;
  st.global.b32 [%rd6], %r18;
SEND:
  setp.ne.u32 %p2, %r12, 3; @%p2 bra END; @%p1 bra END;
  mapa.shared::cluster.u32 %r19, far, 2; mapa.shared::cluster.u32 %r20, full, 2;
  cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r19], [%r11], 16, [%r20];
END:
  {SYNC}"
    );
    let values: Vec<u32> = (0..128).map(|i| 7 + i).collect();
    let ptx = clustered("4", &module(2, SHARED, &body));
    let case = Case::new(ptx, &[values, vec![0; 128]]).blocks(4);
    let expected: Vec<u32> = (0..128)
        .map(|i| match i / 32 {
            0 => 0,
            2 => 7 + i % 4,
            rank => 1000 * rank + 7 + i % 32,
        })
        .collect();
    assert_eq!(case.run(), expected);
}

#[test]
fn a_relaxed_phase_after_another() {
    // Three phases of the barrier, of which threads leave one that others have not left yet.
    let body = format!(
        "{PLACE}
  mov.u32 %r10, 0;
LOOP:
  barrier.cluster.arrive.relaxed.aligned;
  add.u32 %r10, %r10, 1;
  barrier.cluster.wait.acquire.aligned;
  setp.lt.u32 %p1, %r10, 3; @%p1 bra LOOP;
  st.global.b32 [%rd5], %r10;"
    );
    let case = Case::new(clustered("2", &kernel(1, &body)), &[vec![0; 4 * 64]]).blocks(4);
    assert_eq!(case.threads(64).run(), [3; 256]);
}

#[test]
fn blocks_that_have_exited_are_not_waited_for() {
    let body = format!(
        "{PLACE}
  mov.u32 %r10, %cluster_ctarank; setp.eq.u32 %p1, %r10, 0; @%p1 ret;
  {SYNC}
  st.global.b32 [%rd5], %r10;"
    );
    let case = Case::new(clustered("2", &kernel(1, &body)), &[vec![5; 64]]).blocks(2);
    assert_eq!(case.run(), [vec![5; 32], vec![1; 32]].concat());
}

#[test]
fn what_is_wrong_with_a_cluster_is_a_fault() {
    let fault = |body: &str| {
        let ptx = clustered("2", &module(1, SHARED, &format!("{PLACE}\n{body}")));
        Case::new(ptx, &[vec![0; 64]]).blocks(2).fault()
    };
    let far = fault(
        "  mov.u32 %r10, tile; mapa.shared::cluster.u32 %r10, %r10, 1;\n  ld.shared::cluster.b32 %r11, [%r10+4096];",
    );
    let FaultKind::OutOfBounds { space, .. } = far.kind else { panic!("{far}") };
    assert_eq!(space, AddressSpace::SharedCluster);
    // `.shared` is `.shared::cta`.
    let other = fault("  mapa.shared::cluster.u32 %r10, tile, 1;\n  ld.shared.b32 %r11, [%r10];");
    assert!(
        matches!(other.kind, FaultKind::OutOfBounds { space: AddressSpace::Shared, .. }),
        "{other}"
    );
    let rank = fault("  mapa.shared::cluster.u32 %r10, tile, 2;");
    assert_eq!(rank.kind, FaultKind::BadRank { rank: 2, blocks: 2 });
    let early = fault("  barrier.cluster.wait.aligned;").to_string();
    assert!(early.contains("has not arrived"), "{early}");
    let twice =
        fault("  barrier.cluster.arrive.aligned; barrier.cluster.arrive.aligned;").to_string();
    assert!(twice.contains("a second time"), "{twice}");
    // Block 1 has exited, and its thread 0 says so.
    let exited = fault(&format!(
        "  mov.u32 %r12, %cluster_ctarank; setp.eq.u32 %p1, %r12, 1;
  mapa.shared::cluster.u32 %r10, tile, 1; {SYNC}
  @%p1 ret;
LOOP:
  ld.shared::cluster.b32 %r11, [%r10]; bra LOOP;"
    ));
    assert!(matches!(exited.kind, FaultKind::ExitedBlock { rank: 1, .. }), "{exited}");
    assert_eq!(exited.block, [0, 0, 0]);
    let stuck = fault(
        "  mov.u32 %r12, %cluster_ctarank; setp.eq.u32 %p1, %r12, 1;
  barrier.cluster.arrive.aligned; @%p1 bra WAIT;
  bar.sync 0; bar.sync 1; bar.sync 2, 64;
WAIT:
  barrier.cluster.wait.aligned; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
    );
    assert!(matches!(stuck.kind, FaultKind::Deadlock { .. }), "{stuck}");
    assert!(stuck.to_string().contains("in block 1 of the cluster"), "{stuck}");
}

#[test]
fn bulk_copies_from_shared_memory_go_to_other_blocks() {
    let copy = |to: &str| {
        let body = format!(
            "{PLACE}
  setp.ne.u32 %p1, %r1, 0;
  mov.u32 %r10, full; mov.u32 %r11, tile; mov.u32 %r12, %cluster_ctarank; xor.b32 %r13, %r12, 1;
  mad.lo.u32 %r14, %r1, 4, %r11; st.shared.b32 [%r14], %r12;
  fence.proxy.async.shared::cta;
  @%p1 bra READY;
  mbarrier.init.shared::cta.b64 [%r10], 1; fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 16;
READY:
  {SYNC}
  mapa.shared::cluster.u32 %r15, far, %r13; mapa.shared::cluster.u32 %r16, full, %r13;
  mapa.shared::cluster.u32 %r17, far, %r12; mov.u32 %r18, far;
  @%p1 bra WAIT;
  cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [{to}], [%r11], 16, [%r16];
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r10], 0; @!%p2 bra WAIT;
  ld.shared.b32 %r19, [far]; st.global.b32 [%rd5], %r19;
  {SYNC}"
        );
        Case::new(clustered("2", &module(1, SHARED, &body)), &[vec![5; 64]]).blocks(2)
    };
    // Each block gets the other one's rank.
    assert_eq!(copy("%r15").run(), [vec![1; 32], vec![0; 32]].concat());
    // Its own memory by `mapa`, and as it is.
    for own in ["%r17", "%r18"] {
        let fault = copy(own).fault();
        assert!(matches!(fault.kind, FaultKind::BulkToOwnBlock { .. }), "{fault}");
        assert!(fault.to_string().contains("`mapa` for another block"), "{fault}");
    }
}

#[test]
fn a_grid_is_whole_clusters() {
    let ptx = clustered("2, 2", &kernel(1, ""));
    let launch = |grid: [u32; 3], ptx: &str| {
        let case = Case { grid, ..Case::new(ptx.to_owned(), &[vec![0]]) };
        case.outcome().map(|_| ())
    };
    launch([2, 4, 3], &ptx).unwrap();
    for grid in [[3, 2, 1], [2, 1, 1]] {
        let error = launch(grid, &ptx).unwrap_err();
        let LaunchError::Invalid { reason: InvalidLaunch::Cluster { cluster, .. }, .. } = error
        else {
            panic!("{error}")
        };
        assert_eq!(cluster, [2, 2, 1]);
    }
    launch([16, 1, 1], &clustered("16", &kernel(1, ""))).unwrap();
    let error = launch([32, 1, 1], &clustered("32", &kernel(1, ""))).unwrap_err().to_string();
    assert!(error.contains("1 to 16 blocks"), "{error}");
    let device = Device::new(Config::default());
    for old in [
        ptx.replace("sm_90a", "sm_80"),
        kernel(1, "  barrier.cluster.wait;"),
        kernel(1, "  mapa.shared::cluster.u32 %r2, %r1, %r1;"),
    ] {
        let error = device.load(&old).unwrap().kernel("k").unwrap_err().to_string();
        assert!(error.contains("sm_90"), "{error}");
    }
}

#[test]
fn clusters_that_a_launch_has_to_ask_for() {
    let ptx = kernel(0, "").replace("sm_80", "sm_90");
    let device = Device::new(Config::default());
    let kernel = |directives: &str| {
        let text = ptx.replace("k()\n", &format!("k()\n{directives}\n"));
        device.load(&text).unwrap().kernel("k").unwrap()
    };
    let config = LaunchConfig { grid: [8, 1, 1], block: [32, 1, 1], dynamic_shared: 0 };
    let reason = |ended: Result<LaunchReport, LaunchError>| match ended {
        Ok(_) => None,
        Err(LaunchError::Invalid { reason, .. }) => Some(reason),
        Err(error) => panic!("{error}"),
    };
    let explicit = kernel(".explicitcluster");
    assert_eq!(reason(device.launch(&explicit, config, &[])), Some(InvalidLaunch::ClusterMissing));
    assert_eq!(reason(device.launch_in_clusters(&explicit, config, [1; 3], &[])), None);
    let both = kernel(".explicitcluster\n.reqnctapercluster 2, 1, 1");
    assert_eq!(reason(device.launch(&both, config, &[])), None);
    let most = kernel(".maxclusterrank 4");
    assert_eq!(reason(device.launch_in_clusters(&most, config, [4, 1, 1], &[])), None);
    let Some(InvalidLaunch::Cluster { limit, .. }) =
        reason(device.launch_in_clusters(&most, config, [8, 1, 1], &[]))
    else {
        panic!("8 blocks")
    };
    assert_eq!(limit, 4);
}
