//! What a kernel must not have.

use std::collections::{HashMap, HashSet};

use ptx_syntax::outline::{Function, Statement, declarations, functions};

/// Why PTX is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A kernel can reach Rust's panic handler.
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

    /// A convergent instruction is written as inline assembly.
    #[error(
        "kernel `{kernel}` has `{instruction}` as inline assembly in PTX line {line}: threads \
         execute it together, and the compiler may copy assembly into both arms of a branch, or \
         move it into one; call `cuda_std`'s function for it, or declare LLVM's intrinsic"
    )]
    Convergent {
        /// The kernel.
        kernel: String,
        /// The line of the instruction, from 1.
        line: usize,
        /// The instruction.
        instruction: String,
    },

    /// Two places declare one array in shared memory.
    #[error(
        "`{symbol}` is declared twice: a macro that makes several kernels makes one name for the \
         `shared_array!` in all of them; let the array's length be an argument of the macro, or \
         declare the array in a function that the kernels call"
    )]
    SharedTwice {
        /// The array.
        symbol: String,
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

/// The function that `cuda_std`'s panic handler calls, and that does not exist.
const PANIC: &str = "cuda_std_panic_is_reachable";

/// The modifiers of instructions that threads execute together, and the first words of those that
/// have none of them (PTX ISA).
const CONVERGENT: [&str; 5] = ["activemask", "bar", "barrier", "shfl", "vote"];
const TOGETHER: [&str; 2] = ["sync", "aligned"];

/// A function, and its statements.
struct Code<'a> {
    function: Function<'a>,
    statements: Vec<Statement<'a>>,
}

/// Refuses what no kernel must have.
pub(super) fn check(text: &str) -> Result<(), Refused> {
    let arrays = declarations(text).filter_map(|declaration| declaration.shared_array());
    let mut arrays: Vec<&str> =
        arrays.filter(|array| array.elements.is_some()).map(|array| array.name).collect();
    arrays.sort_unstable();
    if let Some(twice) = arrays.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Refused::SharedTwice { symbol: twice[0].to_owned() });
    }
    let functions: Vec<Code<'_>> = functions(text)
        .map(|function| Code { statements: function.body.statements().collect(), function })
        .collect();
    let defined: HashMap<&str, &Code<'_>> =
        functions.iter().map(|code| (code.function.name, code)).collect();
    let panicking = panicking(&functions);
    for entry in functions.iter().filter(|code| code.function.is_entry) {
        let kernel = entry.function.name;
        let mut seen = vec![kernel];
        let mut pending = vec![entry];
        while let Some(code) = pending.pop() {
            check_assembly(kernel, &code.statements)?;
            for statement in &code.statements {
                let (kernel, line) = (kernel.to_owned(), statement.line() as usize);
                if statement.directive() == Some(".local") {
                    return Err(Refused::LocalMemory { kernel, line });
                }
                let Some(callee) = statement.callee() else { continue };
                let name = demangled(callee);
                if panicking.contains(callee) && name.trim_start_matches('<').starts_with("core::")
                    || callee == PANIC
                {
                    return Err(Refused::Panic { kernel, line, callee: name });
                }
                match defined.get(callee) {
                    None => return Err(Refused::Undefined { kernel, line, callee: name }),
                    Some(_) if seen.contains(&callee) => {}
                    Some(code) => {
                        seen.push(callee);
                        pending.push(code);
                    }
                }
            }
        }
    }
    Ok(())
}

/// The functions that reach the panic handler.
fn panicking<'a>(functions: &[Code<'a>]) -> HashSet<&'a str> {
    let mut panicking = HashSet::from([PANIC]);
    loop {
        let before = panicking.len();
        for code in functions {
            let mut callees = code.statements.iter().filter_map(Statement::callee);
            if callees.any(|callee| panicking.contains(callee)) {
                panicking.insert(code.function.name);
            }
        }
        if panicking.len() == before {
            return panicking;
        }
    }
}

/// Refuses convergent instructions in inline assembly, which LLVM may have copied or moved.
fn check_assembly(kernel: &str, statements: &[Statement<'_>]) -> Result<(), Refused> {
    for statement in statements.iter().filter(|statement| statement.is_assembly) {
        if let Some((opcode, _)) = statement.instruction()
            && is_convergent(opcode)
        {
            let (kernel, line) = (kernel.to_owned(), statement.line() as usize);
            return Err(Refused::Convergent { kernel, line, instruction: opcode.to_owned() });
        }
    }
    Ok(())
}

fn is_convergent(opcode: &str) -> bool {
    let mut words = opcode.split('.');
    words.next().is_some_and(|first| CONVERGENT.contains(&first))
        || words.any(|modifier| TOGETHER.contains(&modifier))
}

/// A function's name as Rust has it.
fn demangled(symbol: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(symbol))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const SAXPY: &str = "\
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

    pub fn with_body(line: &str) -> String {
        SAXPY.replace("\tret;", &format!("{line}\n\tret;"))
    }

    /// A function of the panic machinery.
    const PANICKING: &str = "\
.func _ZN4core9panicking5panic17h0123456789abcdefE(
\t.param .b64 p0
)
{
\tcall.uni \tcuda_std_panic_is_reachable, ();
}
";

    #[test]
    fn a_panic_is_refused_directly_and_through_a_function() {
        let direct = with_body("\tcall.uni \t_ZN4core9panicking5panic17h0123456789abcdefE, (p0);")
            + PANICKING;
        let callee = "core::panicking::panic".to_owned();
        let refused = Refused::Panic { kernel: "saxpy".into(), line: 15, callee };
        assert_eq!(check(&direct), Err(refused));

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
        assert!(matches!(check(&text), Err(Refused::Panic { kernel, .. }) if kernel == "saxpy"));
    }

    #[test]
    fn a_name_with_panic_in_it_is_no_panic() {
        let text = with_body("\tcall.uni \tdont_panic, ();")
            + &PANICKING.replace("_ZN4core9panicking5panic17h0123456789abcdefE", "unused")
            + ".func dont_panic()\n{\n\tret;\n}\n";
        assert!(check(&text).is_ok());
    }

    #[test]
    fn two_arrays_of_one_name_are_refused() {
        let text = SAXPY.replace("shared_other_3_4", "shared_saxpy_1_2");
        let symbol = "shared_saxpy_1_2".to_owned();
        assert_eq!(check(&text), Err(Refused::SharedTwice { symbol }));
    }

    /// Inline assembly as LLVM prints it.
    fn assembly(lines: &str) -> String {
        format!("\t// begin inline asm\n\t{lines}\n\t// end inline asm")
    }

    #[test]
    fn convergent_inline_assembly_is_refused() {
        for (lines, instruction) in [
            ("shfl.sync.up.b32 %r1, %r2, 1, 0, -1;", "shfl.sync.up.b32"),
            ("{ .reg .pred p; vote.sync.all.pred p, p, -1; }", "vote.sync.all.pred"),
            ("@%p1 bar.sync 0;", "bar.sync"),
            ("mov.u32 %r1, 1; barrier.sync 1, 64;", "barrier.sync"),
            ("LOOP: bar.sync 0;", "bar.sync"),
            ("$L_1:@%p1 bar.sync 0;", "bar.sync"),
            ("@ !%p1 bar.sync 0;", "bar.sync"),
            ("/* all */ @%p1 /* of us */ bar.sync 0;", "bar.sync"),
            (
                "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;",
                "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned",
            ),
        ] {
            match check(&with_body(&assembly(lines))) {
                Err(Refused::Convergent { instruction: found, line: 16, .. }) => {
                    assert_eq!(found, instruction);
                }
                other => panic!("{lines}: {other:?}"),
            }
            // As an instruction of the compiler's, or in a comment, it is none of that.
            assert!(check(&with_body(&format!("\t{lines}"))).is_ok());
            assert!(check(&with_body(&assembly(&format!("// {lines}")))).is_ok());
        }
        for alone in ["mbarrier.arrive.b64 _, [%r1];", "cp.async.wait_group 0;", "membar.cta;"] {
            assert!(check(&with_body(&assembly(alone))).is_ok());
        }
    }

    #[test]
    fn an_undefined_function_is_refused() {
        let text = with_body("\tcall.uni (retval0), sinf, (param0);");
        let refused =
            Refused::Undefined { kernel: "saxpy".into(), line: 15, callee: "sinf".into() };
        assert_eq!(check(&text), Err(refused));
    }

    #[test]
    fn local_memory_is_refused() {
        let text = with_body("\t.local .align 16 .b8 \t__local_depot0[64];");
        assert_eq!(check(&text), Err(Refused::LocalMemory { kernel: "saxpy".into(), line: 15 }));
    }
}
