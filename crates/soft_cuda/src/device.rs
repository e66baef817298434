//! The device, its modules and its kernels.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{LoadError, MemoryError, quoted};
use crate::exec::Path;
use crate::exec::block::{BlockError, Launch, Worker};
use crate::exec::warp::WarpFault;
use crate::fault::{Fault, FaultKind, InvalidLaunch, LaunchError};
use crate::lower::{self, Lowered};
use crate::memory::Memory;
use crate::ptx;
use crate::ptx::ast::{Init, Space, Variable};

/// The most threads in a block.
pub const MAX_THREADS_PER_BLOCK: u32 = 1024;
/// The largest block in each dimension.
pub const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// The largest grid in each dimension.
pub const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// The most static shared memory of a block, in bytes.
pub const MAX_STATIC_SHARED: u32 = 48 << 10;
/// The most shared memory of a block, static and dynamic together, in bytes.
pub const MAX_SHARED: u32 = 227 << 10;

/// Which host instructions the device uses. The results are the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Isa {
    /// AVX2 and FMA if the host has them.
    #[default]
    Auto,
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
    /// checked after some ten thousand instructions of a block, where a round of
    /// a loop ends, and at the block's end, so a launch may run a little longer.
    /// `None`, the default: no limit.
    pub instruction_budget: Option<u64>,
    /// Host threads that run blocks; `None`: one per core, or as many as `RAYON_NUM_THREADS` says
    /// if that is fewer.
    pub host_threads: Option<NonZero<usize>>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            sm_count: 132,
            total_memory: 80 << 30,
            isa: Isa::Auto,
            instruction_budget: None,
            host_threads: None,
        }
    }
}

/// How a kernel is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory per block.
    pub dynamic_shared: u32,
}

/// What a launch did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchReport {
    /// PTX instructions executed, counted once per warp.
    pub warp_instructions: u64,
    /// PTX instructions executed, counted once per active thread.
    pub thread_instructions: u64,
    /// Bytes that bulk copies moved, what they filled in outside of a tensor
    /// included.
    pub bulk_bytes: u64,
    /// Time on the host. It says nothing about a GPU.
    pub elapsed: Duration,
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
    /// Held by the launch that runs.
    running: Mutex<()>,
    /// The threads that run blocks; `None` if the host refused to start any.
    pool: OnceLock<Option<rayon::ThreadPool>>,
    blocks_done: AtomicU64,
    blocks_total: AtomicU64,
}

impl Device {
    /// A device with nothing allocated.
    pub fn new(config: Config) -> Device {
        Device {
            path: path(config.isa),
            memory: Arc::new(Memory::new(config.total_memory)),
            running: Mutex::new(()),
            pool: OnceLock::new(),
            blocks_done: AtomicU64::new(0),
            blocks_total: AtomicU64::new(0),
            config,
        }
    }

    /// What the device was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The host instructions in use: `"AVX2"` or `"portable"`.
    pub fn isa_name(&self) -> &'static str {
        match self.path {
            Path::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => "AVX2",
        }
    }

    /// Allocates `bytes` bytes of zeroed device memory and returns its
    /// address, a multiple of 256. The address is never handed out again.
    ///
    /// # Errors
    /// [`MemoryError::ZeroSize`] and [`MemoryError::OutOfMemory`].
    pub fn alloc(&self, bytes: u64) -> Result<u64, MemoryError> {
        self.memory.alloc(bytes)
    }

    /// Frees an allocation by the address that [`alloc`](Device::alloc) returned.
    ///
    /// # Errors
    /// [`MemoryError::NotAnAllocation`], also for a second free.
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        self.memory.free(address)
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
        self.memory.read(address, dst)
    }

    /// Writes device memory.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] if the range is not inside one allocation.
    pub fn write(&self, address: u64, src: &[u8]) -> Result<(), MemoryError> {
        self.memory.write(address, src)
    }

    /// Copies `bytes` bytes inside device memory; the ranges may overlap.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] if a range is not inside one allocation.
    pub fn copy(&self, dst: u64, src: u64, bytes: u64) -> Result<(), MemoryError> {
        self.memory.copy(dst, src, bytes)
    }

    /// Writes `value` to `count` bytes.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] if the range is not inside one allocation.
    pub fn fill_u8(&self, address: u64, value: u8, count: u64) -> Result<(), MemoryError> {
        self.memory.fill(address, [value], count)
    }

    /// Writes `value` to `count` 2-byte words.
    ///
    /// # Errors
    /// As for [`fill_u8`](Device::fill_u8), and [`MemoryError::Misaligned`].
    pub fn fill_u16(&self, address: u64, value: u16, count: u64) -> Result<(), MemoryError> {
        self.memory.fill(address, value.to_ne_bytes(), count)
    }

    /// Writes `value` to `count` 4-byte words.
    ///
    /// # Errors
    /// As for [`fill_u16`](Device::fill_u16).
    pub fn fill_u32(&self, address: u64, value: u32, count: u64) -> Result<(), MemoryError> {
        self.memory.fill(address, value.to_ne_bytes(), count)
    }

    /// Whether `address` lies in a live allocation.
    pub fn contains(&self, address: u64) -> bool {
        self.memory.find(address).is_some()
    }

    /// Base address and bytes of the live allocation that `address` lies in.
    pub fn allocation_of(&self, address: u64) -> Option<(u64, u64)> {
        self.memory.find(address).map(|found| (found.base, found.size))
    }

    /// Loads a PTX module: decodes all its kernels, and allocates and
    /// initialises its variables.
    ///
    /// # Errors
    /// A [`LoadError`] names the line. Nothing is skipped: an instruction the
    /// device does not know is an error here, whether or not it would run.
    pub fn load(&self, ptx: &str) -> Result<Module, LoadError> {
        let ast = ptx::parse(ptx)?;
        let text: Arc<[String]> = ptx.lines().map(|line| line.trim().to_owned()).collect();
        let mut globals = Globals { memory: self.memory.clone(), variables: HashMap::new() };
        globals.place(&ast.variables)?;
        let globals = Arc::new(globals);
        let address = |name: &str| globals.variables.get(name).map(|&(address, _)| address);
        let index = lower::Index::new(&ast, address)?;
        let mut kernels: Vec<Arc<Kernel>> = Vec::new();
        let mut by_name = HashMap::new();
        for function in ast.functions.iter().filter(|f| f.entry && f.body.is_some()) {
            let name = function.name.clone();
            if by_name.insert(name.clone(), kernels.len()).is_some() {
                return Err(LoadError::Redeclared { line: function.line, name });
            }
            let lowered = lower::lower(&ast, &index, function, self.path, text.clone())?;
            let offsets = lower::parameter_offsets(&function.params);
            let params = function.params.iter().zip(offsets).map(|(param, offset)| Param {
                offset: offset as usize,
                size: (param.element * param.count.unwrap_or(0)) as usize,
                align: param.align as usize,
            });
            kernels.push(Arc::new(Kernel {
                name,
                params: params.collect(),
                max_block: function.max_threads,
                required_block: function.required_threads,
                min_blocks_per_sm: function.min_blocks_per_sm,
                lowered,
                globals: globals.clone(),
            }));
        }
        Ok(Module { target: ast.target, kernels, by_name, globals })
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
        let started = Instant::now();
        let shared_bytes = kernel
            .check(config, params)
            .map_err(|reason| LaunchError::Invalid { kernel: kernel.name.clone(), reason })?;
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut words = vec![0u64; params.len().div_ceil(8)];
        for (word, bytes) in words.iter_mut().zip(params.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(padded);
        }
        let snapshot = self.memory.snapshot();
        let launch = Launch {
            code: &kernel.lowered.code,
            grid: config.grid,
            block: config.block,
            shared_bytes,
            dynamic_shared: config.dynamic_shared,
            params: &words,
            params_size: params.len() as u32,
            snapshot: &snapshot,
            memory: &self.memory,
            sm_count: self.config.sm_count.max(1),
            budget: self.config.instruction_budget,
            executed: AtomicU64::new(0),
            last: AtomicU64::new(u64::MAX),
            started,
        };
        let blocks: u64 = config.grid.iter().map(|&n| u64::from(n)).product();
        self.blocks_done.store(0, Relaxed);
        self.blocks_total.store(blocks, Relaxed);
        let run = Run {
            launch: &launch,
            blocks,
            next: AtomicU64::new(0),
            done: &self.blocks_done,
            executed: Mutex::new((0, 0, 0)),
            fault: Mutex::new(None),
            workers: AtomicU64::new(0),
        };
        match self.pool().filter(|_| blocks > 1) {
            Some(pool) => {
                pool.broadcast(|_| run.work());
            }
            None => run.work(),
        }
        if run.workers.load(Relaxed) == 0 {
            let reason = InvalidLaunch::ThreadState { bytes: launch.state_bytes() };
            return Err(LaunchError::Invalid { kernel: kernel.name.clone(), reason });
        }
        let fault = run.fault.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some((block, warp, fault)) = fault {
            return Err(LaunchError::Fault(Box::new(kernel.fault(&launch, block, warp, fault))));
        }
        let (warp_instructions, thread_instructions, bulk_bytes) =
            run.executed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let elapsed = started.elapsed();
        Ok(LaunchReport { warp_instructions, thread_instructions, bulk_bytes, elapsed })
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
            let threads = self.config.host_threads.map_or_else(one_per_core, NonZero::get);
            let name = |i| format!("soft_cuda {i}");
            rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build().ok()
        };
        self.pool.get_or_init(build).as_ref()
    }
}

/// As many threads as this machine runs at once, or fewer if `RAYON_NUM_THREADS` says so: more
/// only take turns, and starting thousands takes minutes.
fn one_per_core() -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    threads(std::env::var("RAYON_NUM_THREADS").ok().as_deref(), cores)
}

fn threads(wanted: Option<&str>, cores: usize) -> usize {
    let wanted = wanted.and_then(|text| text.parse().ok()).filter(|threads| *threads > 0);
    wanted.map_or(cores, |threads: usize| threads.min(cores))
}

/// One launch, as its threads share it.
struct Run<'k> {
    launch: &'k Launch<'k>,
    blocks: u64,
    /// The first block that nobody has taken.
    next: AtomicU64,
    done: &'k AtomicU64,
    /// Warp and thread instructions, bytes of bulk copies.
    executed: Mutex<(u64, u64, u64)>,
    /// Block, warp and fault of the first block that faulted.
    fault: Mutex<Option<(u64, u32, WarpFault)>>,
    /// Threads that found memory to work with; one is enough.
    workers: AtomicU64,
}

impl Run<'_> {
    /// Runs blocks until there are no more.
    fn work(&self) {
        let Some(mut worker) = Worker::new(self.launch) else { return };
        self.workers.fetch_add(1, Relaxed);
        loop {
            let block = self.next.fetch_add(1, Relaxed);
            if block >= self.blocks || block > self.launch.last.load(Relaxed) {
                break;
            }
            match worker.run(block) {
                Ok(()) => {
                    self.done.fetch_add(1, Relaxed);
                }
                Err(BlockError::Abandoned) => break,
                Err(BlockError::Fault { warp, fault }) => {
                    // Blocks before this one still run to their end, so that
                    // the fault reported does not depend on timing.
                    self.launch.last.fetch_min(block, Relaxed);
                    let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
                    // The budget is the launch's: that it ran out while this block was
                    // running says less than what another block did wrong.
                    let rank = |fault: &WarpFault, block| {
                        (matches!(fault.kind, FaultKind::BudgetExceeded { .. }), block)
                    };
                    if first
                        .as_ref()
                        .is_none_or(|(other, _, its)| rank(&fault, block) < rank(its, *other))
                    {
                        *first = Some((block, warp, fault));
                    }
                    break;
                }
            }
        }
        let executed = worker.executed();
        let mut total = self.executed.lock().unwrap_or_else(PoisonError::into_inner);
        total.0 += executed.warp;
        total.1 += executed.thread;
        total.2 += worker.bulk_bytes();
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
        if isa == Isa::Auto && avx2 {
            return Path::Avx2;
        }
    }
    let _ = isa;
    Path::Portable
}

/// A loaded module. Its variables live as long as it or one of its kernels.
#[derive(Debug)]
pub struct Module {
    target: String,
    kernels: Vec<Arc<Kernel>>,
    /// Places in `kernels`.
    by_name: HashMap<String, usize>,
    globals: Arc<Globals>,
}

impl Module {
    /// The architecture that the text is written for, such as `sm_90a`. The
    /// device loads those of all GPUs.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// All kernels, in the order of the text.
    pub fn kernels(&self) -> &[Arc<Kernel>] {
        &self.kernels
    }

    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<Arc<Kernel>> {
        Some(self.kernels[*self.by_name.get(name)?].clone())
    }

    /// Address and bytes of a `.global` or `.const` variable.
    pub fn global(&self, name: &str) -> Option<(u64, u64)> {
        self.globals.variables.get(name).copied()
    }
}

/// The module-scope variables, freed when nobody uses them any longer.
#[derive(Debug)]
struct Globals {
    memory: Arc<Memory>,
    /// Address and bytes.
    variables: HashMap<String, (u64, u64)>,
}

impl Globals {
    fn place(&mut self, variables: &[Variable]) -> Result<(), LoadError> {
        let in_memory = |v: &&Variable| matches!(v.space, Space::Global | Space::Const);
        for variable in variables.iter().filter(in_memory) {
            let (line, name) = (variable.line, variable.name.clone());
            if variable.external {
                return Err(LoadError::Undeclared { line, name });
            }
            let bytes = variable.element * variable.count.unwrap_or(0);
            let address = self.memory.alloc(bytes.max(1)).map_err(|source| LoadError::Memory {
                line,
                name: name.clone(),
                source,
            })?;
            if self.variables.insert(name.clone(), (address, bytes)).is_some() {
                return Err(LoadError::Redeclared { line, name });
            }
        }
        for variable in variables.iter().filter(in_memory).filter(|v| !v.init.is_empty()) {
            let (line, name) = (variable.line, variable.name.clone());
            let mut bytes = Vec::new();
            for init in &variable.init {
                match init {
                    Init::Bits(bits, size) => {
                        bytes.extend_from_slice(&bits.to_le_bytes()[..usize::from(*size)]);
                    }
                    Init::Address(name, offset) => match self.variables.get(name) {
                        Some(&(address, _)) => {
                            bytes.extend(address.wrapping_add_signed(*offset).to_le_bytes());
                        }
                        None => {
                            return Err(LoadError::Undeclared { line, name: name.clone() });
                        }
                    },
                }
            }
            let Some(&(address, _)) = self.variables.get(&name) else { continue };
            self.memory.write(address, &bytes).map_err(|source| LoadError::Memory {
                line,
                name,
                source,
            })?;
        }
        Ok(())
    }
}

impl Drop for Globals {
    fn drop(&mut self) {
        for &(address, _) in self.variables.values() {
            // Someone may have freed it by its address already.
            let _ = self.memory.free(address);
        }
    }
}

/// One kernel parameter, in the bytes passed to [`Device::launch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// Byte offset.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
}

/// A decoded kernel.
pub struct Kernel {
    name: String,
    params: Vec<Param>,
    max_block: Option<[u32; 3]>,
    required_block: Option<[u32; 3]>,
    min_blocks_per_sm: Option<u32>,
    lowered: Lowered,
    /// Keeps the variables that the code refers to by address.
    #[expect(dead_code, reason = "held for its Drop")]
    globals: Arc<Globals>,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Kernel {
    /// The name in the PTX.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parameters, in order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Bytes that [`Device::launch`] takes for the parameters.
    pub fn params_size(&self) -> usize {
        self.params.last().map_or(0, |last| last.offset + last.size)
    }

    /// Bytes of static shared memory per block.
    pub fn static_shared_bytes(&self) -> u32 {
        self.lowered.static_shared
    }

    /// Bytes of local memory per thread.
    pub fn local_bytes(&self) -> u32 {
        self.lowered.code.local_bytes
    }

    /// The most threads that a block of this kernel may have.
    pub fn max_threads(&self) -> u32 {
        let product = |block: [u32; 3]| block.iter().fold(1u32, |n, &x| n.saturating_mul(x));
        let own = self.required_block.or(self.max_block).map_or(MAX_THREADS_PER_BLOCK, product);
        own.min(MAX_THREADS_PER_BLOCK)
    }

    /// `.reqntid`: the only block shape the kernel may be launched with.
    pub fn required_block(&self) -> Option<[u32; 3]> {
        self.required_block
    }

    /// `.maxntid`: the product is the most threads a block may have.
    pub fn max_block(&self) -> Option<[u32; 3]> {
        self.max_block
    }

    /// `.minnctapersm`.
    pub fn min_blocks_per_sm(&self) -> Option<u32> {
        self.min_blocks_per_sm
    }

    /// Bytes of registers that one warp has on this device after registers
    /// that never live at the same time were merged.
    pub fn warp_register_bytes(&self) -> usize {
        self.lowered.code.register_bytes
    }

    /// Checks a launch, and returns the bytes of shared memory per block.
    fn check(&self, config: LaunchConfig, params: &[u8]) -> Result<u32, InvalidLaunch> {
        let LaunchConfig { grid, block, dynamic_shared } = config;
        let outside = |value: [u32; 3], limit: [u32; 3]| {
            value.iter().zip(limit).any(|(&v, limit)| v == 0 || v > limit)
        };
        if outside(grid, MAX_GRID) {
            return Err(InvalidLaunch::Grid { grid, limit: MAX_GRID });
        }
        let threads: u64 = block.iter().map(|&n| u64::from(n)).product();
        if outside(block, MAX_BLOCK) || threads > u64::from(MAX_THREADS_PER_BLOCK) {
            let (limit, threads) = (MAX_BLOCK, MAX_THREADS_PER_BLOCK);
            return Err(InvalidLaunch::Block { block, limit, threads });
        }
        let threads = threads as u32;
        if let Some(required) = self.required_block
            && required != block
        {
            return Err(InvalidLaunch::RequiredBlock { block, required });
        }
        let limit = self.max_threads();
        if threads > limit {
            return Err(InvalidLaunch::TooManyThreads { block, threads, limit });
        }
        let fixed = self.lowered.static_shared;
        let start = self.lowered.dynamic_shared_at.unwrap_or(fixed);
        let bytes = u64::from(start) + u64::from(dynamic_shared);
        let over =
            |limit| InvalidLaunch::SharedMemory { bytes, fixed, dynamic: dynamic_shared, limit };
        if fixed > MAX_STATIC_SHARED {
            return Err(over(MAX_STATIC_SHARED));
        }
        if bytes > u64::from(MAX_SHARED) {
            return Err(over(MAX_SHARED));
        }
        if params.len() != self.params_size() {
            let (expected, got) = (self.params_size(), params.len());
            return Err(InvalidLaunch::Parameters { expected, got });
        }
        Ok(bytes as u32)
    }

    fn fault(&self, launch: &Launch<'_>, block: u64, warp: u32, fault: WarpFault) -> Fault {
        let text = &self.lowered.code.text;
        let line = text.get((fault.line as usize).wrapping_sub(1));
        let thread = u64::from(warp) * 32 + u64::from(fault.lane);
        Fault {
            kernel: self.name.clone(),
            line: fault.line,
            instruction: line.map(|line| quoted(line)).unwrap_or_default(),
            block: Launch::index(block, launch.grid),
            thread: Launch::index(thread, launch.block),
            kind: fault.kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::threads;

    #[test]
    fn no_more_threads_than_cores() {
        for (wanted, expected) in [
            (None, 8),
            (Some("3"), 3),
            (Some("8"), 8),
            (Some("100000"), 8),
            (Some("0"), 8),
            (Some("many"), 8),
            (Some("-1"), 8),
        ] {
            assert_eq!(threads(wanted, 8), expected, "{wanted:?}");
        }
    }
}
