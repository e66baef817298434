//! How products by tensor cores are checked, and get the memory that they need.

use std::sync::Arc;

use gemm_matrix::Element;
use kernels_gpu::abi::tensor_core::TensorCoreAbi;

use super::copies::Copies;
use super::cost::division;
use super::division::{Asked, Division};
use super::kernel::{MAX_TILES, TensorCoreKernel};
use super::plan::TensorCorePlan;
use crate::device::EntryPoint;
use crate::error::Error;
use crate::gemm::{Compute, Gemm};
use crate::launch::map_cache::MapCache;
use crate::launch::tensor_map::may_be_row;
use crate::launch::workspace::Buffers;
use crate::stream::Stream;

impl TensorCoreKernel {
    /// Checks a product, once for any number of calls on the device's own stream.
    ///
    /// # Errors
    ///
    /// Those of [`TensorCoreBuilder::prepare`].
    pub fn prepare(&self, gemm: Gemm) -> Result<TensorCorePlan, Error> {
        self.plan(gemm).prepare()
    }

    /// How to prepare a product: as [`TensorCoreKernel::prepare`] does, until told otherwise. It is
    /// [computed](Compute) in the kernel's type.
    pub fn plan(&self, gemm: Gemm) -> TensorCoreBuilder {
        let stream = self.device().stream();
        TensorCoreBuilder {
            kernel: self.clone(),
            gemm,
            stream,
            asked: Asked::default(),
            chosen: Asked::default(),
            any_alignment: false,
            for_any_alignment: None,
        }
    }
}

/// How a product by tensor cores is prepared: see [`TensorCoreKernel::plan`].
#[derive(Debug)]
#[must_use]
pub struct TensorCoreBuilder {
    kernel: TensorCoreKernel,
    gemm: Gemm,
    stream: Stream,
    asked: Asked,
    /// What was chosen with the kernel, for a caller who asks for nothing.
    chosen: Asked,
    any_alignment: bool,
    /// The kernel to take in place of the other one with `any_alignment`, and what was chosen with it.
    for_any_alignment: Option<(TensorCoreKernel, Asked)>,
}

impl TensorCoreBuilder {
    /// The kernel.
    pub fn kernel(&self) -> &TensorCoreKernel {
        &self.kernel
    }

    /// The stream that the product goes to, of the kernel's device; its own one until told otherwise.
    /// A, B and C belong to the same stream.
    pub fn on(self, stream: &Stream) -> Self {
        Self { stream: stream.clone(), ..self }
    }

    /// K is split in `splits` parts, or as many as the kernel can have of it, rather than as seems best; for a
    /// kernel that [splits](kernels_gpu::abi::tensor_core::TensorCoreDescriptor::splits) it. 0 counts as 1.
    pub fn splits(self, splits: u32) -> Self {
        Self { asked: Asked { splits: Some(splits), ..self.asked }, ..self }
    }

    /// The steps along K of all tiles are shared equally by `clusters` (*stream-K*), or as many as there can be, rather
    /// than as seems best; for a kernel that [splits](kernels_gpu::abi::tensor_core::TensorCoreDescriptor::splits) K. As many clusters as
    /// tiles have a tile each, and 0 counts as 1. Memory for their partial sums is allocated.
    pub fn clusters(self, clusters: u32) -> Self {
        Self { asked: Asked { clusters: Some(clusters), ..self.asked }, ..self }
    }

    /// How many blocks are to share a multiprocessor's shared memory, rather than as many as seems best: one, which has more
    /// stages then, or [as many as can](kernels_gpu::abi::tensor_core::TensorCoreDescriptor::blocks_per_multiprocessor); for a kernel that
    /// [splits](kernels_gpu::abi::tensor_core::TensorCoreDescriptor::splits) K.
    pub fn blocks_per_multiprocessor(self, blocks: u32) -> Self {
        Self { asked: Asked { blocks: Some(blocks), ..self.asked }, ..self }
    }

    /// A and B may have rows that do not begin on 16 bytes, and begin anywhere. Memory for copies of
    /// them is allocated, which a call makes where it needs them: of both, or of the one that the kernel does not
    /// [take so](kernels_gpu::abi::tensor_core::TensorCoreDescriptor::takes_unaligned).
    ///
    /// A kernel that [`Auto::product`](crate::Auto::product) has chosen is the one for the product's own leading dimensions then.
    pub fn any_alignment(self) -> Self {
        let (kernel, chosen) = self.for_any_alignment.clone().unwrap_or((self.kernel, self.chosen));
        Self { kernel, chosen, any_alignment: true, ..self }
    }

    /// Divided so, unless the caller asks for something.
    pub(crate) fn divided(self, chosen: Asked) -> Self {
        Self { chosen, ..self }
    }

    /// With another kernel for rows that begin anywhere, and the division that was chosen with it.
    pub(crate) fn for_any_alignment(self, kernel: TensorCoreKernel, chosen: Asked) -> Self {
        Self { for_any_alignment: Some((kernel, chosen)), ..self }
    }

    /// Checks the product, and allocates the memory that it needs.
    ///
    /// # Errors
    ///
    /// What [`Gemm::validate`] finds; [`Error::CannotSplit`]; [`Error::Compute`] for a product [in another precision](Compute)
    /// than the kernel's; [`Error::TensorCoreShape`] for a batch of pointers, and for all
    /// but a single plain product if the kernel has no [layouts]; [`Error::TooLarge`] for a C of too
    /// many tiles; [`Error::WrongDevice`]; [`Error::DeviceMemory`] and those of
    /// [`Device::kernel`](crate::Device::kernel).
    ///
    /// [layouts]: kernels_gpu::abi::tensor_core::TensorCoreDescriptor::layouts
    pub fn prepare(self) -> Result<TensorCorePlan, Error> {
        let Loaded { kernel, stream, gemm, division, functions, stage_halves } = self.load()?;
        let workspace = Buffers::new(&stream, division.workspace(kernel.descriptor()))?;
        let may_be_copied = division.needs_alignment(kernel.descriptor());
        let copies =
            stage_halves.map(|function| Copies::new(&stream, &gemm, may_be_copied, function));
        let (copies, map_cache) = (copies.transpose()?, MapCache::default());
        // As many as have tiles that can be counted.
        let blocks = (division.tiles * u64::from(division.splits)).max(1);
        let most_products = match (kernel.descriptor().abi(), division.clusters) {
            (TensorCoreAbi::Pointer, _) => kernel.device().info().limits.grid[1].max(1) as usize,
            (TensorCoreAbi::TensorMap, None) => ((MAX_TILES - 1) / blocks) as usize,
            (TensorCoreAbi::TensorMap, Some(_)) => gemm.batch.max(1),
        };
        Ok(TensorCorePlan {
            kernel,
            stream,
            gemm,
            division,
            most_products,
            functions,
            copies,
            workspace,
            map_cache,
        })
    }

    /// Checks the product, and loads every entry point that its calls may take.
    ///
    /// # Errors
    ///
    /// Those of [`TensorCoreBuilder::prepare`] that are not about memory.
    pub(crate) fn load(self) -> Result<Loaded, Error> {
        let Self { kernel, gemm, stream, asked, chosen, any_alignment, .. } = self;
        let asked = if asked == Asked::default() { chosen } else { asked };
        if !stream.device().is_same(kernel.device()) {
            return Err(Error::WrongDevice { what: "the stream" });
        }
        let (descriptor, input) = (kernel.descriptor(), kernel.input());
        let own = Compute::of(input);
        let gemm = gemm.computed_in(gemm.compute.by_hand(descriptor.name(), own)?);
        gemm.validate()?;
        let Asked { splits, clusters, blocks } = asked;
        let is_divided = splits.is_some_and(|splits| splits > 1)
            || clusters.is_some()
            || blocks.is_some_and(|blocks| blocks != descriptor.blocks_per_multiprocessor());
        if is_divided && !descriptor.splits() {
            return Err(Error::CannotSplit { kernel: descriptor.name() });
        }
        let refused =
            |what, hint| Err(Error::TensorCoreShape { kernel: descriptor.name(), what, hint });
        if gemm.pointers {
            return refused("batches of pointers", "enqueue one product after the other");
        }
        let hint = "choose `auto`, which takes one that does (`Auto::product`)";
        let layouts = descriptor.layouts(input);
        for (is_asked, what) in [
            (gemm.trans_a || gemm.trans_b, "transposes"),
            (gemm.batch != 1, "batches"),
            (!gemm.epilogue.is_none(), "epilogues"),
            (gemm.factors_on_device, "alpha and beta in device memory"),
            (gemm.output != Element::F32, "C in 16 bits"),
        ] {
            if is_asked && layouts.is_none() {
                return refused(what, hint);
            }
        }
        let multiprocessors = kernel.device().info().limits.multiprocessors;
        let mut division = division(&gemm, descriptor, multiprocessors, asked);
        if gemm.batch == 0 {
            // Of no products there is nothing to be counted.
            division.tiles = 0;
        }
        let tiles = division.tiles;
        if tiles.saturating_mul(division.splits.into()) >= MAX_TILES {
            let max = ((MAX_TILES - 1) / u64::from(division.splits)) as usize;
            return Err(Error::TooLarge {
                what: "C, counted in tiles,",
                value: tiles as usize,
                max,
            });
        }
        let device = kernel.device();
        let load = |name| -> Result<_, Error> {
            let function = Arc::new(device.entry_point(name)?);
            // Of all plans together.
            let shared_bytes = descriptor.shared_bytes(1);
            if shared_bytes > device.info().limits.shared_default {
                function.allow_shared(shared_bytes)?;
            }
            Ok(function)
        };
        let mut functions = [const { None }; 4];
        match layouts {
            // It takes no transposes.
            None => functions[0] = Some(load(descriptor.entry_point(input))?),
            Some(layouts) => {
                let [column_a, column_b] = [0, 1].map(|i| may_be_row(gemm.shapes()[i]));
                for (flip_a, flip_b) in [(false, false), (true, false), (false, true), (true, true)]
                {
                    if flip_a && !column_a || flip_b && !column_b {
                        continue;
                    }
                    let at = division.entry([gemm.trans_a ^ flip_a, gemm.trans_b ^ flip_b]);
                    functions[at] = Some(load(layouts[at])?);
                }
            }
        }
        let is_read = tiles > 0 && gemm.depth() > 0;
        let may_be_copied = division.needs_alignment(descriptor).contains(&true);
        let stage_halves = match any_alignment && is_read && may_be_copied {
            true => Some(device.entry_point("stage_halves")?),
            false => None,
        };
        Ok(Loaded { kernel, stream, gemm, division, functions, stage_halves })
    }
}

/// A product that is checked, and whose entry points are loaded.
pub(crate) struct Loaded {
    kernel: TensorCoreKernel,
    stream: Stream,
    gemm: Gemm,
    division: Division,
    functions: [Option<Arc<EntryPoint>>; 4],
    /// What copies A and B, if they may lie anywhere.
    stage_halves: Option<EntryPoint>,
}

#[cfg(test)]
mod tests {
    use kernels_gpu::abi::tensor_core::InputType;
    use kernels_gpu::families::half::wgmma_split;
    use kernels_gpu::ladder::tensor::sm_90a::wgmma_persistent;

    use super::*;
    use crate::device::{Device, DeviceChoice};
    use crate::gemm::MAX_DIMENSION;

    /// A kernel that splits nothing accepts them, too.
    #[test]
    fn splits_of_0_count_as_1() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        for kernel in [&wgmma_persistent::TILE_64X64, &wgmma_split::TILE_64X16] {
            let kernel = device.tensor_core(kernel, InputType::Bf16).unwrap();
            let division = |splits| {
                let plan = kernel.plan(Gemm::new(64, 64, 4096)).splits(splits);
                plan.load().map(|loaded| loaded.division)
            };
            assert_eq!(division(0).unwrap(), division(1).unwrap());
            assert_eq!(division(2).is_ok(), kernel.descriptor().splits());
        }
    }

    #[test]
    fn a_c_of_too_many_tiles_is_refused() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let kernel = device.tensor_core(&wgmma_persistent::TILE_64X64, InputType::Bf16).unwrap();
        let most = MAX_DIMENSION;
        let refused = kernel.prepare(Gemm::new(most, most, 1)).unwrap_err().to_string();
        let tiles = most.div_ceil(64) * most.div_ceil(64);
        let says = format!(
            "C, counted in tiles, is {tiles}, and the largest possible is {most}; use a smaller one"
        );
        assert_eq!(refused, says);
        // Shared by clusters, whose steps are more than 64 bits count.
        let kernel = device.tensor_core(&wgmma_split::TILE_64X16, InputType::Bf16).unwrap();
        let all = kernel.plan(Gemm::new(most, most, most)).clusters(2).prepare();
        assert!(matches!(all, Err(Error::TooLarge { .. })));
    }
}
