//! Planted bugs and their clean twins: every check finds every bug, and nothing in a twin.

mod bulk;
mod clusters;
mod dependent;
mod device_memory;
mod export;
mod findings;
mod idioms;
mod memory;
mod races;
mod reductions;
mod registers;
mod settings;
mod subword;
mod sync;
mod tensor;
mod words;

use soft_cuda::{
    Checks, Config, Device, Fault, Fill, Isa, LaunchConfig, LaunchError, LaunchOptions, Schedule,
    Swizzle, TensorElement, TensorMap,
};

/// A launch that may begin before the one in front of it has ended.
fn early() -> LaunchOptions<'static> {
    LaunchOptions { early: true, ..LaunchOptions::default() }
}

/// A kernel with a bug, and the same without. In `body`, lines that begin with `BUG|` are in the
/// former only, those with `FIX|` in the latter only; what comes after `HEAD|` is a directive of
/// the kernel.
struct Twin {
    name: &'static str,
    /// What is found: the name of the [`FaultKind`], or those of several with `|` between them.
    found: &'static str,
    threads: u32,
    blocks: u32,
    body: &'static str,
}

/// What a launch can go on after.
const GOES_ON_AFTER: [&str; 5] =
    ["DataRace", "NoVariable", "ReadOnlyCache", "Uninitialised", "UninitialisedRegister"];

const SCHEDULES: [Schedule; 4] =
    [Schedule::InOrder, Schedule::Random(1), Schedule::Random(2), Schedule::Adversarial];

/// Tensor maps that kernels with reductions of tensors have as further parameters: name, elements,
/// whether in the first buffer, how many elements, and those of a box.
const MAPS: [(&str, TensorElement, bool, u64, u32); 8] = [
    ("in_u32", TensorElement::U32, true, WORDS, 32),
    ("in_s32", TensorElement::S32, true, WORDS, 32),
    ("in_u64", TensorElement::U64, true, WORDS / 2, 16),
    ("in_s64", TensorElement::S64, true, WORDS / 2, 16),
    ("in_f32", TensorElement::F32, true, WORDS, 32),
    ("out_u32", TensorElement::U32, false, WORDS, 32),
    ("out_f32", TensorElement::F32, false, WORDS, 32),
    ("in_two_u32", TensorElement::U32, true, 2, 32),
];

fn has_maps(ptx: &str) -> bool {
    ptx.contains("cp.reduce.async.bulk.tensor")
}

/// The kernel's surroundings: `%rd1` is a buffer of 4096 words, `%rd2` one that nobody wrote,
/// `%rd3` the address of the thread's word of the former, and `%rd4` that of the latter; `%r1` is
/// the thread, `%r2` the block, `%r3` the shared address of `tile`, `%r4` that of the thread's word
/// in it, `%r5` that of `full`, `%r6` that of `empty`, `%p1` says whether this is thread 0. A
/// kernel with `griddepcontrol` is launched once more, early.
fn module(body: &str, keep: &str) -> String {
    let drop = if keep == "BUG|" { "FIX|" } else { "BUG|" };
    let head: String = body.lines().filter_map(|line| line.strip_prefix("HEAD|")).collect();
    let body: String = body
        .lines()
        .filter(|line| !line.starts_with("HEAD|"))
        .filter(|line| !line.trim_start().starts_with(drop))
        .map(|line| line.replace(keep, "    ") + "\n")
        .collect();
    let maps: String = match has_maps(&body) {
        true => MAPS.map(|(name, ..)| format!(", .param .align 64 .b8 {name}[128]")).concat(),
        false => String::new(),
    };
    format!(
        ".version 8.6
.target sm_90a
.address_size 64
.shared .align 128 .b8 tile[4096];
.shared .align 8 .b64 full;
.shared .align 8 .b64 empty;
.shared .align 128 .b8 next[4096];
.global .align 4 .b32 zeros[4];
.func (.param .b32 r) sets(.param .b32 x) {{
  .reg .b32 %r<4>; ld.param.b32 %r1, [x]; st.param.b32 [r], %r1; ret;
}}
.func (.param .b32 r) forgets(.param .b32 x) {{ ret; }}
.visible .entry k(.param .u64 in, .param .u64 out{maps})
{head}
{{
  .local .align 8 .b8 depot[64];
  .reg .pred %p<20>;
  .reg .b16 %h<20>;
  .reg .b32 %r<100>;
  .reg .b64 %rd<100>;
  ld.param.b64 %rd1, [in];
  ld.param.b64 %rd2, [out];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r9, %ntid.x;
  mad.lo.u32 %r8, %r2, %r9, %r1;
  mul.wide.u32 %rd5, %r8, 4;
  add.s64 %rd3, %rd1, %rd5;
  add.s64 %rd4, %rd2, %rd5;
  mov.b32 %r3, tile;
  mad.lo.u32 %r4, %r1, 4, %r3;
  mov.b32 %r5, full;
  mov.b32 %r6, empty;
  setp.eq.u32 %p1, %r1, 0;
{body}
  ret;
}}
.file 1 \"src/kernel.rs\"
"
    )
}

const WORDS: u64 = 4096;

/// A device that does not run for ever.
fn device(checks: Checks, schedule: Schedule, isa: Isa, max_findings: usize) -> Device {
    let instruction_budget = Some(10_000_000);
    let rest = Config::default();
    Device::new(Config { isa, checks, schedule, instruction_budget, max_findings, ..rest })
}

fn run(ptx: &str, twin: &Twin, checks: Checks, schedule: Schedule, isa: Isa) -> Option<Fault> {
    run_on(&device(checks, schedule, isa, 0), ptx, twin)
}

fn run_on(device: &Device, ptx: &str, twin: &Twin) -> Option<Fault> {
    let module = device.load(ptx).unwrap_or_else(|error| panic!("{}: {error}\n{ptx}", twin.name));
    let kernel = module.kernel("k").unwrap();
    let [input, output] = [(); 2].map(|()| device.alloc(WORDS * 4).unwrap());
    let values: Vec<u8> = (0..WORDS as u32).flat_map(u32::to_ne_bytes).collect();
    device.write(input, &values).unwrap();
    let mut params: Vec<u8> = [input, output].into_iter().flat_map(u64::to_ne_bytes).collect();
    if has_maps(ptx) {
        params.resize(64, 0);
        for (_, element, first, extent, row) in MAPS {
            let address = if first { input } else { output };
            let layout = (Swizzle::None, Fill::Zeros);
            let map = TensorMap::of(element, address, &[extent], &[], &[row], layout).unwrap();
            params.extend(map.to_bytes());
        }
    }
    let (grid, block) = ([twin.blocks, 1, 1], [twin.threads, 1, 1]);
    let config = LaunchConfig { grid, block, dynamic_shared: 0 };
    let mut launched = device.launch(&kernel, config, &params);
    if launched.is_ok() && ptx.contains("griddepcontrol") {
        launched = device.launch_with(&kernel, config, [1; 3], &params, early());
    }
    match launched {
        Ok(_) => None,
        Err(LaunchError::Fault(fault)) => Some(*fault),
        Err(other) => panic!("{}: {other}", twin.name),
    }
}

/// What is wrong with how `twin` runs under `schedule`, if anything.
fn judge(twin: &Twin, own: Checks, schedule: Schedule, isa: Isa) -> Option<String> {
    let (buggy, clean) = (module(twin.body, "BUG|"), module(twin.body, "FIX|"));
    if let Some(fault) = run(&clean, twin, Checks::ALL, schedule, isa) {
        return Some(format!("the clean twin of `{}`, {schedule}: {fault}", twin.name));
    }
    if run(&buggy, twin, Checks::ALL, schedule, isa).is_none() {
        return Some(format!("`{}`, {schedule}: not found by all checks", twin.name));
    }
    let goes_on = device(own, schedule, isa, 100);
    let ended = run_on(&goes_on, &buggy, twin);
    let found = goes_on.findings();
    if !found.iter().any(|finding| twin.found.split('|').any(|name| name == finding.name())) {
        return Some(format!(
            "`{}`, {schedule}: not among what it goes on after: {found}",
            twin.name
        ));
    }
    if GOES_ON_AFTER.contains(&twin.found)
        && ended.is_some_and(|fault| fault.kind.name() == twin.found)
    {
        return Some(format!("`{}`, {schedule}: it does not go on", twin.name));
    }
    match run(&buggy, twin, own, schedule, isa) {
        None => Some(format!("`{}`, {schedule}: not found", twin.name)),
        Some(fault) if twin.found.split('|').any(|found| found == fault.kind.name()) => None,
        Some(fault) => Some(format!("`{}`, {schedule}: {fault}", twin.name)),
    }
}

/// Every bug of `twins` is found by the checks `own`, under every schedule, and nothing in their
/// clean twins by any.
fn check(twins: &[Twin], own: Checks) {
    let each = twins.iter().flat_map(|twin| {
        let schedules = SCHEDULES.iter().map(move |&schedule| (twin, schedule));
        schedules.flat_map(|(twin, schedule)| {
            [Isa::Auto, Isa::Avx2, Isa::Portable].map(|isa| judge(twin, own, schedule, isa))
        })
    });
    let wrong: Vec<String> = each.flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
