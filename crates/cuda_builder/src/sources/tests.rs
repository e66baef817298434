//! What changes the digest of a crate, and what does not.

use std::fs;
use std::path::Path;

use super::*;

#[test]
fn a_file_that_is_edited_or_gone_changed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let file = root.join("half.sm_80.ptx.xz");
    fs::write(&file, "kernels").unwrap();
    let digests = SourceDigests::of(root, &["half.sm_80.ptx.xz"]).unwrap();
    // What `printf kernels | sha256sum` says.
    let of_bytes = "e98f56f907c45b8a6621bdf148bdb5afdd9cba932fd4d9898890733e094d9f45";
    assert_eq!(digests.0, [("half.sm_80.ptx.xz".to_owned(), of_bytes.to_owned())]);
    assert_eq!(digests.files(root), std::slice::from_ref(&file));
    assert_eq!(digests.changed(root), [""; 0]);
    fs::write(&file, "kernel").unwrap();
    assert_eq!(digests.changed(root), ["half.sm_80.ptx.xz"]);
    fs::remove_file(&file).unwrap();
    assert_eq!(digests.changed(root), ["half.sm_80.ptx.xz"]);
}

#[test]
fn an_edit_makes_its_family_stale_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let lib = "#![no_std]\nmod shared;\n#[cfg(feature = \"half\")]\npub mod half;\n\
               #[cfg(feature = \"tf32\")]\npub mod tf32;\n";
    write("kernels/Cargo.toml", "[package]\nname = \"kernels\"\n");
    write("kernels/src/lib.rs", lib);
    for module in ["shared", "half", "tf32"] {
        write(&format!("kernels/src/{module}.rs"), &format!("pub fn {module}() {{}}\n"));
    }
    let archives = ["half.sm_80", "half.sm_90a", "tf32.sm_80", "tf32.sm_90a"];
    let archives = archives.map(|name| format!("kernels/ptx/{name}.ptx.xz"));
    archives.iter().for_each(|archive| write(archive, "kernels"));
    write("Cargo.toml", "[workspace]\nresolver = \"3\"\n");
    let families = ["half", "tf32"].map(|family| with_feature("kernels", family));
    let paths: Vec<&str> = families.iter().chain(&archives).map(String::as_str).collect();
    let record = SourceDigests::of(root, &[&paths[..], &["Cargo.toml"]].concat()).unwrap();
    let stale = || {
        let stale = Stale::of(&record, root, "kernels");
        // A family that the record does not know is stale in any case.
        assert_eq!(stale.reason("more"), Some(RECORD));
        ["half", "tf32"].map(|family| stale.reason(family).map(str::to_owned))
    };
    assert_eq!(stale(), [None, None]);
    for (path, text, expected) in [
        ("kernels/src/half.rs", "pub fn half() { half() }", [true, false]),
        ("kernels/src/shared.rs", "pub fn shared() { shared() }", [true, true]),
        ("kernels/ptx/tf32.sm_80.ptx.xz", "edited", [false, true]),
        ("Cargo.toml", "[workspace]\nresolver = \"2\"\n", [true, true]),
    ] {
        let before = fs::read_to_string(root.join(path)).unwrap();
        write(path, text);
        assert_eq!(stale().map(|reason| reason.is_some()), expected, "{path}");
        write(path, &before);
    }
}

#[test]
fn features_are_families_and_turn_no_others_on() {
    let folder = tempfile::tempdir().unwrap();
    let names = |half: &str| {
        let features = format!("[features]\ndefault = [\"half\"]\nhalf = {half}\ntf32 = []\n");
        fs::write(folder.path().join("Cargo.toml"), features + "[lib]\nname = \"x\"\n").unwrap();
        Family::names(folder.path())
    };
    assert_eq!(names("[]").unwrap(), ["half", "tf32"]);
    let error = names("[\"tf32\"]").unwrap_err().to_string();
    assert!(error.contains("`half` must turn no others on"), "{error}");
}

/// Crates in a folder: the path of each file, and its text.
fn record(files: &[(&str, &str)]) -> SourceDigests {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let mut crates: Vec<&str> = files.iter().filter_map(|file| file.0.split('/').next()).collect();
    crates.dedup();
    SourceDigests::of(folder.path(), &crates).unwrap()
}

const KERNELS: &str = "[package]\nname = \"kernels\"\n\n[dependencies]\nstd.workspace = true\n";
const STD: &str = "[package]\nname = \"std\"\n";

/// The record of a crate of kernels with these modules beside its root.
fn kernels(root: &str, modules: &[(&str, &str)]) -> SourceDigests {
    let paths: Vec<String> =
        modules.iter().map(|(name, _)| format!("kernels/src/{name}.rs")).collect();
    let mut files = vec![("kernels/Cargo.toml", KERNELS), ("kernels/src/lib.rs", root)];
    files.extend(paths.iter().zip(modules).map(|(path, (_, text))| (path.as_str(), *text)));
    record(&files)
}

const ROOT: &str = "\
#![no_std]
mod a;
mod b;
#[cfg(feature = \"more\")]
mod c;
pub const TABLE: u32 = a::first();
";
const A: &str = "\
use crate::b::{self, Two, helper as help};
const N: u32 = 1;
#[inline]
pub fn first() -> u32 {
    help(N) + b::M
}
impl Two for u32 {}
";
const B: &str = "\
use std::prelude::*;
pub const N: u32 = 2;
pub const M: u32 = 3;
pub fn helper(x: u32) -> u32 {
    x * N
}
pub trait Two {}
#[cfg(feature = \"more\")]
pub fn more() {}
macro_rules! square {
    ($x:expr) => { $x * $x * N };
}
pub fn squared(x: u32) -> u32 {
    square!(x)
}
";
const C: &str = "pub fn only() -> u32 {\n    7\n}\n";

fn base() -> SourceDigests {
    kernels(ROOT, &[("a", A), ("b", B), ("c", C)])
}

#[test]
fn what_the_compiler_does_not_see_changes_nothing() {
    for (from, to) in [
        ("#[inline]", "/// Documentation.\n// And a comment.\n#[inline]"),
        ("    help(N) + b::M", "help( N )\n        + /* three */ b::M"),
        ("impl Two", "#[cfg(test)]\nmod tests {\n    fn f() {}\n}\nimpl Two"),
        ("impl Two", "#[cfg(not(target_arch = \"nvptx64\"))]\npub fn of_the_host() {}\nimpl Two"),
        (
            "use crate::b::{self, Two, helper as help};",
            "use crate::b::{self, helper as help, Two};",
        ),
        (
            "use crate::b::{self, Two, helper as help};",
            "use super::b;\nuse b::{Two, helper as help};",
        ),
        ("help(N) + b::M", "help(N) + crate::b::M"),
        ("help(N) + b::M", "help(N) + super::b::M"),
    ] {
        let changed = A.replacen(from, to, 1);
        assert_ne!(changed, A);
        let same = kernels(ROOT, &[("a", &changed), ("b", B), ("c", C)]);
        assert_eq!(same, base(), "{to}");
    }
    let commented = KERNELS.replace("[dep", "# Others' crates.\n[dep");
    let files = |manifest| {
        record(&[("kernels/Cargo.toml", manifest), ("kernels/src/lib.rs", "pub fn f() {}")])
    };
    assert_eq!(files(&commented), files(KERNELS));
}

#[test]
fn what_the_compiler_sees_changes_the_digest() {
    for (from, to) in [
        ("= 1;", "= 4;"),
        ("help(N) +", "help(N) -"),
        ("#[inline]", "#[inline(never)]"),
        ("#[inline]", "#[cfg(feature = \"more\")]"),
        ("const N: u32 = 1", "const N: u16 = 1"),
        ("impl Two for u32 {}", "impl Two for u64 {}"),
        ("helper as help", "squared as help"),
        ("b::M", "b::N"),
        ("help(N)", "help(b::N)"),
        ("help(N) + b::M", "help(N) + { const M: u32 = 9; M }"),
        ("const N: u32 = 1;", "use crate::b::N;"),
        ("help(N)", "help(line!())"),
    ] {
        let changed = A.replacen(from, to, 1);
        assert_ne!(changed, A);
        assert_ne!(kernels(ROOT, &[("a", &changed), ("b", B), ("c", C)]), base(), "{to}");
    }
    for (from, to) in [
        ("#[cfg(feature = \"more\")]", "#[cfg(feature = \"less\")]"),
        ("#[cfg(feature = \"more\")]\n", ""),
        ("#![no_std]", "#![no_std]\n#![feature(abi_ptx)]"),
        ("a::first()", "b::M"),
    ] {
        let changed = ROOT.replacen(from, to, 1);
        assert_ne!(changed, ROOT);
        assert_ne!(kernels(&changed, &[("a", A), ("b", B), ("c", C)]), base(), "{to}");
    }
    let with_feature = KERNELS.replace("true", "true\nfeatures = [\"half\"]");
    let files = |manifest| {
        record(&[("kernels/Cargo.toml", manifest), ("kernels/src/lib.rs", "pub fn f() {}")])
    };
    assert_ne!(files(&with_feature), files(KERNELS));
}

#[test]
fn a_function_may_stand_in_any_file() {
    let only = "pub fn only() -> u32 {\n    7\n}\n";
    // Under the same condition as before.
    let with_d = format!("{ROOT}#[cfg(feature = \"more\")]\nmod d;\n");
    let moved = kernels(&with_d, &[("a", A), ("b", B), ("c", ""), ("d", only)]);
    assert_eq!(moved, base());
    // Without it.
    let text = B.to_owned() + only;
    assert_ne!(kernels(ROOT, &[("a", A), ("b", &text), ("c", "")]), base());

    // A whole file, and where others find it.
    let root = ROOT.replace("mod a;", "mod inner;").replace("a::first", "inner::a::first");
    let folder = [("inner/mod", "pub mod a;"), ("inner/a", A), ("b", B), ("c", C)];
    assert_eq!(kernels(&root, &folder), base());
}

/// A function that moves next to another constant of that name, or the other way around.
#[test]
fn names_count_by_what_they_mean() {
    let root = "#![no_std]\nmod a;\nmod b;\npub fn f() -> u32 { a::user() }\n";
    let with = |a: &str, b: &str| kernels(root, &[("a", a), ("b", b)]);
    let (one, two) = ("pub const N: u32 = 1;\n", "pub const N: u32 = 2;\n");
    let user = "pub fn user() -> u32 { N }\n";
    let before = with(&format!("{one}{user}"), two);
    // `root` finds it by an import where it is not.
    let a = |rest: &str| format!("pub use crate::b::user;\n{rest}");
    assert_ne!(with(&a(one), &format!("{two}{user}")), before);
    // It takes the same constant along.
    assert_eq!(with(&a(two), &format!("{one}{user}")), before);
    let imported = with(&a(one), &format!("use crate::a::N;\nmod c {{ {two} }}\n{user}"));
    assert_eq!(imported, before);
    let other = with(&a(one), &format!("use self::c::N;\nmod c {{ {two} }}\n{user}"));
    assert_ne!(other, before);
    // By `*`, through another module, and by a `use` in the function.
    let glob = with(&a(one), &format!("use crate::a::*;\nmod c {{ {two} }}\n{user}"));
    assert_eq!(glob, before);
    let again = format!("use crate::b::c::M;\n{}pub use self::d::N;\nmod d {{ {one} }}\n", a(""));
    let through = with(
        &again,
        &format!("pub mod c {{ pub const M: u32 = 2; }}\nuse crate::a::N;\n{user}{two}"),
    );
    assert_ne!(through, before);
    let inside = |path: &str| {
        with(&format!("pub fn user() -> u32 {{ use {path}::N; N }}\npub mod c {{ {one} }}"), two)
    };
    assert_ne!(inside("crate::b"), inside("crate::a::c"));

    // Functions of one name are told apart by what they mention themselves.
    let pair = |n: u32| format!("pub const N: u32 = {n};\npub fn get() -> u32 {{ N }}\n");
    let with = |user: &str| {
        let root = format!("#![no_std]\nmod a;\nmod b;\npub fn f() -> u32 {{ {user}::get() }}\n");
        kernels(&root, &[("a", &pair(1)), ("b", &pair(2))])
    };
    assert_ne!(with("a"), with("b"));
}

#[test]
fn traits_in_scope_count() {
    let root = "#![no_std]\nmod a;\nmod b;\nmod traits;\n";
    let traits = "pub trait One { fn go(&self) -> u32 { 1 } }\nimpl One for u32 {}\n\
                  pub trait Two { fn go(&self) -> u32 { 2 } }\nimpl Two for u32 {}\n\
                  pub trait Other { fn stay(&self) -> u32 { 2 } }\n";
    let user = "pub fn user(x: u32) -> u32 { x.go() }\n";
    let with = |a: &str, b: &str| kernels(root, &[("a", a), ("b", b), ("traits", traits)]);
    let of = |name: &str| format!("use crate::traits::{name};\n");
    let before = with(&(of("One") + user), &of("Two"));
    assert_ne!(with(&of("One"), &(of("Two") + user)), before);
    assert_eq!(with("", &(of("One") + user)), before);
    assert_eq!(with("", &(of("One") + &of("Other") + user)), before);
    assert_ne!(with("", &("use other::Thing;\n".to_owned() + &of("One") + user)), before);
}

#[test]
fn macros_count_by_what_they_name_where_they_are_used() {
    let root = "#![no_std]\n#[macro_use]\nmod macros;\nmod a;\nmod b;\n";
    let macros = "macro_rules! get { () => { N }; }\n";
    let user = "pub fn user() -> u32 { get!() }\n";
    let with =
        |a: &str, b: &str, macros: &str| kernels(root, &[("a", a), ("b", b), ("macros", macros)]);
    let (one, two) = ("const N: u32 = 1;\n", "const N: u32 = 2;\n");
    let before = with(&format!("{one}{user}"), two, macros);
    assert_ne!(with(one, &format!("{two}{user}"), macros), before);
    assert_eq!(with(two, &format!("{one}{user}"), macros), before);
    assert_ne!(with(&format!("{one}{user}"), two, &macros.replace('N', "N + 1")), before);

    // A macro that declares what another item names.
    let make = "macro_rules! make { ($n:ident, $x:literal) => { pub const $n: u32 = $x; }; }\n";
    let (one, two) = ("make!(N, 1);\n", "make!(N, 2);\n");
    let user = "pub fn user() -> u32 { N }\n";
    let before = with(&format!("{one}{user}"), two, make);
    assert_ne!(with(one, &format!("{two}{user}"), make), before);
}

/// Kernels find items of another crate by their paths.
#[test]
fn a_dependency_counts_by_paths_where_names_are_not_enough() {
    let with = |a: &str, b: &str| {
        record(&[
            ("kernels/Cargo.toml", KERNELS),
            ("kernels/src/lib.rs", "pub fn f() -> u32 { std::a::get() }"),
            ("std/Cargo.toml", STD),
            ("std/src/lib.rs", "pub mod a;\npub mod b;\n"),
            ("std/src/a.rs", a),
            ("std/src/b.rs", b),
        ])
    };
    let (one, two) = ("pub fn get() -> u32 { 1 }\n", "pub fn get() -> u32 { 2 }\n");
    assert_ne!(with(one, two), with(two, one));
    assert_ne!(with(one, "pub use crate::a::get;"), with("pub use crate::b::get;", two));
    let changed = with(one, "");
    assert_eq!(changed.0.len(), 2);
}

#[test]
fn included_files_count_unless_they_are_the_items_own() {
    let with = |root: &str, table: &str| {
        record(&[
            ("kernels/Cargo.toml", KERNELS),
            ("kernels/src/lib.rs", root),
            ("kernels/src/table.txt", table),
        ])
    };
    let table = "pub const TABLE: &str = include_str!(\"table.txt\");\n";
    assert_ne!(with(table, "one"), with(table, "two"));
    for own in ["\"lib.rs\"", "r\"lib.rs\""] {
        let own = format!("pub const TEXT: &str = include_str!({own});\n");
        assert_eq!(with(&own, ""), with(&format!("// A comment.\n{own}"), ""));
    }
    for name in [
        r##"r"table.txt""##,
        r##"r#"table.txt"#"##,
        r##""\x74able.txt""##,
        r##"concat!("table", r".txt")"##,
        r##"concat!(env!("CARGO_MANIFEST_DIR"), "/src/table.txt")"##,
    ] {
        let root = format!("pub const TABLE: &[u8] = include_bytes!({name});\n");
        let folder = tempfile::tempdir().unwrap();
        let src = folder.path().join("kernels/src");
        fs::create_dir_all(&src).unwrap();
        fs::write(folder.path().join("kernels/Cargo.toml"), KERNELS).unwrap();
        fs::write(src.join("lib.rs"), root).unwrap();
        fs::write(src.join("table.txt"), "one").unwrap();
        let before = SourceDigests::of(folder.path(), &["kernels"]).unwrap();
        fs::write(src.join("table.txt"), "two").unwrap();
        assert_eq!(before.changed(folder.path()), ["kernels"], "{name}");
    }
    // By a macro: the name is its user's, or its own.
    let given = "macro_rules! read { ($file:expr) => { include_str!($file) }; }\n\
                 pub const TABLE: &str = read!(r\"table.txt\");\n";
    assert_ne!(with(given, "one"), with(given, "two"));
    let fixed = "macro_rules! inner { () => { include_str!(\"table.txt\") }; }\n\
                 macro_rules! outer { () => { inner!() }; }\n\
                 pub const TABLE: &str = outer!();\n";
    assert_ne!(with(fixed, "one"), with(fixed, "two"));
    // A macro that shows its own file.
    let shows = "macro_rules! show { () => { include_str!(\"a.rs\") }; }\n";
    let shown = |a: &str| {
        let user = "pub const TEXT: &str = show!();\n";
        kernels("#[macro_use]\nmod a;\nmod b;\n", &[("a", a), ("b", user)])
    };
    assert_eq!(shown(shows), shown(&format!("// A comment.\n{shows}")));
    // By a file that is included itself.
    let nested = |table: &str| {
        record(&[
            ("kernels/Cargo.toml", KERNELS),
            ("kernels/src/lib.rs", "include!(\"code.in\");\n"),
            ("kernels/src/code.in", "const T: &str = include_str!(r\"table.txt\");"),
            ("kernels/src/table.txt", table),
        ])
    };
    assert_ne!(nested("one"), nested("two"));
    // A module.
    let module = |text: &str| {
        record(&[
            ("kernels/Cargo.toml", KERNELS),
            ("kernels/src/lib.rs", "#[path = r\"other.in\"]\nmod a;\n"),
            ("kernels/src/other.in", text),
        ])
    };
    assert_ne!(module("fn f() -> u32 { 1 }"), module("fn f() -> u32 { 2 }"));
}

/// What sees its line changes with the lines of its file, and nothing else does.
#[test]
fn lines_count_where_code_sees_them() {
    let root = "#![no_std]\n#[macro_use]\nmod macros;\nmod user;\nmod other;\n";
    let moves = |macros: &str, user: &str, expected: bool| {
        let with = |user: &str, other: &str| {
            kernels(root, &[("macros", macros), ("user", user), ("other", other)])
        };
        let other = "pub fn f() {}\n";
        let before = with(user, other);
        let is_moved = with(&format!("\n// A comment.\n{user}"), other) != before;
        assert_eq!(is_moved, expected, "{macros}{user}");
        assert_eq!(with(user, &format!("\n{other}")), before, "{macros}{user}");
    };
    for word in ["line!()", "column!()", "file!()", "core::panic::Location::caller()"] {
        moves("", &format!("pub fn f() -> u32 {{ g({word}) }}\n"), true);
        let here = format!("macro_rules! here {{ () => {{ {word} }}; }}\n");
        moves(&here, "pub fn f() -> u32 { g(here!()) }\n", true);
        moves(&here, "pub fn f() -> u32 { g(here) }\n", false);
        let through =
            format!("{here}macro_rules! through {{ ($x:expr) => {{ $x + here!() }}; }}\n");
        moves(&through, "pub fn f() -> u32 { g(through![1]) }\n", true);
        moves(&through, "use crate::here as now;\npub fn f() -> u32 { now!{} }\n", true);
        moves(&through, "const A: bool = through != here;\n", false);
    }
    let tracking = "#[track_caller]\npub fn place() -> u32 { 1 }\n";
    moves(tracking, "pub fn f() -> u32 { crate::macros::place() }\n", true);
    moves(tracking, "pub fn f() -> u32 { crate::macros::places() }\n", false);

    // A macro of another crate.
    let with = |user: &str| {
        record(&[
            ("kernels/Cargo.toml", KERNELS),
            ("kernels/src/lib.rs", user),
            ("std/Cargo.toml", STD),
            (
                "std/src/lib.rs",
                "#[macro_export]\nmacro_rules! here { () => { $crate::core::line!() }; }\n",
            ),
        ])
    };
    let user = "pub fn f() -> u32 { std::here!() }\n";
    assert_ne!(with(user), with(&format!("\n{user}")));
    let user = "pub fn f() -> u32 { std::there!() }\n";
    assert_eq!(with(user), with(&format!("\n{user}")));
}

/// The crates that decide about the kernels of this workspace.
const CRATES: [&str; 6] = [
    "crates/cuda_builder",
    "crates/cuda_std",
    "crates/cuda_std_macros",
    "crates/ptx_archive",
    "crates/ptx_syntax",
    "kernels-gpu",
];

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap().path();
        let copied = to.join(entry.file_name().unwrap());
        match entry.is_dir() {
            true => copy(&entry, &copied),
            false => assert!(fs::copy(&entry, copied).is_ok()),
        }
    }
}

/// The workspace's own sources, edited as they will be.
#[test]
fn reworded_comments_and_moved_kernels_rebuild_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    let copied = folder.path();
    for path in CRATES {
        copy(&root.join(path).join("src"), &copied.join(path).join("src"));
        fs::copy(root.join(path).join("Cargo.toml"), copied.join(path).join("Cargo.toml")).unwrap();
    }
    let digests = SourceDigests::of(copied, &CRATES).unwrap();
    assert_eq!(digests, SourceDigests::of(&root, &CRATES).unwrap());
    let unchanged = [""; 0];
    let edit = |path: &str, from: &str, to: &str| {
        let path = copied.join(path);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{}: no `{from}`", path.display());
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
    };

    // Comments.
    for (path, from) in [
        ("crates/cuda_std/src/shared.rs", "/// "),
        ("crates/cuda_std/src/warp.rs", "/// "),
        ("crates/cuda_std_macros/src/kernel.rs", "//! "),
        ("crates/cuda_builder/src/builder.rs", "/// "),
        ("crates/ptx_syntax/src/scan.rs", "// "),
        ("kernels-gpu/src/ladder/f32/tile2d.rs", "//! "),
        ("kernels-gpu/src/ladder/tensor/sm_90a/wgmma_persistent.rs", "// SAFETY: "),
    ] {
        edit(path, from, &format!("{from}In other words, "));
    }
    assert_eq!(digests.changed(copied), unchanged);

    // A kernel with its constants, to a file of its own.
    let roofline = "kernels-gpu/src/utility/roofline.rs";
    let text = fs::read_to_string(copied.join(roofline)).unwrap();
    let constants = text.find("/// Threads per block of [`peak_copy()`]").unwrap();
    let others = text.find("/// Sums of [`peak_ffma()`]").unwrap();
    let kernel = text.find("/// Copies [`COPY_PER_BLOCK`]").unwrap();
    let (stays, moves) = (
        [&text[..constants], &text[others..kernel]].concat(),
        [&text[constants..others], &text[kernel..]].concat(),
    );
    fs::write(copied.join(roofline), stays.replace("use cuda_std::vec;\n", "")).unwrap();
    let uses = "use cuda_std::prelude::*;\nuse cuda_std::vec;\n\n";
    fs::write(copied.join("kernels-gpu/src/utility/peak_copy.rs"), [uses, &moves].concat())
        .unwrap();
    edit(
        "kernels-gpu/src/utility/mod.rs",
        "pub mod roofline;",
        "pub mod peak_copy;\npub mod roofline;",
    );
    assert_eq!(digests.changed(copied), unchanged);

    // Rungs to a folder of their own.
    let rungs = ["naive", "tile2d", "vec4"];
    let mut list = String::new();
    for rung in rungs {
        let from = copied.join(format!("kernels-gpu/src/ladder/f32/{rung}.rs"));
        let to = copied.join(format!("kernels-gpu/src/ladder/f32/rungs/{rung}.rs"));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(from, to).unwrap();
        edit("kernels-gpu/src/ladder/f32/mod.rs", &format!("pub mod {rung};\n"), "");
        list += &format!("pub mod {rung};\n");
    }
    fs::write(copied.join("kernels-gpu/src/ladder/f32/rungs.rs"), list).unwrap();
    edit(
        "kernels-gpu/src/ladder/f32/mod.rs",
        "pub mod regtile;",
        "pub mod regtile;\npub mod rungs;",
    );
    assert_eq!(digests.changed(copied), unchanged);

    // What changes code is seen, and the crate is named.
    for (path, from, to) in [
        ("kernels-gpu/src/ladder/f32/rungs/tile2d.rs", "const BM: u32 = 128", "const BM: u32 = 64"),
        (
            "kernels-gpu/src/utility/peak_copy.rs",
            "+ thread::thread_idx_x",
            "- thread::thread_idx_x",
        ),
        (
            "kernels-gpu/src/ladder/f32/mod.rs",
            "target_feature = \"sm_90a\"",
            "target_feature = \"sm_90\"",
        ),
        ("crates/cuda_std/src/shared.rs", "= \"st.shared\"", "= \"st.volatile.shared\""),
        ("crates/cuda_std/Cargo.toml", "alloc = []", "alloc = [\"half\"]"),
    ] {
        let before = fs::read_to_string(copied.join(path)).unwrap();
        edit(path, from, to);
        let changed = digests.changed(copied);
        assert!(changed.len() == 1 && path.starts_with(changed[0]), "{path}: {changed:?}");
        fs::write(copied.join(path), before).unwrap();
    }
    assert_eq!(digests.changed(copied), unchanged);
}
