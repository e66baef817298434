//! A consumer warpgroup's products for a tile, from stages that bulk copies fill.

use cuda_std::mbarrier::Mbarrier;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::sm_90a::wgmma::{Accumulator, Tile, wait_group};
use cuda_std::tma::fence_proxy_async;

use super::fragment::FragmentB;
use crate::device::pipeline::state::PipelineState;

/// The stages of a block, as a consumer warpgroup sees them.
#[derive(Clone, Copy)]
pub(super) struct Stages<const STAGES: u32> {
    /// The stages of A; of B, the warpgroup's columns of the first stage.
    pub(super) a: SharedPtr<f32>,
    pub(super) b: SharedPtr<f32>,
    /// Elements of a stage of A, and of B.
    pub(super) elements: [u32; 2],
    /// Of each stage: it is full, or it has been read.
    pub(super) full: Mbarrier,
    pub(super) empty: Mbarrier,
}

impl<const STAGES: u32> Stages<STAGES> {
    /// Adds the products of `steps` stages to `acc`, and releases the stages.
    ///
    /// `acc` begins with zeros. The first stage is that of `state`; returns the state behind the
    /// last.
    ///
    /// # Safety
    /// - A whole warpgroup calls this, with one step at least.
    /// - Its barriers are initialised, `empty` for one thread of each consumer warp.
    /// - The stages that it waits for will be full.
    #[inline(always)]
    pub(super) unsafe fn multiply<const SUMS: usize, const TRANS_B: bool>(
        self,
        mut state: PipelineState,
        steps: u32,
        fragment: FragmentB,
        lane: u32,
        acc: &mut [f32; SUMS],
    ) -> PipelineState
    where
        [f32; SUMS]: Accumulator,
    {
        let Self { a, b, elements, full, empty } = self;
        // SAFETY: the barriers are initialised. One thread of each warp arrives, since a warp that
        // waits for a group knows only of its own part.
        let release = |stage: u32| unsafe {
            if lane == 0 {
                empty.add(stage).arrive();
            }
        };
        let of_a = |stage: u32| Tile::k_major(a.add(stage * elements[0]).cast());
        let of_b = |stage: u32| b.add(stage * elements[1]);
        let mut step = 0;
        // SAFETY:
        // - Whole warpgroups come here: the conditions of all loops are the same for their threads.
        //   `wgmma` itself (`.sync`) waits for threads that a wait or a release delays.
        // - A stage is full and lies as the maps copy it. It stays until it is released, when its
        //   group is done and loads from it are fenced.
        // - Nothing touches the sums before the wait.
        unsafe {
            if TRANS_B {
                let mut before = state.stage;
                loop {
                    full.add(state.stage).wait_parity(state.parity);
                    let b = Tile::k_major(of_b(state.stage).cast());
                    acc.multiply_tf32(b, of_a(state.stage), step > 0);
                    if step > 0 {
                        wait_group::<1>();
                        release(before);
                    }
                    before = state.stage;
                    state = state.next::<STAGES>();
                    step += 1;
                    if step == steps {
                        break;
                    }
                }
                acc.wait();
                release(before);
            } else {
                full.add(state.stage).wait_parity(state.parity);
                let mut loaded = fragment.load(of_b(state.stage));
                loop {
                    let before = state.stage;
                    // These bits are zeros already. The mask moves the values to other registers,
                    // so that the next loads do not change what `wgmma` still reads.
                    let b = loaded.map(|bits| bits & !0x1fff);
                    acc.multiply_tf32_registers(b, of_a(before), step > 0);
                    state = state.next::<STAGES>();
                    step += 1;
                    if step < steps {
                        full.add(state.stage).wait_parity(state.parity);
                        loaded = fragment.load(of_b(state.stage));
                    }
                    acc.wait();
                    // The loads of all lanes come before one lane's release, and so before the next
                    // copy.
                    fence_proxy_async();
                    warp::sync_warp(u32::MAX);
                    release(before);
                    if step == steps {
                        break;
                    }
                }
            }
        }
        state
    }
}
