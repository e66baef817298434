//! A kernel and the functions that it calls to decoded code: names are resolved, instructions
//! become operations of the executor, registers get slots.

use std::collections::HashMap;

mod address;
mod alu;
mod atomic;
mod body;
mod builtin;
mod bulk;
mod call;
mod check;
mod cluster;
mod compare;
mod context;
mod control;
mod convert;
mod copy;
mod defined;
mod encode;
mod fuse;
mod graph;
mod half;
mod in_flight;
mod index;
mod ir;
mod layout;
mod logic;
mod lowering;
mod matrix;
mod memory;
mod names;
mod pick;
mod scopes;
mod shared;
mod subword;
mod tiles;
mod ty;
mod wgmma;
mod words;

use self::encode::{Body, Encoder};
pub(crate) use self::index::{Index, Names};
use self::ir::{Terminator, V};
use self::layout::bytes_of;
pub(crate) use self::layout::parameter_offsets;
use self::lowering::Lowering;
use self::shared::Shared;
use crate::checks::Checks;
use crate::error::LoadError;
use crate::exec::Path;
use crate::exec::code::Code;
use crate::exec::facts::{Facts, Granule};
use crate::ptx::ast::Function;

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

/// Lowers the entry `function` of the module in `index`, and the functions that it may call. `text`
/// are the lines of the source.
pub(crate) fn lower<'m>(
    index: Index<'m>,
    function: &'m Function,
    (path, checks): (Path, Checks),
    text: std::sync::Arc<[String]>,
) -> Result<Lowered, LoadError> {
    let reach = index.reach(function)?;
    let bulk = reach.has_bulk_copies() && !checks.races;
    let shared = Shared::place(&reach, checks)?;
    let names = reach.functions.iter().map(|function| function.name.as_str());
    let numbers: HashMap<&str, u32> = names.zip(0..).collect();
    let mut bodies = Vec::new();
    let (mut granule, mut communicates, mut allocates) = (Granule::LARGEST, false, false);
    let mut watched = Vec::new();
    for function in &reach.functions {
        let lowering = Lowering::new(index, &numbers, &shared, (path, checks));
        let (mut body, found) = body_of(lowering, &shared, function, bulk)?;
        granule = granule.min(found.granule);
        communicates |= found.communicates;
        allocates |= found.allocates;
        if checks.memory {
            let slots = graph::allocate(&body.ir);
            let slots = slots.map_err(|error| too_large(function, &error.to_string()))?;
            defined::watch(&mut body.ir, &slots.entry, &found.names, &mut watched);
        }
        if checks.sync {
            in_flight::watch(&mut body.ir, &found.products);
        }
        let fused = fuse::fuse(&mut body.ir, path);
        fused.map_err(|error| too_large(function, &error.to_string()))?;
        bodies.push(body);
    }
    let mut encoder = Encoder::new(text, &bodies);
    for (function, body) in reach.functions.iter().zip(&bodies) {
        let encoded = encoder.function(body, index.address(&function.name));
        encoded.map_err(|error| too_large(function, &error.to_string()))?;
    }
    let all = encoder.finish();
    let (copies, variables) = (reach.has_copies(), shared.variables);
    let facts = Facts { variables, granule, watched, copies };
    let code = Code { bulk, facts, communicates, allocates, ..all };
    let (static_shared, padding) = (shared.bytes, shared.padding);
    Ok(Lowered { code, static_shared, padding, dynamic_shared_at: shared.dynamic })
}

fn too_large(function: &Function, help: &str) -> LoadError {
    let (line, text) = (function.line, function.name.clone());
    LoadError::Syntax { line, text, help: help.to_owned() }
}

/// What lowering finds out about a function.
struct Found {
    granule: Granule,
    communicates: bool,
    allocates: bool,
    /// Of registers.
    names: HashMap<V, String>,
    /// The registers of all `wgmma.mma_async`.
    products: Vec<V>,
}

/// Lowers one function.
fn body_of<'m>(
    mut lowering: Lowering<'m>,
    shared: &'m Shared<'m>,
    function: &'m Function,
    bulk: bool,
) -> Result<(Body, Found), LoadError> {
    (lowering.bulk, lowering.entry) = (bulk, function.entry);
    lowering.place_outer(shared)?;
    lowering.scopes.push();
    match function.entry {
        true => lowering.place_parameters(&function.params)?,
        false => lowering.place_arguments(function)?,
    }
    lowering.scopes.push();
    lowering.registers_of(function, true)?;
    let exit = lowering.new_block();
    lowering.body(function, exit)?;
    lowering.finish(Terminator::Goto(exit), function.line, false);
    lowering.current = exit;
    lowering.registers_of(function, false)?;
    let end = if function.entry { Terminator::Exit } else { Terminator::Return };
    lowering.blocks[exit as usize].end = Some((end, function.line, false));
    let sizes = [&function.returns, &function.params].map(|all| all.iter().map(bytes_of).collect());
    let (frame, align) = (lowering.local as u32, lowering.local_align as u32);
    let found = Found {
        granule: lowering.granule,
        communicates: lowering.communicates,
        allocates: lowering.allocates,
        names: std::mem::take(&mut lowering.names),
        products: lowering.products.iter().copied().collect(),
    };
    let name = function.name.clone();
    Ok((Body { name, frame, align, sizes, ir: lowering.into_ir() }, found))
}
