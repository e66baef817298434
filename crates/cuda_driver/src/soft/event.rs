//! Events of the software device: points in time on the host's clock.

use std::ffi::c_uint;
use std::time::Instant;

use soft_cuda::Moment;

use super::capture::{allow_unsafe, context_outside};
use super::instance::device;
use super::state::{self, Event, State};
use crate::arg::Out;
use crate::codes::Answer;
use crate::types::{CUevent, CUresult, CUstream};

/// `CU_EVENT_DISABLE_TIMING`, and all flags.
const DISABLE_TIMING: c_uint = 2;
const FLAGS: c_uint = 7;

fn find(state: &mut State, event: CUevent) -> Result<&mut Event, CUresult> {
    let unknown = CUresult::CUDA_ERROR_INVALID_HANDLE;
    let context = state.events.get(&event.bits()).ok_or(unknown)?.context;
    state.healthy(context)?;
    state.events.get_mut(&event.bits()).ok_or(unknown)
}

pub(crate) fn create(out: Out<CUevent>, flags: c_uint) -> Answer {
    let (context, mut state) = state::current()?;
    if flags & !FLAGS != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let event = CUevent(state.new_handle());
    out.set(event)?;
    let timed = flags & DISABLE_TIMING == 0;
    let new = Event { context, timed, recorded: None, moment: Moment::default() };
    state.events.insert(event.bits(), new);
    Ok(())
}

pub(crate) fn destroy(event: CUevent) -> Answer {
    let mut state = state::lock();
    find(&mut state, event)?;
    state.events.remove(&event.bits());
    Ok(())
}

pub(crate) fn record(event: CUevent, stream: CUstream) -> Answer {
    let mut state = state::lock();
    let context = context_outside(&mut state, stream)?;
    if find(&mut state, event)?.context != context {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    let moment = device().record(state.order(stream, context).get());
    let event = find(&mut state, event)?;
    (event.recorded, event.moment) = (Some(Instant::now()), moment);
    Ok(())
}

/// For both the query and the wait: all work is complete already.
pub(crate) fn finished(event: CUevent) -> Answer {
    let mut state = state::lock();
    find(&mut state, event)?;
    allow_unsafe(&mut state)?;
    device().synchronize_with(&find(&mut state, event)?.moment);
    Ok(())
}

pub(crate) fn elapsed(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> Answer {
    let mut state = state::lock();
    let mut time = |event| {
        let event = find(&mut state, event)?;
        event.recorded.filter(|_| event.timed).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    };
    let (start, end) = (time(start)?, time(end)?);
    let seconds = match end.checked_duration_since(start) {
        Some(forward) => forward.as_secs_f64(),
        None => -start.duration_since(end).as_secs_f64(),
    };
    milliseconds.set((seconds * 1e3) as f32)
}
