//! Applying an epilogue: from a thread's sums to the elements of C.

use cuda_std::hint::black_box;
use cuda_std::vec;

use crate::abi::epilogue::{Parameters, operations};
use crate::device::output::bias::{Bias, Scale, Vector};
use crate::device::output::epilogue::{Epilogue, Gelu, Logistic, Relu, Residual, element};
use crate::device::output::matrix::Output;
use crate::device::output::places::Places;
use crate::device::output::source::{Source, SourceOf};

impl Output {
    /// Stores an epilogue's results for `count` sums, at the given places.
    ///
    /// Loads for many outputs are in flight at once. With `quads`, each four outputs are neighbours
    /// in a row, and C is [`is_aligned`](Self::is_aligned).
    ///
    /// # Safety
    /// The parameters are as the launch promises, and no other thread stores these elements.
    #[inline(always)]
    pub unsafe fn store_epilogue<const N: usize>(
        self,
        epilogue: Parameters,
        quads: bool,
        count: usize,
        places: impl Places,
        mut values: [f32; N],
    ) {
        // SAFETY: the caller's contract. C can also be read.
        unsafe {
            self.apply_epilogue(epilogue, count, places, SourceOf::<f32>::NEW, &mut values);
        };
        let place = |row: u32, col: u32| {
            self.pointer.wrapping_add(row as usize * self.ld as usize + col as usize)
        };
        if quads {
            for i in (0..count).step_by(4) {
                let (row, col) = places.at(i);
                if row < self.rows && col < self.cols {
                    let four = [values[i], values[i + 1], values[i + 2], values[i + 3]];
                    // SAFETY: all four are inside, since columns are a multiple of four, and
                    // the row and `col` keep the address a multiple of 16.
                    unsafe { vec::store4(place(row, col), four) };
                }
            }
            return;
        }
        for i in 0..count {
            let (row, col) = places.at(i);
            if row < self.rows && col < self.cols {
                // SAFETY: in bounds, and this thread's own.
                unsafe { *place(row, col) = values[i] };
            }
        }
    }

    /// Applies an epilogue to `count` sums, at the given places, before they are stored.
    ///
    /// With a beta that is not 0, C is read, and beta times C is added.
    ///
    /// # Safety
    /// The parameters are as the launch promises, and C can be read as `source` does.
    #[inline(always)]
    pub(crate) unsafe fn apply_epilogue<P: Places, const N: usize>(
        self,
        epilogue: Parameters,
        count: usize,
        places: P,
        source: impl Source,
        values: &mut [f32; N],
    ) {
        use operations::{
            ACTIVATION, BIAS_COLUMN, BIAS_ROW, DEVICE_FACTORS, GELU, GELU_TANH, NO_SUM, RELU,
            RESIDUAL, SCALE_COLUMN, SCALE_ROW, SILU,
        };
        // Behind `black_box`: otherwise a loop around this would become one loop per set of
        // operations.
        let operations = black_box(epilogue.operations);
        let epilogue = Parameters { operations, ..epilogue };
        let (mut alpha, mut beta) = (self.alpha, self.beta);
        if epilogue.has(DEVICE_FACTORS) {
            // SAFETY: the launch promises both.
            unsafe { (alpha, beta) = (element(epilogue.alpha), element(epilogue.beta)) };
            // With alpha = 0 nothing is left of A and B, not even NaN. Adding -0 leaves every C as
            // it is, even -0. If the factors are parameters, the host does this: see
            // `KernelDescriptor`.
            if alpha == 0.0 || epilogue.has(NO_SUM) {
                (*values, alpha) = ([0.0; N], if beta == 0.0 { 0.0 } else { -0.0 });
            }
        }
        for i in 0..count {
            values[i] *= alpha;
        }
        let vector = |elements, per_row| Vector { elements, per_row: epilogue.has(per_row) };
        // SAFETY: the caller's contract.
        unsafe {
            if beta != 0.0 {
                source.add(self, beta, count, places.again(), values);
            }
            if epilogue.has(SCALE_ROW | SCALE_COLUMN) {
                let scale = vector(epilogue.scale, SCALE_ROW);
                self.visit_vector(Scale(scale), scale.per_row, count, places.again(), values);
            }
            if P::HAS_COLUMN_BIAS && epilogue.has(BIAS_COLUMN) {
                Self::add_column_bias(count, places, values);
            } else if epilogue.has(BIAS_ROW | BIAS_COLUMN) {
                let bias = vector(epilogue.bias, BIAS_ROW);
                self.visit_vector(Bias(bias), bias.per_row, count, places.again(), values);
            }
            match epilogue.operations & ACTIVATION {
                RELU => self.visit(Relu, count, places, values),
                GELU => self.visit(Gelu, count, places, values),
                GELU_TANH => self.visit(Logistic::GELU_TANH, count, places, values),
                SILU => self.visit(Logistic::SILU, count, places, values),
                _ => {}
            }
            if epilogue.has(RESIDUAL) {
                let residual = Residual { elements: epilogue.residual, ld: epilogue.ld_residual };
                source.add_residual(self, residual, count, places.again(), values);
            }
        }
    }

    /// Stores a few sums at the places `at`, with an epilogue applied if there is one.
    ///
    /// # Safety
    /// As for [`store_epilogue`](Self::store_epilogue).
    #[inline(always)]
    pub unsafe fn store_each<const N: usize>(
        self,
        epilogue: Parameters,
        sums: [f32; N],
        at: impl Fn(usize) -> (u32, u32) + Copy,
    ) {
        if epilogue.is_some() {
            // SAFETY: the caller's contract.
            unsafe { self.store_epilogue(epilogue, false, N, at, sums) };
            return;
        }
        for i in 0..N {
            let (row, col) = at(i);
            // SAFETY: the caller's contract.
            unsafe { self.store(row, col, sums[i]) };
        }
    }

    /// Applies an epilogue that reads one element per row, or one per column.
    ///
    /// # Safety
    /// Everything that it loads for outputs inside C is there, and nothing writes it.
    #[inline(always)]
    unsafe fn visit_vector<const N: usize, P: Places>(
        self,
        epilogue: impl Epilogue,
        per_row: bool,
        count: usize,
        places: P,
        values: &mut [f32; N],
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            match (P::SHARED, per_row) {
                (false, _) => self.visit(epilogue, count, places, values),
                (true, true) => self.visit_shared(epilogue, true, count, places, |i| i.0, values),
                (true, false) => self.visit_shared(epilogue, false, count, places, |i| i.1, values),
            }
        }
    }

    /// Adds the bias of the columns, which the kernel has loaded ahead.
    ///
    /// # Safety
    /// The launch has a bias for each column.
    #[inline(always)]
    pub(super) unsafe fn add_column_bias<const N: usize>(
        count: usize,
        places: impl Places,
        values: &mut [f32; N],
    ) {
        let mut bias = [0.0; N];
        for run in (0..count).step_by(4) {
            if places.first(run).1 == run {
                // SAFETY: the caller's contract.
                bias[run..][..4].copy_from_slice(&unsafe { places.column_bias(run) });
            }
        }
        for i in 0..count {
            values[i] += bias[places.first(i).1];
        }
    }

    /// Applies an epilogue that reads the same element for several outputs.
    ///
    /// `first` selects one of [`Places::first`]. Without runs, outputs outside of C read the last
    /// row or column, so that no load has a condition; C is not empty.
    ///
    /// # Safety
    /// - Everything that it loads for outputs inside C is there, and nothing writes it.
    /// - It looks only at the row if `per_row`, and otherwise only at the column.
    #[inline(always)]
    unsafe fn visit_shared<const N: usize, P: Places>(
        self,
        epilogue: impl Epilogue,
        per_row: bool,
        count: usize,
        places: P,
        first: impl Fn((usize, usize)) -> usize,
        values: &mut [f32; N],
    ) {
        let mut loaded = [0.0; N];
        if P::RUN == 1 {
            for i in 0..count {
                let (row, col) = places.at(i);
                if first(places.first(i)) == i {
                    // SAFETY: inside.
                    loaded[i] =
                        unsafe { epilogue.load(row.min(self.rows - 1), col.min(self.cols - 1), 0) };
                }
            }
        } else {
            for i in 0..count {
                let (run, next) = (i - i % P::RUN, i % P::RUN);
                let (row, col) = places.at(run);
                let is_inside =
                    if per_row { row < self.rows } else { col + (next as u32) < self.cols };
                if first(places.first(i)) == i && is_inside {
                    // SAFETY: the coordinate that it looks at is inside.
                    loaded[i] = unsafe { epilogue.load(row, col, next) };
                }
            }
        }
        for i in 0..count {
            values[i] = epilogue.apply(values[i], loaded[first(places.first(i))]);
        }
    }

    /// Applies an epilogue to outputs. All loads are in flight before the first is used.
    ///
    /// # Safety
    /// Everything that it loads for outputs inside C is there.
    #[inline(always)]
    pub(crate) unsafe fn visit<const N: usize, P: Places>(
        self,
        epilogue: impl Epilogue,
        count: usize,
        places: P,
        values: &mut [f32; N],
    ) {
        let mut loaded = [0.0; N];
        for i in 0..count {
            let (run, next) = (i - i % P::RUN, i % P::RUN);
            let (row, col) = places.at(run);
            if row < self.rows && col + (next as u32) < self.cols {
                // SAFETY: inside.
                loaded[i] = unsafe { epilogue.load(row, col, next) };
            }
        }
        for i in 0..count {
            values[i] = epilogue.apply(values[i], loaded[i]);
        }
    }
}
