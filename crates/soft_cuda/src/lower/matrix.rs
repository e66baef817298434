//! `ldmatrix`, `stmatrix`, `movmatrix` and `mma`.

use super::address::space_number;
use super::alu::fields;
use super::check::Accessed;
use super::context::{Context, Result};
use super::ir::{Class, Field, Fixed};
use super::lowering::Lowering;
use super::ty::Ty;
use crate::exec::access::AccessKind;
use crate::exec::alu::Lt;
use crate::exec::check_access::Extent;
use crate::exec::code::Special;
use crate::exec::lanes::SetP;
use crate::exec::mma::{LoadMatrix, Mma, StoreMatrix, TransposeMatrix};
use crate::exec::tensor_core::{INPUTS, Input};
use crate::exec::{NO_SLOT, pick, pick_compact};
use crate::ptx::ast::Operand;

/// Names of the types of inputs, in the order of their numbers.
const INPUT_NAMES: [&str; 3] = ["f16", "bf16", "tf32"];

/// The type of inputs that a modifier names.
pub(super) fn input(name: &str) -> Option<Input> {
    INPUT_NAMES.iter().position(|&known| known == name).map(|number| INPUTS[number])
}

/// Bytes of a row of a matrix of 16-bit elements.
const ROW: u32 = 16;

impl Lowering<'_> {
    /// Lowers `base` if it is an instruction of this file.
    pub(super) fn matrix(&mut self, base: &str, at: &mut Context<'_>) -> Result<bool> {
        match base {
            "ldmatrix" => self.move_matrices(at, true)?,
            "stmatrix" => self.move_matrices(at, false)?,
            "movmatrix" => {
                if at.mods != ["sync", "aligned", "m8n8", "trans", "b16"] {
                    return Err(at.unsupported("only `.sync.aligned.m8n8.trans.b16` exists"));
                }
                at.mods.clear();
                let [d, a] = at.operands()?;
                let (a, d) = (self.src(at, a, Ty::B32)?, self.dst(at, d, Ty::B32)?);
                self.emit(at, pick_compact::<TransposeMatrix>(), fields(d, &[a], at.inst.line));
            }
            "mma" => self.mma(at)?,
            "wgmma" => self.wgmma(at)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `ldmatrix` and `stmatrix`.
    fn move_matrices(&mut self, at: &mut Context<'_>, load: bool) -> Result<()> {
        if !load {
            self.since(at, 90)?;
        }
        let known = at.take("sync") && at.take("aligned") && at.take("m8n8") && at.take("b16");
        let Some(count) = at.take_one(&["x1", "x2", "x4"]).filter(|_| known) else {
            return Err(at.unsupported(
                "it needs `.sync.aligned.m8n8`, one of `.x1`, `.x2` and `.x4`, and `.b16`",
            ));
        };
        let count = 1 << count;
        let transposed = at.take("trans");
        let space = self.space(at);
        let [one, other] = at.operands()?;
        let (registers, address) = if load { (one, other) } else { (other, one) };
        let address = self.address(at, address, space)?;
        let registers = self.registers(at, registers, count, !load)?;
        // Only some lanes' addresses count.
        let guard = at.guard;
        if count < 4 {
            let (lane, limit) = (
                self.fixed(Class::Narrow, Fixed::Special(Special::LaneId)),
                self.narrow(8 * count as u32),
            );
            let p = self.register(Class::Predicate);
            let mut of = fields(p, &[lane, limit], 0);
            (of[3], of[5]) = (Field::Raw(NO_SLOT), Field::Raw(NO_SLOT));
            self.emit(at, pick_compact::<SetP<Lt<u32>>>(), of);
            at.guard = Some((p, false));
        }
        let kind = if load { AccessKind::Load } else { AccessKind::Store };
        let (extent, low) = (Extent::All, None);
        let of = Accessed { kind, element: ROW, count: 1, values: &[], wide: false, extent, low };
        self.check_access(at, &address, &of);
        at.guard = guard;
        let raw = Field::Raw;
        let head = [
            address.offset,
            space_number(address.space),
            address.wide.into(),
            at.inst.line,
            count as u32,
        ];
        let extra = head.into_iter().map(raw).chain(registers).collect();
        let run = match load {
            true => pick_compact::<LoadMatrix>(),
            false => pick_compact::<StoreMatrix>(),
        };
        let base = Field::Use(address.base);
        self.emit_extra(
            at,
            run,
            [raw(0), base, raw(transposed.into()), raw(0), raw(0), raw(0)],
            extra,
        );
        Ok(())
    }

    /// A list of `count` 32-bit registers, to be read or to be written.
    pub(super) fn registers(
        &mut self,
        at: &Context<'_>,
        operand: &Operand,
        count: usize,
        read: bool,
    ) -> Result<Vec<Field>> {
        let parts = match operand {
            Operand::Vector(parts) => parts.as_slice(),
            one => std::slice::from_ref(one),
        };
        if parts.len() != count {
            return Err(at.bad_operands(&format!(
                "a list of {count} registers belongs here, but {} are given",
                parts.len()
            )));
        }
        let mut fields = Vec::with_capacity(count);
        for part in parts {
            fields.push(match read {
                // Floats as well as bits.
                true => Field::Use(self.src_in(at, part, Ty::B32, Class::Narrow)?),
                false => Field::Def(self.dst(at, part, Ty::B32)?),
            });
        }
        Ok(fields)
    }

    fn mma(&mut self, at: &mut Context<'_>) -> Result<()> {
        let unknown = "only `.sync.aligned` with `.m16n8k8` and `.m16n8k16` of `.f16` and `.bf16`, and `.m16n8k4` and `.m16n8k8` of `.tf32`, `.row.col`, are available, with `.f32` accumulators, or `.f16` ones of `.f16`";
        let ["sync", "aligned", shape, "row", "col", d, a, b, c] = *at.mods.as_slice() else {
            return Err(at.unsupported(unknown));
        };
        at.mods.clear();
        let (Some(of), half) = (input(a), d == "f16") else {
            return Err(at.unsupported(unknown));
        };
        // Registers of B; A has twice as many.
        let (depth, nb) = match (shape, of) {
            ("m16n8k4", Input::Tf32) => (4, 1),
            ("m16n8k8", Input::Tf32) => (8, 2),
            ("m16n8k8", _) => (8, 1),
            ("m16n8k16", Input::F16 | Input::Bf16) => (16, 2),
            _ => return Err(at.unsupported(unknown)),
        };
        if a != b || c != d || !(d == "f32" || half && of == Input::F16) {
            return Err(at.unsupported(unknown));
        }
        let nd = if half { 2 } else { 4 };
        let [to, a, b, c] = at.operands()?;
        let a = self.registers(at, a, 2 * nb, true)?;
        let b = self.registers(at, b, nb, true)?;
        let c = self.registers(at, c, nd, true)?;
        let d = self.registers(at, to, nd, false)?;
        let raw = Field::Raw;
        let counts = [nd, 2 * nb, nb].map(|count| raw(count as u32));
        let extra = counts.into_iter().chain(d).chain(a).chain(b).chain(c).collect();
        let number = INPUTS.iter().position(|&known| known == of).unwrap_or(0) as u32;
        let fields = [raw(at.inst.line), raw(number), raw(half.into()), raw(depth), raw(0), raw(0)];
        self.emit_extra(at, pick::<Mma>(self.path), fields, extra);
        Ok(())
    }
}
