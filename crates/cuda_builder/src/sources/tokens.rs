//! Rust source to tokens: what the compiler sees of it, without comments and white space.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An identifier or a keyword.
    Word,
    /// A number, a string, or a character.
    Literal,
    /// `'a`.
    Lifetime,
    /// One character such as `+`.
    Punct,
    /// A bracket that opens a group.
    Open,
    /// A bracket that closes one.
    Close,
}

/// A token, as a part of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    start: u32,
    end: u32,
    /// The first byte of its text.
    pub first: u8,
    /// Whether a character follows with which it may form one operator.
    pub is_joint: bool,
    /// Of a bracket that opens: the number of the token that closes it.
    pub close: u32,
}

/// A file of source.
pub struct Tokens {
    text: String,
    pub tokens: Vec<Token>,
}

impl Tokens {
    pub fn of(text: String) -> Self {
        let mut lexer = Lexer { bytes: text.as_bytes(), at: 0 };
        let mut tokens: Vec<Token> = Vec::with_capacity(text.len() / 5);
        let mut open = Vec::new();
        while let Some(token) = lexer.next() {
            match token.kind {
                Kind::Open => open.push(tokens.len()),
                Kind::Close => {
                    if let Some(opening) = open.pop() {
                        tokens[opening].close = tokens.len() as u32;
                    }
                }
                _ => {}
            }
            tokens.push(token);
        }
        // A group that is not closed, which no compiler takes, ends with the file.
        for opening in open {
            tokens[opening].close = tokens.len() as u32;
        }
        Tokens { text, tokens }
    }

    pub fn text(&self, token: Token) -> &str {
        &self.text[token.start as usize..token.end as usize]
    }

    /// All of the file, comments included.
    pub fn source(&self) -> &str {
        &self.text
    }

    /// The token of this number; the empty word behind the last one.
    pub fn get(&self, at: usize) -> Token {
        const END: Token =
            Token { kind: Kind::Close, start: 0, end: 0, first: 0, is_joint: false, close: 0 };
        self.tokens.get(at).copied().unwrap_or(END)
    }

    pub fn is(&self, at: usize, text: &str) -> bool {
        let token = self.get(at);
        text.as_bytes().first() == Some(&token.first) && self.text(token) == text
    }

    /// The word of this number.
    pub fn word(&self, at: usize) -> Option<&str> {
        let token = self.get(at);
        (token.kind == Kind::Word).then(|| self.text(token))
    }

    /// Whether `::` begins here.
    pub fn is_path_separator(&self, at: usize) -> bool {
        self.get(at).first == b':' && self.get(at).is_joint && self.get(at + 1).first == b':'
    }

    /// Behind the group that begins here, or behind this token.
    pub fn after(&self, at: usize) -> usize {
        let token = self.get(at);
        if token.kind == Kind::Open { token.close as usize + 1 } else { at + 1 }
    }
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Lexer<'_> {
    fn next(&mut self) -> Option<Token> {
        self.skip();
        let start = self.at;
        let first = *self.bytes.get(start)?;
        let (kind, end) = match first {
            b'"' => (Kind::Literal, self.string(start)),
            b'\'' => self.quote(start),
            b'0'..=b'9' => (Kind::Literal, self.number(start)),
            _ if is_of_word(first) => self.word(start),
            b'(' | b'[' | b'{' => (Kind::Open, start + 1),
            b')' | b']' | b'}' => (Kind::Close, start + 1),
            _ => (Kind::Punct, start + 1),
        };
        self.at = end.min(self.bytes.len());
        let is_joint = kind == Kind::Punct
            && self.bytes.get(self.at).is_some_and(|next| {
                next.is_ascii_punctuation() && !b"\"'()[]{}_".contains(next) && !self.is_comment()
            });
        let (start, end) = (start as u32, self.at as u32);
        Some(Token { kind, start, end, first, is_joint, close: 0 })
    }

    fn is_comment(&self) -> bool {
        matches!(self.bytes.get(self.at..self.at + 2), Some(b"//" | b"/*"))
    }

    /// Goes behind white space and comments.
    fn skip(&mut self) {
        loop {
            match &self.bytes[self.at.min(self.bytes.len())..] {
                [byte, ..] if byte.is_ascii_whitespace() => self.at += 1,
                [b'/', b'/', rest @ ..] => {
                    self.at +=
                        2 + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                }
                [b'/', b'*', ..] => {
                    let mut depth = 0;
                    loop {
                        match self.bytes.get(self.at..self.at + 2) {
                            Some(b"/*") => depth += 1,
                            Some(b"*/") => depth -= 1,
                            Some(_) => {
                                self.at += 1;
                                continue;
                            }
                            None => {
                                self.at = self.bytes.len();
                                return;
                            }
                        }
                        self.at += 2;
                        if depth == 0 {
                            break;
                        }
                    }
                }
                _ => return,
            }
        }
    }

    /// The end of the string or character whose quotation mark is at `start`.
    fn string(&self, start: usize) -> usize {
        let mut at = start + 1;
        while let Some(byte) = self.bytes.get(at) {
            match byte {
                b'\\' => at += 2,
                _ if *byte == self.bytes[start] => return at + 1,
                _ => at += 1,
            }
        }
        at
    }

    /// A character, or a lifetime.
    fn quote(&self, start: usize) -> (Kind, usize) {
        let rest = &self.bytes[start + 1..];
        let is_word = rest.first().is_some_and(|byte| is_of_word(*byte));
        let word = rest.iter().position(|byte| !is_of_word(*byte)).unwrap_or(rest.len());
        match is_word && rest.get(word) != Some(&b'\'') {
            true => (Kind::Lifetime, start + 1 + word),
            false => (Kind::Literal, self.string(start)),
        }
    }

    fn number(&self, start: usize) -> usize {
        let mut at = start;
        let is_decimal = !matches!(self.bytes.get(start + 1), Some(b'x' | b'b' | b'o'));
        while let Some(byte) = self.bytes.get(at) {
            let next = self.bytes.get(at + 1).copied().unwrap_or(b' ');
            let is_exponent =
                matches!(byte, b'e' | b'E') && is_decimal && matches!(next, b'+' | b'-');
            match byte {
                _ if is_exponent => at += 2,
                _ if is_of_word(*byte) => at += 1,
                // Not `0..8`, and not `1.max(2)`.
                b'.' if is_decimal
                    && next != b'.'
                    && (next.is_ascii_digit() || !is_of_word(next)) =>
                {
                    at += 1;
                }
                _ => break,
            }
        }
        at
    }

    /// A word, or a literal with a prefix.
    fn word(&self, start: usize) -> (Kind, usize) {
        let rest = &self.bytes[start..];
        let end = rest.iter().position(|byte| !is_of_word(*byte)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        let hashes = behind.iter().take_while(|byte| **byte == b'#').count();
        let at = start + end;
        match (word, behind.get(hashes)) {
            (b"r" | b"br" | b"cr", Some(b'"')) => {
                let closing = [b"\"", &vec![b'#'; hashes][..]].concat();
                let inside = &behind[hashes + 1..];
                let length = inside.windows(closing.len()).position(|window| window == closing);
                let length = length.unwrap_or(inside.len());
                (Kind::Literal, at + hashes + 1 + length + closing.len())
            }
            // `r#type`.
            (b"r", Some(byte)) if hashes == 1 && is_of_word(*byte) => {
                let inside = behind[1..].iter().position(|byte| !is_of_word(*byte));
                (Kind::Word, at + 1 + inside.unwrap_or(behind.len() - 1))
            }
            (b"b" | b"c", Some(b'"')) if hashes == 0 => (Kind::Literal, self.string(at)),
            (b"b", Some(b'\'')) if hashes == 0 => (Kind::Literal, self.string(at)),
            _ => (Kind::Word, at),
        }
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lex(text: &str) -> Vec<(Kind, String)> {
        let tokens = Tokens::of(text.to_owned());
        let token = |token: &Token| (token.kind, tokens.text(*token).to_owned());
        tokens.tokens.iter().map(token).collect()
    }

    #[test]
    fn a_token_is_what_the_compiler_sees() {
        let text = r####"
            fn f<'a>(x: &'a str) -> char { // a comment
                /* nested /* twice */ */ '\'' ; 'x' ; b'\n' ; "a\"//b" ; r#"raw "# ; br##"#"## ;
                r#type . 0 .. 8 ; 1.5e-3f32 ; 0xFFe-1 ; 1.max(2) ; 2. ; 'é' ; c"c" ; x.0
            }"####;
        let found: Vec<String> = lex(text).into_iter().map(|(_, text)| text).collect();
        let expected = [
            "fn f < 'a > ( x : & 'a str ) - > char {",
            r####"'\'' ; 'x' ; b'\n' ; "a\"//b" ; r#"raw "# ; br##"#"## ;"####,
            "r#type . 0 . . 8 ; 1.5e-3f32 ; 0xFFe - 1 ; 1 . max ( 2 ) ; 2. ; 'é' ; c\"c\" ; x . 0 }",
        ];
        assert_eq!(found.join(" "), expected.join(" "));
        let kinds: Vec<Kind> = lex("a 1 'a '1' + { }").into_iter().map(|(kind, _)| kind).collect();
        let expected = [
            Kind::Word,
            Kind::Literal,
            Kind::Lifetime,
            Kind::Literal,
            Kind::Punct,
            Kind::Open,
            Kind::Close,
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn operators_are_told_from_their_characters() {
        let joint = |text: &str| {
            Tokens::of(text.to_owned()).tokens.iter().map(|one| one.is_joint).collect()
        };
        let cases: [(&str, Vec<bool>); 4] = [
            ("&&", vec![true, false]),
            ("& &", vec![false, false]),
            ("-1", vec![false, false]),
            ("=//\n", vec![false]),
        ];
        for (text, expected) in cases {
            let found: Vec<bool> = joint(text);
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_closed_ends_with_the_file() {
        for text in ["\"open", "'", "/* open", "r#\"open", "{ (", "b'", "\"\\"] {
            let tokens = Tokens::of(text.to_owned());
            assert!(tokens.tokens.iter().all(|one| one.end as usize <= text.len()), "{text}");
        }
        assert_eq!(Tokens::of("{ (".to_owned()).after(0), 3);
    }
}
