//! The repository's own runs, and files that are none.

use std::fs;
use std::path::{Path, PathBuf};

use gemm_report::run::Content;
use gemm_report::{File, Origin, Picture, Row, Run, gallery, page, picture, read_all, svg_files};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs")
}

fn runs() -> Vec<Run> {
    let files = read_all(&[folder()]).unwrap();
    files.into_iter().filter_map(|file| file.into_runs().ok()).flatten().collect()
}

/// What is wrong with a file of this text.
fn error(text: &[u8]) -> String {
    File::parse(Path::new("some.jsonl"), text).unwrap_err().to_string()
}

#[test]
fn all_recorded_runs_are_read() {
    let files = read_all(&[folder()]).unwrap();
    let lines: usize = files
        .iter()
        .filter(|file| matches!(file.content, Content::Runs(_)))
        .map(|file| {
            let text = fs::read_to_string(&file.path).unwrap();
            text.lines().filter(|line| line.starts_with("{\"kernel\"")).count()
        })
        .sum();
    let runs = runs();
    assert_eq!(runs.iter().map(|run| run.rows.len()).sum::<usize>(), lines);
    assert!(files.len() >= 35 && lines >= 805, "{} files, {lines} lines", files.len());
    for run in &runs {
        assert!(run.label.starts_with("runs/h"), "{}", run.label);
        for row in &run.rows {
            let is_timed = row.median_ms().is_some();
            assert_eq!(is_timed, !row.samples_ms().is_empty(), "{}: {}", run.label, row.kernel);
            if row.origin == Origin::Bench && is_timed {
                // None of cuBLAS where it is not compared with: its own result may have been wrong.
                let compared = if row.bench.ratio.is_some() { row.samples_ms().len() } else { 0 };
                assert_eq!(compared, row.cublas_samples_ms.len(), "{}: {}", run.label, row.kernel);
            }
        }
    }
    let searches = files.iter().filter(|file| matches!(file.content, Content::Tune));
    assert!(searches.count() >= 4);
}

#[test]
fn a_page_is_small_and_always_the_same() {
    let files = read_all(&[folder()]).unwrap();
    let once = page(&files);
    assert!(once.len() < 1_050_000, "{} bytes", once.len());
    let (summary, rest) = once.split_once("id=\"device-0\"").unwrap();
    for precision in ["bf16, C in bf16", "f32", "tf32", "tf32x3"] {
        assert!(summary.contains(&format!("<td class=\"left\">{precision}</td>")), "{precision}");
    }
    assert!(rest.contains("<figure>"));
    assert_eq!(once, page(&read_all(&[folder()]).unwrap()));
    // Neither this machine nor any address is in it.
    for wrong in [env!("CARGO_MANIFEST_DIR"), "http://", "https://", "src=", "@import"] {
        assert!(!once.contains(wrong), "{wrong}");
    }
}

#[test]
fn pictures_have_names_and_sources_of_their_own() {
    let runs = runs();
    let files = svg_files(&runs);
    let mut names: Vec<&String> = files.iter().map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), files.len());
    for (name, svg) in &files {
        assert!(svg.contains("runs/h") && svg.ends_with("</svg>\n"), "{name} names no run");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name} has a place that is none");
    }
    for kind in ["ladder", "rung-roofline", "sizes", "shapes", "errors"] {
        assert!(names.iter().any(|name| name.contains(&format!("-{kind}"))), "no {kind}");
    }
}

#[test]
fn every_picture_names_its_precision() {
    let runs = runs();
    for (run, pictures) in runs.iter().zip(gallery(&runs)) {
        for svg in pictures.iter().map(Picture::to_svg) {
            let names = |row: &Row| svg.contains(&row.precision());
            assert!(run.rows.iter().any(names), "{}: {}", run.label, &svg[..400]);
        }
    }
}

/// A ladder without cuBLAS, on the software device, is labelled.
#[test]
fn simulated_times_are_labelled() {
    let line = |kernel: &str, rung: u32| {
        format!(
            "{{\"kernel\":\"{kernel}\",\"rung\":{rung},\"device\":\"CPU\",\"device_kind\":\"soft\",\"m\":8,\
             \"n\":8,\"k\":8,\"gflops\":{rung},\"time_ms\":{{\"median\":1,\"samples\":[1]}}}}\n"
        )
    };
    let file = File::parse(Path::new("x.jsonl"), (line("naive", 1) + &line("rows2", 2)).as_bytes());
    let file = file.unwrap();
    assert!(page(std::slice::from_ref(&file)).contains("simulation on a CPU"));
    let run = &file.into_runs().unwrap()[0];
    let svg = picture::ladder(run, run.rows[0].shape()).unwrap().to_svg();
    assert!(svg.contains("Simulated on a CPU") && !svg.contains("cuBLAS"), "{svg}");
}

#[test]
fn texts_of_a_run_cannot_leave_their_place() {
    let line = "{\"environment\":{\"device\":\"<script>alert(1)</script>\",\"command\":[\"</style>\"]}}\n\
                {\"kernel\":\"<b>\",\"m\":8,\"n\":8,\"k\":8,\"rung\":1,\"gflops\":1,\"share_of_cublas\":1.5,\
                \"time_ms\":{\"median\":1,\"samples\":[1]}}\n";
    let file = File::parse(Path::new("<i>.jsonl"), line.as_bytes()).unwrap();
    let page = page(&[file]);
    for wrong in ["<script>alert", "rungs </style>", "<b>", "<i>"] {
        assert!(!page.contains(wrong), "{wrong}");
    }
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
}

#[test]
fn what_is_no_run_is_refused_by_file_and_line() {
    for nothing in ["", "\n\n", "{\"environment\":{\"device\":\"x\"}}\n", "{\"summary\":{}}\n"] {
        assert!(error(nothing.as_bytes()).starts_with("some.jsonl holds no result"), "{nothing:?}");
    }
    let fine = "{\"kernel\":\"naive\",\"m\":1,\"n\":1,\"k\":1}\n";
    for wrong in [
        "text",
        "[1]",
        "7",
        "{}",
        "{\"kernel\":\"naive\"}",
        "{\"kernel\":7,\"m\":1,\"n\":1,\"k\":1}",
        "\0\u{fffd}",
    ] {
        let says = error(format!("{fine}\n{wrong}\n{fine}").as_bytes());
        assert!(says.starts_with("some.jsonl, line 3: "), "{wrong:?}: {says}");
        assert!(says.ends_with("give a file that `--save` wrote"), "{says}");
    }
    assert!(error(&[0xff, 0xfe]).starts_with("some.jsonl, line 1: "));
    assert!(
        error(fine.trim_end_matches("}\n").as_bytes()).contains("line 1: the line is cut off (EOF")
    );
    let missing = File::read(Path::new("no/such.jsonl")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read no/such.jsonl: "), "{missing}");
    let empty = tempfile::tempdir().unwrap();
    let says = read_all(&[empty.path().to_owned()]).unwrap_err().to_string();
    assert!(says.starts_with("there is no .jsonl file in "), "{says}");
}

#[test]
fn runs_that_were_added_to_a_file_are_apart() {
    let environment = "{\"environment\":{\"device\":\"GPU\",\"unix_time\":1795327948}}\n";
    let row = "{\"kernel\":\"naive\",\"m\":1,\"n\":2,\"k\":3}\n";
    let text = format!("{environment}{row}{environment}{row}{row}");
    let file = File::parse(Path::new("/home/me/a/b.jsonl"), text.as_bytes()).unwrap();
    let runs = file.into_runs().unwrap();
    let labels: Vec<_> = runs.iter().map(|run| (run.label.as_str(), run.rows.len())).collect();
    assert_eq!(labels, [("a/b.jsonl", 1), ("a/b.jsonl (2)", 2)]);
    let when = runs[0].environment.as_ref().unwrap().when();
    assert_eq!(when.as_deref(), Some("2026-11-22 06:12"));
}
