//! Graphs of the software device: a list of operations that a stream captured.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use soft_cuda::Moment;

use super::capture::submit;
use super::instance::{device, unsupported};
use super::state::{self, Capture, Graph, GraphExec, Run};
use crate::arg::Out;
use crate::codes::Answer;
use crate::last_error::explain;
use crate::types::{
    CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_ACTIVE,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED, CU_STREAM_CAPTURE_STATUS_NONE, CUgraph, CUgraphExec,
    CUresult, CUstream,
};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`, and all flags.
const DEVICE_LAUNCH: u64 = 4;
const FLAGS: u64 = 0xF;

pub(crate) fn begin_capture(stream: CUstream, mode: u32) -> Answer {
    let mut state = state::lock();
    state.context_of(stream)?;
    if mode > CU_STREAM_CAPTURE_MODE_RELAXED {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let Some(stream) = state.streams.get_mut(&stream.bits()) else {
        explain("a default stream cannot capture here; create a stream".into());
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    };
    if stream.capture.is_some() {
        explain("the stream is capturing already".into());
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    let thread = thread::current().id();
    stream.capture = Some(Capture { mode, thread, work: Some(Vec::new()) });
    Ok(())
}

pub(crate) fn end_capture(stream: CUstream, out: Out<CUgraph>) -> Answer {
    out.check()?;
    let mut state = state::lock();
    let context = state.context_of(stream)?;
    let capture = state.streams.get_mut(&stream.bits()).map(|stream| &mut stream.capture);
    let Some(capture) = capture.filter(|capture| capture.is_some()) else {
        explain("the stream is not capturing".into());
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    };
    let elsewhere = |begun: &mut Capture| {
        begun.mode != CU_STREAM_CAPTURE_MODE_RELAXED && begun.thread != thread::current().id()
    };
    if capture.as_mut().is_some_and(elsewhere) {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }
    let Some(work) = capture.take().and_then(|capture| capture.work) else {
        out.set(CUgraph::NULL)?;
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    };
    let graph = CUgraph(state.new_handle());
    state.graphs.insert(graph.bits(), Graph { context, work: work.into() });
    out.set(graph)
}

pub(crate) fn is_capturing(stream: CUstream, status: Out<u32>) -> Answer {
    let state = state::lock();
    let context = state.context_of(stream)?;
    let mut streams = state.streams.values();
    if stream.is_legacy() && streams.any(|other| other.blocks_legacy(context)) {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    let capture = state.streams.get(&stream.bits()).and_then(|stream| stream.capture.as_ref());
    status.set(match capture {
        None => CU_STREAM_CAPTURE_STATUS_NONE,
        Some(Capture { work: Some(_), .. }) => CU_STREAM_CAPTURE_STATUS_ACTIVE,
        Some(Capture { work: None, .. }) => CU_STREAM_CAPTURE_STATUS_INVALIDATED,
    })
}

/// The flags that are taken change nothing here: there is nothing to upload, to free or
/// to order by priority.
pub(crate) fn instantiate(out: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> Answer {
    if flags & !FLAGS != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if flags & DEVICE_LAUNCH != 0 {
        return unsupported("launches of graphs from kernels");
    }
    out.check()?;
    let mut state = state::lock();
    let unknown = CUresult::CUDA_ERROR_INVALID_VALUE;
    let &Graph { context, ref work } = state.graphs.get(&graph.bits()).ok_or(unknown)?;
    let run = Run { work: work.clone(), ended: Moment::default() };
    let exec = GraphExec { context, run: Arc::new(Mutex::new(run)) };
    state.healthy(context)?;
    let handle = CUgraphExec(state.new_handle());
    state.graph_execs.insert(handle.bits(), exec);
    out.set(handle)
}

/// Runs the operations in the order of their capture, behind any launch of the same
/// graph that is still running.
pub(crate) fn launch(exec: CUgraphExec, stream: CUstream) -> Answer {
    let (run, order) = {
        let state = state::lock();
        let context = state.context_of(stream)?;
        let unknown = CUresult::CUDA_ERROR_INVALID_VALUE;
        let exec = state.graph_execs.get(&exec.bits()).ok_or(unknown)?;
        if exec.context != context {
            explain("the graph was captured in another context than the stream's".into());
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        (exec.run.clone(), state.order(stream, context))
    };
    let mut run = run.lock().unwrap_or_else(PoisonError::into_inner);
    device().wait(order.get(), &run.ended);
    submit(stream, &run.work)?;
    run.ended = device().record(order.get());
    Ok(())
}

pub(crate) fn destroy(graph: CUgraph) -> Answer {
    let removed = state::lock().graphs.remove(&graph.bits());
    removed.map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(crate) fn destroy_exec(exec: CUgraphExec) -> Answer {
    let removed = state::lock().graph_execs.remove(&exec.bits());
    removed.map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}
