//! Pictures are what they were, byte for byte: those of `tests/pictures`, which people looked at.
//! After a change that is meant, `UPDATE_PICTURES=1 cargo test -p gemm_report` writes them anew.
//! The ladder is the README's, which `cargo xtask readme --check` compares.

use std::path::Path;
use std::{env, fs};

use gemm_report::{File, Picture, gallery};

/// The pictures that two runs make together: a ladder has its roofs from the other.
fn pictures() -> Vec<Picture> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runs");
    let runs: Vec<_> = ["ladder.jsonl", "shapes.jsonl"]
        .into_iter()
        .flat_map(|name| File::read(&folder.join(name)).unwrap().into_runs().unwrap())
        .collect();
    gallery(&runs).concat()
}

#[test]
fn pictures_are_what_they_were() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pictures");
    let mut compared = 0;
    for picture in pictures() {
        if picture.name.starts_with("ladder") {
            continue;
        }
        let path = folder.join(format!("{}.svg", picture.name));
        if env::var_os("UPDATE_PICTURES").is_some() {
            fs::write(&path, picture.to_svg()).unwrap();
        }
        let before = fs::read_to_string(&path).unwrap();
        assert!(before == picture.to_svg(), "{} is another picture now", path.display());
        compared += 1;
    }
    assert_eq!(compared, fs::read_dir(&folder).unwrap().count());
}
