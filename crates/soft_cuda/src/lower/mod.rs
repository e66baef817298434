//! A PTX function to decoded code: names are resolved, instructions become
//! operations of the executor, calls are inlined, registers get slots.

mod address;
mod alu;
mod atomic;
mod bulk;
mod control;
mod copy;
mod encode;
mod graph;
mod index;
mod ir;
mod memory;
mod names;
mod scopes;
mod ty;

use std::collections::HashMap;

pub(crate) use self::index::Index;
use self::index::Reach;
use self::ir::{B, Block, Class, Field, Fixed, Inst, InstKind, Ir, Register, Terminator, V};
use self::scopes::{Binding, Scopes};
use self::ty::Ty;
use crate::error::LoadError;
use crate::exec::code::Code;
use crate::exec::machine::{LOCAL_BASE, SHARED_BASE};
use crate::exec::{OpFn, Path};
use crate::ptx::ast::{Function, Instruction, Module, Operand, Space, Statement, Variable};

type Result<T, E = LoadError> = std::result::Result<T, E>;

/// Bytes of local memory per thread, the limit of every GPU.
const MAX_LOCAL: u64 = 512 << 10;
/// Bytes of a kernel's parameters, the limit since PTX 8.1 for sm_70 and newer.
const MAX_PARAMETERS: u64 = 32_764;
/// The limit before.
const MAX_PARAMETERS_BEFORE: u64 = 4352;
/// How deep calls may nest.
const MAX_CALLS: usize = 64;

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
) -> Result<Lowered> {
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

/// A block under construction.
#[derive(Default)]
struct Open {
    insts: Vec<Inst>,
    end: Option<(Terminator, u32, bool)>,
}

/// The state of lowering one kernel.
struct Lowering<'m> {
    module: &'m Module,
    index: &'m Index<'m>,
    path: Path,
    registers: Vec<Register>,
    fixed: HashMap<(Class, Fixed), V>,
    blocks: Vec<Open>,
    current: B,
    scopes: Scopes<'m>,
    /// Registers of ranges, by the range's number and their own.
    members: HashMap<(u32, u32), V>,
    /// Addresses of the shared variables that functions declare. One declaration is one
    /// variable, however often its function is inlined.
    shared: HashMap<*const Variable, u64>,
    local: u64,
    /// The carry flag of `add.cc` and friends.
    carry: Option<V>,
    /// Functions being inlined, outermost first, and where each returns to.
    calls: Vec<(String, B)>,
    /// Whether there are bulk copies, which accesses must be ordered with.
    bulk: bool,
}

impl<'m> Lowering<'m> {
    fn new(module: &'m Module, index: &'m Index<'m>, path: Path) -> Lowering<'m> {
        Lowering {
            module,
            index,
            path,
            registers: Vec::new(),
            fixed: HashMap::new(),
            blocks: vec![Open::default()],
            current: 0,
            scopes: Scopes::new(),
            members: HashMap::new(),
            shared: HashMap::new(),
            local: 0,
            carry: None,
            calls: Vec::new(),
            bulk: false,
        }
    }

    /// Lays out the shared variables that the kernel uses: static ones first,
    /// then the dynamic part. Returns the bytes of the former and the place of
    /// the latter.
    fn place_shared(&mut self, reach: &Reach<'m>) -> Result<(u32, Option<u32>)> {
        let outer = reach.shared.iter().map(|&variable| (variable, true));
        let inner = reach.inner_shared().map(|variable| (variable, false));
        let all: Vec<(&'m Variable, bool)> = outer.chain(inner).collect();
        let (mut bytes, mut dynamic) = (0u64, None);
        for &(variable, outer) in all.iter().filter(|(v, _)| v.count.is_some()) {
            let at = bytes.next_multiple_of(variable.align);
            bytes = at + variable.element * variable.count.unwrap_or(0);
            if bytes > 1 << 24 {
                return Err(LoadError::Syntax {
                    line: variable.line,
                    text: variable.name.clone(),
                    help: "the kernel's shared variables exceed any device's memory".to_owned(),
                });
            }
            self.place_at(variable, outer, at)?;
        }
        let open = || all.iter().filter(|(v, _)| v.count.is_none());
        if let Some(align) = open().map(|(v, _)| v.align).max() {
            let at = bytes.next_multiple_of(align.min(u64::from(SHARED_BASE)));
            dynamic = Some(at as u32);
            for &(variable, outer) in open() {
                self.place_at(variable, outer, at)?;
            }
        }
        Ok((bytes as u32, dynamic))
    }

    /// Places a shared variable at byte `at`. Those of the module are declared at once,
    /// those of a function where it declares them.
    fn place_at(&mut self, variable: &'m Variable, outer: bool, at: u64) -> Result<()> {
        let address = u64::from(SHARED_BASE) + at;
        if outer {
            let binding = Binding::Variable { space: Space::Shared, address, bytes: None };
            return self.declare(&variable.name, binding, variable.line);
        }
        self.shared.insert(variable, address);
        Ok(())
    }

    fn place_parameters(&mut self, params: &'m [Variable]) -> Result<()> {
        let (limit, way_out) = if self.module.version >= 8.1 && self.module.targets(70) {
            (MAX_PARAMETERS, "")
        } else {
            (MAX_PARAMETERS_BEFORE, ", or write it for `.version 8.1` and `.target sm_70` or newer")
        };
        for (variable, address) in params.iter().zip(parameter_offsets(params)) {
            let bytes = variable.element * variable.count.unwrap_or(0);
            if address + bytes > limit {
                return Err(LoadError::Syntax {
                    line: variable.line,
                    text: variable.name.clone(),
                    help: format!(
                        "with it the kernel has more than {limit} bytes of parameters; pass a pointer{way_out}"
                    ),
                });
            }
            let bytes = Some(bytes);
            let binding = Binding::Variable { space: Space::Param, address, bytes };
            self.declare(&variable.name, binding, variable.line)?;
        }
        Ok(())
    }

    /// Reserves local memory for a variable, or for a parameter of a call.
    fn place_local(&mut self, variable: &Variable) -> Result<Binding> {
        let at = self.local.next_multiple_of(variable.align.max(variable.element));
        let bytes = variable.element * variable.count.unwrap_or(0);
        self.local = at + bytes;
        if self.local > MAX_LOCAL {
            return Err(LoadError::Syntax {
                line: variable.line,
                text: variable.name.clone(),
                help: format!(
                    "with it the kernel needs {} bytes of local memory per thread, but {MAX_LOCAL} is the limit; shrink its arrays",
                    self.local
                ),
            });
        }
        let address = u64::from(LOCAL_BASE) + at;
        Ok(Binding::Variable { space: Space::Local, address, bytes: Some(bytes) })
    }

    fn into_ir(self) -> Ir {
        let blocks = self.blocks.into_iter().map(|block| {
            // A label at the very end of a body is followed by nothing.
            let (end, line, counted) = block.end.unwrap_or((Terminator::Exit, 0, false));
            Block { insts: block.insts, end, line, counted }
        });
        Ir { blocks: blocks.collect(), registers: self.registers }
    }

    fn new_block(&mut self) -> B {
        self.blocks.push(Open::default());
        (self.blocks.len() - 1) as B
    }

    /// Ends the current block, if it has not ended yet.
    fn finish(&mut self, end: Terminator, line: u32, counted: bool) {
        let block = &mut self.blocks[self.current as usize];
        if block.end.is_none() {
            block.end = Some((end, line, counted));
        }
    }

    /// Ends the current block and starts `next`.
    fn start(&mut self, next: B, line: u32) {
        self.finish(Terminator::Goto(next), line, false);
        self.current = next;
    }

    fn register(&mut self, class: Class) -> V {
        self.registers.push(Register { class, fixed: None });
        (self.registers.len() - 1) as V
    }

    fn fixed(&mut self, class: Class, fixed: Fixed) -> V {
        let registers = &mut self.registers;
        *self.fixed.entry((class, fixed)).or_insert_with(|| {
            registers.push(Register { class, fixed: Some(fixed) });
            (registers.len() - 1) as V
        })
    }

    fn constant(&mut self, ty: Ty, bits: u64) -> V {
        let (class, bits) = match ty.bits {
            64 => (Class::Wide, bits),
            width => (Class::Narrow, bits & (u64::MAX >> (64 - width))),
        };
        self.fixed(class, Fixed::Constant(bits))
    }

    fn narrow(&mut self, bits: u32) -> V {
        self.fixed(Class::Narrow, Fixed::Constant(bits.into()))
    }

    /// Appends an operation to the current block.
    fn emit(&mut self, at: &Context<'_>, run: OpFn, fields: [Field; 6]) -> &mut Inst {
        self.emit_extra(at, run, fields, Vec::new())
    }

    fn emit_extra(
        &mut self,
        at: &Context<'_>,
        run: OpFn,
        fields: [Field; 6],
        extra: Vec<Field>,
    ) -> &mut Inst {
        if self.blocks[self.current as usize].end.is_some() {
            // Code after a jump that no label leads to.
            self.current = self.new_block();
        }
        let line = at.inst.line;
        let inst = Inst { run, fields, extra, line, guard: at.guard, kind: InstKind::Plain };
        let insts = &mut self.blocks[self.current as usize].insts;
        insts.push(inst);
        let last = insts.len() - 1;
        &mut insts[last]
    }

    /// Lowers the statements of a function body; `exit` is where `ret` goes.
    fn body(&mut self, statements: &'m [Statement], exit: B) -> Result<()> {
        let mut labels = labels(statements).into_iter();
        self.declare_labels(labels.next())?;
        for statement in statements {
            match statement {
                Statement::Open => {
                    self.scopes.push();
                    self.declare_labels(labels.next())?;
                }
                Statement::Close => {
                    self.scopes.pop();
                }
                Statement::Label(name, line) => {
                    let Some(Binding::Label(block)) = self.find(name) else {
                        return Err(LoadError::Undeclared { line: *line, name: name.clone() });
                    };
                    self.start(block, *line);
                }
                Statement::Register { name, ty, count, line } => {
                    self.declare_registers(name, ty, *count, *line)?;
                }
                Statement::Variable(variable) => match variable.space {
                    Space::Local | Space::Param => {
                        let binding = self.place_local(variable)?;
                        self.declare(&variable.name, binding, variable.line)?;
                    }
                    _ => {
                        if let Some(&address) = self.shared.get(&std::ptr::from_ref(variable)) {
                            let space = Space::Shared;
                            let binding = Binding::Variable { space, address, bytes: None };
                            self.declare(&variable.name, binding, variable.line)?;
                            continue;
                        }
                        return Err(LoadError::Syntax {
                            line: variable.line,
                            text: variable.name.clone(),
                            help: "declare this variable at module scope".to_owned(),
                        });
                    }
                },
                Statement::Instruction(inst) => self.instruction(inst, exit)?,
            }
        }
        Ok(())
    }

    fn declare(&mut self, name: &'m str, binding: Binding, line: u32) -> Result<()> {
        match self.scopes.declare(name, binding) {
            true => Ok(()),
            false => Err(LoadError::Redeclared { line, name: name.to_owned() }),
        }
    }

    /// Declares the labels of a scope when it opens, so that jumps forward find them.
    fn declare_labels(&mut self, labels: Option<Vec<(&'m str, u32)>>) -> Result<()> {
        for (name, line) in labels.into_iter().flatten() {
            let block = self.new_block();
            self.declare(name, Binding::Label(block), line)?;
        }
        Ok(())
    }

    fn declare_registers(
        &mut self,
        name: &'m str,
        ty: &str,
        count: Option<u32>,
        line: u32,
    ) -> Result<()> {
        let Some(ty) = Ty::parse(ty).filter(|ty| ty.bits != 8) else {
            return Err(LoadError::Syntax {
                line,
                text: ty.to_owned(),
                help: "the software device has no registers of this type".to_owned(),
            });
        };
        match count {
            None => {
                let register = self.register(ty.class());
                self.declare(name, Binding::Register(register, ty), line)
            }
            Some(count) => match self.scopes.declare_range(name, count, ty) {
                true => Ok(()),
                false => Err(LoadError::Redeclared { line, name: name.to_owned() }),
            },
        }
    }

    fn instruction(&mut self, inst: &'m Instruction, exit: B) -> Result<()> {
        let mut parts = inst.opcode.split('.');
        let base = parts.next().unwrap_or_default();
        let mut at = Context { inst, mods: parts.collect(), guard: None };
        if let Some((name, negated)) = &inst.guard {
            let predicate = self.predicate_register(&at, name)?;
            at.guard = Some((predicate, *negated));
        }
        let known = self.control(base, &mut at, exit)?
            || self.memory(base, &mut at)?
            || self.arithmetic(base, &mut at)?;
        if !known {
            return Err(at.unsupported("this instruction is unknown"));
        }
        match at.mods.first() {
            None => Ok(()),
            Some(unknown) => Err(at.unsupported(&format!("the modifier `.{unknown}` is unknown"))),
        }
    }
}

/// The instruction being lowered, and its modifiers that nobody has claimed
/// yet. Whatever is left at the end is an unknown modifier.
struct Context<'a> {
    inst: &'a Instruction,
    mods: Vec<&'a str>,
    guard: Option<(V, bool)>,
}

impl<'a> Context<'a> {
    /// Claims a modifier if it is there.
    fn take(&mut self, modifier: &str) -> bool {
        match self.mods.iter().position(|&m| m == modifier) {
            Some(at) => {
                self.mods.remove(at);
                true
            }
            None => false,
        }
    }

    /// Claims the first of `modifiers` that is there, and says which.
    fn take_one(&mut self, modifiers: &[&str]) -> Option<usize> {
        modifiers.iter().position(|m| !m.is_empty() && self.take(m))
    }

    /// Claims all modifiers that `f` accepts.
    fn take_all(&mut self, f: impl Fn(&str) -> bool) {
        self.mods.retain(|m| !f(m));
    }

    /// Claims the last modifier as a type.
    fn ty(&mut self) -> Result<Ty> {
        match self.mods.last().and_then(|m| Ty::parse(m)) {
            Some(ty) => {
                self.mods.pop();
                Ok(ty)
            }
            None => Err(self.unsupported("its last modifier is not a type")),
        }
    }

    fn unsupported(&self, help: &str) -> LoadError {
        LoadError::Unsupported {
            line: self.inst.line,
            opcode: self.inst.opcode.clone(),
            help: help.to_owned(),
        }
    }

    fn bad_operands(&self, help: &str) -> LoadError {
        LoadError::Operands {
            line: self.inst.line,
            opcode: self.inst.opcode.clone(),
            help: help.to_owned(),
        }
    }

    /// Exactly `N` operands.
    fn operands<const N: usize>(&self) -> Result<&'a [Operand; N]> {
        self.inst.operands.as_slice().try_into().map_err(|_| {
            let got = self.inst.operands.len();
            self.bad_operands(&format!("it takes {N}, but {got} are given"))
        })
    }

    /// Operand `i`.
    fn operand(&self, i: usize) -> Result<&'a Operand> {
        self.inst
            .operands
            .get(i)
            .ok_or_else(|| self.bad_operands(&format!("it takes at least {}", i + 1)))
    }
}

/// Offsets of parameters in the parameter bytes.
pub(crate) fn parameter_offsets(params: &[Variable]) -> impl Iterator<Item = u64> {
    params.iter().scan(0, |at: &mut u64, param| {
        let offset = at.next_multiple_of(param.align);
        *at = offset + param.element * param.count.unwrap_or(0);
        Some(offset)
    })
}

/// The labels of every scope of a body and their lines, in the order that the scopes open.
fn labels(statements: &[Statement]) -> Vec<Vec<(&str, u32)>> {
    let (mut all, mut open) = (vec![Vec::new()], vec![0]);
    for statement in statements {
        match statement {
            Statement::Open => {
                open.push(all.len());
                all.push(Vec::new());
            }
            Statement::Close => {
                open.pop();
            }
            Statement::Label(name, line) => {
                if let Some(&scope) = open.last() {
                    all[scope].push((name.as_str(), *line));
                }
            }
            _ => {}
        }
    }
    all
}
