//! `cargo xtask readme`: the README's tables and pictures, from the ladder and from the recorded runs.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use kernels_gpu::LADDER;
use serde_json::Value;

use crate::{pictures, stdio};

/// Fill in the tables of the README and draw its pictures, from the ladder and from the recorded runs
///
/// A table stands between `<!-- table: WHAT -->` and `<!-- end -->`, where WHAT is
/// `ladder`, or a file that `host --save` or `host bench --save` wrote. The pictures are in
/// `docs/pictures`.
#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; fail if a table or a picture is not what its run says
    #[arg(long)]
    check: bool,
}

const BEGIN: &str = "<!-- table: ";
const END: &str = "<!-- end -->";

/// What only the rows of `host bench` have.
const BENCH: &str = "\"time_median\":";

/// Fills in the tables and draws the pictures, or checks them.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let root = crate::root();
    let path = root.join("README.md");
    let before = read(&path)?;
    let after = fill(&before, |what| match what {
        "ladder" => Ok(ladder()),
        file => {
            let run = read(&root.join(file))?;
            if run.contains(BENCH) { bench(&run) } else { table(&run) }
        }
    })?;
    let mut stale = Vec::new();
    if before != after {
        stale.push(("README.md", after));
    }
    for (path, picture) in pictures::all(&root)? {
        if fs::read_to_string(root.join(path)).ok().as_ref() != Some(&picture) {
            stale.push((path, picture));
        }
    }
    for (path, text) in &stale {
        if args.check {
            stdio::say(format_args!(
                "{path} is not what its runs say; type `cargo xtask readme` and commit the result"
            ));
        } else {
            write(&root.join(path), text)?;
        }
    }
    Ok(if args.check && !stale.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, text));
    written.map_err(|error| format!("`{}`: {error}", path.display()))
}

/// Replaces what stands between each pair of markers by the table that the first one names.
fn fill(text: &str, table: impl Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((head, tail)) = rest.split_once(BEGIN) {
        let (what, tail) = tail.split_once(" -->").ok_or("a marker `<!-- table:` has no end")?;
        let (_, tail) =
            tail.split_once(END).ok_or("a marker `<!-- table:` has no `<!-- end -->`")?;
        filled += &format!("{head}{BEGIN}{what} -->\n{}{END}", table(what)?);
        rest = tail;
    }
    Ok(filled + rest)
}

/// The rungs, one line of Markdown each.
fn ladder() -> String {
    let mut lines = String::from("| rung | what it does |\n|---|---|\n");
    for descriptor in LADDER {
        let (name, summary) = (descriptor.name(), descriptor.summary());
        lines += &format!("| [`{name}`](kernels-gpu/src/{name}.rs) | {summary} |\n");
    }
    lines
}

/// The results of a run, one line of Markdown each.
fn table(run: &str) -> Result<String, String> {
    let mut lines = String::from(
        "| kernel | time | TFLOP/s | against the rung before | against cuBLAS |\n\
         |---|---:|---:|---:|---:|\n",
    );
    for line in run.lines() {
        let result: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let Some(kernel) = result["kernel"].as_str() else { continue };
        let number = |value: &Value, unit: f64, digits: usize| {
            value.as_f64().map(|value| format!("{:.digits$}", value / unit))
        };
        let times = |value: &Value| number(value, 1.0, 2).map(|value| value + " x");
        let cells = [
            number(&result["time_ms"]["median"], 1.0, 3).map(|value| value + " ms"),
            number(&result["gflops"], 1e3, 1),
            times(&result["speedup"]),
            times(&result["share_of_cublas"]),
        ];
        let cells = cells.map(|cell| cell.unwrap_or_else(|| "-".into()));
        lines += &format!("| `{kernel}` | {} |\n", cells.join(" | "));
    }
    Ok(lines)
}

/// The rows of a run of `host bench`, one line of Markdown each.
fn bench(run: &str) -> Result<String, String> {
    let mut lines = String::from(
        "| M x N x K | kernel | time | cuBLAS | ratio | 95 % | of FFMA | of copy |\n\
         |---|---|---:|---:|---:|---:|---:|---:|\n",
    );
    for line in run.lines() {
        let row: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let Some(kernel) = row["kernel"].as_str() else { continue };
        let number = |name: &str, digits: usize, unit: &str| {
            row[name].as_f64().map(|value| format!("{value:.digits$}{unit}"))
        };
        let interval = number("ratio_low", 3, "").zip(number("ratio_high", 3, ""));
        let cells = [
            number("time_median", 4, " ms"),
            number("cublas_median", 4, " ms"),
            number("ratio", 3, " x"),
            interval.map(|(low, high)| format!("{low} to {high}")),
            number("percent_of_ffma", 1, " %"),
            number("percent_of_copy", 1, " %"),
        ];
        let cells = cells.map(|cell| cell.unwrap_or_else(|| "-".into()));
        let (m, n, k) = (&row["m"], &row["n"], &row["k"]);
        let chosen = row["chosen"].as_str().map(|chosen| format!(": `{chosen}`"));
        let chosen = chosen.unwrap_or_default();
        lines += &format!("| {m} x {n} x {k} | `{kernel}`{chosen} | {} |\n", cells.join(" | "));
    }
    Ok(lines)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("`{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "{\"environment\": {}}\n\
        {\"kernel\": \"naive\", \"time_ms\": {\"median\": 2.0}, \"gflops\": 1500.0}\n\
        {\"kernel\": \"smem_full\", \"status\": \"REFUSED\"}\n";

    #[test]
    fn a_table_has_a_line_per_result() {
        let table = table(RUN).unwrap();
        assert!(
            table.ends_with(
                "| `naive` | 2.000 ms | 1.5 | - | - |\n| `smem_full` | - | - | - | - |\n"
            )
        );
    }

    #[test]
    fn a_bench_has_a_line_per_row() {
        let run = "{\"environment\": {}}\n\
            {\"kernel\":\"auto\",\"chosen\":\"tile_4x128\",\"m\":16,\"n\":4096,\"k\":8,\"time_median\":0.02,\"ratio\":1.25,\
             \"ratio_low\":1.2,\"ratio_high\":1.3,\"percent_of_copy\":80.0}\n\
            {\"summary\":{\"kernel\":\"auto\"}}\n";
        assert!(run.contains(BENCH));
        let table = bench(run).unwrap();
        assert!(table.ends_with(
            "|---:|\n| 16 x 4096 x 8 | `auto`: `tile_4x128` | 0.0200 ms | - | 1.250 x | 1.200 to 1.300 | - | 80.0 % |\n"
        ));
    }

    #[test]
    fn only_what_is_between_markers_changes() {
        let text = "a\n<!-- table: x.jsonl -->\nold\n<!-- end -->\nb\n";
        let filled = fill(text, |file| Ok(format!("new {file}\n"))).unwrap();
        assert_eq!(filled, "a\n<!-- table: x.jsonl -->\nnew x.jsonl\n<!-- end -->\nb\n");
        let again = fill(&filled, |file| Ok(format!("new {file}\n"))).unwrap();
        assert_eq!(again, filled);
        assert!(fill("<!-- table: x -->", |_| Ok(String::new())).is_err());
    }
}
