//! What happens to PTX between rustc and the file, and what can be read from it.
//!
//! This is no PTX parser: it reads the layout in which LLVM prints PTX, line by line.

use std::collections::HashMap;

/// Why PTX is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A kernel can reach Rust's panic machinery.
    #[error(
        "kernel `{kernel}` can panic: PTX line {line} calls `{callee}`; look for an index that \
         the compiler cannot prove in bounds, an overflow check, or a division by zero"
    )]
    Panic {
        /// The kernel.
        kernel: String,
        /// The line of the call, from 1.
        line: usize,
        /// The function it calls.
        callee: String,
    },

    /// A kernel calls a function that no file defines.
    #[error(
        "kernel `{kernel}` calls `{callee}` in PTX line {line}, which is defined nowhere; \
         a GPU has no library to link it from"
    )]
    Undefined {
        /// The kernel.
        kernel: String,
        /// The line of the call, from 1.
        line: usize,
        /// The function it calls.
        callee: String,
    },

    /// A kernel keeps variables in local memory.
    #[error(
        "kernel `{kernel}` uses local memory in PTX line {line}: some array does not fit in \
         registers; index it with constants only, in loops that unroll, and pass arrays \
         rather than aligned structs"
    )]
    LocalMemory {
        /// The kernel.
        kernel: String,
        /// The line that names it, from 1.
        line: usize,
    },

    /// A `#[grid_constant]` is no parameter that can be aligned.
    #[error(
        "kernel `{kernel}` has no bytes as its parameter {parameter}, where a \
         `#[grid_constant]` should be; use the `#[kernel]` of the same checkout"
    )]
    GridConstant {
        /// The kernel.
        kernel: String,
        /// Which parameter of the PTX, from 0: a slice makes two.
        parameter: usize,
    },

    /// A launch bound names no kernel.
    #[error("launch bounds are given for `{0}`, which is no kernel in the PTX")]
    UnknownKernel(String),
}

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

/// What the name of a function of Rust's panic machinery contains, mangled or not.
const PANIC: &str = "panic";

/// What `#[kernel]` wants in the head of one kernel.
#[derive(Default)]
struct Head<'a> {
    /// Launch bounds, such as `.reqntid 256`.
    bounds: Vec<&'a str>,
    /// `.align 64`, by the number of the parameter that it is for.
    alignments: HashMap<usize, &'a str>,
}

impl<'a> Head<'a> {
    /// Adds `.param INDEX .align BYTES` or a launch bound.
    fn add(&mut self, directive: &'a str) {
        let alignment = directive
            .strip_prefix(".param ")
            .and_then(|rest| rest.split_once(' '))
            .and_then(|(index, alignment)| Some((index.parse().ok()?, alignment)));
        match alignment {
            Some((index, alignment)) => {
                self.alignments.insert(index, alignment);
            }
            None => self.bounds.push(directive),
        }
    }
}

/// Finishes PTX as rustc wrote it: moves the launch bounds of `#[kernel]` into the heads of
/// their kernels, aligns their grid constants, and refuses what a kernel must not have.
///
/// # Errors
/// See [`Refused`].
pub fn finish(text: &str) -> Result<String, Refused> {
    check(text)?;

    let mut heads: HashMap<&str, Head<'_>> = HashMap::new();
    for line in text.lines() {
        if let Some((kernel, directive)) =
            line.trim_start().strip_prefix(DIRECTIVE).and_then(|rest| rest.split_once(' '))
        {
            heads.entry(kernel).or_default().add(directive);
        }
    }

    let mut finished = String::with_capacity(text.len());
    // The kernel whose head this is, what it should have, and the parameters before the line.
    let mut entry: Option<(&str, Head<'_>, usize)> = None;
    for line in text.lines().filter(|line| !line.trim_start().starts_with(DIRECTIVE)) {
        if let Some(name) = entry_name(line) {
            entry = Some((name, heads.remove(name).unwrap_or_default(), 0));
        }
        if let Some((kernel, head, parameters)) = &mut entry
            && line.trim_start().starts_with(".param ")
        {
            let parameter = *parameters;
            *parameters += 1;
            if let Some(alignment) = head.alignments.remove(&parameter) {
                let refused = || Refused::GridConstant { kernel: (*kernel).to_owned(), parameter };
                finished.push_str(&align_parameter(line, alignment).ok_or_else(refused)?);
                finished.push('\n');
                continue;
            }
        }
        if line == "{"
            && let Some((kernel, head, _)) = entry.take()
        {
            if let Some(parameter) = head.alignments.into_keys().min() {
                return Err(Refused::GridConstant { kernel: kernel.to_owned(), parameter });
            }
            for bound in head.bounds {
                finished.push_str(bound);
                finished.push('\n');
            }
        }
        finished.push_str(line);
        finished.push('\n');
    }
    match heads.into_keys().min() {
        Some(kernel) => Err(Refused::UnknownKernel(kernel.to_owned())),
        None => Ok(finished),
    }
}

/// `.param .align 1 .b8 name[128]`, with another alignment; `None` for a number or a pointer.
fn align_parameter(line: &str, alignment: &str) -> Option<String> {
    let (_, rest) = line.trim_start().strip_prefix(".param .align ")?.split_once(' ')?;
    Some(format!("\t.param {alignment} {rest}"))
}

/// What the PTX says about each of its kernels, in order.
pub fn kernels(text: &str) -> Vec<KernelInfo> {
    let arrays: Vec<(&str, u32)> = text.lines().filter_map(shared_array).collect();
    let mut kernels = Vec::new();
    for function in functions(text).into_iter().filter(|function| function.is_entry) {
        let instructions = function.body.iter().filter(|(_, line)| is_instruction(line)).count();
        let shared_bytes = arrays
            .iter()
            .filter(|(name, _)| function.body.iter().any(|(_, line)| mentions(line, name)))
            .map(|(_, bytes)| bytes)
            .sum();
        kernels.push(KernelInfo { name: function.name.to_owned(), instructions, shared_bytes });
    }
    kernels
}

/// A function or kernel: its name, and the lines of its body with their numbers.
struct Function<'a> {
    name: &'a str,
    is_entry: bool,
    body: Vec<(usize, &'a str)>,
}

fn functions(text: &str) -> Vec<Function<'_>> {
    let mut functions = Vec::new();
    let mut head: Option<Function<'_>> = None;
    // Braces that are open: inline assembly and calls have some of their own.
    let mut depth = 0;
    for (number, line) in (1..).zip(text.lines()) {
        if depth > 0 {
            depth = depth_after(depth, line);
            if depth == 0 {
                functions.extend(head.take());
            } else if let Some(function) = &mut head {
                function.body.push((number, line.trim()));
            }
        } else if line == "{" {
            depth = usize::from(head.is_some());
        } else if let Some(name) = entry_name(line) {
            head = Some(Function { name, is_entry: true, body: Vec::new() });
        } else if let Some(name) = func_name(line) {
            head = Some(Function { name, is_entry: false, body: Vec::new() });
        } else if line.trim_end().ends_with(';') {
            // The end of a declaration without a body.
            head = None;
        }
    }
    functions
}

/// The braces that are open after a line of a body, of those of a vector's operands too.
fn depth_after(depth: usize, line: &str) -> usize {
    let code = line.split_once("//").map_or(line, |(code, _)| code);
    code.bytes().fold(depth, |depth, byte| match byte {
        b'{' => depth + 1,
        b'}' => depth.saturating_sub(1),
        _ => depth,
    })
}

fn check(text: &str) -> Result<(), Refused> {
    let functions = functions(text);
    let defined: HashMap<&str, &Function<'_>> =
        functions.iter().map(|function| (function.name, function)).collect();
    for kernel in functions.iter().filter(|function| function.is_entry) {
        let mut seen = vec![kernel.name];
        let mut pending = vec![kernel];
        while let Some(function) = pending.pop() {
            for &(line, text) in &function.body {
                if text.starts_with(".local") {
                    return Err(Refused::LocalMemory { kernel: kernel.name.to_owned(), line });
                }
                let Some(callee) = callee(text) else { continue };
                let (kernel, name) = (kernel.name.to_owned(), callee.to_owned());
                if callee.contains(PANIC) {
                    return Err(Refused::Panic { kernel, line, callee: name });
                }
                match defined.get(callee) {
                    None => return Err(Refused::Undefined { kernel, line, callee: name }),
                    Some(_) if seen.contains(&callee) => {}
                    Some(function) => {
                        seen.push(callee);
                        pending.push(function);
                    }
                }
            }
        }
    }
    Ok(())
}

/// The kernel's name in `.visible .entry name(`.
fn entry_name(line: &str) -> Option<&str> {
    line.split_once(".entry ")?.1.split('(').next().map(str::trim)
}

/// The function's name in `.func  (.param .b32 func_retval0) name(`.
fn func_name(line: &str) -> Option<&str> {
    let rest = line.split_once(".func")?.1.trim_start();
    let rest = match rest.strip_prefix('(') {
        Some(result) => result.split_once(')')?.1.trim_start(),
        None => rest,
    };
    rest.split(['(', ' ', ';']).next().filter(|name| !name.is_empty())
}

/// The function that `call.uni (retval0), name, (param0);` calls. A call through a register
/// comes back as that register, which no function is named like.
fn callee(instruction: &str) -> Option<&str> {
    let unguarded = match instruction.strip_prefix('@') {
        Some(guarded) => guarded.split_once(char::is_whitespace)?.1.trim_start(),
        None => instruction,
    };
    let (modifiers, operands) = unguarded.strip_prefix("call")?.split_once(char::is_whitespace)?;
    if !(modifiers.is_empty() || modifiers.starts_with('.')) {
        return None;
    }
    let operands = operands.trim_start();
    let operands = match operands.strip_prefix('(') {
        Some(results) => results.split_once(')')?.1.trim_start_matches([',', ' ']),
        None => operands,
    };
    operands.split([',', ';', ' ']).next()
}

/// Name and size of the array in `.shared .align 128 .b8 name[1024];`.
fn shared_array(line: &str) -> Option<(&str, u32)> {
    let (head, size) = line.strip_prefix(".shared ")?.split_once('[')?;
    let bytes = size.split_once(']')?.0.parse().ok()?;
    Some((head.split_whitespace().next_back()?, bytes))
}

/// Whether `line` names `symbol` as a word.
fn mentions(line: &str, symbol: &str) -> bool {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$'))
        .any(|word| word == symbol)
}

/// Whether a line of a body is an instruction, rather than a label, a directive, a comment
/// or a brace.
fn is_instruction(line: &str) -> bool {
    line.ends_with(';') && !line.starts_with(['.', '/', '{', '}', '$'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAXPY: &str = "\
.version 7.0
// cuda_std directive saxpy .reqntid 256
// cuda_std directive saxpy .minnctapersm 2
.shared .align 128 .b8 shared_saxpy_1_2[1024];
.shared .align 128 .b8 shared_other_3_4[64];

.visible .entry saxpy(
\t.param .u64 saxpy_param_0
)
{
\t.reg .b32 \t%r<4>;
\tmov.u32 \t%r1, shared_saxpy_1_2;
$L__BB0_1:
\t@%p1 bra \t$L__BB0_1;
\tret;
}
";

    fn with_body(line: &str) -> String {
        SAXPY.replace("\tret;", &format!("{line}\n\tret;"))
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
    fn kernels_are_counted() {
        let info = KernelInfo { name: "saxpy".into(), instructions: 3, shared_bytes: 1024 };
        assert_eq!(kernels(SAXPY), [info]);
    }

    #[test]
    fn a_panic_is_refused_directly_and_through_a_function() {
        let direct = with_body("\tcall.uni \t_ZN4core9panicking5panic17h0E, (p0);");
        let callee = "_ZN4core9panicking5panic17h0E".to_owned();
        let refused = Refused::Panic { kernel: "saxpy".into(), line: 15, callee };
        assert_eq!(finish(&direct), Err(refused));

        let helper = "\
.func  (.param .b32 func_retval0) helper
(
\t.param .b32 helper_param_0
)
{
\t@%p1 call \tcuda_std_panic_is_reachable, ();
}
";
        let text = with_body("\tcall.uni (retval0), helper, (param0);") + helper;
        assert!(matches!(finish(&text), Err(Refused::Panic { kernel, .. }) if kernel == "saxpy"));
    }

    #[test]
    fn braces_of_inline_assembly_do_not_end_a_kernel() {
        let call = "\tcall.uni \t_ZN4core9panicking5panic17h0E, (p0);";
        for assembly in [
            "\t// begin inline asm\n\t{\n\t.reg .pred p;\n\t}\n\t// end inline asm",
            "\t{ .reg .pred p;\n\tsetp.ne.u32 p, %r1, 0; }",
            "\t{ // }\n\t{\n\t} }",
            "\tst.shared.v4.b32 [%r1], {%r2, %r3,\n\t%r4, %r5};",
        ] {
            let text = with_body(&format!("{assembly}\n{call}"));
            let line = 15 + assembly.lines().count();
            match finish(&text) {
                Err(Refused::Panic { kernel, line: found, .. }) => {
                    assert_eq!((kernel.as_str(), found), ("saxpy", line), "{assembly}");
                }
                other => panic!("{assembly}: {other:?}"),
            }
            // What comes after is a function of its own again.
            let text = with_body(assembly) + &SAXPY.replace("saxpy", "second");
            let names: Vec<_> = kernels(&text).into_iter().map(|kernel| kernel.name).collect();
            assert_eq!(names, ["saxpy", "second"], "{assembly}");
        }
    }

    #[test]
    fn an_undefined_function_is_refused() {
        let text = with_body("\tcall.uni (retval0), sinf, (param0);");
        let refused =
            Refused::Undefined { kernel: "saxpy".into(), line: 15, callee: "sinf".into() };
        assert_eq!(finish(&text), Err(refused));
    }

    #[test]
    fn local_memory_is_refused() {
        let text = with_body("\t.local .align 16 .b8 \t__local_depot0[64];");
        assert_eq!(finish(&text), Err(Refused::LocalMemory { kernel: "saxpy".into(), line: 15 }));
    }
}
