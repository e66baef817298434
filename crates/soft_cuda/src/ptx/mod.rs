//! PTX text to a syntax tree. Nothing here knows what an instruction means.

pub(crate) mod ast;
mod lexer;
mod parser;

pub(crate) use parser::parse;
