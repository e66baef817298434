//! Loads, stores, fences, hints, and what turns addresses of one state space into another's.

use super::address::{Address, space_number};
use super::check::Accessed;
use super::context::{Context, Result};
use super::ir::{Class, Field, InstKind};
use super::lowering::Lowering;
use super::ty::{Kind, Ty};
use crate::exec::access::{AccessKind, Side};
use crate::exec::check_access::Extent;
use crate::exec::check_async::ProxyFence;
use crate::exec::element::Transfer;
use crate::exec::lanes::Map2;
use crate::exec::machine::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, SPACES};
use crate::exec::mem::{
    Fence, IsSpace, LoadAny, LoadGlobal, LoadParam, LoadShared, StoreAny, StoreGlobal, StoreShared,
};
use crate::exec::{alu, pick, pick_compact};
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

/// Modifiers of loads and stores that other threads may access the same memory beside.
const STRONG: [&str; 5] = ["volatile", "relaxed", "acquire", "release", "mmio"];

/// The function `$kind` of a load or store for an element that kernels live on: `$n` elements of
/// `$bits` bits in registers of the same size, in a space whose addresses have one form.
macro_rules! pick_fast {
    ($path:expr, $kind:ident, $transfer:expr, $n:expr) => {
        match ($transfer.bytes, $transfer.wide, $n) {
            (4, false, 1) => Some(pick::<$kind<u32, 1>>($path)),
            (4, false, 2) => Some(pick::<$kind<u32, 2>>($path)),
            (4, false, 4) => Some(pick::<$kind<u32, 4>>($path)),
            (8, true, 1) => Some(pick::<$kind<u64, 1>>($path)),
            (8, true, 2) => Some(pick::<$kind<u64, 2>>($path)),
            _ => None,
        }
    };
}

impl Lowering<'_> {
    /// Lowers `base` if it is an instruction of this file.
    pub(super) fn memory(&mut self, base: &str, at: &mut Context<'_>) -> Result<bool> {
        match base {
            "ld" | "ldu" => self.load(at)?,
            "st" | "red" if at.take("async") => {
                return Err(at.unsupported(
                    "store or reduce in `.shared::cluster` memory, and arrive at an mbarrier there",
                ));
            }
            "st" => self.store(at)?,
            "cvta" => self.cvta(at)?,
            "isspacep" => self.isspacep(at)?,
            "atom" => self.atomic(at, true)?,
            "red" => self.atomic(at, false)?,
            "membar" => {
                let wide = at.take_one(&["cta", "gl", "sys"]) != Some(0);
                self.fence(at, wide, Side::Both);
            }
            "mapa" | "getctarank" => self.map_address(base, at)?,
            "mbarrier" => self.mbarrier(at)?,
            // Between threads and bulk copies: nothing here runs out of order.
            // They do not order threads.
            "fence" if at.take("proxy") => {
                let Some(which) = at.take_one(&["alias", "async"]) else {
                    return Err(at.unsupported("only `.alias` and `.async` are available"));
                };
                let space = self.space(at);
                self.fence_init(at);
                let run = match space {
                    Some(Space::Shared) => Some(pick_compact::<ProxyFence<true>>()),
                    None | Some(Space::SharedCluster) => Some(pick_compact::<ProxyFence<false>>()),
                    // What orders accesses of device memory is not checked.
                    Some(_) => None,
                };
                if let Some(run) = run.filter(|_| which == 1 && self.checks.races) {
                    self.emit(at, run, [Field::Raw(0); 6]).kind = InstKind::Check;
                }
            }
            "fence" if at.take("mbarrier_init") => {
                if !(at.take("release") && at.take("cluster")) {
                    return Err(at.unsupported("it needs `.release.cluster`"));
                }
                self.fence_init(at);
            }
            "fence" => {
                // All fences are the strongest one.
                let wide = at.wide();
                at.take_all(|m| {
                    ["sc", "acq_rel", "acquire", "release", "cta", "cluster", "gpu", "sys"]
                        .contains(&m)
                });
                self.fence(at, wide, Side::Both);
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

    /// A fence, for threads of other clusters as well if `wide`.
    pub(super) fn fence(&mut self, at: &Context<'_>, wide: bool, side: Side) {
        let raw = Field::Raw;
        let fields = [raw(0), raw(0), raw(0), raw(0), raw(wide.into()), raw(side as u32)];
        self.emit(at, pick_compact::<Fence>(), fields);
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

    /// How elements of type `ty` go from and to registers of `class`.
    fn transfer(&self, at: &Context<'_>, ty: Ty, class: Class) -> Result<Transfer> {
        match ty.bits {
            8 | 16 | 32 | 64 => {
                Ok(Transfer { bytes: ty.bits / 8, signed: ty.signed(), wide: class == Class::Wide })
            }
            _ => Err(at.unsupported("it is not available for this type")),
        }
    }

    /// Emits a load or a store of `parts`, with its checks; a load may acquire what it reads.
    pub(super) fn access(
        &mut self,
        at: &Context<'_>,
        (transfer, kind): (Transfer, AccessKind),
        address: &Address,
        (parts, acquires): (&[Field], Option<bool>),
    ) {
        // Threads do not meet in local memory.
        let compared = kind.writes() && address.space != Some(Space::Local);
        let values = if compared { parts } else { &[] };
        let count = parts.len() as u32;
        let (element, wide) = (transfer.bytes, transfer.wide);
        let (extent, low) = (Extent::All, None);
        let of = Accessed { kind, element, count, values, wide, extent, low };
        self.check_access(at, address, &of);
        self.perform(at, transfer, address, parts);
        self.observe(at, address, &of, acquires);
    }

    pub(super) fn perform(
        &mut self,
        at: &Context<'_>,
        transfer: Transfer,
        address: &Address,
        parts: &[Field],
    ) {
        let (raw, path, n) = (Field::Raw, self.path, parts.len());
        let load = matches!(parts[0], Field::Def(_));
        let fast = match (address.space, address.wide, load) {
            (Some(Space::Global), true, true) => pick_fast!(path, LoadGlobal, transfer, n),
            (Some(Space::Global), true, false) => pick_fast!(path, StoreGlobal, transfer, n),
            (Some(Space::Shared), false, true) => pick_fast!(path, LoadShared, transfer, n),
            (Some(Space::Shared), false, false) => pick_fast!(path, StoreShared, transfer, n),
            _ => None,
        };
        let base = Field::Use(address.base);
        if let Some(run) = fast {
            let part = |i: usize| parts.get(i).copied().unwrap_or(raw(0));
            let fields = [part(0), base, part(1), part(2), raw(address.offset), part(3)];
            let inst = self.emit(at, run, fields);
            if load && address.space == Some(Space::Shared) && transfer.bytes == 4 {
                inst.kind = InstKind::LoadShared;
            }
            return;
        }
        let run = if load { pick_compact::<LoadAny>() } else { pick_compact::<StoreAny>() };
        let [space, wide] = [space_number(address.space), address.wide.into()];
        let head = [address.offset, space, wide, transfer.pack(), n as u32];
        let extra = head.into_iter().map(raw).chain(parts.iter().copied()).collect();
        let inst = self.emit_extra(at, run, [raw(0), base, raw(0), raw(0), raw(0), raw(0)], extra);
        if !load && address.space == Some(Space::Local) {
            inst.kind = InstKind::StoreLocal;
        }
    }

    fn load(&mut self, at: &mut Context<'_>) -> Result<()> {
        let strong = at.mods.iter().any(|m| STRONG.contains(m));
        let (wide, of_block) = (at.wide(), at.mods.contains(&"cta"));
        let kind = match at.mods.contains(&"nc") {
            true => AccessKind::ReadOnly,
            false if strong && of_block => AccessKind::BlockLoad,
            false if strong => AccessKind::StrongLoad,
            false => AccessKind::Load,
        };
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
        let transfer = self.transfer(at, ty, class)?;
        let to = if transfer.wide { Ty::B64 } else { Ty::B32 };
        let mut fields = Vec::new();
        for part in parts {
            fields.push(Field::Def(self.dst(at, part, to)?));
        }
        if let Some((offset, left)) = address.param {
            let bytes = u64::from(ty.bits / 8);
            if bytes * parts.len() as u64 > left {
                return Err(at.bad_operands("it reads past the end of the parameter"));
            }
            for (i, &part) in fields.iter().enumerate() {
                let x = Field::Raw((offset + i as u64 * bytes) as u32);
                let (raw, transfer) = (Field::Raw(0), Field::Raw(transfer.pack()));
                let run = pick_compact::<LoadParam>();
                self.emit(at, run, [part, raw, raw, raw, x, transfer]);
            }
            return Ok(());
        }
        let acquires = acquire.then_some(wide);
        let operand = at.operand(1)?;
        if !self.load_word(at, (transfer, kind), (operand, &address), (&fields, acquires)) {
            self.access(at, (transfer, kind), &address, (&fields, acquires));
        }
        if acquire {
            self.fence(at, wide, Side::Acquire);
        }
        Ok(())
    }

    fn store(&mut self, at: &mut Context<'_>) -> Result<()> {
        let strong = at.mods.iter().any(|m| STRONG.contains(m));
        let (wide, of_block) = (at.wide(), at.mods.contains(&"cta"));
        let kind = match strong {
            true if of_block => AccessKind::BlockStore,
            true => AccessKind::StrongStore,
            false => AccessKind::Store,
        };
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
        let transfer = self.transfer(at, ty, class)?;
        if release {
            self.fence(at, wide, Side::Release);
        }
        let mut fields = Vec::new();
        for part in parts {
            fields.push(Field::Use(self.src_in(at, part, ty, class)?));
        }
        self.access(at, (transfer, kind), &address, (&fields, None));
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
                (Some(home), self.variable_address(at, (home, address), ty))
            }
            _ => (space, self.src(at, a, ty)?),
        };
        let window = match space {
            Some(Space::Shared | Space::SharedCluster) => SHARED_WINDOW,
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
        self.emit(at, pick_compact::<IsSpace>(), fields);
        Ok(())
    }
}
