//! Peers: software devices access each other's memory, which is one memory.
//!
//! Access must still be switched on where a GPU asks for it, so that calls in the wrong order fail
//! here too.

use std::ffi::{c_int, c_uint};

use super::device::SoftDevice;
use super::{memory, state};
use crate::arg::Out;
use crate::codes::Answer;
use crate::stack;
use crate::types::{CUcontext, CUdevice, CUdeviceptr, CUresult, CUstream};

/// Any two different devices are peers.
pub(crate) fn can_access(can: Out<c_int>, device: CUdevice, peer: CUdevice) -> Answer {
    let (device, peer) = (SoftDevice::of(device)?, SoftDevice::of(peer)?);
    can.set((device != peer).into())
}

/// Lets the current context access the memory of `peer`.
pub(crate) fn enable(peer: CUcontext, flags: c_uint) -> Answer {
    let (context, mut state) = state::current()?;
    if flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let peer_device = match state.contexts.get(&peer.bits()) {
        Some(peer) => peer.device,
        None => return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
    };
    let context = state.context(context)?;
    if context.device == peer_device {
        return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    if context.peers.contains(&peer.bits()) {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    }
    context.peers.push(peer.bits());
    Ok(())
}

/// Ends what [`enable`] began.
pub(crate) fn disable(peer: CUcontext) -> Answer {
    let (context, mut state) = state::current()?;
    let peers = &mut state.context(context)?.peers;
    let at = peers.iter().position(|bits| *bits == peer.bits());
    peers.swap_remove(at.ok_or(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)?);
    Ok(())
}

/// Both contexts are alive and without a fault.
fn check(contexts: [CUcontext; 2]) -> Answer {
    let state = state::lock();
    contexts.iter().try_for_each(|context| match state.contexts.contains_key(&context.bits()) {
        true => state.healthy(*context),
        false => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
    })
}

/// A copy between two contexts, which needs no access of one to the other.
///
/// All earlier and later work of both and of the current context waits for it.
pub(crate) fn copy(
    dst: CUdeviceptr,
    dst_context: CUcontext,
    src: CUdeviceptr,
    src_context: CUcontext,
    bytes: usize,
) -> Answer {
    check([dst_context, src_context])?;
    // A GPU's context may be the current one.
    let current = stack::current_soft().unwrap_or(dst_context);
    for context in [dst_context, src_context, current] {
        state::lock().order_of_all(context).synchronize();
    }
    memory::copy(dst, src, bytes)?;
    state::lock().order_of_all(current).synchronize();
    Ok(())
}

/// [`copy`] in a stream.
pub(crate) fn copy_async(
    dst: CUdeviceptr,
    dst_context: CUcontext,
    src: CUdeviceptr,
    src_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    check([dst_context, src_context])?;
    memory::copy_async(dst, src, bytes, stream)
}
