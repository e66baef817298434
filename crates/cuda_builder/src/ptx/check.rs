//! What a kernel must not have.

use std::collections::{HashMap, HashSet};
use std::fmt;

use ptx_syntax::outline::{FunctionText, StatementText, declarations, functions};
use ptx_syntax::scan::{Kind, Lexeme, lexemes};
use ptx_syntax::source::{self, Place};

use crate::rules::{LocalMemory, Panic, Rules};

/// Why PTX is refused.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A kernel can reach Rust's panic handler, and must not.
    #[error(
        "kernel `{kernel}` can panic, at {at}: it calls `{callee}`; look for an index that the \
         compiler cannot prove in bounds, an overflow check, or a division by zero, or allow it \
         (`CudaBuilder::panic`, `#[kernel(no_panic)]`)"
    )]
    Panic {
        /// The kernel.
        kernel: String,
        /// Where the call is.
        at: Site,
        /// The function it calls.
        callee: String,
    },

    /// A kernel calls a function that no file defines.
    #[error(
        "kernel `{kernel}` calls `{callee}`, which is defined nowhere, at {at}; a GPU has no \
         library to link it from"
    )]
    Undefined {
        /// The kernel.
        kernel: String,
        /// Where the call is.
        at: Site,
        /// The function it calls.
        callee: String,
    },

    /// A convergent instruction is written as inline assembly.
    #[error(
        "kernel `{kernel}` has `{instruction}` as inline assembly, at {at}: threads execute it \
         together, and the compiler may copy assembly into both arms of a branch, or move it into \
         one; call `cuda_std`'s function for it, or declare LLVM's intrinsic"
    )]
    Convergent {
        /// The kernel.
        kernel: String,
        /// Where it is.
        at: Site,
        /// The instruction.
        instruction: String,
    },

    /// Two places declare one array in shared memory.
    #[error(
        "`{symbol}` is declared twice: two crates of one name and version have a `shared_array!`; \
         give one of them another name or version"
    )]
    SharedTwice {
        /// The array.
        symbol: String,
    },

    /// A kernel keeps variables in local memory, and must not.
    #[error(
        "kernel `{kernel}` uses local memory, at {at}: some array does not fit in registers; \
         index it with constants only, in loops that unroll, and pass arrays rather than aligned \
         structs, or allow it (`CudaBuilder::local_memory`, `#[kernel(no_local_memory)]`)"
    )]
    LocalMemory {
        /// The kernel.
        kernel: String,
        /// Where it is declared.
        at: Site,
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

    /// What `#[kernel]` says of a kernel names none.
    #[error("launch bounds are given for `{0}`, which is no kernel in the PTX")]
    UnknownKernel(String),
}

impl fmt::Debug for Refused {
    /// The sentence: `unwrap` in a build script shows this to whoever builds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A line of the PTX, and of the Rust source that it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The line of the PTX, from 1.
    pub line: u32,
    /// The place in the source, if the PTX says it.
    pub source: Option<Place>,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(place) => write!(f, "{place} (PTX line {})", self.line),
            None => write!(f, "PTX line {}", self.line),
        }
    }
}

/// The symbols of the panic handler and of what it calls, demangled.
const PANIC: [&str; 2] = ["__rustc::rust_begin_unwind", "cuda_std::panic::report"];

/// Functions that the driver defines (CUDA C++ Programming Guide, PTX Writer's Guide to
/// Interoperability).
const DRIVER: [&str; 4] = ["vprintf", "malloc", "free", "__assertfail"];

/// The modifiers of instructions that threads execute together, and the first words of those that
/// have none of them (PTX ISA).
const CONVERGENT: [&str; 5] = ["activemask", "bar", "barrier", "shfl", "vote"];
const TOGETHER: [&str; 2] = ["sync", "aligned"];

/// Convergent instructions that may be assembly, and the intrinsic that must follow in their block.
const ANCHORS: [(&str, &str); 5] = [
    ("ldmatrix.sync.", "activemask."),
    ("mma.sync.", "activemask."),
    ("stmatrix.sync.", "activemask."),
    ("wgmma.fence.", "wgmma.commit_group."),
    ("wgmma.mma_async.", "wgmma.commit_group."),
];

/// A function, and its statements.
struct Code<'a> {
    function: FunctionText<'a>,
    statements: Vec<StatementText<'a>>,
}

/// A module, by its names.
struct Module<'a> {
    text: &'a str,
    lines: Vec<&'a str>,
    functions: HashMap<&'a str, Code<'a>>,
    /// What the initial values of variables name.
    variables: HashMap<&'a str, Vec<&'a str>>,
    /// The functions that reach the panic handler.
    panicking: HashSet<&'a str>,
}

/// Refuses what no kernel must have, and what `rules` says of each kernel.
pub(super) fn check(text: &str, rules: impl Fn(&str) -> Rules) -> Result<(), Refused> {
    let arrays = declarations(text).filter_map(|declaration| declaration.shared_array());
    let mut arrays: Vec<&str> =
        arrays.filter(|array| array.elements.is_some()).map(|array| array.name).collect();
    arrays.sort_unstable();
    if let Some(twice) = arrays.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Refused::SharedTwice { symbol: twice[0].to_owned() });
    }
    let module = Module::of(text);
    let mut entries: Vec<&Code<'_>> =
        module.functions.values().filter(|code| code.function.is_entry).collect();
    entries.sort_by_key(|code| code.function.body.start);
    for entry in entries {
        let kernel = entry.function.name;
        let rules = rules(kernel);
        let reached = module.reached(entry);
        for code in &reached {
            module.check_calls(kernel, code, rules.panic)?;
        }
        let mut statements = reached.iter().flat_map(|code| &code.statements);
        if rules.local_memory == LocalMemory::Refuse
            && let Some(found) = statements.find(|one| one.directive() == Some(".local"))
        {
            let at = module.site(found);
            return Err(Refused::LocalMemory { kernel: kernel.to_owned(), at });
        }
    }
    Ok(())
}

impl<'a> Module<'a> {
    fn of(text: &'a str) -> Module<'a> {
        let functions = functions(text)
            .map(|function| Code { statements: function.body.statements().collect(), function })
            .map(|code| (code.function.name, code))
            .collect();
        let variables = declarations(text).filter_map(|declaration| {
            let name = declaration.head.iter().rev().find(|one| one.kind == Kind::Word)?.text;
            let (_, values) = declaration.text.split_once('=')?;
            Some((name, words(lexemes(values)).collect()))
        });
        let mut module = Module {
            text,
            lines: text.lines().collect(),
            functions,
            variables: variables.collect(),
            panicking: HashSet::new(),
        };
        module.panicking = module.panicking();
        module
    }

    /// The functions that reach the panic handler, and the handler.
    fn panicking(&self) -> HashSet<&'a str> {
        let is_handler = |name: &&str| PANIC.contains(&&*demangled(name));
        let mut panicking: HashSet<&str> =
            self.functions.keys().copied().filter(is_handler).collect();
        loop {
            let before = panicking.len();
            for code in self.functions.values() {
                let mut callees = code.statements.iter().filter_map(StatementText::callee);
                if callees.any(|callee| panicking.contains(callee)) {
                    panicking.insert(code.function.name);
                }
            }
            if panicking.len() == before {
                return panicking;
            }
        }
    }

    /// A kernel and the functions that it names, or that variables name which it names.
    fn reached<'m>(&'m self, entry: &'m Code<'a>) -> Vec<&'m Code<'a>> {
        let mut seen = HashSet::from([entry.function.name]);
        let mut reached = vec![entry];
        let mut at = 0;
        while let Some(code) = reached.get(at) {
            at += 1;
            let mut names: Vec<&str> = code.statements.iter().flat_map(named).collect();
            names.reverse();
            while let Some(name) = names.pop() {
                let (function, variable) = (self.functions.get(name), self.variables.get(name));
                if (function.is_none() && variable.is_none()) || !seen.insert(name) {
                    continue;
                }
                reached.extend(function);
                names.extend(variable.into_iter().flatten());
            }
        }
        reached
    }

    fn check_calls(&self, kernel: &str, code: &Code<'_>, panic: Panic) -> Result<(), Refused> {
        let kernel = || kernel.to_owned();
        for (number, statement) in code.statements.iter().enumerate() {
            let at = || self.site(statement);
            if let Some((opcode, _)) = statement.instruction() {
                let rest = &code.statements[number..];
                if statement.is_assembly && is_convergent(opcode) && !self.is_anchored(rest) {
                    let (at, instruction) = (at(), opcode.to_owned());
                    return Err(Refused::Convergent { kernel: kernel(), at, instruction });
                }
            }
            let Some(callee) = statement.callee() else { continue };
            if panic == Panic::Refuse && self.panicking.contains(callee) {
                let name = demangled(callee);
                let is_of_core = name.trim_start_matches('<').starts_with("core::");
                if is_of_core || PANIC.contains(&&*name) {
                    return Err(Refused::Panic { kernel: kernel(), at: at(), callee: name });
                }
            }
            let is_register = callee.starts_with('%');
            let is_defined = self.functions.contains_key(callee) || DRIVER.contains(&callee);
            if !is_register && !is_defined {
                let callee = demangled(callee);
                return Err(Refused::Undefined { kernel: kernel(), at: at(), callee });
            }
        }
        Ok(())
    }

    /// Whether this may be assembly, and its [intrinsic](crate::convergence) follows in the block.
    fn is_anchored(&self, statements: &[StatementText<'_>]) -> bool {
        let opcode = statements[0].instruction().map_or("", |(opcode, _)| opcode);
        let Some((_, anchor)) = ANCHORS.iter().find(|(start, _)| opcode.starts_with(start)) else {
            return false;
        };
        for pair in statements.windows(2) {
            let [before, statement] = pair else { break };
            let (Some(end), Some(start)) = (before.lexemes.last(), statement.lexemes.first())
            else {
                return false;
            };
            let has_label = lexemes(&self.text[end.end()..start.start])
                .any(|lexeme| lexeme.kind == Kind::Punct(':'));
            let opcode = statement.instruction().map_or("", |(opcode, _)| opcode);
            let branches = ["bra", "brx", "ret", "exit", "trap", "call"];
            if has_label || branches.contains(&opcode.split('.').next().unwrap_or_default()) {
                return false;
            }
            if !statement.is_assembly && opcode.starts_with(anchor) {
                return true;
            }
        }
        false
    }

    fn site(&self, statement: &StatementText<'_>) -> Site {
        let line = statement.line();
        Site { line, source: source::place(&self.lines, line) }
    }
}

/// The words of a statement that can be names of functions or variables.
fn named<'a>(statement: &StatementText<'a>) -> impl Iterator<Item = &'a str> {
    words(statement.lexemes.iter().copied())
}

fn words<'a>(lexemes: impl Iterator<Item = Lexeme<'a>>) -> impl Iterator<Item = &'a str> {
    let word = |one: &Lexeme<'_>| one.kind == Kind::Word && !one.text.starts_with(['%', '.']);
    lexemes.filter(word).map(|one| one.text)
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
.shared .align 128 .b8 cuda_std_shared_saxpy_1_0[1024];
.shared .align 128 .b8 cuda_std_shared_other_1_0[64];

.visible .entry saxpy(
\t.param .u64 saxpy_param_0
)
{
\t.reg .b32 \t%r<4>;
\tmov.u32 \t%r1, cuda_std_shared_saxpy_1_0;
$L__BB0_1:
\t@%p1 bra \t$L__BB0_1;
\tret;
}
";

    pub fn with_body(line: &str) -> String {
        SAXPY.replace("\tret;", &format!("{line}\n\tret;"))
    }

    /// The panic handler.
    pub const HANDLER: &str = "_RNvCsfLfy6EI15iL_7___rustc17rust_begin_unwind";
    const STRICT: Rules = Rules { panic: Panic::Refuse, local_memory: LocalMemory::Refuse };

    /// The panic handler, and a function of `core` that calls it.
    const PANICKING: &str = "\
.func _RNvCsfLfy6EI15iL_7___rustc17rust_begin_unwind()
{
\ttrap;
}
.func _ZN4core9panicking5panic17h0123456789abcdefE(
\t.param .b64 p0
)
{
\tcall.uni \t_RNvCsfLfy6EI15iL_7___rustc17rust_begin_unwind, ();
}
";

    fn check(text: &str) -> Result<(), Refused> {
        super::check(text, |_| STRICT)
    }

    fn site(line: u32) -> Site {
        Site { line, source: None }
    }

    #[test]
    fn a_panic_is_refused_directly_and_through_a_function() {
        let panics = "_ZN4core9panicking5panic17h0123456789abcdefE";
        let direct = with_body(&format!("\tcall.uni \t{panics}, (p0);")) + PANICKING;
        let callee = "core::panicking::panic".to_owned();
        let refused = Refused::Panic { kernel: "saxpy".into(), at: site(15), callee };
        assert_eq!(check(&direct), Err(refused));
        assert_eq!(super::check(&direct, |_| Rules::default()), Ok(()));

        let helper = format!(
            ".func  (.param .b32 func_retval0) helper\n(\n\t.param .b32 helper_param_0\n)\n{{\n\
             \t@%p1 call \t{HANDLER}, ();\n}}\n"
        );
        let is_refused = |text: &str| matches!(check(text), Err(Refused::Panic { .. }));
        let through = with_body("\tcall.uni (retval0), helper, (param0);") + &helper + PANICKING;
        assert!(is_refused(&through));
        // Through a table of addresses, as a trait's methods are called.
        let table = ".global .align 8 .u64 table[2] = {0, helper};\n";
        let by_address = with_body("\tmov.b64 %rd1, table;") + &helper + PANICKING;
        assert!(is_refused(&format!("{table}{by_address}")));
        assert!(!is_refused(&by_address));
    }

    #[test]
    fn a_name_with_panic_in_it_is_no_panic() {
        let text = with_body("\tcall.uni \tdont_panic, ();")
            + &PANICKING.replace("_ZN4core9panicking5panic17h0123456789abcdefE", "unused")
            + ".func dont_panic()\n{\n\tret;\n}\n";
        assert!(check(&text).is_ok());
    }

    #[test]
    fn the_line_of_the_source_is_named() {
        let text = with_body("\t.loc 1 12 5\n\tcall.uni \tsinf, ();") + "\t.file 1 \"src/a.rs\"\n";
        let error = check(&text).unwrap_err().to_string();
        let expected = "kernel `saxpy` calls `sinf`, which is defined nowhere, at src/a.rs:12:5 \
                        (PTX line 16); ";
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn two_arrays_of_one_name_are_refused() {
        let text = SAXPY.replace("cuda_std_shared_other_1_0", "cuda_std_shared_saxpy_1_0");
        let symbol = "cuda_std_shared_saxpy_1_0".to_owned();
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
                Err(Refused::Convergent { instruction: found, at, .. }) => {
                    assert_eq!((&*found, at.line), (instruction, 16));
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

    /// What `cuda_std::sm_90a::wgmma` writes: assembly, and behind it LLVM's own instruction.
    #[test]
    fn wgmma_is_taken_in_one_block_with_its_commit() {
        let wgmma = assembly(
            "{ .reg .pred p; setp.ne.u32 p, %r1, 0;\n\twgmma.fence.sync.aligned;\n\t\
             wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r2}, %rd1, %rd2, p, 1, 1, 0, 0; }",
        );
        let commit = "\twgmma.commit_group.sync.aligned;";
        let between = |lines: &str| check(&with_body(&format!("{wgmma}\n{lines}{commit}")));
        for nothing in ["", "\t.loc 1 12 5\n", "\tadd.s32 %r3, %r3, 1;\n", &format!("{wgmma}\n")] {
            assert_eq!(between(nothing), Ok(()), "{nothing}");
        }
        let asm_commit = assembly("wgmma.commit_group.sync.aligned;");
        for block_ends in ["$L__BB0_2:\n", "\t@%p1 bra \t$L__BB0_1;\n", "\t@%p1 exit;\n"] {
            assert!(matches!(between(block_ends), Err(Refused::Convergent { .. })), "{block_ends}");
        }
        let asm_wait = assembly("wgmma.wait_group.sync.aligned 0;");
        for refused in [
            wgmma.clone(),
            format!("{wgmma}\n{asm_commit}"),
            // These have intrinsics.
            format!("{wgmma}\n{asm_commit}\n{commit}"),
            format!("{asm_wait}\n{wgmma}\n{commit}"),
        ] {
            assert!(
                matches!(check(&with_body(&refused)), Err(Refused::Convergent { .. })),
                "{refused}"
            );
        }
    }

    /// What `cuda_std::mma` writes.
    #[test]
    fn mma_is_taken_in_one_block_with_an_activemask() {
        let mma = assembly(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r1}, {%r2}, {%r3}, {%r1};",
        );
        let movmatrix = assembly("movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;");
        let anchor = "\tactivemask.b32 %r4;";
        let check = |lines: &str| check(&with_body(lines));
        let refused = |lines: &str| matches!(check(lines), Err(Refused::Convergent { .. }));
        assert_eq!(check(&format!("{mma}\n{anchor}")), Ok(()));
        assert!(refused(&mma));
        assert!(refused(&format!("{mma}\n$L__BB0_2:\n{anchor}")));
        assert!(refused(&format!("{mma}\n{}", assembly("activemask.b32 %r4;"))));
        assert!(refused(&format!("{movmatrix}\n{anchor}")));
    }

    #[test]
    fn an_undefined_function_is_refused() {
        let text = with_body("\tcall.uni (retval0), sinf, (param0);");
        let refused =
            Refused::Undefined { kernel: "saxpy".into(), at: site(15), callee: "sinf".into() };
        assert_eq!(check(&text), Err(refused));
        // The driver defines this one, and a register holds an address.
        for callee in ["vprintf, (a, b)", "%rd20, (a), prototype_0"] {
            assert_eq!(check(&with_body(&format!("\tcall.uni (retval0), {callee};"))), Ok(()));
        }
    }

    #[test]
    fn local_memory_is_refused() {
        let text = with_body("\t.local .align 16 .b8 \t__local_depot0[64];");
        assert_eq!(
            check(&text),
            Err(Refused::LocalMemory { kernel: "saxpy".into(), at: site(15) })
        );
        assert_eq!(super::check(&text, |_| Rules::default()), Ok(()));
    }
}
