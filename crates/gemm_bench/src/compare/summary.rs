//! The summary of a kernel's rows.

use serde::Serialize;

use gemm_report::run::kernels;
use gemm_report::{Row, Status, Verdict};

use crate::shape::Shape;
use crate::stats;

/// The summary of a kernel's rows.
#[derive(Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The kernel's name.
    pub kernel: String,
    /// The number of shapes with a ratio.
    pub shapes: usize,
    /// The geometric mean of the ratios, cuBLAS's time divided by the kernel's.
    pub geometric_mean: Option<f64>,
    /// The lowest ratio.
    pub worst: Option<f64>,
    /// The shape of the lowest ratio, as in `16x4096x4096`.
    pub worst_shape: Option<String>,
    /// The number of shapes for which the kernel is significantly faster.
    pub faster: usize,
    /// The number of shapes for which it is neither faster nor slower.
    pub within_noise: usize,
    /// The number of shapes for which it is significantly slower.
    pub slower: usize,
    /// The largest rms error relative to cuBLAS's.
    pub worst_rms_error_ratio: Option<f64>,
    /// The number of results that were wrong, or differed between runs.
    pub wrong: usize,
    /// The number of refused shapes.
    pub refused: usize,
}

/// Makes a summary per kernel, in the order of their first rows.
///
/// ```
/// use gemm_bench::compare::summarise;
/// use gemm_report::Row;
///
/// let row = |ratio| {
///     let mut row = Row { kernel: "tile2d".to_owned(), ..Row::default() };
///     row.bench.ratio = Some(ratio);
///     row
/// };
/// let summaries = summarise(&[row(0.5), row(2.0)]);
/// assert_eq!(summaries[0].geometric_mean, Some(1.0));
/// ```
pub fn summarise(rows: &[Row]) -> Vec<Summary> {
    let summary = |kernel: &str| {
        let rows = || rows.iter().filter(|row| row.kernel == kernel);
        let count = |status| rows().filter(|row| row.status == status).count();
        let verdict = |verdict| rows().filter(|row| row.bench.verdict == Some(verdict)).count();
        let ratios: Vec<f64> = rows().filter_map(|row| row.bench.ratio).collect();
        let worst = rows()
            .filter_map(|row| Some((row.bench.ratio?, Shape::from(row))))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        Summary {
            kernel: kernel.to_owned(),
            shapes: ratios.len(),
            geometric_mean: stats::geometric_mean(&ratios),
            worst: worst.map(|(ratio, _)| ratio),
            worst_shape: worst.map(|(_, shape)| shape.to_string()),
            faster: verdict(Verdict::Faster),
            within_noise: verdict(Verdict::WithinNoise),
            slower: verdict(Verdict::Slower),
            worst_rms_error_ratio: rows()
                .filter_map(|row| row.bench.rms_error_ratio)
                .reduce(f64::max),
            wrong: count(Status::Fail) + count(Status::Unstable),
            refused: count(Status::Refused),
        }
    };
    kernels(rows.iter()).into_iter().map(summary).collect()
}

impl Summary {
    /// The summary in one line.
    pub fn words(&self) -> String {
        let Self { kernel, shapes, faster, within_noise, slower, wrong, refused, .. } = self;
        let mut words = format!("{kernel}: ");
        match (self.geometric_mean, self.worst, &self.worst_shape) {
            (Some(mean), Some(worst), Some(shape)) => {
                words += &format!(
                    "geometric mean {mean:.3}x of cuBLAS's speed over {shapes} shape(s), worst \
                     {worst:.3}x at {shape}; {faster} faster, {within_noise} within noise, \
                     {slower} slower"
                );
            }
            _ => words += "not compared with cuBLAS",
        }
        if let Some(error) = self.worst_rms_error_ratio {
            words += &format!("; rms error at most {error:.2}x cuBLAS's");
        }
        if wrong + refused > 0 {
            words += &format!("; {wrong} wrong, {refused} refused");
        }
        words + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Groups;
    use crate::compare;
    use crate::job::Title;
    use cuda_gemm::Gemm;
    use gemm_report::row::Bench;

    fn row(kernel: &'static str, size: usize, ratio: Option<f64>) -> Row {
        let verdict = ratio.map(|ratio| match () {
            () if ratio > 1.0 => Verdict::Faster,
            () => Verdict::Slower,
        });
        let status = if ratio.is_some() { Status::Pass } else { Status::Refused };
        let rms_error_ratio = ratio.map(|ratio| 0.5 * ratio);
        let title = Title { name: kernel, ..Title::default() };
        let row =
            compare::row::row(&title, &Gemm::new(size, size, size), &Groups::default(), Some(42));
        let bench = Bench { ratio, verdict, rms_error_ratio, ..Bench::default() };
        Row { status, bench, ..row }
    }

    #[test]
    fn a_summary_for_each_kernel() {
        let rows = [
            row("a", 1, Some(2.0)),
            row("b", 1, None),
            row("a", 2, Some(0.5)),
            Row { status: Status::Unstable, ..row("a", 3, None) },
        ];
        let [a, b] = &summarise(&rows)[..] else { panic!() };
        let words = a.words();
        assert!(words.starts_with(
            "a: geometric mean 1.000x of cuBLAS's speed over 2 shape(s), worst 0.500x at 2x2x2; \
             1 faster, 0 within noise, 1 slower; rms error at most 1.00x cuBLAS's; 1 wrong"
        ));
        assert_eq!(b.words(), "b: not compared with cuBLAS; 0 wrong, 1 refused\n");
    }
}
