//! The ladder for people: a row for each rung, printed as soon as it is there.

use super::format::{milliseconds, number, scientific};
use super::page;
use super::record::{Record, Setting};
use crate::error::Error;
use crate::io::stdio::{accent, print, print_styled};
use host::Compute;
use host::side_by_side::SAMPLE_MS;

/// Widths of the columns after the first, which is [`NAME`] wide.
const WIDTHS: [usize; 6] = [18, 17, 19, 20, 11, 11];
const NAME: usize = 25;

/// What has been printed so far.
#[derive(Default)]
pub struct Ladder {
    right: usize,
    wrong: usize,
    /// Right, but the checks of the software device found something.
    found: usize,
    refused: usize,
    /// How results were checked: the same in all rows.
    method: String,
    /// The first that was refused for each reason, which is the same but for the kernel's name.
    reasons: Vec<(String, String)>,
    /// Rows whose launches may have waited for the host.
    gaps: Vec<&'static str>,
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
        let timing = match setting.l2 {
            Some(l2) => {
                page::method_of_timing(setting.device.info(), l2, setting.samples, SAMPLE_MS)
            }
            None => format!("samples: {} of each\n", setting.samples),
        };
        let product = page::product(setting);
        print(&format!("{product}{timing}{}", row("kernel", &cells, "check")))
    }

    /// Prints a result's row.
    pub fn result(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let Record { setting, title, samples, load, check, speedup, share_of_cublas, .. } = record;
        match (check.passed(), record.findings.is_empty()) {
            (true, true) => self.right += 1,
            (true, false) => self.found += 1,
            (false, _) => self.wrong += 1,
        }
        if samples.gap_free() == Some(false) {
            self.gaps.push(title.name);
        }
        self.method = page::method(check);
        let cells = [
            milliseconds(samples.mean()),
            milliseconds(samples.median()),
            number(samples.gflops(setting.gemm.flops()), 1),
            speedup.map_or("-".to_owned(), |speedup| format!("{:.2}x", speedup.median)),
            share_of_cublas
                .map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share.median)),
            scientific(check.largest.map(|d| d.error)),
        ];
        let limit = load.and_then(|load| load.limit());
        let limit = limit.map(|limit| format!("  limited by {}", limit.short()));
        let choice = title.choice().map(|choice| format!(", by {choice}")).unwrap_or_default();
        let status = format!("{}{}{choice}", record.verdict(), limit.unwrap_or_default());
        print_styled(&row(title.name, &cells, &status), &[accent(record.status())])
    }

    /// Prints the row of what cannot run, and why.
    pub fn refusal(&mut self, name: &str, reason: &str) -> Result<(), Error> {
        self.refused += 1;
        let cells = [(); 6].map(|()| "-".to_owned());
        let unnamed = reason.replace(&format!("`{name}`"), "");
        if let Some((_, first)) = self.reasons.iter().find(|(known, _)| *known == unnamed) {
            return print(&row(name, &cells, &format!("REFUSED, as {first}")));
        }
        self.reasons.push((unnamed, name.to_owned()));
        print(&format!("{}    {reason}\n", row(name, &cells, "REFUSED")))
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
        let ratios = match setting.gemm.compute != Compute::F32 {
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
