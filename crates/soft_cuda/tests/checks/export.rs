//! The planted bugs as files, for other tools.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::{Twin, memory, module, races, registers, sync};

/// All of them, with the checks that find each.
pub fn all() -> impl Iterator<Item = (&'static str, &'static Twin)> {
    let of = |check, twins: &'static [Twin]| twins.iter().map(move |twin| (check, twin));
    of("memory", &memory::TWINS)
        .chain(of("memory", &registers::TWINS))
        .chain(of("races", &races::SHARED))
        .chain(of("races", &races::MBARRIERS))
        .chain(of("races", &races::GLOBAL))
        .chain(of("sync", &sync::TWINS))
}

/// Writes each to `$TWINS`, as `NN-bug.ptx` and `NN-fix.ptx`, and a list of them, `twins.csv`: number,
/// blocks, threads, the check, what is found, name.
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
