//! Reports rows as they are made, on stdout and in the file of `--save`, and the summary.

use std::path::Path;

use clap::ValueEnum;
use gemm_bench::Error as BenchError;
use gemm_report::{Row, Status};
use host::compare::{Compared, Summary, summarise};
use serde::Serialize;

use super::save::Save;
use super::{json, row_table};
use crate::error::{Error, advised};
use crate::io::stdio::{self, Accent, accent};

/// How rows are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RowFormat {
    #[default]
    Table,
    Json,
    Csv,
}

/// Writes to stdout, with words that have a colour.
pub type Print = fn(&str, &[Accent<'_>]) -> Result<(), Error>;

/// Where rows go.
pub struct RowReporter {
    format: RowFormat,
    print: Print,
    save: Option<Save>,
    rows: Vec<Row>,
}

impl RowReporter {
    /// `print` writes to stdout.
    ///
    /// # Errors
    ///
    /// [`Error::Output`] if the file of `--save` cannot be written.
    pub fn new(format: RowFormat, save: Option<&Path>, print: Print) -> Result<Self, Error> {
        let save = save.map(|save| Save::new(save, None)).transpose()?;
        Ok(Self { format, print, save, rows: Vec::new() })
    }

    /// Before the first row: `environment` is the line for the file, `head` for people.
    pub fn begin(&mut self, environment: &str, head: &str) -> Result<(), Error> {
        self.save(environment)?;
        match self.format {
            RowFormat::Table => (self.print)(&format!("{head}{}", row_table::header()), &[]),
            RowFormat::Json => Ok(()),
            RowFormat::Csv => (self.print)(&csv_header(), &[]),
        }
    }

    /// A row, as soon as it is there.
    pub fn row(&mut self, mut compared: Compared) -> Result<(), Error> {
        if let Some(error) = &compared.refusal {
            compared.row.reason = Some(advised(error));
        }
        let row = &compared.row;
        let line = json::line(&row.line());
        // First what lasts, in case that stdout cannot be written.
        self.save(&line)?;
        let printed = match self.format {
            RowFormat::Table => {
                (self.print)(&row_table::row(&compared), &[accent(row_table::verdict(row))])
            }
            RowFormat::Json => (self.print)(&line, &[]),
            RowFormat::Csv => (self.print)(&csv_row(row), &[]),
        };
        self.rows.push(compared.row);
        printed
    }

    /// After the last row.
    pub fn end(&mut self) -> Result<(), Error> {
        let summaries = summarise(&self.rows);
        for summary in &summaries {
            let line = json::line(&SummaryLine { summary });
            self.save(&line)?;
            match self.format {
                RowFormat::Table => (self.print)(&summary.words(), &[])?,
                RowFormat::Json => (self.print)(&line, &[])?,
                // In CSV it would be a row of other columns.
                RowFormat::Csv => stdio::say(summary.words().trim_end()),
            }
        }
        let is_refused = |row: &Row| row.status == Status::Refused;
        // There is no row where the reader left first.
        match !self.rows.is_empty() && self.rows.iter().all(is_refused) {
            true => Err(BenchError::NothingMeasured { count: self.rows.len() }.into()),
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

#[derive(Serialize)]
struct SummaryLine<'a> {
    summary: &'a Summary,
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
    // Both parts are flat, and memory takes everything.
    writer.serialize((row, &row.bench)).expect("a flat row");
    let bytes = writer.into_inner().expect("written to memory");
    String::from_utf8(bytes).expect("text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemm_report::row::Bench;
    use gemm_report::{Origin, Verdict};
    use host::{Gemm, Groups, Title, compare};

    fn row() -> Row {
        let title = Title { name: "tile2d", ..Title::default() };
        let row =
            compare::row::row(&title, &Gemm::new(512, 512, 512), &Groups::default(), Some(42));
        let bench = Bench { ratio: Some(1.25), verdict: Some(Verdict::Faster), ..Bench::default() };
        Row { origin: Origin::Bench, bench, ..row }
    }

    #[test]
    fn csv_is_as_wide_as_its_header() {
        let reason = "needs 1 byte, \"or\" so".to_owned();
        let row = Row { reason: Some(reason.clone()), ..row() };
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
        let row = Row { samples_ms: vec![1.0], ..row() };
        let line: serde_json::Value = serde_json::from_str(&json::line(&row.line())).unwrap();
        for column in csv_header().trim().split(',') {
            assert!(line.get(column).is_some(), "{column}");
        }
        assert_eq!(line["samples_ms"][0], 1.0);
        assert!(line["watts"].is_null());
    }
}
