//! What a text declares, and where: for those who search a text or edit it.
//!
//! An outline takes no more of PTX's grammar than a text needs to be divided into declarations
//! and statements, and refuses nothing; [`parse`](crate::parse) reads all of it.

use crate::scan::{Kind, Lexeme, Lexemes};

/// Where a declaration begins, unless it has begun with one of [`LINKAGE`].
const DECLARATIONS: [&str; 15] = [
    ".version",
    ".target",
    ".address_size",
    ".file",
    ".section",
    ".alias",
    ".pragma",
    ".visible",
    ".extern",
    ".weak",
    ".common",
    ".global",
    ".const",
    ".shared",
    ".entry",
];
const FUNCTION: &str = ".func";
const LINKAGE: [&str; 4] = [".visible", ".extern", ".weak", ".common"];

/// A declaration of a module: `.target sm_80`, a variable, a function with its body.
#[derive(Clone, Debug)]
pub struct Declaration<'a> {
    /// All of its text.
    pub text: &'a str,
    /// Its lexemes in front of its body or its `;`, without comments and initial values.
    pub head: Vec<Lexeme<'a>>,
    body: Option<Body<'a>>,
}

/// A function or kernel with a body.
#[derive(Clone, Debug)]
pub struct FunctionText<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it is a kernel.
    pub is_entry: bool,
    /// The lexemes of each parameter, from `.param` on.
    pub params: Vec<Vec<Lexeme<'a>>>,
    /// Its body.
    pub body: Body<'a>,
}

/// An array in shared memory: `.shared .align 16 .b8 name[1024];`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedArray<'a> {
    /// Its name.
    pub name: &'a str,
    /// How many elements it has; none where that is chosen at launch.
    pub elements: Option<u32>,
}

/// The body of a function.
#[derive(Clone, Debug)]
pub struct Body<'a> {
    /// Where its opening brace is, in bytes.
    pub start: usize,
    lexemes: Lexemes<'a>,
}

/// A statement of a body, without its label and its `;`.
#[derive(Clone, Debug)]
pub struct StatementText<'a> {
    /// Its lexemes, without comments.
    pub lexemes: Vec<Lexeme<'a>>,
    /// Whether it is inline assembly, around which LLVM writes [comments](AROUND_ASSEMBLY):
    /// `cuda_builder` leaves them out of the PTX that it writes.
    pub is_assembly: bool,
}

/// What LLVM writes before and behind inline assembly.
pub const AROUND_ASSEMBLY: [&str; 2] = ["// begin inline asm", "// end inline asm"];

/// The declarations of a text, in order.
pub fn declarations(text: &str) -> impl Iterator<Item = Declaration<'_>> {
    declarations_from(text, 0)
}

/// The functions and kernels of a text that have bodies, in order.
pub fn functions(text: &str) -> impl Iterator<Item = FunctionText<'_>> {
    declarations(text).filter_map(|declaration| declaration.function())
}

/// The architecture that a text is for, as in `sm_80`.
pub fn target(text: &str) -> Option<&str> {
    declarations(text).find_map(|declaration| match declaration.head[..] {
        [directive, target, ..] if directive.text == ".target" => Some(target.text),
        _ => None,
    })
}

/// The kernel of this name, its lines counted from its own first one: in a text of many this does
/// not read the others.
pub fn entry<'a>(text: &'a str, name: &str) -> Option<Declaration<'a>> {
    let is_it = |declaration: &Declaration<'_>| {
        declaration.function().is_some_and(|function| function.is_entry && function.name == name)
    };
    text.match_indices(".entry").find_map(|(at, word)| {
        text[at + word.len()..].trim_start().starts_with(name).then_some(())?;
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let begins_here = |declaration: &Declaration<'_>| {
            declaration.head.first().is_some_and(|first| first.start <= at)
        };
        declarations_from(text, line).take_while(begins_here).find(is_it)
    })
}

fn declarations_from(text: &str, at: usize) -> impl Iterator<Item = Declaration<'_>> {
    let mut lexemes = Lexemes::from(text, at);
    std::iter::from_fn(move || declaration(text, &mut lexemes))
}

fn declaration<'a>(text: &'a str, lexemes: &mut Lexemes<'a>) -> Option<Declaration<'a>> {
    let mut head: Vec<Lexeme<'a>> = Vec::new();
    let (mut body, mut end, mut parentheses, mut is_function) = (None, 0, 0, false);
    loop {
        let before = lexemes.clone();
        let Some(lexeme) = lexemes.next() else { break };
        match lexeme.kind {
            Kind::Comment => continue,
            Kind::Punct('(') => parentheses += 1,
            Kind::Punct(')') => parentheses -= 1,
            Kind::Punct('{') => {
                end = close(lexemes).unwrap_or(text.len());
                let is_section = head.first().is_some_and(|first| first.text == ".section");
                if is_function || is_section {
                    body = Some(Body { start: lexeme.start, lexemes: before.up_to(end) });
                    break;
                }
                continue;
            }
            // `.pragma "nounroll";` may stand in the head of a kernel.
            Kind::Punct(';') if is_function && head.iter().rev().nth(1).is_some_and(is_pragma) => {}
            Kind::Punct(';') => {
                end = lexeme.end();
                break;
            }
            Kind::Word if parentheses == 0 && !is_function => {
                let is_start = DECLARATIONS.contains(&lexeme.text) || lexeme.text == FUNCTION;
                if is_start && head.iter().any(|one| !LINKAGE.contains(&one.text)) {
                    *lexemes = before;
                    break;
                }
                is_function = matches!(lexeme.text, ".entry" | FUNCTION);
            }
            _ => {}
        }
        end = lexeme.end();
        head.push(lexeme);
    }
    let start = head.first()?.start;
    Some(Declaration { text: &text[start..end], head, body })
}

fn is_pragma(lexeme: &Lexeme<'_>) -> bool {
    lexeme.text == ".pragma"
}

/// Goes behind the brace that closes one that was opened.
fn close(lexemes: &mut Lexemes<'_>) -> Option<usize> {
    let mut depth = 1;
    lexemes.find_map(|lexeme| {
        match lexeme.kind {
            Kind::Punct('{') => depth += 1,
            Kind::Punct('}') => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(lexeme.end())
    })
}

impl<'a> Declaration<'a> {
    /// Where it begins, in bytes.
    pub fn start(&self) -> usize {
        self.head.first().map_or(0, |first| first.start)
    }

    /// Whether it declares or defines a kernel.
    pub fn is_entry(&self) -> bool {
        self.head.iter().any(|lexeme| lexeme.text == ".entry")
    }

    /// The array in shared memory that it declares.
    pub fn shared_array(&self) -> Option<SharedArray<'a>> {
        self.linked().next().filter(|lexeme| lexeme.text == ".shared")?;
        let bracket = self.head.iter().position(|lexeme| lexeme.kind == Kind::Punct('['))?;
        let elements = self.head.get(bracket + 1).and_then(|count| count.text.parse().ok());
        Some(SharedArray { name: self.name()?, elements })
    }

    /// The name of the variable, function or kernel that it declares.
    pub fn name(&self) -> Option<&'a str> {
        if let Some((name, _)) = self.signature() {
            return Some(name.text);
        }
        let space = self.linked().next()?.text;
        matches!(space, ".shared" | ".global" | ".const").then_some(())?;
        let ends = |one: &&Lexeme<'_>| matches!(one.kind, Kind::Punct('[' | '='));
        Some(self.head.iter().take_while(|one| !ends(one)).last()?.text)
    }

    /// Whether it declares or defines a function that is no kernel.
    pub fn is_function(&self) -> bool {
        self.head.iter().any(|lexeme| lexeme.text == FUNCTION)
    }

    /// What declares the function that it defines, without the body.
    pub fn prototype(&self) -> Option<String> {
        let body = self.body.as_ref().filter(|_| self.is_function())?;
        Some(format!("{};", self.text[..body.start - self.start()].trim_end()))
    }

    /// Whether other modules, or the host, know it by its name.
    pub fn is_linked(&self) -> bool {
        LINKAGE.contains(&self.head[0].text)
    }

    /// Its head behind `.visible` and its like.
    fn linked(&self) -> impl Iterator<Item = &Lexeme<'a>> {
        self.head.iter().skip_while(|lexeme| LINKAGE.contains(&lexeme.text))
    }

    /// The name of a function or kernel, and what follows that.
    fn signature(&self) -> Option<(&Lexeme<'a>, &[Lexeme<'a>])> {
        let at = self.head.iter().position(|one| matches!(one.text, ".entry" | FUNCTION))?;
        let rest = &self.head[at + 1..];
        // What a function returns stands in front of its name.
        match rest.first()?.kind {
            Kind::Punct('(') => rest[closing(rest)? + 1..].split_first(),
            _ => rest.split_first(),
        }
    }

    /// The function or kernel that it defines.
    pub fn function(&self) -> Option<FunctionText<'a>> {
        let body = self.body.clone()?;
        let (name, rest) = self.signature()?;
        let params = match rest.first() {
            Some(Lexeme { kind: Kind::Punct('('), .. }) => &rest[1..closing(rest)?],
            _ => &[],
        };
        let params = params.split(|one| one.kind == Kind::Punct(','));
        let params = params.filter(|one| !one.is_empty()).map(<[_]>::to_vec).collect();
        Some(FunctionText { name: name.text, is_entry: self.is_entry(), params, body })
    }
}

/// Where the first parenthesis is closed.
fn closing(lexemes: &[Lexeme<'_>]) -> Option<usize> {
    lexemes.iter().position(|one| one.kind == Kind::Punct(')'))
}

impl<'a> Body<'a> {
    /// Its lexemes, comments and braces included.
    pub fn lexemes(&self) -> impl Iterator<Item = Lexeme<'a>> + use<'a> {
        self.lexemes.clone()
    }

    /// Its statements: those of blocks in it, too.
    pub fn statements(&self) -> impl Iterator<Item = StatementText<'a>> + use<'a> {
        let mut lexemes = self.lexemes.clone();
        let mut is_assembly = false;
        std::iter::from_fn(move || statement(&mut lexemes, &mut is_assembly))
    }
}

fn statement<'a>(lexemes: &mut Lexemes<'a>, is_assembly: &mut bool) -> Option<StatementText<'a>> {
    let mut found: Vec<Lexeme<'a>> = Vec::new();
    // Braces that are open around the operands of a vector.
    let mut braces = 0;
    loop {
        let before = lexemes.clone();
        let Some(lexeme) = lexemes.next() else { break };
        // It ends with its line, and with no `;`.
        if found.first().is_some_and(|first| first.text == ".loc" && first.line != lexeme.line) {
            *lexemes = before;
            break;
        }
        match lexeme.kind {
            Kind::Comment => match lexeme.text {
                text if text == AROUND_ASSEMBLY[0] => *is_assembly = true,
                text if text == AROUND_ASSEMBLY[1] => *is_assembly = false,
                _ => {}
            },
            Kind::Punct(':') if found.len() == 1 => found.clear(),
            Kind::Punct(';') if found.is_empty() => {}
            Kind::Punct(';') => break,
            Kind::Punct('{') if found.is_empty() => {}
            Kind::Punct('}') if braces == 0 && found.is_empty() => {}
            Kind::Punct('}') if braces == 0 => break,
            _ => {
                match lexeme.kind {
                    Kind::Punct('{') => braces += 1,
                    Kind::Punct('}') => braces -= 1,
                    _ => {}
                }
                found.push(lexeme);
            }
        }
    }
    (!found.is_empty()).then_some(StatementText { lexemes: found, is_assembly: *is_assembly })
}

impl<'a> StatementText<'a> {
    /// The line it begins in, from 1.
    pub fn line(&self) -> u32 {
        self.lexemes.first().map_or(0, |first| first.line)
    }

    /// The first word of a directive: `.local`.
    pub fn directive(&self) -> Option<&'a str> {
        self.lexemes.first().map(|first| first.text).filter(|text| text.starts_with('.'))
    }

    /// The opcode of an instruction, and its operands: `ld.global.v4.b32`.
    pub fn instruction(&self) -> Option<(&'a str, &[Lexeme<'a>])> {
        let punct =
            |at: usize, c| self.lexemes.get(at).is_some_and(|one| one.kind == Kind::Punct(c));
        let guard = match (punct(0, '@'), punct(1, '!')) {
            (false, _) => 0,
            (true, negated) => 2 + usize::from(negated),
        };
        let (opcode, operands) = self.lexemes.get(guard..)?.split_first()?;
        let is_opcode = opcode.kind == Kind::Word && !opcode.text.starts_with('.');
        is_opcode.then_some((opcode.text, operands))
    }

    /// The function that it calls: in `call.uni (retval0), name, (param0);` that is `name`. A call
    /// through a register comes back as that register.
    pub fn callee(&self) -> Option<&'a str> {
        let (opcode, operands) = self.instruction()?;
        if opcode.split('.').next() != Some("call") {
            return None;
        }
        let mut operands = operands.iter();
        if operands.as_slice().first()?.kind == Kind::Punct('(') {
            operands.find(|one| one.kind == Kind::Punct(')'));
            operands.next();
        }
        operands.next().map(|name| name.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
// .entry not_this(
.version 8.0
.target sm_80, debug
.address_size 64
.file 1 \"a;{.rs\"
.shared .align 128 .b8 tile[64];
.extern .shared .align 16 .b8 dynamic[];
.global .align 4 .b32 table[2][1] = {{1}, {generic(tile)}};
\t// .globl first
.visible .entry first(
\t.param .u64 .ptr .global .align 1 a,
\t.param .align 64 .b8 b[128] /* 128 */
)
.reqntid 32, 2 // threads
.pragma \"nounroll\";
{
\t.reg .pred %p<2>;
\t.loc 1 2 3
$L_1: @%p1 ld.global.v2.b32 {%r1, %r2}, [tile];
\t{ // callseq 0, 0
\t// begin inline asm
\t@ !%p1 bar.sync 0; mov.u32 %r1,
\t1;
\t// end inline asm
\t@%p1 call.uni (r), helper, (p);
\t}
}
.func (.param .b32 r) helper(.param .b32 p) { call.uni _x, (); }
.func (.param .b32 r) declared(.param .b32 p);
.section .debug_abbrev { .b8 1 }
.visible .entry first_of_all() { ret; }
";

    fn words(lexemes: &[Lexeme<'_>]) -> String {
        lexemes.iter().map(|one| one.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn declarations_are_told_apart() {
        let texts: Vec<_> = declarations(TEXT).map(|one| one.text).collect();
        let starts: Vec<_> = texts
            .iter()
            .map(|text| text.split_inclusive(' ').take(2).collect::<String>())
            .collect();
        assert_eq!(
            starts,
            [
                ".version 8.0",
                ".target sm_80, ",
                ".address_size 64",
                ".file 1 ",
                ".shared .align ",
                ".extern .shared ",
                ".global .align ",
                ".visible .entry ",
                ".func (.param ",
                ".func (.param ",
                ".section .debug_abbrev ",
                ".visible .entry ",
            ]
        );
        assert!(texts[6].ends_with("{generic(tile)}};") && texts[7].ends_with("\t}\n}"));
        for declaration in declarations(TEXT) {
            assert!(TEXT[declaration.start()..].starts_with(declaration.text));
        }
        let names: Vec<_> = declarations(TEXT).filter_map(|one| one.name()).collect();
        assert_eq!(names.join(" "), "tile dynamic table first helper declared first_of_all");
        let linked = declarations(TEXT).filter(Declaration::is_linked).filter_map(|one| one.name());
        assert!(linked.eq(["dynamic", "first", "first_of_all"]));
        let arrays: Vec<_> = declarations(TEXT).filter_map(|one| one.shared_array()).collect();
        let array = |name, elements| SharedArray { name, elements };
        assert_eq!(arrays, [array("tile", Some(64)), array("dynamic", None)]);
    }

    #[test]
    fn the_target_is_found() {
        assert_eq!([TEXT, "nonsense", ".target"].map(target), [Some("sm_80"), None, None]);
    }

    #[test]
    fn functions_have_parameters_and_bodies() {
        let functions: Vec<_> = functions(TEXT).collect();
        let names: Vec<_> = functions.iter().map(|one| (one.name, one.is_entry)).collect();
        assert_eq!(names, [("first", true), ("helper", false), ("first_of_all", true)]);
        let params: Vec<_> = functions[0].params.iter().map(|one| words(one)).collect();
        assert_eq!(
            params,
            [".param .u64 .ptr .global .align 1 a", ".param .align 64 .b8 b [ 128 ]"]
        );
        assert!(TEXT[functions[0].body.start..].starts_with("{\n\t.reg"));
        let statements: Vec<_> = functions[0].body.statements().collect();
        let found: Vec<_> = statements
            .iter()
            .map(|one| (one.line(), words(&one.lexemes), one.is_assembly))
            .collect();
        let expected = [
            (17, ".reg .pred %p < 2 >", false),
            (18, ".loc 1 2 3", false),
            (19, "@ %p1 ld.global.v2.b32 { %r1 , %r2 } , [ tile ]", false),
            (22, "@ ! %p1 bar.sync 0", true),
            (22, "mov.u32 %r1 , 1", true),
            (25, "@ %p1 call.uni ( r ) , helper , ( p )", false),
        ];
        assert_eq!(found, expected.map(|(line, text, asm)| (line, text.to_owned(), asm)));
        assert_eq!(statements[0].directive(), Some(".reg"));
        let opcodes: Vec<_> =
            statements.iter().filter_map(|one| Some(one.instruction()?.0)).collect();
        assert_eq!(opcodes, ["ld.global.v2.b32", "bar.sync", "mov.u32", "call.uni"]);
        let callees: Vec<_> = statements.iter().filter_map(StatementText::callee).collect();
        assert_eq!(callees, ["helper"]);
        let callees: Vec<_> = functions[1].body.statements().map(|one| one.callee()).collect();
        assert_eq!(callees, [Some("_x")]);
    }

    #[test]
    fn one_entry_is_found_among_many() {
        for name in ["first", "first_of_all"] {
            let found = entry(TEXT, name).unwrap();
            let same = declarations(TEXT)
                .find(|one| one.function().is_some_and(|function| function.name == name));
            assert_eq!(
                (found.start(), found.text),
                same.map(|one| (one.start(), one.text)).unwrap()
            );
            assert_eq!(found.head[0].line, 1);
        }
        for name in ["not_this", "helper", "firs", "gone"] {
            assert!(entry(TEXT, name).is_none(), "{name}");
        }
        assert!(entry(".version 8.0 .target sm_80 .entry k() { ret; }", "k").is_some());
    }

    #[test]
    fn what_is_not_closed_ends_with_the_text() {
        let text = ".entry k() { { ret";
        let function = functions(text).next().unwrap();
        assert_eq!(words(&function.body.statements().next().unwrap().lexemes), "ret");
        assert_eq!(declarations(".entry k(").count(), 1);
        assert!(declarations(".entry k(").all(|one| one.function().is_none()));
        let open = declarations(".shared .b8 x[").next().unwrap().shared_array();
        assert_eq!(open, Some(SharedArray { name: "x", elements: None }));
    }
}
