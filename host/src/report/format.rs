//! The formats of results, and of numbers for people.

use clap::ValueEnum;

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[default]
    Table,
    Json,
}

/// One as a percentage of the other.
pub fn percent(gflops: Option<f64>, peak: Option<f64>) -> Option<f64> {
    Some(100.0 * gflops? / peak?)
}

/// A number, or a dash for none.
pub fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

/// A small number, or a dash for none.
pub fn scientific(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.3e}"))
}

/// A time with four digits, in ms.
pub fn milliseconds(ms: f64) -> String {
    let digits = (3 - ms.max(1e-3).log10().floor() as i32).clamp(0, 6) as usize;
    format!("{ms:.digits$} ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_four_digits() {
        assert_eq!(milliseconds(0.0), "0.000000 ms");
        assert_eq!(milliseconds(0.012_345_6), "0.01235 ms");
        assert_eq!(milliseconds(1.234_56), "1.235 ms");
        assert_eq!(milliseconds(12_345.6), "12346 ms");
    }

    #[test]
    fn percentages_need_both() {
        assert_eq!(percent(Some(1.0), Some(4.0)), Some(25.0));
        assert_eq!(percent(None, Some(4.0)), None);
        assert_eq!(percent(Some(1.0), None), None);
    }
}
