//! The ladder for people: a row for each rung, printed as soon as it is there.

use super::format::{milliseconds, number, scientific};
use super::page;
use super::record::{Record, Setting};
use crate::error::Error;
use crate::io::stdio::print;

/// Widths of the columns after the first, which is [`NAME`] wide.
const WIDTHS: [usize; 6] = [18, 17, 19, 20, 11, 11];
const NAME: usize = 18;

/// What has been printed so far.
#[derive(Default)]
pub struct Ladder {
    right: usize,
    wrong: usize,
    refused: usize,
    /// Runs per row, and how results were checked: the same in all rows.
    runs: usize,
    method: String,
}

impl Ladder {
    /// Prints what is above the rows.
    pub fn begin(setting: &Setting<'_>) -> Result<(), Error> {
        let header = if setting.device.is_soft() {
            ["average CPU time", "median CPU time", "simulated GFLOP/s", "simulated speed-up"]
        } else {
            ["average time", "median time", "GFLOP/s", "speed-up"]
        };
        let [average, median, rate, speedup] = header.map(str::to_owned);
        let cells = [average, median, rate, speedup, "of cuBLAS".into(), "max error".into()];
        print(&format!("{}{}", page::product(setting), row("kernel", &cells, "check")))
    }

    /// Prints a result's row.
    pub fn result(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let Record { setting, title, samples, check, speedup, share_of_cublas } = record;
        match check.passed() {
            true => self.right += 1,
            false => self.wrong += 1,
        }
        self.runs = samples.ms().len();
        self.method = page::method(check);
        let cells = [
            milliseconds(samples.mean()),
            milliseconds(samples.median()),
            number(samples.gflops(setting.gemm.flops()), 1),
            speedup.map_or("-".to_owned(), |speedup| format!("{speedup:.2}x")),
            share_of_cublas.map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share)),
            scientific(check.largest.map(|d| d.error)),
        ];
        let status = match title.choice() {
            Some(choice) => format!("{}, by {choice}", record.status()),
            None => record.status().to_owned(),
        };
        print(&row(title.name, &cells, &status))
    }

    /// Prints the row of what cannot run, and why.
    pub fn refusal(&mut self, name: &str, reason: &str) -> Result<(), Error> {
        self.refused += 1;
        let cells = [(); 6].map(|()| "-".to_owned());
        print(&format!("{}    {reason}\n", row(name, &cells, "REFUSED")))
    }

    /// Prints what is below the rows.
    pub fn end(&self, setting: &Setting<'_>) -> Result<(), Error> {
        let turns = if setting.device.is_soft() { "" } else { ", all in turn" };
        let Self { right, wrong, refused, runs, method } = self;
        print(&format!(
            "runs:    {runs} each{turns}; the speed-up is over the rung before, at the median\n\
             {}check:   {method}\n\
             result:  {right} right, {wrong} wrong, {refused} refused\n",
            page::speed(setting),
        ))
    }
}

fn row(name: &str, cells: &[String; 6], check: &str) -> String {
    let cells: String =
        cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:>width$}")).collect();
    format!("{name:<NAME$}{cells}  {check}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::kernels::LADDER;

    #[test]
    fn columns_stay_in_line() {
        let cells = [(); 6].map(|()| "simulated".to_owned());
        let long = LADDER
            .iter()
            .map(|descriptor| descriptor.name())
            .max_by_key(|name| name.len())
            .unwrap();
        assert!(long.len() < NAME);
        assert_eq!(row(long, &cells, "PASS").len(), row("naive", &cells, "PASS").len());
    }
}
