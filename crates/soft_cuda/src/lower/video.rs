//! Video instructions: arithmetic of bytes, halves and words of 32 bits.

use super::alu::fields;
use super::context::{Context, Result};
use super::lowering::Lowering;
use super::ty::Ty;
use crate::exec::lanes::Map3;
use crate::exec::pick_compact;
use crate::exec::video::{COMPARISONS, PARTS, Part, SECONDS, VIDEOS, Video, VideoOp};
use crate::ptx::ast::Operand;

impl Lowering<'_> {
    /// Lowers `base` if it is an instruction of this file.
    pub(super) fn video(&mut self, base: &str, at: &mut Context<'_>) -> Result<bool> {
        let Some(number) = VIDEOS.iter().position(|&name| name == base) else {
            return Ok(false);
        };
        let (shifts, compares) = (matches!(base, "vshl" | "vshr"), base == "vset");
        // The result of a comparison is unsigned.
        let signs = match (compares, at.mods.as_slice()) {
            (true, [a, b, ..]) => [Some(false), sign(a), sign(b)],
            (false, [d, a, b, ..]) if !shifts || (d == a && *b == "u32") => {
                [sign(d), sign(a), sign(b)]
            }
            _ => [None; 3],
        };
        let [Some(d), Some(a), Some(b)] = signs else {
            return Err(at.unsupported(
                "its types are `.u32` or `.s32`, and those of a shift are one type twice and `.u32`",
            ));
        };
        at.mods.drain(..if compares { 2 } else { 3 });
        let clamps = match at.take_one(if shifts { &["wrap", "clamp"] } else { &[] }) {
            None if shifts => return Err(at.unsupported("it needs `.wrap` or `.clamp`")),
            clamps => clamps == Some(1),
        };
        let comparison = match at.take_one(if compares { &COMPARISONS } else { &[] }) {
            None if compares => {
                return Err(at.unsupported("it needs a comparison such as `.lt`"));
            }
            comparison => comparison.unwrap_or(0) as u32,
        };
        let saturates = !compares && at.take("sat");
        let second = at.take_one(&SECONDS).map(|second| second as u32);
        let (to, d) = part(at.operand(0)?, d);
        let (a_of, a) = part(at.operand(1)?, a);
        let (b_of, b) = part(at.operand(2)?, b);
        let merges = d.number < PARTS.len() as u32;
        let want = if merges || second.is_some() { 4 } else { 3 };
        if at.inst.operands.len() != want || merges && second.is_some() {
            return Err(at.bad_operands(
                "a third source is for a second operation, or for a destination that is a part",
            ));
        }
        let c = match at.inst.operands.get(3) {
            Some(c) => self.src(at, c, Ty::B32)?,
            None => self.narrow(0),
        };
        let sources = [self.src(at, &a_of, Ty::B32)?, self.src(at, &b_of, Ty::B32)?, c];
        let to = self.dst(at, &to, Ty::B32)?;
        let number = number as u32;
        let op = VideoOp { number, d, a, b, saturates, clamps, second, comparison };
        self.emit(at, pick_compact::<Map3<Video>>(), fields(to, &sources, op.pack()));
        Ok(true)
    }
}

/// Whether a type has a sign; `None` if the instructions do not take it.
fn sign(name: &str) -> Option<bool> {
    match name {
        "u32" => Some(false),
        "s32" => Some(true),
        _ => None,
    }
}

/// The register of an operand, and the part of it.
fn part(operand: &Operand, signed: bool) -> (Operand, Part) {
    let all = Part { number: PARTS.len() as u32, signed };
    if let Operand::Name(name) = operand
        && let Some((register, part)) = name.rsplit_once('.')
        && let Some(number) = PARTS.iter().position(|&p| p == part)
    {
        return (Operand::Name(register.to_owned()), Part { number: number as u32, ..all });
    }
    (operand.clone(), all)
}
