//! Which device a call goes to, and each thread's stack of contexts.
//!
//! The driver keeps a stack of contexts per thread. Software contexts live in a
//! stack here, in which a [`Slot::Driver`] stands for one entry of the driver's
//! own stack: which GPU context that is, only the driver knows, because libraries
//! such as cuBLAS change it too.

use std::cell::RefCell;
use std::ffi::{c_uint, c_void};

use crate::codes::{self, Answer};
use crate::gpu::{self, forward};
use crate::sys::{Arg, CUcontext, CUdevice, CUresult, Out};
use crate::{global, soft};

/// The upper 16 bits of every handle and address of the software device, chosen by
/// `soft_cuda` for its addresses. Real pointers have 47 bits, and more only for a
/// process that asks for them.
const SOFT_TAG: u64 = 0x0050;

/// The `CUdevice`s of the software device's models, in the order of their ordinals;
/// a driver's are small ordinals.
pub(crate) const SOFT_DEVICES: [CUdevice; 2] = [CUdevice(0x0050_0000), CUdevice(0x0050_0001)];

/// Whether a handle or an address belongs to the software device.
pub(crate) const fn is_soft(bits: u64) -> bool {
    bits >> 48 == SOFT_TAG
}

/// The handle of the software device's object number `id`, which has at most 48 bits.
pub(crate) const fn soft_handle(id: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(((SOFT_TAG << 48) | id) as usize)
}

/// What one argument tells about where a call goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// Nothing.
    Any,
    Soft,
    Gpu,
}

impl Side {
    /// The side of a handle or a device address. Null and the numbers 1 and 2, which
    /// stand for default streams, belong to no device.
    pub(crate) fn of(bits: u64) -> Self {
        match bits {
            0..=2 => Self::Any,
            _ if is_soft(bits) => Self::Soft,
            _ => Self::Gpu,
        }
    }
}

/// Where a call goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Gpu,
    Soft,
}

/// Where a call with these arguments goes.
///
/// A handle that is not the software device's, on a machine without a GPU, is
/// nobody's: the software device then answers that it does not know it.
pub(crate) fn target(arguments: &[Side]) -> Result<Target, CUresult> {
    let soft = arguments.contains(&Side::Soft);
    let gpu = arguments.contains(&Side::Gpu);
    match (soft, gpu) {
        (true, true) => {
            codes::explain(
                "a call mixes a GPU and the software device; copy through host memory instead"
                    .into(),
            );
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
        (true, false) => Ok(Target::Soft),
        (false, true) => Ok(gpu_if_available()),
        (false, false) => Ok(current()),
    }
}

fn gpu_if_available() -> Target {
    if gpu::is_available() { Target::Gpu } else { Target::Soft }
}

/// One entry of a thread's stack of contexts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
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

fn top() -> Option<Slot> {
    with_stack(|stack| stack.last().copied())
}

fn push(slot: Slot) {
    with_stack(|stack| stack.push(slot));
}

fn pop() {
    with_stack(|stack| stack.pop());
}

/// Makes `slot` the top in place of what is there, if anything is.
fn replace_top(slot: Slot) {
    with_stack(|stack| {
        stack.pop();
        stack.push(slot);
    });
}

/// Where calls without a handle go. With nothing on the stack the driver is asked
/// first: a library may have made a context current behind our back.
fn current() -> Target {
    match top() {
        Some(Slot::Soft(_)) => Target::Soft,
        Some(Slot::Driver) => Target::Gpu,
        None => gpu_if_available(),
    }
}

/// The thread's current context, which has to be of the software device.
pub(crate) fn current_soft() -> Result<CUcontext, CUresult> {
    global::initialised()?;
    match top() {
        Some(Slot::Soft(context)) => Ok(context),
        _ => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
    }
}

/// The thread has some current context, as the driver API asks for memory calls.
pub(crate) fn has_context() -> Answer {
    global::initialised()?;
    match top() {
        Some(_) => Ok(()),
        None => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
    }
}

// The handlers of the context stack. Nothing is forwarded while the stack is
// borrowed.

pub(crate) fn create_context(out: Out<CUcontext>, flags: c_uint, device: CUdevice) -> Answer {
    global::initialised()?;
    match target(&[device.side()])? {
        Target::Gpu => {
            let ctx = out.as_ptr();
            // SAFETY: `ctx` is the caller's place for the handle.
            unsafe {
                forward!(cuCtxCreate_v2(ctx: *mut CUcontext, flags: c_uint, device: CUdevice))
            }?;
            push(Slot::Driver);
        }
        Target::Soft => {
            out.check()?;
            let context = soft::context::create(flags, device)?;
            out.set(context)?;
            push(Slot::Soft(context));
        }
    }
    Ok(())
}

pub(crate) fn destroy_context(ctx: CUcontext) -> Answer {
    if target_of_context(ctx)? == Target::Soft {
        soft::context::destroy(ctx)?;
        if top() == Some(Slot::Soft(ctx)) {
            pop();
        }
        return Ok(());
    }
    let was_current = driver_current()? == ctx;
    // SAFETY: the caller owns the context and gives it up.
    unsafe { forward!(cuCtxDestroy_v2(ctx: CUcontext)) }?;
    if was_current {
        // The driver popped it; it was the driver's top, thus our uppermost such slot.
        with_stack(|stack| {
            if let Some(index) = stack.iter().rposition(|slot| *slot == Slot::Driver) {
                stack.remove(index);
            }
        });
    }
    Ok(())
}

pub(crate) fn current_context(out: Out<CUcontext>) -> Answer {
    global::initialised()?;
    match top() {
        Some(Slot::Soft(context)) => out.set(context),
        None if !gpu::is_available() => out.set(CUcontext::NULL),
        _ => out.set(driver_current()?),
    }
}

pub(crate) fn set_current_context(ctx: CUcontext) -> Answer {
    global::initialised()?;
    if ctx == CUcontext::NULL {
        match top() {
            Some(Slot::Soft(_)) => pop(),
            Some(Slot::Driver) => {
                driver_set(ctx)?;
                pop();
            }
            None if gpu::is_available() => driver_set(ctx)?,
            None => {}
        }
        return Ok(());
    }
    match (target_of_context(ctx)?, top()) {
        (Target::Soft, below) => {
            soft::context::check(ctx)?;
            // A library that popped the driver's entry itself has left none to pop.
            if below == Some(Slot::Driver)
                && let Err(code) = driver_pop()
                && code != CUresult::CUDA_ERROR_INVALID_CONTEXT
            {
                return Err(code);
            }
            replace_top(Slot::Soft(ctx));
        }
        (Target::Gpu, Some(Slot::Soft(_))) => {
            driver_push(ctx)?;
            replace_top(Slot::Driver);
        }
        (Target::Gpu, _) => {
            driver_set(ctx)?;
            replace_top(Slot::Driver);
        }
    }
    Ok(())
}

pub(crate) fn push_context(ctx: CUcontext) -> Answer {
    global::initialised()?;
    match target_of_context(ctx)? {
        Target::Soft => {
            soft::context::check(ctx)?;
            push(Slot::Soft(ctx));
        }
        Target::Gpu => {
            driver_push(ctx)?;
            push(Slot::Driver);
        }
    }
    Ok(())
}

pub(crate) fn pop_context(out: Out<CUcontext>) -> Answer {
    global::initialised()?;
    let context = match top() {
        Some(Slot::Soft(context)) => context,
        None if !gpu::is_available() => return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        _ => driver_pop()?,
    };
    pop();
    out.set_if_wanted(context);
    Ok(())
}

fn target_of_context(ctx: CUcontext) -> Result<Target, CUresult> {
    match ctx.side() {
        Side::Any => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        side => target(&[side]),
    }
}

fn driver_current() -> Result<CUcontext, CUresult> {
    let mut context = CUcontext::NULL;
    let ctx = &raw mut context;
    // SAFETY: `ctx` points to `context`, which outlives the call.
    unsafe { forward!(cuCtxGetCurrent(ctx: *mut CUcontext)) }?;
    Ok(context)
}

fn driver_pop() -> Result<CUcontext, CUresult> {
    let mut context = CUcontext::NULL;
    let ctx = &raw mut context;
    // SAFETY: `ctx` points to `context`, which outlives the call.
    unsafe { forward!(cuCtxPopCurrent_v2(ctx: *mut CUcontext)) }?;
    Ok(context)
}

fn driver_push(ctx: CUcontext) -> Answer {
    // SAFETY: the handle is one that the caller got from the driver.
    unsafe { forward!(cuCtxPushCurrent_v2(ctx: CUcontext)) }
}

fn driver_set(ctx: CUcontext) -> Answer {
    // SAFETY: the handle is null or one that the caller got from the driver.
    unsafe { forward!(cuCtxSetCurrent(ctx: CUcontext)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_tell_their_device() {
        assert_eq!(Side::of(0), Side::Any);
        assert_eq!(Side::of(2), Side::Any);
        assert_eq!(Side::of(0x7f00_0000_0000), Side::Gpu);
        assert_eq!(Side::of(soft_handle(0) as u64), Side::Soft);
        assert_eq!(Side::of(soft_handle((1 << 48) - 1) as u64), Side::Soft);
        assert_eq!(Side::of(u64::MAX), Side::Gpu);
    }

    #[test]
    fn mixed_calls_are_refused() {
        assert_eq!(
            target(&[Side::Soft, Side::Any, Side::Gpu]),
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        );
        assert!(crate::last_error().is_some_and(|text| text.contains("host memory")));
        assert_eq!(target(&[Side::Any, Side::Soft]), Ok(Target::Soft));
    }
}
