//! Rows for people, printed as soon as they are there.

use gemm_report::{Row, Status, Verdict};
use host::compare::Compared;
use host::{Shape, Title, find_kernel};

use super::format::{milliseconds, number};

/// The widths of the first two columns, and of the others.
const SHAPE: usize = 20;
const KERNEL: usize = 18;
const WIDTHS: [usize; 13] = [11, 8, 12, 8, 14, 9, 8, 8, 8, 11, 7, 6, 5];

/// The names of the columns.
pub fn header() -> String {
    let cells = [
        "time",
        "spread",
        "cuBLAS",
        "ratio",
        "95 %",
        "TFLOP/s",
        "of FFMA",
        "of copy",
        "rms err",
        "us / call",
        "SM MHz",
        "W",
        "C",
    ];
    line("M x N x K", "kernel", &cells.map(str::to_owned), "")
}

/// A row.
pub fn row(Compared { row, limit, .. }: &Compared) -> String {
    let (shape, bench) = (Shape::from(row).to_string(), &row.bench);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let percent = |value| or_dash(number_of(value, 1).map(|value| value + " %"));
    let reason = || row.reason.clone().unwrap_or_default();
    let cells = [
        or_dash(bench.time_median.map(milliseconds)),
        percent(bench.time_deviation.zip(bench.time_median).map(|(by, of)| 100.0 * by / of)),
        or_dash(bench.cublas_median.map(milliseconds)),
        or_dash(number_of(bench.ratio, 3).map(|ratio| ratio + "x")),
        or_dash(
            bench.ratio_low.zip(bench.ratio_high).map(|(low, high)| format!("{low:.3}-{high:.3}")),
        ),
        number(row.gflops.map(|gflops| gflops * 1e-3), 2),
        percent(row.percent_of_ffma),
        percent(row.percent_of_copy),
        or_dash(number_of(bench.rms_error_ratio, 2).map(|ratio| ratio + "x")),
        or_dash(bench.enqueue_us.map(|own| {
            let cublas = bench.cublas_enqueue_us.map(|us| format!("/{us:.1}")).unwrap_or_default();
            format!("{own:.1}{cublas}")
        })),
        or_dash(bench.sm_mhz_min.map(|mhz| mhz.to_string())),
        number(bench.watts, 0),
        or_dash(bench.celsius.map(|celsius| celsius.to_string())),
    ];
    let word = verdict(row);
    let verdict = match row.status {
        Status::Fail | Status::Unstable => format!("{word}: {}", reason()),
        // The reason is long, and the numbers are missing: it has a line of its own.
        _ => word.to_owned(),
    };
    let gaps = (row.gap_free == Some(false)).then_some("launch gaps");
    let throttled = bench.throttled.as_deref().filter(|reasons| !reasons.is_empty());
    let chosen = Title {
        chosen: row.chosen.as_deref().and_then(|name| Some(find_kernel(name).ok()?.name())),
        splits: row.splits,
        clusters: row.clusters,
        columns: row.columns,
        transposes_c: row.transposes_c,
        blocks_per_multiprocessor: row.blocks_per_multiprocessor,
        staged: row.packed,
        ..Title::default()
    };
    let chosen = chosen.choice();
    let limit = limit.map(|limit| format!("limited by {}", limit.short()));
    let notes: Vec<_> =
        [limit.as_deref(), chosen.as_deref(), gaps, throttled].into_iter().flatten().collect();
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    let mut text = line(&shape, &row.kernel, &cells, &format!("{verdict}{notes}"));
    if row.status == Status::Refused {
        text += &format!("    {}\n", reason());
    }
    text
}

/// What is said of a row in a word; nothing of one that was compared with nothing.
pub fn verdict(row: &Row) -> &'static str {
    match row.status {
        Status::Pass => row.bench.verdict.map_or("", Verdict::words),
        status => status.word(),
    }
}

fn number_of(value: Option<f64>, digits: usize) -> Option<String> {
    value.map(|value| number(Some(value), digits))
}

fn line(shape: &str, kernel: &str, cells: &[String; 13], verdict: &str) -> String {
    let cells: String =
        cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:>width$}")).collect();
    let line = format!("{shape:<SHAPE$}{kernel:<KERNEL$}{cells}  {verdict}");
    line.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemm_report::row::Bench;
    use host::compare;
    use host::kernels::LADDER;
    use host::{Gemm, Groups};

    fn new(name: &'static str, size: usize) -> Row {
        let title = Title { name, ..Title::default() };
        compare::row::row(&title, &Gemm::new(size, size, size), &Groups::default(), Some(42))
    }

    fn full() -> Row {
        let bench = Bench {
            time_median: Some(12345.6),
            time_deviation: Some(1234.0),
            cublas_median: Some(12345.6),
            ratio: Some(12.3456),
            ratio_low: Some(12.3),
            ratio_high: Some(12.4),
            verdict: Some(Verdict::WithinNoise),
            rms_error_ratio: Some(10.0),
            enqueue_us: Some(12.34),
            cublas_enqueue_us: Some(123.4),
            sm_mhz_min: Some(1980),
            watts: Some(700.0),
            celsius: Some(100),
            throttled: Some(String::new()),
            ..Bench::default()
        };
        Row {
            status: Status::Pass,
            gflops: Some(61_234.5),
            percent_of_ffma: Some(100.0),
            percent_of_copy: Some(100.0),
            gap_free: Some(true),
            bench,
            ..new("async_copy", 16384)
        }
    }

    fn text(row: Row) -> String {
        super::row(&row.into())
    }

    #[test]
    fn columns_stay_in_line() {
        let long = LADDER.iter().map(|descriptor| descriptor.name().len()).max().unwrap();
        assert!(long < KERNEL);
        let text = text(full());
        let cells: Vec<_> = text.split_whitespace().collect();
        assert_eq!(cells[..2], ["16384x16384x16384", "async_copy"]);
        assert!(text.ends_with("  within noise\n"), "{text}");
        // Blanks between all cells: none is wider than its column.
        for cell in [
            "12346 ms",
            "10.0 %",
            "12.346x",
            "12.300-12.400",
            "61.23",
            "100.0 %",
            "12.3/123.4",
            "700",
        ] {
            assert!(text.contains(&format!(" {cell} ")), "{cell}: {text}");
        }
        let at = |text: &str, what: &str| text.find(what).unwrap() + what.len();
        assert_eq!(at(&header(), "cuBLAS"), 69);
        assert_eq!(at(&text, " 61.23"), at(&header(), "TFLOP/s"));
    }

    #[test]
    fn what_is_odd_is_said() {
        let throttled = Some("power cap".to_owned());
        let bench = Bench { throttled, ..full().bench };
        let odd = text(Row { gap_free: Some(false), bench, ..full() });
        assert!(odd.ends_with("within noise (launch gaps; power cap)\n"), "{odd}");
        let reason = Some("it does not fit".to_owned());
        let text = text(Row { status: Status::Refused, reason, ..new("naive", 8) });
        assert!(text.ends_with("REFUSED\n    it does not fit\n"), "{text}");
    }
}
