//! What macros see of the place where they are used.
//!
//! `line!()` in a macro gives the user's line. A file that a macro includes lies beside the user's.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::tokens::{Kind, Tokens};

/// What some code, or the body of a macro, sees of its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expansion {
    /// Whether it sees its lines.
    pub sees_place: bool,
    /// Whether it includes a file.
    pub includes: bool,
    /// Strings that may name that file.
    pub strings: BTreeSet<String>,
}

impl Expansion {
    /// Looks through the body of a macro.
    pub fn of(tokens: &Tokens, range: &Range<usize>) -> Self {
        Expansion {
            sees_place: sees_place(tokens, range),
            includes: range.clone().any(|at| includes(tokens, at).is_some()),
            strings: strings(tokens, range.clone()).collect(),
        }
    }

    pub fn join(&mut self, other: &Expansion) {
        self.sees_place |= other.sees_place;
        self.includes |= other.includes;
        if other.includes {
            self.strings.extend(other.strings.iter().cloned());
        }
    }
}

/// The `macro_rules!` of all crates, by name, and functions with `#[track_caller]`.
#[derive(Default)]
pub struct Macros {
    all: BTreeMap<String, (Expansion, BTreeSet<String>)>,
    tracking: BTreeSet<String>,
}

impl Macros {
    /// Adds those of a file. Macros in functions count, and so do macros of tests.
    pub fn add(&mut self, tokens: &Tokens) {
        for at in 0..tokens.tokens.len() {
            match tokens.get(at).first {
                b'm' if tokens.is(at, "macro_rules") && tokens.is(at + 1, "!") => {
                    let Some(name) = tokens.word(at + 2) else { continue };
                    let body = at + 3..tokens.after(at + 3);
                    let (own, calls) = self.all.entry(name.to_owned()).or_default();
                    own.join(&Expansion::of(tokens, &body));
                    calls.extend(used(tokens, body).map(str::to_owned));
                }
                b't' if tokens.is(at, "track_caller") => {
                    let function = (at..tokens.tokens.len()).find(|at| tokens.is(*at, "fn"));
                    let name = function.and_then(|at| tokens.word(at + 1));
                    self.tracking.extend(name.map(str::to_owned));
                }
                _ => {}
            }
        }
    }

    /// Adds another name of what has `name`.
    pub fn add_alias(&mut self, alias: &str, name: &str) {
        if alias != name {
            self.all.entry(alias.to_owned()).or_default().1.insert(name.to_owned());
        }
    }

    /// What the users of any macro of this name see of their place.
    pub fn expansion(&self, name: &str) -> Expansion {
        let mut found = Expansion::default();
        let mut visited = BTreeSet::new();
        let mut open = vec![name];
        while let Some(name) = open.pop() {
            if let Some((own, calls)) = self.all.get(name)
                && visited.insert(name)
            {
                found.join(own);
                open.extend(calls.iter().map(String::as_str));
            }
        }
        found
    }

    /// Whether code mentions a function that sees the line of its call.
    pub fn tracks(&self, tokens: &Tokens, range: &Range<usize>) -> bool {
        let mut words = range.clone().filter_map(|at| tokens.word(at));
        !self.tracking.is_empty() && words.any(|word| self.tracking.contains(word))
    }
}

/// Whether code can see where it stands.
pub fn sees_place(tokens: &Tokens, range: &Range<usize>) -> bool {
    range.clone().any(|at| match tokens.get(at).first {
        b'l' | b'c' | b'f' | b'm' | b't' => match tokens.word(at) {
            Some("line" | "column" | "file" | "module_path") => tokens.is(at + 1, "!"),
            Some("type_name" | "type_name_of_val" | "caller") => true,
            _ => false,
        },
        _ => false,
    })
}

/// The argument of an `include!` or its like that begins here.
pub fn includes(tokens: &Tokens, at: usize) -> Option<Range<usize>> {
    let is_include = tokens.get(at).first == b'i'
        && matches!(tokens.word(at), Some("include" | "include_str" | "include_bytes"))
        && tokens.is(at + 1, "!");
    is_include.then(|| at + 3..tokens.after(at + 2).saturating_sub(1).max(at + 3))
}

/// The names of macros that are used.
pub fn used(tokens: &Tokens, mut range: Range<usize>) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        range.find_map(|at| {
            let is_used = tokens.is(at + 1, "!") && tokens.get(at + 2).kind == Kind::Open;
            tokens.word(at).filter(|_| is_used)
        })
    })
}

pub fn strings(tokens: &Tokens, range: Range<usize>) -> impl Iterator<Item = String> {
    range.filter_map(|at| unquoted(tokens, at))
}

/// The text of a string, raw or not.
pub fn unquoted(tokens: &Tokens, at: usize) -> Option<String> {
    let token = tokens.get(at);
    let text = tokens.text(token);
    match (token.kind, token.first) {
        (Kind::Literal, b'r') => {
            let inside = text[1..].trim_matches('#');
            Some(inside.strip_prefix('"')?.strip_suffix('"')?.to_owned())
        }
        (Kind::Literal, b'"') => unescaped(text.strip_prefix('"')?.strip_suffix('"')?),
        _ => None,
    }
}

/// A string without its escapes.
fn unescaped(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let code = match chars.next()? {
            'n' => '\n'.into(),
            'r' => '\r'.into(),
            't' => '\t'.into(),
            '0' => 0,
            'x' => {
                let digits: String = chars.by_ref().take(2).collect();
                u32::from_str_radix(&digits, 16).ok()?
            }
            'u' => {
                let digits: String = chars.by_ref().take_while(|c| *c != '}').collect();
                u32::from_str_radix(&digits.replace(['{', '_'], ""), 16).ok()?
            }
            // The next line goes on here.
            '\n' => {
                chars = chars.as_str().trim_start().chars();
                continue;
            }
            other => other.into(),
        };
        out.push(char::from_u32(code)?);
    }
    Some(out)
}

/// The text of a string, of `concat!`, or of `env!("CARGO_MANIFEST_DIR")`, which is `folder`.
pub fn constant(tokens: &Tokens, range: Range<usize>, folder: &str) -> Option<String> {
    if let Some(text) = unquoted(tokens, range.start) {
        return Some(text);
    }
    let name = range.clone().find(|at| tokens.is(*at + 1, "!"))?;
    let inside = name + 3..tokens.after(name + 2).saturating_sub(1);
    match tokens.word(name)? {
        "concat" => {
            let mut out = String::new();
            let mut at = inside.start;
            while at < inside.end {
                let mut end = at;
                while end < inside.end && !tokens.is(end, ",") {
                    end = tokens.after(end);
                }
                out += &constant(tokens, at..end, folder)?;
                at = end + 1;
            }
            Some(out)
        }
        "env" if unquoted(tokens, inside.start)? == "CARGO_MANIFEST_DIR" => Some(folder.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_all_kinds() {
        for (text, expected) in [
            (r##""a.txt""##, Some("a.txt")),
            (r##"r"a.txt""##, Some("a.txt")),
            (r###"r##"a#".txt"##"###, Some("a#\".txt")),
            (
                r#""\x61\u{2e}t\
                xt""#,
                Some("a.txt"),
            ),
            (r#""a\\b\"c\n""#, Some("a\\b\"c\n")),
            (r#"concat!("a", r".t" , "xt",)"#, Some("a.txt")),
            (
                r#"::core::concat!(env!("CARGO_MANIFEST_DIR"), "/", concat!("a", ".txt"))"#,
                Some("/k/a.txt"),
            ),
            (r#"concat!(env!("OUT_DIR"), "/a.txt")"#, None),
            ("$file", None),
            ("b\"a.txt\"", None),
        ] {
            let tokens = Tokens::of(text.to_owned());
            let found = constant(&tokens, 0..tokens.tokens.len(), "/k");
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
