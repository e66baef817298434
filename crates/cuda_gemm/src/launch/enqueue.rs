//! Turns addresses of A, B and C into launches of a kernel.

use std::ffi::c_void;

use cuda_driver::sys::CUtensorMap;
use gemm_matrix::Element;
use kernels_gpu::abi::tensor_core::options;
use kernels_gpu::abi::{KernelAbi, epilogue};

use super::parameters::{
    self, Address, GemmParameters, MmaParameters, TensorParameters, Tf32Parameters,
    Tf32SplitParameters, WgmmaParameters,
};
use super::staging::{Operand, layout};
use super::tensor_map;
use super::workspace::Buffers;
use crate::device::EntryPoint;
use crate::error::Error;
use crate::plan::{Configuration, Core, Launch, RawExtras};
use crate::problem::Gemm;

/// The arguments of one launch, for any kernel.
struct Part<'p> {
    launch: &'p Launch,
    products: u32,
    factors: [f32; 2],
    /// A and B of the first product, and the address of this launch's part of C.
    operands: [Operand; 2],
    c: Operand,
    c_at: u64,
    /// Zeros if nothing is summed, or for a kernel without tensor maps.
    maps: [CUtensorMap; 2],
    epilogue: epilogue::Parameters,
}

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
        let form = self.launches.form();
        let kernel = self.launches.configuration().kernel;
        let is_summed = self.launches.reads_operands();
        let operands = match is_summed {
            // SAFETY: the caller vouches for the matrices, which are not empty. The memory of the
            // copies was allocated for this stream.
            true => unsafe { self.staging.operands(&self.stream, form.order([a, b])) }?,
            false => self.unread(),
        };
        let c = self.output(c);
        for (product, products, launch) in self.launches.all_launches() {
            let operands = operands.map(|operand| operand.of_product(product));
            let maps = match is_summed && kernel.abi().has_tensor_maps() {
                true => self.maps(operands, products, launch)?,
                false => Default::default(),
            };
            let c = c.of_product(product);
            // The start of this part of C, in C's storage order.
            let of_c = form.order([launch.row, launch.col]);
            let part = Part {
                launch,
                products,
                factors,
                operands,
                c,
                c_at: c.offset(launch.row as u64, launch.col as u64),
                maps,
                epilogue: extras.parameters(&form.gemm, of_c, product),
            };
            // SAFETY: the maps describe this panel's part of A and B, for this number of products.
            // The caller vouches for the memory.
            unsafe { self.launch(function, part)? };
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
        let Gemm { ldc, stride_c, pointers, output, .. } = form.gemm;
        Operand {
            address,
            // `Gemm::validate` accepted the leading dimension.
            ld: ldc as u32,
            stride: stride_c as u64,
            bytes: output.bytes() as u32,
            is_addressed: pointers,
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
        let (device, kernel) = (self.stream.device(), self.launches.configuration().kernel);
        let gemm = &self.launches.form().gemm;
        let make = || tensor_map::part_maps(device, kernel, gemm, launch, operands, products);
        self.maps.get(([launch.row, launch.col], operands, products), make)
    }

    /// Launches the kernel for a part of C.
    ///
    /// # Safety
    ///
    /// The maps describe A and B, or else A and B exist; C and the epilogue's inputs exist.
    unsafe fn launch(&self, function: &EntryPoint, part: Part<'_>) -> Result<(), Error> {
        let Part { products, factors: [alpha, beta], operands, c, maps, epilogue, .. } = part;
        let Configuration { kernel, splits, .. } = *self.launches.configuration();
        let ([map_a, map_b], [a, b]) = (maps, operands);
        let gemm = &self.launches.form().gemm;
        let (m, n, ldc) = (part.launch.m, part.launch.n, c.ld);
        // Fits 32 bits: `Gemm::validate` accepted it.
        let k = gemm.depth() as u32;
        let layout = layout([&a, &b, &c]);
        let (c_at, stride_c) = c.part(part.c_at);
        let [partials, counters] =
            self.buffers.as_ref().map_or([0; 2], Buffers::addresses).map(Address);
        let depth = self.launches.split_depth();
        // 0 tells the kernel that there is one product, and that all blocks along z are its splits.
        let is_single = gemm.batch == 1 && !gemm.pointers;
        let splits = if is_single { 0 } else { splits };
        let options = [
            (a.stride == 0, options::BROADCAST_A),
            (b.stride == 0, options::BROADCAST_B),
            (gemm.output != Element::F32, options::HALF_OUTPUT),
        ];
        let options = options.iter().filter(|(is, _)| *is).map(|(_, option)| option).sum::<u32>();
        let count = parameters::kinds(kernel.abi()).len();
        let launch = |arguments: &[*mut c_void]| {
            let ([x, y, z], [width, height]) =
                (self.launches.grid(part.launch, products), self.launches.block());
            let (stream, shared) = (&self.stream, self.launches.shared_bytes());
            let arguments = &arguments[..count];
            // SAFETY:
            // - The driver copies the arguments during the call, and they are the kernel's: see
            //   `parameters`.
            // - The grid covers this panel of C and no more, for as many products as a launch may
            //   have.
            // - The block is the kernel's own, and the matrices are aligned as this entry point
            //   needs.
            // - The caller vouches for the memory.
            // - The workspace and the copies of A and B are as large as the largest launch needs.
            //   One launch after the other uses them, and they are freed after the last.
            unsafe {
                match self.launches.cluster() {
                    None => function.launch(stream, (x, y, z), (width, height), shared, arguments),
                    Some(blocks) => {
                        function.launch_in_clusters(stream, (x, blocks), width, shared, arguments)
                    }
                }
            }
        };
        match kernel.abi() {
            KernelAbi::Gemm | KernelAbi::Batched | KernelAbi::SplitK => {
                let (row, col) = (part.launch.row as u64, part.launch.col as u64);
                let (a_at, stride_a) = a.part(a.offset(row, 0));
                let (b_at, stride_b) = b.part(b.offset(0, col));
                let mut arguments = GemmParameters {
                    m,
                    n,
                    k,
                    alpha,
                    a: a_at,
                    lda: a.ld,
                    b: b_at,
                    ldb: b.ld,
                    beta,
                    c: c_at,
                    ldc,
                    depth,
                    partials,
                    counters,
                    splits,
                    stride_a,
                    stride_b,
                    stride_c,
                    layout,
                    epilogue,
                };
                launch(&arguments.pointers())
            }
            KernelAbi::TensorMap | KernelAbi::StreamK => {
                let mut arguments = TensorParameters {
                    m,
                    n,
                    k,
                    alpha,
                    map_a,
                    map_b,
                    beta,
                    c: c_at,
                    ldc,
                    stream_k_tiles: part.launch.stream_k_tiles,
                    accumulation_steps: part.launch.accumulation_steps,
                    partials,
                    counters,
                    layout,
                    batch: products,
                    step_a: u32::from(a.stride != 0),
                    step_b: u32::from(b.stride != 0),
                    stride_c,
                    epilogue,
                };
                launch(&arguments.pointers())
            }
            KernelAbi::Tf32TensorMap => {
                let mut arguments = Tf32Parameters {
                    m,
                    n,
                    k,
                    alpha,
                    map_a,
                    map_b,
                    beta,
                    c: c_at,
                    ldc,
                    batch: products,
                    stride_c,
                    options,
                    layout,
                    epilogue,
                };
                launch(&arguments.pointers())
            }
            KernelAbi::Tf32SplitK => {
                let mut arguments = Tf32SplitParameters {
                    m,
                    n,
                    k,
                    alpha,
                    map_a,
                    map_b,
                    beta,
                    c: c_at,
                    ldc,
                    depth,
                    partials,
                    counters,
                    splits,
                    stride_c,
                    options,
                    layout,
                    epilogue,
                };
                launch(&arguments.pointers())
            }
            KernelAbi::Wgmma | KernelAbi::WgmmaBatched | KernelAbi::WgmmaClusters => {
                let of_c = if c.transposed { options::TRANSPOSED_C } else { 0 };
                let mut arguments = WgmmaParameters {
                    m,
                    n,
                    k,
                    alpha,
                    map_a,
                    map_b,
                    beta,
                    c: c_at,
                    ldc,
                    batch: products,
                    stride_c,
                    options: options + of_c,
                    epilogue,
                    partials,
                    counters,
                    a: Address(a.address),
                    lda: a.ld,
                    stride_a: a.stride,
                };
                launch(&arguments.pointers())
            }
            KernelAbi::MmaPointers => {
                let mut arguments = MmaParameters {
                    m,
                    n,
                    k,
                    alpha,
                    a: Address(a.address),
                    lda: a.ld,
                    stride_a: a.stride,
                    b: Address(b.address),
                    ldb: b.ld,
                    stride_b: b.stride,
                    beta,
                    c: c_at,
                    ldc,
                    stride_c,
                    options: options & options::HALF_OUTPUT,
                    epilogue,
                };
                launch(&arguments.pointers())
            }
        }
    }
}
