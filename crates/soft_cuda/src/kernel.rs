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
pub const MAX_CLUSTER: u32 = 8;
/// The most static shared memory of a block, in bytes.
pub const MAX_STATIC_SHARED: u32 = 48 << 10;
/// The most shared memory of a block, static and dynamic together, in bytes.
pub const MAX_SHARED: u32 = 227 << 10;

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
    pub(crate) params: Vec<Param>,
    pub(crate) max_block: Option<[u32; 3]>,
    pub(crate) required_block: Option<[u32; 3]>,
    pub(crate) required_cluster: Option<[u32; 3]>,
    /// Whether its target has clusters.
    pub(crate) has_clusters: bool,
    pub(crate) min_blocks_per_sm: Option<u32>,
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

    /// Whether a launch may say how many blocks a cluster has: the PTX does not, and its target has them.
    pub fn takes_clusters(&self) -> bool {
        self.has_clusters && self.required_cluster.is_none()
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
        if !(1..=MAX_CLUSTER).contains(&blocks) || !whole() || !is_its_own {
            return Err(InvalidLaunch::Cluster { grid, cluster, limit: MAX_CLUSTER });
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
