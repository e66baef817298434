//! The digest of a kernel, by which two builds are compared.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use sha2::{Digest, Sha256};

use ptx_syntax::outline::declarations;
use ptx_syntax::scan::{Kind, Lexeme, lexemes};
use ptx_syntax::{extract, extract_all};

/// The SHA-256 of a kernel and of what it reaches, as 64 hex digits.
///
/// The digest is of what [`extract`] cuts out, without comments, white space and places in the
/// source. Names count only where the kernel is linked by them: its own name, arrays, functions,
/// labels and virtual registers are numbered in the order in which they appear.
pub fn digest(text: &str, kernel: &str) -> Option<String> {
    Some(of_part(&extract(text, kernel)?))
}

/// The [`digest`] of each kernel of a text, by its name.
pub fn digests(text: &str) -> BTreeMap<&str, String> {
    extract_all(text).into_iter().map(|(name, part)| (name, of_part(&part))).collect()
}

pub(crate) fn of_part(part: &str) -> String {
    let digest = Sha256::digest(canonical(part));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The words of a part that decide what a driver makes of it, a line for each.
fn canonical(part: &str) -> String {
    let words: Vec<_> = lexemes(part).filter(|lexeme| lexeme.kind != Kind::Comment).collect();
    let mut names = Names::of(part, &words);
    let mut canonical = String::with_capacity(part.len());
    let mut words = words.into_iter().peekable();
    let mut line = 0;
    while let Some(word) = words.next() {
        let is_first = word.line != line;
        line = word.line;
        let is_colon = |next: &Lexeme<'_>| next.kind == Kind::Punct(':');
        match word.text {
            // Places end with their lines.
            ".loc" | ".file" if is_first => {
                while words.next_if(|one| one.line == line).is_some() {}
            }
            label if names.is_unused(label) && words.next_if(is_colon).is_some() => {}
            text if word.kind == Kind::Word => canonical.extend([&*names.of_word(text), "\n"]),
            text => canonical.extend([text, "\n"]),
        }
    }
    canonical
}

/// The names of a part, numbered in the order in which they appear.
struct Names<'a> {
    /// What the part declares, and nobody else knows by its name.
    own: HashSet<&'a str>,
    /// How registers begin: `%rd`.
    registers: HashSet<&'a str>,
    /// Labels that some instruction names.
    labels: HashSet<&'a str>,
    numbers: HashMap<&'a str, usize>,
    counts: HashMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    fn of(part: &'a str, words: &[Lexeme<'a>]) -> Self {
        let declared = declarations(part).filter(|one| !one.is_linked() || one.is_entry());
        let own = declared.filter_map(|one| one.name()).collect();
        let before = |c| words.windows(2).filter(move |pair| pair[1].kind == Kind::Punct(c));
        let registers = before('<').map(|pair| pair[0].text);
        let labels = words.windows(2).filter(|pair| pair[1].kind != Kind::Punct(':'));
        Names {
            own,
            registers: registers.filter(|text| text.starts_with('%')).collect(),
            labels: labels.map(|pair| pair[0].text).filter(|text| text.starts_with('$')).collect(),
            numbers: HashMap::new(),
            counts: HashMap::new(),
        }
    }

    /// Whether it is a label for debuggers.
    fn is_unused(&self, word: &str) -> bool {
        word.starts_with("$L__") && !self.labels.contains(word)
    }

    fn of_word(&mut self, word: &'a str) -> Cow<'a, str> {
        // No name has this character.
        const SYMBOL: &str = "#";
        const DEPOT: &str = "__local_depot";
        const PARAM: &str = "_param_";
        let letters = word.trim_end_matches(|c: char| c.is_ascii_digit());
        if self.own.contains(word) {
            return self.number(SYMBOL, word).into();
        }
        if letters != word && self.registers.contains(letters) {
            return self.number(letters, word).into();
        }
        if word.starts_with('$') {
            return self.number("$", word).into();
        }
        if letters == DEPOT {
            return self.number(DEPOT, word).into();
        }
        match word.rfind(PARAM).map(|at| word.split_at(at)) {
            Some((function, rest)) if self.own.contains(function) => {
                (self.number(SYMBOL, function) + rest).into()
            }
            _ => word.into(),
        }
    }

    fn number(&mut self, kind: &'a str, name: &'a str) -> String {
        let counts = &mut self.counts;
        let number = *self.numbers.entry(name).or_insert_with(|| {
            let count = counts.entry(kind).or_default();
            *count += 1;
            *count
        });
        format!("{kind}{number}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel with two arrays, and a function that it calls.
    const TEXT: &str = "\
.version 7.0
.shared .align 128 .b8 k_shared_0[64];
.shared .align 128 .b8 k_shared_1[32];
.func _RN4mine6helper(.param .b32 _RN4mine6helper_param_0)
{
.reg .b32 %r<3>;
ld.param.b32 %r1, [_RN4mine6helper_param_0];
$L__BB0_1:
@%p bra $L__BB0_1;
ret;
}
.visible .entry k(
.param .u64 k_param_0
)
{
.reg .b32 %r<5>;
mov.u32 %r3, k_shared_0;
mov.u32 %r1, k_shared_1;
mov.u32 %r2, %tid.x;
mov.u32 %r4, %envreg1;
ld.param.u64 %rd1, [k_param_0];
call _RN4mine6helper, (p);
ret;
}
";

    #[test]
    fn names_and_places_do_not_count() {
        let expected = digest(TEXT, "k");
        assert_eq!(expected.as_ref().map(String::len), Some(64));
        assert_eq!(digests(TEXT).get("k"), expected.as_ref());
        let (head, rest) = TEXT.split_once(".shared").unwrap();
        let (first, rest) = rest.split_once(".shared").unwrap();
        let (second, rest) = rest.split_once(".func").unwrap();
        let in_front = format!("{head}.shared{second}.shared{first}.func{rest}");
        let entries = "{ret;}\n.visible .entry ";
        for (same, name) in [
            (TEXT.replace("k_shared_0", "b").replace("k_shared_1", "a"), "k"),
            (TEXT.replace("4mine6helper", "5yours2at6helper"), "k"),
            (
                TEXT.replace("entry k(", "entry longer(").replace("k_param", "longer_param"),
                "longer",
            ),
            (TEXT.replace("$L__BB0", "$L__BB7"), "k"),
            (TEXT.replace("%r3", "%r30").replace("%r1,", "%r12,"), "k"),
            (
                TEXT.replace(
                    "\nret;",
                    "\n.loc 1 2 3, function_name $L__info_string0\nret; // done",
                ),
                "k",
            ),
            (TEXT.replace("\nret;", "\n$L__tmp3:\n\tret;"), "k"),
            (TEXT.replace(".visible .entry ", &format!(".visible .entry b(){entries}")), "k"),
            (in_front, "k"),
        ] {
            assert_ne!(same, TEXT);
            assert_eq!(digest(&same, name), expected, "{same}");
        }
        assert_eq!(digest(TEXT, "none"), None);
    }

    #[test]
    fn what_a_driver_compiles_counts() {
        let expected = digest(TEXT, "k");
        for (from, to) in [
            (".version 7.0", ".version 7.1"),
            ("[64]", "[65]"),
            ("%r3, k_shared_0", "%r3, k_shared_1"),
            ("%tid.x", "%tid.y"),
            ("%envreg1", "%envreg2"),
            ("[k_param_0]", "[k_param_8]"),
            ("ld.param.b32", "ld.param.u32"),
            ("<3>", "<4>"),
            ("@%p ", ""),
            ("$L__BB0_1:\n@%p bra $L__BB0_1;", "@%p bra $L__BB0_1;\n$L__BB0_1:"),
        ] {
            assert_ne!(digest(&TEXT.replace(from, to), "k"), expected, "{from}");
        }
    }

    /// The host finds what is visible by its name, and other modules what is not defined here.
    #[test]
    fn names_that_are_linked_count() {
        for linkage in [".visible", ".extern", ".weak"] {
            let with = |name: &str| {
                let variable = format!("{linkage} .global .b32 {name}[4];\n.shared");
                let text = TEXT.replacen(".shared", &variable, 1);
                digest(&text.replace("%tid.x", name), "k")
            };
            assert_ne!(with("one"), with("other"), "{linkage}");
        }
    }
}
