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

/// How `#[kernel]` marks launch bounds in the PTX.
const DIRECTIVE: &str = "// cuda_std directive ";

/// What the name of a function of Rust's panic machinery contains, mangled or not.
const PANIC: &str = "panic";

/// Finishes PTX as rustc wrote it: moves the launch bounds of `#[kernel]` into the heads of
/// their kernels, and refuses what a kernel must not have.
///
/// # Errors
/// See [`Refused`].
pub fn finish(text: &str) -> Result<String, Refused> {
    check(text)?;

    let mut bounds: HashMap<&str, Vec<&str>> = HashMap::new();
    for line in text.lines() {
        if let Some((kernel, bound)) =
            line.trim_start().strip_prefix(DIRECTIVE).and_then(|rest| rest.split_once(' '))
        {
            bounds.entry(kernel).or_default().push(bound);
        }
    }

    let mut finished = String::with_capacity(text.len());
    let mut entry = None;
    let mut parameter = 0;
    for line in text.lines().filter(|line| !line.trim_start().starts_with(DIRECTIVE)) {
        if let Some(name) = entry_name(line) {
            (entry, parameter) = (Some(name), 0);
        }
        if let Some(name) = entry
            && line.trim_start().starts_with(".param ")
        {
            let wanted = bounds.get_mut(name).and_then(|bounds| take_alignment(bounds, parameter));
            parameter += 1;
            if let Some(wanted) = wanted {
                finished.push_str(&align_parameter(line, wanted));
                finished.push('\n');
                continue;
            }
        }
        if line == "{"
            && let Some(name) = entry.take()
        {
            for bound in bounds.remove(name).into_iter().flatten() {
                finished.push_str(bound);
                finished.push('\n');
            }
        }
        finished.push_str(line);
        finished.push('\n');
    }
    match bounds.into_keys().min() {
        Some(kernel) => Err(Refused::UnknownKernel(kernel.to_owned())),
        None => Ok(finished),
    }
}

/// Takes `.param INDEX .align BYTES` out of a kernel's directives: what comes after the index.
fn take_alignment<'a>(directives: &mut Vec<&'a str>, index: usize) -> Option<&'a str> {
    let prefix = format!(".param {index} ");
    let place = directives.iter().position(|directive| directive.starts_with(&prefix))?;
    Some(&directives.remove(place)[prefix.len()..])
}

/// `.param .align 16 .b8 name[128]`, with another alignment.
fn align_parameter(line: &str, alignment: &str) -> String {
    let Some((head, tail)) = line.split_once(".align ") else { return line.to_owned() };
    let rest = tail.split_once(' ').map_or("", |(_, rest)| rest);
    format!("{head}{alignment} {rest}")
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
    // Braces that are open: inline assembly and vector operands have some of their own.
    let mut depth = 0_usize;
    for (number, line) in (1..).zip(text.lines()) {
        if depth > 0 {
            let code = line.split("//").next().unwrap_or_default();
            depth += code.matches('{').count();
            depth = depth.saturating_sub(code.matches('}').count());
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
