//! PTX text to a syntax tree. Nothing here knows what an instruction means.

pub(crate) mod ast;
mod lexer;
mod parser;
mod variable;

pub(crate) use parser::parse;
