//! A decoded kernel, and what it takes to launch it.

use std::sync::Arc;

use ptx_syntax::source;

use crate::error::quoted;
use crate::exec::block::Launch;
use crate::exec::machine::{LANES, index_in};
use crate::exec::recorder::WarpFault;
use crate::fault::{Fault, FaultKind};
use crate::globals::Globals;
use crate::launch_error::InvalidLaunch;
use crate::lower::Lowered;

/// The most threads in a block.
pub const MAX_THREADS_PER_BLOCK: u32 = 1024;
/// The largest block in each dimension.
pub const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// The largest grid in each dimension.
pub const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// The most blocks of a cluster.
pub const MAX_CLUSTER: u32 = 16;
/// The most static shared memory of a block, in bytes.
pub const MAX_STATIC_SHARED: u32 = 48 << 10;
/// The most shared memory of a block, static and dynamic together, in bytes.
pub const MAX_SHARED: u32 = 227 << 10;
/// 32-bit registers of a multiprocessor.
pub const REGISTERS_PER_SM: u32 = 64 << 10;
/// Warps that a multiprocessor holds at a time.
const MAX_WARPS_PER_SM: u32 = 64;
/// The fewest and the most registers of a thread, and how many are given at a time.
const MIN_REGISTERS: u32 = 16;
const MAX_REGISTERS: u32 = 255;
const REGISTER_STEP: u32 = 8;

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

/// One kernel parameter, in the bytes passed to [`Device::launch`](crate::Device::launch).
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
    pub(crate) name: String,
    /// The number of the architecture that its module is written for.
    pub(crate) architecture: u32,
    pub(crate) params: Vec<Param>,
    pub(crate) max_block: Option<[u32; 3]>,
    pub(crate) required_block: Option<[u32; 3]>,
    pub(crate) required_cluster: Option<[u32; 3]>,
    pub(crate) explicit_cluster: bool,
    pub(crate) max_cluster: Option<u32>,
    pub(crate) min_blocks_per_sm: Option<u32>,
    pub(crate) max_registers: Option<u32>,
    pub(crate) lowered: Lowered,
    /// Keeps the variables that the code refers to by address.
    #[expect(dead_code, reason = "held for its Drop")]
    pub(crate) globals: Arc<Globals>,
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

    /// The number of the architecture that its module is written for: 90 for `sm_90a`; 0 if the
    /// text names none.
    pub fn architecture(&self) -> u32 {
        self.architecture
    }

    /// The parameters, in order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Bytes that [`Device::launch`](crate::Device::launch) takes for the parameters.
    pub fn params_size(&self) -> usize {
        self.params.last().map_or(0, |last| last.offset + last.size)
    }

    /// Bytes of static shared memory per block.
    pub fn static_shared_bytes(&self) -> u32 {
        self.lowered.static_shared
    }

    /// Bytes of local memory per thread, without calls whose depth is not known.
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

    /// `.reqnctapercluster`: the blocks of a cluster. The grid is whole clusters.
    pub fn required_cluster(&self) -> Option<[u32; 3]> {
        self.required_cluster
    }

    /// `.explicitcluster`: a launch has to say how many blocks a cluster has, unless the PTX does.
    pub fn needs_clusters(&self) -> bool {
        self.explicit_cluster
    }

    /// The blocks of a cluster in a launch that asks for `asked`, or for none.
    ///
    /// # Errors
    /// [`InvalidLaunch::ClusterMissing`] if the kernel is not launched without.
    pub fn cluster_for(&self, asked: Option<[u32; 3]>) -> Result<[u32; 3], InvalidLaunch> {
        match asked.or(self.required_cluster) {
            None if self.explicit_cluster => Err(InvalidLaunch::ClusterMissing),
            cluster => Ok(cluster.unwrap_or([1; 3])),
        }
    }

    /// Whether a launch may say how many blocks a cluster has: the PTX does not, and its target has
    /// them.
    pub fn takes_clusters(&self) -> bool {
        self.architecture >= 90 && self.required_cluster.is_none()
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

    /// Registers of 32 bits that a thread has: an estimate. It is this device's own count
    /// ([`warp_register_bytes`](Kernel::warp_register_bytes)), in steps of 8, at least 16 and at
    /// most 255; ptxas gives a GPU's. As there, the largest block fits a multiprocessor, and as
    /// many as `.minnctapersm` asks for.
    pub fn registers(&self) -> u32 {
        let own = self.lowered.code.register_bytes.div_ceil(4 * LANES);
        let own = u32::try_from(own).unwrap_or(u32::MAX).clamp(MIN_REGISTERS, MAX_REGISTERS);
        let warps = self.max_threads().div_ceil(LANES as u32);
        let wanted = warps.saturating_mul(self.min_blocks_per_sm.unwrap_or(1).max(1));
        // A multiprocessor has four parts, each with a quarter of the registers.
        let warps = wanted.min(MAX_WARPS_PER_SM).div_ceil(4);
        let fit = REGISTERS_PER_SM / 4 / LANES as u32 / warps / REGISTER_STEP * REGISTER_STEP;
        let asked = self.max_registers.unwrap_or(MAX_REGISTERS).max(MIN_REGISTERS);
        own.next_multiple_of(REGISTER_STEP).min(fit).min(asked).min(MAX_REGISTERS)
    }

    /// Checks a launch, and returns the bytes of shared memory per block.
    pub(crate) fn check(
        &self,
        config: LaunchConfig,
        cluster: [u32; 3],
        params: &[u8],
    ) -> Result<u32, InvalidLaunch> {
        let LaunchConfig { grid, block, dynamic_shared } = config;
        let outside = |value: [u32; 3], limit: [u32; 3]| {
            value.iter().zip(limit).any(|(&v, limit)| v == 0 || v > limit)
        };
        if outside(grid, MAX_GRID) {
            return Err(InvalidLaunch::Grid { grid, limit: MAX_GRID });
        }
        let blocks = cluster.iter().fold(1u32, |blocks, &n| blocks.saturating_mul(n));
        let whole = || grid.iter().zip(cluster).all(|(&grid, n)| grid.is_multiple_of(n));
        let expected = self.required_cluster.unwrap_or([1; 3]);
        let is_its_own = cluster == expected || self.takes_clusters();
        let limit = self.max_cluster.unwrap_or(MAX_CLUSTER).min(MAX_CLUSTER);
        if !(1..=limit).contains(&blocks) || !whole() || !is_its_own {
            return Err(InvalidLaunch::Cluster { grid, cluster, limit });
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
        Ok(bytes as u32 + self.lowered.padding)
    }

    pub(crate) fn fault(
        &self,
        launch: &Launch<'_>,
        cluster: u64,
        warp: u32,
        fault: WarpFault,
    ) -> Fault {
        let (rank, warp) = (warp as usize / launch.warps(), warp as usize % launch.warps());
        let block = launch.cluster.block(cluster, rank);
        let text = &self.lowered.code.text;
        let quote = |line: u32| {
            let line = text.get((line as usize).wrapping_sub(1));
            line.map(|line| quoted(line)).unwrap_or_default()
        };
        let mut kind = fault.kind;
        if let FaultKind::DataRace { earlier, .. } | FaultKind::ReadOnlyCache { earlier, .. } =
            &mut kind
            && earlier.kernel.is_none()
        {
            earlier.instruction = quote(earlier.line);
            earlier.source = source::place(text, earlier.line);
        }
        let thread = (warp * LANES) as u64 + u64::from(fault.lane);
        Fault {
            kernel: self.name.clone(),
            line: fault.line,
            instruction: quote(fault.line),
            source: source::place(text, fault.line),
            block: index_in(block, launch.grid),
            thread: index_in(thread, launch.block),
            kind,
        }
    }
}
