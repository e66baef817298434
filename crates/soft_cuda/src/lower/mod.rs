//! A PTX function to decoded code: names are resolved, instructions become
//! operations of the executor, calls are inlined, registers get slots.

mod address;
mod alu;
mod atomic;
mod body;
mod bulk;
mod check;
mod compare;
mod context;
mod control;
mod convert;
mod copy;
mod defined;
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
use self::layout::Layout;
pub(crate) use self::layout::parameter_offsets;
use self::lowering::Lowering;
use crate::checks::Checks;
use crate::error::LoadError;
use crate::exec::Path;
use crate::exec::code::Code;
use crate::ptx::ast::{Function, Module};

/// A lowered kernel.
pub(crate) struct Lowered {
    pub code: Code,
    /// Bytes of static shared memory.
    pub static_shared: u32,
    /// Bytes that a block has on top of that and of dynamic shared memory, between its variables.
    pub padding: u32,
    /// Where dynamic shared memory starts, in bytes from the first of shared
    /// memory; `None` if the kernel uses none.
    pub dynamic_shared_at: Option<u32>,
}

/// Lowers the entry `function` of `module`. `text` are the lines of the source.
pub(crate) fn lower<'m>(
    module: &'m Module,
    index: &'m Index<'m>,
    function: &'m Function,
    (path, checks): (Path, Checks),
    text: std::sync::Arc<[String]>,
) -> Result<Lowered, LoadError> {
    let mut lowering = Lowering::new(module, index, path, checks);
    let reach = index.reach(function);
    lowering.bulk = reach.has_bulk_copies() && !checks.races;
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
    let (bulk, granule, copies) = (lowering.bulk, lowering.granule, reach.has_copies());
    let variables = std::mem::take(&mut lowering.variables);
    let (names, communicates) = (std::mem::take(&mut lowering.names), lowering.communicates);
    let mut ir = lowering.into_ir();
    let too_intricate = |graph::TooIntricate| LoadError::Syntax {
        line: function.line,
        text: function.name.clone(),
        help: graph::TooIntricate.to_string(),
    };
    let mut watched = Vec::new();
    if checks.memory {
        let slots = graph::allocate(&ir).map_err(too_intricate)?;
        watched = defined::watch(&mut ir, &slots.entry, &names);
    }
    let code = encode::encode(&ir, local_bytes, path, text).map_err(too_intricate)?;
    let code = Code { bulk, copies, granule, variables, watched, communicates, ..code };
    let Layout { static_shared, padding, dynamic_shared_at } = layout;
    Ok(Lowered { code, static_shared, padding, dynamic_shared_at })
}
