//! Every object of the software device, by handle.

use std::alloc::Layout;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Instant;

use soft_cuda::{Kernel, Module, Moment, StreamOrder};

use super::device::SoftDevice;
use super::instance::device;
use super::limits::Limits;
use super::work::{StickyFault, Work};
use crate::arg::soft_handle;
use crate::codes::Answer;
use crate::ordinals::MAX_SOFT_DEVICES;
use crate::stack;
use crate::types::{CUcontext, CUresult, CUstream};

/// A context. What is only kept here to be read back has no effect.
#[derive(Default)]
pub(super) struct Context {
    pub device: SoftDevice,
    /// The contexts whose memory this one may access, by handle.
    pub peers: Vec<u64>,
    pub flags: c_uint,
    pub cache_config: c_uint,
    pub shared_config: c_uint,
    pub limits: Limits,
    pub fault: Option<StickyFault>,
}

/// A loaded module and the function handles given out for it, by kernel name.
pub(super) struct LoadedModule {
    pub context: CUcontext,
    pub module: Arc<Module>,
    pub functions: HashMap<String, u64>,
}

pub(super) struct Function {
    pub context: CUcontext,
    /// The handle of its module.
    pub module: u64,
    pub kernel: Arc<Kernel>,
    /// The most dynamic shared memory that a launch may ask for, in bytes.
    pub max_dynamic_shared: u32,
    /// The preferred share of shared memory in percent; -1 is the default.
    pub carveout: c_int,
    /// Whether clusters may be larger than on every GPU that has them.
    pub non_portable_cluster: bool,
    /// A `CUclusterSchedulingPolicy`, without effect.
    pub cluster_scheduling: c_int,
}

/// `CU_STREAM_NON_BLOCKING`: the legacy stream does not wait for such a stream.
pub(super) const NON_BLOCKING: c_uint = 1;

pub(super) struct Stream {
    pub context: CUcontext,
    pub flags: c_uint,
    pub capture: Option<Capture>,
}

impl Stream {
    /// Whether a call in the legacy stream of `context` would wait for a capture here.
    pub fn blocks_legacy(&self, context: CUcontext) -> bool {
        self.capture.is_some() && self.context == context && self.flags & NON_BLOCKING == 0
    }
}

/// What a capturing stream has recorded.
pub(super) struct Capture {
    /// The `CUstreamCaptureMode`.
    pub mode: c_uint,
    /// The thread that began it.
    pub thread: ThreadId,
    /// `None` once a forbidden call has invalidated it.
    pub work: Option<Vec<Work>>,
}

/// See [`StreamOrder`].
pub(super) struct Order {
    pub number: u64,
    pub behind: Vec<u64>,
}

impl Order {
    pub fn get(&self) -> StreamOrder<'_> {
        StreamOrder { number: self.number, behind: &self.behind }
    }

    /// The host waits for all work of the stream so far.
    pub fn synchronize(&self) {
        device().synchronize_with(&device().record(self.get()));
    }
}

pub(super) struct Graph {
    pub context: CUcontext,
    pub work: Arc<[Work]>,
}

pub(super) struct GraphExec {
    pub context: CUcontext,
    /// Locked while it runs.
    pub run: Arc<Mutex<Run>>,
}

/// The operations of a graph, and the end of its last launch.
pub(super) struct Run {
    pub work: Arc<[Work]>,
    pub ended: Moment,
}

pub(super) struct Event {
    pub context: CUcontext,
    pub timed: bool,
    pub recorded: Option<Instant>,
    /// What had ended then.
    pub moment: Moment,
}

/// All of it. Locked for look-ups and changes only, never during a launch, a
/// copy or a callback.
pub(super) struct State {
    pub contexts: BTreeMap<u64, Context>,
    pub modules: BTreeMap<u64, LoadedModule>,
    pub functions: BTreeMap<u64, Function>,
    pub streams: BTreeMap<u64, Stream>,
    pub events: BTreeMap<u64, Event>,
    pub graphs: BTreeMap<u64, Graph>,
    pub graph_execs: BTreeMap<u64, GraphExec>,
    /// The context of each allocation, by its first address.
    pub allocations: BTreeMap<u64, CUcontext>,
    /// Page-locked host memory, by address. It belongs to no context: freeing it
    /// with one would leave safe code with dangling slices.
    pub host_memory: BTreeMap<usize, Layout>,
    /// By device.
    pub primaries: [Primary; MAX_SOFT_DEVICES],
    last_id: u64,
}

/// What outlives a primary context.
#[derive(Clone, Copy)]
pub(super) struct Primary {
    /// How often it is retained.
    pub retained: usize,
    pub flags: c_uint,
}

/// The handle of a device's primary context, the same every time it is retained.
pub(super) fn primary(device: SoftDevice) -> CUcontext {
    CUcontext(soft_handle(1 + device.index() as u64))
}

/// Whether this is the primary context of some device.
pub(super) fn is_primary(context: CUcontext) -> bool {
    let first = primary(SoftDevice::default()).bits();
    (first..first + MAX_SOFT_DEVICES as u64).contains(&context.bits())
}

static STATE: Mutex<State> = Mutex::new(State {
    contexts: BTreeMap::new(),
    modules: BTreeMap::new(),
    functions: BTreeMap::new(),
    streams: BTreeMap::new(),
    events: BTreeMap::new(),
    graphs: BTreeMap::new(),
    graph_execs: BTreeMap::new(),
    allocations: BTreeMap::new(),
    host_memory: BTreeMap::new(),
    primaries: [Primary { retained: 0, flags: 0 }; MAX_SOFT_DEVICES],
    // Before it are the primary contexts.
    last_id: MAX_SOFT_DEVICES as u64,
});

/// The state. A panic leaves it usable, and poison is ignored: a change is one operation of a
/// map, or several between which nothing can panic.
pub(super) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The context that calls without a handle belong to, checked to be alive and
/// without a fault, and the locked state.
pub(super) fn current() -> Result<(CUcontext, MutexGuard<'static, State>), CUresult> {
    let context = stack::current_soft()?;
    let state = lock();
    state.healthy(context)?;
    Ok((context, state))
}

/// The context of [`current`] alone.
pub(super) fn current_context() -> Result<CUcontext, CUresult> {
    current().map(|(context, _)| context)
}

impl State {
    /// A handle that was never given out before.
    pub fn new_handle(&mut self) -> *mut c_void {
        self.last_id += 1;
        soft_handle(self.last_id)
    }

    /// The context is alive.
    pub fn context(&mut self, context: CUcontext) -> Result<&mut Context, CUresult> {
        self.contexts.get_mut(&context.bits()).ok_or(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    /// The context is alive, and no kernel has failed in it.
    pub fn healthy(&self, context: CUcontext) -> Answer {
        match self.contexts.get(&context.bits()) {
            None => Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
            Some(Context { fault: Some(fault), .. }) => Err(fault.code),
            Some(_) => Ok(()),
        }
    }

    /// The context that work in `stream` belongs to, alive and without a fault.
    pub fn context_of(&self, stream: CUstream) -> Result<CUcontext, CUresult> {
        let context = if stream.is_default() {
            stack::current_soft()?
        } else {
            self.streams.get(&stream.bits()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?.context
        };
        self.healthy(context)?;
        Ok(context)
    }

    /// The order of a stream's next work. The stream is one of `context`.
    ///
    /// The legacy stream has its context's number. It and blocking streams wait for each other.
    pub fn order(&self, stream: CUstream, context: CUcontext) -> Order {
        let legacy = context.bits();
        match self.streams.get(&stream.bits()) {
            Some(Stream { flags, .. }) if flags & NON_BLOCKING != 0 => {
                Order { number: stream.bits(), behind: Vec::new() }
            }
            Some(_) => Order { number: stream.bits(), behind: vec![legacy] },
            None => {
                let is_blocking = |of: &&Stream| of.flags & NON_BLOCKING == 0;
                Order { number: legacy, behind: self.numbers(context, is_blocking) }
            }
        }
    }

    /// The order of all work of a context.
    pub fn order_of_all(&self, context: CUcontext) -> Order {
        Order { number: context.bits(), behind: self.numbers(context, |_| true) }
    }

    fn numbers(&self, context: CUcontext, is_in: impl Fn(&&Stream) -> bool) -> Vec<u64> {
        let own = self.streams.iter().filter(|(_, stream)| stream.context == context);
        own.filter(|(_, stream)| is_in(stream)).map(|(bits, _)| *bits).collect()
    }

    /// Whether the host memory at this address came from `cuMemAllocHost`.
    pub fn is_page_locked(&self, address: usize) -> bool {
        let mut before = self.host_memory.range(..=address);
        before.next_back().is_some_and(|(base, layout)| address - base < layout.size())
    }

    /// Takes out everything that belongs to `context`; gives its allocations, for
    /// the caller to free, and its modules, for the caller to drop.
    pub fn clear(&mut self, context: CUcontext) -> (Vec<u64>, Vec<LoadedModule>) {
        self.functions.retain(|_, function| function.context != context);
        self.streams.retain(|_, stream| stream.context != context);
        self.events.retain(|_, event| event.context != context);
        self.graphs.retain(|_, graph| graph.context != context);
        self.graph_execs.retain(|_, exec| exec.context != context);
        self.contexts.values_mut().for_each(|of| of.peers.retain(|peer| *peer != context.bits()));
        let allocations =
            self.allocations.extract_if(.., |_, owner| *owner == context).map(|(at, _)| at);
        let modules = self.modules.extract_if(.., |_, module| module.context == context);
        (allocations.collect(), modules.map(|(_, module)| module).collect())
    }
}
