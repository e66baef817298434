//! From matrices in 16 bits to launches of a kernel for tensor cores.

use gemm_matrix::Element;
use kernels_gpu::abi::tensor_core::{TensorCoreAbi, options};

use super::division::Division;
use super::plan::TensorCorePlan;
use crate::device::EntryPoint;
use crate::error::Error;
use crate::launch::extras::RawExtras;
use crate::launch::parameters::{Address, TensorCoreParameters, TensorCorePointers};
use crate::launch::tensor_map::{as_row, half_maps, reaches_halves};
use crate::launch::workspace::Buffers;
use crate::matrix::OperandLayout;

impl TensorCorePlan {
    /// Enqueues the product, with factors of which each is 0 if and only if the plan's is.
    ///
    /// # Safety
    ///
    /// As for [`TensorCorePlan::enqueue_raw_with`], with these leading dimensions and strides, which fit
    /// 31 bits.
    pub(super) unsafe fn launch(
        &self,
        [a, b, c]: [OperandLayout; 3],
        extras: RawExtras,
        factors: [f32; 2],
    ) -> Result<(), Error> {
        let Self { kernel, stream, gemm, division, functions, .. } = self;
        let Some([alpha, beta]) = gemm.kernel_factors(factors) else { return Ok(()) };
        let (device, descriptor) = (kernel.device(), kernel.descriptor());
        let Division { transposed, tiles, splits, clusters, blocks } = *division;
        if tiles == 0 {
            return Ok(());
        }
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [m, n, k] = [gemm.m, gemm.n, gemm.depth()].map(|size| size as u32);
        let _exclusive = stream.exclusive();
        let _current = device.enter()?;
        let mut operands = [a, b];
        let mut transposes = [gemm.trans_a, gemm.trans_b];
        if k > 0 {
            if descriptor.layouts(kernel.input()).is_some() {
                for (operand, is_transposed) in operands.iter_mut().zip(&mut transposes) {
                    let (row, flips) = as_row(*operand);
                    (*operand, *is_transposed) = (row, *is_transposed ^ flips);
                }
            }
            // SAFETY: the caller vouches for the matrices, which are not empty.
            operands = unsafe { self.staged(operands) }?;
        }
        let [a, b] = operands;
        let function = functions[division.entry(transposes)].as_ref();
        let function = function.expect("`prepare` has loaded what these shapes may need");
        if descriptor.abi() == TensorCoreAbi::Pointer {
            // SAFETY: the caller's contract.
            return unsafe { self.launch_by_pointers(function, [a, b, c], extras, [alpha, beta]) };
        }
        let most = self.most_products;
        let addresses = self.workspace.as_ref().map_or([0; 2], Buffers::addresses);
        let [partials, counters] = addresses.map(Address);
        for first in (0..gemm.batch).step_by(most) {
            let products = most.min(gemm.batch - first);
            let [a, b, c] = [a, b, c].map(|operand| operand.of_product(first));
            let ([a, b], [m, n]) = (division.ordered([a, b]), division.ordered([m, n]));
            let transposes = division.transposes(transposes);
            let (input, count) = (kernel.input(), products as u64);
            let [map_a, map_b] = match k {
                0 => Default::default(),
                _ => self.map_cache.get(([a, b], count), || {
                    half_maps(device, descriptor, input, transposes, [a, b], count)
                })?,
            };
            let is_shared = |operand: OperandLayout| operand.stride == 0;
            let options = [
                (is_shared(a), options::BROADCAST_A),
                (is_shared(b), options::BROADCAST_B),
                (gemm.output != Element::F32, options::HALF_OUTPUT),
                (transposed, options::TRANSPOSED_C),
            ];
            let mut arguments = TensorCoreParameters {
                m,
                n,
                k,
                alpha,
                map_a,
                map_b,
                beta,
                c: Address(c.address),
                ldc: c.ld as u32,
                batch: products as u32,
                stride_c: c.stride as u64,
                options: options.iter().filter(|(is, _)| *is).map(|(_, option)| option).sum(),
                epilogue: extras.parameters(gemm, [0; 2], first),
                partials,
                counters,
                a: Address(a.address),
                lda: a.ld as u32,
                stride_a: a.stride as u64,
            };
            let clusters = clusters.map_or(tiles * products as u64, u64::from);
            let all = clusters * u64::from(splits);
            let grid = match descriptor.is_persistent() {
                true => all.min(device.info().limits.multiprocessors.max(1).into()),
                false => all,
            } as u32;
            // SAFETY: the driver copies the arguments during the call, and they are the kernel's: see
            // `parameters`. The maps describe A and B, the block is the kernel's own, and there are no
            // more blocks than tiles, or as many clusters; the caller vouches for the memory.
            unsafe {
                function.launch_in_clusters(
                    stream,
                    (grid, splits),
                    descriptor.threads(),
                    descriptor.shared_bytes(blocks),
                    arguments.pointers_for(descriptor).as_ref(),
                )?;
            }
        }
        Ok(())
    }

    /// Enqueues the product by a kernel that reads A and B where they lie.
    ///
    /// # Safety
    ///
    /// As for [`TensorCorePlan::launch`]; rows of A and B begin on 16 bytes where the kernel takes no others, and the function takes them as they lie.
    unsafe fn launch_by_pointers(
        &self,
        function: &EntryPoint,
        operands: [OperandLayout; 3],
        extras: RawExtras,
        [alpha, beta]: [f32; 2],
    ) -> Result<(), Error> {
        let Self { kernel, stream, gemm, division, most_products, .. } = self;
        let descriptor = kernel.descriptor();
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [m, n, k] = [gemm.m, gemm.n, gemm.depth()].map(|size| size as u32);
        let options = if gemm.output == Element::F32 { 0 } else { options::HALF_OUTPUT };
        for first in (0..gemm.batch).step_by(*most_products) {
            let products = (*most_products).min(gemm.batch - first) as u32;
            let operands = operands.map(|operand| operand.of_product(first));
            let [lda, ldb, ldc] = operands.map(|operand| operand.ld as u32);
            let [stride_a, stride_b, stride_c] = operands.map(|operand| operand.stride as u64);
            let [a, b, c] = operands.map(|operand| Address(operand.address));
            let epilogue = extras.parameters(gemm, [0; 2], first);
            let mut arguments = TensorCorePointers {
                m,
                n,
                k,
                alpha,
                a,
                lda,
                stride_a,
                b,
                ldb,
                stride_b,
                beta,
                c,
                ldc,
                stride_c,
                options,
                epilogue,
            };
            let grid = (division.tiles as u32, products);
            let (threads, shared) =
                (descriptor.threads(), descriptor.shared_bytes(division.blocks));
            // SAFETY: as in `launch`; there is a block for each tile of each product.
            unsafe { function.launch(stream, grid, threads, shared, &arguments.pointers())? };
        }
        Ok(())
    }

    /// A and B where they lie, or copies of those of them that the kernel needs to be aligned, and are not, which are enqueued.
    ///
    /// # Safety
    ///
    /// The matrices are there, and not empty.
    unsafe fn staged(&self, operands: [OperandLayout; 2]) -> Result<[OperandLayout; 2], Error> {
        let needed = self.division.needs_alignment(self.kernel.descriptor());
        let is_copied = [0, 1].map(|i| needed[i] && !reaches_halves(&operands[i]));
        let Some(first) = is_copied.iter().position(|is_copied| *is_copied) else {
            return Ok(operands);
        };
        let what = ["A", "B"][first];
        let copies = self.copies.as_ref().ok_or(Error::PlannedAlignment { what })?;
        // SAFETY: the caller's contract.
        unsafe { copies.copy(&self.stream, operands, is_copied) }
    }
}
