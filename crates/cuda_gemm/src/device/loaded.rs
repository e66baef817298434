//! The modules loaded in a context.

use cust::module::Module;

/// The module of an entry point, and whether its launches may start before earlier work ends.
pub(super) struct Loaded {
    pub(super) module: Box<Module>,
    pub(super) starts_early: bool,
}
