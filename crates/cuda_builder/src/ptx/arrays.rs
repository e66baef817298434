//! Names of arrays in shared memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use ptx_syntax::outline::Declaration;

/// How `shared_array!` begins the name of each array.
const PREFIX: &str = "cuda_std_shared_";

/// What is put in the places of the names and declarations of arrays.
///
/// An array is named after the function that uses it and its ordinal there; after the first of
/// several functions, in the order of their names. Declarations follow the order of the new names,
/// so that neither the names nor the places in shared memory depend on where the source declares
/// an array. An array that no function uses is left out.
pub fn renamed(text: &str, all: &[Declaration<'_>]) -> Vec<(Range<usize>, String)> {
    let is_array = |one: &&Declaration<'_>| {
        one.shared_array().is_some_and(|array| array.name.starts_with(PREFIX) && !one.is_linked())
    };
    let declared: HashMap<&str, &Declaration<'_>> =
        all.iter().filter(is_array).filter_map(|one| Some((one.name()?, one))).collect();
    if declared.is_empty() {
        return Vec::new();
    }
    let uses: Vec<(Range<usize>, &str)> = text
        .match_indices(PREFIX)
        .map(|(at, _)| {
            let is_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$');
            let length = text[at..].find(|c| !is_of_word(c)).unwrap_or(text.len() - at);
            (at..at + length, &text[at..at + length])
        })
        .filter(|(_, name)| declared.contains_key(name))
        .collect();

    let names = names(all, &uses);
    let mut edits = Vec::new();
    let mut in_order = names.iter().map(|(array, name)| {
        let declaration = declared[array];
        declaration.text.replacen(array, name, 1) + "\n"
    });
    for declaration in all.iter().filter(is_array) {
        let lines = declaration.start()..line_end(text, declaration);
        let first = edits.is_empty();
        edits.push((lines, if first { in_order.by_ref().collect() } else { String::new() }));
    }
    let names: HashMap<&str, String> = names.into_iter().collect();
    let is_declaration = |at: usize| {
        let inside =
            |one: &&Declaration<'_>| (one.start()..one.start() + one.text.len()).contains(&at);
        declared.values().any(inside)
    };
    for (range, array) in uses {
        if let Some(name) = names.get(array).filter(|_| !is_declaration(range.start)) {
            edits.push((range, name.clone()));
        }
    }
    edits
}

/// The end of a declaration, and of its line if nothing else stands there.
fn line_end(text: &str, declaration: &Declaration<'_>) -> usize {
    let end = declaration.start() + declaration.text.len();
    let blank = text[end..].len() - text[end..].trim_start_matches([' ', '\t', '\r']).len();
    if text[end + blank..].starts_with('\n') { end + blank + 1 } else { end }
}

/// The arrays with their new names, in the order of these.
fn names<'a>(all: &[Declaration<'_>], uses: &[(Range<usize>, &'a str)]) -> Vec<(&'a str, String)> {
    // The arrays of each function, in the order in which it mentions them.
    let mut functions: BTreeMap<(String, usize), Vec<&'a str>> = BTreeMap::new();
    for (index, declaration) in all.iter().enumerate() {
        let Some(function) = declaration.function() else { continue };
        let body = declaration.start()..declaration.start() + declaration.text.len();
        let from = uses.partition_point(|(at, _)| at.start < body.start);
        let of_function = uses[from..].iter().take_while(|(at, _)| at.start < body.end);
        let mut arrays: Vec<&str> = Vec::new();
        for (_, array) in of_function {
            if !arrays.contains(array) {
                arrays.push(array);
            }
        }
        functions.insert((leaf(function.name), index), arrays);
    }
    let mut taken: HashSet<String> =
        all.iter().filter_map(|one| one.name()).map(str::to_owned).collect();
    let (mut named, mut names) = (HashSet::new(), Vec::new());
    for ((function, _), arrays) in functions {
        for (ordinal, array) in arrays.into_iter().enumerate() {
            if named.insert(array) {
                let mut name = format!("{function}_shared_{ordinal}");
                // Functions of several modules may have one name.
                while !taken.insert(name.clone()) {
                    name.push('_');
                }
                names.push((array, name));
            }
        }
    }
    names
}

/// The name of a function without its module, type arguments and hash, as PTX can have it.
fn leaf(symbol: &str) -> String {
    let path = format!("{:#}", rustc_demangle::demangle(symbol));
    let mut depth = 0;
    let segments: Vec<&str> = path
        .split(|c| {
            match c {
                '<' => depth += 1,
                '>' => depth -= 1,
                _ => {}
            }
            c == ':' && depth == 0
        })
        .collect();
    // `tile::<u32>` ends with its type arguments.
    let is_name = |segment: &str| !segment.is_empty() && !segment.starts_with('<');
    let name = segments.iter().rfind(|one| is_name(one)).copied().unwrap_or_default();
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "_");
    if name.is_empty() { "function".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use ptx_syntax::outline::declarations;

    use super::*;

    fn rename(text: &str) -> String {
        let all: Vec<_> = declarations(text).collect();
        let mut edits = renamed(text, &all);
        edits.sort_by_key(|(range, _)| range.start);
        let mut text = text.to_owned();
        for (range, new) in edits.into_iter().rev() {
            text.replace_range(range, &new);
        }
        text
    }

    #[test]
    fn arrays_are_named_after_their_functions() {
        let text = "\
.version 7.0
.shared .align 128 .b8 cuda_std_shared_mine_0_1_0_0[4];
.shared .align 128 .b8 cuda_std_shared_mine_0_1_0_1[8];
.shared .align 128 .b8 cuda_std_shared_mine_0_1_0_10[12];
.shared .align 128 .b8 cuda_std_shared_mine_0_1_0_2[16];
.shared .align 128 .b8 others[20];
.extern .shared .align 128 .b8 cuda_std_shared_by_launch[];
.visible .entry b() {
mov.u32 %r1, cuda_std_shared_mine_0_1_0_10;
mov.u32 %r2, cuda_std_shared_mine_0_1_0_0;
mov.u32 %r3, cuda_std_shared_mine_0_1_0_10;
}
.func _RNvNtCs1_4mine5inner4tile() {
mov.u32 %r1, cuda_std_shared_mine_0_1_0_1;
}
.visible .entry a() {
mov.u32 %r1, others;
mov.u32 %r2, cuda_std_shared_mine_0_1_0_0;
}
";
        let expected = "\
.version 7.0
.shared .align 128 .b8 a_shared_0[4];
.shared .align 128 .b8 b_shared_0[12];
.shared .align 128 .b8 tile_shared_0[8];
.shared .align 128 .b8 others[20];
.extern .shared .align 128 .b8 cuda_std_shared_by_launch[];
.visible .entry b() {
mov.u32 %r1, b_shared_0;
mov.u32 %r2, a_shared_0;
mov.u32 %r3, b_shared_0;
}
.func _RNvNtCs1_4mine5inner4tile() {
mov.u32 %r1, tile_shared_0;
}
.visible .entry a() {
mov.u32 %r1, others;
mov.u32 %r2, a_shared_0;
}
";
        assert_eq!(rename(text), expected);
        let taken = rename(&text.replace("others", "b_shared_0"));
        assert!(taken.contains(".b8 b_shared_0_[12];"), "{taken}");
    }

    #[test]
    fn a_functions_own_name_is_its_last() {
        for (symbol, expected) in [
            ("tile2d", "tile2d"),
            ("_ZN4mine5inner4tile17h0123456789abcdefE", "tile"),
            ("_RNvNtCs1_4mine5inner4tile", "tile"),
            ("_RINvCs1_4mine4tilemE", "tile"),
            ("_RNCNvCs1_4mine4tile0", "_closure_0_"),
        ] {
            assert_eq!(leaf(symbol), expected, "{symbol}");
        }
    }
}
