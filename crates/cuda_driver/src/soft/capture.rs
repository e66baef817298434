//! Stream capture: what a capturing stream records, and which calls it forbids.
//!
//! A forbidden call invalidates the captures that forbid it: each answers
//! `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED` from then on, until `cuStreamEndCapture`.

use std::thread;

use super::state::{self, Capture, State, Stream};
use super::work::{Failure, Work};
use crate::codes::Answer;
use crate::last_error::explain;
use crate::types::{
    CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, CUcontext, CUresult, CUstream,
};

/// Runs `work` in its order, or records it if `stream` is capturing.
///
/// A launch that cannot start answers at once. A fault belongs to the context: as on a
/// GPU the call has succeeded by then, and every later one tells. What follows the fault
/// does not run.
pub(super) fn submit(stream: CUstream, work: &[Work]) -> Answer {
    let mut state = state::lock();
    let context = state.context_of(stream)?;
    if let Some(capture) = capture_of(&mut state, stream) {
        let recorded = capture.work.as_mut().ok_or_else(invalidated)?;
        recorded.extend_from_slice(work);
        return Ok(());
    }
    if stream.is_legacy() {
        allow_legacy(&mut state, context)?;
    }
    let limits = state.context(context)?.limits.in_force();
    let order = state.order(stream, context);
    drop(state);
    for work in work {
        match work.run(order.get(), &limits) {
            Ok(()) => {}
            Err(Failure::Refused(code)) => return Err(code),
            Err(Failure::Fault(fault)) => {
                if let Ok(context) = state::lock().context(context) {
                    context.fault.get_or_insert(fault);
                }
                break;
            }
        }
    }
    Ok(())
}

fn capture_of(state: &mut State, stream: CUstream) -> Option<&mut Capture> {
    state.streams.get_mut(&stream.bits())?.capture.as_mut()
}

fn invalidated() -> CUresult {
    explain("an earlier call invalidated the stream's capture; end it and begin again".into());
    CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
}

/// Fails with `code`, explained by `text`, if there is a capture in a stream that
/// `forbids` says; invalidates all of these.
fn forbid(
    state: &mut State,
    forbids: impl Fn(&Stream, &Capture) -> bool,
    code: CUresult,
    text: &str,
) -> Answer {
    let mut answer = Ok(());
    for stream in state.streams.values_mut() {
        let forbidden = stream.capture.as_ref().is_some_and(|capture| forbids(stream, capture));
        if forbidden && let Some(capture) = &mut stream.capture {
            capture.work = None;
            answer = Err(code);
        }
    }
    if answer.is_err() {
        explain(text.into());
    }
    answer
}

/// The context of `stream`, for a call that no graph of this device can hold.
pub(super) fn context_outside(state: &mut State, stream: CUstream) -> Result<CUcontext, CUresult> {
    context_outside_as(state, stream, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
}

/// [`context_outside`] with the code that the driver has for this call.
pub(super) fn context_outside_as(
    state: &mut State,
    stream: CUstream,
    code: CUresult,
) -> Result<CUcontext, CUresult> {
    let context = state.context_of(stream)?;
    if let Some(capture) = capture_of(state, stream) {
        if capture.work.take().is_none() {
            return Err(invalidated());
        }
        explain(
            "the stream is capturing; the software device captures kernel launches, copies \
             from device to device and fills"
                .into(),
        );
        return Err(code);
    }
    if stream.is_legacy() {
        allow_legacy(state, context)?;
    }
    Ok(context)
}

/// Checks a call in the legacy stream of `context`, like every synchronous copy or fill.
///
/// It waits for every blocking stream, and a capturing stream has nothing to wait for. See
/// [`State::order`].
pub(super) fn allow_legacy(state: &mut State, context: CUcontext) -> Answer {
    forbid(
        state,
        |stream, _| stream.blocks_legacy(context),
        CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
        "a blocking stream of this context is capturing, and the call would wait for it; make \
         the call before or after the capture",
    )
}

/// For calls that wait for all of `context`.
pub(super) fn allow_context(state: &mut State, context: CUcontext) -> Answer {
    forbid(
        state,
        |stream, _| stream.context == context,
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        "a stream of this context is capturing, and cannot be waited for; end the capture first",
    )
}

/// Checks a potentially unsafe call, such as an allocation, which may wait for the device.
///
/// The capture modes of this thread and of the others decide.
pub(super) fn allow_unsafe(state: &mut State) -> Answer {
    let this = thread::current().id();
    forbid(
        state,
        |_, capture| match capture.thread == this {
            true => capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED,
            false => capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL,
        },
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        "a stream is capturing; allocate, free and wait before or after, or capture in the \
         relaxed mode",
    )
}
