//! Instructions of clusters of blocks: their barrier, and addresses in other blocks' shared memory.

use super::context::{Context, Result};
use super::ir::{Field, Terminator};
use super::lowering::Lowering;
use super::ty::{Kind, Ty};
use crate::exec::cluster::{MapAddress, RankOfAddress};
use crate::exec::code::BarrierKind;
use crate::exec::pick_compact;
use crate::ptx::ast::{Operand, Space};

impl Lowering<'_> {
    /// `barrier.cluster`, of which `cluster` has been claimed.
    pub(super) fn cluster_barrier(&mut self, at: &mut Context<'_>) -> Result<()> {
        self.since(at, 90)?;
        let aligned = at.take("aligned");
        let kind = match at.take_one(&["arrive", "wait"]) {
            Some(0) if at.take("relaxed") => BarrierKind::ClusterArriveRelaxed,
            Some(0) => {
                at.take("release");
                BarrierKind::ClusterArrive
            }
            Some(_) => {
                at.take("acquire");
                BarrierKind::ClusterWait
            }
            None => return Err(at.unsupported("it needs `.arrive` or `.wait`")),
        };
        let [] = at.operands()?;
        let (id, next) = (self.narrow(0), self.new_block());
        let end =
            Terminator::Barrier { kind, aligned, id, count: None, dst: None, src: None, next };
        self.finish(end, at.inst.line, true);
        self.current = next;
        Ok(())
    }

    /// `mapa` and `getctarank`.
    pub(super) fn map_address(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
        self.since(at, 90)?;
        let generic = match self.space(at) {
            None => true,
            Some(Space::SharedCluster) => false,
            Some(_) => return Err(at.unsupported("its state space is `.shared::cluster`, or none")),
        };
        let ty = at.ty()?;
        if ty.kind != Kind::Unsigned || !matches!(ty.bits, 32 | 64) {
            return Err(at.unsupported("it takes `.u32` or `.u64`"));
        }
        if generic && ty.bits == 32 {
            return Err(at.unsupported("a generic address is a `.u64`"));
        }
        let address = match at.operand(1)? {
            Operand::Name(name) if self.symbol(name).is_some() => {
                let Some((Space::Shared, address, _)) = self.symbol(name).filter(|_| !generic)
                else {
                    return Err(at.bad_operands(&format!("`{name}` is no shared variable")));
                };
                self.constant(ty, address)
            }
            address => self.src(at, address, ty)?,
        };
        let raw = Field::Raw;
        let (wide, generic) = (raw((ty.bits == 64).into()), raw(generic.into()));
        if base == "mapa" {
            let [d, _, rank] = at.operands()?;
            let (rank, d) = (self.src(at, rank, Ty::U32)?, self.dst(at, d, ty)?);
            let fields =
                [Field::Def(d), Field::Use(address), Field::Use(rank), raw(0), wide, generic];
            self.emit(at, pick_compact::<MapAddress>(), fields);
        } else {
            let [d, _] = at.operands()?;
            let d = self.dst(at, d, Ty::U32)?;
            let fields = [Field::Def(d), Field::Use(address), raw(0), raw(0), wide, generic];
            self.emit(at, pick_compact::<RankOfAddress>(), fields);
        }
        Ok(())
    }
}
