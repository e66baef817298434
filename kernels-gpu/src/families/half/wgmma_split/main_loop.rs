//! The consumers' loop along K.

use cuda_std::mbarrier::Mbarrier;
use cuda_std::sm_90a::wgmma::{Accumulator, Tile, wait_group};
use cuda_std::warp;

use crate::device::multiply::warpgroup::{ByWidth, multiply};
use crate::device::pipeline::state::PipelineState;

/// A warpgroup's sums of one tile.
///
/// A step's instructions take longer than a narrow tile's `wgmma`, so there are as few as possible.
pub struct MainLoop<'s, const F16: bool, const MN_A: bool, const MN_B: bool> {
    /// The tiles of A and B in the first of all stages.
    pub first: (Tile<MN_A>, Tile<MN_B>),
    /// Elements of a stage.
    pub stage_elements: u32,
    /// The number of stages.
    pub stages: u32,
    /// The first stage's barrier that says that it is full. Those of the others follow.
    pub full: Mbarrier,
    /// The first stage's barrier that says that it has been read.
    pub empty: Mbarrier,
    /// The next stage.
    pub state: &'s mut PipelineState,
    /// Steps along K; at least one.
    pub steps: u32,
}

impl<const F16: bool, const MN_A: bool, const MN_B: bool> ByWidth
    for MainLoop<'_, F16, MN_A, MN_B>
{
    /// Adds up the tile's steps, and releases their stages.
    ///
    /// # Safety
    /// Whole warpgroups call this, all of those for which a stage's `empty` waits. The stages get
    /// full as a producer fills them.
    #[inline(always)]
    unsafe fn on<const SUMS: usize>(self, acc: &mut [f32; SUMS])
    where
        [f32; SUMS]: Accumulator,
    {
        let Self { first: (a, b), stage_elements, stages, full, empty, state, steps } = self;
        let is_first_lane = warp::lane_id() == 0;
        let mut before = state.stage;
        let mut step = 0;
        // SAFETY:
        // - Whole warpgroups come here: the conditions of all loops are the same for their threads.
        //   `wgmma` itself (`.sync`) waits for threads that a wait or a release delays.
        // - A stage is full and lies as the maps copy it. It stays until it is released, when its
        //   group is done. One thread of each warp arrives, since a warp that waits for a group
        //   knows only of its own part.
        // - Nothing touches the sums before the wait.
        unsafe {
            loop {
                full.add(state.stage).wait_parity(state.parity);
                let at = state.stage * stage_elements;
                multiply::<SUMS, F16, _, _>(acc, a.offset_by(at), b.offset_by(at), step > 0);
                wait_group::<1>();
                empty.add(before).arrive_if(is_first_lane && step > 0);
                before = state.stage;
                *state = state.next_of(stages);
                step += 1;
                if step == steps {
                    break;
                }
            }
            acc.wait();
            empty.add(before).arrive_if(is_first_lane);
        }
    }
}
