//! Reports rows as they are made, on stdout and in the file of `--save`, and the summary.

use host::{Error, stats};
use serde::Serialize;

use super::args::{BenchArgs, RowFormat};
use super::row::{Row, Status, Verdict};
use super::table;
use crate::cli::json;
use crate::cli::save::Save;
use crate::cli::stdio;

/// A row with its samples, for JSON: milliseconds per launch, in the order taken.
#[derive(Serialize)]
pub struct Sampled<'a> {
    #[serde(flatten)]
    pub row: &'a Row,
    pub samples_ms: &'a [f64],
    pub cublas_samples_ms: &'a [f64],
}

/// Where rows go.
pub struct RowReporter {
    format: RowFormat,
    print: fn(&str) -> Result<(), Error>,
    save: Option<Save>,
    rows: Vec<Row>,
}

impl RowReporter {
    /// `print` writes to stdout.
    ///
    /// # Errors
    ///
    /// [`Error::Output`] if the file of `--save` cannot be written.
    pub fn new(args: &BenchArgs, print: fn(&str) -> Result<(), Error>) -> Result<Self, Error> {
        let save = args.save.as_deref().map(|save| Save::new(save, None)).transpose()?;
        Ok(Self { format: args.format, print, save, rows: Vec::new() })
    }

    /// Before the first row: `environment` is the line for the file, `head` for people.
    pub fn begin(&mut self, environment: &str, head: &str) -> Result<(), Error> {
        self.save(environment)?;
        match self.format {
            RowFormat::Table => (self.print)(&format!("{head}{}", table::header())),
            RowFormat::Json => Ok(()),
            RowFormat::Csv => (self.print)(&csv_header()),
        }
    }

    /// A row, as soon as it is there.
    pub fn row(
        &mut self,
        row: Row,
        samples_ms: &[f64],
        cublas_samples_ms: &[f64],
    ) -> Result<(), Error> {
        let line = json::line(&Sampled { row: &row, samples_ms, cublas_samples_ms });
        // First what lasts, in case that stdout cannot be written.
        self.save(&line)?;
        let text = match self.format {
            RowFormat::Table => table::row(&row),
            RowFormat::Json => line,
            RowFormat::Csv => csv_row(&row),
        };
        self.rows.push(row);
        (self.print)(&text)
    }

    /// After the last row.
    pub fn end(&mut self) -> Result<(), Error> {
        let summaries = summarise(&self.rows);
        for summary in &summaries {
            let line = json::line(&SummaryLine { summary });
            self.save(&line)?;
            match self.format {
                RowFormat::Table => (self.print)(&summary.words())?,
                RowFormat::Json => (self.print)(&line)?,
                // In CSV it would be a row of other columns.
                RowFormat::Csv => stdio::say(summary.words().trim_end()),
            }
        }
        let is_refused = |row: &Row| row.status == Status::Refused;
        // There is no row where the reader left first.
        match !self.rows.is_empty() && self.rows.iter().all(is_refused) {
            true => Err(Error::NothingMeasured { count: self.rows.len() }),
            false => Ok(()),
        }
    }

    /// Whether anyone wants to know more rows.
    pub fn is_wanted(&self) -> bool {
        self.save.is_some() || stdio::is_read()
    }

    /// Whether every result was right.
    pub fn all_right(&self) -> bool {
        !self.rows.iter().any(|row| matches!(row.status, Status::Fail | Status::Unstable))
    }

    fn save(&mut self, line: &str) -> Result<(), Error> {
        self.save.as_mut().map_or(Ok(()), |save| save.line(line))
    }
}

/// What all rows of a kernel say together.
#[derive(Debug, PartialEq, Serialize)]
pub struct Summary {
    kernel: &'static str,
    /// Over the shapes that have a ratio, so many.
    shapes: usize,
    geometric_mean: Option<f64>,
    /// The lowest ratio, and its shape.
    worst: Option<f64>,
    worst_shape: Option<String>,
    faster: usize,
    within_noise: usize,
    slower: usize,
    /// The largest rms error in proportion to cuBLAS's.
    worst_rms_error_ratio: Option<f64>,
    wrong: usize,
    refused: usize,
}

#[derive(Serialize)]
struct SummaryLine<'a> {
    summary: &'a Summary,
}

/// A summary for each kernel, in the order of their first rows.
fn summarise(rows: &[Row]) -> Vec<Summary> {
    let mut kernels: Vec<&'static str> = Vec::new();
    for row in rows {
        if !kernels.contains(&row.kernel) {
            kernels.push(row.kernel);
        }
    }
    let summary = |kernel| {
        let rows = || rows.iter().filter(move |row| row.kernel == kernel);
        let count = |status| rows().filter(|row| row.status == status).count();
        let verdict = |verdict| rows().filter(|row| row.verdict == Some(verdict)).count();
        let ratios: Vec<f64> = rows().filter_map(|row| row.ratio).collect();
        let worst = rows()
            .filter_map(|row| row.ratio.map(|ratio| (ratio, row.shape())))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        Summary {
            kernel,
            shapes: ratios.len(),
            geometric_mean: stats::geometric_mean(&ratios),
            worst: worst.map(|(ratio, _)| ratio),
            worst_shape: worst.map(|(_, shape)| shape.to_string()),
            faster: verdict(Verdict::Faster),
            within_noise: verdict(Verdict::WithinNoise),
            slower: verdict(Verdict::Slower),
            worst_rms_error_ratio: rows().filter_map(|row| row.rms_error_ratio).reduce(f64::max),
            wrong: count(Status::Fail) + count(Status::Unstable),
            refused: count(Status::Refused),
        }
    };
    kernels.into_iter().map(summary).collect()
}

impl Summary {
    fn words(&self) -> String {
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

fn csv_header() -> String {
    let lines = csv_lines(csv::WriterBuilder::new(), &Row::default());
    lines.lines().next().unwrap_or_default().to_owned() + "\n"
}

fn csv_row(row: &Row) -> String {
    let mut builder = csv::WriterBuilder::new();
    builder.has_headers(false);
    csv_lines(builder, row)
}

fn csv_lines(builder: csv::WriterBuilder, row: &Row) -> String {
    let mut writer = builder.from_writer(Vec::new());
    // A row is flat, and memory takes everything.
    writer.serialize(row).expect("a flat row");
    let bytes = writer.into_inner().expect("written to memory");
    String::from_utf8(bytes).expect("text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::Gemm;

    fn row(kernel: &'static str, size: usize, ratio: Option<f64>) -> Row {
        let verdict = ratio.map(|ratio| match () {
            () if ratio > 1.0 => Verdict::Faster,
            () => Verdict::Slower,
        });
        let status = if ratio.is_some() { Status::Pass } else { Status::Refused };
        let rms_error_ratio = ratio.map(|ratio| 0.5 * ratio);
        let row = Row::new(kernel, None, &Gemm::new(size, size, size), 42);
        Row { ratio, verdict, status, rms_error_ratio, ..row }
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

    #[test]
    fn csv_is_as_wide_as_its_header() {
        let reason = "needs 1 byte, \"or\" so".to_owned();
        let row = Row { reason: Some(reason.clone()), ..row("tile2d", 512, Some(1.25)) };
        let text = csv_header() + &csv_row(&row);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().unwrap().clone();
        let record = reader.records().next().unwrap().unwrap();
        let field = |name| &record[header.iter().position(|column| column == name).unwrap()];
        assert_eq!((field("kernel"), field("k"), field("ratio")), ("tile2d", "512", "1.25"));
        assert_eq!((field("status"), field("verdict")), ("PASS", "faster"));
        assert_eq!((field("reason"), field("watts")), (reason.as_str(), ""));
    }

    #[test]
    fn json_has_the_columns_of_csv_and_the_samples() {
        let row = row("tile2d", 512, Some(1.25));
        let sampled = Sampled { row: &row, samples_ms: &[1.0], cublas_samples_ms: &[] };
        let line: serde_json::Value = serde_json::from_str(&json::line(&sampled)).unwrap();
        for column in csv_header().trim().split(',') {
            assert!(line.get(column).is_some(), "{column}");
        }
        assert_eq!(line["samples_ms"][0], 1.0);
        assert!(line["watts"].is_null());
    }
}
