//! Tables of the ladder and of recorded runs.

use gemm_report::{Environment, Row, Shape};
use kernels_gpu::abi::{Arithmetic, KernelDescriptor};
use kernels_gpu::{LADDER, kernels as all_kernels};
use serde_json::Value;

use crate::ladders::Rung;

/// A key that only rows of `rungs bench` have.
const BENCH: &str = "\"time_median\":";

/// Below this ratio to cuBLAS a shape counts as slower.
const SLOWER: f64 = 0.97;

/// The rungs, one line of Markdown each, with links to their pages.
pub fn ladder(folder: &str, rungs: &[Rung]) -> String {
    let mut lines = String::from("| rung | what it does |\n|---|---|\n");
    let folder = if folder == "." { String::new() } else { format!("{folder}/") };
    for Rung { name, summary, .. } in rungs {
        lines += &format!("| [`{name}`]({folder}{name}.md) | {summary} |\n");
    }
    lines
}

/// All kernels, one line of Markdown each.
pub fn kernels() -> String {
    let mut lines = String::from("| kernel | for | what it does |\n|---|---|---|\n");
    let is_rung =
        |kernel: &KernelDescriptor| LADDER.iter().any(|rung| rung.name() == kernel.name());
    for kernel in all_kernels() {
        let of = match kernel.arithmetic() {
            Arithmetic::Fma if is_rung(kernel) => "f32, the ladder",
            Arithmetic::Fma => "f32",
            Arithmetic::Tf32 => "`tf32`",
            Arithmetic::Tf32x3 => "`tf32x3`",
            Arithmetic::Bits16 => "`bf16`, `f16`",
        };
        lines += &format!("| `{}` | {of} | {} |\n", kernel.name(), kernel.summary());
    }
    lines
}

/// The table of a saved run.
pub fn run(run: &str) -> Result<String, String> {
    if run.contains(BENCH) { bench(run) } else { times(run) }
}

/// The lines of a saved run.
pub fn values(run: &str) -> Result<Vec<Value>, String> {
    run.lines()
        .enumerate()
        .map(|(line, text)| {
            serde_json::from_str(text).map_err(|error| format!("line {}: {error}", line + 1))
        })
        .collect()
}

/// The cells of a row of a saved ladder: time, TFLOP/s, the ratio to the rung before, and to
/// cuBLAS.
pub fn cells(row: &Value) -> [String; 4] {
    let number = |value: &Value, unit: f64, digits: usize| {
        value.as_f64().map(|value| format!("{:.digits$}", value / unit))
    };
    let times = |value: &Value| number(value, 1.0, 2).map(|value| value + " x");
    [
        number(&row["time_ms"]["median"], 1.0, 3).map(|value| value + " ms"),
        number(&row["gflops"], 1e3, 1),
        times(&row["speedup"]),
        times(&row["share_of_cublas"]),
    ]
    .map(|cell| cell.unwrap_or_else(|| "-".into()))
}

/// The results of a ladder, one line of Markdown each.
fn times(run: &str) -> Result<String, String> {
    let mut lines = String::from(
        "| kernel | time | TFLOP/s | against the rung before | against cuBLAS |\n\
         |---|---:|---:|---:|---:|\n",
    );
    for row in values(run)? {
        let Some(kernel) = row["kernel"].as_str() else { continue };
        lines += &format!("| `{kernel}` | {} |\n", cells(&row).join(" | "));
    }
    Ok(lines)
}

/// Ladders of several sizes side by side: each has a time and a share of cuBLAS's speed.
pub fn ladders(runs: &[String]) -> Result<String, String> {
    let runs = runs.iter().map(|run| values(run)).collect::<Result<Vec<_>, _>>()?;
    let rows = |run: &[Value]| -> Vec<Value> {
        run.iter().filter(|row| row["kernel"].is_string()).cloned().collect()
    };
    let runs: Vec<Vec<Value>> = runs.iter().map(|run| rows(run)).collect();
    let first = runs.first().ok_or("no ladder is named")?;
    let mut lines = String::from("| kernel |");
    for run in &runs {
        let shape = shape(run.first().ok_or("a ladder has no rows")?)?;
        lines += &format!(" {shape} | of cuBLAS |");
    }
    lines += &format!("\n|---|{}\n", "---:|---:|".repeat(runs.len()));
    for row in first {
        lines += &format!("| `{}` |", row["kernel"].as_str().unwrap_or_default());
        for run in &runs {
            let other = run.iter().find(|other| other["kernel"] == row["kernel"]);
            let [time, _, _, share] = cells(other.unwrap_or(&Value::Null));
            lines += &format!(" {time} | {share} |");
        }
        lines += "\n";
    }
    Ok(lines)
}

/// The rows of a run of `rungs bench`, one line of Markdown each.
fn bench(run: &str) -> Result<String, String> {
    let mut lines = String::from(
        "| M x N x K | kernel | time | cuBLAS | ratio | 95 % | of FFMA | of copy |\n\
         |---|---|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in values(run)? {
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
        let chosen = row["chosen"].as_str().map(|chosen| format!(": `{chosen}`"));
        let chosen = chosen.unwrap_or_default();
        let shape = shape(&row)?;
        lines += &format!("| {shape} | `{kernel}`{chosen} | {} |\n", cells.join(" | "));
    }
    Ok(lines)
}

/// The shape of a row.
fn shape(row: &Value) -> Result<Shape, String> {
    let row = serde_json::from_value::<Row>(row.clone());
    row.map(|row| row.shape()).map_err(|error| format!("a row has no shape: {error}"))
}

/// The head of a table of [`ratios`].
pub fn ratios_head() -> String {
    format!(
        "| shapes | GPU, cuBLAS | geometric mean | slowest | below {SLOWER} | most of the FMA peak | run |\n\
         |---|---|---:|---:|---:|---:|---|\n"
    )
}

/// The ratios of a run of `rungs bench`, in up to two lines.
///
/// Squares of several powers of two have a line. All others have one, which `label` describes.
pub fn ratios(run: &str, name: &str, label: &str) -> Result<String, String> {
    let values = values(run)?;
    let environment = values.iter().find_map(|value| value.get("environment"));
    let environment = environment.ok_or("the run has no environment")?;
    let [device, cublas] = ["device", "cublas_version"]
        .map(|key| environment[key].as_str().unwrap_or("unknown").trim_start_matches("NVIDIA "));
    let known: Environment =
        serde_json::from_value(environment.clone()).map_err(|error| error.to_string())?;
    let when = known.when().and_then(|when| Some(format!(", {}", when.get(..10)?)));
    let source = format!("`{name}`{}", when.unwrap_or_default());
    let (mut squares, mut others, mut sides) = (Vec::new(), Vec::new(), Vec::new());
    for row in values.iter().filter(|row| row["ratio"].is_number()) {
        let shape = shape(row)?;
        if shape.is_square() && shape.m.is_power_of_two() {
            squares.push(row);
            sides.push(shape.m);
        } else {
            others.push(row);
        }
    }
    if let [one] = squares[..] {
        others.push(one);
        sides.clear();
    }
    let mut lines = String::new();
    if let (Some(least), Some(most)) = (sides.iter().min(), sides.iter().max()) {
        let label = format!("{} squares, {least} to {most}", squares.len());
        lines += &ratios_line(&label, [device, cublas, &source], &squares);
    }
    if !others.is_empty() {
        let label = format!("{} {label}", others.len());
        lines += &ratios_line(&label, [device, cublas, &source], &others);
    }
    Ok(lines)
}

/// The head of a table of [`summary`].
pub const SUMMARY_HEAD: &str = "| what | GPU | mean | worst | run |\n|---|---|---:|---:|---|\n";

/// A line for a run of `rungs bench`: the geometric mean of its ratios, and the lowest.
pub fn summary(run: &str, path: &str, label: &str) -> Result<String, String> {
    let values = values(run)?;
    let environment = values.iter().find_map(|value| value.get("environment"));
    let device = environment.and_then(|environment| environment["device"].as_str());
    let device = device.ok_or("the run has no device")?.trim_start_matches("NVIDIA ");
    let device = device.split(' ').next().unwrap_or_default();
    let ratios: Vec<f64> = values.iter().filter_map(|row| row["ratio"].as_f64()).collect();
    let mean = sample_stats::geometric_mean(&ratios).ok_or("the run has no ratios")?;
    let worst = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let (count, name) = (ratios.len(), folder.trim_start_matches("runs/"));
    let label = label.replace('#', &count.to_string());
    Ok(format!(
        "| {label} | {device} | {mean:.2} x | {worst:.2} x | [`{name}`]({folder}/README.md) |\n"
    ))
}

fn ratios_line(label: &str, [device, cublas, source]: [&str; 3], rows: &[&Value]) -> String {
    let numbers = |key: &str| rows.iter().filter_map(|row| row[key].as_f64()).collect::<Vec<_>>();
    let ratios = numbers("ratio");
    let mean = sample_stats::geometric_mean(&ratios).unwrap_or(f64::NAN);
    let slowest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let slower = ratios.iter().filter(|ratio| **ratio < SLOWER).count();
    let peak = numbers("percent_of_ffma").into_iter().fold(0.0, f64::max);
    format!(
        "| {label} | {device}, {cublas} | {mean:.2} x | {slowest:.2} x | {slower} | {peak:.0} % | {source} |\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "{\"environment\": {}}\n\
        {\"kernel\": \"naive\", \"time_ms\": {\"median\": 2.0}, \"gflops\": 1500.0}\n\
        {\"kernel\": \"smem_full\", \"status\": \"REFUSED\"}\n";

    #[test]
    fn a_table_has_a_line_per_result() {
        let table = run(RUN).unwrap();
        assert!(
            table.ends_with(
                "| `naive` | 2.000 ms | 1.5 | - | - |\n| `smem_full` | - | - | - | - |\n"
            )
        );
    }

    #[test]
    fn ladders_stand_side_by_side() {
        let run = |size: u32, ms: f64| {
            format!(
                "{{\"kernel\":\"naive\",\"m\":{size},\"n\":8,\"k\":8,\"time_ms\":{{\"median\":{ms}}}}}\n"
            )
        };
        assert_eq!(
            ladders(&[run(8, 1.5), run(16, 2.0)]).unwrap(),
            "| kernel | 8 x 8 x 8 | of cuBLAS | 16 x 8 x 8 | of cuBLAS |\n\
             |---|---:|---:|---:|---:|\n| `naive` | 1.500 ms | - | 2.000 ms | - |\n"
        );
    }

    #[test]
    fn a_bench_has_a_line_per_row() {
        let bench = "{\"environment\": {}}\n\
            {\"kernel\":\"auto\",\"chosen\":\"tile_4x128\",\"m\":16,\"n\":4096,\"k\":8,\"time_median\":0.02,\"ratio\":1.25,\
             \"ratio_low\":1.2,\"ratio_high\":1.3,\"percent_of_copy\":80.0}\n\
            {\"summary\":{\"kernel\":\"auto\"}}\n";
        let table = run(bench).unwrap();
        assert!(table.ends_with(
            "|---:|\n| 16 x 4096 x 8 | `auto`: `tile_4x128` | 0.0200 ms | - | 1.250 x | 1.200 to 1.300 | - | 80.0 % |\n"
        ));
    }

    #[test]
    fn a_summary_is_one_line() {
        let run =
            "{\"environment\":{\"device\":\"NVIDIA X 80GB\"}}\n{\"ratio\":2.0}\n{\"ratio\":0.5}\n";
        assert_eq!(
            summary(run, "runs/x/f32/odd.jsonl", "# odd ones").unwrap(),
            "| 2 odd ones | X | 1.00 x | 0.50 x | [`x/f32`](runs/x/f32/README.md) |\n"
        );
    }

    #[test]
    fn ratios_are_geometric_means() {
        let row = |m: u32, n: u32, ratio: f64| {
            format!(
                "{{\"kernel\":\"auto\",\"m\":{m},\"n\":{n},\"k\":64,\"ratio\":{ratio},\"percent_of_ffma\":50.0}}\n"
            )
        };
        let run = "{\"environment\":{\"device\":\"NVIDIA X\",\"cublas_version\":\"13.1\",\"unix_time\":1795327948}}\n"
            .to_string()
            + &row(64, 64, 1.5)
            + &row(1, 64, 2.0)
            + &row(64, 1, 0.5);
        assert_eq!(
            ratios(&run, "a-run", "odd ones").unwrap(),
            "| 3 odd ones | X, 13.1 | 1.14 x | 0.50 x | 1 | 50 % | `a-run`, 2026-11-22 |\n"
        );
        let run = run + &row(64, 64, 1.5);
        assert_eq!(
            ratios(&run, "a-run", "odd ones").unwrap(),
            "| 2 squares, 64 to 64 | X, 13.1 | 1.50 x | 1.50 x | 0 | 50 % | `a-run`, 2026-11-22 |\n\
             | 2 odd ones | X, 13.1 | 1.00 x | 0.50 x | 1 | 50 % | `a-run`, 2026-11-22 |\n"
        );
    }
}
