//! A PTX function to decoded code: names are resolved, instructions become
//! operations of the executor, calls are inlined, registers get slots.

mod address;
mod alu;
mod atomic;
mod body;
mod bulk;
mod compare;
mod context;
mod control;
mod convert;
mod copy;
mod encode;
mod graph;
mod index;
mod ir;
mod layout;
mod logic;
mod lowering;
mod memory;
mod names;
mod pick;
mod scopes;
mod ty;

pub(crate) use self::index::Index;
use self::ir::Terminator;
pub(crate) use self::layout::parameter_offsets;
use self::lowering::Lowering;
use crate::error::LoadError;
use crate::exec::Path;
use crate::exec::code::Code;
use crate::ptx::ast::{Function, Module};

/// A lowered kernel.
pub(crate) struct Lowered {
    pub code: Code,
    /// Bytes of static shared memory.
    pub static_shared: u32,
    /// Where dynamic shared memory starts, in bytes from the first of shared
    /// memory; `None` if the kernel uses none.
    pub dynamic_shared_at: Option<u32>,
}

/// Lowers the entry `function` of `module`. `text` are the lines of the source.
pub(crate) fn lower<'m>(
    module: &'m Module,
    index: &'m Index<'m>,
    function: &'m Function,
    path: Path,
    text: std::sync::Arc<[String]>,
) -> Result<Lowered, LoadError> {
    let mut lowering = Lowering::new(module, index, path);
    let reach = index.reach(function);
    lowering.bulk = reach.has_bulk_copies();
    let layout = lowering.place_shared(&reach)?;
    lowering.scopes.push();
    lowering.place_parameters(&function.params)?;
    let body = function.body.as_deref().unwrap_or_default();
    lowering.scopes.push();
    let exit = lowering.new_block();
    lowering.body(body, exit)?;
    lowering.finish(Terminator::Goto(exit), function.line, false);
    lowering.blocks[exit as usize].end = Some((Terminator::Exit, function.line, false));
    let local_bytes = lowering.local.next_multiple_of(16) as u32;
    let bulk = lowering.bulk;
    let ir = lowering.into_ir();
    let code = encode::encode(&ir, local_bytes, path, text).map_err(|graph::TooIntricate| {
        LoadError::Syntax {
            line: function.line,
            text: function.name.clone(),
            help: graph::TooIntricate.to_string(),
        }
    })?;
    let code = Code { bulk, ..code };
    Ok(Lowered { code, static_shared: layout.0, dynamic_shared_at: layout.1 })
}
