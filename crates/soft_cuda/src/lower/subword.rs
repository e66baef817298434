//! Atomics of parts of words.
//!
//! Compilers make an atomic of 8 or 16 bits from one of the 32-bit word that contains it. They
//! round the address down: `and.b64 a, x, -4`. Then `atom.and`, `.or` or `.xor` leaves the other
//! bytes as they are, or a loop around `atom.cas` writes them back; a load of the word comes in
//! front of it. The other bytes may belong to other threads, or lie past the end of an allocation.
//! So checks see the byte at `x` alone, and the bytes that the operands may change.

use super::address::{Address, space_number};
use super::check::Accessed;
use super::context::{Context, Result};
use super::ir::{Class, Field, InstKind, Register, V};
use super::lowering::Lowering;
use super::ty::Ty;
use super::words::taken;
use crate::exec::access::AccessKind;
use crate::exec::check_access::Extent;
use crate::exec::element::Transfer;
use crate::exec::lanes::Map2;
use crate::exec::subword::LoadWord;
use crate::exec::{alu, pick, pick_compact};
use crate::ptx::ast::Operand;

impl Lowering<'_> {
    /// Before `and`: keeps what it takes from an address.
    pub(super) fn note_rounding(&mut self, at: &Context<'_>, ty: Ty) -> Result<()> {
        let [Operand::Name(d), x, _] = at.inst.operands.as_slice() else { return Ok(()) };
        let Some(taken) =
            taken(at.inst, ty.bits).filter(|_| self.words.rounded.contains(d.as_str()))
        else {
            return Ok(());
        };
        let (d, x) = (self.register_of(at, d, ty.class())?, self.src(at, x, ty)?);
        let (low, taken) = (self.low_of(d, ty.class()), self.constant(ty, taken));
        let run = match ty.class() {
            Class::Wide => pick::<Map2<alu::And<u64>>>(self.path),
            _ => pick::<Map2<alu::And<u32>>>(self.path),
        };
        let raw = Field::Raw(0);
        let fields = [Field::Def(low), Field::Use(x), Field::Use(taken), raw, raw, raw];
        self.emit(at, run, fields).kind = InstKind::Check;
        Ok(())
    }

    /// The register with what was taken from an address in the register `base`.
    fn low_of(&mut self, base: V, class: Class) -> V {
        let registers = &mut self.registers;
        *self.words.low.entry(base).or_insert_with(|| {
            registers.push(Register { class, fixed: None });
            (registers.len() - 1) as V
        })
    }

    /// The slot of what was taken from the address of a word, for operations.
    pub(super) fn low(&mut self, operand: &Operand, address: &Address) -> Option<V> {
        let Operand::Address(Some(name), _) = operand else { return None };
        let class = if address.wide { Class::Wide } else { Class::Narrow };
        let rounded = self.words.rounded.contains(name.as_str());
        rounded.then(|| self.low_of(address.base, class))
    }

    /// Lowers a load of a word that comes in front of an `atom.cas` at the same address: checks see
    /// it as a part of that. Returns `false` if it is another load.
    pub(super) fn load_word(
        &mut self,
        at: &Context<'_>,
        (transfer, kind): (Transfer, AccessKind),
        (operand, address): (&Operand, &Address),
        (parts, acquires): (&[Field], Option<bool>),
    ) -> bool {
        let Operand::Address(base, offset) = operand else { return false };
        let compared = self.words.compared.contains(&(base.as_deref(), *offset));
        let &[d] = parts else { return false };
        if !compared || !matches!(transfer.bytes, 2 | 4) || transfer.wide {
            return false;
        }
        let low = self.low(operand, address);
        let kind = match kind {
            AccessKind::Load if low.is_some() => AccessKind::StrongLoad,
            kind if kind.strong() => kind,
            _ => return false,
        };
        let (element, extent) = (transfer.bytes, Extent::First);
        let of = Accessed { kind, element, count: 1, values: &[], wide: false, extent, low };
        self.check_access(at, address, &of);
        match low {
            None => self.perform(at, transfer, address, parts),
            Some(low) => {
                let raw = Field::Raw;
                let head = [address.offset, space_number(address.space), address.wide.into()];
                let tail = [Field::Use(low), raw(transfer.pack())];
                let extra = head.into_iter().map(raw).chain(tail).collect();
                let fields = [d, Field::Use(address.base), raw(0), raw(0), raw(0), raw(0)];
                self.emit_extra(at, pick_compact::<LoadWord>(), fields, extra);
            }
        }
        self.observe(at, address, &of, acquires);
        true
    }
}
