//! A small product for a kernel to compute.

use super::front;
use kernels_gpu::abi::epilogue::Parameters;
use kernels_gpu::abi::layout::{POINTERS_A, POINTERS_B, POINTERS_C, TRANSPOSED_A, TRANSPOSED_B};
use kernels_gpu::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target};
use soft_cuda::{
    Device, Fill, Kernel, LaunchConfig, LaunchOptions, Swizzle, TensorElement, TensorMap,
};

/// `C = A * B + beta * C` with small integers, whose sums are exact.
#[derive(Clone)]
pub struct Product {
    m: u32,
    n: u32,
    k: u32,
    beta: f32,
    /// What leading dimensions are multiples of, plus 1 if matrices are not aligned.
    odd: u32,
    /// What is added to the leading dimension of C: 1 if its rows are not aligned.
    odd_c: u32,
    /// Splits of K.
    splits: u32,
    /// Whether A, or B, lies as its transpose.
    transposed_a: bool,
    transposed_b: bool,
    /// Whether the first element of A is infinite.
    infinite: bool,
    /// Whether A, B and C are behind arrays of addresses.
    addressed: bool,
}

/// Splits of K, where a kernel can split it.
const SPLITS: u32 = 2;
/// Blocks of a persistent kernel.
const BLOCKS: u32 = 3;
/// More rows than `skinny_n_32x1` compensates sums of.
const MANY_ROWS: u32 = 515;

impl Product {
    /// How many of all differ in their steps along K alone.
    pub const PLAIN: usize = 6;

    /// Those that take two blocks along each dimension of C, and between one and more steps along
    /// K than any pipeline has stages; where K can be split, also some in one split, with rows of C
    /// that are not aligned, which go through shared memory; for persistent blocks some that do not
    /// read C, which is stored in another way then; where A or B is read in another way as its
    /// transpose, some that have it so, and where all matrices are, some that are not aligned; of
    /// one column, the same with many rows; and where numbers that are not finite have a way of
    /// their own, some with one.
    pub fn all(spec: &KernelDescriptor, unaligned: bool) -> Vec<Product> {
        let steps: [u32; Self::PLAIN] = [13, 1, 4, 5, 6, 7];
        let mut all: Vec<Product> = steps.map(|steps| Product::of(spec, unaligned, steps)).into();
        if spec.abi().splits_k() {
            let whole = [2, 3, 4].map(|steps| Product::of(spec, unaligned, steps));
            all.extend(whole.map(|of| Product { splits: 1, odd_c: 1 - of.odd, ..of }));
        }
        // Their entry points for aligned matrices read none that is transposed.
        if spec.name().starts_with("tile_") && unaligned {
            let across = [13, 1, 4, 5].map(|steps| Product::of(spec, unaligned, steps));
            all.extend(across.map(|of| Product { transposed_b: true, ..of }));
        }
        if spec.abi() == KernelAbi::StreamK {
            let across = [13, 1, 4, 5].map(|steps| Product::of(spec, unaligned, steps));
            all.extend(across.map(|of| Product { transposed_a: true, ..of }));
            let unread = [13, 1].map(|steps| Product::of(spec, unaligned, steps));
            all.extend(unread.map(|of| Product { beta: 0.0, ..of }));
        }
        if spec.abi().has_pointer_batches() {
            all.push(Product { addressed: true, ..Product::of(spec, unaligned, 1) });
        }
        if spec.tile().bn == 1 {
            // Many rows of one column are added up by other code.
            let tall = |of: &Product| Product { m: MANY_ROWS, ..of.clone() };
            all = all.iter().flat_map(|of| [of.clone(), tall(of)]).collect();
        }
        // Any matrices are read as they lie.
        if spec.abi() == KernelAbi::SplitK && spec.unaligned().is_none() {
            let odd = [13, 1, 4].map(|steps| Product::of(spec, true, steps));
            let lie = [[true, false], [false, true], [true, true]];
            all.extend(odd.into_iter().flat_map(|of| {
                lie.map(|[transposed_a, transposed_b]| Product {
                    transposed_a,
                    transposed_b,
                    ..of.clone()
                })
            }));
        }
        // These compute a tile once more where something is not finite.
        if spec.arithmetic() != Arithmetic::Fma && spec.target() == Target::Sm80 {
            let infinite = [13, 5].map(|steps| Product::of(spec, unaligned, steps));
            all.extend(infinite.map(|of| Product { infinite: true, ..of }));
        }
        if spec.abi() == KernelAbi::Tf32SplitK {
            // More steps in each split than there are stages, and fewer rows than a tile has.
            let long = [29, 32].map(|steps| Product::of(spec, unaligned, steps));
            let few = [1, 2].map(|steps| Product { m: 5, ..Product::of(spec, unaligned, steps) });
            let none = Product { k: 0, splits: 1, ..Product::of(spec, unaligned, 1) };
            let more = long.into_iter().chain(few).chain([none]);
            all.extend(more.flat_map(|of| [Product { transposed_b: true, ..of.clone() }, of]));
        }
        if matches!(spec.abi(), KernelAbi::Tf32TensorMap | KernelAbi::Tf32SplitK) {
            let across = [13, 1, 9].map(|steps| Product::of(spec, unaligned, steps));
            all.extend(across.map(|of| Product { transposed_b: true, ..of }));
        }
        all
    }

    fn of(spec: &KernelDescriptor, unaligned: bool, steps: u32) -> Product {
        let tile = spec.tile();
        // What 128-bit accesses reach has rows of a multiple of 4 elements.
        let odd = u32::from(unaligned);
        Product {
            m: tile.bm + 3,
            n: tile.bn + 4 + odd,
            k: (steps - 1) * tile.bk.max(8) + 4 + odd,
            beta: 0.5,
            odd,
            odd_c: 0,
            splits: match spec.abi() {
                // None is empty.
                KernelAbi::SplitK | KernelAbi::Tf32SplitK => SPLITS.min(steps),
                _ => 1,
            },
            transposed_a: false,
            transposed_b: false,
            infinite: false,
            addressed: false,
        }
    }

    fn ld(&self, columns: u32) -> u32 {
        columns.next_multiple_of(4) + self.odd
    }

    /// Runs the kernel, which waits for the launch in front if `waits`; says what is wrong with the
    /// result.
    pub fn run(
        &self,
        device: &Device,
        kernel: &Kernel,
        spec: &KernelDescriptor,
        waits: bool,
    ) -> Result<(), String> {
        let &Product { m, n, k, .. } = self;
        let tile = spec.tile();
        let value = |i: u32, salt: u32| ((i.wrapping_mul(31) + salt * 17) % 13) as f32 - 6.0;
        let mut written = Vec::new();
        let mut matrix = |rows: u32, columns: u32, salt: u32, odd: u32| {
            let ld = self.ld(columns) + odd;
            let mut values: Vec<f32> = (0..rows * ld).map(|i| value(i, salt)).collect();
            if self.infinite && salt == 1 {
                values[0] = f32::INFINITY;
            }
            let mut bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            let address = device.alloc(bytes.len() as u64 + 8).map_err(|e| e.to_string())?;
            // Behind it, the array of its address.
            let array = address + bytes.len() as u64;
            bytes.extend(address.to_le_bytes());
            device.write(address, &bytes).map_err(|e| e.to_string())?;
            written.push((address, bytes.len() as u32 / 4));
            let passed = if self.addressed { array } else { address };
            Ok::<_, String>((address, passed, ld, values))
        };
        let [rows_a, cols_a] = if self.transposed_a { [k, m] } else { [m, k] };
        let (a, a_passed, lda, a_values) = matrix(rows_a, cols_a, 1, 0)?;
        let at_a = |i: u32, l: u32| if self.transposed_a { l * lda + i } else { i * lda + l };
        let [rows_b, cols_b] = if self.transposed_b { [n, k] } else { [k, n] };
        let (b, b_passed, ldb, b_values) = matrix(rows_b, cols_b, 2, 0)?;
        let at_b = |l: u32, j: u32| if self.transposed_b { j * ldb + l } else { l * ldb + j };
        let (c, c_passed, ldc, c_values) = matrix(m, n, 3, self.odd_c)?;
        let (rows, columns) = (m.div_ceil(tile.bm), n.div_ceil(tile.bn));
        let tiles = rows * columns;
        let steps = k.div_ceil(tile.bk);
        let blocks = tiles * SPLITS.max(BLOCKS);
        let zeros = |words: u32| {
            let address = device.alloc(u64::from(words) * 4).map_err(|e| e.to_string())?;
            device.fill_u32(address, 0, words.into()).map_err(|e| e.to_string())?;
            Ok::<_, String>(address)
        };
        let partials = device.alloc(u64::from(3 * blocks * tile.bm * tile.bn) * 4);
        let partials = partials.map_err(|error| error.to_string())?;
        let counters = zeros(tiles)?;
        let map = |address: u64, [cols, rows]: [u32; 2], ld: u32, boxes: [u32; 2], swizzle| {
            // One product of a batch, where the maps have a dimension for it.
            let rank = if spec.abi().has_batches() { 3 } else { 2 };
            let element = match spec.abi() {
                KernelAbi::Tf32TensorMap | KernelAbi::Tf32SplitK => TensorElement::Tf32,
                _ => TensorElement::F32,
            };
            if k == 0 {
                return Ok(vec![0; 128]);
            }
            let (dims, boxes) = ([cols, rows, 1].map(u64::from), [boxes[0], boxes[1], 1]);
            let strides = [ld, ld * rows].map(|elements| u64::from(elements) * 4);
            let (dims, strides, boxes) = (&dims[..rank], &strides[..rank - 1], &boxes[..rank]);
            let layout = (swizzle, Fill::Zeros);
            let map = TensorMap::of(element, address, dims, strides, boxes, layout);
            map.map(|map| map.to_bytes().to_vec()).map_err(|error| error.to_string())
        };
        let word = |value: u32| value.to_le_bytes().to_vec();
        let long = |value: u64| value.to_le_bytes().to_vec();
        let float = |value: f32| value.to_le_bytes().to_vec();
        let head = [word(m), word(n), word(k), float(1.0)];
        let tail = [float(self.beta), long(c_passed), word(ldc)];
        let operands = if matches!(spec.abi(), KernelAbi::Tf32TensorMap | KernelAbi::Tf32SplitK) {
            let map_a = map(a, [k, m], lda, [tile.bk, tile.bm.min(m)], Swizzle::Bytes128)?;
            let rows = if self.transposed_b { tile.bn } else { tile.bk };
            vec![map_a, map(b, [cols_b, rows_b], ldb, [tile.bk, rows], Swizzle::Bytes128)?]
        } else if spec.abi().has_tensor_maps() {
            let map_a = match self.transposed_a {
                true => map(a, [m, k], lda, [tile.bm, tile.bk], Swizzle::None)?,
                false => map(a, [k, m], lda, [tile.bk, tile.bm], Swizzle::Bytes64)?,
            };
            vec![map_a, map(b, [n, k], ldb, [tile.bn, tile.bk], Swizzle::None)?]
        } else {
            vec![long(a_passed), word(lda), long(b_passed), word(ldb)]
        };
        let shares = self.splits;
        let depth = steps.div_ceil(shares) * tile.bk;
        let rest = match spec.abi() {
            KernelAbi::Gemm | KernelAbi::TensorMap => vec![],
            KernelAbi::Batched | KernelAbi::SplitK => {
                let strides = [long(0), long(0), long(0)];
                let splits = [word(depth), long(partials), long(counters), word(shares)];
                let addressed =
                    if self.addressed { POINTERS_A + POINTERS_B + POINTERS_C } else { 0 };
                let transposed_a = if self.transposed_a { TRANSPOSED_A } else { 0 };
                let transposed_b = if self.transposed_b { TRANSPOSED_B } else { 0 };
                let layout = word(addressed + transposed_a + transposed_b);
                let rest = [layout, vec![0; size_of::<Parameters>()]];
                splits.into_iter().chain(strides).chain(rest).collect()
            }
            KernelAbi::StreamK => {
                let epilogue = vec![0; size_of::<Parameters>()];
                let layout = word(if self.transposed_a { TRANSPOSED_A } else { 0 });
                let shared = [word(tiles), word(3), long(partials), long(counters), layout];
                let batch = [word(1), word(1), word(1), long(0), epilogue];
                shared.into_iter().chain(batch).collect()
            }
            KernelAbi::Tf32TensorMap => {
                let layout = word(if self.transposed_b { TRANSPOSED_B } else { 0 });
                vec![word(1), long(0), word(0), layout, vec![0; size_of::<Parameters>()]]
            }
            KernelAbi::Tf32SplitK => {
                let layout = word(if self.transposed_b { TRANSPOSED_B } else { 0 });
                let splits = [word(depth), long(partials), long(counters), word(shares)];
                let rest = [long(0), word(0), layout, vec![0; size_of::<Parameters>()]];
                splits.into_iter().chain(rest).collect()
            }
            other => unreachable!("{other:?} is for 16 bits: see `tensor`"),
        };
        let values = head.into_iter().chain(operands).chain(tail).chain(rest);
        let mut params = vec![0; kernel.params_size()];
        assert_eq!(values.clone().count(), kernel.params().len());
        for (param, value) in kernel.params().iter().zip(values) {
            params[param.offset..][..param.size].copy_from_slice(&value);
        }
        let grid = match spec.grid() {
            GridOrder::Persistent => [BLOCKS, 1, 1],
            GridOrder::RowsAlongX => [rows, columns, 1],
            GridOrder::ColumnsAlongX => [columns, rows, 1],
            GridOrder::Linear => unreachable!("no f32 kernel has such a grid"),
        };
        let [x, y] = spec.block();
        let dynamic_shared = match spec.shared() {
            Shared::Static(_) => 0,
            Shared::Dynamic(bytes) => bytes(k) as u32,
            Shared::Stages { .. } => unreachable!("no f32 kernel has a choice of stages"),
        };
        let config =
            LaunchConfig { grid: [grid[0], grid[1], shares], block: [x, y, 1], dynamic_shared };
        if waits {
            front::launch(device, written.try_into().unwrap(), (c, 0));
        }
        let options = LaunchOptions { early: waits, ..LaunchOptions::default() };
        let launched = device.launch_with(kernel, config, [1; 3], &params, options);
        launched.map_err(|error| error.to_string())?;
        let mut bytes = vec![0; c_values.len() * 4];
        device.read(c, &mut bytes).map_err(|error| error.to_string())?;
        let result: Vec<f32> = bytes.as_chunks().0.iter().map(|&v| f32::from_le_bytes(v)).collect();
        for i in 0..m {
            for j in 0..ldc {
                let at = (i * ldc + j) as usize;
                let sum: f32 = (0..k)
                    .map(|l| {
                        a_values[at_a(i, l) as usize] * b_values[at_b(l, j.min(n - 1)) as usize]
                    })
                    .sum();
                let expected = if j < n { sum + self.beta * c_values[at] } else { c_values[at] };
                if result[at] != expected && !(result[at].is_nan() && expected.is_nan()) {
                    return Err(format!("C[{i}, {j}] is {}, not {expected}", result[at]));
                }
            }
        }
        Ok(())
    }
}
