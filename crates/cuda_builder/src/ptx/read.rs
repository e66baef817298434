//! What LLVM prints, line by line.

/// A function or kernel: its name, and the lines of its body with their numbers.
pub(super) struct Function<'a> {
    pub name: &'a str,
    pub is_entry: bool,
    pub body: Vec<(usize, &'a str)>,
}

pub(super) fn functions(text: &str) -> Vec<Function<'_>> {
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

/// The kernel's name in `.visible .entry name(`.
pub(super) fn entry_name(line: &str) -> Option<&str> {
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
pub(super) fn callee(instruction: &str) -> Option<&str> {
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
pub(super) fn shared_array(line: &str) -> Option<(&str, u32)> {
    let (head, size) = line.strip_prefix(".shared ")?.split_once('[')?;
    let bytes = size.split_once(']')?.0.parse().ok()?;
    Some((head.split_whitespace().next_back()?, bytes))
}

/// Whether `line` names `symbol` as a word.
pub(super) fn mentions(line: &str, symbol: &str) -> bool {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$'))
        .any(|word| word == symbol)
}

/// Whether a line of a body is an instruction, rather than a label, a directive, a comment
/// or a brace.
pub(super) fn is_instruction(line: &str) -> bool {
    line.ends_with(';') && !line.starts_with(['.', '/', '{', '}', '$'])
}
