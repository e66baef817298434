//! Attributes and occupancy of kernels on the software device.

use std::ffi::{c_int, c_uint};

use soft_cuda::{MAX_CLUSTER, MAX_SHARED, REGISTERS_PER_SM};

use super::attributes::{attributes, cluster_dimension};
use super::device::{
    MAX_BLOCKS_PER_SM, MAX_THREADS_PER_SM, SHARED_PER_SM, SHARED_RESERVED_PER_BLOCK, WARP_SIZE,
    sm_count,
};
use super::state::{self, Function, State};
use crate::arg::Out;
use crate::codes::Answer;
use crate::last_error::explain;
use crate::types::{
    CU_FUNC_ATTRIBUTE_BINARY_VERSION, CU_FUNC_ATTRIBUTE_CACHE_MODE_CA,
    CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
    CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
    CU_FUNC_ATTRIBUTE_NUM_REGS, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
    CU_FUNC_ATTRIBUTE_PTX_VERSION, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, CUfunction, CUlaunchConfig, CUoccupancyB2DSize, CUresult,
};

/// The most blocks of a cluster, unless a kernel is set to have more.
const PORTABLE_CLUSTER: u32 = 8;
/// The last `CUclusterSchedulingPolicy`.
const MAX_CLUSTER_SCHEDULING: c_int = 2;

impl Function {
    /// The blocks of a cluster in a launch that asks for `asked`, or for none.
    pub(super) fn cluster_for(&self, asked: Option<[u32; 3]>) -> Result<[u32; 3], CUresult> {
        let refused = |text: String| {
            explain(format!("kernel {} cannot be launched: {text}", self.kernel.name()));
            CUresult::CUDA_ERROR_INVALID_VALUE
        };
        let cluster = self.kernel.cluster_for(asked).map_err(|error| refused(error.to_string()))?;
        let blocks = cluster.iter().fold(1u32, |blocks, &n| blocks.saturating_mul(n));
        if blocks > PORTABLE_CLUSTER && !self.non_portable_cluster {
            return Err(refused(format!(
                "a cluster has up to {PORTABLE_CLUSTER} blocks, and up to {MAX_CLUSTER} with \
                 CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED; set that first"
            )));
        }
        Ok(cluster)
    }
}

pub(super) fn find(state: &mut State, function: CUfunction) -> Result<&mut Function, CUresult> {
    let unknown = CUresult::CUDA_ERROR_INVALID_HANDLE;
    let context = state.functions.get(&function.bits()).ok_or(unknown)?.context;
    state.healthy(context)?;
    state.functions.get_mut(&function.bits()).ok_or(unknown)
}

pub(crate) fn attribute(value: Out<c_int>, attribute: c_int, function: CUfunction) -> Answer {
    let mut state = state::lock();
    let context = find(&mut state, function)?.context;
    let capability = state.context(context)?.device.model().capability();
    let function = find(&mut state, function)?;
    value.set(match attribute {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => function.kernel.max_threads() as c_int,
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => function.kernel.static_shared_bytes() as c_int,
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => function.kernel.local_bytes() as c_int,
        CU_FUNC_ATTRIBUTE_NUM_REGS => function.kernel.registers() as c_int,
        CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES | CU_FUNC_ATTRIBUTE_CACHE_MODE_CA => 0,
        // As a GPU has it: the architecture that the PTX is for, and that which runs it.
        CU_FUNC_ATTRIBUTE_PTX_VERSION => function.kernel.architecture() as c_int,
        CU_FUNC_ATTRIBUTE_BINARY_VERSION => capability,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => function.max_dynamic_shared as c_int,
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => function.carveout,
        CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET => function.kernel.needs_clusters().into(),
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
        | CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT
        | CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => {
            let axis = (attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) as usize;
            function.kernel.required_cluster().map_or(0, |cluster| cluster[axis] as c_int)
        }
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => function.non_portable_cluster.into(),
        CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => function.cluster_scheduling,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    })
}

pub(crate) fn set_attribute(function: CUfunction, attribute: c_int, value: c_int) -> Answer {
    let mut state = state::lock();
    let function = find(&mut state, function)?;
    match attribute {
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            let fixed = function.kernel.static_shared_bytes();
            let limit = MAX_SHARED.saturating_sub(fixed);
            function.max_dynamic_shared =
                u32::try_from(value).ok().filter(|value| *value <= limit).ok_or_else(|| {
                    explain(format!(
                        "kernel {} cannot have {value} bytes of dynamic shared memory; \
                         the device has {limit} bytes left beside its {fixed} static bytes",
                        function.kernel.name()
                    ));
                    CUresult::CUDA_ERROR_INVALID_VALUE
                })?;
        }
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT if (-1..=100).contains(&value) => {
            function.carveout = value;
        }
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED if (0..=1).contains(&value) => {
            function.non_portable_cluster = value == 1;
        }
        CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
            if (0..=MAX_CLUSTER_SCHEDULING).contains(&value) =>
        {
            function.cluster_scheduling = value;
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

/// There is no cache to configure.
pub(crate) fn set_cache_config(function: CUfunction, _config: c_uint) -> Answer {
    find(&mut state::lock(), function).map(|_| ())
}

/// There are no banks to configure.
pub(crate) fn set_shared_config(function: CUfunction, _config: c_uint) -> Answer {
    find(&mut state::lock(), function).map(|_| ())
}

/// The granularity of a thread's registers.
const REGISTER_STEP: u32 = 8;

/// What occupancy depends on here.
struct Demand {
    max_threads: u32,
    registers: u32,
    static_shared: u64,
}

impl Demand {
    fn of(function: CUfunction) -> Result<Self, CUresult> {
        let mut state = state::lock();
        let function = find(&mut state, function)?;
        let static_shared = function.kernel.static_shared_bytes().into();
        let registers = function.kernel.registers();
        Ok(Self { max_threads: function.kernel.max_threads(), registers, static_shared })
    }

    /// Blocks of `threads` threads, with so much dynamic shared memory, that one
    /// multiprocessor holds at a time.
    fn blocks(&self, threads: u32, dynamic: usize) -> u32 {
        let shared = (dynamic as u64).saturating_add(self.static_shared);
        if threads == 0 || threads > self.max_threads || shared > MAX_SHARED.into() {
            return 0;
        }
        let by_threads = MAX_THREADS_PER_SM / threads.next_multiple_of(WARP_SIZE);
        let by_shared = u64::from(SHARED_PER_SM) / (shared + u64::from(SHARED_RESERVED_PER_BLOCK));
        // A multiprocessor has four parts, which have a quarter of the registers and of the warps.
        let of_warp = self.registers.next_multiple_of(REGISTER_STEP) * WARP_SIZE;
        let by_registers = REGISTERS_PER_SM / 4 / of_warp * 4 / threads.div_ceil(WARP_SIZE);
        MAX_BLOCKS_PER_SM.min(by_threads).min(by_shared as u32).min(by_registers)
    }
}

fn positive(value: c_int) -> Result<u32, CUresult> {
    u32::try_from(value).ok().filter(|value| *value > 0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(crate) fn max_active_blocks(
    blocks: Out<c_int>,
    function: CUfunction,
    block_size: c_int,
    dynamic_shared: usize,
) -> Answer {
    let threads = positive(block_size)?;
    blocks.set(Demand::of(function)?.blocks(threads, dynamic_shared) as c_int)
}

/// The clusters that run at once on all multiprocessors.
///
/// There are no GPCs, so only the number of blocks limits them.
///
/// # Safety
///
/// The contract of `cuOccupancyMaxActiveClusters`.
pub(crate) unsafe fn max_active_clusters(
    clusters: Out<c_int>,
    function: CUfunction,
    config: *const CUlaunchConfig,
) -> Answer {
    // SAFETY: null, or the caller's structure.
    let config = unsafe { config.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let block = [config.block_dim_x, config.block_dim_y, config.block_dim_z];
    let threads = block.iter().try_fold(1u32, |threads, size| threads.checked_mul(*size));
    let threads = threads.filter(|threads| *threads > 0);
    let threads = threads.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller's structure, with as many attributes as it says.
    let attributes = unsafe { attributes(config) }?;
    let cluster = attributes.iter().find_map(cluster_dimension).unwrap_or([1; 3]);
    let size = cluster.iter().try_fold(1u32, |blocks, size| blocks.checked_mul(*size));
    let size = size.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let resident = Demand::of(function)?.blocks(threads, config.shared_mem_bytes as usize);
    let blocks = sm_count().saturating_mul(resident.cast_signed());
    clusters.set(blocks / size.cast_signed().max(1))
}

/// The largest dynamic shared memory with which `blocks` blocks fit.
pub(crate) fn available_dynamic_shared(
    bytes: Out<usize>,
    function: CUfunction,
    blocks: c_int,
    block_size: c_int,
) -> Answer {
    let (blocks, threads) = (positive(blocks)?, positive(block_size)?);
    let demand = Demand::of(function)?;
    if demand.blocks(threads, 0) < blocks {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let share = SHARED_PER_SM / blocks - SHARED_RESERVED_PER_BLOCK;
    let share = u64::from(share.min(MAX_SHARED));
    bytes.set(share.saturating_sub(demand.static_shared) as usize)
}

/// The block size with the most threads on a multiprocessor, the largest of those.
///
/// # Safety
///
/// `dynamic_shared_of` is null or may be called with any block size.
pub(crate) unsafe fn max_potential_block_size(
    min_grid_size: Out<c_int>,
    block_size: Out<c_int>,
    function: CUfunction,
    dynamic_shared_of: CUoccupancyB2DSize,
    dynamic_shared: usize,
    block_size_limit: c_int,
) -> Answer {
    let demand = Demand::of(function)?;
    let limit = match block_size_limit {
        0 => demand.max_threads,
        limit => positive(limit)?.min(demand.max_threads),
    };
    let whole_warps = (1..=limit / WARP_SIZE).map(|warps| warps * WARP_SIZE);
    let rest = (limit % WARP_SIZE != 0).then_some(limit);
    let best = whole_warps
        .chain(rest)
        .map(|threads| {
            let dynamic = match dynamic_shared_of {
                // SAFETY: the caller's contract.
                Some(of) => unsafe { of(threads as c_int) },
                None => dynamic_shared,
            };
            let blocks = demand.blocks(threads, dynamic);
            (blocks * threads, threads, blocks)
        })
        .max()
        .filter(|(resident, ..)| *resident > 0);
    let Some((_, threads, blocks)) = best else {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    };
    min_grid_size.set((blocks as c_int).saturating_mul(sm_count()))?;
    block_size.set(threads as c_int)
}
