//! [`SyntaxError`].

/// Why a text is no PTX.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}: cannot read `{text}`: {help}")]
pub struct SyntaxError {
    /// Line, from 1.
    pub line: u32,
    /// The offending text.
    pub text: String,
    /// What to do.
    pub help: String,
}
