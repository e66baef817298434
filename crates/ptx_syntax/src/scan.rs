//! PTX text to lexemes, with their places. No text is refused here.

/// What a lexeme is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Identifiers, directives and opcodes, dots included: `.reg`, `%r1`,
    /// `ld.global.L1::evict_last.b32`. Each directive is one: `.reg.b16` is two.
    Word,
    /// What begins with a digit.
    Number,
    /// A string, with its quotation marks.
    Text,
    /// `// to the end of the line`, or `/* between these */`.
    Comment,
    /// One character such as `,`.
    Punct(char),
    /// What PTX does not have: another character, or a comment or a string that is not closed.
    Odd,
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lexeme<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its text.
    pub text: &'a str,
    /// Where it begins, in bytes.
    pub start: usize,
    /// The line it begins in, from 1.
    pub line: u32,
}

impl Lexeme<'_> {
    /// Where it ends, in bytes.
    pub fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// The lexemes of a text, comments included.
pub fn lexemes(text: &str) -> Lexemes<'_> {
    Lexemes::from(text, 0)
}

/// The iterator that [`lexemes`] returns.
#[derive(Clone, Debug)]
pub struct Lexemes<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

impl<'a> Lexemes<'a> {
    /// Those of `text` from the byte `at` on, which counts as in line 1.
    pub(crate) fn from(text: &'a str, at: usize) -> Self {
        Self { text, at, line: 1 }
    }

    /// Those that end at the byte `end` at the latest.
    pub(crate) fn up_to(self, end: usize) -> Self {
        Self { text: &self.text[..end], ..self }
    }
}

impl<'a> Iterator for Lexemes<'a> {
    type Item = Lexeme<'a>;

    fn next(&mut self) -> Option<Lexeme<'a>> {
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(self.at)? {
                b'\n' => self.line += 1,
                b' ' | b'\t' | b'\r' | 0 => {}
                _ => break,
            }
            self.at += 1;
        }
        let (start, line) = (self.at, self.line);
        let (kind, length) = first(&bytes[start..]);
        // A character that PTX does not have may be of several bytes.
        let text = match self.text.get(start..start + length) {
            Some(text) => text,
            None => &self.text[start..self.text.ceil_char_boundary(start + length)],
        };
        self.at += text.len();
        if matches!(kind, Kind::Comment | Kind::Odd) {
            self.line += text.bytes().filter(|byte| *byte == b'\n').count() as u32;
        }
        Some(Lexeme { kind, text, start, line })
    }
}

/// The lexeme that these bytes begin with, and its length.
fn first(bytes: &[u8]) -> (Kind, usize) {
    let while_in = |from: usize, is_in: fn(u8) -> bool| {
        let rest = &bytes[from.min(bytes.len())..];
        from + rest.iter().position(|byte| !is_in(*byte)).unwrap_or(rest.len())
    };
    match *bytes {
        [b'/', b'/', ..] => (Kind::Comment, while_in(2, |byte| byte != b'\n')),
        [b'/', b'*', ref rest @ ..] => match rest.windows(2).position(|pair| pair == b"*/") {
            Some(length) => (Kind::Comment, length + 4),
            None => (Kind::Odd, bytes.len()),
        },
        [b'"', ..] => {
            let end = while_in(1, |byte| byte != b'"' && byte != b'\n');
            match bytes.get(end) {
                Some(b'"') => (Kind::Text, end + 1),
                _ => (Kind::Odd, end),
            }
        }
        [b'0'..=b'9', ..] | [b'.', b'0'..=b'9', ..] => {
            let mut end = 0;
            while let Some(&byte) = bytes.get(end)
                && (byte.is_ascii_alphanumeric()
                    || byte == b'.'
                    || matches!(byte, b'+' | b'-') && is_exponent(&bytes[..end]))
            {
                end += 1;
            }
            (Kind::Number, end)
        }
        [byte, ..] if is_of_word(byte) => {
            let mut end = 1;
            loop {
                match &bytes[end..] {
                    // `.reg.b16` is two directives. Names and opcodes keep their dots.
                    [b'.', ..] if byte == b'.' => return (Kind::Word, end),
                    [byte, ..] if is_of_word(*byte) || byte.is_ascii_digit() => end += 1,
                    [b':', b':', ..] => end += 2,
                    _ => return (Kind::Word, end),
                }
            }
        }
        [
            byte @ (b',' | b';' | b'[' | b']' | b'{' | b'}' | b'(' | b')' | b'+' | b'-' | b'!'
            | b'@' | b'|' | b':' | b'<' | b'>' | b'=' | b'*'),
            ..,
        ] => (Kind::Punct(char::from(byte)), 1),
        _ => (Kind::Odd, 1),
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

/// Whether a number read so far ends in the `e` of a decimal exponent.
fn is_exponent(read: &[u8]) -> bool {
    let [digits @ .., b'e' | b'E'] = read else { return false };
    digits.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lexeme_has_its_place() {
        let text = "// a\n.reg /* b\nc */ %r<2>; \"d\" 1e-2 é#\n\"open\n/* open";
        let found: Vec<_> = lexemes(text).map(|one| (one.kind, one.text, one.line)).collect();
        assert_eq!(
            found,
            [
                (Kind::Comment, "// a", 1),
                (Kind::Word, ".reg", 2),
                (Kind::Comment, "/* b\nc */", 2),
                (Kind::Word, "%r", 3),
                (Kind::Punct('<'), "<", 3),
                (Kind::Number, "2", 3),
                (Kind::Punct('>'), ">", 3),
                (Kind::Punct(';'), ";", 3),
                (Kind::Text, "\"d\"", 3),
                (Kind::Number, "1e-2", 3),
                (Kind::Odd, "é", 3),
                (Kind::Odd, "#", 3),
                (Kind::Odd, "\"open", 4),
                (Kind::Odd, "/* open", 5),
            ]
        );
        assert!(lexemes(text).all(|one| text[one.start..one.end()] == *one.text));
    }

    #[test]
    fn directives_need_no_space_between_them() {
        let words = |text| lexemes(text).map(|one| one.text).collect::<Vec<_>>();
        assert_eq!(words("{.reg.b16 a;"), ["{", ".reg", ".b16", "a", ";"]);
        assert_eq!(words(".5 .shared.align 8.b8"), [".5", ".shared", ".align", "8.b8"]);
        assert_eq!(words("ld.shared::cta.b32 %tid.x"), ["ld.shared::cta.b32", "%tid.x"]);
    }
}
