//! Parameters of all entry points, and their order in each kernel interface.
//!
//! A launch passes an interface's [`Place`]s one by one. A test compares them with the PTX's
//! `.param` list.

use std::ffi::c_void;
use std::mem::offset_of;

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

/// A parameter: a field of a struct of arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares it with the PTX"))]
    kind: Kind,
    offset: usize,
}

/// The kind of the field that a function returns.
const fn kind_of<A, T: Parameter>(_: fn(&A) -> &T) -> Kind {
    T::KIND
}

/// The places of a struct's fields, in a kernel's order.
macro_rules! places {
    ($arguments:ty: $($field:ident)+) => {
        &[$(Place {
            kind: kind_of(|of: &$arguments| &of.$field),
            offset: offset_of!($arguments, $field),
        }),+]
    };
}

/// The most parameters of an interface.
const MOST: usize = 20;

/// Pointers to the arguments in these places, for the driver, which copies them during the launch.
///
/// As many as there are places; the others are null.
pub(crate) fn pointers<A>(arguments: &mut A, places: &[Place]) -> [*mut c_void; MOST] {
    let start = (&raw mut *arguments).cast::<c_void>();
    let mut pointers = [std::ptr::null_mut(); MOST];
    for (pointer, place) in pointers.iter_mut().zip(places) {
        *pointer = start.wrapping_byte_add(place.offset);
    }
    pointers
}

/// The arguments of any kernel; each interface takes some of them.
pub(crate) struct Arguments {
    pub(crate) m: u32,
    pub(crate) n: u32,
    pub(crate) k: u32,
    pub(crate) alpha: f32,
    pub(crate) a: Address,
    pub(crate) lda: u32,
    pub(crate) stride_a: u64,
    pub(crate) b: Address,
    pub(crate) ldb: u32,
    pub(crate) stride_b: u64,
    pub(crate) map_a: CUtensorMap,
    pub(crate) map_b: CUtensorMap,
    pub(crate) beta: f32,
    pub(crate) c: Address,
    pub(crate) ldc: u32,
    pub(crate) stride_c: u64,
    pub(crate) batch: u32,
    pub(crate) depth: u32,
    pub(crate) splits: u32,
    pub(crate) stream_k_tiles: u32,
    pub(crate) accumulation_steps: u32,
    pub(crate) partials: Address,
    pub(crate) counters: Address,
    pub(crate) step_a: u32,
    pub(crate) step_b: u32,
    pub(crate) options: u32,
    pub(crate) groups: Address,
    pub(crate) layout: u32,
    pub(crate) epilogue: epilogue::Parameters,
}

/// [`KernelAbi::SplitK`]; [`KernelAbi::Gemm`] has the first of them.
const GEMM: &[Place] = places![Arguments:
    m n k alpha a lda b ldb beta c ldc
    depth partials counters splits stride_a stride_b stride_c layout epilogue];

/// [`KernelAbi::StreamK`]; [`KernelAbi::TensorMap`] has the first of them.
const TENSOR: &[Place] = places![Arguments:
    m n k alpha map_a map_b beta c ldc
    stream_k_tiles accumulation_steps partials counters layout batch step_a step_b stride_c epilogue];

const MMA: &[Place] = places![Arguments:
    m n k alpha a lda stride_a b ldb stride_b beta c ldc stride_c options groups epilogue];

const TF32: &[Place] = places![Arguments:
    m n k alpha map_a map_b beta c ldc batch stride_c options layout epilogue];

const TF32_SPLIT: &[Place] = places![Arguments:
    m n k alpha map_a map_b beta c ldc
    depth partials counters splits stride_c options layout epilogue];

/// [`KernelAbi::WgmmaClusters`]; [`KernelAbi::WgmmaBatched`] and [`KernelAbi::Wgmma`] have the
/// first of them.
const WGMMA: &[Place] = places![Arguments:
    m n k alpha map_a map_b beta c ldc
    batch stride_c options epilogue
    partials counters a lda stride_a];

/// Those for groups, of [`KernelAbi::WgmmaBatched`].
const WGMMA_GROUPED: &[Place] = places![Arguments:
    m n k alpha map_a map_b beta c ldc groups options epilogue];

/// The parameters of an interface's entry points, or of those for groups.
pub(crate) const fn places(abi: KernelAbi, grouped: bool) -> &'static [Place] {
    match abi {
        KernelAbi::WgmmaBatched if grouped => WGMMA_GROUPED,
        KernelAbi::Gemm => GEMM.split_at(11).0,
        KernelAbi::Batched | KernelAbi::SplitK => GEMM,
        KernelAbi::TensorMap => TENSOR.split_at(9).0,
        KernelAbi::StreamK => TENSOR,
        KernelAbi::Tf32TensorMap => TF32,
        KernelAbi::Tf32SplitK => TF32_SPLIT,
        KernelAbi::Wgmma => WGMMA.split_at(9).0,
        KernelAbi::WgmmaBatched => WGMMA.split_at(13).0,
        KernelAbi::WgmmaClusters => WGMMA,
        KernelAbi::MmaPointers => MMA,
    }
}

/// The arguments of the [kernels that copy A and B](kernels_gpu::utility::staging).
pub(crate) struct StageOperands {
    pub(crate) a: Address,
    pub(crate) lda: u32,
    pub(crate) to_a: Address,
    pub(crate) ld_to_a: u32,
    pub(crate) a_rows: u32,
    pub(crate) a_cols: u32,
    pub(crate) b: Address,
    pub(crate) ldb: u32,
    pub(crate) to_b: Address,
    pub(crate) ld_to_b: u32,
    pub(crate) b_rows: u32,
    pub(crate) b_cols: u32,
    pub(crate) a_blocks: u32,
    pub(crate) stride_a: u64,
    pub(crate) stride_b: u64,
    pub(crate) pointer_batch: u32,
}

/// The parameters of the kernels that copy A and B.
pub(crate) const STAGE_OPERANDS: &[Place] = places![StageOperands:
    a lda to_a ld_to_a a_rows a_cols b ldb to_b ld_to_b b_rows b_cols
    a_blocks stride_a stride_b pointer_batch];

/// The arguments of the kernel that [lists the tiles of groups](kernels_gpu::utility::groups).
pub(crate) struct GroupTiles {
    pub(crate) ends: Address,
    pub(crate) groups: u32,
    pub(crate) rows: u32,
    pub(crate) size: u32,
    pub(crate) table: Address,
}

/// Its parameters.
pub(crate) const GROUP_TILES: &[Place] = places![GroupTiles: ends groups rows size table];

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use kernels_gpu::abi::Target;
    use kernels_gpu::kernels;
    use ptx_syntax::outline::{functions, target};
    use ptx_syntax::scan::Lexeme;

    use super::*;
    use crate::ptx::{self, Kernels};

    fn kinds(places: &[Place]) -> Vec<Kind> {
        assert!(places.len() <= MOST);
        places.iter().map(|place| place.kind).collect()
    }

    /// The parameters that the host passes to each entry point, for a device of this PTX.
    fn passed(text: &str) -> BTreeMap<&'static str, Vec<Kind>> {
        let is_hopper = target(text) == Some("sm_90a");
        let descriptors = kernels().filter(|kernel| is_hopper || kernel.target() == Target::Sm80);
        let entries = descriptors.flat_map(|kernel| {
            let unaligned = kernel.unaligned().map(|other| other.name);
            let variants = [false, true].into_iter().flat_map(|of_f16| kernel.entry_points(of_f16));
            let names = variants.copied().chain(unaligned);
            let is_grouped = |name: &str| {
                [false, true].iter().any(|f16| kernel.grouped_entry_points(*f16).contains(&name))
            };
            names.map(move |name| (name, kinds(places(kernel.abi(), is_grouped(name)))))
        });
        let others = [
            ("group_tiles", kinds(GROUP_TILES)),
            ("stage_halves", kinds(STAGE_OPERANDS)),
            ("stage_operands", kinds(STAGE_OPERANDS)),
            ("stage_transposed", kinds(STAGE_OPERANDS)),
            // Passed by `gemm_bench` to the kernels that measure peaks.
            ("peak_ffma", vec![Kind::U32, Kind::F32, Kind::F32, Kind::Address]),
            ("peak_copy", vec![Kind::Address; 2]),
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
