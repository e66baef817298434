//! The probes of `fixture/src/convergence.rs`: each convergent instruction is in the PTX once, and
//! the kernels compute what they should, on the GPU if there is one, else on the software device.

use std::sync::Mutex;

use cuda_builder::{CudaArch, ptx};
use cust::context::Context;
use cust::device::Device;
use cust::launch;
use cust::memory::{CopyDestination, DeviceBuffer};
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use ptx_syntax::outline::{self, StatementText};

mod common;

const THREADS: usize = 128;
const ROUNDS: usize = 3;

/// Flags above this count as set, in the first round.
const LEAST: u32 = 1;

/// What a probe's call gives thread `i`, when the block's threads have these values.
type Expected = fn(i: usize, values: &[u32; THREADS]) -> u32;

/// A probe: its kernel, its instruction, how often that stands in the PTX, and what it gives.
struct Probe(&'static str, &'static str, usize, Expected);

const BOTH: &[Probe] = &[
    Probe("ldmatrix", "ldmatrix.sync.aligned.m8n8.x1.shared.b16", 1, |i, v| {
        (v[i / 32 * 32 + i % 32 / 4] & 0xffff) * 0x1_0001
    }),
    Probe("mma_bf16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 1, own),
    Probe("mma_f16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 1, own),
    Probe("mma_tf32", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 1, own),
    Probe("sync_threads", "barrier.sync", 1, own),
    Probe("sync_threads_aligned", "bar.sync", 1, own),
    Probe("sync_threads_count", "barrier.red.popc.u32", 1, |_, v| count(v, |x| x % 3 == 0)),
    Probe("sync_threads_and", "barrier.red.and.pred", 1, |_, v| v.iter().all(|x| *x < 500).into()),
    Probe("sync_threads_or", "barrier.red.or.pred", 1, |_, v| v.contains(&7).into()),
    Probe("named_barrier_sync", "barrier.sync", 1, own),
    Probe("sync_warp", "bar.warp.sync", 1, own),
    Probe("activemask", "activemask.b32", 1, |i, v| v[i] & 1),
    Probe("shuffle_up", "shfl.sync.up.b32", 1, |i, v| v[if i % 32 < 1 { i } else { i - 1 }]),
    Probe("shuffle_down", "shfl.sync.down.b32", 1, |i, v| v[if i % 32 > 29 { i } else { i + 2 }]),
    Probe("shuffle_idx", "shfl.sync.idx.b32", 1, |i, v| v[i / 32 * 32 + 5]),
    Probe("shuffle_xor", "shfl.sync.bfly.b32", 1, |i, v| v[i ^ 3]),
    Probe("vote_all", "vote.sync.all.pred", 1, |i, v| warp(i, v).iter().all(|x| *x < 100).into()),
    Probe("vote_any", "vote.sync.any.pred", 1, |i, v| warp(i, v).contains(&7).into()),
    Probe("vote_ballot", "vote.sync.ballot.b32", 1, |i, v| lanes(i, v, |x| x % 3 == 0)),
    Probe("match_any", "match.any.sync.b32", 1, |i, v| lanes(i, v, |x| x % 4 == v[i] % 4)),
    Probe("match_all", "match.all.sync.b32", 1, |i, v| {
        warp(i, v).iter().all(|x| x / 4 == v[i] / 4).into()
    }),
    Probe("match_any_64", "match.any.sync.b64", 1, |i, v| lanes(i, v, |x| x % 4 == v[i] % 4)),
    Probe("match_all_64", "match.all.sync.b64", 1, |i, v| {
        warp(i, v).iter().all(|x| x / 4 == v[i] / 4).into()
    }),
    Probe("reduce", "redux.sync.max.u32", 1, |i, v| *warp(i, v).iter().max().unwrap()),
    Probe("warp_sum", "shfl.sync.bfly.b32", 5, |i, v| warp(i, v).iter().sum()),
    Probe("not_inlined", "call.uni", 1, |_, v| count(v, |x| x % 3 == 0)),
];

const HOPPER: &[Probe] = &[
    Probe("stmatrix", "stmatrix.sync.aligned.m8n8.x1.shared.b16", 1, own),
    Probe("elect_sync", "elect.sync", 1, |_, _| 1),
    Probe("cluster_sync", "barrier.cluster.arrive", 1, own),
    Probe("cluster_arrive", "barrier.cluster.wait", 1, own),
    Probe("warpgroup_reg_dealloc", "setmaxnreg.dec.sync.aligned.u32", 1, own),
    Probe("warpgroup_reg_alloc", "setmaxnreg.inc.sync.aligned.u32", 1, own),
];

fn own(i: usize, values: &[u32; THREADS]) -> u32 {
    values[i]
}

fn count(values: &[u32; THREADS], holds: impl Fn(u32) -> bool) -> u32 {
    values.iter().filter(|value| holds(**value)).count() as u32
}

fn warp(i: usize, values: &[u32; THREADS]) -> &[u32] {
    &values[i / 32 * 32..][..32]
}

fn lanes(i: usize, values: &[u32; THREADS], holds: impl Fn(u32) -> bool) -> u32 {
    let bits = warp(i, values).iter().enumerate();
    bits.map(|(lane, value)| u32::from(holds(*value)) << lane).sum()
}

/// A flag differs from thread to thread, also in a warp, and from round to round.
fn flag(i: usize) -> u32 {
    i as u32 * 7 % 5
}

/// What a kernel writes in so many rounds.
fn expected(probe: &Probe, rounds: usize) -> Vec<u32> {
    let mut out = Vec::new();
    for round in 0..rounds as u32 {
        let is_set = |i: usize| flag(i) > LEAST + round;
        let values: [u32; THREADS] =
            std::array::from_fn(|i| if is_set(i) { i as u32 * 3 + 1 } else { i as u32 });
        let result = |i: usize| probe.3(i, &values);
        out.extend((0..THREADS).map(|i| result(i).wrapping_add(if is_set(i) { 0 } else { 7 })));
        out.extend((0..THREADS).map(|i| if is_set(i) { values[i] } else { 3 }));
    }
    out
}

/// How often an instruction stands in a kernel.
fn copies(text: &str, kernel: &str, instruction: &str) -> usize {
    let kernel = outline::entry(text, kernel).and_then(|entry| entry.function()).unwrap();
    let statements = kernel.body.statements();
    let is_it = |statement: &StatementText<'_>| {
        statement.instruction().is_some_and(|(opcode, _)| opcode == instruction)
    };
    statements.filter(is_it).count()
}

/// The primary context is shared by all tests.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn check(arch: CudaArch, ordinal: u32, probes: &[&Probe]) {
    let Some(text) = common::ptx("fixture", common::fixture(), arch) else { return };
    let names: Vec<String> = ptx::kernels(&text).into_iter().map(|kernel| kernel.name).collect();
    let _one = ONE_AT_A_TIME.lock();
    cust::init(cust::CudaFlags::empty()).unwrap();
    let ordinal = if cuda_driver::gpu_count().is_ok_and(|count| count > 0) { 0 } else { ordinal };
    let _context = Context::new(Device::get_device(ordinal).unwrap()).unwrap();
    let module = Module::from_ptx(&text, &[]).unwrap();
    let stream = Stream::new(StreamFlags::DEFAULT, None).unwrap();
    let flags: Vec<u32> = (0..THREADS).map(flag).collect();
    let flags = DeviceBuffer::from_slice(&flags).unwrap();

    for probe @ Probe(name, instruction, count, _) in probes {
        let in_a_loop = format!("{name}_in_a_loop");
        for (kernel, rounds) in [(*name, 1), (&*in_a_loop, ROUNDS)] {
            assert!(names.iter().any(|name| name == kernel), "{kernel} for {arch}");
            assert_eq!(copies(&text, kernel, instruction), *count, "{kernel} for {arch}");
            let function = module.get_function(kernel).unwrap();
            let out = DeviceBuffer::<u32>::zeroed(rounds * 2 * THREADS).unwrap();
            let (block, shared) = (THREADS as u32, 0);
            // SAFETY: one block of the kernel's size; the buffers are as large as it says.
            unsafe {
                let (flags, out) = (flags.as_device_ptr(), out.as_device_ptr());
                match rounds {
                    1 => launch!(function<<<1, block, shared, stream>>>(flags, out, LEAST)),
                    _ => launch!(function<<<1, block, shared, stream>>>(
                        flags,
                        out,
                        LEAST,
                        rounds as u32
                    )),
                }
                .unwrap();
            }
            stream.synchronize().unwrap();
            let mut found = vec![0; rounds * 2 * THREADS];
            out.copy_to(&mut found).unwrap();
            assert_eq!(found, expected(probe, rounds), "{kernel} for {arch}");
        }
    }
}

#[test]
fn convergent_instructions_stay_one_for_sm_80() {
    check(CudaArch::Sm80, cuda_driver::soft_ordinal(), &BOTH.iter().collect::<Vec<_>>());
}

#[test]
fn convergent_instructions_stay_one_for_sm_90a() {
    let probes: Vec<_> = BOTH.iter().chain(HOPPER).collect();
    check(CudaArch::Sm90a, cuda_driver::soft_sm90_ordinal(), &probes);
}
