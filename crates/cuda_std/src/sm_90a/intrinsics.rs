//! LLVM's convergent intrinsics for Hopper alone: see `intrinsics.rs` of the crate.

unsafe extern "C" {
    /// `wgmma.commit_group`.
    #[link_name = "llvm.nvvm.wgmma.commit_group.sync.aligned"]
    pub fn wgmma_commit_group();
    /// `wgmma.wait_group`; the number is a constant.
    #[link_name = "llvm.nvvm.wgmma.wait_group.sync.aligned"]
    pub fn wgmma_wait_group(pending: u64);
}
