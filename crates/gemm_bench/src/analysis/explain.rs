//! Loads per result that follow from a rung's geometry.
//!
//! All counts are per result (one element of C) and per step along K: a result has K times the
//! count. Nothing here is measured or typed in. Values follow from the geometry in the rung's
//! [`KernelDescriptor`]. The instructions of the innermost loop are counted in the PTX of this
//! program.

use std::fmt;

use kernels_gpu::abi::{KernelDescriptor, Shared, Tile};
use ptx_syntax::ast::{Operand, Statement};

use cuda_gemm::ptx;

/// A positive fraction in lowest terms.
///
/// ```
/// use gemm_bench::explain::Ratio;
///
/// let ratio = Ratio::new(2, 128);
/// assert_eq!((ratio.over, ratio.under), (1, 64));
/// assert_eq!(ratio.times_k(), "K/64");
/// assert_eq!(ratio.percent_less_than(Ratio::new(1, 16)), 75.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// The numerator.
    pub over: u64,
    /// The denominator.
    pub under: u64,
}

impl Ratio {
    /// `over / under`; `under` is not 0.
    pub const fn new(over: u64, under: u64) -> Self {
        let (mut a, mut b) = (over, under);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Self { over: over / a, under: under / a }
    }

    /// The value as a number.
    pub fn value(self) -> f64 {
        self.over as f64 / self.under as f64
    }

    /// Formats the ratio times K: `K/64`, `2 K`, `5 K/16`.
    pub fn times_k(self) -> String {
        match self {
            Self { over: 0, .. } => "0".to_owned(),
            Self { over: 1, under: 1 } => "K".to_owned(),
            Self { over: 1, under } => format!("K/{under}"),
            Self { over, under: 1 } => format!("{over} K"),
            Self { over, under } => format!("{over} K/{under}"),
        }
    }

    /// The reduction relative to `other`, in percent; negative for an increase.
    pub fn percent_less_than(self, other: Self) -> f64 {
        100.0 * (1.0 - self.value() / other.value())
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { over, under: 1 } => write!(f, "{over}"),
            Self { over, under } => write!(f, "{over}/{under}"),
        }
    }
}

/// Loads per result and step along K, in [`Arithmetic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loads {
    /// Values of A and B.
    pub values: Ratio,
    /// Load instructions, each for one value, four values, or a block's whole tile.
    pub instructions: Ratio,
}

/// The arithmetic of one rung, for aligned matrices.
///
/// ```
/// use cuda_gemm::find_kernel;
/// use gemm_bench::explain::{Arithmetic, Ratio};
///
/// # fn main() -> Result<(), cuda_gemm::Error> {
/// let tile2d = Arithmetic::of(find_kernel("tile2d")?);
/// assert_eq!(tile2d.global.values.times_k(), "K/64");
/// assert_eq!(tile2d.shared.map(|loads| loads.values.times_k()), Some("K/4".to_owned()));
/// assert_eq!(tile2d.intensity, Ratio::new(4, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arithmetic {
    /// Loads from global memory.
    pub global: Loads,
    /// Loads from shared memory; `None` if the rung does not use it.
    pub shared: Option<Loads>,
    /// FMAs per value that a thread loads into registers: N/2 for an N x N tile.
    pub intensity: Ratio,
}

impl Arithmetic {
    /// Counts the loads of a rung.
    pub fn of(descriptor: &KernelDescriptor) -> Self {
        let Tile { bm, bn, bk, tm, tn } = descriptor.tile();
        let [bm, bn, bk, tm, tn] = [bm, bn, bk, tm, tn].map(u64::from);
        let counted = MainLoop::of(descriptor);
        // A thread's outputs need TM values of A and TN of B. They come from shared memory, or
        // without it directly from global memory.
        let needed = Ratio::new(tm + tn, tm * tn);
        let (global, shared) = if uses_shared(descriptor) {
            // The threads of a block copy BM values of A and BN of B per step along K, from rows of
            // the matrices. A rung with vector loads copies four neighbours at a time. With tensor
            // maps, one thread requests a tile of A, BM x BK, and one a tile of B.
            let values = Ratio::new(bm + bn, bm * bn);
            let instructions = match (descriptor.abi(), descriptor.unaligned()) {
                (abi, _) if abi.has_tensor_maps() => Ratio::new(2, bm * bn * bk),
                (_, Some(_)) => Ratio::new(values.over, values.under * 4),
                (_, None) => values,
            };
            let shared = counted.per_multiply_add(counted.shared);
            (Loads { values, instructions }, Some(Loads { values: needed, instructions: shared }))
        } else {
            let instructions = counted.per_multiply_add(counted.global);
            (Loads { values: needed, instructions }, None)
        };
        Self { global, shared, intensity: Ratio::new(tm * tn, tm + tn) }
    }
}

/// Global memory accesses for `outputs` results, if threads share nothing.
///
/// `depth` is the inner dimension. Each thread loads TM rows of A, TN columns of B and the old C
/// for its own TM x TN outputs, and then stores C.
///
/// ```
/// use gemm_bench::explain::accesses_without_sharing;
/// use kernels_gpu::abi::Tile;
///
/// let one = Tile { bm: 16, bn: 16, bk: 1, tm: 1, tn: 1 };
/// assert_eq!(accesses_without_sharing(one, 7, 16).to_string(), "256");
/// assert_eq!(accesses_without_sharing(Tile { tm: 4, tn: 4, ..one }, 7, 16).to_string(), "88");
/// ```
pub fn accesses_without_sharing(tile: Tile, depth: u64, outputs: u64) -> Ratio {
    let [tm, tn] = [tile.tm, tile.tn].map(u64::from);
    let per_thread = tm * depth + tn * depth + tm * tn + tm * tn;
    Ratio::new(outputs * per_thread, tm * tn)
}

/// Whether a kernel uses shared memory.
pub(crate) fn uses_shared(descriptor: &KernelDescriptor) -> bool {
    !matches!(descriptor.shared(), Shared::Static(0))
}

/// The instructions in a kernel's loop over K.
///
/// Each is counted once in the PTX text, however often the loop runs.
#[derive(Clone, Copy, Debug, Default)]
struct MainLoop {
    multiply_adds: u64,
    /// Loads of one value, and of four.
    global: [u64; 2],
    shared: [u64; 2],
}

impl MainLoop {
    /// Finds the loop with the largest share of FMAs.
    ///
    /// Of nested loops that is the innermost one with FMAs, and of a loop's copies the most
    /// unrolled one.
    fn of(descriptor: &KernelDescriptor) -> Self {
        let statements = body(descriptor.name());
        let label_at = |name: &str| {
            let is_it =
                |one: &Statement| matches!(one, Statement::Label(label, _) if label == name);
            statements.iter().position(is_it)
        };
        let loops = statements.iter().enumerate().filter_map(|(end, statement)| {
            let Statement::Instruction(instruction) = statement else { return None };
            let [Operand::Name(target)] = &instruction.operands[..] else { return None };
            let start = label_at(target).filter(|_| instruction.opcode.starts_with("bra"))?;
            (start < end).then(|| (Self::count(&statements[start..end]), end - start))
        });
        let share = |(counts, length): &(Self, usize)| counts.multiply_adds as f64 / *length as f64;
        let most = loops.max_by(|one, other| share(one).total_cmp(&share(other)));
        most.map(|(counts, _)| counts).unwrap_or_default()
    }

    fn count(statements: &[Statement]) -> Self {
        let count = |opcode: &str| {
            let is =
                |one: &&Statement| matches!(one, Statement::Instruction(it) if it.opcode == opcode);
            statements.iter().filter(is).count() as u64
        };
        Self {
            multiply_adds: count("fma.rn.f32"),
            global: [count("ld.global.b32"), count("ld.global.v4.b32")],
            shared: [count("ld.shared.b32"), count("ld.shared.v4.b32")],
        }
    }

    /// Instructions per FMA. Each result and step has one FMA.
    fn per_multiply_add(&self, [narrow, wide]: [u64; 2]) -> Ratio {
        Ratio::new(narrow + wide, self.multiply_adds.max(1))
    }
}

/// The statements of an entry point.
fn body(entry: &str) -> Vec<Statement> {
    // Hopper's own kernels are only in its PTX.
    let text = [&ptx::SM_80, &ptx::SM_90A].into_iter().find_map(|kernels| kernels.kernel(entry));
    let module = ptx_syntax::parse(&text.unwrap_or_default()).expect("it was built as PTX");
    module.functions.into_iter().find_map(|function| function.body).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels_gpu::LADDER;

    fn descriptor(name: &str) -> &'static KernelDescriptor {
        cuda_gemm::find_kernel(name).unwrap()
    }

    fn thread_tile(tm: u32, tn: u32) -> Tile {
        Tile { bm: 64, bn: 64, bk: 1, tm, tn }
    }

    #[test]
    fn seed_000_accesses_for_16_results_of_a_7x7_product() {
        for ([tm, tn], accesses) in [([1, 1], 256), ([4, 1], 172), ([4, 4], 88)] {
            let found = accesses_without_sharing(thread_tile(tm, tn), 7, 16);
            assert_eq!(found, Ratio::new(accesses, 1));
        }
        // Tiles larger than the example's product: a fraction of a thread's work.
        assert_eq!(accesses_without_sharing(thread_tile(8, 8), 7, 16), Ratio::new(60, 1));
    }

    #[test]
    fn seed_002_loads_per_result() {
        let Arithmetic { global, shared, .. } = Arithmetic::of(descriptor("tile2d"));
        assert_eq!(global.values.times_k(), "K/64");
        assert_eq!(shared.unwrap().values.times_k(), "K/4");
        // As in the tutorial on 2-D thread tiles: K/BK steps for TM * TN results. In each, a thread
        // loads its share of the tiles, then TM + TN values in each of BK steps.
        let Tile { bm, bn, bk, tm, tn } = descriptor("tile2d").tile();
        let threads = descriptor("tile2d").threads();
        assert_eq!(
            Ratio::new(u64::from((bm * bk + bk * bn) / threads), u64::from(bk * tm * tn)),
            global.values
        );
    }

    #[test]
    fn seed_004_intensity_and_load_instructions() {
        for (name, n) in [("naive", 1), ("vec4", 4), ("regtile", 8)] {
            let Tile { tm, tn, .. } = descriptor(name).tile();
            assert_eq!([tm, tn], [n, n], "{name}");
            assert_eq!(Arithmetic::of(descriptor(name)).intensity, Ratio::new(n.into(), 2));
        }
        let fewer = |name: &str, before: &str| {
            let [this, before] =
                [name, before].map(|name| Arithmetic::of(descriptor(name)).global.instructions);
            this.percent_less_than(before).floor()
        };
        assert_eq!(fewer("vec4", "naive"), 84.0);
        assert_eq!(fewer("smem2d", "regtile"), 97.0);
    }

    /// The kernels agree with their geometry: the PTX has these loads.
    #[test]
    fn the_ptx_agrees_with_the_geometry() {
        for descriptor in LADDER {
            let counts = MainLoop::of(descriptor);
            let found = Arithmetic::of(descriptor);
            let step = u64::from(descriptor.tile().tm * descriptor.tile().tn);
            assert!(counts.multiply_adds > 0, "{}", descriptor.name());
            assert_eq!(counts.multiply_adds % step, 0, "{}", descriptor.name());
            let values =
                |[narrow, wide]: [u64; 2]| Ratio::new(narrow + 4 * wide, counts.multiply_adds);
            match found.shared {
                Some(shared) => {
                    assert_eq!(values(counts.shared), shared.values, "{}", descriptor.name())
                }
                None => {
                    assert_eq!(values(counts.global), found.global.values, "{}", descriptor.name());
                    assert_eq!(counts.shared, [0, 0], "{}", descriptor.name());
                }
            }
        }
    }

    #[test]
    fn wide_shared_loads_are_counted() {
        let instructions = |name| Arithmetic::of(descriptor(name)).shared.unwrap().instructions;
        assert_eq!(instructions("tile2d"), Ratio::new(16, 64));
        assert_eq!(instructions("smem2d"), Ratio::new(8 + 2, 64));
        assert_eq!(instructions("transposed"), Ratio::new(2 + 2, 64));
    }

    #[test]
    fn ratios_for_people() {
        let text = |over, under| Ratio::new(over, under).times_k();
        assert_eq!(
            [text(2, 128), text(4, 2), text(10, 32), text(3, 3), text(0, 5)],
            ["K/64", "2 K", "5 K/16", "K", "0"]
        );
        assert_eq!(Ratio::new(3, 6).to_string(), "1/2");
        assert_eq!(Ratio::new(60, 1).to_string(), "60");
    }
}
