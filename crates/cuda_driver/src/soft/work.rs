//! The work of a stream as data: it runs at once, or a capture records it.

use std::sync::Arc;

use soft_cuda::{
    FaultKind, InvalidLaunch, Kernel, LaunchConfig, LaunchError, LaunchOptions, MemoryError,
    StreamOrder,
};

use super::instance::device;
use super::limits::InForce;
use crate::last_error::explain;
use crate::types::CUresult;

/// An operation of a stream. Addresses are the device's, sizes are in bytes and counts in
/// elements.
#[derive(Clone)]
pub(super) enum Work {
    /// `params` has the kernel's own layout.
    Launch {
        kernel: Arc<Kernel>,
        config: LaunchConfig,
        /// Blocks of a cluster.
        cluster: [u32; 3],
        /// Whether it may begin before the launch in front of it has ended.
        early: bool,
        params: Vec<u8>,
    },
    Copy {
        dst: u64,
        src: u64,
        bytes: u64,
    },
    FillU8 {
        dst: u64,
        value: u8,
        count: u64,
    },
    FillU16 {
        dst: u64,
        value: u16,
        count: u64,
    },
    FillU32 {
        dst: u64,
        value: u32,
        count: u64,
    },
}

/// Why an operation did not run to its end.
pub(super) enum Failure {
    /// It did not start; the text is kept for `last_error`.
    Refused(CUresult),
    /// A kernel failed.
    Fault(StickyFault),
}

/// What a kernel did wrong: every later call in its context answers `code`.
pub(super) struct StickyFault {
    pub code: CUresult,
    pub text: String,
}

impl Work {
    /// Runs it in a stream, to its end, within the limits of the stream's context. No lock may be
    /// held: it takes its time, and other threads ask for the progress of a launch.
    pub fn run(&self, stream: StreamOrder<'_>, limits: &InForce) -> Result<(), Failure> {
        let memory = device().in_stream(stream);
        let done = match *self {
            Self::Launch { ref kernel, config, cluster, early, ref params } => {
                let options = LaunchOptions {
                    stream,
                    early,
                    stack_bytes: limits.stack_bytes,
                    heap: Some(&limits.heap),
                };
                return match device().launch_with(kernel, config, cluster, params, options) {
                    Ok(_) => Ok(()),
                    Err(error) => Err(launch_failed(kernel, error)),
                };
            }
            Self::Copy { dst, src, bytes } => memory.copy(dst, src, bytes),
            Self::FillU8 { dst, value, count } => memory.fill(dst, value.to_ne_bytes(), count),
            Self::FillU16 { dst, value, count } => memory.fill(dst, value.to_ne_bytes(), count),
            Self::FillU32 { dst, value, count } => memory.fill(dst, value.to_ne_bytes(), count),
        };
        done.map_err(|error| Failure::Refused(memory_failed(error)))
    }
}

/// The code for a failed memory call; its text is kept for `last_error`.
pub(super) fn memory_failed(error: MemoryError) -> CUresult {
    explain(error.to_string());
    match error {
        MemoryError::OutOfMemory { .. } | MemoryError::HostMemory { .. } => {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY
        }
        MemoryError::Race { .. } => CUresult::CUDA_ERROR_LAUNCH_FAILED,
        _ => CUresult::CUDA_ERROR_INVALID_VALUE,
    }
}

fn launch_failed(kernel: &Kernel, error: LaunchError) -> Failure {
    let text = error.to_string();
    match error {
        LaunchError::Fault(fault) => {
            Failure::Fault(StickyFault { code: fault_code(&fault.kind), text })
        }
        LaunchError::Invalid { reason, .. } => {
            explain(text);
            Failure::Refused(match reason {
                InvalidLaunch::TooManyThreads { .. } | InvalidLaunch::ThreadState { .. } => {
                    CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
                }
                _ => CUresult::CUDA_ERROR_INVALID_VALUE,
            })
        }
        _ => {
            explain(format!("kernel {} failed: {text}", kernel.name()));
            Failure::Refused(CUresult::CUDA_ERROR_LAUNCH_FAILED)
        }
    }
}

/// The code that a GPU gives for what the kernel did.
fn fault_code(kind: &FaultKind) -> CUresult {
    match kind {
        FaultKind::OutOfBounds { .. }
        | FaultKind::UseAfterFree { .. }
        | FaultKind::ReadOnly { .. } => CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
        FaultKind::LocalAtomic { .. } => CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
        FaultKind::Misaligned { .. } => CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
        FaultKind::BudgetExceeded { .. } | FaultKind::Deadlock { .. } => {
            CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
        }
        FaultKind::BadBarrier { .. }
        | FaultKind::BadTensorMap { .. }
        | FaultKind::BulkSize { .. }
        | FaultKind::BulkToOwnBlock { .. } => CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        FaultKind::Assert { .. } => CUresult::CUDA_ERROR_ASSERT,
        FaultKind::BadCall { .. } | FaultKind::BadBranch { .. } => CUresult::CUDA_ERROR_INVALID_PC,
        FaultKind::StackOverflow { .. } => CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
        _ => CUresult::CUDA_ERROR_LAUNCH_FAILED,
    }
}
