//! What the PTX of the kernels must not contain, as text.

use host::kernels::{KernelDescriptor, LADDER, TILES};
use host::ptx;

/// The PTX, and the kernels that are in it: what needs tensor maps is for Hopper alone.
fn texts() -> impl Iterator<Item = (&'static str, Vec<&'static KernelDescriptor>)> {
    [ptx::SM_80, ptx::SM_90A].into_iter().map(|text| {
        let all = LADDER.iter().chain(TILES).copied();
        let has = |spec: &&KernelDescriptor| text == ptx::SM_90A || !spec.abi().has_tensor_maps();
        (text, all.filter(has).collect())
    })
}

/// The lines of an entry point, without predicates.
fn body<'a>(text: &'a str, entry: &str) -> Vec<&'a str> {
    let head = format!(".visible .entry {entry}(");
    let lines = text.lines().skip_while(|line| !line.starts_with(&head));
    let lines: Vec<_> = lines
        .scan(0, |open, line| {
            // It ends where its own brace closes: there are braces inside.
            let was_open = *open > 0;
            *open += line.matches('{').count() as i32 - line.matches('}').count() as i32;
            (!was_open || *open > 0).then_some(line)
        })
        .map(|line| match line.trim() {
            line if line.starts_with('@') => {
                line.split_once(char::is_whitespace).map_or("", |x| x.1)
            }
            line => line,
        })
        .map(str::trim)
        .collect();
    assert!(!lines.is_empty(), "{entry} is not in the PTX");
    lines
}

fn for_each_entry(test: impl Fn(&str, &[&str])) {
    for (text, specs) in texts() {
        let entries = specs
            .iter()
            .flat_map(|spec| [Some(spec.name()), spec.unaligned().map(|other| other.name)]);
        for entry in entries.flatten().chain(["stage_operands"]) {
            let name = format!("{entry} for {}", ptx::target(text).unwrap());
            test(&name, &body(text, entry));
        }
    }
}

/// A generic access, one that does not name its memory, costs a look-up each time.
#[test]
fn every_load_and_store_names_its_memory() {
    for_each_entry(|name, lines| {
        let mut accesses = 0;
        for line in lines {
            let opcode = line.split_whitespace().next().unwrap_or_default();
            let mut parts = opcode.split('.');
            if !matches!(parts.next(), Some("ld" | "st" | "atom" | "red")) {
                continue;
            }
            accesses += 1;
            let spaces = ["global", "shared", "param", "const"];
            assert!(parts.any(|part| spaces.contains(&part)), "{name}: {line}");
        }
        // At least the parameters and C.
        assert!(accesses > 11, "{name}: {accesses}");
    });
}

/// Local memory would mean that an array was not kept in registers.
#[test]
fn nothing_is_in_local_memory() {
    for_each_entry(|name, lines| {
        for line in lines {
            assert!(!line.contains(".local") && !line.contains("__local_depot"), "{name}: {line}");
        }
    });
}

/// A kernel that moves 128 bits does so where it may, and does not where it must not. Those with
/// tensor maps look for themselves whether C is aligned.
#[test]
fn only_aligned_entry_points_move_128_bits_of_global_memory() {
    for (text, specs) in texts() {
        for spec in specs.iter().filter(|spec| !spec.abi().has_tensor_maps()) {
            let is_wide = |entry| {
                body(text, entry).iter().any(|line| {
                    ["ld.global.v4", "st.global.v4", "cp.async.cg.shared.global"]
                        .iter()
                        .any(|wide| line.starts_with(wide))
                })
            };
            assert_eq!(is_wide(spec.name()), spec.unaligned().is_some(), "{}", spec.name());
            if let Some(unaligned) = spec.unaligned() {
                assert!(!is_wide(unaligned.name), "{}", unaligned.name);
            }
        }
    }
}
