//! One kernel of many.

use std::collections::HashSet;

use crate::outline::{Declaration, declarations, entry};
use crate::scan::lexemes;

/// How LLVM begins the labels of a function; the number of the function follows.
const LABEL: &str = "$L__BB";

/// The part of a PTX text that this kernel needs: what the head says, the shared arrays that are
/// its own, and its entry point. A driver compiles it in a fraction of the time that all of them
/// take. It changes only where the kernel does, whatever becomes of the others: labels have the
/// number 0 in place of the entry point's.
pub fn extract(text: &str, kernel: &str) -> Option<String> {
    let entry = entry(text, kernel)?.text;
    let head: Vec<_> =
        declarations(text).take_while(|declaration| !declaration.is_entry()).collect();
    let arrays: Vec<&str> =
        head.iter().filter_map(|declaration| Some(declaration.shared_array()?.name)).collect();
    let used: HashSet<&str> =
        lexemes(entry).map(|lexeme| lexeme.text).filter(|word| arrays.contains(word)).collect();
    let is_needed = |declaration: &&Declaration<'_>| {
        declaration.shared_array().is_none_or(|array| used.contains(array.name))
    };
    let head = head.iter().filter(is_needed);
    let mut extracted: String = head.flat_map(|declaration| [declaration.text, "\n"]).collect();
    let number = entry.split_once(LABEL).and_then(|(_, label)| label.split('_').next());
    match number {
        Some(number) => {
            extracted += &entry.replace(&format!("{LABEL}{number}_"), &format!("{LABEL}0_"));
        }
        None => extracted += entry,
    }
    Some(extracted + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_cut_out_whole() {
        let text = "//\n// By a compiler\n\n.version 7.0\n.shared .b8 xa[4];\n.shared .b8 xb[4];\n\
                    \t// .globl ab\n.visible .entry ab(\n)\n{\nst {%r1, %r2}, xb;\n\
                    \t{ bra $L__BB17_4;\n}\nret;\n}\n.visible .entry a(\n)\n{\nret;\n}\n";
        let head = ".version 7.0\n.shared .b8 xb[4];\n";
        let ab = ".visible .entry ab(\n)\n{\nst {%r1, %r2}, xb;\n\t{ bra $L__BB0_4;\n}\nret;\n}\n";
        assert_eq!(extract(text, "ab").unwrap(), format!("{head}{ab}"));
        let a = ".visible .entry a(\n)\n{\nret;\n}\n";
        assert_eq!(extract(text, "a").unwrap(), format!(".version 7.0\n{a}"));
        assert_eq!(extract(text, "b"), None);
        let longer = ".shared .b8 x_1_2[4];\n.shared .b8 x_1_20[4];\n\
                      .visible .entry a(\n)\n{\nst [x_1_20+4], %r1;\n}\n";
        assert!(!extract(longer, "a").unwrap().contains("x_1_2["), "another kernel's");
    }
}
