//! PTX text to tokens. Every token knows its line.

use crate::error::SyntaxError;
use crate::scan::{Kind, Lexeme, lexemes};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    /// Identifiers, directives and opcodes, dots included: `.reg`, `%r1`,
    /// `ld.global.L1::evict_last.b32`.
    Word(String),
    Int(i128),
    /// `0f3F800000`, as bits.
    F32(u32),
    /// `0d3FF0000000000000` and decimal floats, as bits.
    F64(u64),
    Text,
    Punct(char),
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Word(word) => write!(f, "`{word}`"),
            Token::Int(value) => write!(f, "`{value}`"),
            Token::F32(bits) => write!(f, "`0f{bits:08X}`"),
            Token::F64(bits) => write!(f, "`0d{bits:016X}`"),
            Token::Text => write!(f, "a string"),
            Token::Punct(c) => write!(f, "`{c}`"),
        }
    }
}

/// Splits `text` into `(token, line)`; lines count from 1.
pub(crate) fn tokens(text: &str) -> Result<Vec<(Token, u32)>, SyntaxError> {
    let mut out = Vec::with_capacity(text.len() / 4);
    for Lexeme { kind, text, line, .. } in lexemes(text) {
        let token = match kind {
            Kind::Comment => continue,
            Kind::Word => Token::Word(text.to_owned()),
            Kind::Number => number(text, line)?,
            Kind::Text => Token::Text,
            Kind::Punct(c) => Token::Punct(c),
            Kind::Odd if text.starts_with("/*") => {
                return Err(syntax(line, "/*", "close this comment with `*/`"));
            }
            Kind::Odd if text.starts_with('"') => {
                return Err(syntax(line, text, "close this string with `\"`"));
            }
            Kind::Odd => {
                return Err(syntax(line, text, "PTX has no such character here; remove it"));
            }
        };
        out.push((token, line));
    }
    Ok(out)
}

fn syntax(line: u32, text: &str, help: &str) -> SyntaxError {
    SyntaxError { line, text: text.to_owned(), help: help.to_owned() }
}

fn number(text: &str, line: u32) -> Result<Token, SyntaxError> {
    let bad = || syntax(line, text, "this is not a PTX number");
    if let Some(bits) = strip(text, "0f").filter(|hex| hex.len() == 8) {
        return u32::from_str_radix(bits, 16).map(Token::F32).map_err(|_| bad());
    }
    if let Some(bits) = strip(text, "0d").filter(|hex| hex.len() == 16) {
        return u64::from_str_radix(bits, 16).map(Token::F64).map_err(|_| bad());
    }
    // Only integers have a suffix.
    let body = text.strip_suffix('U').unwrap_or(text);
    let (digits, radix) = if let Some(hex) = strip(body, "0x") {
        (hex, 16)
    } else if let Some(bits) = strip(body, "0b") {
        (bits, 2)
    } else if text.contains(['.', 'e', 'E']) {
        return text.parse().map(|value: f64| Token::F64(value.to_bits())).map_err(|_| bad());
    } else if body.len() > 1 && body.starts_with('0') {
        (body, 8)
    } else {
        (body, 10)
    };
    i128::from_str_radix(digits, radix).map(Token::Int).map_err(|_| bad())
}

/// `text` without `prefix`, whose letter may be of either case.
fn strip<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Token> {
        tokens(text).unwrap().into_iter().map(|(token, _)| token).collect()
    }

    #[test]
    fn words_keep_dots_and_double_colons() {
        assert_eq!(
            kinds("$L_1: ld.global.L1::evict_last.b32"),
            [
                Token::Word("$L_1".into()),
                Token::Punct(':'),
                Token::Word("ld.global.L1::evict_last.b32".into())
            ]
        );
    }

    #[test]
    fn numbers_of_every_base() {
        assert_eq!(
            kinds("10 0x1F 010 0b11 0f3F800000 0d3FF0000000000000 5U 1.5 .5 1e2 1.e-2 0X1eU 07U"),
            [
                Token::Int(10),
                Token::Int(31),
                Token::Int(8),
                Token::Int(3),
                Token::F32(0x3f80_0000),
                Token::F64(0x3ff0_0000_0000_0000),
                Token::Int(5),
                Token::F64(1.5f64.to_bits()),
                Token::F64(0.5f64.to_bits()),
                Token::F64(100f64.to_bits()),
                Token::F64(0.01f64.to_bits()),
                Token::Int(30),
                Token::Int(7),
            ]
        );
        for bad in
            ["5UU", "0f3F800000U", "0f3F8", "1.5U", "08", "0b12", "0x", "1e", "1e5U", "1.2.3"]
        {
            assert!(tokens(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn comments_count_lines() {
        let tokens = tokens("/* a\nb */ x // y\nz").unwrap();
        assert_eq!(tokens, [(Token::Word("x".into()), 2), (Token::Word("z".into()), 3)]);
    }

    #[test]
    fn bad_input_names_its_line() {
        for (text, line) in [("\n#", 2), ("/* a\n", 1), ("\n\n\"abc\n", 3), ("0xZZ", 1)] {
            assert_eq!(tokens(text).unwrap_err().line, line, "{text:?}");
        }
    }
}
