//! The candidates for a product, from the predicted times.

use std::collections::HashSet;

use kernels_gpu::abi::{KernelAbi, KernelDescriptor};

use super::Auto;
use super::configurations::Candidates;
use super::prediction::Prediction;
use crate::plan::{Configuration, KernelForm, most_splits, possible_columns};
use crate::problem::Gemm;

/// What a launch must have: see the fields of [`Configuration`]. `None` leaves the choice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Parts of K.
    pub splits: Option<u32>,
    /// Clusters of stream-K.
    pub clusters: Option<u32>,
    /// Columns of a tile.
    pub columns: Option<u32>,
    /// Whether C is stored as the transpose of the result.
    pub transposes_c: Option<bool>,
    /// Blocks that share a multiprocessor.
    pub blocks_per_multiprocessor: Option<u32>,
}

impl Auto {
    /// The best kernels for a product, up to `count`. Each has its best configuration.
    ///
    /// The first is [the choice](Auto::choose), unless the product [was
    /// measured](Auto::measured_choice). There are none for f32 on the software device, where the
    /// work of an interpreter decides.
    ///
    /// ```
    /// use cuda_gemm::{Compute, Device, DeviceChoice, Gemm};
    ///
    /// let auto = Device::open(DeviceChoice::SoftSm90)?.auto()?;
    /// let gemm = Gemm::new(16, 256, 4096).computed_in(Compute::Bf16);
    /// let [best, second] = auto.predictions(&gemm, 2)[..] else { panic!() };
    /// assert!(best.configuration.splits > 1 && best.ns <= second.ns);
    /// assert_eq!(best.configuration, auto.choose(&gemm)?);
    /// assert!(auto.predictions(&Gemm::new(16, 256, 4096), 2).is_empty());
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn predictions(&self, gemm: &Gemm, count: usize) -> Vec<Prediction> {
        let mut names = HashSet::new();
        let mut all = self.candidates(gemm, usize::MAX);
        all.retain(|prediction| names.insert(prediction.configuration.kernel.name()));
        all.truncate(count);
        all
    }

    /// The best configurations for a product, up to `count`. The first one follows the rule of
    /// [`Auto::predictions`].
    ///
    /// ```
    /// use cuda_gemm::{Compute, Device, DeviceChoice, Gemm};
    ///
    /// let auto = Device::open(DeviceChoice::SoftSm90)?.auto()?;
    /// let gemm = Gemm::new(16, 256, 4096).computed_in(Compute::Bf16);
    /// for candidate in auto.candidates(&gemm, 5) {
    ///     let product = auto.plan_by(gemm, &candidate.configuration)?.prepare()?;
    ///     assert_eq!(*product.configuration(), candidate.configuration);
    /// }
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn candidates(&self, gemm: &Gemm, count: usize) -> Vec<Prediction> {
        if self.is_by_work(gemm) {
            return Vec::new();
        }
        let mut all = self.model.ranking(gemm);
        all.truncate(count);
        all
    }

    /// The best configuration of a kernel for a product, among those that have what is asked for.
    ///
    /// Only kernels with [`KernelAbi::WgmmaClusters`] have choices besides the splits.
    ///
    /// ```
    /// use cuda_gemm::select::Asked;
    /// use cuda_gemm::{Compute, Device, DeviceChoice, Gemm, find_kernel};
    ///
    /// let auto = Device::open(DeviceChoice::SoftSm90)?.auto()?;
    /// let gemm = Gemm::new(16, 4096, 4096).computed_in(Compute::Bf16);
    /// let kernel = find_kernel("wgmma_split_64x16")?;
    /// let asked = Asked { splits: Some(2), ..Asked::default() };
    /// let division = auto.division(&gemm, kernel, asked);
    /// assert_eq!(division.splits, 2);
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn division(
        &self,
        gemm: &Gemm,
        kernel: &'static KernelDescriptor,
        asked: Asked,
    ) -> Configuration {
        let Asked { splits, clusters, columns, transposes_c, .. } = asked;
        let blocks = asked.blocks_per_multiprocessor;
        let most_blocks = kernel.blocks_per_multiprocessor();
        let whole = Configuration {
            splits: splits.unwrap_or(1),
            clusters,
            columns,
            transposes_c,
            blocks_per_multiprocessor: blocks
                .and_then(|blocks| (blocks < most_blocks).then_some(1)),
            ..Configuration::new(kernel)
        };
        if kernel.abi() != KernelAbi::WgmmaClusters || gemm.validate().is_err() {
            return whole;
        }
        let candidates = Candidates {
            gemm,
            kernel,
            resident: most_blocks,
            multiprocessors: self.model.multiprocessors(),
        };
        let forms = KernelForm::both(gemm, kernel);
        let forms =
            forms.iter().filter(|form| transposes_c.is_none_or(|is| is == form.transposes_c));
        let mut asked: Vec<_> = forms.flat_map(|form| candidates.clusters(form)).collect();
        if blocks.is_some() {
            asked.retain(|one| one.blocks_per_multiprocessor == whole.blocks_per_multiprocessor);
        }
        if let Some(splits) = splits {
            // Each number of blocks per multiprocessor comes with clusters that share no tile.
            asked.retain(|one| one.splits == 1 && one.clusters.is_none());
            let splits = splits.clamp(1, most_splits(gemm, kernel));
            asked.iter_mut().for_each(|one| one.splits = splits);
        }
        if columns.is_some() {
            // One division of each kind has the kernel's width; narrower ones would be duplicates.
            asked.retain(|one| one.columns.is_none() && one.clusters.is_none());
            for one in &mut asked {
                one.columns = possible_columns(&KernelForm::of(gemm, one), kernel, columns);
            }
        }
        if clusters.is_some() {
            asked.retain(|one| one.clusters.is_none());
            asked.iter_mut().for_each(|one| one.clusters = clusters);
        }
        let ns = |one: &Configuration| self.model.time(gemm, one).map_or(0.0, |time| time.ns);
        asked.into_iter().min_by(|one, other| ns(one).total_cmp(&ns(other))).unwrap_or(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, DeviceChoice};
    use crate::plan::find_kernel;
    use crate::problem::Compute;

    /// Of the splits, clusters, columns, orientation and blocks, what is asked for stays, and the rest is free.
    #[test]
    fn a_division_is_the_fastest_that_has_what_is_asked_for() {
        let auto = Device::open(DeviceChoice::SoftSm90).unwrap().auto().unwrap();
        let kernel = find_kernel("wgmma_split_64x128").unwrap();
        let most_blocks = kernel.blocks_per_multiprocessor();
        assert!(most_blocks > 1);
        for [m, n, k] in [[128, 256, 8192], [512, 512, 4096], [1024, 4096, 512], [300, 64, 65]] {
            let gemm = Gemm::new(m, n, k).computed_in(Compute::Bf16);
            for splits in [1, 2, 4, 8] {
                let splits_k = Asked { splits: Some(splits), ..Asked::default() };
                let division = auto.division(&gemm, kernel, splits_k);
                let splits = splits.min(most_splits(&gemm, kernel));
                assert_eq!((division.splits, division.clusters), (splits, None), "{gemm:?}");
            }
            for blocks in 1..=most_blocks {
                let blocks_per_multiprocessor = Some(blocks);
                let of_blocks = Asked { blocks_per_multiprocessor, ..Asked::default() };
                let division = auto.division(&gemm, kernel, of_blocks);
                let has = division.blocks_per_multiprocessor.unwrap_or(most_blocks);
                assert_eq!(has, blocks, "{division} of {gemm:?}");
            }
            let clusters = Asked { clusters: Some(3), ..Asked::default() };
            assert_eq!(auto.division(&gemm, kernel, clusters).clusters, Some(3));
            // Operands along K have no panels, so columns are multiples of 16.
            let narrow = find_kernel("wgmma_split_128x256").unwrap();
            let columns = |asked| Asked { columns: Some(asked), ..Asked::default() };
            let along_k = gemm.transposed(false, true);
            for [asked, gets] in [[1, 16], [100, 112], [240, 240]] {
                let one = auto.division(&along_k, narrow, columns(asked));
                assert_eq!(one.columns, Some(gets), "{one} of {along_k:?}");
            }
            for asked in [250, u32::MAX] {
                assert_eq!(auto.division(&along_k, narrow, columns(asked)).columns, None);
            }
            // This one's tiles have all columns.
            let fixed = find_kernel("wgmma_split_64x64_align1").unwrap();
            assert_eq!(auto.division(&gemm, fixed, columns(32)).columns, None);
        }
    }
}
