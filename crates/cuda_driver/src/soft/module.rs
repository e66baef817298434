//! Modules of the software device: PTX text.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::sync::Arc;

use soft_cuda::{KernelError, LoadError, MAX_STATIC_SHARED};

use super::instance::device;
use super::state::{self, Function, LoadedModule, State};
use crate::arg::Out;
use crate::codes::Answer;
use crate::last_error::explain;
use crate::types::{
    CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_INFO_LOG_BUFFER,
    CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CUdeviceptr, CUfunction, CUmodule, CUresult,
};

/// How images that are not PTX text begin: ELF (cubin), and the two fat binaries.
const BINARIES: [[u8; 4]; 3] =
    [*b"\x7fELF", 0xBA55_ED50_u32.to_le_bytes(), 0x4662_43B1_u32.to_le_bytes()];

/// Loads an image.
///
/// # Safety
///
/// The contract of `cuModuleLoadData`.
pub(crate) unsafe fn load_data(out: Out<CUmodule>, image: *const c_void) -> Answer {
    // SAFETY: the caller's contract; there are no options.
    unsafe { load_data_ex(out, image, 0, std::ptr::null_mut(), std::ptr::null_mut()) }
}

/// Loads an image and fills the log buffers among the options. All other options
/// tune a compiler that is not there, and are ignored.
///
/// # Safety
///
/// The contract of `cuModuleLoadDataEx`.
pub(crate) unsafe fn load_data_ex(
    out: Out<CUmodule>,
    image: *const c_void,
    num_options: c_uint,
    options: *mut c_uint,
    option_values: *mut *mut c_void,
) -> Answer {
    out.check()?;
    // SAFETY: the caller's contract.
    let text = unsafe { image_text(image) };
    let (answer, log) = match text.and_then(load) {
        Ok(module) => (out.set(module), String::new()),
        Err((code, log)) => (Err(code), log),
    };
    // SAFETY: the caller's contract.
    unsafe {
        let buffers = JitBuffers::find(num_options, options, option_values);
        buffers.info.fill("");
        buffers.error.fill(&log);
    }
    if !log.is_empty() {
        explain(log);
    }
    answer
}

/// Loads a file.
///
/// # Safety
///
/// `path` is null or a C string.
pub(crate) unsafe fn load_file(out: Out<CUmodule>, path: *const c_char) -> Answer {
    out.check()?;
    if path.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's contract.
    let path = unsafe { CStr::from_ptr(path) }.to_string_lossy();
    let loaded = match std::fs::read(path.as_ref()) {
        Ok(bytes) if is_binary(|at| bytes.get(at).copied()) => Err(not_ptx()),
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => load(text.trim_end_matches('\0')),
            Err(_) => Err(not_ptx()),
        },
        Err(error) => {
            Err((CUresult::CUDA_ERROR_FILE_NOT_FOUND, format!("cannot read {path}: {error}")))
        }
    };
    let module = loaded.map_err(|(code, text)| {
        explain(text);
        code
    })?;
    out.set(module)
}

/// A code, and the text for the log.
type Refused = (CUresult, String);

fn not_ptx() -> Refused {
    let text = "the software device loads PTX text, and this image is none; give it the PTX";
    (CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, text.into())
}

/// The PTX text at `image`.
///
/// # Safety
///
/// `image` is null, or points to PTX that ends with a NUL, or to a binary image.
unsafe fn image_text<'a>(image: *const c_void) -> Result<&'a str, Refused> {
    if image.is_null() {
        return Err((CUresult::CUDA_ERROR_INVALID_VALUE, "the module image is null".into()));
    }
    let image = image.cast::<c_char>();
    // SAFETY: `is_binary` reads a byte only if those before it began a binary image,
    // whose header is longer than this; in particular none of them was a NUL.
    if is_binary(|at| Some(unsafe { image.add(at).read() } as u8)) {
        return Err(not_ptx());
    }
    // SAFETY: not a binary image, so it is a C string.
    unsafe { CStr::from_ptr(image) }.to_str().map_err(|_| not_ptx())
}

/// Whether an image begins like a binary; reads no byte after the first that differs.
fn is_binary(byte: impl Fn(usize) -> Option<u8>) -> bool {
    BINARIES
        .iter()
        .any(|magic| magic.iter().enumerate().all(|(at, expected)| byte(at) == Some(*expected)))
}

fn load(text: &str) -> Result<CUmodule, Refused> {
    let unexplained = |code| (code, String::new());
    let (context, mut state) = state::current().map_err(unexplained)?;
    let model = state.context(context).map_err(unexplained)?.device.model();
    drop(state);
    let module = device()
        .load(text)
        .map_err(|error| (CUresult::CUDA_ERROR_INVALID_PTX, explained(&error, text)))?;
    if !model.runs(module.target()) {
        let capability = model.capability();
        let text = format!(
            "the PTX is for {}, and the device has compute capability {}.{}; give it PTX for that",
            module.target(),
            capability / 10,
            capability % 10
        );
        return Err((CUresult::CUDA_ERROR_INVALID_PTX, text));
    }
    let mut state = state::lock();
    let handle = CUmodule(state.new_handle());
    let loaded = LoadedModule { context, module: Arc::new(module), functions: HashMap::new() };
    state.modules.insert(handle.bits(), loaded);
    Ok(handle)
}

/// What is wrong with a text, and where in the source that it comes from.
fn explained(error: &LoadError, text: &str) -> String {
    match error.place(text) {
        Some(place) => format!("{error} (from {place})"),
        None => error.to_string(),
    }
}

/// A log buffer among the options of a load, with the place of its size option,
/// which receives the number of bytes written.
struct JitBuffer {
    start: *mut u8,
    size: usize,
    size_option: *mut *mut c_void,
}

struct JitBuffers {
    info: JitBuffer,
    error: JitBuffer,
}

impl JitBuffer {
    const NONE: Self =
        Self { start: std::ptr::null_mut(), size: 0, size_option: std::ptr::null_mut() };

    /// Writes `text` with its NUL, cut to the buffer's size.
    ///
    /// # Safety
    ///
    /// The buffer is null or has `size` bytes, and the option's place is null or valid.
    unsafe fn fill(&self, text: &str) {
        let mut written = 0;
        if !self.start.is_null() && self.size > 0 {
            let text = &text.as_bytes()[..text.len().min(self.size - 1)];
            // SAFETY: text and NUL are at most `size` bytes.
            unsafe {
                self.start.copy_from_nonoverlapping(text.as_ptr(), text.len());
                self.start.add(text.len()).write(0);
            }
            written = text.len();
        }
        if !self.size_option.is_null() {
            // SAFETY: not null, so it is a place in the caller's array of values.
            unsafe { self.size_option.write(std::ptr::without_provenance_mut(written)) };
        }
    }
}

impl JitBuffers {
    /// The log buffers among the options. Values of other options are not read:
    /// `cust` passes fewer values than options in one case.
    ///
    /// # Safety
    ///
    /// `options` has `count` options, and `values` a value for each of the logs'.
    unsafe fn find(count: c_uint, options: *mut c_uint, values: *mut *mut c_void) -> Self {
        let mut found = Self { info: JitBuffer::NONE, error: JitBuffer::NONE };
        if options.is_null() || values.is_null() {
            return found;
        }
        for index in 0..count as usize {
            // SAFETY: `index` is below the count, which the caller vouches for.
            let (option, place) = unsafe { (options.add(index).read(), values.add(index)) };
            let buffer = match option {
                CU_JIT_INFO_LOG_BUFFER | CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES => &mut found.info,
                CU_JIT_ERROR_LOG_BUFFER | CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => &mut found.error,
                _ => continue,
            };
            // SAFETY: an option of the logs has a value.
            let value = unsafe { place.read() };
            match option {
                CU_JIT_INFO_LOG_BUFFER | CU_JIT_ERROR_LOG_BUFFER => buffer.start = value.cast(),
                // The value is an unsigned int in the place of a pointer: the upper
                // half is not part of it.
                _ => (buffer.size, buffer.size_option) = (value.addr() as u32 as usize, place),
            }
        }
        found
    }
}

fn find(state: &State, module: CUmodule) -> Result<&LoadedModule, CUresult> {
    let loaded = state.modules.get(&module.bits()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    state.healthy(loaded.context)?;
    Ok(loaded)
}

/// A name as the driver API passes it.
///
/// # Safety
///
/// `name` is null or a C string.
unsafe fn name_text<'a>(name: *const c_char) -> Result<&'a str, CUresult> {
    if name.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's contract.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| CUresult::CUDA_ERROR_NOT_FOUND)
}

/// Finds a kernel, and decodes it the first time.
///
/// A kernel keeps its handle, so its attributes stay.
///
/// # Safety
///
/// `name` is null or a C string.
pub(crate) unsafe fn function(
    out: Out<CUfunction>,
    module: CUmodule,
    name: *const c_char,
) -> Answer {
    // SAFETY: the caller's contract.
    let name = unsafe { name_text(name) }?;
    let modules_own = find(&state::lock(), module)?.module.clone();
    let kernel = modules_own.kernel(name).map_err(|error| {
        explain(error.to_string());
        match error {
            KernelError::Unknown { .. } => CUresult::CUDA_ERROR_NOT_FOUND,
            _ => CUresult::CUDA_ERROR_INVALID_PTX,
        }
    })?;
    let mut state = state::lock();
    let loaded = find(&state, module)?;
    if let Some(known) = loaded.functions.get(name) {
        return out.set(CUfunction(std::ptr::without_provenance_mut(*known as usize)));
    }
    let function = Function {
        context: loaded.context,
        module: module.bits(),
        // Static and dynamic shared memory together have this much without asking.
        max_dynamic_shared: MAX_STATIC_SHARED.saturating_sub(kernel.static_shared_bytes()),
        kernel,
        carveout: -1,
        non_portable_cluster: false,
        cluster_scheduling: 0,
    };
    let handle = CUfunction(state.new_handle());
    state.functions.insert(handle.bits(), function);
    if let Some(loaded) = state.modules.get_mut(&module.bits()) {
        loaded.functions.insert(name.to_owned(), handle.bits());
    }
    out.set(handle)
}

/// Finds a variable of a module.
///
/// # Safety
///
/// `name` is null or a C string.
pub(crate) unsafe fn global(
    address: Out<CUdeviceptr>,
    bytes: Out<usize>,
    module: CUmodule,
    name: *const c_char,
) -> Answer {
    // SAFETY: the caller's contract.
    let name = unsafe { name_text(name) }?;
    let state = state::lock();
    let Some((at, size)) = find(&state, module)?.module.global(name) else {
        explain(format!("the module has no variable named {name}"));
        return Err(CUresult::CUDA_ERROR_NOT_FOUND);
    };
    address.set_if_wanted(CUdeviceptr(at));
    bytes.set_if_wanted(size as usize);
    Ok(())
}

pub(crate) fn unload(module: CUmodule) -> Answer {
    let mut state = state::lock();
    find(&state, module)?;
    let unloaded = state.modules.remove(&module.bits());
    state.functions.retain(|_, function| function.module != module.bits());
    // Dropping it frees device memory, which needs no lock of ours.
    drop(state);
    drop(unloaded);
    Ok(())
}
