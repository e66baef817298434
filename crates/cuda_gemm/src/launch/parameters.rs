//! Parameters of all entry points, one struct per kernel interface.
//!
//! A launch passes a struct field by field. A test compares each struct with the PTX's `.param`
//! list.

use std::ffi::c_void;

use cuda_driver::sys::CUtensorMap;
use kernels_gpu::abi::{KernelAbi, epilogue};

/// The type of a parameter in PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `.u32`.
    U32,
    /// `.u64`.
    U64,
    /// `.f32`.
    F32,
    /// `.u64 .ptr`: an address in device memory.
    Address,
    /// 128 bytes, aligned to 64.
    TensorMap,
    /// [`epilogue::Parameters`].
    Epilogue,
}

/// A host type that is passed as a parameter.
trait Parameter {
    const KIND: Kind;
}

impl Parameter for u32 {
    const KIND: Kind = Kind::U32;
}

impl Parameter for f32 {
    const KIND: Kind = Kind::F32;
}

impl Parameter for u64 {
    const KIND: Kind = Kind::U64;
}

/// An address in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Address(pub(crate) u64);

impl Parameter for Address {
    const KIND: Kind = Kind::Address;
}

impl Parameter for epilogue::Parameters {
    const KIND: Kind = Kind::Epilogue;
}

impl Parameter for CUtensorMap {
    const KIND: Kind = Kind::TensorMap;
}

/// Declares structs of parameters, in the kernel's order.
macro_rules! parameters {
    ($($(#[$doc:meta])* struct $name:ident { $($field:ident: $type:ty,)+ })+) => {
        $(
            $(#[$doc])*
            pub(crate) struct $name {
                $(pub(crate) $field: $type,)+
            }

            impl $name {
                /// The types of the parameters in PTX.
                pub(crate) const KINDS: &[Kind] = &[$(<$type as Parameter>::KIND),+];

                /// Pointers to the fields, for the driver, which copies them during the launch.
                pub(crate) fn pointers(&mut self) -> [*mut c_void; Self::KINDS.len()] {
                    [$((&raw mut self.$field).cast()),+]
                }
            }
        )+
    };
}

parameters! {
    /// Parameters of [`KernelAbi::SplitK`]; [`KernelAbi::Gemm`] has the first of them: see
    /// [`kinds`].
    struct GemmParameters {
        m: u32,
        n: u32,
        k: u32,
        alpha: f32,
        a: Address,
        lda: u32,
        b: Address,
        ldb: u32,
        beta: f32,
        c: Address,
        ldc: u32,
        depth: u32,
        partials: Address,
        counters: Address,
        splits: u32,
        stride_a: u64,
        stride_b: u64,
        stride_c: u64,
        layout: u32,
        epilogue: epilogue::Parameters,
    }

    /// Parameters of [`KernelAbi::StreamK`]; [`KernelAbi::TensorMap`] has the first of them: see
    /// [`kinds`].
    struct TensorParameters {
        m: u32,
        n: u32,
        k: u32,
        alpha: f32,
        map_a: CUtensorMap,
        map_b: CUtensorMap,
        beta: f32,
        c: Address,
        ldc: u32,
        stream_k_tiles: u32,
        accumulation_steps: u32,
        partials: Address,
        counters: Address,
        layout: u32,
        batch: u32,
        step_a: u32,
        step_b: u32,
        stride_c: u64,
        epilogue: epilogue::Parameters,
    }

    /// Parameters of [`KernelAbi::MmaPointers`].
    struct MmaParameters {
        m: u32,
        n: u32,
        k: u32,
        alpha: f32,
        a: Address,
        lda: u32,
        stride_a: u64,
        b: Address,
        ldb: u32,
        stride_b: u64,
        beta: f32,
        c: Address,
        ldc: u32,
        stride_c: u64,
        options: u32,
        epilogue: epilogue::Parameters,
    }

    /// Parameters of [`KernelAbi::Tf32TensorMap`].
    struct Tf32Parameters {
        m: u32,
        n: u32,
        k: u32,
        alpha: f32,
        map_a: CUtensorMap,
        map_b: CUtensorMap,
        beta: f32,
        c: Address,
        ldc: u32,
        batch: u32,
        stride_c: u64,
        options: u32,
        layout: u32,
        epilogue: epilogue::Parameters,
    }

    /// Parameters of [`KernelAbi::Tf32SplitK`].
    struct Tf32SplitParameters {
        m: u32,
        n: u32,
        k: u32,
        alpha: f32,
        map_a: CUtensorMap,
        map_b: CUtensorMap,
        beta: f32,
        c: Address,
        ldc: u32,
        depth: u32,
        partials: Address,
        counters: Address,
        splits: u32,
        stride_c: u64,
        options: u32,
        layout: u32,
        epilogue: epilogue::Parameters,
    }

    /// Parameters of [`KernelAbi::WgmmaClusters`]; [`KernelAbi::WgmmaBatched`] and
    /// [`KernelAbi::Wgmma`] have the first of them: see [`kinds`].
    struct WgmmaParameters {
        m: u32,
        n: u32,
        k: u32,
        alpha: f32,
        map_a: CUtensorMap,
        map_b: CUtensorMap,
        beta: f32,
        c: Address,
        ldc: u32,
        batch: u32,
        stride_c: u64,
        options: u32,
        epilogue: epilogue::Parameters,
        partials: Address,
        counters: Address,
        a: Address,
        lda: u32,
        stride_a: u64,
    }

    /// Parameters of [`stage_operands` and `stage_transposed`](kernels_gpu::utility::staging).
    ///
    /// `stage_halves` has the first [`StageOperands::OF_HALVES`].
    struct StageOperands {
        a: Address,
        lda: u32,
        to_a: Address,
        ld_to_a: u32,
        a_rows: u32,
        a_cols: u32,
        b: Address,
        ldb: u32,
        to_b: Address,
        ld_to_b: u32,
        b_rows: u32,
        b_cols: u32,
        a_blocks: u32,
        stride_a: u64,
        stride_b: u64,
        pointer_batch: u32,
    }
}

impl StageOperands {
    /// The number of parameters of `stage_halves`, which accepts no arrays of addresses.
    pub(crate) const OF_HALVES: usize = Self::KINDS.len() - 1;
}

/// The parameter types of an interface's entry points.
pub(crate) const fn kinds(abi: KernelAbi) -> &'static [Kind] {
    match abi {
        KernelAbi::Gemm => GemmParameters::KINDS.split_at(11).0,
        KernelAbi::Batched | KernelAbi::SplitK => GemmParameters::KINDS,
        KernelAbi::TensorMap => TensorParameters::KINDS.split_at(9).0,
        KernelAbi::StreamK => TensorParameters::KINDS,
        KernelAbi::Tf32TensorMap => Tf32Parameters::KINDS,
        KernelAbi::Tf32SplitK => Tf32SplitParameters::KINDS,
        KernelAbi::Wgmma => WgmmaParameters::KINDS.split_at(9).0,
        KernelAbi::WgmmaBatched => WgmmaParameters::KINDS.split_at(13).0,
        KernelAbi::WgmmaClusters => WgmmaParameters::KINDS,
        KernelAbi::MmaPointers => MmaParameters::KINDS,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use kernels_gpu::abi::Target;
    use kernels_gpu::kernels;
    use ptx_syntax::outline::{functions, target};
    use ptx_syntax::scan::Lexeme;

    use super::*;
    use crate::ptx::{self, Kernels};

    /// The parameters that the host passes to each entry point, for a device of this PTX.
    fn passed(text: &str) -> BTreeMap<&'static str, &'static [Kind]> {
        let is_hopper = target(text) == Some("sm_90a");
        let descriptors = kernels().filter(|kernel| is_hopper || kernel.target() == Target::Sm80);
        let entries = descriptors.flat_map(|kernel| {
            let unaligned = kernel.unaligned().map(|other| other.name);
            let variants = [false, true].into_iter().flat_map(|of_f16| kernel.entry_points(of_f16));
            let names = variants.copied().chain(unaligned);
            names.map(move |name| (name, kinds(kernel.abi())))
        });
        let others = [
            ("stage_halves", &StageOperands::KINDS[..StageOperands::OF_HALVES]),
            ("stage_operands", StageOperands::KINDS),
            ("stage_transposed", StageOperands::KINDS),
            // Passed by `gemm_bench` to the kernels that measure peaks.
            ("peak_ffma", &[Kind::U32, Kind::F32, Kind::F32, Kind::Address]),
            ("peak_copy", &[Kind::Address; 2]),
        ];
        entries.chain(others).collect()
    }

    /// The texts of all kernels.
    fn all(kernels: &Kernels) -> String {
        kernels.names().filter_map(|name| kernels.kernel(name)).collect()
    }

    /// The entry points of a PTX text, with their declared parameters.
    fn declared(text: &str) -> BTreeMap<&str, Vec<Result<Kind, String>>> {
        let entries = functions(text).filter(|function| function.is_entry);
        let kinds = |params: Vec<Vec<Lexeme<'_>>>| params.iter().map(|one| kind(one)).collect();
        entries.map(|entry| (entry.name, kinds(entry.params))).collect()
    }

    fn kind(parameter: &[Lexeme<'_>]) -> Result<Kind, String> {
        let words: Vec<_> = parameter.iter().map(|lexeme| lexeme.text).collect();
        match words[..] {
            [".param", ".u32", _] => Ok(Kind::U32),
            [".param", ".u64", _] => Ok(Kind::U64),
            [".param", ".f32", _] => Ok(Kind::F32),
            [".param", ".u64", ".ptr", ".align", "1", _] => Ok(Kind::Address),
            [".param", ".align", "64", ".b8", _, "[", "128", "]"] => Ok(Kind::TensorMap),
            [".param", ".align", "8", ".b8", _, "[", "72", "]"] => Ok(Kind::Epilogue),
            _ => Err(words.join(" ")),
        }
    }

    /// The disagreements between a PTX text and the host.
    fn mismatches(text: &str) -> Vec<String> {
        let (declared, passed) = (declared(text), passed(text));
        let names: BTreeSet<_> = declared.keys().chain(passed.keys()).collect();
        let mismatch = |name: &&str| {
            let passed = passed.get(name).map(|kinds| kinds.iter().copied().map(Ok).collect());
            let declared = declared.get(name);
            (passed.as_ref() != declared)
                .then(|| format!("{name}: passed {passed:?}, declared {declared:?}"))
        };
        names.into_iter().filter_map(mismatch).collect()
    }

    #[test]
    fn the_host_passes_what_every_entry_point_declares() {
        for text in [&ptx::SM_80, &ptx::SM_90A].map(|kernels| all(kernels)) {
            let mismatches = mismatches(&text);
            assert!(mismatches.is_empty(), "{:?}: {mismatches:#?}", target(&text));
        }
        assert_eq!((size_of::<CUtensorMap>(), align_of::<CUtensorMap>()), (128, 64));
        let (size, align) = (size_of::<epilogue::Parameters>(), align_of::<epilogue::Parameters>());
        assert_eq!((size, align), (72, 8));
    }

    /// Finds a missing, changed or additional parameter, and a kernel that nobody launches.
    #[test]
    fn a_parameter_that_changes_is_found() {
        let right = all(&ptx::SM_90A);
        for (kernel, from, to) in [
            ("naive", "\t.param .u32 naive_param_2,\n", ""),
            ("naive", ".param .f32 naive_param_3,", ".param .u32 naive_param_3,"),
            ("tile_64x64", ".param .u32 tile_64x64_param_11,", ".param .u64 tile_64x64_param_11,"),
            (
                "stage_operands",
                ".param .u64 stage_operands_param_14",
                ".param .u64 stage_operands_param_14, .param .u32 x",
            ),
            ("peak_copy", ".entry peak_copy(", ".entry peak_moved("),
            (
                "persistent",
                ".align 64 .b8 persistent_param_4[128]",
                ".align 16 .b8 persistent_param_4[128]",
            ),
            ("tma", ".param .u32 tma_param_8\n", ".param .u64 tma_param_8\n"),
            ("persistent", ".b8 persistent_param_5[128]", ".b8 persistent_param_5[64]"),
        ] {
            let text = right.replacen(from, to, 1);
            assert_ne!(text, right, "{from}");
            let mismatches = mismatches(&text);
            assert!(mismatches.iter().any(|one| one.starts_with(kernel)), "{to}: {mismatches:?}");
        }
    }
}
