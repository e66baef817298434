//! `wgmma`.

use super::context::{Context, Result};
use super::ir::{Field, InstKind, Terminator};
use super::lowering::Lowering;
use super::matrix::input;
use super::ty::Ty;
use crate::exec::code::BarrierKind;
use crate::exec::tensor_core::{INPUTS, Input};
use crate::exec::wgmma::{
    A_IN_REGISTERS, Commit, Fence, HALF, Issue, NEGATED_A, NEGATED_B, TRANSPOSED_A, TRANSPOSED_B,
    Wait,
};
use crate::exec::{pick, pick_compact};
use crate::ptx::ast::Operand;

impl Lowering<'_> {
    pub(super) fn wgmma(&mut self, at: &mut Context<'_>) -> Result<()> {
        if self.module.target != "sm_90a" {
            return Err(at.unsupported(&format!(
                "it exists for `.target sm_90a` alone, and the module is for `{}`",
                self.module.target
            )));
        }
        let known = ["fence", "commit_group", "wait_group", "mma_async"];
        let which = at.take_one(&known);
        if !(at.take("sync") && at.take("aligned")) {
            return Err(at.unsupported("it needs `.sync.aligned`"));
        }
        let raw = Field::Raw;
        let line = at.inst.line;
        let of_line = [raw(0), raw(0), raw(0), raw(0), raw(line), raw(0)];
        match which {
            Some(0) => {
                let [] = at.operands()?;
                self.emit(at, pick_compact::<Fence>(), of_line);
            }
            Some(1) => {
                let [] = at.operands()?;
                self.emit(at, pick_compact::<Commit>(), of_line);
            }
            Some(2) => {
                let [Operand::Int(left @ 0..=7)] = at.operands()? else {
                    return Err(at.bad_operands("the number of groups is a constant from 0 to 7"));
                };
                let fields = [raw(line), raw(0), raw(0), raw(0), raw(0), raw(*left as u32)];
                let run = pick::<Wait>(self.path);
                self.emit(at, run, fields).kind = InstKind::ProductWait;
                // A product is one operation of four warps: it is complete for none of them before
                // all have issued it. That orders nothing else that they do.
                let (kind, id, next) = (BarrierKind::Warpgroup, self.narrow(0), self.new_block());
                let (aligned, count, dst, src) = (true, None, None, None);
                let end = Terminator::Barrier { kind, aligned, id, count, dst, src, next };
                self.finish(end, line, false);
                self.current = next;
            }
            Some(_) => self.mma_async(at)?,
            None => {
                return Err(at.unsupported(&format!("it is one of `.{}`", known.join("`, `."))));
            }
        }
        Ok(())
    }

    fn mma_async(&mut self, at: &mut Context<'_>) -> Result<()> {
        let unknown = "only `.m64nNk16` of `.f16` and `.bf16` and `.m64nNk8` of `.tf32`, with N a multiple of 8 up to 256, are available, with `.f32` accumulators, or `.f16` ones of `.f16`";
        let [shape, d, a, b] = *at.mods.as_slice() else {
            return Err(at.unsupported(unknown));
        };
        at.mods.clear();
        let sizes = shape.strip_prefix("m64n").and_then(|rest| rest.split_once('k'));
        let n: Option<usize> = sizes.and_then(|(n, _)| n.parse().ok());
        let (Some((_, k)), Some(n), Some(of)) = (sizes, n, input(a)) else {
            return Err(at.unsupported(unknown));
        };
        let half = d == "f16";
        let fits = k == if of == Input::Tf32 { "8" } else { "16" };
        let accumulates = d == "f32" || half && of == Input::F16;
        if a != b || !fits || !accumulates || n % 8 != 0 || !(8..=256).contains(&n) {
            return Err(at.unsupported(unknown));
        }
        let (to, a, b, adds, rest) = match at.inst.operands.as_slice() {
            [to, a, b, adds, rest @ ..] => (to, a, b, adds, rest),
            _ => return Err(at.bad_operands("they are too few")),
        };
        let in_registers = matches!(a, Operand::Vector(_));
        // Negations, and transposes where the type has them.
        let transposes = match (of, in_registers) {
            (Input::Tf32, _) => 0,
            (_, true) => 1,
            (_, false) => 2,
        };
        let mut numbers = Vec::new();
        for operand in rest {
            match operand {
                Operand::Int(number @ -1..=1) => numbers.push(*number),
                _ => return Err(at.bad_operands("those behind the predicate are constants")),
            }
        }
        let (signs, transposed) = numbers.split_at(numbers.len().min(2));
        let right = signs.len() == 2
            && !signs.contains(&0)
            && transposed.len() == transposes
            && !transposed.contains(&-1);
        if !right {
            return Err(at.bad_operands(&format!(
                "behind the predicate it takes two signs, 1 or -1, and {transposes} transposes, 0 or 1"
            )));
        }
        let mut flags = 0;
        let mut set = |is: bool, flag: u32| flags |= if is { flag } else { 0 };
        set(in_registers, A_IN_REGISTERS);
        set(half, HALF);
        set(signs[0] == -1, NEGATED_A);
        set(signs[1] == -1, NEGATED_B);
        set(transposes == 2 && transposed[0] == 1, TRANSPOSED_A);
        set(transposes > 0 && transposed[transposes - 1] == 1, TRANSPOSED_B);
        let nd = if half { n / 4 } else { n / 2 };
        let (adds, negated) = self.predicate(at, adds)?;
        if negated {
            return Err(at.bad_operands("the predicate cannot be negated"));
        }
        let raw = Field::Raw;
        let mut registers = self.registers(at, to, nd, false)?;
        for field in &mut registers {
            if let Field::Def(v) = *field {
                *field = Field::Both(v);
            }
        }
        let first = match in_registers {
            true => {
                registers.extend(self.registers(at, a, 4, true)?);
                raw(0)
            }
            false => Field::Use(self.src(at, a, Ty::B64)?),
        };
        let second = Field::Use(self.src(at, b, Ty::B64)?);
        self.products.extend(registers.iter().filter_map(|field| match *field {
            Field::Use(v) | Field::Both(v) => Some(v),
            _ => None,
        }));
        let number = INPUTS.iter().position(|&known| known == of).unwrap_or(0) as u32;
        let head = [number, n as u32, flags, at.inst.line, nd as u32];
        let extra = head.into_iter().map(raw).chain(registers).collect();
        let fields = [raw(0), first, second, Field::Use(adds), raw(0), raw(0)];
        let run = pick_compact::<Issue>();
        self.emit_extra(at, run, fields, extra).kind = InstKind::Product;
        Ok(())
    }
}
