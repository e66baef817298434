//! Contexts of the software device.

use std::ffi::{c_int, c_uint};

use super::capture::allow_context;
use super::device::SoftDevice;
use super::instance::device as the_device;
use super::leaks;
use super::state::{self, Context, State, is_primary, primary};
use crate::arg::Out;
use crate::codes::Answer;
use crate::stack;
use crate::types::{CUcontext, CUdevice, CUresult};

/// The driver API version that the software device answers where there is no GPU.
pub(crate) const API_VERSION: c_uint = 13000;

/// `CU_CTX_FLAGS_MASK` of CUDA 13.
const FLAGS: c_uint = 0xFF;

/// The largest `CUfunc_cache` and `CUsharedconfig`.
const MAX_CACHE_CONFIG: c_uint = 3;
const MAX_SHARED_CONFIG: c_uint = 2;

pub(crate) fn create(flags: c_uint, device: CUdevice) -> Result<CUcontext, CUresult> {
    let device = SoftDevice::of(device)?;
    if flags & !FLAGS != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let mut state = state::lock();
    let context = CUcontext(state.new_handle());
    state.contexts.insert(context.bits(), Context { device, flags, ..Context::default() });
    Ok(context)
}

pub(crate) fn destroy(context: CUcontext) -> Answer {
    let mut state = state::lock();
    let removed = match is_primary(context) {
        true => None,
        false => state.contexts.remove(&context.bits()),
    };
    let removed = removed.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    clear(state, context, Some(removed));
    Ok(())
}

/// Frees what belongs to `context`, outside of the lock. `removed` is what it was.
fn clear(
    mut state: std::sync::MutexGuard<'_, State>,
    context: CUcontext,
    removed: Option<Context>,
) {
    // All its work ends, and then its streams do.
    let order = state.order_of_all(context);
    order.synchronize();
    for stream in order.behind.into_iter().chain([order.number]) {
        the_device().end_stream(stream, None);
    }
    let (allocations, modules) = state.clear(context);
    drop(state);
    drop(modules);
    // After a fault every call fails, so that nobody can free anything.
    if removed.is_none_or(|context| context.fault.is_none()) {
        leaks::note(&allocations);
    }
    for address in allocations {
        // It came from `alloc` and was not freed since: it cannot fail.
        let _ = the_device().free_for("cuCtxDestroy_v2", address);
    }
}

/// The context is alive.
pub(crate) fn check(context: CUcontext) -> Answer {
    match state::lock().contexts.contains_key(&context.bits()) {
        true => Ok(()),
        false => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
    }
}

pub(crate) fn retain_primary(out: Out<CUcontext>, device: CUdevice) -> Answer {
    let device = SoftDevice::of(device)?;
    out.set(primary(device))?;
    let mut state = state::lock();
    state.primaries[device.index()].retained += 1;
    let fresh = || Context { device, ..Context::default() };
    state.contexts.entry(primary(device).bits()).or_insert_with(fresh);
    Ok(())
}

pub(crate) fn release_primary(device: CUdevice) -> Answer {
    let device = SoftDevice::of(device)?;
    let mut state = state::lock();
    let retained = &mut state.primaries[device.index()].retained;
    *retained = retained.checked_sub(1).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    if *retained == 0 {
        let removed = state.contexts.remove(&primary(device).bits());
        clear(state, primary(device), removed);
    }
    Ok(())
}

/// Everything in the primary context goes, a fault too; whoever retained it keeps it.
pub(crate) fn reset_primary(device: CUdevice) -> Answer {
    let device = SoftDevice::of(device)?;
    let mut state = state::lock();
    let mut removed = None;
    if state.primaries[device.index()].retained > 0 {
        let fresh = Context { device, ..Context::default() };
        removed = state.contexts.insert(primary(device).bits(), fresh);
    }
    clear(state, primary(device), removed);
    Ok(())
}

pub(crate) fn set_primary_flags(device: CUdevice, flags: c_uint) -> Answer {
    let device = SoftDevice::of(device)?;
    if flags & !FLAGS != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    state::lock().primaries[device.index()].flags = flags;
    Ok(())
}

pub(crate) fn api_version(context: CUcontext, version: Out<c_uint>) -> Answer {
    let context = if context == CUcontext::NULL { stack::current_soft()? } else { context };
    check(context)?;
    version.set(API_VERSION)
}

pub(crate) fn device(out: Out<CUdevice>) -> Answer {
    let context = stack::current_soft()?;
    out.set(state::lock().context(context)?.device.device())
}

pub(crate) fn flags(out: Out<c_uint>) -> Answer {
    let (context, mut state) = state::current()?;
    let &mut Context { device, flags, .. } = state.context(context)?;
    out.set(if is_primary(context) { state.primaries[device.index()].flags } else { flags })
}

pub(crate) fn limit(value: Out<usize>, limit: c_uint) -> Answer {
    let (context, mut state) = state::current()?;
    value.set(state.context(context)?.limits.get(limit)?)
}

pub(crate) fn set_limit(limit: c_uint, value: usize) -> Answer {
    let (context, mut state) = state::current()?;
    state.context(context)?.limits.set(limit, value)
}

pub(crate) fn cache_config(out: Out<c_uint>) -> Answer {
    let (context, mut state) = state::current()?;
    out.set(state.context(context)?.cache_config)
}

pub(crate) fn set_cache_config(config: c_uint) -> Answer {
    let (context, mut state) = state::current()?;
    if config > MAX_CACHE_CONFIG {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    state.context(context)?.cache_config = config;
    Ok(())
}

pub(crate) fn shared_config(out: Out<c_uint>) -> Answer {
    let (context, mut state) = state::current()?;
    out.set(state.context(context)?.shared_config)
}

pub(crate) fn set_shared_config(config: c_uint) -> Answer {
    let (context, mut state) = state::current()?;
    if config > MAX_SHARED_CONFIG {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    state.context(context)?.shared_config = config;
    Ok(())
}

/// There is one priority: work runs when it is submitted.
pub(crate) fn stream_priority_range(least: Out<c_int>, greatest: Out<c_int>) -> Answer {
    state::current_context()?;
    least.set_if_wanted(0);
    greatest.set_if_wanted(0);
    Ok(())
}

pub(crate) fn synchronize() -> Answer {
    let (context, mut state) = state::current()?;
    allow_context(&mut state, context)?;
    state.order_of_all(context).synchronize();
    Ok(())
}

/// The text of the fault that the calling thread's current context is stuck in:
/// kernel, PTX line, block, thread and what happened. `None` on a GPU.
pub fn last_fault() -> Option<String> {
    let context = stack::current_soft().ok()?;
    state::lock().contexts.get(&context.bits())?.fault.as_ref().map(|fault| fault.text.clone())
}
