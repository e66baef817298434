//! Turns addresses of A, B and C into launches of a kernel.

use cuda_driver::sys::CUtensorMap;
use gemm_matrix::Element;
use kernels_gpu::abi::KernelAbi;
use kernels_gpu::abi::tensor_core::options;
use kernels_gpu::utility::groups;

use super::parameters::{Address, Arguments, GROUP_TILES, GroupTiles, places, pointers};
use super::staging::{Operand, layout};
use super::tensor_map;
use super::workspace::Buffers;
use crate::device::EntryPoint;
use crate::error::Error;
use crate::plan::{Configuration, Core, Launch, RawExtras};
use crate::problem::Gemm;

impl Core {
    /// Enqueues the product, with factors that are 0 exactly where the plan's are.
    ///
    /// # Safety
    ///
    /// The contract of [`Plan::run_raw`](crate::Plan::run_raw).
    pub(crate) unsafe fn enqueue(
        &self,
        [a, b, c]: [u64; 3],
        extras: RawExtras,
        factors: [f32; 2],
    ) -> Result<(), Error> {
        let Some(factors) = self.launches.gemm().kernel_factors(factors) else { return Ok(()) };
        // Panels are as aligned as the whole matrix, because tiles are multiples of four wide.
        let function = match &self.unaligned {
            Some(unaligned) if !self.is_aligned([a, b, c]) => unaligned,
            _ => &self.function,
        };
        // Keeps other threads' launches from coming between the copies of A and B and the product.
        let _exclusive = self.stream.exclusive();
        let _current = self.stream.device().enter()?;
        let [a, b] = match self.launches.reads_operands() {
            true => {
                let addresses = self.launches.form().order([a, b]);
                // SAFETY: the caller vouches for the matrices, which are not empty. The memory of
                // the copies was allocated for this stream.
                unsafe { self.staging.operands(&self.stream, addresses) }?
            }
            false => self.unread(),
        };
        let operands = [a, b, self.output(c)];
        if let Some(grouping) = &self.grouping {
            // SAFETY: the caller vouches for the ends.
            unsafe { self.list_tiles(grouping, extras.ends)? };
        }
        for part in self.launches.all_launches() {
            // SAFETY: the caller vouches for the memory.
            unsafe { self.launch(function, part, operands, factors, &extras)? };
        }
        Ok(())
    }

    /// Placeholders for A and B when nothing is summed, so that they need not exist.
    fn unread(&self) -> [Operand; 2] {
        let Gemm { lda, ldb, .. } = self.launches.form().gemm;
        // `Gemm::validate` accepted them.
        [lda, ldb].map(|ld| Operand { ld: ld as u32, ..Operand::default() })
    }

    /// C as the kernel accepts it.
    fn output(&self, address: u64) -> Operand {
        let form = self.launches.form();
        let Gemm { ldc, stride_c, output, .. } = form.gemm;
        Operand {
            address,
            // `Gemm::validate` accepted the leading dimension.
            ld: ldc as u32,
            stride: stride_c as u64,
            bytes: output.bytes() as u32,
            is_addressed: form.gemm.has_pointers(),
            transposed: form.transposes_c,
        }
    }

    /// The tensor maps of these operands for a launch.
    fn maps(
        &self,
        operands: [Operand; 2],
        products: u32,
        launch: &Launch,
    ) -> Result<[CUtensorMap; 2], Error> {
        let (device, configuration) = (self.stream.device(), self.launches.configuration());
        let gemm = &self.launches.form().gemm;
        let make =
            || tensor_map::part_maps(device, configuration, gemm, launch, operands, products);
        self.maps.get(([launch.row, launch.col], operands, products), make)
    }

    /// Lists the tiles of groups in the workspace.
    ///
    /// # Safety
    ///
    /// The ends are at this address.
    unsafe fn list_tiles(&self, grouping: &EntryPoint, ends: u64) -> Result<(), Error> {
        let Gemm { batch, m, .. } = self.launches.form().gemm;
        let size = self.launches.configuration().kernel.tile().bm;
        let [table, _] = self.buffers.as_ref().map_or([0; 2], Buffers::addresses);
        // `validate` accepted the batch and the rows.
        let [groups, rows] = [batch, m].map(|count| count as u32);
        let mut arguments =
            GroupTiles { ends: Address(ends), groups, rows, size, table: Address(table) };
        let pointers = &pointers(&mut arguments, GROUP_TILES)[..GROUP_TILES.len()];
        let blocks = groups.div_ceil(groups::THREADS);
        // SAFETY: the driver copies the arguments during the call, and they are the kernel's. There
        // is a thread for each group, and the workspace has room for the table, which only launches
        // on this stream use.
        unsafe { grouping.launch(&self.stream, (blocks, 1), groups::THREADS, 0, pointers) }
    }

    /// Launches the kernel for a part of C, of `products` from `product` on.
    ///
    /// # Safety
    ///
    /// A and B exist unless nothing is summed; C and the epilogue's inputs exist.
    unsafe fn launch(
        &self,
        function: &EntryPoint,
        (product, products, part): (usize, u32, &Launch),
        operands: [Operand; 3],
        [alpha, beta]: [f32; 2],
        extras: &RawExtras,
    ) -> Result<(), Error> {
        let Configuration { kernel, splits, .. } = *self.launches.configuration();
        let [columns, stages] = self.launches.columns_and_stages();
        let (form, abi) = (self.launches.form(), kernel.abi());
        let gemm = &form.gemm;
        let [a, b, c] = operands.map(|operand| operand.of_product(product));
        // Zeros if nothing is summed, or for a kernel without tensor maps.
        let [map_a, map_b] = match self.launches.reads_operands() && abi.has_tensor_maps() {
            true => self.maps([a, b], products, part)?,
            false => Default::default(),
        };
        let (row, col) = (part.row as u64, part.col as u64);
        let (a_at, stride_a) = a.part(a.offset(row, 0));
        let (b_at, stride_b) = b.part(b.offset(0, col));
        let (c_at, stride_c) = c.part(c.offset(row, col));
        let [partials, counters] =
            self.buffers.as_ref().map_or([0; 2], Buffers::addresses).map(Address);
        let is_wgmma =
            matches!(abi, KernelAbi::Wgmma | KernelAbi::WgmmaBatched | KernelAbi::WgmmaClusters);
        let is_mma = abi == KernelAbi::MmaPointers;
        let options = [
            (!is_mma && a.stride == 0, options::BROADCAST_A),
            (!is_mma && b.stride == 0, options::BROADCAST_B),
            (gemm.output != Element::F32, options::HALF_OUTPUT),
            (is_wgmma && c.transposed, options::TRANSPOSED_C),
            (is_mma && gemm.has_pointers(), options::POINTERS_C),
            (stages > 0, options::columns(columns) + options::stages(stages)),
        ];
        let is_single = gemm.batch == 1 && !gemm.has_pointers();
        let mut arguments = Arguments {
            m: part.m,
            n: part.n,
            // Fits 32 bits: `Gemm::validate` accepted it.
            k: gemm.depth() as u32,
            alpha,
            a: a_at,
            lda: a.ld,
            stride_a,
            b: b_at,
            ldb: b.ld,
            stride_b,
            map_a,
            map_b,
            beta,
            c: c_at,
            ldc: c.ld,
            stride_c,
            batch: products,
            depth: self.launches.split_depth(),
            // 0 tells the kernel that there is one product, and that all blocks along z are its
            // splits.
            splits: if is_single { 0 } else { splits },
            stream_k_tiles: part.stream_k_tiles,
            accumulation_steps: part.accumulation_steps,
            partials,
            counters,
            step_a: u32::from(a.stride != 0),
            step_b: u32::from(b.stride != 0),
            options: options.iter().filter(|(is, _)| *is).map(|(_, option)| option).sum(),
            groups: if self.grouping.is_some() { partials } else { Address(0) },
            layout: layout([&a, &b, &c]),
            // The start of this part of C, in C's storage order.
            epilogue: extras.parameters(gemm, form.order([part.row, part.col]), product),
        };
        let places = places(abi, gemm.is_grouped());
        let pointers = &pointers(&mut arguments, places)[..places.len()];
        let ([x, y, z], [width, height]) =
            (self.launches.grid(part, products), self.launches.block());
        let (stream, shared) = (&self.stream, self.launches.shared_bytes());
        // SAFETY:
        // - The driver copies the arguments during the call, and they are the kernel's: see
        //   `parameters`.
        // - The maps describe this panel's part of A and B, for this number of products.
        // - The grid covers this panel of C and no more, for as many products as a launch may have.
        // - The block is the kernel's own, and the matrices are aligned as this entry point needs.
        // - The caller vouches for the memory.
        // - The workspace and the copies of A and B are as large as the largest launch needs. One
        //   launch after the other uses them, and they are freed after the last.
        unsafe {
            match self.launches.cluster() {
                None => function.launch(stream, (x, y, z), (width, height), shared, pointers),
                Some(blocks) => {
                    function.launch_in_clusters(stream, (x, blocks), width, shared, pointers)
                }
            }
        }
    }
}
