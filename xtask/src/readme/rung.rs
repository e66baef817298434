//! What the page of a rung shows of its source and of recorded runs.

use std::collections::HashMap;

use crate::ladders::{Rung, ladders};

use super::tables::{cells, values};
use crate::markdown::replace_links;

/// A language of the book, and its words.
struct Words {
    /// From a page in this language to the page in the other one, and that one's name.
    other: (&'static str, &'static str),
    /// From a page to the root of the checkout.
    root: &'static str,
    ladder: &'static str,
    before: &'static str,
    next: &'static str,
    times: &'static str,
    /// What [`COUNTERS`] count.
    counters: [&'static str; 13],
    /// The reason for which most warps are stalled.
    stalled: &'static str,
    /// The reasons of stalls, as the profiler's metrics and as its documentation call them.
    stalls: [(&'static str, &'static str); 5],
}

const ENGLISH: Words = Words {
    other: ("../zh/ladder", "中文"),
    root: "../..",
    ladder: "The ladder",
    before: "before",
    next: "next",
    times: "| rung | time | TFLOP/s | against the rung before | against cuBLAS |",
    counters: [
        "time",
        "registers per thread",
        "warps active, of what the multiprocessor holds",
        "issue slots used, while active",
        "issue slots used",
        "FMA pipe used, while active",
        "data pipe of loads and stores used",
        "DRAM throughput, of its peak",
        "instructions of warps",
        "global load instructions",
        "bytes used of each sector loaded",
        "shared load instructions",
        "bank conflicts",
    ],
    stalled: "warps stalled per issue, most of all by",
    stalls: [
        ("long_scoreboard", "long scoreboard (global memory)"),
        ("short_scoreboard", "short scoreboard (shared memory)"),
        ("mio_throttle", "MIO throttle (shared memory's queue)"),
        ("lg_throttle", "LG throttle (global memory's queue)"),
        ("barrier", "barrier"),
    ],
};

const CHINESE: Words = Words {
    other: ("../../ladder", "English"),
    root: "../../..",
    ladder: "优化阶梯",
    before: "上一级",
    next: "下一级",
    times: "| 内核 | 时间 | TFLOP/s | 相对上一级 | 相对 cuBLAS |",
    counters: [
        "时间",
        "每线程寄存器数",
        "活跃 warp 占上限的比例",
        "发射槽利用率（活跃期间）",
        "发射槽利用率",
        "FMA 流水线利用率（活跃期间）",
        "load/store 数据通路利用率",
        "DRAM 吞吐占峰值的比例",
        "warp 指令数",
        "全局内存 load 指令数",
        "每个 sector 中用到的字节比例",
        "共享内存 load 指令数",
        "bank conflict 次数",
    ],
    stalled: "每次发射时停顿的 warp 数，最主要的原因",
    stalls: [
        ("long_scoreboard", "long scoreboard（等待全局内存）"),
        ("short_scoreboard", "short scoreboard（等待共享内存）"),
        ("mio_throttle", "MIO throttle（共享内存队列已满）"),
        ("lg_throttle", "LG throttle（全局内存队列已满）"),
        ("barrier", "barrier（等待同步）"),
    ],
};

fn words(language: &str) -> Result<&'static Words, String> {
    match language {
        "en" => Ok(&ENGLISH),
        "zh" => Ok(&CHINESE),
        _ => Err(format!("`{language}` is no language of the book: en or zh")),
    }
}

/// The ladder that a rung is of, and its place there.
fn place(name: &str) -> Result<(Vec<Rung>, usize), String> {
    let mut places = ladders().into_iter().filter_map(|ladder| {
        let at = ladder.iter().position(|rung| rung.name == name)?;
        Some((ladder, at))
    });
    places.next().ok_or_else(|| format!("`{name}` is no rung"))
}

/// A rung.
pub fn rung(name: &str) -> Result<Rung, String> {
    let (mut ladder, at) = place(name)?;
    Ok(ladder.swap_remove(at))
}

/// The names of the rungs before and after this one.
fn neighbours(name: &str) -> Result<[Option<&'static str>; 2], String> {
    let (ladder, at) = place(name)?;
    let rung = |at: Option<usize>| at.and_then(|at| ladder.get(at)).map(|rung| rung.name);
    Ok([rung(at.checked_sub(1)), rung(at.checked_add(1))])
}

/// Links to the ladder, to the rungs before and after, to the source and to the translation.
pub fn nav(language: &str, name: &str) -> Result<String, String> {
    let words = words(language)?;
    let [before, next] = neighbours(name)?;
    let mut links = vec![format!("[{}](README.md)", words.ladder)];
    for (word, rung) in [(words.before, before), (words.next, next)] {
        links.extend(rung.map(|rung| format!("{word}: [`{rung}`]({rung}.md)")));
    }
    let rung = rung(name)?;
    let source = rung.path();
    links.push(format!("[`{source}`]({}/{source})", words.root));
    if rung.is_translated {
        let (folder, other) = words.other;
        links.push(format!("[{other}]({folder}/{name}.md)"));
    }
    Ok(links.join(" · ") + "\n")
}

/// The header of a source, without its first paragraph, which is the page's title.
pub fn idea(header: impl Iterator<Item = &'static str>) -> String {
    let mut text = String::new();
    for line in header.skip_while(|line| !line.is_empty()) {
        if line.starts_with("# ") {
            text += "#";
        }
        text += line;
        text += "\n";
    }
    // A book has none of the items that rustdoc links to.
    let text = replace_links(&text, |text, link| link.target.contains("::").then(|| text.into()));
    text.trim_start().into()
}

/// The pictures in the header of a source.
pub fn picture(header: impl Iterator<Item = &'static str>) -> String {
    let mut pictures = String::new();
    let mut inside = false;
    for line in header {
        let begins = line.starts_with("```");
        if begins || inside {
            pictures += line;
            pictures += "\n";
        }
        inside ^= begins;
    }
    pictures
}

/// How a loop along K begins.
const LOOPS: [&str; 7] = [
    "while k0 < k {",
    "while i < k {",
    "while at < k {",
    "for i in 0..k",
    "while state.0 < tiles {",
    "while at < end {",
    "loop {",
];

/// The loops along K of a source, each whole.
pub fn code(source: &str) -> Result<String, String> {
    let mut loops: Vec<String> = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let text = line.trim_start();
        if !LOOPS.iter().any(|begin| text.starts_with(begin)) {
            continue;
        }
        let indent = &line[..line.len() - text.len()];
        let mut code = format!("{text}\n");
        for line in lines.by_ref() {
            code += line.strip_prefix(indent).unwrap_or(line);
            code += "\n";
            if line == format!("{indent}}}") {
                break;
            }
        }
        loops.push(code);
    }
    if loops.is_empty() {
        return Err(format!("no loop along K: none of its lines begins with one of {LOOPS:?}"));
    }
    Ok(format!("```rust,ignore\n{}```\n", loops.join("// ...\n")))
}

/// A rung between its neighbours, and cuBLAS, in a saved ladder.
pub fn times(language: &str, name: &str, run: &str) -> Result<String, String> {
    let [before, next] = neighbours(name)?;
    let mut lines = format!("{}\n|---|---:|---:|---:|---:|\n", words(language)?.times);
    let rows = values(run)?;
    let shown = [before, Some(name), next, Some("cublas")];
    for row in &rows {
        let Some(kernel) = row["kernel"].as_str() else { continue };
        if shown.contains(&Some(kernel)) {
            let bold = if kernel == name { "**" } else { "" };
            lines += &format!("| {bold}`{kernel}`{bold} | {} |\n", cells(row).join(" | "));
        }
    }
    Ok(lines)
}

/// The metrics of the profiler, with the unit to divide by, the digits, and what follows them.
const COUNTERS: [(&str, f64, usize, &str); 13] = [
    ("gpu__time_duration.sum", 1e6, 3, " ms"),
    ("launch__registers_per_thread", 1.0, 0, ""),
    ("sm__warps_active.avg.pct_of_peak_sustained_active", 1.0, 0, " %"),
    ("sm__inst_issued.avg.pct_of_peak_sustained_active", 1.0, 0, " %"),
    ("smsp__issue_active.avg.pct_of_peak_sustained_elapsed", 1.0, 0, " %"),
    ("sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active", 1.0, 0, " %"),
    ("l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed", 1.0, 0, " %"),
    ("dram__throughput.avg.pct_of_peak_sustained_elapsed", 1.0, 0, " %"),
    ("smsp__inst_executed.sum", 1e6, 0, " M"),
    ("smsp__inst_executed_op_global_ld.sum", 1e6, 2, " M"),
    ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct", 1.0, 0, " %"),
    ("smsp__inst_executed_op_shared_ld.sum", 1e6, 2, " M"),
    ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", 1e6, 2, " M"),
];

/// What `ncu --csv` said of a rung, of the one before it, and of cuBLAS's kernel if there is one.
/// Counters that the run has not are left out.
pub fn profile(language: &str, name: &str, run: &str) -> Result<String, String> {
    let words = words(language)?;
    let kernels = metrics(run)?;
    let [before, _] = neighbours(name)?;
    let cublas = kernels.keys().find(|kernel| kernel.ends_with("cublas"));
    let shown = [before, Some(name), cublas.map(String::as_str)];
    let shown: Vec<&str> =
        shown.into_iter().flatten().filter(|kernel| kernels.contains_key(*kernel)).collect();
    if !shown.contains(&name) {
        return Err(format!("the run has nothing of `{name}`"));
    }
    let mut lines = String::from("| |");
    for kernel in &shown {
        lines += &format!(" `{}` |", if kernel.ends_with("cublas") { "cublas" } else { kernel });
    }
    lines += &format!("\n|---|{}\n", "---:|".repeat(shown.len()));
    let mut row = |label: &str, cell: &dyn Fn(&HashMap<String, f64>) -> Option<String>| {
        let cells: Option<Vec<String>> =
            shown.iter().map(|kernel| cell(&kernels[*kernel])).collect();
        if let Some(cells) = cells {
            lines += &format!("| {label} | {} |\n", cells.join(" | "));
        }
    };
    for (label, (metric, unit, digits, suffix)) in words.counters.into_iter().zip(COUNTERS) {
        row(label, &|values| {
            values.get(metric).map(|value| format!("{:.digits$}{suffix}", value / unit))
        });
    }
    row(words.stalled, &|values| {
        let stalled = words.stalls.iter().filter_map(|(reason, says)| {
            let metric =
                format!("smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio");
            values.get(&metric).map(|stalled| (*stalled, says))
        });
        let (stalled, says) = stalled.max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(format!("{says}: {stalled:.2}"))
    });
    Ok(lines)
}

/// The metrics of each kernel, by their names.
fn metrics(run: &str) -> Result<HashMap<String, HashMap<String, f64>>, String> {
    let mut kernels: HashMap<String, HashMap<String, f64>> = HashMap::new();
    for row in csv::Reader::from_reader(run.as_bytes()).deserialize() {
        let row: HashMap<String, String> = row.map_err(|error| error.to_string())?;
        let cell = |column: &str| row.get(column).map_or("", String::as_str);
        let value = cell("Metric Value").replace(',', "");
        let value = value.parse().map_err(|error| format!("`{value}`: {error}"))?;
        let kernel = kernels.entry(cell("Kernel Name").into()).or_default();
        kernel.insert(cell("Metric Name").into(), value);
    }
    Ok(kernels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idea_is_the_head_of_the_source() {
        let header = ["Rung 1, `x`: y.", "", "# The idea", "", "See [`m`](crate::m)."];
        assert_eq!(idea(header.into_iter()), "## The idea\n\nSee `m`.\n");
    }

    #[test]
    fn a_picture_is_what_is_fenced() {
        let header = ["a", "```text", "  x", "", "```", "b"];
        assert_eq!(picture(header.into_iter()), "```text\n  x\n\n```\n");
    }

    #[test]
    fn a_loop_is_whole_and_another_follows() {
        let source = "fn f() {\n    while k0 < k {\n        loop {\n        }\n    }\n    x();\n    for i in 0..k {\n    }\n}\n";
        assert_eq!(
            code(source).unwrap(),
            "```rust,ignore\nwhile k0 < k {\n    loop {\n    }\n}\n// ...\nfor i in 0..k {\n}\n```\n"
        );
        assert!(code("fn f() {}\n").is_err());
    }

    #[test]
    fn a_profile_has_a_column_per_kernel_and_no_counter_that_is_missing() {
        let run = "\"Kernel Name\",\"Metric Name\",\"Metric Value\"\n\
            naive,gpu__time_duration.sum,\"2,000,000\"\n\
            coalesced,gpu__time_duration.sum,\"1,500,000\"\n\
            coalesced,launch__registers_per_thread,32\n\
            x_cublas,gpu__time_duration.sum,\"500,000\"\n";
        assert_eq!(
            profile("en", "coalesced", run).unwrap(),
            "| | `naive` | `coalesced` | `cublas` |\n|---|---:|---:|---:|\n\
             | time | 2.000 ms | 1.500 ms | 0.500 ms |\n"
        );
        assert!(profile("en", "tma", run).is_err());
    }

    #[test]
    fn every_rung_has_its_neighbours_and_a_loop() {
        assert_eq!(neighbours("naive").unwrap(), [None, Some("coalesced")]);
        assert!(neighbours("nave").is_err());
        let links = nav("en", "naive").unwrap();
        assert!(links.contains("[中文](../zh/ladder/naive.md)"), "{links}");
        assert_eq!(neighbours("mma").unwrap(), [None, Some("wgmma")]);
        assert!(!nav("en", "mma").unwrap().contains("中文"));
        for rung in ladders().concat() {
            code(rung.source).unwrap();
        }
    }
}
