//! The declaration of a kernel of this family.

/// Declares a module of the kernel's name, with its
/// [`KernelDescriptor`](crate::abi::KernelDescriptor) and its two entry points.
///
/// The entry points call `gemm` of `$kernel` for a [`Geometry`](crate::device::geometry::Geometry)
/// with the listed constants.
///
/// - `vectorized` says for A, B and C whether the first entry point needs it aligned.
/// - `transposed` says how the entry points read a transposed A and B.
/// - `transposes_c` says whether C may be transposed.
/// - `min_blocks` is the number of blocks that registers are left for.
macro_rules! kernel_module {
    (
        $(#[$doc:meta])*
        $name:ident, $summary:literal,
        $kernel:ident { $($constant:ident: $value:literal),* },
        vectorized $vectorized:expr, transposed $transposed:expr, transposes_c $transposes_c:literal,
        min_blocks $min_blocks:literal, $source:literal
    ) => {
        $(#[$doc])*
        #[doc = concat!("\n\nBlocks per multiprocessor: ", $min_blocks, ".")]
        pub mod $name {
            use cuda_std::cp_async;
            use cuda_std::prelude::*;

            use crate::abi::{Arithmetic, GridOrder, KernelDescriptor, Reads, Shared, Target, Unaligned, epilogue};
            use crate::device::geometry::Geometry;
            use crate::device::schedule::split_k::{Params, entry_points};
            use super::$kernel;

            struct Shape;

            impl Geometry for Shape {
                $(const $constant: u32 = $value;)*

                #[inline(always)]
                fn wait_for_oldest() {
                    cp_async::wait_group::<{ Shape::STAGES - 2 }>();
                }
            }

            const THREADS: u32 = Shape::THREADS;
            type Kernel = $kernel<Shape, { Shape::TM as usize }, { Shape::TN as usize }>;

            const _: () = assert!(
                $min_blocks * (Kernel::SHARED_BYTES + 1024) <= 228 * 1024,
                "so many blocks share a multiprocessor's memory"
            );

            /// What the host needs to launch this kernel.
            pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
                name: stringify!($name),
                summary: $summary,
                origin: None,
                tile: Shape::TILE,
                block: [THREADS, 1],
                grid: GridOrder::ColumnsAlongX,
                shared: Shared::Dynamic(|k| Kernel::shared_bytes(k)),
                unaligned: Some(Unaligned {
                    name: concat!(stringify!($name), "_unaligned"),
                    vectorized: $vectorized,
                    transposed: $transposed,
                    transposes_c: $transposes_c,
                }),
                abi: Kernel::ABI,
                arithmetic: Arithmetic::Fma,
                target: Target::Sm80,
                source: include_str!($source),
                variants: &[],
                reads_anywhere: [false; 2],
                compensates: Kernel::COMPENSATES,
            };

            entry_points!($name, min_blocks $min_blocks, ALIGNED = true as _ | false as unaligned);
        }
    };
}
pub(super) use kernel_module;
