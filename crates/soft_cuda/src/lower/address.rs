//! State spaces, and address operands.

use super::context::{Context, Result};
use super::ir::{Class, V};
use super::lowering::Lowering;
use super::ty::Ty;
use crate::ptx::ast::{Operand, Space};

/// An address operand: register, constant offset, space.
pub(super) struct Address {
    pub base: V,
    pub wide: bool,
    pub offset: u32,
    pub space: Option<Space>,
    /// The offset into the parameters if it is known, and how many bytes may
    /// be read from there.
    pub param: Option<(u64, u64)>,
}

/// The number of a space in [`SPACES`](crate::exec::machine::SPACES).
pub(super) fn space_number(space: Option<Space>) -> u32 {
    match space {
        Some(Space::Global) => 0,
        Some(Space::Shared) => 1,
        Some(Space::Local) => 2,
        Some(Space::Param) => 3,
        Some(Space::Const) => 4,
        None => 5,
        Some(Space::SharedCluster) => 6,
    }
}

impl Lowering<'_> {
    /// Claims the state space; `None` is generic.
    pub(super) fn space(&self, at: &mut Context<'_>) -> Option<Space> {
        const NAMES: [(&str, Space); 9] = [
            ("global", Space::Global),
            ("shared", Space::Shared),
            ("shared::cta", Space::Shared),
            ("local", Space::Local),
            ("param", Space::Param),
            ("param::entry", Space::Param),
            ("param::func", Space::Param),
            ("const", Space::Const),
            ("shared::cluster", Space::SharedCluster),
        ];
        NAMES.iter().find(|(name, _)| at.take(name)).map(|&(_, space)| space)
    }

    pub(super) fn address(
        &mut self,
        at: &Context<'_>,
        operand: &Operand,
        space: Option<Space>,
    ) -> Result<Address> {
        let Operand::Address(base, offset) = operand else {
            return Err(at.bad_operands("an address in brackets belongs here"));
        };
        let far = || at.bad_operands("the offset in the address does not fit 32 bits");
        let Some(name) = base else {
            let base = self.constant(Ty::B64, *offset as u64);
            return Ok(Address { base, wide: true, offset: 0, space, param: None });
        };
        let Some((home, address, bytes)) = self.symbol(name) else {
            let offset = i32::try_from(*offset).map_err(|_| far())? as u32;
            let operand = Operand::Name(name.clone());
            let wide = self.class_of(&operand) != Some(Class::Narrow);
            let base = self.src(at, &operand, if wide { Ty::B64 } else { Ty::B32 })?;
            let narrow = matches!(
                space,
                Some(Space::Shared | Space::SharedCluster | Space::Local | Space::Param)
            );
            if !wide && !narrow {
                return Err(at.bad_operands("an address in this space needs a 64-bit register"));
            }
            return Ok(Address { base, wide, offset, space, param: None });
        };
        // Parameters of calls live in local memory; a variable named without
        // a space lies in its own.
        let as_declared = match (space, home) {
            (None, _) | (Some(Space::Param), Space::Local) => true,
            (Some(Space::SharedCluster), Space::Shared) => true,
            (Some(Space::Const), Space::Global) | (Some(Space::Global), Space::Const) => true,
            (Some(space), home) => space == home,
        };
        if !as_declared {
            return Err(at.bad_operands(&format!("`{name}` does not lie in this space")));
        }
        let absolute = address.wrapping_add_signed(*offset);
        let wide = matches!(home, Space::Global | Space::Const);
        let ty = if wide { Ty::B64 } else { Ty::B32 };
        let base = self.variable_address(at, (home, absolute), ty);
        let left = u64::try_from(*offset)
            .ok()
            .and_then(|offset| bytes.unwrap_or(0).checked_sub(offset))
            .unwrap_or(0);
        let param = (home == Space::Param).then_some((absolute, left));
        Ok(Address { base, wide, offset: 0, space: Some(home), param })
    }
}
