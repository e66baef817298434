//! Where a parser is in its tokens.

use crate::error::SyntaxError;
use crate::lexer::{Token, tokens};

pub(crate) struct Cursor {
    tokens: Vec<(Token, u32)>,
    pub(crate) at: usize,
    /// The open scopes' vectors of registers, and what hides them.
    pub(crate) vectors: Vec<Registers>,
}

/// A declaration of registers: a name, or what stands in front of the numbers, how many numbers
/// there are, and of how many parts each register is.
pub(crate) struct Registers {
    pub(crate) name: String,
    pub(crate) count: Option<u32>,
    pub(crate) lanes: u32,
}

impl Registers {
    pub(crate) fn include(&self, name: &str) -> bool {
        let number = name.strip_prefix(&self.name);
        number.is_some_and(|number| match self.count {
            None => number.is_empty(),
            Some(count) => number.parse().is_ok_and(|number: u32| number < count),
        })
    }
}

pub(crate) type Result<T, E = SyntaxError> = std::result::Result<T, E>;

impl Cursor {
    pub(crate) fn new(text: &str) -> Result<Self> {
        Ok(Self { tokens: tokens(text)?, at: 0, vectors: Vec::new() })
    }

    pub(crate) fn done(&self) -> bool {
        self.at >= self.tokens.len()
    }

    pub(crate) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    /// Line of the next token, or of the last one at the end of the text.
    pub(crate) fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |&(_, line)| line)
    }

    pub(crate) fn is(&self, c: char) -> bool {
        self.peek() == Some(&Token::Punct(c))
    }

    /// Takes the punctuation `c` if it is next.
    pub(crate) fn take(&mut self, c: char) -> bool {
        let found = self.is(c);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn error<T>(&self, help: &str) -> Result<T> {
        let text = self.peek().map_or("end of text".to_owned(), ToString::to_string);
        Err(SyntaxError {
            line: self.line(),
            text: text.trim_matches('`').to_owned(),
            help: help.to_owned(),
        })
    }

    pub(crate) fn expect(&mut self, c: char) -> Result<()> {
        if self.take(c) { Ok(()) } else { self.error(&format!("`{c}` belongs here")) }
    }

    pub(crate) fn word(&mut self, what: &str) -> Result<String> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.at += 1;
                Ok(word)
            }
            _ => self.error(&format!("{what} belongs here")),
        }
    }

    /// A possibly negative integer.
    pub(crate) fn int(&mut self) -> Result<i128> {
        let negative = self.take('-');
        match self.peek() {
            Some(&Token::Int(value)) => {
                self.at += 1;
                Ok(if negative { -value } else { value })
            }
            _ => self.error("an integer belongs here"),
        }
    }

    /// Takes a minus and a 64-bit float, as bits.
    pub(crate) fn negative_float(&mut self) -> Option<u64> {
        let &(Token::F64(bits), _) = self.tokens.get(self.at + 1)? else { return None };
        self.take('-').then(|| {
            self.at += 1;
            bits ^ 1 << 63
        })
    }

    pub(crate) fn unsigned<T: TryFrom<i128>>(&mut self) -> Result<T> {
        let at = self.at;
        let value = self.int()?;
        T::try_from(value).or_else(|_| {
            self.at = at;
            self.error("this number is out of range here")
        })
    }

    /// Skips what stands between braces, with them.
    pub(crate) fn skip_braces(&mut self) -> Result<()> {
        self.expect('{')?;
        let mut depth = 1;
        while depth > 0 {
            if self.done() {
                return self.error("close this with `}`");
            }
            depth += i32::from(self.is('{')) - i32::from(self.is('}'));
            self.at += 1;
        }
        Ok(())
    }

    /// Skips the rest of the line the cursor is on.
    pub(crate) fn skip_line(&mut self) {
        let line = self.line();
        while !self.done() && self.line() == line {
            self.at += 1;
        }
    }

    /// `+4`, `-4`, `+-4` or nothing.
    pub(crate) fn offset(&mut self) -> Result<i64> {
        if self.take('+') || self.is('-') { self.unsigned() } else { Ok(0) }
    }
}
