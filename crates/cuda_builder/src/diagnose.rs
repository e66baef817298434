//! What LLVM cannot compile, and where it is in the source: LLVM itself says neither.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use ptx_syntax::source::{Place, is_library};

use crate::CudaBuilderError;

/// How rustc begins what its LLVM says before it gives up.
const LLVM_ERROR: &str = "LLVM ERROR: ";

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
        help: "take kernels out until it compiles, and write what the last one does another way"
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
        assert!(other.contains("(LLVM: unsupported library call operation); take"), "{other}");
        assert_eq!(llvm_error("error: mismatched types"), None);
    }
}
