//! Panels of C, one launch each, and the workspace that their blocks share.

use kernels_gpu::abi::{GridOrder, KernelDescriptor};

use crate::problem::Gemm;

/// The most tiles of a panel for persistent blocks, along x and y; their numbers fit 32 bits.
pub(super) const MAX_PANEL: [u32; 2] = [1 << 15, 1 << 15];

/// One kernel launch: a panel of C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Blocks along x and y per product and split: see [`LaunchPlan::grid`].
    ///
    /// [`LaunchPlan::grid`]: super::LaunchPlan::grid
    pub grid: [u32; 2],
    /// Rows of this panel of C.
    pub m: u32,
    /// Columns of this panel of C.
    pub n: u32,
    /// The panel's first row, of op(A) and of C.
    pub row: usize,
    /// The panel's first column, of op(B) and of C.
    pub col: usize,
    /// The number of leading tiles of the panel that persistent blocks share along K.
    ///
    /// 0 unless the kernel has [`KernelAbi::StreamK`](kernels_gpu::abi::KernelAbi::StreamK).
    pub stream_k_tiles: u32,
    /// Steps along K per stored sum; 0 unless the kernel has stream-K.
    pub accumulation_steps: u32,
}

/// Device memory through which blocks pass each other parts of shared tiles, or a table of the tiles
/// of groups.
///
/// The fields count elements. They are 0 if neither tiles are shared nor rows grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workspace {
    /// f32 elements: one tile of C per block, three per persistent block, or two per cluster; or
    /// words of the table.
    pub partials: u128,
    /// Zeroed u32 elements: one per shared tile of C, or one per warp with sums of a cluster.
    pub counters: u128,
}

impl Workspace {
    /// The bytes of both parts.
    pub fn bytes(&self) -> u128 {
        4 * (self.partials + self.counters)
    }
}

/// Cuts C into panels whose tiles fit a grid of at most this size, along x and y.
pub(super) fn panels(descriptor: &KernelDescriptor, gemm: &Gemm, most: [u32; 2]) -> Vec<Launch> {
    let [bm, bn] = [descriptor.tile().bm as usize, descriptor.tile().bn as usize];
    let [x, y] = most.map(|blocks| blocks.max(1) as usize);
    let (most_rows, most_cols) = match descriptor.grid() {
        GridOrder::RowsAlongX => (x * bm, y * bn),
        GridOrder::ColumnsAlongX | GridOrder::Linear | GridOrder::Persistent => (y * bm, x * bn),
    };
    let mut launches = Vec::new();
    for row in (0..gemm.m).step_by(most_rows) {
        for col in (0..gemm.n).step_by(most_cols) {
            let (m, n) = (most_rows.min(gemm.m - row), most_cols.min(gemm.n - col));
            // All fit 32 bits because m and n do.
            let (rows, cols) = (m.div_ceil(bm) as u32, n.div_ceil(bn) as u32);
            launches.push(Launch {
                grid: match descriptor.grid() {
                    GridOrder::RowsAlongX => [rows, cols],
                    _ => [cols, rows],
                },
                m: m as u32,
                n: n as u32,
                row,
                col,
                ..Launch::default()
            });
        }
    }
    launches
}
