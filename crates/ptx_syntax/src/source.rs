//! Which line of which source a line of PTX comes from, where a compiler has written it down
//! (`.loc` and `.file`, and the calls that were inlined, in LLVM's comments behind `.loc`).

use std::borrow::Cow;
use std::fmt;

/// A place in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as the compiler knows it.
    pub file: String,
    /// The line in it, from 1.
    pub line: u32,
    /// The column, from 1; 0 where it is not known.
    pub column: u32,
    /// The place in a library that was inlined here, if there is one.
    pub inlined: Option<Box<Place>>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { file, line, column, inlined } = self;
        match column {
            0 => write!(f, "{file}:{line}")?,
            _ => write!(f, "{file}:{line}:{column}")?,
        }
        match inlined {
            Some(inlined) => write!(f, ", in {inlined}"),
            None => Ok(()),
        }
    }
}

/// Whether a file belongs to a library: Rust's own, `cuda_std`, or a crate of a registry.
pub fn is_library(file: &str) -> bool {
    let file = file.replace('\\', "/");
    ["/rustlib/src/rust/library/", "/cuda_std/src/", "/registry/src/"]
        .iter()
        .any(|library| file.contains(library))
        || file.starts_with("/rustc/")
}

/// The place that line `line` of a text comes from, counted from 1. `lines` are all of the text.
///
/// An instruction that was inlined from a [library](is_library) counts for the call outside of it,
/// where the text says which that is (rustc's `-Zverbose-asm`), or else for the place before it
/// that is in none, if the function has one.
pub fn place<S: AsRef<str>>(lines: &[S], line: u32) -> Option<Place> {
    let before = lines.get(..usize::try_from(line).ok()?)?.iter().rev().map(|line| line.as_ref());
    // As far as to the head of the function.
    let is_head = |line: &str| {
        let line = line.trim_start();
        line.starts_with('.') && (line.contains(".entry") || line.contains(".func"))
    };
    let body = before.take_while(|line| !is_head(line));
    let mut innermost = None;
    for text in body {
        let Some([file, line, column]) = location(text) else { continue };
        let own = file_name(lines, file).map(|file| (file, line, column));
        // Line 0 is what no line of the source says.
        let frames = own.into_iter().chain(callers(text)).filter(|&(_, line, _)| line != 0);
        let mut places = frames.map(|(file, line, column)| Place {
            file: file.to_owned(),
            line,
            column,
            inlined: None,
        });
        let Some(first) = places.next() else { continue };
        if !is_library(&first.file) {
            return Some(first);
        }
        if let Some(caller) = places.find(|place| !is_library(&place.file)) {
            return Some(Place { inlined: Some(Box::new(first)), ..caller });
        }
        innermost.get_or_insert(first);
    }
    innermost
}

/// File, line and column of a `.loc`.
pub fn location(line: &str) -> Option<[u32; 3]> {
    let mut words = line.trim().strip_prefix(".loc")?.split([' ', '\t', ',']);
    let mut numbers = words.by_ref().filter(|word| !word.is_empty()).map(|word| word.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)])
}

/// What stands before each caller in LLVM's comments.
const INLINED_AT: &str = " @[ ";

/// The calls that the instructions behind a `.loc` were inlined at, from the inside out.
fn callers(line: &str) -> impl Iterator<Item = (&str, u32, u32)> {
    line.split(INLINED_AT).skip(1).filter_map(caller)
}

/// File, line and column of one of them: `src/lib.rs:12:5 ] ]`.
fn caller(text: &str) -> Option<(&str, u32, u32)> {
    let text = text.trim_end().trim_end_matches([' ', ']']);
    let (rest, last) = text.rsplit_once(':')?;
    let last = last.parse().ok()?;
    let in_line = rest.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?)));
    Some(in_line.map_or((rest, last, 0), |(file, line)| (file, line, last)))
}

/// The text with each caller's file as `resolve` names it: LLVM names it relative to the folder
/// that its crate was compiled in.
pub fn with_callers<'a>(text: &'a str, resolve: impl Fn(&str) -> Option<String>) -> Cow<'a, str> {
    if !text.contains(INLINED_AT) {
        return Cow::Borrowed(text);
    }
    let mut named = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let mut parts = line.split(INLINED_AT);
        named += parts.next().unwrap_or_default();
        for part in parts {
            named += INLINED_AT;
            let file = caller(part).map(|(file, ..)| file).filter(|_| location(line).is_some());
            match file.and_then(|file| Some((file, resolve(file)?))) {
                Some((file, name)) => {
                    named += &name;
                    named += &part[file.len()..];
                }
                None => named += part,
            }
        }
    }
    Cow::Owned(named)
}

/// The name in the `.file` of this number.
fn file_name<S: AsRef<str>>(lines: &[S], number: u32) -> Option<&str> {
    // LLVM writes them last.
    let mut files = lines.iter().rev().filter_map(|line| file(line.as_ref()));
    files.find(|(found, _)| *found == number).map(|(_, name)| name)
}

/// The number and the name of a `.file`.
pub fn file(line: &str) -> Option<(u32, &str)> {
    let rest = line.trim().strip_prefix(".file")?.trim_start();
    let (number, name) = rest.split_once(char::is_whitespace)?;
    Some((number.parse().ok()?, name.split('"').nth(1)?))
}

/// The text without `.loc`, `.file`, sections and what else only debuggers read.
pub fn without_places(text: &str) -> String {
    let is_label = |line: &str| {
        let name = line.split_whitespace().next().and_then(|word| word.strip_prefix("$L__"));
        let name = name.and_then(|name| name.strip_suffix(':'));
        let name = name.map(|name| name.trim_end_matches(|c: char| c.is_ascii_digit()));
        matches!(name, Some("tmp" | "func_begin" | "func_end"))
    };
    let is_place = |line: &str| {
        let line = line.trim();
        let first = line.split_whitespace().next();
        matches!(first, Some(".loc" | ".file" | ".section")) || is_label(line)
    };
    text.split_inclusive('\n').filter(|line| !is_place(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
.target sm_80
.visible .entry k(
)
{
$L__func_begin0:
\t.loc\t1 3 0
\t.reg .b32 %r<2>;
$L__tmp0:
\t.loc\t2 9 7, function_name $L__info_string0, inlined_at 1 4 2
\t{ // callseq 0, 0
\tmov.b32 %r1, {%h1, %h2};
\t} // callseq 0
\t.loc 1 0 5
\tret;
$L__tmp1:
$L__func_end0:
}
\t.section\t.debug_macinfo\t{\t}
\t.file\t1 \"/home/me/my kernels/src/lib.rs\"
\t.file\t2 \"/home/me/.rustup/x/lib/rustlib/src/rust/library/core/src/num.rs\"
";

    #[test]
    fn places_are_those_of_the_user() {
        let lines: Vec<&str> = TEXT.lines().collect();
        let at = |line| place(&lines, line).map(|place| place.to_string());
        let own = Some("/home/me/my kernels/src/lib.rs:3".to_owned());
        assert_eq!((at(1), at(4), at(5)), (None, None, None));
        assert_eq!((at(7), at(12), at(14), at(99)), (own.clone(), own.clone(), own, None));
        let library = TEXT.replace("\t.loc\t1 3 0\n", "");
        let lines: Vec<&str> = library.lines().collect();
        let found = place(&lines, 9).unwrap();
        assert!(found.file.ends_with("core/src/num.rs"), "{found}");
        assert_eq!((found.line, found.column), (9, 7));
    }

    #[test]
    fn inlined_libraries_count_for_their_callers() {
        let text = "\
.visible .entry k()
{
\t.loc\t1 3 0                          // src/lib.rs:3:0
\t.loc\t2 9 7                          // src/num.rs:9:7 @[ std/shared.rs:5:2 @[ src/lib.rs:4:2 @[ src/lib.rs:3:1 ] ] ]
\t.loc\t2 0 7                          // src/num.rs:0:7 @[ std/shared.rs:6:2 @[ src/lib.rs:5 ] ]
\tret;
}
\t.file\t1 \"/k/src/lib.rs\"
\t.file\t2 \"/x/lib/rustlib/src/rust/library/core/src/num.rs\"
";
        let resolve = |file: &str| match file {
            "src/lib.rs" => Some("/k/src/lib.rs".to_owned()),
            "std/shared.rs" => Some("/cuda_std/src/shared.rs".to_owned()),
            _ => None,
        };
        let text = with_callers(text, resolve);
        assert!(
            text.contains(
                "// src/num.rs:9:7 @[ /cuda_std/src/shared.rs:5:2 @[ /k/src/lib.rs:4:2 @["
            )
        );
        assert!(text.contains("@[ /k/src/lib.rs:5 ] ]\n\tret"), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        let at = |line| place(&lines, line).unwrap().to_string();
        assert_eq!(at(3), "/k/src/lib.rs:3");
        let library = "/x/lib/rustlib/src/rust/library/core/src/num.rs:9:7";
        assert_eq!(at(4), format!("/k/src/lib.rs:4:2, in {library}"));
        assert_eq!(at(6), "/k/src/lib.rs:5, in /cuda_std/src/shared.rs:6:2");
    }

    #[test]
    fn what_only_debuggers_read_can_be_left_out() {
        let expected = "\
.target sm_80
.visible .entry k(
)
{
\t.reg .b32 %r<2>;
\t{ // callseq 0, 0
\tmov.b32 %r1, {%h1, %h2};
\t} // callseq 0
\tret;
}
";
        assert_eq!(without_places(TEXT), expected);
        assert_eq!(without_places(expected), expected);
    }
}
