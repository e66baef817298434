//! The order of `core`'s atomic operations.
//!
//! LLVM 22 drops the ordering and the scope of an `atomicrmw`. So `swap(1, Acquire)` becomes
//! `atom.global.exch.b32`, which is relaxed and device-wide. Loads, stores, fences and
//! `compare_exchange` keep theirs. The line info leads to the line of `core` with the ordering:
//!
//! ```text
//! Acquire => intrinsics::atomic_xchg::<T, { AO::Acquire }>(dst, val),
//! ```
//!
//! If it cannot be read, the strongest ordering is used.
//!
//! An operation without an instruction, such as one of 8 or 16 bits, becomes a loop around a
//! compare-and-swap. LLVM makes its first load an ordinary one; here it becomes relaxed.

use std::borrow::Cow;
use std::collections::HashMap;

use ptx_syntax::outline::AROUND_ASSEMBLY;
use ptx_syntax::source::{file, location};

/// How the name of the file of `core` ends that has these lines.
const ATOMIC: &str = "/core/src/sync/atomic.rs";

/// How a line of `core` names an ordering, and the qualifiers of it in PTX; others have a fence.
const ORDERINGS: [(&str, &str); 4] = [
    ("AO::Relaxed", "relaxed.sys"),
    ("AO::Acquire", "acquire.sys"),
    ("AO::Release", "release.sys"),
    ("AO::AcqRel", "acq_rel.sys"),
];

/// The text with an ordering for each read-modify-write that lacks one; `read` reads a file.
pub(crate) fn restore_orderings(text: &str, read: impl Fn(&str) -> Option<String>) -> Cow<'_, str> {
    if !text.contains("atom.") && !text.contains("red.") {
        return Cow::Borrowed(text);
    }
    let core: HashMap<u32, String> = text
        .lines()
        .filter_map(file)
        .filter(|(_, name)| name.replace('\\', "/").ends_with(ATOMIC))
        .filter_map(|(number, name)| Some((number, read(name)?)))
        .collect();
    let line_at = |[number, line, _]: [u32; 3]| {
        core.get(&number)?.lines().nth((line as usize).checked_sub(1)?)
    };
    let ordering_at = |at: [u32; 3]| {
        let line = line_at(at)?;
        // A compare-and-swap has two.
        let is_one = line.matches("AO::").count() == 1;
        let known = ORDERINGS.iter().find(|(name, _)| is_one && line.contains(name));
        known.map(|(_, qualifiers)| *qualifiers)
    };
    let mut all = String::with_capacity(text.len());
    let (mut place, mut is_assembly) = (None, false);
    for line in text.split_inclusive('\n') {
        let first = line.split_whitespace().next().unwrap_or_default();
        match line.trim() {
            text if text == AROUND_ASSEMBLY[0] => is_assembly = true,
            text if text == AROUND_ASSEMBLY[1] => is_assembly = false,
            _ if first == ".loc" => place = location(line),
            // Those of a function say nothing of the next one.
            _ if matches!(first, ".entry" | ".func" | ".visible" | ".weak" | "}") => place = None,
            _ => {}
        }
        let Some((guard, name, operation)) = unordered(line).filter(|_| !is_assembly) else {
            let is_atomic = |at| line_at(at).is_some_and(|line| line.contains("AO::"));
            match ordinary_load(line).filter(|_| !is_assembly && place.is_some_and(is_atomic)) {
                Some((guard, operation)) => all += &format!("{guard}ld.relaxed.sys.{operation}"),
                None => all += line,
            }
            continue;
        };
        match (name, place.and_then(ordering_at)) {
            // A reduction has no acquire side of its own.
            ("red.", Some("acquire.sys" | "acq_rel.sys") | None) => {
                all += "\tfence.sc.sys;\n";
                all += &format!("{guard}red.relaxed.sys.{operation}");
                all += "\tfence.sc.sys;\n";
            }
            (name, Some(qualifiers)) => all += &format!("{guard}{name}{qualifiers}.{operation}"),
            (name, None) => {
                all += "\tfence.sc.sys;\n";
                all += &format!("{guard}{name}acq_rel.sys.{operation}");
            }
        }
    }
    Cow::Owned(all)
}

/// An atomic instruction without an ordering: its guard, `atom.` or `red.`, and the rest.
fn unordered(line: &str) -> Option<(&str, &str, &str)> {
    let word = line.split_whitespace().find(|word| !word.starts_with('@'))?;
    let name = ["atom.", "red."].into_iter().find(|name| word.starts_with(name))?;
    let (guard, operation) = line.split_once(name)?;
    let first = operation.split('.').next()?;
    let is_ordered = matches!(first, "relaxed" | "acquire" | "release" | "acq_rel" | "async");
    (!is_ordered).then_some((guard, name, operation))
}

/// A load from memory that threads share, without an ordering: its guard, and what is behind `ld.`.
fn ordinary_load(line: &str) -> Option<(&str, &str)> {
    let word = line.split_whitespace().find(|word| !word.starts_with('@'))?;
    let (guard, operation) = line.split_once("ld.").filter(|_| word.starts_with("ld."))?;
    let first = operation.split('.').next()?;
    let is_shared = matches!(first, "global" | "shared") || first.starts_with(['b', 'u', 's']);
    (is_shared && !operation.contains(".nc.")).then_some((guard, operation))
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
(SeqCst, Relaxed) => intrinsics::atomic_cxchg::<T, { AO::SeqCst }, { AO::Relaxed }>(dst, old, src),
";

    fn of_text(text: &str) -> String {
        let text = format!(
            "{text}\t.file\t3 \"/a/library/core/src/sync/atomic.rs\"\n\t.file\t4 \"/a/b.rs\"\n"
        );
        let read = |name: &str| name.starts_with("/a/library").then(|| CORE.to_owned());
        restore_orderings(&text, read).split("\t.file").next().unwrap().to_owned()
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
    fn a_reduction_acquires_by_a_fence() {
        let of_line = |line: u32| {
            of_text(&format!("\t.loc\t3 {line} 9\n\tred.global.add.u32 \t[%rd1], 1;\n"))
        };
        let relaxed = "\tred.relaxed.sys.global.add.u32 \t[%rd1], 1;\n";
        assert_eq!(of_line(2), format!("\t.loc\t3 2 9\n{relaxed}"));
        assert_eq!(of_line(3), format!("\t.loc\t3 3 9\n{}", relaxed.replace("relaxed", "release")));
        for line in [1, 4, 5] {
            let fence = "\tfence.sc.sys;\n";
            assert_eq!(of_line(line), format!("\t.loc\t3 {line} 9\n{fence}{relaxed}{fence}"));
        }
    }

    #[test]
    fn the_load_in_front_of_a_loop_is_relaxed() {
        let cas = "\tatom.acq_rel.sys.global.cas.b32 \t%r2, [%rd1], %r1, %r3;\n";
        for (line, load, relaxed) in [
            (2, "ld.global.b32", "ld.relaxed.sys.global.b32"),
            (6, "ld.b32", "ld.relaxed.sys.b32"),
            (6, "ld.shared.b32", "ld.relaxed.sys.shared.b32"),
            // Those are of one thread, and this is ordered.
            (6, "ld.param.b32", "ld.param.b32"),
            (6, "ld.local.b32", "ld.local.b32"),
            (6, "ld.acquire.sys.global.b32", "ld.acquire.sys.global.b32"),
            // Of another line.
            (99, "ld.global.b32", "ld.global.b32"),
        ] {
            let text = |load| format!("\t.loc\t3 {line} 9\n\t@%p1 {load} \t%r1, [%rd1];\n{cas}");
            assert_eq!(of_text(&text(load)), text(relaxed));
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
