//! Which line of which source a line of PTX comes from, where a compiler has written it down
//! (`.loc` and `.file`).

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
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { file, line, column } = self;
        match column {
            0 => write!(f, "{file}:{line}"),
            _ => write!(f, "{file}:{line}:{column}"),
        }
    }
}

/// Where Rust's own library lies in its toolchains.
const LIBRARY: &str = "/lib/rustlib/src/rust/library/";

/// The place that line `line` of a text comes from, counted from 1. `lines` are all of the text.
///
/// An instruction that was inlined from Rust's own library counts for the place before it that is
/// none of it, if the function has one.
pub fn place<S: AsRef<str>>(lines: &[S], line: u32) -> Option<Place> {
    let before = lines.get(..usize::try_from(line).ok()?)?.iter().rev().map(|line| line.as_ref());
    // As far as to the head of the function.
    let is_head = |line: &str| {
        let line = line.trim_start();
        line.starts_with('.') && (line.contains(".entry") || line.contains(".func"))
    };
    let body = before.take_while(|line| !is_head(line));
    let mut innermost = None;
    for [file, line, column] in body.filter_map(location) {
        // Line 0 is what no line of the source says.
        let Some(file) = (line != 0).then(|| file_name(lines, file)).flatten() else { continue };
        let place = Place { file: file.to_owned(), line, column };
        if !file.replace('\\', "/").contains(LIBRARY) {
            return Some(place);
        }
        innermost.get_or_insert(place);
    }
    innermost
}

/// File, line and column of a `.loc`.
fn location(line: &str) -> Option<[u32; 3]> {
    let mut words = line.trim().strip_prefix(".loc")?.split([' ', '\t', ',']);
    let mut numbers = words.by_ref().filter(|word| !word.is_empty()).map(|word| word.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)])
}

/// The name in the `.file` of this number.
fn file_name<S: AsRef<str>>(lines: &[S], number: u32) -> Option<&str> {
    // LLVM writes them last.
    lines.iter().rev().find_map(|line| {
        let rest = line.as_ref().trim().strip_prefix(".file")?.trim_start();
        let (found, name) = rest.split_once(char::is_whitespace)?;
        (found.parse() == Ok(number)).then_some(())?;
        name.split('"').nth(1)
    })
}

/// The text without `.loc`, `.file`, sections and what else only debuggers read.
pub fn without_places(text: &str) -> String {
    let is_label = |line: &str| {
        let name = line.strip_prefix("$L__").and_then(|line| line.strip_suffix(':'));
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
