//! The order of `core`'s atomic operations.
//!
//! LLVM 22 drops the ordering and the scope of an `atomicrmw`: `swap(1, Acquire)` becomes `atom.global.exch.b32`, which is relaxed, and
//! for the device alone. Loads, stores, fences and `compare_exchange` keep theirs. What was meant is in the line of `core` that
//! the instruction comes from, one for each ordering:
//!
//! ```text
//! Acquire => intrinsics::atomic_xchg::<T, { AO::Acquire }>(dst, val),
//! ```
//!
//! Where that cannot be read, the strongest ordering is taken.

use std::borrow::Cow;
use std::collections::HashMap;

/// How a file of `core` ends that has these lines.
const ATOMIC: &str = "core/src/sync/atomic.rs";

/// What a line of `core` names its ordering by, and the qualifiers in PTX; of others there is a fence in front.
const ORDERINGS: [(&str, &str); 4] = [
    ("AO::Relaxed", "relaxed.sys"),
    ("AO::Acquire", "acquire.sys"),
    ("AO::Release", "release.sys"),
    ("AO::AcqRel", "acq_rel.sys"),
];

/// The text with an ordering for each read-modify-write that LLVM has written without one. `read` has the text of a file.
pub(crate) fn ordered(text: &str, read: impl Fn(&str) -> Option<String>) -> Cow<'_, str> {
    if !text.lines().any(|line| unordered(line).is_some()) {
        return Cow::Borrowed(text);
    }
    let files: HashMap<&str, &str> = text.lines().filter_map(file).collect();
    let of_core: HashMap<&str, String> = files
        .into_iter()
        .filter(|(_, name)| name.ends_with(ATOMIC))
        .filter_map(|(number, name)| Some((number, read(name)?)))
        .collect();
    let of_place = |place: &str| {
        let mut words = place.split_whitespace();
        let (number, line) = (words.next()?, words.next()?.parse::<usize>().ok()?);
        let line = of_core.get(number)?.lines().nth(line.checked_sub(1)?)?;
        ORDERINGS.iter().find(|(name, _)| line.contains(name)).map(|(_, qualifiers)| *qualifiers)
    };
    let mut all = String::with_capacity(text.len());
    let (mut place, mut is_assembly) = (None, false);
    for line in text.split_inclusive('\n') {
        match line.trim() {
            "// begin inline asm" => is_assembly = true,
            "// end inline asm" => is_assembly = false,
            other => place = other.strip_prefix(".loc").or(place),
        }
        let Some((guard, operation)) = unordered(line).filter(|_| !is_assembly) else {
            all += line;
            continue;
        };
        let known = place.and_then(of_place);
        if known.is_none() {
            all += "\tfence.sc.sys;\n";
        }
        all += &format!("{guard}atom.{}.{operation}", known.unwrap_or("acq_rel.sys"));
    }
    Cow::Owned(all)
}

/// An atomic instruction without an ordering: what is in front of `atom.`, and what is behind it.
fn unordered(line: &str) -> Option<(&str, &str)> {
    let (guard, operation) = line.split_once("atom.")?;
    let is_guard = guard.trim().is_empty()
        || guard.trim_start().starts_with('@') && guard.split_whitespace().count() == 1;
    let first = operation.split('.').next()?;
    let is_ordered = matches!(first, "relaxed" | "acquire" | "release" | "acq_rel");
    (is_guard && !is_ordered).then_some((guard, operation))
}

/// The number and the name of a `.file`.
fn file(line: &str) -> Option<(&str, &str)> {
    let (number, name) = line.trim().strip_prefix(".file")?.trim().split_once([' ', '\t'])?;
    Some((number, name.split('"').nth(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: &str = "\
SeqCst => intrinsics::atomic_xadd::<T, U, { AO::SeqCst }>(dst, val),
Relaxed => intrinsics::atomic_xadd::<T, U, { AO::Relaxed }>(dst, val),
Release => intrinsics::atomic_xadd::<T, U, { AO::Release }>(dst, val),
Acquire => intrinsics::atomic_xadd::<T, U, { AO::Acquire }>(dst, val),
AcqRel => intrinsics::atomic_xadd::<T, U, { AO::AcqRel }>(dst, val),
";

    fn of_text(text: &str) -> String {
        let text = format!(
            "{text}\t.file\t3 \"/a/library/core/src/sync/atomic.rs\"\n\t.file\t4 \"/a/b.rs\"\n"
        );
        let read = |name: &str| name.starts_with("/a/library").then(|| CORE.to_owned());
        ordered(&text, read).split("\t.file").next().unwrap().to_owned()
    }

    #[test]
    fn an_ordering_is_that_of_the_line_of_core() {
        for (line, qualifiers) in [(2, "relaxed"), (3, "release"), (4, "acquire"), (5, "acq_rel")] {
            let text = format!("\t.loc\t3 {line} 9\n\tatom.global.add.u32 \t%r1, [%rd1], 1;\n");
            let expected = format!(
                "\t.loc\t3 {line} 9\n\tatom.{qualifiers}.sys.global.add.u32 \t%r1, [%rd1], 1;\n"
            );
            assert_eq!(of_text(&text), expected);
        }
    }

    #[test]
    fn what_is_not_known_has_the_strongest() {
        let strongest = "\tfence.sc.sys;\n\t@%p1 atom.acq_rel.sys.shared.or.b32 \t%r1, [%r2], 1;\n";
        let operation = "\t@%p1 atom.shared.or.b32 \t%r1, [%r2], 1;\n";
        for place in
            ["", "\t.loc\t3 1 9\n", "\t.loc\t3 0 9\n", "\t.loc\t4 2 9\n", "\t.loc\t3 99 1\n"]
        {
            assert_eq!(of_text(&format!("{place}{operation}")), format!("{place}{strongest}"));
        }
    }

    #[test]
    fn what_has_an_ordering_or_is_assembly_stays() {
        for text in [
            "\tatom.acq_rel.sys.global.cas.b32 \t%r2, [%rd1], 0, 1;\n",
            "\tatom.relaxed.gpu.global.add.u32 \t%r2, [%rd1], 1;\n",
            "\t// begin inline asm\n\tatom.global.add.u32 %r1, [%rd1], 1;\n\t// end inline asm\n",
            "\t// atom.global.add.u32\n",
        ] {
            assert_eq!(of_text(text), text);
        }
    }
}
