//! What is loaded in a context.

use cust::module::Module;

/// The module of an entry point, and whether its launches may begin before what is in front of them has ended.
pub(super) struct Loaded {
    pub(super) module: Box<Module>,
    pub(super) starts_early: bool,
}
