//! What the PTX ISA has that the device does not: each form of each instruction, special register
//! and directive is loaded, and what is refused is listed in `ISA.md`.

mod pattern;

use std::fmt::Write as _;
use std::path::Path;

use pattern::{Choice, expanded, grouped};
use soft_cuda::{Config, Device, KernelError, LoadError};

/// The forms of the ISA.
///
/// `# ` begins a section, and `= ` an item of the list. In the other lines, `<a|b>` stands for a
/// form with each; [`operands`] explains the operands. A line that begins with `@ ` is a directive
/// of a kernel, and one that begins with `! ` is a directive of a module.
const ISA: [&str; 2] = [include_str!("instructions.txt"), include_str!("others.txt")];

/// Registers by the first letter of their names, and their types.
const REGISTERS: [(char, &str); 4] = [('p', "pred"), ('h', "b16"), ('r', "b32"), ('d', "b64")];

/// A statement with its operands, which are written in short: `r`, `r1` ... are registers of 32
/// bits, as [`REGISTERS`] says, and `q` of 128. `@` is a register that fits the last type of the
/// opcode, `@1` and `@2` its first and its second. `r*4` are four registers, `r*#` as many as the
/// opcode says.
fn operands(statement: &str) -> String {
    let (opcode, rest) = statement.split_once(' ').unwrap_or((statement, ""));
    let types: Vec<char> = opcode.split('.').filter_map(register_for).collect();
    let count = opcode.split('.').find_map(|word| {
        let number = word.strip_prefix(['v', 'x']).or_else(|| word.strip_suffix('d'))?;
        number.parse::<u32>().ok()
    });
    let mut out = format!("{opcode} ");
    let mut rest = rest;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || "@*#_%.:$\"".contains(c);
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len()).max(first.len_utf8());
        let (word, after) = rest.split_at(end);
        rest = after;
        let (name, copies) = word.split_once('*').map_or((word, None), |(name, n)| {
            (name, Some(n.parse().ok().or(count).expect("the opcode has a number")))
        });
        let name = match name {
            "@" => types.last().expect("the opcode has a type").to_string(),
            "@1" => types[0].to_string(),
            "@2" => types[1].to_string(),
            _ => name.to_owned(),
        };
        match copies {
            Some(copies) => {
                let all: Vec<String> = (10..10 + copies).map(|i| format!("{name}{i}")).collect();
                out += &all.join(", ");
            }
            None => out += &name,
        }
    }
    out
}

/// The register that a type needs.
fn register_for(ty: &str) -> Option<char> {
    Some(match ty {
        "b8" | "u8" | "s8" | "b16" | "u16" | "s16" | "f16" | "bf16" => 'h',
        "b32" | "u32" | "s32" | "f32" | "tf32" | "f16x2" | "bf16x2" | "u16x2" | "s16x2" => 'r',
        "b64" | "u64" | "s64" | "f64" | "u32x2" | "f32x2" => 'd',
        _ => return None,
    })
}

/// The text of a module with one form.
fn module(form: &str) -> String {
    let mut registers: String =
        REGISTERS.map(|(name, ty)| format!(".reg .{ty} {name}, {name}<40>;\n")).concat();
    if [" q", "{q"].iter().any(|quad| form.contains(quad)) {
        registers += ".reg .b128 q, q<4>;\n";
    }
    let (outer, directive, statement) = match form.split_at_checked(2) {
        Some(("! ", outer)) => (outer, "", String::new()),
        Some(("@ ", directive)) => ("", directive, String::new()),
        _ => ("", "", operands(form)),
    };
    let end = if statement.starts_with(".loc ") { "" } else { ";" };
    format!(
        ".version 9.0\n.target sm_90a\n.address_size 64
{outer}
.func f() {{ ret; }}
.entry k()\n{directive}\n{{
{registers}T: .branchtargets L;
P: .callprototype (.param .b32 y) _ (.param .b32 y);
{statement}{end}
L:
  ret;
}}"
    )
}

/// Whether the device runs a form; fails where it says that the form is no PTX.
fn is_known(device: &Device, form: &str) -> bool {
    let text = module(form);
    let error = match device.load(&text) {
        Err(error) => error,
        Ok(module) => match module.kernel("k") {
            Ok(_) => return true,
            Err(KernelError::Refused { error, .. }) => error,
            Err(error) => panic!("{form}: {error}"),
        },
    };
    let is_special = form.contains('%') || form.starts_with("! .extern");
    let is_typo = matches!(error, LoadError::Undeclared { .. } | LoadError::Redeclared { .. });
    assert!(!is_typo || is_special, "{form}: {error}\n{text}");
    false
}

/// An item of the list: what of it is missing.
struct Item<'a> {
    name: &'a str,
    missing: Vec<String>,
}

/// A section of the list, as Markdown: what is missing, and then what nothing is missing of.
fn section(name: &str, items: &[Item<'_>]) -> String {
    let mut out = format!("\n### {name}\n\n");
    let (complete, missing): (Vec<&Item<'_>>, _) =
        items.iter().partition(|item| item.missing.is_empty());
    for Item { name, missing } in missing {
        writeln!(out, "- {name}: {}", missing.join(", ")).unwrap();
    }
    if !complete.is_empty() {
        let names: Vec<&str> = complete.iter().map(|item| item.name).collect();
        writeln!(out, "- complete: {}", names.join("; ")).unwrap();
    }
    out
}

/// What is missing, as Markdown.
fn missing() -> String {
    let device = Device::new(Config::default());
    let mut sections: Vec<(&str, Vec<Item<'_>>)> = Vec::new();
    let (mut count, mut unknown) = (0, 0);
    for line in ISA.iter().flat_map(|text| text.lines()) {
        if let Some(name) = line.strip_prefix("# ") {
            sections.push((name, Vec::new()));
            continue;
        }
        let (_, items) = sections.last_mut().expect("a section comes first");
        if let Some(name) = line.strip_prefix("= ") {
            items.push(Item { name, missing: Vec::new() });
            continue;
        }
        let forms = expanded(line);
        count += forms.len();
        let refused = forms.into_iter().filter(|(form, _)| !is_known(&device, form));
        let refused: Vec<Choice> = refused.map(|(_, choice)| choice).collect();
        unknown += refused.len();
        // The item says already whose directive it is.
        let plain = ["@ ", "! "].iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line);
        let forms = grouped(plain, &refused).into_iter().map(|form| format!("`{form}`"));
        items.last_mut().expect("an item comes first").missing.extend(forms);
    }
    let sections: String = sections.iter().map(|(name, items)| section(name, items)).collect();
    format!("Of {count} forms {unknown} are missing.\n{sections}")
}

/// `UPDATE=1` writes it.
#[test]
fn the_list_of_what_is_missing_is_what_is_refused() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("ISA.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let mark = "<!-- generated: tests/isa/main.rs -->\n";
    let (head, old) = text.split_once(mark).unwrap();
    let new = missing();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, format!("{head}{mark}{new}")).unwrap();
    } else {
        assert_eq!(old, new, "set UPDATE=1 to write it");
    }
}
