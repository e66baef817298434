//! What an operand refers to.

use super::context::{Context, Result};
use super::index::RESERVED_SHARED;
use super::ir::{Class, Field, Fixed, InstKind, V};
use super::lowering::Lowering;
use super::scopes::Binding;
use super::shared::RESERVED_USABLE;
use super::ty::{Kind, Ty};
use crate::error::LoadError;
use crate::exec::code::Special;
use crate::exec::lanes::{Map1, PredLogic};
use crate::exec::machine::{RESERVED_BYTES, SHARED_BASE};
use crate::exec::special::{FrameAddress, ReadClock};
use crate::exec::{NO_SLOT, alu, pick, pick_compact};
use crate::ptx::ast::{Operand, Space};

/// The bits of a constant operand of type `ty`: integers for integers, floats for floats,
/// either for untyped bits.
fn immediate(at: &Context<'_>, operand: &Operand, ty: Ty) -> Result<u64> {
    let untyped = ty.kind == Kind::Bits;
    match *operand {
        Operand::Int(value) if ty.is_int() => {
            if !(-(1i128 << 63)..1i128 << 64).contains(&value) {
                return Err(at.bad_operands(&format!("{value} does not fit 64 bits")));
            }
            Ok(value as u64)
        }
        Operand::Int(value) if ty.is_float() => Err(at.bad_operands(&format!(
            "{value} is an integer, but a float belongs here; write `{value}.0`"
        ))),
        Operand::F32(bits) if ty.bits == 32 && (untyped || ty.is_float()) => Ok(bits.into()),
        Operand::F64(bits) if ty.bits == 64 && (untyped || ty.is_float()) => Ok(bits),
        Operand::F64(bits) if ty.bits == 32 && ty.is_float() => {
            Ok((f64::from_bits(bits) as f32).to_bits().into())
        }
        _ => Err(at.bad_operands("a register or a constant of its type belongs here")),
    }
}

/// Fails unless `name`, an integer, is read as one.
fn integer(at: &Context<'_>, name: &str, ty: Ty) -> Result<()> {
    if ty.is_int() {
        return Ok(());
    }
    Err(at.bad_operands(&format!(
        "`{name}` is an integer, but a float belongs here; convert it with `cvt` first"
    )))
}

/// Fails unless the special register `name`, of `bits` bits, is read as an integer of them.
/// Those that had 16 bits before PTX 2.0 are read as 16 bits, too.
fn special_fits(at: &Context<'_>, name: &str, bits: u32, ty: Ty) -> Result<()> {
    let base = name.split('.').next();
    let half = ty.bits == 16 && matches!(base, Some("%tid" | "%ntid" | "%ctaid" | "%nctaid"));
    if ty.bits != bits && !half {
        return Err(at.bad_operands(&format!("`{name}` has {bits} bits")));
    }
    integer(at, name, ty)
}

impl Lowering<'_> {
    /// What `name` stands for here.
    pub(super) fn find(&self, name: &str) -> Option<Binding> {
        self.scopes.find(name).or_else(|| self.index.variable(name))
    }

    fn undeclared<T>(&self, at: &Context<'_>, name: &str) -> Result<T> {
        Err(LoadError::Undeclared { line: at.inst.line, name: name.to_owned() })
    }

    /// The address of a variable in its own space. Those of a function's frame are known when it
    /// runs.
    pub(super) fn variable_address(
        &mut self,
        at: &Context<'_>,
        (space, address): (Space, u64),
        ty: Ty,
    ) -> V {
        if space != Space::Local || self.entry {
            return self.constant(ty, address);
        }
        let d = self.register(ty.class());
        let run = match ty.class() {
            Class::Wide => pick_compact::<FrameAddress<u64>>(),
            _ => pick_compact::<FrameAddress<u32>>(),
        };
        let raw = Field::Raw;
        self.emit(at, run, [Field::Def(d), raw(0), raw(0), raw(0), raw(address as u32), raw(0)]);
        d
    }

    /// The register `name`, of class `class`.
    pub(super) fn register_of(&mut self, at: &Context<'_>, name: &str, class: Class) -> Result<V> {
        let v = self.find_register(at, name, class)?;
        if self.checks.memory {
            self.names.entry(v).or_insert_with(|| name.to_owned());
        }
        Ok(v)
    }

    fn find_register(&mut self, at: &Context<'_>, name: &str, class: Class) -> Result<V> {
        let Some(binding) = self.find(name) else { return self.undeclared(at, name) };
        match binding {
            Binding::Member { range, n, ty } if ty.class() == class => {
                let next = self.registers.len() as V;
                let v = *self.members.entry((range, n)).or_insert(next);
                if v == next {
                    self.register(class);
                }
                Ok(v)
            }
            Binding::Member { ty, .. } => {
                let has = if ty.class() == Class::Predicate {
                    "a predicate".to_owned()
                } else {
                    format!("a {}-bit register", ty.bits)
                };
                let want = match class {
                    Class::Narrow => "a register of at most 32 bits",
                    Class::Wide => "a 64-bit register",
                    Class::Predicate => "a predicate",
                };
                Err(at.bad_operands(&format!("`{name}` is {has}, but {want} belongs here")))
            }
            _ => Err(at.bad_operands(&format!("`{name}` is not a register"))),
        }
    }

    pub(super) fn predicate_register(&mut self, at: &Context<'_>, name: &str) -> Result<V> {
        self.register_of(at, name, Class::Predicate)
    }

    /// A predicate operand, and whether it is negated.
    pub(super) fn predicate(&mut self, at: &Context<'_>, operand: &Operand) -> Result<(V, bool)> {
        match operand {
            Operand::Name(name) => Ok((self.predicate_register(at, name)?, false)),
            Operand::Not(name) => Ok((self.predicate_register(at, name)?, true)),
            &Operand::Int(value) => {
                let v = self.register(Class::Predicate);
                let x = if value != 0 { 6 } else { 5 };
                let raw = Field::Raw;
                let run = pick_compact::<PredLogic>();
                self.emit(at, run, [Field::Def(v), raw(0), raw(0), raw(0), raw(x), raw(0)]);
                Ok((v, false))
            }
            _ => Err(at.bad_operands("a predicate belongs here")),
        }
    }

    /// The register that a result of type `ty` goes to. `_` is a register
    /// that nobody reads.
    pub(super) fn dst(&mut self, at: &Context<'_>, operand: &Operand, ty: Ty) -> Result<V> {
        match operand {
            Operand::Name(name) if name == "_" => Ok(self.register(ty.class())),
            Operand::Name(name) => self.register_of(at, name, ty.class()),
            _ => Err(at.bad_operands("the destination must be a register")),
        }
    }

    /// A source of type `ty`: a register, a special register or a constant.
    pub(super) fn src(&mut self, at: &Context<'_>, operand: &Operand, ty: Ty) -> Result<V> {
        match operand {
            Operand::Name(name) if name == "WARP_SZ" => {
                integer(at, name, ty)?;
                Ok(self.constant(ty, 32))
            }
            Operand::Name(name) if name.starts_with('%') && self.find(name).is_none() => {
                self.special(at, name, ty)
            }
            Operand::Name(name) => self.register_of(at, name, ty.class()),
            _ => {
                let bits = immediate(at, operand, ty)?;
                Ok(self.constant(ty, bits))
            }
        }
    }

    /// As [`src`](Lowering::src) in a register of class `class`, which may be wider than the
    /// type.
    pub(super) fn src_in(
        &mut self,
        at: &Context<'_>,
        operand: &Operand,
        ty: Ty,
        class: Class,
    ) -> Result<V> {
        match operand {
            Operand::Name(_) => {
                let bits = if class == Class::Wide { 64 } else { 32 };
                self.src(at, operand, Ty { bits, ..ty })
            }
            _ => {
                let bits = immediate(at, operand, ty)?;
                let of = if class == Class::Wide { Ty::B64 } else { ty };
                Ok(self.constant(of, bits))
            }
        }
    }

    /// The address of a variable as a constant, with the space it lies in.
    pub(super) fn symbol(&self, name: &str) -> Option<(Space, u64, Option<u64>)> {
        match self.find(name)? {
            Binding::Variable { space, address, bytes } => Some((space, address, bytes)),
            _ => None,
        }
    }

    fn special(&mut self, at: &Context<'_>, name: &str, ty: Ty) -> Result<V> {
        let (base, axis) = name.split_once('.').unwrap_or((name, ""));
        let axis = match axis {
            "x" => Some(0),
            "y" => Some(1),
            "z" => Some(2),
            _ => None,
        };
        let special = match (base, axis) {
            ("%tid", Some(axis)) => Special::Tid(axis),
            ("%ntid", Some(axis)) => Special::Ntid(axis),
            ("%ctaid", Some(axis)) => Special::Ctaid(axis),
            ("%nctaid", Some(axis)) => Special::Nctaid(axis),
            ("%clusterid", Some(axis)) => Special::ClusterId(axis),
            ("%nclusterid", Some(axis)) => Special::NClusterId(axis),
            ("%cluster_ctaid", Some(axis)) => Special::ClusterCtaid(axis),
            ("%cluster_nctaid", Some(axis)) => Special::ClusterNctaid(axis),
            ("%cluster_ctarank", None) => Special::ClusterCtaRank,
            ("%cluster_nctarank", None) => Special::ClusterNctaRank,
            ("%laneid", None) => Special::LaneId,
            ("%warpid", None) => Special::WarpId,
            ("%nwarpid", None) => Special::NWarpId,
            ("%smid", None) => Special::SmId,
            ("%nsmid", None) => Special::NSmId,
            ("%gridid", None) => Special::GridId,
            ("%dynamic_smem_size", None) => Special::DynamicShared,
            ("%total_smem_size", None) => Special::TotalShared,
            ("%aggr_smem_size", None) => Special::AggregateShared,
            ("%lanemask_eq", None) => Special::LaneMask(0),
            ("%lanemask_lt", None) => Special::LaneMask(1),
            ("%lanemask_le", None) => Special::LaneMask(2),
            ("%lanemask_gt", None) => Special::LaneMask(3),
            ("%lanemask_ge", None) => Special::LaneMask(4),
            _ => return self.reserved_shared(at, name, ty),
        };
        let wide = special == Special::GridId;
        special_fits(at, name, if wide { 64 } else { 32 }, ty)?;
        let class = if wide { Class::Wide } else { Class::Narrow };
        Ok(self.fixed(class, Fixed::Special(special)))
    }

    /// `%reserved_smem_offset_*`: the kernel has that memory in front of its variables.
    fn reserved_shared(&mut self, at: &Context<'_>, name: &str, ty: Ty) -> Result<V> {
        let value = match name.strip_prefix(RESERVED_SHARED) {
            Some("begin" | "0" | "1") => SHARED_BASE,
            Some("end") => SHARED_BASE + RESERVED_USABLE,
            Some("cap") => RESERVED_BYTES,
            _ => return self.clock(at, name, ty),
        };
        special_fits(at, name, 32, ty)?;
        Ok(self.constant(ty, value.into()))
    }

    fn clock(&mut self, at: &Context<'_>, name: &str, ty: Ty) -> Result<V> {
        let (bits, shift) = match name {
            "%clock" | "%globaltimer_lo" => (32, 0),
            "%clock_hi" | "%globaltimer_hi" => (32, 32),
            "%clock64" | "%globaltimer" => (64, 0),
            _ => return self.undeclared(at, name),
        };
        special_fits(at, name, bits, ty)?;
        let v = self.register(ty.class());
        let run = match bits {
            32 => pick_compact::<ReadClock<u32>>(),
            _ => pick_compact::<ReadClock<u64>>(),
        };
        let raw = Field::Raw;
        self.emit(at, run, [Field::Def(v), raw(0), raw(0), raw(NO_SLOT), raw(shift), raw(0)]);
        Ok(v)
    }

    /// `d = a`, of the class of `ty`.
    pub(super) fn copy(&mut self, at: &Context<'_>, d: V, a: V, ty: Ty) {
        let raw = Field::Raw;
        match ty.class() {
            Class::Predicate => {
                let run = pick_compact::<PredLogic>();
                let fields = [Field::Def(d), Field::Use(a), Field::Use(a), raw(0), raw(4), raw(0)];
                self.emit(at, run, fields);
            }
            class => {
                let run = match class {
                    Class::Wide => pick::<Map1<alu::Mov<u64>>>(self.path),
                    _ => pick::<Map1<alu::Mov<u32>>>(self.path),
                };
                let fields = [Field::Def(d), Field::Use(a), raw(0), raw(0), raw(0), raw(0)];
                let inst = self.emit(at, run, fields);
                if class == Class::Narrow {
                    inst.kind = InstKind::Copy;
                }
            }
        }
    }
}
