//! Each thread's stack of contexts.
//!
//! The driver keeps a stack of contexts per thread. Software contexts live in a stack here. A
//! [`Slot::Driver`] in it stands for one entry of the driver's own stack. Only the driver knows
//! which GPU context that is, because libraries such as cuBLAS change it too.

use std::cell::RefCell;

use crate::codes::Answer;
use crate::init;
use crate::types::{CUcontext, CUresult};

/// One entry of a thread's stack of contexts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    Soft(CUcontext),
    /// An entry of the driver's stack.
    Driver,
}

thread_local! {
    static STACK: RefCell<Vec<Slot>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` on the calling thread's stack. Destructors of other thread-locals may
/// call in after the stack is gone; they see an empty one.
fn with_stack<R>(mut f: impl FnMut(&mut Vec<Slot>) -> R) -> R {
    match STACK.try_with(|stack| f(&mut stack.borrow_mut())) {
        Ok(result) => result,
        Err(_) => f(&mut Vec::new()),
    }
}

pub(crate) fn top() -> Option<Slot> {
    with_stack(|stack| stack.last().copied())
}

pub(crate) fn push(slot: Slot) {
    with_stack(|stack| stack.push(slot));
}

pub(crate) fn pop() {
    with_stack(|stack| stack.pop());
}

/// Replaces the top by `slot`, or pushes it onto an empty stack.
pub(crate) fn replace_top(slot: Slot) {
    with_stack(|stack| {
        stack.pop();
        stack.push(slot);
    });
}

/// Takes out the uppermost entry that stands for the driver's.
pub(crate) fn remove_driver() {
    with_stack(|stack| {
        if let Some(index) = stack.iter().rposition(|slot| *slot == Slot::Driver) {
            stack.remove(index);
        }
    });
}

/// The thread's current context, which has to be of the software device.
pub(crate) fn current_soft() -> Result<CUcontext, CUresult> {
    init::initialised()?;
    match top() {
        Some(Slot::Soft(context)) => Ok(context),
        _ => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
    }
}

/// The thread has some current context, as the driver API asks for memory calls.
pub(crate) fn has_context() -> Answer {
    init::initialised()?;
    match top() {
        Some(_) => Ok(()),
        None => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
    }
}
