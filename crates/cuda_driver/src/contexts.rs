//! The calls that work on the thread's stack of contexts. Nothing is forwarded while the
//! stack is borrowed.

use std::ffi::c_uint;

use crate::arg::{Arg, Out, Side};
use crate::codes::Answer;
use crate::gpu::{self, forward};
use crate::init;
use crate::route::{Target, target};
use crate::soft;
use crate::stack::{self, Slot};
use crate::types::{CUcontext, CUdevice, CUresult};

pub(crate) fn create(out: Out<CUcontext>, flags: c_uint, device: CUdevice) -> Answer {
    init::initialised()?;
    match target(&[device.side()])? {
        Target::Gpu => {
            let ctx = out.as_ptr();
            // SAFETY: `ctx` is the caller's place for the handle.
            unsafe {
                forward!(cuCtxCreate_v2(ctx: *mut CUcontext, flags: c_uint, device: CUdevice))
            }?;
            stack::push(Slot::Driver);
        }
        Target::Soft => {
            out.check()?;
            let context = soft::context::create(flags, device)?;
            out.set(context)?;
            stack::push(Slot::Soft(context));
        }
    }
    Ok(())
}

pub(crate) fn destroy(ctx: CUcontext) -> Answer {
    if target_of_context(ctx)? == Target::Soft {
        soft::context::destroy(ctx)?;
        if stack::top() == Some(Slot::Soft(ctx)) {
            stack::pop();
        }
        return Ok(());
    }
    let was_current = driver_current()? == ctx;
    // SAFETY: the caller owns the context and gives it up.
    unsafe { forward!(cuCtxDestroy_v2(ctx: CUcontext)) }?;
    if was_current {
        // The driver popped it; it was the driver's top, thus our uppermost such slot.
        stack::remove_driver();
    }
    Ok(())
}

pub(crate) fn current(out: Out<CUcontext>) -> Answer {
    init::initialised()?;
    match stack::top() {
        Some(Slot::Soft(context)) => out.set(context),
        None if !gpu::is_available() => out.set(CUcontext::NULL),
        _ => out.set(driver_current()?),
    }
}

pub(crate) fn set_current(ctx: CUcontext) -> Answer {
    init::initialised()?;
    if ctx == CUcontext::NULL {
        match stack::top() {
            Some(Slot::Soft(_)) => stack::pop(),
            Some(Slot::Driver) => {
                driver_set(ctx)?;
                stack::pop();
            }
            None if gpu::is_available() => driver_set(ctx)?,
            None => {}
        }
        return Ok(());
    }
    match (target_of_context(ctx)?, stack::top()) {
        (Target::Soft, below) => {
            soft::context::check(ctx)?;
            // A library that popped the driver's entry itself has left none to pop.
            if below == Some(Slot::Driver)
                && let Err(code) = driver_pop()
                && code != CUresult::CUDA_ERROR_INVALID_CONTEXT
            {
                return Err(code);
            }
            stack::replace_top(Slot::Soft(ctx));
        }
        (Target::Gpu, Some(Slot::Soft(_))) => {
            driver_push(ctx)?;
            stack::replace_top(Slot::Driver);
        }
        (Target::Gpu, _) => {
            driver_set(ctx)?;
            stack::replace_top(Slot::Driver);
        }
    }
    Ok(())
}

pub(crate) fn push(ctx: CUcontext) -> Answer {
    init::initialised()?;
    match target_of_context(ctx)? {
        Target::Soft => {
            soft::context::check(ctx)?;
            stack::push(Slot::Soft(ctx));
        }
        Target::Gpu => {
            driver_push(ctx)?;
            stack::push(Slot::Driver);
        }
    }
    Ok(())
}

pub(crate) fn pop(out: Out<CUcontext>) -> Answer {
    init::initialised()?;
    let context = match stack::top() {
        Some(Slot::Soft(context)) => context,
        None if !gpu::is_available() => return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        _ => driver_pop()?,
    };
    stack::pop();
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
    // SAFETY: the caller got the handle from the driver.
    unsafe { forward!(cuCtxPushCurrent_v2(ctx: CUcontext)) }
}

fn driver_set(ctx: CUcontext) -> Answer {
    // SAFETY: the handle is null or one that the caller got from the driver.
    unsafe { forward!(cuCtxSetCurrent(ctx: CUcontext)) }
}
