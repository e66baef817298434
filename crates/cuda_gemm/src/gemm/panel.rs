//! Panels of C, one launch each, and the workspace that their blocks share.

use kernels_gpu::abi::{GridOrder, KernelDescriptor};

use super::operation::Gemm;

/// The most tiles of a panel for persistent blocks, along x and y: so that their numbers fit 32 bits.
pub(super) const MAX_PANEL: [u32; 2] = [1 << 15, 1 << 15];

/// One kernel launch: a panel of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks along x and y.
    pub grid: [u32; 2],
    /// Rows of this panel of C.
    pub m: u32,
    /// Columns of this panel of C.
    pub n: u32,
    /// The panel's first row, of op(A) and of C.
    pub row: usize,
    /// The panel's first column, of op(B) and of C.
    pub col: usize,
    /// How many of the panel's tiles, the first ones, persistent blocks share along K;
    /// 0 but for [`KernelAbi::StreamK`](kernels_gpu::abi::KernelAbi::StreamK).
    pub stream_k_tiles: u32,
    /// How many steps along K are summed up before the sum is stored, likewise.
    pub accumulation_steps: u32,
}

/// What blocks that share a tile of C pass each other in device memory. Counts of elements;
/// all are 0 where none do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workspace {
    /// Of f32: a tile of C per block, or three per persistent block; of a kernel for tensor cores as
    /// [`TensorCoreDescriptor::splits`](kernels_gpu::abi::tensor_core::TensorCoreDescriptor::splits) says.
    pub partials: u128,
    /// Of u32, zeros: one per tile of C that is shared, or as it says there.
    pub counters: u128,
}

impl Workspace {
    /// Bytes of both.
    pub fn bytes(&self) -> u128 {
        4 * (self.partials + self.counters)
    }
}

/// Cuts C into panels of no more tiles than a grid of this size, along x and y, has blocks.
pub(super) fn panels(descriptor: &KernelDescriptor, gemm: &Gemm, most: [u32; 2]) -> Vec<Launch> {
    let [bm, bn] = [descriptor.tile().bm as usize, descriptor.tile().bn as usize];
    let [x, y] = most.map(|blocks| blocks.max(1) as usize);
    let (most_rows, most_cols) = match descriptor.grid() {
        GridOrder::RowsAlongX => (x * bm, y * bn),
        GridOrder::ColumnsAlongX => (y * bm, x * bn),
    };
    let mut launches = Vec::new();
    for row in (0..gemm.m).step_by(most_rows) {
        for col in (0..gemm.n).step_by(most_cols) {
            let (m, n) = (most_rows.min(gemm.m - row), most_cols.min(gemm.n - col));
            // All fit 32 bits because the whole of m and n does.
            let (rows, cols) = (m.div_ceil(bm) as u32, n.div_ceil(bn) as u32);
            launches.push(Launch {
                grid: match descriptor.grid() {
                    GridOrder::RowsAlongX => [rows, cols],
                    GridOrder::ColumnsAlongX => [cols, rows],
                },
                m: m as u32,
                n: n as u32,
                row,
                col,
                stream_k_tiles: 0,
                accumulation_steps: 0,
            });
        }
    }
    launches
}
