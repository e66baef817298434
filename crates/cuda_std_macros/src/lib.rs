//! The attribute and the macro behind `cuda_std`; use them through that crate.

mod kernel;
mod shared;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Marks an `unsafe fn` as a GPU kernel: an entry point that the host launches.
///
/// The function keeps its name in the PTX, and must
/// - be `unsafe` (a launch can break what the kernel relies on; say what that is
///   under `# Safety`), return nothing, and have neither generics nor `self`;
/// - take parameters that are `Copy`, which is checked at compile time. A slice
///   `&[T]` or `&mut [T]` arrives as two parameters, pointer and length, because
///   that is what the hosts of Rust-CUDA pass; so does `*const [T]`.
///
/// # Launch bounds
///
/// - `#[kernel(block = 256)]` or `block = (32, 16)`, up to three sizes: the only
///   block this kernel is right for (`.reqntid`). The driver refuses any other, and
///   the compiler may use all registers that such a block leaves to a thread.
/// - `#[kernel(max_block = ...)]`: the largest block (`.maxntid`).
/// - `min_blocks = 2` beside either: leave registers for so many blocks on a
///   multiprocessor (`.minnctapersm`).
///
/// The sizes are constant expressions of type `u32`.
///
/// On other targets than the GPU the function stays an ordinary `unsafe fn`, so
/// that editors and `cargo check` see it.
#[proc_macro_attribute]
pub fn kernel(args: TokenStream, item: TokenStream) -> TokenStream {
    let bounds = parse_macro_input!(args as kernel::Bounds);
    let function = parse_macro_input!(item as syn::ItemFn);
    kernel::expand(bounds, function).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Marks a function whose body exists on the GPU only.
///
/// On other targets it type-checks, and panics when it is called.
#[proc_macro_attribute]
pub fn gpu_only(_args: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as syn::ItemFn);
    kernel::gpu_only(function).into()
}

/// Declares an array in the block's shared memory: `shared_array![T; N]`.
///
/// Evaluates to a `cuda_std::shared::SharedArray<T, N>`, a copyable handle. The array
/// belongs to the place in the source where the macro stands, as a `static` would: it
/// is the same array each time that line runs, in every thread of the block. Its
/// contents start undefined. The array is aligned to 128 bytes. `T` and `N` may name items
/// of the module, not of the function.
///
/// At most 48 KiB can be declared this way in one kernel; more must be asked for at
/// launch and reached through `cuda_std::shared::dynamic_shared_mem`.
#[proc_macro]
pub fn shared_array(input: TokenStream) -> TokenStream {
    let array = parse_macro_input!(input as shared::SharedArray);
    shared::expand(array).into()
}
