//! How a kernel's copies of 128 bits or in bulk reach A and B: as the caller has them, or as
//! copies of them, made by [`stage_operands`](kernels_gpu::staging) before each product.

use std::cell::OnceCell;

use cust::function::Function;
use cust::memory::DeviceBuffer;
use kernels_gpu::staging;

use super::{is_wide, parameters, require_memory};
use crate::device::Device;
use crate::error::Error;
use crate::gemm::Plan;
use crate::limits::Limits;

/// Elements in a group that is copied at once: 16 bytes.
const GROUP: u32 = 4;

/// For how many multiprocessors `stage_operands` is launched at most: the blocks stay below its limit.
const MOST_MULTIPROCESSORS: u32 = 1 << 16;

/// What a kernel needs of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing.
    Nothing,
    /// Rows that begin on 16 bytes.
    Rows,
    /// The same, of whole groups of four elements.
    Groups,
}

/// Where a plan's A and B are reached.
pub(super) struct Reach<'k, 'd> {
    device: &'d Device,
    repack: &'k Function<'d>,
    /// The most blocks that copy.
    most_blocks: u32,
    /// A and B.
    sources: [Source; 2],
}

/// A matrix as the caller has it, and the place of its copy once there is one. Work on the
/// device's one stream uses that in turn.
struct Source {
    rows: u32,
    cols: u32,
    ld: u32,
    need: Need,
    copy: OnceCell<DeviceBuffer<f32>>,
}

/// A matrix that the kernel reaches: its address and leading dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reachable {
    pub(super) address: u64,
    pub(super) ld: u32,
}

impl<'k, 'd> Reach<'k, 'd> {
    /// For a plan's A and B; allocates the copies that are needed whatever the addresses.
    pub(super) fn new(
        device: &'d Device,
        repack: &'k Function<'d>,
        plan: &Plan,
        limits: &Limits,
        needs: [Need; 2],
    ) -> Result<Self, Error> {
        let gemm = plan.gemm();
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [m, n, k] = [gemm.m, gemm.n, gemm.depth()].map(|size| size as u32);
        let [lda, ldb] = [gemm.lda, gemm.ldb].map(|ld| ld as u32);
        let sources = [Source::new(m, k, lda, needs[0]), Source::new(k, n, ldb, needs[1])];
        // A copy is for what is read: not where C or the sum is empty.
        if is_read(plan) {
            for source in &sources {
                if !source.is_reachable(0) {
                    source.place(device)?;
                }
            }
        }
        let most_blocks = limits.multiprocessors.clamp(1, MOST_MULTIPROCESSORS) * staging::BLOCKS;
        Ok(Self { device, repack, most_blocks, sources })
    }

    /// A and B where they are reached, or else their copies, which are enqueued, with one
    /// launch for both.
    ///
    /// # Safety
    ///
    /// The matrices are at these addresses, neither is empty, and nothing writes them until
    /// the copies are done. The device's context is current.
    pub(super) unsafe fn matrices(&self, addresses: [u64; 2]) -> Result<[Reachable; 2], Error> {
        let mut reached =
            [0, 1].map(|i| Reachable { address: addresses[i], ld: self.sources[i].ld });
        let mut groups = [0; 2];
        for (i, source) in self.sources.iter().enumerate() {
            if !source.is_reachable(addresses[i]) {
                let address = source.place(self.device)?.as_device_ptr().as_raw();
                reached[i] = Reachable { address, ld: source.copy_ld() };
                groups[i] = u64::from(source.rows) * u64::from(source.copy_ld() / GROUP);
            }
        }
        if groups == [0; 2] {
            return Ok(reached);
        }
        let [blocks_a, blocks_b] = blocks(groups, self.most_blocks);
        let [a, b] = &self.sources;
        let mut arguments = parameters::Repack {
            a: addresses[0],
            lda: a.ld,
            to_a: reached[0].address,
            ld_to_a: reached[0].ld,
            a_rows: a.rows,
            a_cols: a.cols,
            b: addresses[1],
            ldb: b.ld,
            to_b: reached[1].address,
            ld_to_b: reached[1].ld,
            b_rows: b.rows,
            b_cols: b.cols,
            a_blocks: blocks_a,
        };
        let grid = blocks_a + blocks_b;
        // SAFETY: the driver copies the arguments during the call, and they are the kernel's: see
        // `parameters`; the grid and the block are as it asks, with blocks only for a matrix whose
        // place is allocated. The caller vouches for the matrices, which are not empty, and the
        // places are as large as their copies; they are freed after all work.
        unsafe {
            let stream = self.device.stream();
            stream.launch(self.repack, grid, staging::THREADS, 0, &arguments.pointers())
        }
        .map_err(|e| self.device.error("launching the copy of a matrix", e))?;
        Ok(reached)
    }
}

/// Whether the launches of a plan read A and B.
pub(super) fn is_read(plan: &Plan) -> bool {
    plan.gemm().depth() > 0 && !plan.launches().is_empty()
}

/// How many of `most` blocks, two at least, copy so many groups of A and of B.
fn blocks(groups: [u64; 2], most: u32) -> [u32; 2] {
    let per_block = u64::from(staging::THREADS * staging::QUADS);
    let wanted = groups.map(|groups| groups.div_ceil(per_block));
    let (all, most) = (wanted[0] + wanted[1], u64::from(most));
    // Both are below 2^51, and `most` is below 2^19.
    let blocks = match () {
        () if all <= most => wanted,
        () if wanted[0] == 0 => [0, most],
        () if wanted[1] == 0 => [most, 0],
        () => {
            let share = (u128::from(wanted[0]) * u128::from(most) / u128::from(all)) as u64;
            let share = share.clamp(1, most - 1);
            [share, most - share]
        }
    };
    blocks.map(|blocks| blocks as u32)
}

impl Drop for Reach<'_, '_> {
    fn drop(&mut self) {
        // The copies are freed in the current context; see `Device::drop`.
        let _ = self.device.make_current();
    }
}

impl Source {
    fn new(rows: u32, cols: u32, ld: u32, need: Need) -> Self {
        Self { rows, cols, ld, need, copy: OnceCell::new() }
    }

    /// Whether the kernel reaches every row, if the first is at this address.
    fn is_reachable(&self, address: u64) -> bool {
        match self.need {
            Need::Nothing => true,
            Need::Rows => is_wide(address, self.ld as usize, GROUP as usize),
            Need::Groups => is_wide(address, self.ld as usize, self.cols as usize),
        }
    }

    /// The leading dimension of the copy; no more than 2^31.
    fn copy_ld(&self) -> u32 {
        self.cols.next_multiple_of(GROUP)
    }

    /// The place of the copy, allocated by the first call.
    fn place(&self, device: &Device) -> Result<&DeviceBuffer<f32>, Error> {
        if let Some(place) = self.copy.get() {
            return Ok(place);
        }
        let elements = u128::from(self.rows) * u128::from(self.copy_ld());
        require_memory(device, 4 * elements)?;
        // It fits, since the bytes are no more than the device has.
        // SAFETY: `stage_operands` stores every element before any is loaded.
        let place = unsafe { DeviceBuffer::uninitialized(elements as usize) }
            .map_err(|e| device.error("allocating device memory", e))?;
        Ok(self.copy.get_or_init(|| place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs() {
        let source = |cols, ld, need| Source::new(3, cols, ld, need);
        assert!(source(5, 8, Need::Rows).is_reachable(0x1010));
        assert!(!source(5, 8, Need::Rows).is_reachable(0x1004));
        assert!(!source(5, 6, Need::Rows).is_reachable(0));
        assert!(!source(5, 8, Need::Groups).is_reachable(0x1010));
        assert!(source(8, 12, Need::Groups).is_reachable(0x1010));
        assert!(source(5, 7, Need::Nothing).is_reachable(0x1004));
        let copy_ld = |cols, ld| source(cols, ld, Need::Rows).copy_ld();
        assert_eq!([copy_ld(5, 6), copy_ld(8, 9)], [8, 8]);
        assert_eq!(copy_ld(i32::MAX as u32, i32::MAX as u32), 1 << 31);
    }

    #[test]
    fn both_matrices_get_their_share_of_blocks() {
        assert_eq!(blocks([1, 0], 8), [1, 0]);
        assert_eq!(blocks([1025, 1024], 8), [2, 1]);
        assert_eq!(blocks([0, u64::MAX >> 16], 8), [0, 8]);
        assert_eq!(blocks([1 << 40, 3 << 40], 8), [2, 6]);
        assert_eq!(blocks([1 << 60, 1], 528), [527, 1]);
        assert_eq!(blocks([1, 1 << 60], 4), [1, 3]);
    }
}
