//! The page that compares `cuda_std` with others names tests that exist.

use std::fs;
use std::path::Path;

/// All Rust sources in a folder.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.extension() {
            _ if path.is_dir() => sources(&path, text),
            Some(extension) if extension == "rs" => *text += &fs::read_to_string(path).unwrap(),
            _ => {}
        }
    }
}

#[test]
fn the_tests_it_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    for folder in ["tests", "../cuda_std/src"] {
        sources(&root.join(folder), &mut text);
    }
    let page = fs::read_to_string(root.join("../cuda_std/COMPARISON.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let mut named = 0;
    for cell in rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next()) {
        for name in cell.split('`').skip(1).step_by(2) {
            let is_function = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let exists = match name.strip_prefix("examples/") {
                Some(_) => root.join("../..").join(name).is_dir(),
                None if !name.chars().all(is_function) => continue,
                None => text.contains(&format!("fn {name}")),
            };
            assert!(exists, "{name}");
            named += 1;
        }
    }
    assert!(named > 60, "{named}");
}
