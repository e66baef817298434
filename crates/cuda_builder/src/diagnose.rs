//! Why a build has failed, where cargo and rustc do not say it at first: a dependency that needs
//! `std`, packages that are not there offline. And what LLVM cannot compile, and where it is in the
//! source: LLVM itself says neither.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use ptx_syntax::source::{Place, is_library};

use crate::CudaBuilderError;

/// How rustc begins what its LLVM says before it gives up.
pub(crate) const LLVM_ERROR: &str = "LLVM ERROR: ";

/// What the backend has no code for: in an instruction of LLVM's IR, in words, and what to do.
const UNSUPPORTED: [(&[&str], &str, &str); 3] = [
    (&["fp128"], "arithmetic of `f128`", "use `f64`, or a pair of them"),
    (
        &["@llvm.fptoui.sat.i128", "@llvm.fptosi.sat.i128"],
        "the conversion of a float to an integer of 128 bits",
        "convert it to one of 64 bits, in two steps if it is larger",
    ),
    (&[" va_arg "], "variadic functions", "take a slice"),
];

/// What cargo or rustc stopped at, if what they say is not the cause. `library` is the folder of
/// the sources of Rust's library.
pub(crate) fn cause(errors: &str, crate_dir: &Path, library: &Path) -> Option<CudaBuilderError> {
    needs_library(errors).or_else(|| not_fetched(errors, crate_dir, library))
}

/// A crate that uses a library which is not built for a GPU.
fn needs_library(errors: &str) -> Option<CudaBuilderError> {
    const MISSING: &str = "error[E0463]: can't find crate for `";
    let (_, rest) = errors.split_once(MISSING)?;
    let library = quoted(rest, "")?.to_owned();
    let required = format!("`{library}` is required by `");
    let by = quoted(rest, &required).or_else(|| quoted(rest, "error: could not compile `"))?;
    let needed_by = by.to_owned();
    matches!(&*library, "std" | "alloc" | "test" | "proc_macro")
        .then_some(CudaBuilderError::NeedsLibrary { library, needed_by })
}

/// A package of Rust's library which cargo may not fetch.
fn not_fetched(errors: &str, crate_dir: &Path, library: &Path) -> Option<CudaBuilderError> {
    const MISSING: [&str; 3] = [
        "no matching package named `",
        "failed to download `",
        "failed to select a version for the requirement `",
    ];
    let package = MISSING.iter().find_map(|start| quoted(errors, start))?;
    let package = package.split(' ').next()?.to_owned();
    let lock = fs::read_to_string(library.join("Cargo.lock")).unwrap_or_default();
    let is_of_library = lock.contains(&format!("name = \"{package}\"\n"));
    let manifest = library.join("Cargo.toml");
    let vendored = quoted(errors, "directory source `").map(PathBuf::from);
    let is_offline = vendored.is_some() || errors.contains("offline");
    let crate_dir = crate_dir.to_owned();
    (is_of_library && is_offline).then_some(CudaBuilderError::NotFetched {
        package,
        manifest,
        vendored,
        crate_dir,
    })
}

/// What stands behind `start`, as far as to the next backtick.
fn quoted<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.split_once(start)?.1.split('`').next()
}

/// What LLVM said, if it was LLVM that gave up.
pub(crate) fn llvm_error(stderr: &str) -> Option<&str> {
    let at = stderr.find(LLVM_ERROR)? + LLVM_ERROR.len();
    stderr[at..].lines().next().map(str::trim)
}

/// The IR that rustc has written to this folder, and has not moved on, because LLVM gave up.
pub(crate) fn abandoned_ir(folder: &Path) -> String {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_ir = |path: &PathBuf| path.to_string_lossy().ends_with(".rcgu.ll");
    let mut all = String::new();
    for path in files.filter(is_ir) {
        all += &fs::read_to_string(&path).unwrap_or_default();
        // Nobody else asks for it, and the next failure is another one.
        let _ = fs::remove_file(path);
    }
    all
}

/// Looks in LLVM's IR for what it has no code for.
pub(crate) fn unsupported(message: &str, ir: &str) -> CudaBuilderError {
    let mut function = None;
    for line in ir.lines() {
        if let Some(definition) = line.strip_prefix("define ") {
            function = definition.split_once('@').and_then(|(_, rest)| rest.split_once('('));
        }
        let is_instruction = line.starts_with("  ");
        let found = UNSUPPORTED
            .iter()
            .find(|(marks, ..)| is_instruction && marks.iter().any(|mark| line.contains(mark)));
        if let Some(&(_, what, help)) = found {
            let name = function.map(|(name, _)| name.trim_matches('"'));
            return CudaBuilderError::Unsupported {
                what: what.to_owned(),
                function: name.map(|name| format!("{:#}", rustc_demangle::demangle(name))),
                place: place(ir, line),
                help: help.to_owned(),
            };
        }
    }
    CudaBuilderError::Unsupported {
        what: format!("something in this crate (LLVM: {message})"),
        function: None,
        place: None,
        help: "remove kernels until the crate compiles, then rewrite the one removed last"
            .to_owned(),
    }
}

/// The place that the `!dbg` of an instruction leads to: outside of Rust's library, if what was
/// inlined was inlined there.
fn place(ir: &str, instruction: &str) -> Option<Place> {
    let nodes: HashMap<&str, &str> = ir
        .lines()
        .filter(|line| line.starts_with('!'))
        .filter_map(|line| line.split_once(" = "))
        .collect();
    let (_, at) = instruction.split_once("!dbg ")?;
    let mut at = Some(at.split([',', ' ']).next()?);
    let mut innermost = None;
    while let Some(location) = at.and_then(|at| nodes.get(at)) {
        let number = |name| field(location, name).and_then(|value| value.parse().ok());
        let mut scope = nodes.get(field(location, "scope: ")?)?;
        while field(scope, "file: ").is_none() {
            scope = nodes.get(field(scope, "scope: ")?)?;
        }
        let file = nodes.get(field(scope, "file: ")?)?;
        let file = file.split_once("filename: \"")?.1.split('"').next()?.to_owned();
        let (line, column) = (number("line: ")?, number("column: ").unwrap_or(0));
        let place = Place { file, line, column, inlined: None };
        if !is_library(&place.file) {
            return Some(place);
        }
        innermost.get_or_insert(place);
        at = field(location, "inlinedAt: ");
    }
    innermost
}

/// The value of a field such as `line: 12`.
fn field<'a>(node: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = node.split_once(name)?;
    value.split([',', ')', ' ']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IR: &str = "\
define ptx_kernel void @fine(ptr %0) {
  ret void, !dbg !9
}
define internal void @_RNvCsl7InW07XhCl_1k4wide(double %0) {
  %1 = call i128 @llvm.fptoui.sat.i128.f64(double %0), !dbg !4
  ret void
}
!1 = !DIFile(filename: \"src/lib.rs\", directory: \"/k\")
!2 = !DIFile(filename: \"/x/lib/rustlib/src/rust/library/core/src/num.rs\", directory: \"\")
!3 = distinct !DISubprogram(name: \"convert\", scope: !7, file: !2, line: 7)
!4 = !DILocation(line: 70, column: 3, scope: !3, inlinedAt: !5)
!5 = !DILocation(line: 12, column: 9, scope: !6)
!6 = distinct !DILexicalBlock(scope: !8, line: 11)
!8 = distinct !DISubprogram(name: \"wide\", scope: !7, file: !1, line: 10)
";

    #[test]
    fn the_crate_that_needs_std_is_named() {
        let said = "error[E0463]: can't find crate for `std`\n  |\n  = note: the target may not support it\n";
        let by_note =
            format!("{said}  = note: `std` is required by `dep` because it does not declare\n");
        let last = "error: could not compile `other` (lib) due to 1 previous error\n";
        for (text, name) in [(by_note + last, "`dep`"), (said.to_owned() + last, "`other`")] {
            let error = needs_library(&text).unwrap().to_string();
            assert!(
                error.starts_with(name) && error.contains("default-features = false"),
                "{error}"
            );
            assert!(
                error.contains(&format!("`cargo tree -i {} ", name.trim_matches('`'))),
                "{error}"
            );
        }
        let alloc = needs_library(&(said.replace("std", "alloc") + last)).unwrap().to_string();
        assert!(alloc.contains("`CudaBuilder::alloc`"), "{alloc}");
        let own = "error[E0463]: can't find crate for `gone`\nerror: could not compile `k` (lib)\n";
        assert!(needs_library(own).is_none());
    }

    #[test]
    fn packages_of_the_library_that_are_not_there_are_named_with_what_to_type() {
        let library = tempfile::tempdir().unwrap();
        let lock = "[[package]]\nname = \"cfg-if\"\nversion = \"1.0.4\"\n";
        fs::write(library.path().join("Cargo.lock"), lock).unwrap();
        let manifest = library.path().join("Cargo.toml").display().to_string();
        let cause = |text: &str| {
            cause(text, Path::new("/k"), library.path()).map(|error| error.to_string())
        };
        let fetch = format!("`RUSTC_BOOTSTRAP=1 cargo fetch --locked --manifest-path {manifest}`");
        for said in [
            "error: no matching package named `cfg-if` found\nAs a reminder, you're using offline mode\n",
            "error: failed to download `cfg-if v1.0.4`\n\nCaused by:\n  but --offline was specified\n",
        ] {
            let error = cause(said).unwrap();
            assert!(error.contains("`cfg-if`") && error.contains(&fetch), "{error}");
        }
        let vendored = "error: no matching package named `cfg-if` found\nlocation searched: directory \
                        source `/k/vendor` (which is replacing registry `crates-io`)\n";
        let error = cause(vendored).unwrap();
        let vendor = format!("`RUSTC_BOOTSTRAP=1 cargo vendor --sync {manifest} /k/vendor`");
        assert!(error.contains(&vendor) && error.contains("in `/k`"), "{error}");
        assert_eq!(cause(&vendored.replace("cfg-if", "mine")), None);
        assert_eq!(cause("error: no matching package named `cfg-if` found"), None);
    }

    #[test]
    fn what_llvm_has_no_code_for_is_named_with_its_place() {
        let stderr =
            "   Compiling k\nrustc-LLVM ERROR: unsupported library call operation\nerror: no";
        let message = llvm_error(stderr).unwrap();
        assert_eq!(message, "unsupported library call operation");
        assert_eq!(
            unsupported(message, IR).to_string(),
            "the compiler has no code for the conversion of a float to an integer of 128 bits, in \
             `k::wide`, at src/lib.rs:12:9; convert it to one of 64 bits, in two steps if it is larger"
        );
        let other = unsupported(message, "").to_string();
        assert!(other.contains("(LLVM: unsupported library call operation); remove"), "{other}");
        assert_eq!(llvm_error("error: mismatched types"), None);
    }
}
