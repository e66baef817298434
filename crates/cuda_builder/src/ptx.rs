//! What happens to PTX between rustc and the file, and what can be read from it.
//!
//! This is no PTX parser: it reads the layout in which LLVM prints PTX, line by line.

use std::collections::HashMap;

mod check;
mod read;

pub use check::Refused;

use check::check;
use read::{entry_name, functions, is_instruction, mentions, shared_array};

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

#[cfg(test)]
mod tests {
    use super::check::tests::{SAXPY, with_body};
    use super::*;

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
    fn braces_of_inline_assembly_do_not_end_a_kernel() {
        let call = "\tcall.uni \tcuda_std_panic_is_reachable, ();";
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
}
