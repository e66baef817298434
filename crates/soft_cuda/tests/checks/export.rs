//! The planted bugs as files, for other tools.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::{
    Twin, bulk, clusters, dependent, device_memory, idioms, memory, module, races, reductions,
    registers, subword, sync, tensor, words,
};

/// All of them, with the checks that find each.
pub fn all() -> impl Iterator<Item = (&'static str, &'static Twin)> {
    let of = |check, twins: &'static [Twin]| twins.iter().map(move |twin| (check, twin));
    of("memory", &memory::TWINS)
        .chain(of("memory", &registers::TWINS))
        .chain(of("races", &races::SHARED))
        .chain(of("races", &races::MBARRIERS))
        .chain(of("races", &device_memory::TWINS))
        .chain(of("sync", &sync::TWINS))
        .chain(of("all", &tensor::TWINS))
        .chain(of("races", &clusters::TWINS))
        .chain(of("all", &idioms::TWINS))
        .chain(of("all", &bulk::TWINS))
        .chain(of("races", &dependent::TWINS))
        .chain(of("races", &words::FLAGS))
        .chain(of("all", &bulk::SOURCES))
        .chain(of("sync", &bulk::EXITS))
        .chain(of("all", &subword::TWINS))
        .chain(of("all", &reductions::TWINS))
        .chain(of("sync", &reductions::EXITS))
}

/// Writes each to `$TWINS`, as `NN-bug.ptx` and `NN-fix.ptx`, and a list of them, `twins.csv`:
/// number, blocks, threads, the check, what is found, name.
#[test]
#[ignore = "it checks nothing: it writes files where $TWINS says"]
fn write() {
    let folder = PathBuf::from(std::env::var_os("TWINS").expect("TWINS is a folder"));
    let mut list = String::from("number,blocks,threads,check,found,name\n");
    for (number, (check, twin)) in all().enumerate() {
        for (word, keep) in [("bug", "BUG|"), ("fix", "FIX|")] {
            let file = folder.join(format!("{number:02}-{word}.ptx"));
            std::fs::write(file, module(twin.body, keep)).unwrap();
        }
        let Twin { name, found, blocks, threads, .. } = twin;
        writeln!(list, "{number:02},{blocks},{threads},{check},{found},\"{name}\"").unwrap();
    }
    std::fs::write(folder.join("twins.csv"), list).unwrap();
}

/// The runs of the planted bugs under compute-sanitizer, in `tests/checks/sanitizer`.
const RUNS: [&str; 6] = ["first", "sm90", "idioms", "launches", "bulk", "fences"];
const TOOLS: [&str; 4] = ["memcheck", "racecheck", "initcheck", "synccheck"];

/// What each tool made of each planted bug, as Markdown.
fn table() -> String {
    let read = |run: &str, file: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/checks/sanitizer");
        std::fs::read_to_string(folder.join(format!("{run}-{file}"))).unwrap()
    };
    // By name, twin and tool.
    let mut statuses: HashMap<(String, String), String> = HashMap::new();
    for run in RUNS {
        let list = read(run, "twins.csv");
        let names: HashMap<&str, &str> = list
            .lines()
            .map(|line| {
                let fields: Vec<&str> = line.splitn(6, ',').collect();
                (fields[0], fields[5].trim_matches('"'))
            })
            .collect();
        for line in read(run, "findings.csv").lines().skip(1) {
            let fields: Vec<&str> = line.splitn(5, ',').collect();
            let of = (names[fields[0]].to_owned(), format!("{},{}", fields[1], fields[2]));
            statuses.insert(of, fields[3].to_owned());
        }
    }
    let status = |name: &str, twin: &str, tool: &str| {
        statuses.get(&(name.to_owned(), format!("{twin},{tool}"))).map(String::as_str)
    };
    let mut table = String::from(
        "| planted bug | software device | compute-sanitizer | alone | clean twin |\n",
    );
    table += "|---|---|---|---|---|\n";
    let (mut count, mut ran, mut by_gpu) = (0, 0, 0);
    for (check, twin) in all() {
        let name = twin.name;
        let by = |kind: &str| {
            let found = TOOLS.into_iter().filter(|tool| status(name, kind, tool) == Some("9"));
            found.collect::<Vec<_>>().join(", ")
        };
        let found = by("bug");
        let alone = match status(name, "bug", "none") {
            Some("0") => "runs",
            Some("1") => "an error",
            Some("124" | "137") => "hangs",
            _ => "not run",
        };
        let clean = match by("fix") {
            none if none.is_empty() => none,
            found => format!("reported by {found}"),
        };
        count += 1;
        ran += usize::from(alone != "not run");
        by_gpu += usize::from(!found.is_empty());
        let what = twin.found.replace('|', " or ");
        let gpu = match found.as_str() {
            "" if alone == "not run" => alone,
            "" => "-",
            found => found,
        };
        writeln!(table, "| {name} | {check}: {what} | {gpu} | {alone} | {clean} |").unwrap();
    }
    format!(
        "{count} planted bugs, which a test finds here every time; compute-sanitizer finds {by_gpu} of the\n{ran} that ran under it.\n\n{table}"
    )
}

/// `UPDATE=1` writes it.
#[test]
fn the_table_of_checks_is_that_of_the_run() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("CHECKS.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let mark = "<!-- generated: tests/checks/export.rs -->\n";
    let (head, old) = text.split_once(mark).unwrap();
    let new = table();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, format!("{head}{mark}{new}")).unwrap();
    } else {
        assert_eq!(old, new, "set UPDATE=1 to write it");
    }
}
