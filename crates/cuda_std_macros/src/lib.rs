//! The attributes and the macro behind `cuda_std`; use them through that crate.

mod bounds;
mod gpu_only;
mod host;
mod kernel;
mod parameter;
mod rename;
mod shared;
mod space;
mod variants;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Marks a function as a GPU kernel: an entry point that the host launches.
///
/// The function keeps its name in the PTX (`match` if it is `r#match`). It must
///
/// - be `unsafe` if a launch can break what it relies on, which `# Safety` says;
/// - return nothing, and have no `self`;
/// - have parameters that are `Copy`, have a size, and are aligned to at most 16 bytes, which is
///   checked at compile time.
///
/// Some parameters are special:
///
/// - A slice `&[T]`, `*const [T]` or `*mut [T]` arrives as two parameters, pointer and length,
///   because the hosts of Rust-CUDA pass these. The pointer may be null if the length is 0.
/// - The target of a `&` is `Sync`, and `&mut` is refused, because all threads have the reference.
/// - `DisjointSlice<T>` is for elements that threads write. It also arrives as pointer and length.
///
/// # Launch bounds
///
/// - `#[kernel(block = 256)]` or `block = (32, 16)`, up to three sizes: the only block this kernel
///   is right for (`.reqntid`). The driver refuses any other, and the compiler may use all
///   registers that such a block leaves to a thread.
/// - `#[kernel(max_block = ...)]`: the largest block (`.maxntid`).
/// - `min_blocks = 2` beside either: leave registers for this number of blocks on a multiprocessor
///   (`.minnctapersm`).
/// - `cluster = 2`, or up to three sizes: the blocks of a cluster (`.reqnctapercluster`, sm_90), at
///   most 8. The grid is a multiple of that in each dimension; the driver refuses any other.
/// - `dynamic_shared = 1024`: bytes of dynamic shared memory that the kernel uses. A typed launch
///   that gives less is refused.
///
/// The sizes are constant expressions of type `u32`.
///
/// # Rules
///
/// - `#[kernel(no_panic)]`: it is a build error if this kernel can panic.
/// - `#[kernel(no_local_memory)]`: it is a build error if this kernel keeps variables in local
///   memory.
///
/// # Variants
///
/// A generic kernel lists the types and constants that it is built for. Each variant is an entry
/// point, whose name is the kernel's and the words of its values: `scale_f32`. `as` gives another
/// word, and `as _` none. Bounds may name the parameters. A `shared_array!` cannot depend on them.
///
/// In an entry point a type parameter is an alias of its type. So a method of the type comes before
/// one of a trait with the same name: write `T::max(x, y)` rather than `x.max(y)`.
///
/// ```
/// # use cuda_std_macros::kernel;
/// #[kernel(variants(T = f32 | u64))]
/// pub fn scale<T: Copy + std::ops::Mul<Output = T>>(x: &[T], factor: T) {}
///
/// // `lookup_f32_u8`, `lookup_f64_u16`.
/// #[kernel(variants((T, I) = (f32, u8) | (f64, u16)))]
/// pub fn lookup<T: Copy, I: Copy>(table: &[T], index: &[I]) {}
///
/// // All combinations: `copy_128`, `copy_256`, `copy_ta_128`, `copy_ta_256`.
/// #[kernel(block = N, variants(TRANSPOSED = false as _ | true as ta, N = 128 | 256))]
/// pub fn copy<const N: u32, const TRANSPOSED: bool>(x: &[f32]) {}
/// ```
///
/// # On the host
///
/// With the feature `launch` of `cuda_std`, the host also has a type of the kernel's name. It
/// launches the kernel with checked arguments: see `cuda_std::launch`. For a generic kernel it is
/// `scale::<f32>`.
///
/// # Grid constants
///
/// `#[grid_constant] name: &T` is a parameter that the launch passes by value and that the kernel
/// reads in place. All threads read the same one: `const __grid_constant__ T` in CUDA C++. It is
/// for two uses:
///
/// - an instruction needs the address of the value, as for a tensor map;
/// - a table is indexed by numbers that only the run knows. A `T` by value would be copied to local
///   memory for that, which `cuda_builder` refuses.
///
/// Its conditions are these:
///
/// - `T` is a struct with `repr(C)`, or an array, for the host writes its bytes. It is checked at
///   compile time that it is `Copy` (so nothing can write through the reference), has a size, and
///   is aligned to at most 64 bytes.
/// - The host passes `size_of::<T>()` bytes, through `cuLaunchKernel` a pointer to them. They lie
///   on a multiple of 64 bytes. All parameters together have room for 4096 bytes.
/// - The address is a generic one (`cvta.param`, sm_70, PTX ISA 7.7). rustc writes such new PTX for
///   `sm_89` and later; for an older architecture the kernel does not compile.
///
/// ```
/// use cuda_std_macros::kernel;
///
/// #[repr(C)]
/// #[derive(Clone, Copy)]
/// pub struct Taps([f32; 16]);
///
/// /// Multiplies `x[i]` by a factor that depends on `i`.
/// ///
/// /// # Safety
/// /// One block of 256 threads, and as many elements of `x`, which nothing else touches.
/// #[kernel(block = 256)]
/// pub unsafe fn window(#[grid_constant] taps: &Taps, x: *mut f32) {
///     # let thread_idx_x = || 0;
///     let i = thread_idx_x() as usize;
///     // SAFETY: the element is this thread's alone.
///     unsafe { *x.add(i) *= taps.0[i % 16] }
/// }
/// ```
///
/// A type does not compile if it is not `Copy` or not `Sync`, has no size, or needs a greater
/// alignment:
///
/// ```compile_fail,E0277
/// # use cuda_std_macros::kernel;
/// #[kernel]
/// unsafe fn k(#[grid_constant] x: &std::cell::Cell<[u32; 4]>) {}
/// ```
/// ```compile_fail,E0277
/// # use cuda_std_macros::kernel;
/// #[kernel]
/// unsafe fn k(x: &[std::cell::Cell<u32>]) {}
/// ```
/// ```compile_fail,E0080
/// # use cuda_std_macros::kernel;
/// #[kernel]
/// unsafe fn k(#[grid_constant] x: &[u32; 0]) {}
/// ```
/// ```compile_fail,E0080
/// # use cuda_std_macros::kernel;
/// #[repr(C, align(128))]
/// #[derive(Clone, Copy)]
/// struct Wide([u32; 32]);
///
/// #[kernel]
/// unsafe fn k(#[grid_constant] x: &Wide) {}
/// ```
///
/// # Elsewhere
///
/// On other targets than the GPU the function stays an ordinary `unsafe fn`, so that editors and
/// `cargo check` see it.
#[proc_macro_attribute]
pub fn kernel(args: TokenStream, item: TokenStream) -> TokenStream {
    let bounds = parse_macro_input!(args as bounds::Bounds);
    let function = parse_macro_input!(item as syn::ItemFn);
    let expanded = kernel::expand(bounds, function);
    rename::renamed(expanded.unwrap_or_else(syn::Error::into_compile_error)).into()
}

/// Puts a static of a `#[kernel]` into the block's shared memory: one place for all its threads.
///
/// It is written `#[address_space(shared)] static mut NAME: T = ..;`, as in Rust-CUDA. Like any
/// static that can be written, each access to it is `unsafe`. Its value is not stored, and the
/// place is not initialised before some thread has written it. So `MaybeUninit<T>` is the honest
/// type for it. It is reached through a generic pointer; `shared_array!` has faster accesses.
///
/// `#[kernel]` itself expands it, and only among the statements of its function.
#[proc_macro_attribute]
pub fn address_space(_args: TokenStream, item: TokenStream) -> TokenStream {
    let message = "a static in shared memory stands among the statements of a `#[kernel]`";
    let item = proc_macro2::TokenStream::from(item);
    syn::Error::new_spanned(item, message).into_compile_error().into()
}

/// Marks a function whose body exists on the GPU only.
///
/// On other targets it type-checks, and panics when it is called.
#[proc_macro_attribute]
pub fn gpu_only(_args: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as syn::ItemFn);
    gpu_only::expand(function).into()
}

/// Declares an array in the block's shared memory: `shared_array![T; N]`.
///
/// Evaluates to a `cuda_std::shared::SharedArray<T, N>`, a copyable handle. The array belongs to
/// the place in the source where the macro stands, as a `static` would. It is the same array each
/// time that line runs, in every thread of the block. Its contents start undefined. The array is
/// aligned to 128 bytes. `T` and `N` may name items of the module, not of the function. Each
/// expansion of a macro that makes kernels has an array of its own.
///
/// In the PTX the array is named after the kernel and its ordinal there, `reverse_shared_0`.
///
/// At most 48 KiB can be declared this way in one kernel. More must be asked for at launch and
/// reached through `cuda_std::shared::dynamic_shared_mem`.
#[proc_macro]
pub fn shared_array(input: TokenStream) -> TokenStream {
    let array = parse_macro_input!(input as shared::SharedArray);
    rename::renamed(shared::expand(array, &[])).into()
}

/// The name of an item as a string, without `r#`: the name of its symbol in the PTX.
#[doc(hidden)]
#[proc_macro]
pub fn symbol(input: TokenStream) -> TokenStream {
    let name = syn::ext::IdentExt::unraw(&parse_macro_input!(input as syn::Ident)).to_string();
    proc_macro::TokenTree::from(proc_macro::Literal::string(&name)).into()
}
