//! Typed launches, on the host, through `cust` (the feature `launch`).
//!
//! For each kernel, [`#[kernel]`](macro@crate::kernel) makes a type of the kernel's name, which is
//! also its name in a module. The arguments of `launch` correspond to the kernel's parameters:
//!
//! | parameter | argument |
//! |---|---|
//! | `&[f32]` | `&DeviceBuffer<f32>` |
//! | [`DisjointSlice<f32>`](crate::disjoint::DisjointSlice), `*mut f32` | `&mut DeviceBuffer<f32>` |
//! | `f32` | `f32` |
//!
//! A wrong or missing argument does not compile. A block or a size of shared memory that the
//! kernel's attribute excludes is an error before the launch.
//!
//! ```ignore
//! let module = Module::from_ptx(PTX, &[])?;
//! // SAFETY: the PTX was built from these kernels.
//! let vecadd = unsafe { kernels::vecadd::load(&module) }?;
//! vecadd.run(&stream, LaunchConfig::for_num_elems(n, 256), &a, &b, &mut c)?;
//! ```
//!
//! `launch` is `unsafe`, because it returns before the kernel is done. A kernel that is a safe
//! function also has `run`, which waits and is safe. Its arguments by value are `DeviceCopy`, so no
//! pointer to the host's memory reaches the kernel.

extern crate std;

use core::ffi::c_void;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};
use std::vec::Vec;

#[doc(hidden)]
pub use cust::memory::DeviceCopy;
pub use cust::module::Module;
pub use cust::stream::Stream;

use cust::context::legacy::CurrentContext;
use cust::device::DeviceAttribute;
use cust::error::CudaError;
use cust::function::{BlockSize, Function, FunctionAttribute, GridSize};
use cust::memory::{DeviceBox, DeviceBuffer, DevicePointer};

use crate::atomic::{
    AtomicF32, AtomicF64, DeviceAtomicI32, DeviceAtomicI64, DeviceAtomicU32, DeviceAtomicU64,
    SystemAtomicF32, SystemAtomicF64, SystemAtomicI32, SystemAtomicI64, SystemAtomicU32,
    SystemAtomicU64,
};

/// Grid, block, and bytes of dynamic shared memory.
#[derive(Clone, Debug)]
pub struct LaunchConfig {
    /// Blocks.
    pub grid: GridSize,
    /// Threads of a block.
    pub block: BlockSize,
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
}

impl LaunchConfig {
    /// At least `n` threads, in blocks of `block`.
    #[must_use]
    pub fn for_num_elems(n: u32, block: u32) -> Self {
        (n.div_ceil(block.max(1)).max(1), block).into()
    }

    /// `blocks` of `block` threads for each multiprocessor of the current context's device.
    ///
    /// This is for kernels that go on to further elements in a [grid-stride
    /// loop](crate::thread::grid_stride).
    ///
    /// # Errors
    /// If there is no current context.
    pub fn per_multiprocessor(blocks: u32, block: u32) -> Result<Self, LaunchError> {
        let device = CurrentContext::get_device()?;
        let multiprocessors = device.get_attribute(DeviceAttribute::MultiprocessorCount)?;
        Ok((blocks * multiprocessors.unsigned_abs(), block).into())
    }
}

impl<G: Into<GridSize>, B: Into<BlockSize>> From<(G, B)> for LaunchConfig {
    fn from((grid, block): (G, B)) -> Self {
        (grid, block, 0).into()
    }
}

impl<G: Into<GridSize>, B: Into<BlockSize>> From<(G, B, u32)> for LaunchConfig {
    fn from((grid, block, dynamic_shared): (G, B, u32)) -> Self {
        LaunchConfig { grid: grid.into(), block: block.into(), dynamic_shared }
    }
}

/// Why a launch did not happen, or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The module has no such kernel.
    #[error("the module has no kernel `{kernel}`: {source}")]
    NoKernel {
        /// The kernel.
        kernel: &'static str,
        /// The driver's error.
        source: CudaError,
    },
    /// The kernel is right for another block.
    #[error("kernel `{kernel}` takes blocks of {wanted:?} threads, not of {found:?}")]
    Block {
        /// The kernel.
        kernel: &'static str,
        /// The block of its attribute.
        wanted: [u32; 3],
        /// The block of the launch.
        found: [u32; 3],
    },
    /// The block is larger than the kernel, or the device, allows.
    #[error("kernel `{kernel}` takes blocks of at most {most} threads, not of {found}")]
    Threads {
        /// The kernel.
        kernel: &'static str,
        /// The most threads.
        most: u32,
        /// The threads of the launch's block.
        found: u64,
    },
    /// There is less dynamic shared memory than the kernel uses.
    #[error("kernel `{kernel}` uses {wanted} bytes of dynamic shared memory, of {found} given")]
    DynamicShared {
        /// The kernel.
        kernel: &'static str,
        /// Bytes that it uses.
        wanted: u32,
        /// Bytes that the launch gives.
        found: u32,
    },
    /// The driver refused the launch, or it failed.
    #[error("{0}")]
    Cuda(#[from] CudaError),
}

/// The bounds of a kernel's attribute.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Contract {
    pub kernel: &'static str,
    pub block: Option<[u32; 3]>,
    pub max_block: Option<[u32; 3]>,
    pub dynamic_shared: u32,
}

/// A kernel of a module.
#[doc(hidden)]
#[derive(Debug)]
pub struct Kernel<'m> {
    function: Function<'m>,
    contract: Contract,
    max_threads: u32,
}

impl<'m> Kernel<'m> {
    pub fn load(module: &'m Module, contract: Contract) -> Result<Self, LaunchError> {
        let kernel = contract.kernel;
        let no_kernel = |source| LaunchError::NoKernel { kernel, source };
        let function = module.get_function(kernel).map_err(no_kernel)?;
        let max_threads = function.get_attribute(FunctionAttribute::MaxThreadsPerBlock)?;
        Ok(Kernel { function, contract, max_threads: max_threads.unsigned_abs() })
    }

    /// # Safety
    /// The arguments are those of the kernel, and the launch keeps to its contract.
    pub unsafe fn enqueue(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        arguments: &Arguments<'_>,
    ) -> Result<(), LaunchError> {
        let LaunchConfig { grid, block, dynamic_shared } = config;
        let Contract { kernel, block: only, max_block, dynamic_shared: wanted } = self.contract;
        let found = [block.x, block.y, block.z];
        let threads = |block: [u32; 3]| block.into_iter().map(u64::from).product::<u64>();
        if let Some(only) = only.filter(|only| *only != found) {
            return Err(LaunchError::Block { kernel, wanted: only, found });
        }
        let most = max_block.map_or(u64::MAX, threads).min(self.max_threads.into());
        if threads(found) > most {
            return Err(LaunchError::Threads { kernel, most: most as u32, found: threads(found) });
        }
        if dynamic_shared < wanted {
            return Err(LaunchError::DynamicShared { kernel, wanted, found: dynamic_shared });
        }
        let (function, pointers) = (&self.function, &arguments.pointers);
        // SAFETY: the caller's contract; the pointers lead to the arguments.
        unsafe { stream.launch(function, grid, block, dynamic_shared, pointers)? };
        Ok(())
    }
}

/// Checks a value that a safe launch passes: nothing may lead to the host's memory.
#[doc(hidden)]
#[inline]
pub const fn by_value<T: DeviceCopy>() {}

// SAFETY: plain words.
unsafe impl DeviceCopy for crate::tma::TensorMap {}

// SAFETY: its value is `DeviceCopy`, and padding may be anything.
unsafe impl<T: DeviceCopy> DeviceCopy for crate::vec::Aligned<T> {}

// SAFETY: its value is one of zeros.
unsafe impl<T: bytemuck::Zeroable> bytemuck::Zeroable for crate::vec::Aligned<T> {}

/// Waits for everything that was enqueued.
#[doc(hidden)]
pub fn wait(stream: &Stream) -> Result<(), LaunchError> {
    Ok(stream.synchronize()?)
}

/// Pointers to the values that are passed.
#[doc(hidden)]
#[derive(Default)]
pub struct Arguments<'a> {
    pointers: Vec<*mut c_void>,
    values: PhantomData<&'a ()>,
}

impl<'a> Arguments<'a> {
    fn push<T>(&mut self, value: &'a T) {
        self.pointers.push((&raw const *value).cast_mut().cast());
    }
}

/// The values that are passed for one argument.
#[doc(hidden)]
pub trait Passes {
    fn push<'a>(&'a self, to: &mut Arguments<'a>);
}

/// One parameter of the PTX.
#[doc(hidden)]
pub struct Passed<T>(T);

impl<T: Copy> Passed<T> {
    pub fn new(value: T) -> Self {
        Passed(value)
    }
}

impl<T: Copy> Passes for Passed<T> {
    fn push<'a>(&'a self, to: &mut Arguments<'a>) {
        to.push(&self.0);
    }
}

/// A pointer and a length.
#[doc(hidden)]
pub struct PassedSlice(u64, usize);

impl Passes for PassedSlice {
    fn push<'a>(&'a self, to: &mut Arguments<'a>) {
        to.push(&self.0);
        to.push(&self.1);
    }
}

/// The parameter `&[T]` or `*const [T]` of a kernel.
#[derive(Debug)]
pub struct Slice<T>(PhantomData<T>);
/// The parameter `DisjointSlice<T>` or `*mut [T]` of a kernel.
#[derive(Debug)]
pub struct SliceMut<T>(PhantomData<T>);
/// The parameter `&T` of a kernel.
#[derive(Debug)]
pub struct Reference<T>(PhantomData<T>);
/// The parameter `*const T` of a kernel.
#[derive(Debug)]
pub struct Pointer<T>(PhantomData<T>);
/// The parameter `*mut T` of a kernel.
#[derive(Debug)]
pub struct PointerMut<T>(PhantomData<T>);

/// The host's argument for a kernel's parameter `P`.
///
/// A part of a buffer is none: `cust`'s `DeviceSlice` borrows nothing, so the buffer may be freed,
/// or written through another part.
///
/// - for `&[T]` and `*const [T]`: `&DeviceBuffer<T>`
/// - for `DisjointSlice<T>` and `*mut [T]`: `&mut DeviceBuffer<T>`
/// - for `&T`: `&DeviceBox<T>`
/// - for `*const T` and `*mut T`: those for slices, `&DeviceBox<T>` or `&mut DeviceBox<T>`, and
///   `DevicePointer<T>`
/// - for a slice of atomics or a reference to one: a buffer or box of their values, as `&mut`
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no argument for a kernel's parameter that is a {P}",
    note = "`&[T]` takes a `&DeviceBuffer<T>`; `DisjointSlice<T>` and `*mut T` take a `&mut \
            DeviceBuffer<T>`, and so does a slice of atomics, of what lies in it; see `cuda_std::launch::Argument`"
)]
pub trait Argument<P> {
    /// The type that the launch passes.
    #[doc(hidden)]
    type Passed: Passes;

    #[doc(hidden)]
    fn pass(self) -> Self::Passed;
}

macro_rules! arguments {
    ($($parameter:ident: $($given:ty),+ => $passed:ty, |$value:ident| $pass:expr;)*) => {$($(
        impl<T: DeviceCopy> Argument<$parameter<T>> for $given {
            type Passed = $passed;

            fn pass(self) -> $passed {
                let $value = self;
                $pass
            }
        }
    )+)*};
}

arguments! {
    Slice: &DeviceBuffer<T>
        => PassedSlice, |value| PassedSlice(value.as_device_ptr().as_raw(), value.len());
    SliceMut: &mut DeviceBuffer<T>
        => PassedSlice, |value| PassedSlice(value.as_device_ptr().as_raw(), value.len());
    Reference: &DeviceBox<T>
        => Passed<u64>, |value| Passed(value.as_device_ptr().as_raw());
    Pointer: &DeviceBuffer<T>, &DeviceBox<T>
        => Passed<u64>, |value| Passed(value.as_device_ptr().as_raw());
    PointerMut: &mut DeviceBuffer<T>, &mut DeviceBox<T>
        => Passed<u64>, |value| Passed(value.as_device_ptr().as_raw());
    Pointer: DevicePointer<T> => Passed<u64>, |value| Passed(value.as_raw());
    PointerMut: DevicePointer<T> => Passed<u64>, |value| Passed(value.as_raw());
}

macro_rules! atomics {
    ($($atomic:ident: $value:ty;)*) => {$(
        impl Argument<Slice<$atomic>> for &mut DeviceBuffer<$value> {
            type Passed = PassedSlice;

            fn pass(self) -> PassedSlice {
                PassedSlice(self.as_device_ptr().as_raw(), self.len())
            }
        }

        impl Argument<Reference<$atomic>> for &mut DeviceBox<$value> {
            type Passed = Passed<u64>;

            fn pass(self) -> Passed<u64> {
                Passed(self.as_device_ptr().as_raw())
            }
        }
    )*};
}

atomics! {
    AtomicF32: f32;
    AtomicF64: f64;
    SystemAtomicF32: f32;
    SystemAtomicF64: f64;
    AtomicU32: u32;
    AtomicI32: i32;
    AtomicU64: u64;
    AtomicI64: i64;
    DeviceAtomicU32: u32;
    DeviceAtomicI32: i32;
    DeviceAtomicU64: u64;
    DeviceAtomicI64: i64;
    SystemAtomicU32: u32;
    SystemAtomicI32: i32;
    SystemAtomicU64: u64;
    SystemAtomicI64: i64;
}
