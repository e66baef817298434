//! What happens to PTX between rustc and the file, and what can be read from it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use ptx_syntax::outline::{AROUND_ASSEMBLY, Declaration, declarations, functions};
use ptx_syntax::scan::{Kind, lexemes};

use crate::rules::{LocalMemory, Panic, Rules};

mod arrays;
mod atomics;
mod check;
mod memcmp;
mod own;

pub(crate) use atomics::restore_orderings;
pub use check::{Refused, Site};

use check::check;
use memcmp::MEMCMP;

/// What can be read about a kernel from its PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelInfo {
    /// The name of the entry.
    pub name: String,
    /// Instructions in its text.
    pub instructions: usize,
    /// Bytes of shared memory that it declares.
    pub shared_bytes: u32,
}

/// How `#[kernel]` marks launch bounds, and the alignment of grid constants, in the PTX.
const DIRECTIVE: &str = "// cuda_std directive ";

/// What `#[kernel]` wants in the head of one kernel.
#[derive(Default)]
struct Head<'a> {
    /// Launch bounds, such as `.reqntid 256`.
    bounds: Vec<&'a str>,
    /// `.align 64`, by the number of the parameter that it is for.
    alignments: BTreeMap<usize, &'a str>,
    /// `no_panic` and `no_local_memory`.
    rules: Vec<&'a str>,
}

impl<'a> Head<'a> {
    /// Adds `.param INDEX .align BYTES`, a rule, or a launch bound.
    fn add(&mut self, directive: &'a str) {
        let alignment = directive
            .strip_prefix(".param ")
            .and_then(|rest| rest.split_once(' '))
            .and_then(|(index, alignment)| Some((index.parse().ok()?, alignment)));
        match alignment {
            Some((index, alignment)) => {
                self.alignments.insert(index, alignment);
            }
            None if directive.starts_with('.') => self.bounds.push(directive),
            None => self.rules.push(directive),
        }
    }

    /// The rules of all kernels, and what is said of this one.
    fn rules(&self, mut rules: Rules) -> Rules {
        for rule in &self.rules {
            match *rule {
                "no_panic" => rules.panic = Panic::Refuse,
                _ => rules.local_memory = LocalMemory::Refuse,
            }
        }
        rules
    }
}

/// Finishes the PTX that rustc wrote, and refuses what a kernel must not have.
///
/// - Launch bounds of `#[kernel]` move into the heads of the kernels.
/// - Grid constants are aligned.
/// - Arrays in shared memory are named after the functions that use them.
/// - `memcmp`, which rustc assumes to exist, is defined.
/// - Comments around inline assembly are left out: they can be an eighth of the text.
/// - Atomics on a thread's own variables become ordinary instructions.
///
/// # Errors
/// See [`Refused`].
pub fn finish(text: &str, rules: Rules) -> Result<String, Refused> {
    let text = &*defined(text);
    let mut heads: HashMap<&str, Head<'_>> = HashMap::new();
    // What is replaced, in the order of the text.
    let mut edits: BTreeMap<usize, (Range<usize>, String)> = BTreeMap::new();
    let mut replace = |range: Range<usize>, new: String| edits.insert(range.start, (range, new));
    for comment in lexemes(text).filter(|lexeme| lexeme.kind == Kind::Comment) {
        let directive = comment.text.strip_prefix(DIRECTIVE);
        let line = text[..comment.start].rfind('\n').map_or(0, |end| end + 1);
        if directive.is_none() && !AROUND_ASSEMBLY.contains(&comment.text)
            || !text[line..comment.start].trim().is_empty()
        {
            continue;
        }
        if let Some((kernel, directive)) = directive.and_then(|directive| directive.split_once(' '))
        {
            heads.entry(kernel).or_default().add(directive);
        }
        replace(line..text.len().min(comment.end() + 1), String::new());
    }
    check(text, |kernel| heads.get(kernel).map_or(rules, |head| head.rules(rules)))?;
    let all: Vec<_> = declarations(text).collect();
    for (range, new) in arrays::renamed(text, &all) {
        replace(range, new);
    }
    let kernels = all.iter().filter_map(Declaration::function);
    for entry in kernels.filter(|function| function.is_entry) {
        let head = heads.remove(entry.name).unwrap_or_default();
        for (parameter, alignment) in head.alignments {
            match entry.params.get(parameter).map(Vec::as_slice) {
                // `.param .align 1 .b8 name[128]`: no number, and no pointer.
                Some([_, keyword, bytes, ..]) if keyword.text == ".align" => {
                    replace(keyword.start..bytes.end(), alignment.to_owned());
                }
                _ => {
                    let kernel = entry.name.to_owned();
                    return Err(Refused::GridConstant { kernel, parameter });
                }
            }
        }
        let bounds: String = head.bounds.into_iter().flat_map(|bound| [bound, "\n"]).collect();
        replace(entry.body.start..entry.body.start, bounds);
    }
    if let Some(kernel) = heads.into_keys().min() {
        return Err(Refused::UnknownKernel(kernel.to_owned()));
    }

    // Where nothing lies in local memory, no address leads there.
    if text.contains(".local") {
        let variables = declarations(text).filter(|declaration| declaration.function().is_none());
        let names: HashSet<&str> =
            variables.flat_map(|variable| variable.head).map(|lexeme| lexeme.text).collect();
        let statements = functions(text).flat_map(|function| function.body.statements());
        for statement in statements {
            let is_variable = |name: &str| names.contains(name);
            let Some(new) = own::for_any_memory(text, &statement, is_variable) else { continue };
            let [Some(first), Some(last)] = [statement.lexemes.first(), statement.lexemes.last()]
            else {
                continue;
            };
            let end = text[last.end()..].find(';').map_or(text.len(), |at| last.end() + at + 1);
            replace(first.start..end, new);
        }
    }

    let mut finished = String::with_capacity(text.len());
    let mut at = 0;
    for (range, new) in edits.into_values() {
        finished.push_str(&text[at..range.start]);
        finished.push_str(&new);
        at = range.end;
    }
    finished.push_str(&text[at..]);
    Ok(finished)
}

/// The text with `memcmp` defined instead of declared.
fn defined(text: &str) -> Cow<'_, str> {
    let is_memcmp = |declaration: &Declaration<'_>| {
        let mut head = declaration.head.iter().map(|lexeme| lexeme.text);
        head.next() == Some(".extern") && head.any(|word| word == "memcmp")
    };
    if !text.contains("memcmp") {
        return Cow::Borrowed(text);
    }
    match declarations(text).find(is_memcmp) {
        Some(found) => Cow::Owned(text.replacen(found.text, MEMCMP, 1)),
        None => Cow::Borrowed(text),
    }
}

/// What the PTX says about each of its kernels, in order.
pub fn kernels(text: &str) -> Vec<KernelInfo> {
    let arrays = declarations(text).filter_map(|declaration| declaration.shared_array());
    // rustc declares arrays of bytes.
    let arrays: Vec<(&str, u32)> =
        arrays.filter_map(|array| Some((array.name, array.elements?))).collect();
    let mut kernels = Vec::new();
    for function in functions(text).filter(|function| function.is_entry) {
        let statements: Vec<_> = function.body.statements().collect();
        let instructions = statements.iter().filter_map(|statement| statement.instruction());
        let words: HashSet<&str> = statements
            .iter()
            .flat_map(|statement| &statement.lexemes)
            .filter(|lexeme| lexeme.kind == Kind::Word)
            .map(|word| word.text)
            .collect();
        let of_kernel = arrays.iter().filter(|(name, _)| words.contains(name));
        kernels.push(KernelInfo {
            name: function.name.to_owned(),
            instructions: instructions.count(),
            shared_bytes: of_kernel.map(|(_, bytes)| bytes).sum(),
        });
    }
    kernels
}

#[cfg(test)]
mod tests {
    use super::check::tests::{HANDLER, SAXPY, with_body};
    use super::*;

    fn finish(text: &str) -> Result<String, Refused> {
        super::finish(text, Rules { panic: Panic::Refuse, local_memory: LocalMemory::Refuse })
    }

    #[test]
    fn a_kernel_has_rules_of_its_own() {
        let array = with_body("\t.local .align 16 .b8 \t__local_depot0[64];");
        let with = |rule: &str| {
            super::finish(&format!("// cuda_std directive saxpy {rule}\n{array}"), Rules::default())
        };
        assert!(!with("no_panic").unwrap().contains("no_panic"));
        assert!(matches!(with("no_local_memory"), Err(Refused::LocalMemory { .. })));
        let panics = array.replace("ret;", &format!("call.uni {HANDLER}, ();\n\tret;"));
        let handler = format!(".func {HANDLER}()\n{{\n\ttrap;\n}}\n");
        let rule = "// cuda_std directive saxpy no_panic\n";
        let refused = super::finish(&format!("{rule}{panics}{handler}"), Rules::default());
        assert!(matches!(refused, Err(Refused::Panic { .. })), "{refused:?}");
        assert!(super::finish(&(panics + &handler), Rules::default()).is_ok());
    }

    #[test]
    fn memcmp_is_defined_where_it_is_declared() {
        let declared = ".extern .func  (.param .b32 func_retval0) memcmp\n(\n\t.param .b64 memcmp_param_0,\n\
                        \t.param .b64 memcmp_param_1,\n\t.param .b64 memcmp_param_2\n)\n;\n";
        let calls = with_body("\tcall.uni (retval0), memcmp, (param0, param1, param2);");
        let finished = finish(&format!("{declared}{calls}")).unwrap();
        assert!(finished.starts_with(".func (.param .b32 func_retval0) memcmp("), "{finished}");
        assert!(
            matches!(finish(&calls), Err(Refused::Undefined { callee, .. }) if callee == "memcmp")
        );
    }

    #[test]
    fn launch_bounds_move_into_the_head() {
        let finished = finish(SAXPY).unwrap();
        assert!(!finished.contains("directive"));
        assert!(finished.contains(")\n.reqntid 256\n.minnctapersm 2\n{\n"));
    }

    #[test]
    fn launch_bounds_of_no_kernel_are_refused() {
        let text = SAXPY.replace("directive saxpy .req", "directive gone .req");
        assert_eq!(finish(&text), Err(Refused::UnknownKernel("gone".into())));
    }

    /// A slice, a grid constant, a number and a grid constant.
    const CONSTANTS: &str = "\
// cuda_std directive scale .param 2 .align 64
// cuda_std directive scale .reqntid 32
// cuda_std directive scale .param 4 .align 64
.visible .entry scale(
\t.param .u64 .ptr .align 1 scale_param_0,
\t.param .u64 scale_param_1,
\t.param .align 1 .b8 scale_param_2[128],
\t.param .f32 scale_param_3,
\t.param .align 1 .b8 scale_param_4[12]
)
{
\tret;
}
.visible .entry other(
\t.param .align 16 .b8 other_param_0[128],
\t.param .align 16 .b8 other_param_1[128],
\t.param .align 16 .b8 other_param_2[128]
)
{
\tret;
}
";

    #[test]
    fn grid_constants_are_aligned() {
        let expected = "\
.visible .entry scale(
\t.param .u64 .ptr .align 1 scale_param_0,
\t.param .u64 scale_param_1,
\t.param .align 64 .b8 scale_param_2[128],
\t.param .f32 scale_param_3,
\t.param .align 64 .b8 scale_param_4[12]
)
.reqntid 32
{
";
        let (_, other) = CONSTANTS.split_once("{\n").unwrap();
        assert_eq!(finish(CONSTANTS).unwrap(), expected.to_owned() + other);
    }

    #[test]
    fn a_grid_constant_that_is_none_is_refused() {
        for parameter in [0, 1, 3, 5] {
            let directive = format!(".param {parameter} ");
            let text = CONSTANTS.replace(".param 4 ", &directive);
            assert_eq!(
                finish(&text),
                Err(Refused::GridConstant { kernel: "scale".into(), parameter })
            );
        }
    }

    #[test]
    fn comments_around_assembly_are_left_out() {
        let assembly =
            "\t// begin inline asm\n\tmov.b32 %r1, %r2;\n\t// end inline asm\n\t// mine\n";
        let expected = finish(&with_body("\tmov.b32 %r1, %r2;\n\t// mine\n")).unwrap();
        assert_eq!(finish(&with_body(assembly)).unwrap(), expected);
        let behind = "\tmov.b32 %r1, %r2; // begin inline asm\n";
        assert!(finish(&with_body(behind)).unwrap().contains(behind));
    }

    #[test]
    fn kernels_are_counted() {
        let info = KernelInfo { name: "saxpy".into(), instructions: 3, shared_bytes: 1024 };
        assert_eq!(kernels(SAXPY), [info]);
    }

    #[test]
    fn braces_of_inline_assembly_do_not_end_a_kernel() {
        let call = format!("\tcall.uni \t{HANDLER}, ();");
        let handler = format!(".func {HANDLER}()\n{{\n\ttrap;\n}}\n");
        for assembly in [
            "\t// begin inline asm\n\t{\n\t.reg .pred p;\n\t}\n\t// end inline asm",
            "\t{ .reg .pred p;\n\tsetp.ne.u32 p, %r1, 0; }",
            "\t{ // }\n\t{\n\t} }",
            "\tst.shared.v4.b32 [%r1], {%r2, %r3,\n\t%r4, %r5};",
        ] {
            let text = with_body(&format!("{assembly}\n{call}")) + &handler;
            let line = 15 + assembly.lines().count() as u32;
            match finish(&text) {
                Err(Refused::Panic { kernel, at, .. }) => {
                    assert_eq!((kernel.as_str(), at.line), ("saxpy", line), "{assembly}");
                }
                other => panic!("{assembly}: {other:?}"),
            }
            // The next function stands alone again.
            let text = with_body(assembly) + &SAXPY.replace("saxpy", "second");
            let names: Vec<_> = kernels(&text).into_iter().map(|kernel| kernel.name).collect();
            assert_eq!(names, ["saxpy", "second"], "{assembly}");
        }
    }
}
