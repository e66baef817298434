//! Reads PTX, the text that NVIDIA's drivers compile. Nothing here knows what an instruction
//! means.
//!
//! - [`parse`] makes a syntax tree ([`ast`]) of a module, and refuses what it does not know.
//! - [`outline`] finds declarations and statements, and where they are in the text. It refuses
//!   nothing.
//! - [`extract`] cuts one kernel out of a module, [`extract_all`] each.
//! - [`source`] finds the line of the source that a line of PTX comes from.
//! - [`scan`] divides a text into lexemes, for all of these.
//!
//! ```
//! let text = ".version 8.0 .target sm_80 .address_size 64
//!             .shared .b8 tile[64]; .shared .b8 other[64];
//!             .entry first() { mov.u32 %r1, tile; ret; }
//!             .entry second() { ret; }";
//! let names: Vec<_> = ptx_syntax::outline::functions(text).map(|one| one.name).collect();
//! assert_eq!(names, ["first", "second"]);
//!
//! let first = ptx_syntax::extract(text, "first").expect("it is there");
//! let module = ptx_syntax::parse(&first)?;
//! assert_eq!((module.functions.len(), module.variables.len()), (1, 1));
//! assert_eq!(module.target, "sm_80");
//! # Ok::<(), ptx_syntax::SyntaxError>(())
//! ```

pub mod ast;
mod cursor;
mod error;
mod extract;
mod lexer;
pub mod outline;
mod parser;
pub mod scan;
pub mod source;
mod statement;
mod variable;

pub use error::SyntaxError;
pub use extract::{extract, extract_all};
pub use parser::parse;
