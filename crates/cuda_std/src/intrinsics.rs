//! LLVM's intrinsics for the convergent instructions: those that several threads execute
//! together.
//!
//! An optimiser that copies an instruction into both arms of a branch, or moves it into one,
//! splits the threads that should have met at it. LLVM keeps from that for what it calls
//! `convergent`, which these intrinsics are and `asm!` is not: so no convergent instruction is
//! written as `asm!` here, and `cuda_builder` refuses PTX that has one. See "NVVM Intrinsics" in
//! LLVM's "User Guide for NVPTX Back-end", and "Convergent Operation Semantics".

unsafe extern "C" {
    /// `barrier.cta.sync`, all threads of the block.
    #[link_name = "llvm.nvvm.barrier.cta.sync.all"]
    pub fn barrier_sync_all(barrier: u32);
    /// `barrier.cta.sync.aligned`, all threads of the block.
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    pub fn barrier_sync_aligned_all(barrier: u32);
    /// `barrier.cta.sync`, for this number of threads.
    #[link_name = "llvm.nvvm.barrier.cta.sync.count"]
    pub fn barrier_sync_count(barrier: u32, threads: u32);
    /// `barrier.cta.red.popc`, all threads of the block.
    #[link_name = "llvm.nvvm.barrier.cta.red.popc.all"]
    pub fn barrier_red_popc(barrier: u32, predicate: bool) -> u32;
    /// `barrier.cta.red.and`, all threads of the block.
    #[link_name = "llvm.nvvm.barrier.cta.red.and.all"]
    pub fn barrier_red_and(barrier: u32, predicate: bool) -> bool;
    /// `barrier.cta.red.or`, all threads of the block.
    #[link_name = "llvm.nvvm.barrier.cta.red.or.all"]
    pub fn barrier_red_or(barrier: u32, predicate: bool) -> bool;

    /// `activemask`.
    #[link_name = "llvm.nvvm.activemask"]
    pub fn activemask() -> u32;
    /// `bar.warp.sync`.
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    pub fn bar_warp_sync(mask: u32);
    /// `shfl.sync.up`.
    #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
    pub fn shfl_up(mask: u32, value: u32, delta: u32, clamp: u32) -> u32;
    /// `shfl.sync.down`.
    #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
    pub fn shfl_down(mask: u32, value: u32, delta: u32, clamp: u32) -> u32;
    /// `shfl.sync.idx`.
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    pub fn shfl_idx(mask: u32, value: u32, index: u32, clamp: u32) -> u32;
    /// `shfl.sync.bfly`.
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    pub fn shfl_bfly(mask: u32, value: u32, bits: u32, clamp: u32) -> u32;
    /// `vote.sync.all`.
    #[link_name = "llvm.nvvm.vote.all.sync"]
    pub fn vote_all(mask: u32, predicate: bool) -> bool;
    /// `vote.sync.any`.
    #[link_name = "llvm.nvvm.vote.any.sync"]
    pub fn vote_any(mask: u32, predicate: bool) -> bool;
    /// `vote.sync.ballot`.
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    pub fn vote_ballot(mask: u32, predicate: bool) -> u32;
    /// `match.any.sync`.
    #[link_name = "llvm.nvvm.match.any.sync.i32"]
    pub fn match_any(mask: u32, value: u32) -> u32;
    /// `match.any.sync`, 64 bits.
    #[link_name = "llvm.nvvm.match.any.sync.i64"]
    pub fn match_any_64(mask: u32, value: u64) -> u32;
    /// `redux.sync.add`.
    #[link_name = "llvm.nvvm.redux.sync.add"]
    pub fn redux_add(value: u32, mask: u32) -> u32;
    /// `redux.sync.min.u32`.
    #[link_name = "llvm.nvvm.redux.sync.umin"]
    pub fn redux_umin(value: u32, mask: u32) -> u32;
    /// `redux.sync.max.u32`.
    #[link_name = "llvm.nvvm.redux.sync.umax"]
    pub fn redux_umax(value: u32, mask: u32) -> u32;
    /// `redux.sync.min.s32`.
    #[link_name = "llvm.nvvm.redux.sync.min"]
    pub fn redux_min(value: i32, mask: u32) -> i32;
    /// `redux.sync.max.s32`.
    #[link_name = "llvm.nvvm.redux.sync.max"]
    pub fn redux_max(value: i32, mask: u32) -> i32;
    /// `redux.sync.and`.
    #[link_name = "llvm.nvvm.redux.sync.and"]
    pub fn redux_and(value: u32, mask: u32) -> u32;
    /// `redux.sync.or`.
    #[link_name = "llvm.nvvm.redux.sync.or"]
    pub fn redux_or(value: u32, mask: u32) -> u32;
    /// `redux.sync.xor`.
    #[link_name = "llvm.nvvm.redux.sync.xor"]
    pub fn redux_xor(value: u32, mask: u32) -> u32;

    /// `barrier.cluster.arrive`.
    #[link_name = "llvm.nvvm.barrier.cluster.arrive"]
    pub fn barrier_cluster_arrive();
    /// `barrier.cluster.arrive.relaxed`.
    #[link_name = "llvm.nvvm.barrier.cluster.arrive.relaxed"]
    pub fn barrier_cluster_arrive_relaxed();
    /// `barrier.cluster.wait`.
    #[link_name = "llvm.nvvm.barrier.cluster.wait"]
    pub fn barrier_cluster_wait();

    /// `setmaxnreg.inc`; the number is a constant.
    #[link_name = "llvm.nvvm.setmaxnreg.inc.sync.aligned.u32"]
    pub fn setmaxnreg_inc(registers: u32);
    /// `setmaxnreg.dec`; the number is a constant.
    #[link_name = "llvm.nvvm.setmaxnreg.dec.sync.aligned.u32"]
    pub fn setmaxnreg_dec(registers: u32);
}

#[expect(improper_ctypes, reason = "two scalars, as LLVM has it: in C's layout they are memory")]
unsafe extern "unadjusted" {
    /// `match.all.sync`.
    #[link_name = "llvm.nvvm.match.all.sync.i32p"]
    pub fn match_all(mask: u32, value: u32) -> Matched;
    /// `match.all.sync`, 64 bits.
    #[link_name = "llvm.nvvm.match.all.sync.i64p"]
    pub fn match_all_64(mask: u32, value: u64) -> Matched;
    /// `elect.sync`.
    #[link_name = "llvm.nvvm.elect.sync"]
    pub fn elect_sync(mask: u32) -> Elected;
}

/// Both results of `match.all.sync`.
pub struct Matched {
    /// The mask, or 0.
    pub lanes: u32,
    /// Whether all lanes have the same value.
    pub all: bool,
}

/// Both results of `elect.sync`.
pub struct Elected {
    _lane: u32,
    /// Whether it is this one.
    pub is_elected: bool,
}
