//! Streams of the software device. Work is complete when its call returns, so a
//! stream is only a name.

use std::ffi::{c_int, c_uint};

use super::state::{self, State, Stream};
use crate::arg::Out;
use crate::codes::Answer;
use crate::stack;
use crate::types::{CUcontext, CUevent, CUresult, CUstream};

/// `CU_STREAM_NON_BLOCKING`, the only flag.
const NON_BLOCKING: c_uint = 1;

/// The context that work in `stream` belongs to, alive and without a fault.
pub(super) fn context_of(state: &State, stream: CUstream) -> Result<CUcontext, CUresult> {
    let context = if stream.is_default() {
        stack::current_soft()?
    } else {
        state.streams.get(&stream.bits()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?.context
    };
    state.healthy(context)?;
    Ok(context)
}

pub(crate) fn create(out: Out<CUstream>, flags: c_uint, _priority: c_int) -> Answer {
    let (context, mut state) = state::current()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let stream = CUstream(state.new_handle());
    out.set(stream)?;
    state.streams.insert(stream.bits(), Stream { context, flags });
    Ok(())
}

pub(crate) fn destroy(stream: CUstream) -> Answer {
    let mut state = state::lock();
    if stream.is_default() {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    context_of(&state, stream)?;
    state.streams.remove(&stream.bits());
    Ok(())
}

pub(crate) fn flags(stream: CUstream, out: Out<c_uint>) -> Answer {
    let state = state::lock();
    context_of(&state, stream)?;
    out.set(state.streams.get(&stream.bits()).map_or(0, |stream| stream.flags))
}

pub(crate) fn priority(stream: CUstream, out: Out<c_int>) -> Answer {
    context_of(&state::lock(), stream)?;
    out.set(0)
}

pub(crate) fn synchronize(stream: CUstream) -> Answer {
    context_of(&state::lock(), stream).map(|_| ())
}

pub(crate) fn wait_event(stream: CUstream, event: CUevent, _flags: c_uint) -> Answer {
    let state = state::lock();
    context_of(&state, stream)?;
    state
        .events
        .contains_key(&event.bits())
        .then_some(())
        .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}
