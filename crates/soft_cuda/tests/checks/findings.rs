//! The list of what was found: launches that go on, places that are told apart, text and JSON.

use super::{Twin, device, module, run_on};
use soft_cuda::{Checks, Device, Finding, Isa, LaunchConfig, LaunchError, MemoryError, Schedule};

const SCHEDULE: Schedule = Schedule::InOrder;

/// A twin that is buggy alone.
const fn twin(threads: u32, blocks: u32, body: &'static str) -> Twin {
    Twin { name: "findings", found: "", threads, blocks, body }
}

fn found(twin: &Twin, limit: usize) -> (Device, Option<soft_cuda::Fault>) {
    let device = device(Checks::ALL, SCHEDULE, Isa::Auto, limit);
    let ended = run_on(&device, &module(twin.body, "BUG|"), twin);
    (device, ended)
}

/// A race in all lanes of two blocks, an unwritten word, and an unwritten register.
const THREE: Twin = twin(
    64,
    2,
    "  .loc 1 7 9
  st.shared.b32 [%r4], %r1;
  xor.b32 %r10, %r1, 32; mad.lo.u32 %r11, %r10, 4, %r3;
  bar.warp.sync -1;
  .loc 1 8 1
  ld.shared.b32 %r12, [%r11];
  ld.global.b32 %r13, [%rd4];
  add.u32 %r14, %r12, %r15;
  st.global.b32 [%rd3], %r14;",
);

#[test]
fn a_launch_goes_on_and_each_place_is_there_once() {
    let (device, ended) = found(&THREE, 10);
    assert_eq!(ended, None);
    let findings = device.findings();
    let names: Vec<&str> = findings.iter().map(Finding::name).collect();
    // Of the first warp, which runs first: the other one's words are not written yet.
    assert_eq!(names, ["Uninitialised", "DataRace", "Uninitialised", "UninitialisedRegister"]);
    for finding in &findings {
        let Finding::Kernel { fault, count, ended } = finding else { panic!("{finding}") };
        assert!(*count > 1 && !ended && fault.block == [0; 3], "{finding}");
        assert!(finding.to_string().ends_with(&format!("({count} times here)")), "{finding}");
    }
    assert_eq!(findings.to_string().lines().count(), 4);
    assert_eq!(device.take_findings(), findings);
    assert!(device.findings().is_empty());
}

#[test]
fn findings_in_json_name_both_accesses() {
    let (device, _) = found(&THREE, 10);
    let json: serde_json::Value = serde_json::from_str(&device.findings().to_json()).unwrap();
    let race = json.as_array().unwrap().iter().find(|f| f["kind"] == "DataRace").unwrap();
    assert_eq!((&race["kernel"], &race["space"]), (&"k".into(), &"shared".into()));
    assert_eq!((&race["file"], &race["line"]), (&"src/kernel.rs".into(), &8.into()));
    assert_eq!(race["instruction"], "ld.shared.b32 %r12, [%r11];");
    assert_eq!(race["thread"], serde_json::json!([32, 0, 0]));
    assert_eq!((&race["address"], &race["ended"]), (&"0x400".into(), &false.into()));
    let earlier = &race["earlier"];
    assert_eq!((&earlier["access"], &earlier["line"]), (&"store".into(), &7.into()));
    assert_eq!(earlier["thread"], serde_json::json!([0, 0, 0]));
    assert!(race["ptx_line"].as_u64() > earlier["ptx_line"].as_u64());
}

#[test]
fn one_place_too_many_ends_the_launch() {
    let (device, ended) = found(&THREE, 2);
    let ended = ended.unwrap();
    let findings = device.findings();
    assert_eq!(findings.len(), 3);
    let Some(Finding::Kernel { fault, ended: true, .. }) = findings.iter().last() else {
        panic!("{findings}")
    };
    assert_eq!(**fault, ended);
}

/// Lane 5 of the second warp stores where one of the first has stored; what the other lanes store
/// is written all the same, and read by all behind a barrier.
#[test]
fn the_other_lanes_are_noted() {
    let body = "  mov.b32 %r10, %r1;
  setp.eq.u32 %p2, %r1, 37; @%p2 mov.b32 %r10, 5;
  mad.lo.u32 %r11, %r10, 4, %r3;
  st.shared.b32 [%r11], %r1;
  st.shared.b32 [%r4+1024], %r1;
  bar.sync 0;
  setp.eq.u32 %p3, %r1, 37; @%p3 exit;
  ld.shared.b32 %r12, [%r4]; ld.shared.b32 %r13, [%r4+1024];
  add.u32 %r12, %r12, %r13; st.global.b32 [%rd4], %r12;";
    let (device, ended) = found(&twin(64, 1, body), 10);
    assert_eq!(ended, None);
    let findings = device.findings();
    assert_eq!(findings.len(), 1, "{findings}");
    assert_eq!(findings.iter().next().unwrap().fault().unwrap().thread, [37, 0, 0]);
}

#[test]
fn a_freed_allocation_names_its_calls() {
    let device = device(Checks::NONE, SCHEDULE, Isa::Auto, 0);
    let ptx = ".version 8.0 .target sm_80 .address_size 64
.entry k(.param .u64 p) { .reg .b64 %rd<2>; ld.param.b64 %rd1, [p]; st.global.b32 [%rd1], 1; ret; }";
    let module = device.load(ptx).unwrap();
    let kernel = module.kernel("k").unwrap();
    let (_, address) = (device.alloc(8).unwrap(), device.alloc_for("cuMemAlloc_v2", 64).unwrap());
    let config = LaunchConfig { grid: [1; 3], block: [1; 3], dynamic_shared: 0 };
    let launch = |at: u64| device.launch(&kernel, config, &at.to_ne_bytes());
    launch(address).unwrap();
    device.free_for("cuMemFree_v2", address).unwrap();
    let Err(LaunchError::Fault(fault)) = launch(address + 8) else { panic!("not found") };
    let calls = "was allocated by `cuMemAlloc_v2` (memory call 2, after 0 launches) and freed by \
                 `cuMemFree_v2` (memory call 3, after 1 launch)";
    assert!(fault.to_string().ends_with(calls), "{fault}");
    assert_eq!(device.findings().iter().next().unwrap().name(), "UseAfterFree");
    let Err(MemoryError::FreedTwice { freed, .. }) = device.free(address) else {
        panic!("freed twice")
    };
    assert_eq!((freed.name, freed.ordinal, freed.launches), ("cuMemFree_v2", 3, 1));
}

#[test]
fn leaks_name_the_call_that_allocated() {
    let device = device(Checks::ALL, SCHEDULE, Isa::Auto, 0);
    let address = device.alloc(100).unwrap();
    assert!(device.note_leak(address));
    let text = device.findings().to_string();
    assert!(text.starts_with("the 100-byte allocation at 0x50"), "{text}");
    assert!(text.contains("made by `alloc` (memory call 1, after 0 launches)"), "{text}");
    assert!(!device.note_leak(address + 4096));
}
