//! Which operands are copied first, and why.

use kernels_gpu::abi::{Arithmetic, KernelAbi, KernelDescriptor, Reads};

use super::Auto;
use crate::plan::{Configuration, KernelForm, wide_rows};
use crate::problem::Gemm;

impl Auto {
    /// Why a choice copies A and B first. `None` for an operand that is not copied. Both are
    /// assumed to begin on 16 bytes.
    ///
    /// ```
    /// use cuda_gemm::{Auto, Configuration, Gemm, find_kernel};
    ///
    /// let choice = Configuration::new(find_kernel("persistent")?);
    /// let copies = Auto::copies(&Gemm::new(64, 64, 63), &choice);
    /// assert_eq!(copies, [Some("its rows do not begin on 16 bytes"), None]);
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn copies(gemm: &Gemm, choice: &Configuration) -> [Option<&'static str>; 2] {
        let form = KernelForm::of(gemm, choice);
        let copied = copied(&form, choice.kernel, choice.staged);
        let reads = form.reads(choice.kernel);
        let reason = |i: usize| match reads[i] {
            _ if !copied[i] || gemm.depth() == 0 => None,
            Reads::Copied => Some("it lies as its transpose"),
            Reads::Unaligned => Some("as it lies, single elements are read"),
            Reads::Aligned | Reads::Anywhere => Some("its rows do not begin on 16 bytes"),
        };
        form.order([reason(0), reason(1)])
    }
}

/// Which operands are copied first, in the kernel's order. They are operands that the kernel cannot
/// read. With `staged`, they are also those that 128-bit accesses do not reach.
pub(super) fn copied(form: &KernelForm, kernel: &KernelDescriptor, staged: bool) -> [bool; 2] {
    let (gemm, reads) = (&form.gemm, form.reads(kernel));
    let wide = wide_rows(gemm, [0; 3]);
    let is_of_16_bits = kernel.arithmetic() == Arithmetic::Bits16;
    let has_maps = kernel.abi().has_tensor_maps();
    let rows_begin = gemm.rows_begin_on_16_bytes();
    let staged = staged && kernel.abi() == KernelAbi::SplitK;
    [0, 1].map(|i| match reads[i] {
        Reads::Copied => true,
        Reads::Aligned if is_of_16_bits => !rows_begin[i],
        Reads::Aligned if has_maps => ![gemm.lda, gemm.ldb][i].is_multiple_of(4),
        Reads::Aligned => staged && !wide[i],
        Reads::Unaligned => staged,
        Reads::Anywhere => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels_gpu::f32_kernels;

    /// The plans of other kernels ignore `staged`.
    #[test]
    fn split_k_alone_stages_what_it_can_read() {
        for transposed in [[false, false], [true, false], [false, true], [true, true]] {
            // No row but the first begins on 16 bytes.
            let gemm = Gemm::new(63, 65, 67).transposed(transposed[0], transposed[1]);
            for kernel in f32_kernels() {
                let form = KernelForm::new(&gemm, kernel);
                let [plain, staged] = [false, true].map(|staged| copied(&form, kernel, staged));
                let stages = kernel.abi() == KernelAbi::SplitK;
                for (i, reads) in form.reads(kernel).into_iter().enumerate() {
                    let name = format!("{} {i} of {transposed:?}", kernel.name());
                    let is_slow = matches!(reads, Reads::Aligned | Reads::Unaligned);
                    assert!(!stages || plain[i] == (reads == Reads::Copied), "{name}");
                    assert_eq!(staged[i], plain[i] || stages && is_slow, "{name}");
                }
            }
        }
    }
}
