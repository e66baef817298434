//! The ladder as text: each row is printed when its kernel is done.

use super::format::{number, scientific};
use super::page;
use super::record::{Record, Setting};
use crate::error::Error;
use crate::io::stdio::{accent, print, print_styled};
use host::Compute;
use host::side_by_side::SAMPLE_MS;

/// The width of the first column.
const NAME: usize = 25;

/// The least width of the others.
const CELL: usize = 13;

/// What has been printed so far.
#[derive(Default)]
pub struct Ladder {
    right: usize,
    wrong: usize,
    /// Right, but the checks of the software device found something.
    found: usize,
    refused: usize,
    /// How results were checked, in all rows.
    method: String,
    /// For each reason, without the kernel's name, the first that was refused.
    reasons: Vec<(String, String)>,
    /// Rows whose launches may have waited for the host.
    gaps: Vec<&'static str>,
    /// Widths of the columns after the first.
    widths: Vec<usize>,
}

impl Ladder {
    /// Prints the header.
    pub fn begin(&mut self, setting: &Setting<'_>) -> Result<(), Error> {
        let is_soft = setting.device.is_soft();
        let device = setting.device.info().kind;
        let times = page::time_columns(setting.samples as usize, device);
        // Rates and ratios of the simulation would say nothing.
        let rates = if is_soft { &[][..] } else { &["GFLOP/s", "speed-up", "of cuBLAS"] };
        let names = times.iter().chain(rates).chain(&["max error"]);
        let names: Vec<_> = names.map(|name| (*name).to_owned()).collect();
        self.widths = names.iter().map(|name| CELL.max(name.len() + 2)).collect();
        let timing = match setting.l2 {
            Some(l2) => {
                page::method_of_timing(setting.device.info(), l2, setting.samples, SAMPLE_MS)
            }
            None => format!("samples: {} of each\n", setting.samples),
        };
        let product = page::product(setting);
        print(&format!("{product}{timing}{}", self.row("kernel", &names, "check")))
    }

    /// Prints a result's row.
    pub fn result(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let Record { setting, title, samples, load, check, speedup, share_of_cublas, .. } = record;
        match (check.passed(), record.findings.is_empty()) {
            (true, true) => self.right += 1,
            (true, false) => self.found += 1,
            (false, _) => self.wrong += 1,
        }
        if samples.gap_free == Some(false) {
            self.gaps.push(title.name);
        }
        self.method = page::method(check);
        let mut cells = page::times(samples);
        if !setting.device.is_soft() {
            let share = share_of_cublas.map(|share| format!("{:.1} %", 100.0 * share.median));
            let speedup = speedup.map(|speedup| format!("{:.2}x", speedup.median));
            cells.push(number(samples.gflops(setting.gemm.flops()), 1));
            cells.extend([speedup, share].map(|cell| cell.unwrap_or_else(|| "-".to_owned())));
        }
        cells.push(scientific(check.largest.map(|d| d.error)));
        let limit = load.and_then(|load| load.limit());
        let limit = limit.map(|limit| format!("  limited by {}", limit.short()));
        let choice = title.choice().map(|choice| format!(", by {choice}")).unwrap_or_default();
        let status = format!("{}{}{choice}", record.verdict(), limit.unwrap_or_default());
        print_styled(&self.row(title.name, &cells, &status), &[accent(record.status().word())])
    }

    /// Prints the row of a kernel that cannot run, and why.
    pub fn refusal(&mut self, name: &str, reason: &str) -> Result<(), Error> {
        self.refused += 1;
        let cells = vec!["-".to_owned(); self.widths.len()];
        let unnamed = reason.replace(&format!("`{name}`"), "");
        if let Some((_, first)) = self.reasons.iter().find(|(known, _)| *known == unnamed) {
            return print(&self.row(name, &cells, &format!("REFUSED, as {first}")));
        }
        self.reasons.push((unnamed, name.to_owned()));
        print(&format!("{}    {reason}\n", self.row(name, &cells, "REFUSED")))
    }

    fn row(&self, name: &str, cells: &[String], check: &str) -> String {
        let cells: String =
            cells.iter().zip(&self.widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        format!("{name:<NAME$}{cells}  {check}\n")
    }

    /// Prints what is below the rows.
    pub fn end(&self, setting: &Setting<'_>) -> Result<(), Error> {
        let Self { right, wrong, found, refused, method, gaps, .. } = self;
        let found = match found {
            0 => String::new(),
            found => format!(", {found} right with findings"),
        };
        let gaps = match &gaps[..] {
            [] => String::new(),
            names => {
                format!("gaps:    launches of {} may have waited for the host\n", names.join(", "))
            }
        };
        let ratios = match setting.gemm.compute != Compute::F32 || setting.device.is_soft() {
            true => "",
            false => {
                "ratios:  the speed-up is over the rung before; both are medians over pairs of \
                 samples\n"
            }
        };
        print(&format!(
            "{gaps}{ratios}{}check:   {method}\n\
             result:  {right} right{found}, {wrong} wrong, {refused} refused\n",
            page::speed(setting),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::kernels::LADDER;

    #[test]
    fn columns_stay_in_line() {
        let ladder = Ladder { widths: vec![CELL; 6], ..Ladder::default() };
        let cells = [(); 6].map(|()| "1.234e-5".to_owned());
        let names = LADDER.iter().map(|descriptor| descriptor.name());
        let long = names.max_by_key(|name| name.len()).unwrap();
        assert!(long.len() < NAME);
        let row = |name| ladder.row(name, &cells, "PASS").len();
        assert_eq!(row(long), row("naive"));
    }
}
