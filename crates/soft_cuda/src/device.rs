//! The device: its configuration, its memory, and one launch after the other.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use crate::checks::{Checks, Schedule};
use crate::error::{LoadError, MemoryError};
use crate::exec::Path;
use crate::exec::block::Launch;
use crate::exec::checker::LaunchChecks;
use crate::exec::machine::ClusterShape;
use crate::exec::prior::Prior;
use crate::exec::recorder::{Found, Recorder};
use crate::fault::{Access, Earlier};
use crate::findings::Findings;
use crate::heap::Heap;
use crate::kernel::{Kernel, LaunchConfig};
use crate::launch::{self, LaunchReport};
use crate::launch_error::LaunchError;
use crate::memory::Memory;
use crate::module::Module;
use crate::printer::Printer;
use crate::streams::{Begun, Moment, StreamOrder, Streams};

/// Which host instructions the device uses. The results are the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Isa {
    /// AVX-512 if the host has it, else AVX2 and FMA if it has those.
    #[default]
    Auto,
    /// AVX2 and FMA if the host has them.
    Avx2,
    /// Only what every host has.
    Portable,
}

/// What the device is like.
#[derive(Debug, Clone)]
pub struct Config {
    /// Streaming multiprocessors it reports; has no effect on speed.
    pub sm_count: u32,
    /// Bytes of device memory. Host memory is used only where it is written.
    pub total_memory: u64,
    /// Host instructions to use.
    pub isa: Isa,
    /// Warp instructions a launch may execute before it is ended with
    /// [`FaultKind::BudgetExceeded`](crate::FaultKind::BudgetExceeded). It is
    /// checked after some ten thousand instructions of a block, where an iteration of
    /// a loop ends, and at the block's end, so a launch may run a little longer.
    /// `None`, the default: no limit.
    pub instruction_budget: Option<u64>,
    /// What is checked beyond what the device always checks.
    pub checks: Checks,
    /// At how many places of a kernel a launch goes on when a check finds something wrong there
    /// that it can go on after: a race, a read of what nobody wrote, a wrong member mask. What is
    /// found at one more place ends the launch. 0, the default: whatever is found ends it.
    pub max_findings: usize,
    /// The order in which warps and blocks run.
    pub schedule: Schedule,
    /// Host threads that run blocks; `None`: as many as rayon's pool has where the first launch
    /// is, which is the program's to set.
    pub host_threads: Option<NonZero<usize>>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            sm_count: 132,
            total_memory: 80 << 30,
            isa: Isa::Auto,
            instruction_budget: None,
            checks: Checks::NONE,
            max_findings: 0,
            schedule: Schedule::InOrder,
            host_threads: None,
        }
    }
}

/// What a launch runs in: a stream, a stack and a heap.
#[derive(Debug, Clone, Copy)]
pub struct LaunchOptions<'h> {
    /// The stream.
    pub stream: StreamOrder<'h>,
    /// Whether it may begin before the launch in front of it in its stream has ended (programmatic
    /// dependent launch). Here it runs behind that all the same. Where [`Checks::races`] is set,
    /// its accesses race with those of the launch in front, unless a `griddepcontrol.wait` comes
    /// before them.
    pub early: bool,
    /// Bytes of local memory for calls of unknown depth, of functions that call themselves or are
    /// called by their address: `CU_LIMIT_STACK_SIZE`. All other calls have room in addition. 16
    /// KiB unless something else is asked for. A thread has at most 512 KiB.
    pub stack_bytes: u32,
    /// What kernels allocate from; `None`: the device's own heap, of 8 MiB.
    pub heap: Option<&'h Heap>,
}

impl Default for LaunchOptions<'_> {
    fn default() -> Self {
        LaunchOptions {
            stream: StreamOrder::default(),
            early: false,
            stack_bytes: 16 << 10,
            heap: None,
        }
    }
}

/// How far the running launch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Blocks that have finished.
    pub blocks_done: u64,
    /// Blocks of the launch; 0 before the first one.
    pub blocks_total: u64,
}

/// A software CUDA device.
///
/// All methods take `&self` and may be called from several threads; launches
/// then run one after the other.
#[derive(Debug)]
pub struct Device {
    config: Config,
    path: Path,
    memory: Arc<Memory>,
    heap: Heap,
    /// Held by the launch that runs.
    running: Mutex<()>,
    /// The threads that run blocks; `None` if the host refused to start any.
    pool: OnceLock<Option<rayon::ThreadPool>>,
    blocks_done: AtomicU64,
    blocks_total: AtomicU64,
    printer: Printer,
    findings: Mutex<Findings>,
    streams: Mutex<Streams>,
}

impl Device {
    /// A device with nothing allocated.
    pub fn new(config: Config) -> Device {
        Device {
            path: path(config.isa),
            memory: Arc::new(Memory::new(config.total_memory, config.checks.memory)),
            heap: Heap::default(),
            running: Mutex::new(()),
            pool: OnceLock::new(),
            blocks_done: AtomicU64::new(0),
            blocks_total: AtomicU64::new(0),
            printer: Printer::default(),
            findings: Mutex::default(),
            streams: Mutex::default(),
            config,
        }
    }

    /// What the device was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The host instructions in use: `"AVX-512"`, `"AVX2"` or `"portable"`.
    pub fn isa_name(&self) -> &'static str {
        match self.path {
            Path::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 => "AVX-512",
        }
    }

    /// Allocates `bytes` bytes of zeroed device memory and returns its
    /// address, a multiple of 256. The address is never handed out again.
    ///
    /// # Errors
    /// [`MemoryError::ZeroSize`] and [`MemoryError::OutOfMemory`].
    pub fn alloc(&self, bytes: u64) -> Result<u64, MemoryError> {
        self.alloc_for("alloc", bytes)
    }

    /// As [`alloc`](Device::alloc), on behalf of the function `name`, which findings name.
    ///
    /// # Errors
    /// Those of [`alloc`](Device::alloc).
    pub fn alloc_for(&self, name: &'static str, bytes: u64) -> Result<u64, MemoryError> {
        self.memory.alloc(name, bytes)
    }

    /// Frees an allocation by the address that [`alloc`](Device::alloc) returned.
    ///
    /// # Errors
    /// [`MemoryError::NotAnAllocation`], and [`MemoryError::FreedTwice`].
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        self.free_for("free", address)
    }

    /// As [`free`](Device::free), on behalf of the function `name`, which findings name.
    ///
    /// # Errors
    /// Those of [`free`](Device::free).
    pub fn free_for(&self, name: &'static str, address: u64) -> Result<(), MemoryError> {
        self.memory.free(name, address)
    }

    /// Bytes free, and bytes in all.
    pub fn memory_info(&self) -> (u64, u64) {
        self.memory.info()
    }

    /// Reads device memory.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] if the range is not inside one allocation.
    pub fn read(&self, address: u64, dst: &mut [u8]) -> Result<(), MemoryError> {
        self.synchronize();
        self.memory.read(address, dst)
    }

    /// Writes device memory.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] if the range is not inside one allocation.
    pub fn write(&self, address: u64, src: &[u8]) -> Result<(), MemoryError> {
        self.synchronize();
        self.memory.write(address, src)
    }

    /// Copies `bytes` bytes inside device memory; the ranges may overlap.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] if a range is not inside one allocation.
    pub fn copy(&self, dst: u64, src: u64, bytes: u64) -> Result<(), MemoryError> {
        self.synchronize();
        self.memory.copy(dst, src, bytes)
    }

    /// Writes `value` to `count` bytes.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] if the range is not inside one allocation.
    pub fn fill_u8(&self, address: u64, value: u8, count: u64) -> Result<(), MemoryError> {
        self.synchronize();
        self.memory.fill(address, [value], count)
    }

    /// Writes `value` to `count` 2-byte words.
    ///
    /// # Errors
    /// As for [`fill_u8`](Device::fill_u8), and [`MemoryError::Misaligned`].
    pub fn fill_u16(&self, address: u64, value: u16, count: u64) -> Result<(), MemoryError> {
        self.synchronize();
        self.memory.fill(address, value.to_ne_bytes(), count)
    }

    /// Writes `value` to `count` 4-byte words.
    ///
    /// # Errors
    /// As for [`fill_u16`](Device::fill_u16).
    pub fn fill_u32(&self, address: u64, value: u32, count: u64) -> Result<(), MemoryError> {
        self.synchronize();
        self.memory.fill(address, value.to_ne_bytes(), count)
    }

    /// Whether `address` lies in a live allocation.
    pub fn contains(&self, address: u64) -> bool {
        self.memory.find(address).is_some()
    }

    /// Base address and bytes of every live allocation, by address.
    pub fn live_allocations(&self) -> Vec<(u64, u64)> {
        self.memory.live()
    }

    /// Base address and bytes of the live allocation that `address` lies in.
    pub fn allocation_of(&self, address: u64) -> Option<(u64, u64)> {
        self.memory.find(address).map(|found| (found.base, found.size))
    }

    /// Loads a PTX module: allocates and initialises its variables. Its kernels are decoded when
    /// [`Module::kernel`] is asked for them.
    ///
    /// # Errors
    /// A [`LoadError`] names the line of what is wrong outside of functions. What is wrong in a
    /// function is an error of the kernels that may call it.
    pub fn load(&self, ptx: &str) -> Result<Module, LoadError> {
        Module::load(ptx, &self.memory, self.path, self.config.checks)
    }

    /// Runs a kernel to its end: blocks in parallel on the host's cores.
    ///
    /// `params` are the parameters as PTX lays them out, see
    /// [`Kernel::params`].
    ///
    /// # Errors
    /// [`LaunchError::Invalid`] if the configuration does not fit, before
    /// anything runs. [`LaunchError::Fault`] if the kernel breaks a rule; of
    /// several blocks that do, the one with the lowest index is reported, unless it would
    /// take millions of instructions more to come to that.
    pub fn launch(
        &self,
        kernel: &Kernel,
        config: LaunchConfig,
        params: &[u8],
    ) -> Result<LaunchReport, LaunchError> {
        let cluster = kernel
            .cluster_for(None)
            .map_err(|reason| LaunchError::Invalid { kernel: kernel.name.clone(), reason })?;
        self.launch_in_clusters(kernel, config, cluster, params)
    }

    /// As [`launch`](Device::launch), with so many blocks in x, y and z for each cluster: those
    /// that the PTX requires, or any if the kernel [takes them](Kernel::takes_clusters) from the
    /// launch.
    ///
    /// # Errors
    /// As there.
    pub fn launch_in_clusters(
        &self,
        kernel: &Kernel,
        config: LaunchConfig,
        cluster: [u32; 3],
        params: &[u8],
    ) -> Result<LaunchReport, LaunchError> {
        self.launch_with(kernel, config, cluster, params, LaunchOptions::default())
    }

    /// The order of streams, if it counts.
    fn streams(&self) -> Option<MutexGuard<'_, Streams>> {
        // No change is left half-done.
        let streams = || self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        self.config.checks.races.then(streams)
    }

    /// Says that all work so far has ended, as after the host has waited for all streams. Accesses
    /// outside of streams, such as [`Device::read`], say so, too.
    pub fn synchronize(&self) {
        if let Some(mut streams) = self.streams() {
            streams.synchronize_all();
        }
    }

    /// Says that the host waits for a moment, as for an event.
    pub fn synchronize_with(&self, moment: &Moment) {
        if let Some(mut streams) = self.streams() {
            streams.synchronize(moment);
        }
    }

    /// What has ended when the work so far in a stream has, as an event records it.
    pub fn record(&self, order: StreamOrder<'_>) -> Moment {
        self.streams().map_or_else(Moment::default, |mut streams| streams.record(order))
    }

    /// Says that later work in a stream comes after a moment, as a wait for an event does.
    pub fn wait(&self, order: StreamOrder<'_>, moment: &Moment) {
        if let Some(mut streams) = self.streams() {
            streams.wait(order, moment);
        }
    }

    /// Ends a stream. Its work goes on, and the stream `heir` waits for it.
    pub fn end_stream(&self, stream: u64, heir: Option<u64>) {
        if let Some(mut streams) = self.streams() {
            streams.end(stream, heir);
        }
    }

    /// Memory as a stream accesses it.
    pub fn in_stream<'d>(&'d self, order: StreamOrder<'d>) -> InStream<'d> {
        InStream { device: self, order }
    }

    /// As [`launch_in_clusters`](Device::launch_in_clusters), in a stream, with a stack and a heap
    /// of its own: see [`LaunchOptions`].
    ///
    /// # Errors
    /// As there.
    pub fn launch_with(
        &self,
        kernel: &Kernel,
        config: LaunchConfig,
        cluster: [u32; 3],
        params: &[u8],
        options: LaunchOptions<'_>,
    ) -> Result<LaunchReport, LaunchError> {
        let LaunchOptions { stream, early, stack_bytes, heap } = options;
        let heap = heap.unwrap_or(&self.heap);
        let started = Instant::now();
        let shared_bytes = kernel
            .check(config, cluster, params)
            .map_err(|reason| LaunchError::Invalid { kernel: kernel.name.clone(), reason })?;
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.memory.note_launch();
        let begun = self.streams().map(|mut streams| streams.begin(stream));
        let Begun { step, beside, front } = begun.unwrap_or_default();
        let front = front.filter(|_| early);
        let recorder = Recorder::new(self.config.max_findings);
        let mut words = vec![0u64; params.len().div_ceil(8)];
        for (word, bytes) in words.iter_mut().zip(params.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(padded);
        }
        if kernel.lowered.code.allocates {
            heap.prepare(&self.memory);
        }
        let snapshot = self.memory.snapshot();
        let cluster = ClusterShape { grid: config.grid, dims: cluster };
        let launch = Launch {
            code: &kernel.lowered.code,
            grid: config.grid,
            block: config.block,
            cluster,
            shared_bytes,
            padding: kernel.lowered.padding,
            dynamic_shared: config.dynamic_shared,
            params: &words,
            params_size: params.len() as u32,
            snapshot: &snapshot,
            memory: &self.memory,
            heap,
            stack_bytes,
            sm_count: self.config.sm_count.max(1),
            budget: self.config.instruction_budget,
            executed: AtomicU64::new(0),
            last: AtomicU64::new(u64::MAX),
            started,
            checks: (self.config.checks != Checks::NONE).then(|| {
                let facts = &kernel.lowered.code.facts;
                LaunchChecks::new(self.config.checks, facts, &snapshot, front, beside)
            }),
            schedule: self.config.schedule,
            recorder: &recorder,
        };
        let blocks: u64 = config.grid.iter().map(|&n| u64::from(n)).product();
        self.blocks_done.store(0, Relaxed);
        self.blocks_total.store(blocks, Relaxed);
        let clusters = blocks / cluster.blocks() as u64;
        let pool = self.pool().filter(|_| clusters > 1);
        let (ended, printed) = launch::run(kernel, &launch, clusters, &self.blocks_done, pool);
        for text in printed {
            self.printer.print(&text);
        }
        let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        for Found { place, warp, fault, count } in recorder.take_found() {
            let cluster = launch.cluster_at(place, clusters);
            findings.add(kernel.fault(&launch, cluster, warp, fault), count, false);
        }
        if let Err(LaunchError::Fault(fault)) = &ended {
            findings.add((**fault).clone(), 1, true);
        }
        if ended.is_ok()
            && let Some(prior) = launch.into_prior(kernel.name())
            && let Some(mut streams) = self.streams()
        {
            streams.keep(stream.number, step, prior);
        }
        ended
    }

    /// What launches have done wrong so far: where they went on
    /// ([`Config::max_findings`]), and the faults that ended them.
    pub fn findings(&self) -> Findings {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// As [`findings`](Device::findings), and forgets them.
    pub fn take_findings(&self) -> Findings {
        std::mem::take(&mut *self.findings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes, for [`findings`](Device::findings), that the allocation at `address` was not freed
    /// before whoever owns it ended. `false` if there is none.
    pub fn note_leak(&self, address: u64) -> bool {
        let Some(found) = self.memory.find(address) else { return false };
        let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        findings.add_leak(found.base, found.size, found.allocated);
        true
    }

    /// Gives what kernels print (`vprintf`) to `take`, when a launch is over, instead of to
    /// stdout: that of one block after that of another, in the order of their index.
    pub fn print_to(&self, take: impl FnMut(&[u8]) + Send + 'static) {
        self.printer.set(Box::new(take));
    }

    /// How far the running (or last) launch is. Does not wait for anything.
    pub fn progress(&self) -> Progress {
        Progress {
            blocks_done: self.blocks_done.load(Relaxed),
            blocks_total: self.blocks_total.load(Relaxed),
        }
    }

    fn pool(&self) -> Option<&rayon::ThreadPool> {
        let build = || {
            let threads =
                self.config.host_threads.map_or_else(rayon::current_num_threads, NonZero::get);
            let name = |i| format!("soft_cuda {i}");
            rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build().ok()
        };
        self.pool.get_or_init(build).as_ref()
    }
}

fn path(isa: Isa) -> Path {
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match isa {
            Isa::Auto if avx2 && avx512 => return Path::Avx512,
            Isa::Auto | Isa::Avx2 if avx2 => return Path::Avx2,
            _ => {}
        }
    }
    let _ = isa;
    Path::Portable
}

/// Copies and fills in a stream: see [`Device::in_stream`].
///
/// Where [`Checks::races`] is set, they must not run beside other streams' work on the same bytes.
#[derive(Debug, Clone, Copy)]
pub struct InStream<'d> {
    device: &'d Device,
    order: StreamOrder<'d>,
}

impl InStream<'_> {
    /// As [`Device::read`].
    ///
    /// # Errors
    /// As there, and [`MemoryError::Race`].
    pub fn read(self, address: u64, dst: &mut [u8]) -> Result<(), MemoryError> {
        self.run(Some((address, dst.len() as u64)), None, |memory| memory.read(address, dst))
    }

    /// As [`Device::write`].
    ///
    /// # Errors
    /// As there, and [`MemoryError::Race`].
    pub fn write(self, address: u64, src: &[u8]) -> Result<(), MemoryError> {
        self.run(None, Some((address, src.len() as u64)), |memory| memory.write(address, src))
    }

    /// As [`Device::copy`].
    ///
    /// # Errors
    /// As there, and [`MemoryError::Race`].
    pub fn copy(self, dst: u64, src: u64, bytes: u64) -> Result<(), MemoryError> {
        self.run(Some((src, bytes)), Some((dst, bytes)), |memory| memory.copy(dst, src, bytes))
    }

    /// Writes `value`, of `N` bytes, `count` times.
    ///
    /// # Errors
    /// As [`Device::fill_u32`], and [`MemoryError::Race`].
    pub fn fill<const N: usize>(
        self,
        address: u64,
        value: [u8; N],
        count: u64,
    ) -> Result<(), MemoryError> {
        let bytes = (N as u64).saturating_mul(count);
        self.run(None, Some((address, bytes)), |memory| memory.fill(address, value, count))
    }

    /// Says that the whole allocation of an address begins or ends its life in the stream.
    ///
    /// # Errors
    /// [`MemoryError::Race`] if another stream may use it.
    pub fn claim(self, address: u64) -> Result<(), MemoryError> {
        self.run(None, self.device.allocation_of(address), |_| Ok(()))
    }

    /// Runs work that reads and writes ranges: their first address, and bytes. It does not run if it
    /// races.
    fn run(
        self,
        reads: Option<(u64, u64)>,
        writes: Option<(u64, u64)>,
        work: impl FnOnce(&Memory) -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        let Self { device, order } = self;
        let [reads, writes] = [reads, writes].map(|range| range.filter(|(_, bytes)| *bytes > 0));
        let Some(begun) = device.streams().map(|mut streams| streams.begin(order)) else {
            return work(&device.memory);
        };
        for (range, access) in [(reads, Access::Load), (writes, Access::Store)] {
            let Some(range) = range else { continue };
            let mut beside = begun.beside.iter();
            if let Some((address, earlier)) =
                beside.find_map(|prior| prior.conflict_with(range, access))
            {
                let earlier = Box::new(Earlier { is_beside: true, ..earlier });
                return Err(MemoryError::Race { address, access, earlier });
            }
        }
        work(&device.memory)?;
        if let Some(mut streams) = device.streams() {
            streams.keep(order.number, begun.step, Prior::Copy { reads, writes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_are_those_of_the_config_or_of_the_pool() {
        let threads = |host_threads| {
            let device = Device::new(Config { host_threads, ..Config::default() });
            device.pool().map(rayon::ThreadPool::current_num_threads)
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        assert_eq!(pool.install(|| threads(None)), Some(3));
        assert_eq!(pool.install(|| threads(NonZero::new(2))), Some(2));
    }
}
