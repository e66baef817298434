//! One kernel of many.

use std::collections::{HashMap, HashSet};

use crate::outline::{Declaration, declarations, entry};
use crate::scan::{Kind, Lexeme, lexemes};

/// How LLVM begins the labels of a function; the number of the function follows.
const LABEL: &str = "$L__BB";

/// The part of a PTX text that this kernel needs: the head, the variables and functions that it
/// reaches, and its entry point.
///
/// A driver compiles this part in a fraction of the time that the whole text costs. The part
/// changes only with the kernel: variables and functions follow the order in which the kernel
/// mentions them, and labels have the number 0 in place of their function's.
pub fn extract(text: &str, kernel: &str) -> Option<String> {
    let entry = entry(text, kernel)?;
    let head: Vec<_> = declarations(text).take_while(|one| !one.is_entry()).collect();
    let part = Symbols::of(&head).part(&entry);
    // A compiler declares variables in front of all functions, but defines functions anywhere.
    Some(match part.missing {
        false => part.text,
        true => Symbols::of(&declarations(text).collect::<Vec<_>>()).part(&entry).text,
    })
}

/// What [`extract`] cuts out for each kernel of a text, with its name, in their order.
pub fn extract_all(text: &str) -> Vec<(&str, String)> {
    let all: Vec<_> = declarations(text).collect();
    let symbols = Symbols::of(&all);
    let entries = all.iter().filter(|one| one.is_entry());
    entries.filter_map(|entry| Some((entry.name()?, symbols.part(entry).text))).collect()
}

/// What a text declares.
struct Symbols<'t, 'a> {
    /// `.version`, `.target` and their like.
    directives: Vec<&'a str>,
    /// The functions and variables by their names, each with its body or value if it has one.
    named: HashMap<&'a str, &'t Declaration<'a>>,
}

/// The part of a text that a kernel needs.
struct Part {
    text: String,
    /// Whether a function is called or pointed to that is not declared, or not defined.
    missing: bool,
}

impl<'t, 'a> Symbols<'t, 'a> {
    fn of(all: &'t [Declaration<'a>]) -> Self {
        let mut symbols = Symbols { directives: Vec::new(), named: HashMap::new() };
        for declaration in all {
            match declaration.name() {
                Some(name) => {
                    let is_defined = |one: &&Declaration<'_>| one.function().is_some();
                    if !symbols.named.get(name).is_some_and(is_defined) {
                        symbols.named.insert(name, declaration);
                    }
                }
                None => symbols.directives.push(declaration.text),
            }
        }
        symbols
    }

    fn part(&self, entry: &Declaration<'a>) -> Part {
        let (seen, variables, functions) = (HashSet::new(), Vec::new(), Vec::new());
        let mut needed = Needed { seen, variables, functions };
        let words: Vec<_> = lexemes(entry.text).collect();
        needed.visit(self, &words);
        let mut text = String::new();
        let mut add = |part: &str| text.extend([part, "\n"]);
        self.directives.iter().for_each(|directive| add(directive));
        // Functions may call each other in a circle.
        for function in &needed.functions {
            add(function.prototype().as_deref().unwrap_or(function.text));
        }
        needed.variables.iter().for_each(|variable| add(variable.text));
        let defined = needed.functions.iter().filter(|one| one.function().is_some());
        defined.chain([&entry]).for_each(|function| add(&relabelled(function.text)));
        let params = entry.name().map(|name| format!("{name}_param_")).unwrap_or_default();
        let is_known = |name: &str| match self.named.get(name) {
            Some(found) => !found.is_function() || found.function().is_some(),
            None => name.starts_with(&params),
        };
        let missing = referred(&words).any(|name| !is_known(name))
            || needed.functions.iter().any(|one| one.function().is_none());
        Part { text, missing }
    }
}

/// What a kernel reaches, each behind what it reaches itself.
struct Needed<'t, 'a> {
    seen: HashSet<&'a str>,
    variables: Vec<&'t Declaration<'a>>,
    functions: Vec<&'t Declaration<'a>>,
}

impl<'t, 'a> Needed<'t, 'a> {
    fn visit(&mut self, symbols: &Symbols<'t, 'a>, from: &[Lexeme<'a>]) {
        for word in from.iter().filter(|lexeme| lexeme.kind == Kind::Word) {
            let Some(&declaration) = symbols.named.get(word.text) else { continue };
            if declaration.is_entry() || !self.seen.insert(word.text) {
                continue;
            }
            self.visit(symbols, &lexemes(declaration.text).collect::<Vec<_>>());
            match declaration.is_function() {
                true => self.functions.push(declaration),
                false => self.variables.push(declaration),
            }
        }
    }
}

/// The functions that a kernel calls, and what it may take the address of.
fn referred<'a>(words: &[Lexeme<'a>]) -> impl Iterator<Item = &'a str> {
    let names = (0..words.len()).filter_map(|at| match words[at].text {
        "mov.u64" | "mov.b64" => match words[at + 1..] {
            [_, comma, name, ..] if comma.kind == Kind::Punct(',') => Some(name),
            _ => None,
        },
        opcode if opcode == "call" || opcode.starts_with("call.") => {
            let operands = &words[at + 1..];
            // What is returned stands in front of the name.
            let returned = operands.first().is_some_and(|one| one.kind == Kind::Punct('('));
            let close = operands.iter().position(|one| one.kind == Kind::Punct(')'));
            operands.get(if returned { close? + 2 } else { 0 }).copied()
        }
        _ => None,
    });
    let is_local = |name: &str| name.starts_with(['%', '$']) || name.starts_with("__local_depot");
    let names = names.filter(move |name| name.kind == Kind::Word && !is_local(name.text));
    names.map(|name| name.text)
}

/// A function's text whose labels have the number 0.
fn relabelled(text: &str) -> String {
    match text.split_once(LABEL).and_then(|(_, label)| label.split('_').next()) {
        Some(number) => text.replace(&format!("{LABEL}{number}_"), &format!("{LABEL}0_")),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_cut_out_whole() {
        let text = "//\n// By a compiler\n\n.version 7.0\n.shared .b8 xa[4];\n.shared .b8 xb[4];\n\
                    \t// .globl ab\n.visible .entry ab(\n)\n{\nst {%r1, %r2}, xb;\n\
                    \t{ bra $L__BB17_4;\n}\nret;\n}\n.visible .entry a(\n)\n{\nret;\n}\n";
        let head = ".version 7.0\n.shared .b8 xb[4];\n";
        let ab = ".visible .entry ab(\n)\n{\nst {%r1, %r2}, xb;\n\t{ bra $L__BB0_4;\n}\nret;\n}\n";
        assert_eq!(extract(text, "ab").unwrap(), format!("{head}{ab}"));
        let a = ".visible .entry a(\n)\n{\nret;\n}\n";
        assert_eq!(extract(text, "a").unwrap(), format!(".version 7.0\n{a}"));
        assert_eq!(extract(text, "b"), None);
        let longer = ".shared .b8 x_1_2[4];\n.shared .b8 x_1_20[4];\n\
                      .visible .entry a(\n)\n{\nst [x_1_20+4], %r1;\n}\n";
        assert!(!extract(longer, "a").unwrap().contains("x_1_2["), "another kernel's");
    }

    #[test]
    fn a_kernel_has_the_functions_and_variables_that_it_reaches() {
        let text = "\
.version 7.0
.func (.param .b32 r) even(.param .b32 even_param_0);
.extern .func vprintf();
.func unused();
.global .u64 table[1] = {generic(inner)};
.global .u32 inner;
.shared .b8 second[4];
.shared .b8 first[4];
.visible .entry other() { ret; }
.func (.param .b32 r) odd(.param .b32 odd_param_0)
{
bra $L__BB4_1;
call even, (p);
call vprintf, ();
}
.visible .entry k()
{
bra $L__BB5_1;
call odd, (p);
mov.u32 %r1, first;
mov.u32 %r2, second;
}
.func (.param .b32 r) even(.param .b32 even_param_0)
{
call odd, (p);
mov.u64 %rd1, table;
}
.func unused() { ret; }
";
        let expected = "\
.version 7.0
.func (.param .b32 r) even(.param .b32 even_param_0);
.extern .func vprintf();
.func (.param .b32 r) odd(.param .b32 odd_param_0);
.global .u32 inner;
.global .u64 table[1] = {generic(inner)};
.shared .b8 first[4];
.shared .b8 second[4];
.func (.param .b32 r) even(.param .b32 even_param_0)
{
call odd, (p);
mov.u64 %rd1, table;
}
.func (.param .b32 r) odd(.param .b32 odd_param_0)
{
bra $L__BB0_1;
call even, (p);
call vprintf, ();
}
.visible .entry k()
{
bra $L__BB0_1;
call odd, (p);
mov.u32 %r1, first;
mov.u32 %r2, second;
}
";
        assert_eq!(extract(text, "k").unwrap(), expected);
        assert_eq!(
            extract(text, "other").unwrap(),
            ".version 7.0\n.visible .entry other() { ret; }\n"
        );
    }
}
