//! Loads PTX, and launches its entry points.

use std::collections::hash_map::Entry;
use std::ffi::{CString, c_int, c_void};
use std::mem;

use cuda_driver::sys::{self, CUresult};
use cust::function::{BlockSize, Function, GridSize};
use cust::module::Module;

use super::handle::{Device, Loaded, code, describe};
use super::info::{DeviceInfo, DeviceKind};
use super::limits::RESERVED_SHARED;
use super::stream::Stream;
use crate::error::Error;

impl Device {
    /// Returns an entry point of the PTX, loaded as a module of its own.
    ///
    /// The first call in the process loads it. So nobody waits for the driver to compile unused
    /// kernels.
    ///
    /// # Errors
    ///
    /// [`Error::NotInPtx`] if no kernel has this name, [`Error::Jit`] if the driver refuses the
    /// PTX, or [`Error::Driver`].
    pub fn entry_point(&self, name: &'static str) -> Result<EntryPoint, Error> {
        let _current = self.enter()?;
        #[cfg(test)]
        if let Some(text) = super::planted::text(self, name) {
            let module = Box::leak(Box::new(load(&text, &self.info().name)?));
            let function = function_of(module, name, self)?;
            return Ok(EntryPoint { function, device: self.clone(), early_shared: None });
        }
        let mut modules = self.modules();
        let loaded = match modules.entry(name) {
            Entry::Occupied(loaded) => loaded.into_mut(),
            Entry::Vacant(place) => {
                let text = self.ptx().kernel(name).ok_or_else(|| Error::NotInPtx {
                    kernel: name,
                    device: self.info().name.clone(),
                })?;
                // Every kernel with this instruction follows its protocol. Before the wait, no
                // thread reads memory that another kernel may write, or writes memory that one may
                // access. Prefetches to L2 are the only exception.
                let starts_early = text.contains("griddepcontrol.wait");
                let module = Box::new(load(&text, &self.info().name)?);
                place.insert(Loaded { module, starts_early })
            }
        };
        let starts_early = loaded.starts_early;
        let function = function_of(&loaded.module, name, self)?;
        // SAFETY: only the lifetime changes. The module is boxed in the device's context, which the
        // entry point keeps and which never drops a module.
        let function = unsafe { mem::transmute::<Function<'_>, Function<'static>>(function) };
        drop(modules);
        let mut entry_point = EntryPoint { function, device: self.clone(), early_shared: None };
        if starts_early {
            let limit = self.info().limits.shared_optin;
            let most = limit
                .saturating_sub(entry_point.attribute(sys::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?);
            entry_point.allow_shared(most)?;
            entry_point.early_shared = Some(most);
        }
        Ok(entry_point)
    }

    /// Bytes of shared memory per block that keep the blocks of a grid spread evenly.
    ///
    /// No multiprocessor then holds more blocks than in an even spread. The software device needs
    /// 0: its blocks do not share a multiprocessor.
    fn spreading_shared(&self, grid: &GridSize) -> u32 {
        let DeviceInfo { kind, limits, shared_per_multiprocessor, .. } = self.info();
        if *kind == DeviceKind::Soft {
            return 0;
        }
        let blocks = u64::from(grid.x) * u64::from(grid.y) * u64::from(grid.z);
        let share = blocks.div_ceil(limits.multiprocessors.max(1).into());
        // With one more block than this share, each block has at most this much. So it fits 32
        // bits.
        let of_one_more = (u64::from(*shared_per_multiprocessor) / (share + 1)) as u32;
        (of_one_more + 1).saturating_sub(RESERVED_SHARED)
    }

    /// The loaded entry points, sorted by name.
    ///
    /// They are those of this process, for every device open with the same ordinal.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, Gemm};
    ///
    /// let device = Device::open(DeviceChoice::Soft)?;
    /// let kernels = device.auto()?.warm_up(&[Gemm::new(64, 64, 64)])?;
    /// assert!(kernels.iter().all(|kernel| device.loaded().contains(kernel)));
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn loaded(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.modules().keys().copied().collect();
        names.sort_unstable();
        names
    }
}

/// A kernel's entry point, loaded on a device.
///
/// ```
/// use std::ffi::c_void;
///
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Matrix};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let naive = device.entry_point("naive")?;
/// assert!(naive.resident_blocks((16, 16), 0)? > 0);
///
/// // C = 2 * A * A of matrices of one element.
/// let a = DeviceMatrix::<f32>::from_host(&device, &Matrix::from_vec(1, 1, vec![3.0]))?;
/// let c = DeviceMatrix::<f32>::zeros(&device, [1, 1])?;
/// let (one, alpha, beta) = (1u32, 2.0f32, 0.0f32);
/// let [a_address, c_address] = [&a, &c].map(|matrix| matrix.as_device_ptr().as_raw());
/// let [one, alpha, beta, a_address, c_address]: [*const c_void; 5] = [
///     (&raw const one).cast(),
///     (&raw const alpha).cast(),
///     (&raw const beta).cast(),
///     (&raw const a_address).cast(),
///     (&raw const c_address).cast(),
/// ];
/// let arguments = [one, one, one, alpha, a_address, one, a_address, one, beta, c_address, one];
/// // SAFETY: m, n, k, alpha, A, lda, B, ldb, beta, C and ldc, as the kernel declares them.
/// unsafe {
///     naive.launch(&device.stream(), 1, (16, 16), 0, &arguments.map(<*const c_void>::cast_mut))?;
/// }
/// assert_eq!(c.download()?.at(0, 0), 18.0);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub struct EntryPoint {
    function: Function<'static>,
    device: Device,
    /// The most dynamic shared memory per block, if the kernel may start early.
    early_shared: Option<u32>,
}

impl EntryPoint {
    /// Enqueues a launch on a stream of the same device.
    ///
    /// `arguments` are the addresses of the kernel's arguments, in order. `shared_bytes` is the
    /// size of its dynamic shared memory.
    ///
    /// A kernel that waits for earlier work itself (`griddepcontrol.wait`) may start before that
    /// work ends (*programmatic dependent launch*). The blocks of the earlier launch then occupy
    /// some multiprocessors, so that new blocks may crowd the others. To keep the blocks spread
    /// evenly, they get more shared memory than they ask for where more of them would share a
    /// multiprocessor. On the software device they get `shared_bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if the driver refuses the launch.
    ///
    /// # Safety
    ///
    /// - The stream belongs to the entry point's device.
    /// - The arguments are those that the kernel declares.
    /// - The arguments, the grid and the block keep the kernel's contract until it is done.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        grid: impl Into<GridSize>,
        block: impl Into<BlockSize>,
        shared_bytes: u32,
        arguments: &[*mut c_void],
    ) -> Result<(), Error> {
        let (grid, block) = (grid.into(), block.into());
        if let Some(most) = self.early_shared {
            let early =
                attribute(sys::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, [1, 0, 0]);
            let size =
                (grid, block, shared_bytes.max(self.device.spreading_shared(&grid).min(most)));
            // SAFETY: the caller's contract.
            return unsafe { self.launch_with(stream, size, &mut [early], arguments) };
        }
        let _current = self.device.enter()?;
        let _exclusive = stream.exclusive();
        // SAFETY: the caller's contract. The driver copies the arguments during the call, and does
        // not write to their list.
        let result = unsafe {
            sys::cuLaunchKernel(
                self.raw(),
                grid.x,
                grid.y,
                grid.z,
                block.x,
                block.y,
                block.z,
                shared_bytes,
                stream.as_raw(),
                arguments.as_ptr().cast_mut(),
                std::ptr::null_mut(),
            )
        };
        self.device.check("cuLaunchKernel", result)
    }

    /// Launches like [`EntryPoint::launch`], in clusters along x that are spread over
    /// multiprocessors.
    ///
    /// # Errors
    ///
    /// See [`EntryPoint::launch`].
    ///
    /// # Safety
    ///
    /// The contract of [`EntryPoint::launch`]; the kernel's contract also allows clusters of this
    /// size.
    pub(crate) unsafe fn launch_in_clusters(
        &self,
        stream: &Stream,
        (grid, cluster): (u32, u32),
        threads: u32,
        shared_bytes: u32,
        arguments: &[*mut c_void],
    ) -> Result<(), Error> {
        if cluster == 1 && self.early_shared.is_none() {
            // SAFETY: the caller's contract: each block is a cluster of its own.
            return unsafe { self.launch(stream, grid, threads, shared_bytes, arguments) };
        }
        const SPREAD: u32 = 1;
        let mut attributes = [
            attribute(
                sys::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
                [SPREAD, 0, 0],
            ),
            attribute(sys::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, [cluster, 1, 1]),
            attribute(
                sys::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                [self.early_shared.is_some().into(), 0, 0],
            ),
        ];
        let size = (grid.into(), threads.into(), shared_bytes);
        // SAFETY: the caller's contract.
        unsafe { self.launch_with(stream, size, &mut attributes, arguments) }
    }

    /// Enqueues a launch with attributes.
    ///
    /// # Safety
    ///
    /// The contract of [`EntryPoint::launch`]; the attributes are right for the kernel.
    unsafe fn launch_with(
        &self,
        stream: &Stream,
        (grid, block, shared_bytes): (GridSize, BlockSize, u32),
        attributes: &mut [sys::CUlaunchAttribute],
        arguments: &[*mut c_void],
    ) -> Result<(), Error> {
        let _current = self.device.enter()?;
        let config = config(stream.as_raw(), (grid, block, shared_bytes), attributes);
        let _exclusive = stream.exclusive();
        // SAFETY: the caller's contract. The driver copies everything during the call, and does not
        // write to the list of arguments.
        let result = unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                self.raw(),
                arguments.as_ptr().cast_mut(),
                std::ptr::null_mut(),
            )
        };
        self.device.check("cuLaunchKernelEx", result)
    }

    /// Blocks of this shape that are resident on a multiprocessor, as the driver says.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn resident_blocks(
        &self,
        block: impl Into<BlockSize>,
        shared_bytes: u32,
    ) -> Result<u32, Error> {
        let _current = self.device.enter()?;
        self.function
            .max_active_blocks_per_multiprocessor(block.into(), shared_bytes as usize)
            .map_err(|e| self.device.error("cuOccupancyMaxActiveBlocksPerMultiprocessor", e))
    }

    /// Clusters of `size` blocks that run at once on the device, as the driver says.
    ///
    /// A cluster lies in one GPC.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn active_clusters(
        &self,
        size: u32,
        block: impl Into<BlockSize>,
        shared_bytes: u32,
    ) -> Result<u32, Error> {
        self.allow_shared(shared_bytes)?;
        let _current = self.device.enter()?;
        let mut attributes = [attribute(sys::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, [size, 1, 1])];
        let (stream, size) = (sys::CUstream::NULL, (GridSize::x(size), block.into(), shared_bytes));
        let config = config(stream, size, &mut attributes);
        let mut clusters = 0;
        // SAFETY: the function is loaded, and the driver writes one number.
        let result = unsafe {
            sys::cuOccupancyMaxActiveClusters(&raw mut clusters, self.raw(), &raw const config)
        };
        self.device.check("cuOccupancyMaxActiveClusters", result)?;
        Ok(clusters.cast_unsigned())
    }

    /// Opts in to more dynamic shared memory than the default limit.
    ///
    /// `cust` does not know the attribute. The limit is never lowered, since another product may
    /// need it.
    pub(crate) fn allow_shared(&self, bytes: u32) -> Result<(), Error> {
        let _current = self.device.enter()?;
        // One thread at a time reads and sets the limit.
        let _modules = self.device.modules();
        if bytes <= self.attribute(sys::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)? {
            return Ok(());
        }
        // SAFETY: the function is loaded, and belongs to the context just made current.
        let result = unsafe {
            let attribute = sys::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // At most the device's limit, which the driver counts in an i32.
            sys::cuFuncSetAttribute(self.raw(), attribute, bytes.cast_signed())
        };
        self.device.check("cuFuncSetAttribute", result)
    }

    /// An attribute of the function.
    pub(crate) fn attribute(&self, attribute: c_int) -> Result<u32, Error> {
        let _current = self.device.enter()?;
        let mut value = 0;
        // SAFETY: `value` is valid for the write. The function is loaded, and belongs to the
        // context just made current.
        let result = unsafe { sys::cuFuncGetAttribute(&raw mut value, attribute, self.raw()) };
        self.device.check("cuFuncGetAttribute", result)?;
        // Attributes are counts, never negative.
        Ok(value.cast_unsigned())
    }

    fn raw(&self) -> sys::CUfunction {
        self.function.to_raw().into()
    }
}

/// A launch of this size with attributes, which are read while the caller has them.
fn config(
    stream: sys::CUstream,
    (grid, block, shared_bytes): (GridSize, BlockSize, u32),
    attributes: &mut [sys::CUlaunchAttribute],
) -> sys::CUlaunchConfig {
    sys::CUlaunchConfig {
        grid_dim_x: grid.x,
        grid_dim_y: grid.y,
        grid_dim_z: grid.z,
        block_dim_x: block.x,
        block_dim_y: block.y,
        block_dim_z: block.z,
        shared_mem_bytes: shared_bytes,
        stream,
        attrs: attributes.as_mut_ptr(),
        num_attrs: attributes.len() as u32,
    }
}

/// A launch attribute whose value begins with these numbers.
fn attribute(id: u32, numbers: [u32; 3]) -> sys::CUlaunchAttribute {
    let mut value = [0; 64];
    for (bytes, number) in value.chunks_exact_mut(4).zip(numbers) {
        bytes.copy_from_slice(&number.to_ne_bytes());
    }
    sys::CUlaunchAttribute { id, pad: [0; 4], value }
}

/// Loads PTX, or fetches the compiler's log if that fails.
fn load(text: &str, device: &str) -> Result<Module, Error> {
    let image = CString::new(text).expect("PTX is text without NUL");
    Module::from_ptx_cstr(&image, &[])
        .map_err(|error| refused(device, code(error), jit_log(&image)))
}

/// A kernel of a module. Here the software device reports instructions that it cannot run.
fn function_of<'m>(module: &'m Module, name: &str, device: &Device) -> Result<Function<'m>, Error> {
    module.get_function(name).map_err(|error| match code(error) {
        code @ CUresult::CUDA_ERROR_INVALID_PTX => {
            refused(&device.info().name, code, cuda_driver::last_error().unwrap_or_default())
        }
        _ => device.error("cuModuleGetFunction", error),
    })
}

fn refused(device: &str, code: CUresult, log: String) -> Error {
    Error::Jit { device: device.to_owned(), code, reason: describe(code), log }
}

/// The log of the driver's compiler.
///
/// `cust` cannot ask for a log, so the failed PTX is loaded again through the raw call.
fn jit_log(image: &CString) -> String {
    let mut log = vec![0u8; 16 << 10];
    let mut options = [sys::CU_JIT_ERROR_LOG_BUFFER, sys::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // The driver's convention passes a size as a pointer.
    let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
    let mut module = sys::CUmodule::NULL;
    // SAFETY: the image is NUL-terminated, and there are two options with two values. The log
    // buffer has the length in the second value, and outlives the call.
    let result = unsafe {
        sys::cuModuleLoadDataEx(
            &raw mut module,
            image.as_ptr().cast(),
            2,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    if result == CUresult::CUDA_SUCCESS {
        // SAFETY: just loaded, and nothing in it is in use.
        let _ = unsafe { sys::cuModuleUnload(module) };
        return "nothing: the second attempt to load them succeeded".to_owned();
    }
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]).trim().to_owned();
    match (text.is_empty(), cuda_driver::last_error()) {
        (false, _) => text,
        (true, Some(text)) => text,
        (true, None) => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceChoice;

    #[test]
    fn a_kernel_is_loaded_once_however_often_a_device_is_opened() {
        let function = |device: &Device| device.entry_point("naive").unwrap().raw();
        let [one, other] = [(); 2].map(|()| Device::open(DeviceChoice::Soft).unwrap());
        let first = function(&one);
        assert_eq!(function(&other), first);
        assert_ne!(function(&Device::open(DeviceChoice::SoftSm90).unwrap()), first);
        // A loaded module stays while one of the devices is open.
        drop(one);
        assert_eq!(function(&other), first);
    }

    #[test]
    fn broken_ptx_comes_back_with_the_log() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let _current = device.enter().unwrap();
        let text = |broken: &str, body: &str| {
            format!(
                ".version 7.0\n.target sm_80\n.address_size 64\n{broken}\n\
                 .visible .entry k()\n{{\n    {body}\n    ret;\n}}\n"
            )
        };
        let Err(error) = load(&text(".nonsense", ""), "a device") else { panic!("must not load") };
        let error = error.to_string();
        assert!(error.contains("a device cannot load") && error.contains("nonsense"), "{error}");

        let module = load(&text("", "no.such.opcode;"), "a device").unwrap();
        let error = function_of(&module, "k", &device).unwrap_err().to_string();
        assert!(error.contains("cannot load") && error.contains("no.such.opcode"), "{error}");
        let error = function_of(&module, "other", &device).unwrap_err().to_string();
        assert!(error.contains("cuModuleGetFunction"), "{error}");
    }
}
