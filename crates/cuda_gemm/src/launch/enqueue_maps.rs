//! Launches of a plan's kernel, if it takes A and B behind tensor maps.

use std::ffi::c_void;

use cuda_driver::sys::CUtensorMap;
use cust::memory::DevicePointer;
use kernels_gpu::abi::tensor_core::options;
use kernels_gpu::abi::{KernelAbi, epilogue};

use super::extras::RawExtras;
use super::parameters::{self, Address, TensorParameters, Tf32Parameters, Tf32SplitParameters};
use super::plan::Plan;
use super::staging::{Operand, layout};
use super::tensor_map;
use crate::error::Error;
use crate::gemm::Launch;

/// What a launch takes, of whichever kernel.
struct Part<'p> {
    launch: &'p Launch,
    k: u32,
    factors: [f32; 2],
    maps: [CUtensorMap; 2],
    c: Address,
    ldc: u32,
    stride_c: u64,
    products: u32,
    /// Whether all products have the same A, and B.
    is_shared: [bool; 2],
    layout: u32,
    epilogue: epilogue::Parameters,
}

impl Plan {
    /// [`Plan::enqueue_scaled`] for a kernel with tensor maps.
    ///
    /// # Safety
    ///
    /// As there.
    pub(super) unsafe fn enqueue_maps(
        &self,
        [a, b, c]: [DevicePointer<f32>; 3],
        extras: RawExtras,
        factors: [f32; 2],
    ) -> Result<(), Error> {
        let gemm = &self.plan.form().gemm;
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [k, ldc] = [gemm.depth(), gemm.ldc].map(|size| size as u32);
        // SAFETY: the caller's contract.
        let operands = unsafe { self.stage([a, b]) }?;
        let first_c = self.output(c);
        for (product, products, launch) in self.launches() {
            let Launch { row, col, .. } = *launch;
            let maps = operands.map(|of| self.maps(of, product, products, launch));
            let offset = first_c.offset(row as u64, col as u64);
            let of_c = self.plan.form().order([row, col]);
            let part = Part {
                launch,
                k,
                factors,
                // Where nothing is summed, they are not used.
                maps: maps.transpose()?.unwrap_or_default(),
                c: Address(first_c.of_product(product).address.wrapping_add(4 * offset)),
                ldc,
                stride_c: first_c.stride,
                products,
                is_shared: [0, 1].map(|i| operands.is_none_or(|of| of[i].stride == 0)),
                layout: {
                    let [a, b] = operands.unwrap_or_default();
                    layout([&a, &b, &first_c])
                },
                epilogue: extras.parameters(gemm, of_c, product),
            };
            // SAFETY: the maps describe this panel's part of A and B of so many products, and the caller vouches for
            // the memory.
            unsafe {
                match self.kernel.descriptor().abi() {
                    KernelAbi::Tf32TensorMap => self.launch_tf32(part),
                    KernelAbi::Tf32SplitK => self.launch_tf32_split(part),
                    _ => self.launch_fma(part),
                }
            }?;
        }
        Ok(())
    }

    /// The tensor maps of a launch, for these products of the operands.
    fn maps(
        &self,
        operands: [Operand; 2],
        product: usize,
        products: u32,
        launch: &Launch,
    ) -> Result<[CUtensorMap; 2], Error> {
        let (device, descriptor) = (self.kernel.device(), self.kernel.descriptor());
        let gemm = &self.plan.form().gemm;
        let of = operands.map(|operand| operand.of_product(product));
        let make = || tensor_map::part_maps(device, descriptor, gemm, launch, of, products);
        self.map_cache.get(([launch.row, launch.col], of, products), make)
    }

    /// Launches a kernel of FMAs, with [`KernelAbi::TensorMap`] or [`KernelAbi::StreamK`].
    ///
    /// # Safety
    ///
    /// The maps describe A and B, and the memory is there.
    unsafe fn launch_fma(&self, part: Part<'_>) -> Result<(), Error> {
        let [partials, counters] = self.workspace();
        let ([map_a, map_b], [alpha, beta]) = (part.maps, part.factors);
        let [step_a, step_b] = part.is_shared.map(|is_shared| u32::from(!is_shared));
        let mut arguments = TensorParameters {
            m: part.launch.m,
            n: part.launch.n,
            k: part.k,
            alpha,
            map_a,
            map_b,
            beta,
            c: part.c,
            ldc: part.ldc,
            stream_k_tiles: part.launch.stream_k_tiles,
            accumulation_steps: part.launch.accumulation_steps,
            partials: Address(partials),
            counters: Address(counters),
            layout: part.layout,
            batch: part.products,
            step_a,
            step_b,
            stride_c: part.stride_c,
            epilogue: part.epilogue,
        };
        let count = parameters::kinds(self.kernel.descriptor().abi()).len();
        // SAFETY: the driver copies the arguments during the call, and they are the kernel's:
        // see `parameters`. The plan's grid and stream-K tiles are what the kernel asks for,
        // the block is the rung's own; the rest is the caller's contract. The workspace and the copies
        // of A and B are as large as the largest launch needs; one launch after the other uses
        // them, and they are freed after them.
        unsafe { self.launch_part(part.launch, 1, &arguments.pointers()[..count]) }
    }

    /// Launches a kernel with [`KernelAbi::Tf32TensorMap`].
    ///
    /// # Safety
    ///
    /// As for [`Plan::launch_fma`].
    unsafe fn launch_tf32(&self, part: Part<'_>) -> Result<(), Error> {
        let ([map_a, map_b], [alpha, beta]) = (part.maps, part.factors);
        let [shared_a, shared_b] = part.is_shared.map(u32::from);
        let mut arguments = Tf32Parameters {
            m: part.launch.m,
            n: part.launch.n,
            k: part.k,
            alpha,
            map_a,
            map_b,
            beta,
            c: part.c,
            ldc: part.ldc,
            batch: part.products,
            stride_c: part.stride_c,
            options: shared_a * options::BROADCAST_A + shared_b * options::BROADCAST_B,
            layout: part.layout,
            epilogue: part.epilogue,
        };
        // SAFETY: as in `launch_fma`; there is no workspace.
        unsafe { self.launch_part(part.launch, 1, &arguments.pointers()) }
    }

    /// Launches a kernel with [`KernelAbi::Tf32SplitK`].
    ///
    /// # Safety
    ///
    /// As for [`Plan::launch_fma`].
    unsafe fn launch_tf32_split(&self, part: Part<'_>) -> Result<(), Error> {
        let ([map_a, map_b], [alpha, beta]) = (part.maps, part.factors);
        let [shared_a, shared_b] = part.is_shared.map(u32::from);
        let [partials, counters] = self.workspace();
        let is_single = self.plan.form().gemm.batch == 1;
        let mut arguments = Tf32SplitParameters {
            m: part.launch.m,
            n: part.launch.n,
            k: part.k,
            alpha,
            map_a,
            map_b,
            beta,
            c: part.c,
            ldc: part.ldc,
            depth: self.plan.split_depth(),
            partials: Address(partials),
            counters: Address(counters),
            splits: if is_single { 0 } else { self.plan.splits() },
            stride_c: part.stride_c,
            options: shared_a * options::BROADCAST_A + shared_b * options::BROADCAST_B,
            layout: part.layout,
            epilogue: part.epilogue,
        };
        // SAFETY: as in `launch_fma`.
        unsafe {
            self.launch_part(part.launch, self.plan.splits() * part.products, &arguments.pointers())
        }
    }

    /// Launches the kernel for a part of C, with so many blocks along z.
    ///
    /// # Safety
    ///
    /// The arguments are the kernel's, and what they describe is there.
    unsafe fn launch_part(
        &self,
        launch: &Launch,
        depth: u32,
        arguments: &[*mut c_void],
    ) -> Result<(), Error> {
        let ([x, y], block) = (launch.grid, self.plan.block());
        // SAFETY: the caller's contract.
        unsafe {
            self.kernel.entry_points().function.launch(
                &self.stream,
                (x, y, depth),
                (block[0], block[1]),
                self.plan.shared_bytes(),
                arguments,
            )
        }
    }
}
