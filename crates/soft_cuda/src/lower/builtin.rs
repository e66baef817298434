//! Functions that no module defines, because the driver does.

use super::address::Address;
use super::context::{Context, Result};
use super::ir::{Class, Field, Piece, V};
use super::lowering::Lowering;
use super::ty::Ty;
use crate::exec::access::AccessKind;
use crate::exec::element::Transfer;
use crate::exec::machine::LOCAL_BASE;
use crate::exec::malloc::{Free, Malloc};
use crate::exec::pick_compact;
use crate::exec::print::{AssertFail, Print};
use crate::ptx::ast::Space;

/// A function of the driver.
#[derive(Debug, Clone, Copy)]
pub(super) enum Builtin {
    /// `int vprintf(const char *format, void *arguments)`
    Vprintf,
    /// `void __assertfail(const char *message, const char *file, unsigned line,
    /// const char *function, size_t char_size)`
    AssertFail,
    /// `void *malloc(size_t bytes)`
    Malloc,
    /// `void free(void *address)`
    Free,
}

impl Builtin {
    pub(super) fn named(name: &str) -> Option<Builtin> {
        match name {
            "vprintf" => Some(Builtin::Vprintf),
            "__assertfail" => Some(Builtin::AssertFail),
            "malloc" => Some(Builtin::Malloc),
            "free" => Some(Builtin::Free),
            _ => None,
        }
    }

    /// Bytes of each parameter and of each result.
    fn sizes(self) -> (&'static [u32], &'static [u32]) {
        match self {
            Builtin::Vprintf => (&[8, 8], &[4]),
            Builtin::AssertFail => (&[8, 8, 4, 8, 8], &[]),
            Builtin::Malloc => (&[8], &[8]),
            Builtin::Free => (&[8], &[]),
        }
    }
}

impl Lowering<'_> {
    /// A call of a function of the driver.
    pub(super) fn builtin(
        &mut self,
        at: &Context<'_>,
        builtin: Builtin,
        arguments: &[Piece],
        returns: &[Piece],
    ) -> Result<()> {
        let (takes, gives) = builtin.sizes();
        let are = |pieces: &[Piece], sizes: &[u32]| {
            pieces.iter().map(|piece| piece.bytes).eq(sizes.iter().copied())
        };
        if !are(arguments, takes) || !are(returns, gives) {
            return Err(at.bad_operands("the driver's function of this name has other parameters"));
        }
        let values: Vec<V> = arguments.iter().map(|&piece| self.argument(at, piece)).collect();
        let (used, raw) = (|i: usize| Field::Use(values[i]), Field::Raw(0));
        match builtin {
            Builtin::Vprintf => {
                let d = self.register(Class::Narrow);
                let fields = [Field::Def(d), used(0), used(1), raw, raw, raw];
                self.emit(at, pick_compact::<Print>(), fields);
                self.transfer_piece(at, returns[0], Field::Use(d));
            }
            Builtin::AssertFail => {
                let extra = vec![used(3), used(4)];
                let fields = [raw, used(0), used(1), used(2), raw, raw];
                self.emit_extra(at, pick_compact::<AssertFail>(), fields, extra);
            }
            Builtin::Malloc => {
                self.allocates = true;
                let d = self.register(Class::Wide);
                let fields = [Field::Def(d), used(0), raw, raw, raw, raw];
                self.emit(at, pick_compact::<Malloc>(), fields);
                self.transfer_piece(at, returns[0], Field::Use(d));
            }
            Builtin::Free => {
                self.emit(at, pick_compact::<Free>(), [raw, used(0), raw, raw, raw, raw]);
            }
        }
        Ok(())
    }

    /// The value of an argument, in a register.
    fn argument(&mut self, at: &Context<'_>, piece: Piece) -> V {
        let v = self.register(if piece.bytes == 8 { Class::Wide } else { Class::Narrow });
        self.transfer_piece(at, piece, Field::Def(v));
        v
    }

    /// Loads or stores what lies in the frame.
    pub(super) fn transfer_piece(&mut self, at: &Context<'_>, piece: Piece, register: Field) {
        let place = (Space::Local, u64::from(LOCAL_BASE + piece.at));
        let base = self.variable_address(at, place, Ty::B32);
        let space = Some(Space::Local);
        let address = Address { base, wide: false, offset: 0, space, param: None };
        let transfer = Transfer { bytes: piece.bytes, signed: false, wide: piece.bytes == 8 };
        let load = matches!(register, Field::Def(_));
        let kind = if load { AccessKind::Load } else { AccessKind::Store };
        self.access(at, (transfer, kind), &address, (&[register], None));
    }
}
