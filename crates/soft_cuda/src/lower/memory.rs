//! Instructions with addresses.

use super::ir::{Class, Field, V};
use super::ty::{Kind, Ty};
use super::{Context, Lowering, Result};
use crate::exec::atomic::{Atomic, RMWS, Rmw};
use crate::exec::lanes::Map2;
use crate::exec::mem::{
    As, Fence, IsSpace, LoadAny, LoadGlobal, LoadParam, LoadShared, SHARED_WINDOW, SPACES,
    StoreAny, StoreGlobal, StoreShared,
};
use crate::exec::mem::{LOCAL_WINDOW, PARAM_WINDOW};
use crate::exec::{FULL, NO_SLOT, OpFn, Path, alu, copy, pick};
use crate::ptx::ast::{Operand, Space};

/// Modifiers of loads and stores that say how to cache, which here changes nothing.
fn is_cache_hint(modifier: &str) -> bool {
    const HINTS: [&str; 16] = [
        "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "weak", "volatile", "relaxed", "mmio",
        "cta", "cluster", "gpu", "sys",
    ];
    HINTS.contains(&modifier)
        || modifier.starts_with("L1::")
        || (modifier.starts_with("L2::") && modifier != "L2::cache_hint")
}

/// The functions for one element type and register class.
struct Access {
    any: OpFn,
    /// By number of parts (1, 2, 4); global, generic, shared.
    fast: [[OpFn; 3]; 3],
    /// Loads only: from the parameters.
    param: Option<OpFn>,
}

macro_rules! load {
    ($path:expr, $element:ty, $slot:ty) => {{
        type T = As<$element, $slot>;
        fn parts<const N: usize>(path: Path) -> [OpFn; 3] {
            [
                pick::<LoadGlobal<T, N, false>>(path),
                pick::<LoadGlobal<T, N, true>>(path),
                pick::<LoadShared<T, N>>(path),
            ]
        }
        Access {
            any: pick::<LoadAny<T>>($path),
            fast: [parts::<1>($path), parts::<2>($path), parts::<4>($path)],
            param: Some(pick::<LoadParam<T>>($path)),
        }
    }};
}

macro_rules! store {
    ($path:expr, $element:ty, $slot:ty) => {{
        type T = As<$element, $slot>;
        fn parts<const N: usize>(path: Path) -> [OpFn; 3] {
            [
                pick::<StoreGlobal<T, N, false>>(path),
                pick::<StoreGlobal<T, N, true>>(path),
                pick::<StoreShared<T, N>>(path),
            ]
        }
        Access {
            any: pick::<StoreAny<T>>($path),
            fast: [parts::<1>($path), parts::<2>($path), parts::<4>($path)],
            param: None,
        }
    }};
}

/// An address operand: register, constant offset, space.
pub(super) struct Address {
    pub base: V,
    pub wide: bool,
    pub offset: u32,
    pub space: Option<Space>,
    /// The offset into the parameters if it is known, and how many bytes may
    /// be read from there.
    param: Option<(u64, u64)>,
}

/// The number of a space in [`SPACES`].
pub(super) fn space_number(space: Option<Space>) -> u32 {
    match space {
        Some(Space::Global) => 0,
        Some(Space::Shared) => 1,
        Some(Space::Local) => 2,
        Some(Space::Param) => 3,
        Some(Space::Const) => 4,
        None => 5,
    }
}

impl Lowering<'_> {
    /// Lowers `base` if it is an instruction of this file.
    pub(super) fn memory(&mut self, base: &str, at: &mut Context<'_>) -> Result<bool> {
        match base {
            "ld" | "ldu" => self.load(at)?,
            "st" | "red" if at.take("async") => {
                return Err(at.unsupported(
                    "it is for another block of a cluster, and clusters of more than one block are not available",
                ));
            }
            "st" => self.store(at)?,
            "cvta" => self.cvta(at)?,
            "isspacep" => self.isspacep(at)?,
            "atom" => self.atomic(at, true)?,
            "red" => self.atomic(at, false)?,
            "membar" => {
                at.take_one(&["cta", "gl", "sys"]);
                self.fence(at);
            }
            "mbarrier" => self.mbarrier(at)?,
            // Between threads and bulk copies: nothing here runs out of order.
            // They do not order threads.
            "fence" if at.take("proxy") => {
                if at.take_one(&["alias", "async"]).is_none() {
                    return Err(at.unsupported("only `.alias` and `.async` are available"));
                }
                self.space(at);
            }
            "fence" if at.take("mbarrier_init") => {
                if !(at.take("release") && at.take("cluster")) {
                    return Err(at.unsupported("it needs `.release.cluster`"));
                }
            }
            "fence" => {
                // All fences are the strongest one.
                at.take_all(|m| {
                    ["sc", "acq_rel", "acquire", "release", "cta", "cluster", "gpu", "sys"]
                        .contains(&m)
                });
                self.fence(at);
            }
            "cp" if at.take("async") => match at.take("bulk") {
                true => self.bulk(at)?,
                false => self.cp_async(at)?,
            },
            // Hints: nothing to do, but the operands must make sense.
            "prefetch" | "prefetchu" | "discard" | "applypriority" => {
                const OF: [&str; 7] =
                    ["global", "local", "param", "const", "tensormap", "L1", "L2"];
                at.take_all(|m| OF.contains(&m) || is_cache_hint(m));
                self.address(at, at.operand(0)?, None)?;
            }
            "createpolicy" => {
                at.take_all(|m| {
                    m == "fractional" || m == "range" || m == "global" || is_cache_hint(m)
                });
                let ty = at.ty()?;
                if ty.bits != 64 {
                    return Err(at.unsupported("it takes `.b64`"));
                }
                let d = self.dst(at, at.operand(0)?, ty)?;
                let zero = self.constant(ty, 0);
                self.copy(at, d, zero, ty);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn fence(&mut self, at: &Context<'_>) {
        let raw = Field::Raw(0);
        self.emit(at, pick::<Fence>(self.path), [raw; 6]);
    }

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
            ("shared::cluster", Space::Shared),
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
            if !wide && !matches!(space, Some(Space::Shared | Space::Local | Space::Param)) {
                return Err(at.bad_operands("an address in this space needs a 64-bit register"));
            }
            return Ok(Address { base, wide, offset, space, param: None });
        };
        // Parameters of calls live in local memory; a variable named without
        // a space lies in its own.
        let as_declared = match (space, home) {
            (None, _) | (Some(Space::Param), Space::Local) => true,
            (Some(Space::Const), Space::Global) | (Some(Space::Global), Space::Const) => true,
            (Some(space), home) => space == home,
        };
        if !as_declared {
            return Err(at.bad_operands(&format!("`{name}` does not lie in this space")));
        }
        let absolute = address.wrapping_add_signed(*offset);
        let wide = matches!(home, Space::Global | Space::Const);
        let base = self.constant(if wide { Ty::B64 } else { Ty::B32 }, absolute);
        let left = u64::try_from(*offset)
            .ok()
            .and_then(|offset| bytes.unwrap_or(0).checked_sub(offset))
            .unwrap_or(0);
        let param = (home == Space::Param).then_some((absolute, left));
        Ok(Address { base, wide, offset: 0, space: Some(home), param })
    }

    /// The parts of a vector operand.
    fn parts<'a>(&self, at: &mut Context<'_>, operand: &'a Operand) -> Result<&'a [Operand]> {
        let n = match at.take_one(&["v2", "v4"]) {
            Some(0) => 2,
            Some(_) => 4,
            None => 1,
        };
        match operand {
            Operand::Vector(parts) if parts.len() == n => Ok(parts),
            Operand::Vector(_) => {
                Err(at.bad_operands("the vector has another length than the type says"))
            }
            one if n == 1 => Ok(std::slice::from_ref(one)),
            _ => Err(at.bad_operands("a vector `{...}` belongs here")),
        }
    }

    /// The class of the registers that hold values of type `ty`: they may be
    /// wider than the type.
    fn value_class(&self, at: &Context<'_>, parts: &[Operand], ty: Ty) -> Result<Class> {
        let classes = parts.iter().filter_map(|part| self.class_of(part));
        let class = classes.max_by_key(|&class| class == Class::Wide).unwrap_or(ty.class());
        if class == Class::Predicate || (ty.bits == 64 && class == Class::Narrow) {
            return Err(at.bad_operands("the register does not fit the type"));
        }
        Ok(class)
    }

    /// Emits a load or a store of `parts`.
    fn access(&mut self, at: &Context<'_>, access: &Access, address: &Address, parts: &[Field]) {
        let raw = Field::Raw;
        let n = parts.len();
        self.watch(at, address, matches!(parts[0], Field::Def(_)));
        let way = match (address.space, address.wide) {
            (Some(Space::Global), true) => Some(0),
            (None, true) => Some(1),
            (Some(Space::Shared), false) => Some(2),
            _ => None,
        };
        if let Some(way) = way {
            let part = |i: usize| parts.get(i).copied().unwrap_or(raw(0));
            let run = access.fast[n.ilog2() as usize][way];
            let base = Field::Use(address.base);
            let fields = [part(0), base, part(1), part(2), raw(address.offset), part(3)];
            self.emit(at, run, fields);
            return;
        }
        let head = [address.offset, space_number(address.space), address.wide.into(), n as u32];
        let extra = head.into_iter().map(raw).chain(parts.iter().copied()).collect();
        let base = Field::Use(address.base);
        self.emit_extra(at, access.any, [raw(0), base, raw(0), raw(0), raw(0), raw(0)], extra);
    }

    fn load(&mut self, at: &mut Context<'_>) -> Result<()> {
        let acquire = at.take("acquire");
        let policy = at.take("L2::cache_hint");
        at.take_all(is_cache_hint);
        let space = self.space(at);
        let ty = at.ty()?;
        let want = if policy { 3 } else { 2 };
        if at.inst.operands.len() != want {
            return Err(at.bad_operands(&format!("it takes {want}")));
        }
        let parts = self.parts(at, at.operand(0)?)?;
        let class = self.value_class(at, parts, ty)?;
        let address = self.address(at, at.operand(1)?, space)?;
        let wide = class == Class::Wide;
        let path = self.path;
        let access = match (ty.bits, ty.signed(), wide) {
            (8, false, false) => load!(path, u8, u32),
            (8, false, true) => load!(path, u8, u64),
            (8, true, false) => load!(path, i8, u32),
            (8, true, true) => load!(path, i8, u64),
            (16, false, false) => load!(path, u16, u32),
            (16, false, true) => load!(path, u16, u64),
            (16, true, false) => load!(path, i16, u32),
            (16, true, true) => load!(path, i16, u64),
            (32, _, false) => load!(path, u32, u32),
            (32, true, true) => load!(path, i32, u64),
            (32, false, true) => load!(path, u32, u64),
            (64, _, true) => load!(path, u64, u64),
            _ => return Err(at.unsupported("it is not available for this type")),
        };
        let to = if wide { Ty::B64 } else { Ty::B32 };
        let mut fields = Vec::new();
        for part in parts {
            fields.push(Field::Def(self.dst(at, part, to)?));
        }
        if let (Some((offset, left)), Some(run)) = (address.param, access.param) {
            let bytes = u64::from(ty.bits / 8);
            if bytes * parts.len() as u64 > left {
                return Err(at.bad_operands("it reads past the end of the parameter"));
            }
            for (i, &part) in fields.iter().enumerate() {
                let x = Field::Raw((offset + i as u64 * bytes) as u32);
                let raw = Field::Raw(0);
                self.emit(at, run, [part, raw, raw, raw, x, raw]);
            }
            return Ok(());
        }
        self.access(at, &access, &address, &fields);
        if acquire {
            self.fence(at);
        }
        Ok(())
    }

    fn store(&mut self, at: &mut Context<'_>) -> Result<()> {
        let release = at.take("release");
        let policy = at.take("L2::cache_hint");
        at.take_all(is_cache_hint);
        let space = self.space(at);
        let ty = at.ty()?;
        let want = if policy { 3 } else { 2 };
        if at.inst.operands.len() != want {
            return Err(at.bad_operands(&format!("it takes {want}")));
        }
        let address = self.address(at, at.operand(0)?, space)?;
        if address.space == Some(Space::Const) || address.param.is_some() {
            return Err(at.bad_operands("this memory is read-only"));
        }
        let parts = self.parts(at, at.operand(1)?)?;
        let class = self.value_class(at, parts, ty)?;
        let wide = class == Class::Wide;
        let path = self.path;
        let access = match (ty.bits, wide) {
            (8, false) => store!(path, u8, u32),
            (8, true) => store!(path, u8, u64),
            (16, false) => store!(path, u16, u32),
            (16, true) => store!(path, u16, u64),
            (32, false) => store!(path, u32, u32),
            (32, true) => store!(path, u32, u64),
            (64, true) => store!(path, u64, u64),
            _ => return Err(at.unsupported("it is not available for this type")),
        };
        if release {
            self.fence(at);
        }
        let mut fields = Vec::new();
        for part in parts {
            fields.push(Field::Use(self.src_in(at, part, ty, class)?));
        }
        self.access(at, &access, &address, &fields);
        Ok(())
    }

    fn cvta(&mut self, at: &mut Context<'_>) -> Result<()> {
        let back = at.take("to");
        let space = self.space(at);
        let ty = at.ty()?;
        if ty.bits != 64 {
            return Err(at.unsupported("addresses have 64 bits"));
        }
        let [d, a] = at.operands()?;
        let (home, a) = match a {
            Operand::Name(name) if self.symbol(name).is_some() => {
                let (home, address, _) = self.symbol(name).unwrap_or((Space::Global, 0, None));
                (Some(home), self.constant(ty, address))
            }
            _ => (space, self.src(at, a, ty)?),
        };
        let window = match space {
            Some(Space::Shared) => SHARED_WINDOW,
            // A parameter of a call lies in local memory.
            Some(Space::Param) if home == Some(Space::Local) => LOCAL_WINDOW,
            Some(Space::Local) => LOCAL_WINDOW,
            Some(Space::Param) => PARAM_WINDOW,
            Some(Space::Global | Space::Const) => 0,
            None => return Err(at.unsupported("it needs a state space")),
        };
        let window = if back { window.wrapping_neg() } else { window };
        let d = self.dst(at, d, ty)?;
        if window == 0 {
            self.copy(at, d, a, ty);
            return Ok(());
        }
        let window = self.constant(ty, window);
        let raw = Field::Raw(0);
        let fields = [Field::Def(d), Field::Use(a), Field::Use(window), raw, raw, raw];
        self.emit(at, pick::<Map2<alu::Add<u64>>>(self.path), fields);
        Ok(())
    }

    fn isspacep(&mut self, at: &mut Context<'_>) -> Result<()> {
        let Some(space) = self.space(at) else {
            return Err(at.unsupported("it needs a state space"));
        };
        let [d, a] = at.operands()?;
        let a = self.src(at, a, Ty::B64)?;
        let d = self.dst(at, d, Ty { kind: Kind::Predicate, bits: 1 })?;
        let number = space_number(Some(space));
        let raw = Field::Raw;
        debug_assert!((number as usize) < SPACES.len());
        let fields = [Field::Def(d), Field::Use(a), raw(0), raw(0), raw(number), raw(0)];
        self.emit(at, pick::<IsSpace>(self.path), fields);
        Ok(())
    }

    fn atomic(&mut self, at: &mut Context<'_>, returns: bool) -> Result<()> {
        let policy = at.take("L2::cache_hint");
        let orders = at.take_one(&["acquire", "release", "acq_rel"]).is_some();
        at.take_all(|m| ["relaxed", "cta", "cluster", "gpu", "sys", "noftz"].contains(&m));
        let space = self.space(at);
        let ty = at.ty()?;
        let names = ["add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"];
        let Some(op) = at.take_one(&names) else {
            return Err(at.unsupported("its operation is unknown"));
        };
        let rmw = match (names[op], ty.kind) {
            ("add", Kind::Float) => Rmw::AddFloat,
            ("exch", _) => Rmw::Exchange,
            ("cas", _) => Rmw::CompareExchange,
            (_, Kind::Float | Kind::Other | Kind::Predicate) => {
                return Err(at.unsupported("it is not available for this type"));
            }
            ("add", _) => Rmw::Add,
            ("min", Kind::Signed) => Rmw::MinSigned,
            ("max", Kind::Signed) => Rmw::MaxSigned,
            ("min", _) => Rmw::Min,
            ("max", _) => Rmw::Max,
            ("inc", _) => Rmw::Inc,
            ("dec", _) => Rmw::Dec,
            ("and", _) => Rmw::And,
            ("or", _) => Rmw::Or,
            _ => Rmw::Xor,
        };
        let run = match ty.bits {
            32 => pick::<Atomic<u32>>(self.path),
            64 => pick::<Atomic<u64>>(self.path),
            _ => return Err(at.unsupported("it is not available for this type")),
        };
        let first = usize::from(returns);
        let values = if rmw == Rmw::CompareExchange { 2 } else { 1 };
        let want = first + 1 + values + usize::from(policy);
        if at.inst.operands.len() != want {
            return Err(at.bad_operands(&format!("it takes {want}")));
        }
        let address = self.address(at, at.operand(first)?, space)?;
        if address.space == Some(Space::Const) || address.param.is_some() {
            return Err(at.bad_operands("this memory is read-only"));
        }
        let b = self.src(at, at.operand(first + 1)?, ty)?;
        let c = match values {
            2 => self.src(at, at.operand(first + 2)?, ty)?,
            _ => b,
        };
        let raw = Field::Raw;
        let d = match returns {
            true => Field::Def(self.dst(at, at.operand(0)?, ty)?),
            false => raw(NO_SLOT),
        };
        let number = RMWS.iter().position(|&r| r == rmw).unwrap_or(0) as u32;
        let fields =
            [d, Field::Use(address.base), Field::Use(b), Field::Use(c), raw(0), raw(number)];
        self.watch(at, &address, false);
        let extra = [address.offset, space_number(address.space), address.wide.into()];
        self.emit_extra(at, run, fields, extra.into_iter().map(raw).collect());
        if orders {
            self.fence(at);
        }
        Ok(())
    }

    fn cp_async(&mut self, at: &mut Context<'_>) -> Result<()> {
        let raw = Field::Raw;
        if at.take("commit_group") {
            self.emit(at, pick::<copy::Commit>(self.path), [raw(0); 6]);
            return Ok(());
        }
        if at.take("wait_all") || at.mods.contains(&"wait_group") {
            let left = if at.take("wait_group") {
                let [Operand::Int(left @ 0..=0xffff)] = at.operands()? else {
                    return Err(at.bad_operands("the number of groups is a constant"));
                };
                *left as u32
            } else {
                FULL
            };
            let fields = [raw(0), raw(0), raw(0), raw(0), raw(left), raw(0)];
            self.emit(at, pick::<copy::Wait>(self.path), fields);
            return Ok(());
        }
        let only_cg = match at.take_one(&["ca", "cg"]) {
            Some(which) => which == 1,
            None => return Err(at.unsupported("only `.ca` and `.cg` copies are available")),
        };
        let policy = at.take("L2::cache_hint");
        at.take_all(|m| m.starts_with("L2::"));
        if !(at.take("shared") || at.take("shared::cta")) || !at.take("global") {
            return Err(at.unsupported("it copies from `.global` to `.shared`"));
        }
        let given = at.inst.operands.len() - usize::from(policy && at.inst.operands.len() > 3);
        let to = self.address(at, at.operand(0)?, Some(Space::Shared))?;
        let from = self.address(at, at.operand(1)?, Some(Space::Global))?;
        let &Operand::Int(bytes) = at.operand(2)? else {
            return Err(at.bad_operands("its size is a constant"));
        };
        if !matches!((bytes, only_cg), (16, _) | (4 | 8, false)) {
            return Err(at.bad_operands("`.cg` copies 16 bytes, `.ca` 4, 8 or 16"));
        }
        let have = match given {
            3 => raw(NO_SLOT),
            4 => match at.operand(3)? {
                // A predicate: ignore the source, and write zeros.
                operand @ (Operand::Name(_) | Operand::Not(_))
                    if matches!(operand, Operand::Not(_))
                        || self.class_of(operand) == Some(Class::Predicate) =>
                {
                    let (p, negated) = self.predicate(at, operand)?;
                    let (none, all) = (self.narrow(0), self.narrow(bytes as u32));
                    let (a, b) = if negated { (all, none) } else { (none, all) };
                    let v = self.register(Class::Narrow);
                    let select = pick::<crate::exec::lanes::Select<u32>>(self.path);
                    let fields = [
                        Field::Def(v),
                        Field::Use(a),
                        Field::Use(b),
                        Field::Use(p),
                        raw(0),
                        raw(0),
                    ];
                    self.emit(at, select, fields);
                    Field::Use(v)
                }
                operand => Field::Use(self.src(at, operand, Ty::U32)?),
            },
            _ => return Err(at.bad_operands("it takes 3 or 4")),
        };
        self.watch(at, &to, false);
        let extra = [bytes as u32, to.wide.into(), to.offset, from.offset];
        let fields = [raw(0), Field::Use(to.base), Field::Use(from.base), have, raw(0), raw(0)];
        let run = pick::<copy::CpAsync>(self.path);
        self.emit_extra(at, run, fields, extra.into_iter().map(raw).collect());
        Ok(())
    }
}
