//! Streams of the software device. Work is complete when its call returns. So a stream is only a
//! name, unless it captures, or races are looked for: then its order counts.

use std::ffi::{c_int, c_uint};

use super::capture::{context_outside, context_outside_as};
use super::instance::device;
use super::state::{self, NON_BLOCKING, Stream};
use crate::arg::Out;
use crate::codes::Answer;
use crate::types::{CUevent, CUresult, CUstream};

pub(crate) fn create(out: Out<CUstream>, flags: c_uint, _priority: c_int) -> Answer {
    let (context, mut state) = state::current()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let stream = CUstream(state.new_handle());
    out.set(stream)?;
    state.streams.insert(stream.bits(), Stream { context, flags, capture: None });
    // Known from now on, so that what other streams do is kept for its first work.
    device().record(state.order(stream, context).get());
    Ok(())
}

pub(crate) fn destroy(stream: CUstream) -> Answer {
    let mut state = state::lock();
    if stream.is_default() {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    let context = state.context_of(stream)?;
    state.streams.remove(&stream.bits());
    // Its work goes on. The legacy stream would wait for that of a blocking stream; here it does for
    // any.
    device().end_stream(stream.bits(), Some(context.bits()));
    Ok(())
}

pub(crate) fn flags(stream: CUstream, out: Out<c_uint>) -> Answer {
    let state = state::lock();
    state.context_of(stream)?;
    out.set(state.streams.get(&stream.bits()).map_or(0, |stream| stream.flags))
}

pub(crate) fn priority(stream: CUstream, out: Out<c_int>) -> Answer {
    state::lock().context_of(stream)?;
    out.set(0)
}

pub(crate) fn synchronize(stream: CUstream) -> Answer {
    let mut state = state::lock();
    let context = context_outside(&mut state, stream)?;
    state.order(stream, context).synchronize();
    Ok(())
}

pub(crate) fn wait_event(stream: CUstream, event: CUevent, _flags: c_uint) -> Answer {
    let mut state = state::lock();
    // An event is never part of a capture here.
    let code = CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    let context = context_outside_as(&mut state, stream, code)?;
    let event = state.events.get(&event.bits()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    device().wait(state.order(stream, context).get(), &event.moment);
    Ok(())
}
