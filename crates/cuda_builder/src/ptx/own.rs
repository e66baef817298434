//! Atomics on a thread's own variables.
//!
//! A thread's variables lie in local memory. PTX defines atomics, and loads and stores with an
//! ordering, for global and shared memory alone; at a generic address in local memory they are
//! undefined. Rust's atomics may be variables of a thread, and `fetch_add` takes a reference that
//! does not say which memory it leads to. No other thread reaches a local variable, so that
//! ordinary instructions do the same there. Each such instruction is put under a predicate, and
//! ordinary ones under the opposite:
//!
//! ```text
//! isspacep.local %own_is, %rd1;
//! @%own_is ld.b32 %own_old, [%rd1];
//! @%own_is add.s32 %own_new, %own_old, 1;
//! @%own_is st.b32 [%rd1], %own_new;
//! @!%own_is atom.relaxed.sys.add.u32 %r1, [%rd1], 1;
//! @%own_is mov.b32 %r1, %own_old;
//! ```
//!
//! Predicates rather than a branch: no label ends the basic block, and the threads of a warp stay
//! together.

use ptx_syntax::outline::StatementText;
use ptx_syntax::scan::{Kind, Lexeme};

/// What orders a load or a store, and makes it undefined in local memory.
const ORDERS: [&str; 5] = ["relaxed", "acquire", "release", "volatile", "mmio"];
const SCOPES: [&str; 4] = ["cta", "cluster", "gpu", "sys"];

/// Instructions for a thread's own variables, without their guard, and the registers that they
/// take.
struct Own {
    lines: Vec<String>,
    /// Behind the instruction that is for shared memory and global memory.
    last: Option<String>,
    registers: String,
}

/// The statement for any memory, with its `;`, if it is for global and shared memory alone and may
/// have another address.
pub(super) fn for_any_memory(
    text: &str,
    statement: &StatementText<'_>,
    is_variable: impl Fn(&str) -> bool,
) -> Option<String> {
    let (opcode, operands) = statement.instruction()?;
    let mut modifiers = opcode.split('.');
    let name = modifiers.next()?;
    let modifiers: Vec<&str> = modifiers.collect();
    let is_space = |word: &&str| {
        let space = word.split("::").next().unwrap_or_default();
        matches!(space, "global" | "shared" | "local" | "const" | "param" | "async")
    };
    let space = modifiers.iter().copied().find(is_space);
    if space.is_some_and(|space| space != "local") {
        return None;
    }
    let operands: Vec<&[Lexeme<'_>]> = split(operands);
    let at = operands.iter().find(|one| one[0].kind == Kind::Punct('['))?;
    let source = |part: &[Lexeme<'_>]| match (part.first(), part.last()) {
        (Some(first), Some(last)) => &text[first.start..last.end()],
        _ => "",
    };
    let values: Vec<&str> = operands.iter().map(|one| source(one)).collect();
    let Own { lines, last, registers } = match name {
        "ld" | "st" if modifiers.iter().any(|word| ORDERS.contains(word)) => {
            let is_plain = |word: &&str| !ORDERS.contains(word) && !SCOPES.contains(word);
            let plain = modifiers.iter().copied().filter(is_plain).collect::<Vec<_>>().join(".");
            let line = format!("{name}.{plain} {};", values.join(", "));
            Own { lines: vec![line], last: None, registers: String::new() }
        }
        "atom" | "red" => update(name == "atom", &modifiers, space, &values)?,
        _ => return None,
    };
    let whole = source(&statement.lexemes);
    let guard = &whole[..whole.find(opcode)?];
    let guarded = |lines: Vec<String>, guard: &str| {
        lines.into_iter().map(|line| format!("\n\t{guard}{line}")).collect::<String>()
    };
    if space.is_some() {
        let lines = guarded(lines.into_iter().chain(last).collect(), guard);
        return Some(format!("{{ {registers}{lines} }}"));
    }
    let (base, offset) = (at.get(1)?, source(&at[2..at.len() - 1]));
    // An address that is a variable's name is none of local memory.
    if base.kind != Kind::Word || is_variable(base.text) {
        return None;
    }
    let (mut registers, mut address) = (format!(".reg .pred %own_is; {registers}"), base.text);
    let mut first = String::new();
    if !offset.is_empty() {
        registers += ".reg .b64 %own_at; ";
        first += &format!("\n\tadd.s64 %own_at, {address}, {};", offset.trim_start_matches('+'));
        address = "%own_at";
    }
    first += &format!("\n\tisspacep.local %own_is, {address};");
    let mut others = "@!%own_is ";
    if let Some(predicate) = guard.trim().strip_prefix('@') {
        registers += ".reg .pred %own_not; ";
        first += "\n\tnot.pred %own_not, %own_is;";
        let mut predicate = predicate.trim();
        if let Some(opposite) = predicate.strip_prefix('!') {
            registers += ".reg .pred %own_guard; ";
            first += &format!("\n\tnot.pred %own_guard, {};", opposite.trim());
            predicate = "%own_guard";
        }
        for register in ["%own_is", "%own_not"] {
            first += &format!("\n\tand.pred {register}, {register}, {predicate};");
        }
        others = "@%own_not ";
    }
    let own = guarded(lines, "@%own_is ");
    let last = guarded(last.into_iter().collect(), "@%own_is ");
    let instruction = &whole[guard.len()..];
    Some(format!("{{ {registers}{first}{own}\n\t{others}{instruction};{last} }}"))
}

/// What `atom` and `red` do, by ordinary instructions.
fn update(
    returns: bool,
    modifiers: &[&str],
    space: Option<&str>,
    operands: &[&str],
) -> Option<Own> {
    let ty = *modifiers.last()?;
    let bits = match ty {
        "b16" | "f16" | "bf16" => 16,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => 32,
        "b64" | "u64" | "s64" | "f64" => 64,
        _ => return None,
    };
    let result = operands.first().filter(|_| returns);
    let mut operands = operands[usize::from(returns)..].iter();
    let (at, value) = (operands.next()?, operands.next()?);
    let names = ["add", "and", "or", "xor", "min", "max", "exch", "cas", "inc", "dec"];
    let operation = *modifiers.iter().find(|word| names.contains(word))?;
    let new: Vec<String> = match operation {
        "add" if ty.contains('f') => {
            vec![format!("add.rn.{ty} %own_new, %own_old, {value};")]
        }
        "add" => vec![format!("add.s{bits} %own_new, %own_old, {value};")],
        "and" | "or" | "xor" => {
            vec![format!("{operation}.b{bits} %own_new, %own_old, {value};")]
        }
        "min" | "max" => vec![format!("{operation}.{ty} %own_new, %own_old, {value};")],
        "exch" => vec![format!("mov.b{bits} %own_new, {value};")],
        "cas" => vec![
            format!("setp.eq.b{bits} %own_if, %own_old, {value};"),
            format!("selp.b{bits} %own_new, {}, %own_old, %own_if;", operands.next()?),
        ],
        "inc" => vec![
            format!("setp.ge.u{bits} %own_if, %own_old, {value};"),
            format!("add.s{bits} %own_new, %own_old, 1;"),
            format!("selp.b{bits} %own_new, 0, %own_new, %own_if;"),
        ],
        // From 0, and from above the largest, to the largest.
        _ => vec![
            format!("add.s{bits} %own_new, %own_old, -1;"),
            format!("setp.ge.u{bits} %own_if, %own_new, {value};"),
            format!("selp.b{bits} %own_new, {value}, %own_new, %own_if;"),
        ],
    };
    let space = space.map_or(String::new(), |space| format!(".{space}"));
    let mut lines = vec![format!("ld{space}.b{bits} %own_old, {at};")];
    lines.extend(new);
    lines.push(format!("st{space}.b{bits} {at}, %own_new;"));
    let condition = if lines.len() > 3 { ".reg .pred %own_if; " } else { "" };
    Some(Own {
        lines,
        last: result
            .filter(|result| **result != "_")
            .map(|result| format!("mov.b{bits} {result}, %own_old;")),
        registers: format!("{condition}.reg .b{bits} %own_old, %own_new; "),
    })
}

/// The operands between commas.
fn split<'s, 'a>(operands: &'s [Lexeme<'a>]) -> Vec<&'s [Lexeme<'a>]> {
    let mut depth = 0;
    let operands = operands.split(|lexeme| {
        match lexeme.kind {
            Kind::Punct('[' | '{') => depth += 1,
            Kind::Punct(']' | '}') => depth -= 1,
            _ => {}
        }
        depth == 0 && lexeme.kind == Kind::Punct(',')
    });
    operands.filter(|operand| !operand.is_empty()).collect()
}
