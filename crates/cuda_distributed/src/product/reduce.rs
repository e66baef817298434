//! [`Schedule::Reduce`](super::Schedule::Reduce): partial sums travel, in f32.
//!
//! Each rank has a part of K. In step `s` it makes its partial sum of the part of C of rank
//! `r + s`, and sends it while the next one is made. Its own part comes last:
//!
//! ```text
//! compute    sum for r+1, panel 0 | panel 1          | own panel 0 + received | own panel 1 + received
//! transfers                       | panel 0 travels  | panel 1 travels        |
//! ```
//!
//! With one panel there is nothing to hide the last message behind but the own sum. So that one is
//! made without waiting, and added afterwards.

use std::ops::Range;
use std::sync::Arc;

use cuda_gemm::{DeviceMatrixRef, Event, OutputOf};

use super::local::{End, add, dense};
use super::{Buffers, Call, Multiply};
use crate::communicator::Piece;
use crate::distribution::{cut, within};
use crate::error::Error;
use crate::matrix::DistributedMatrix;

/// The longer axis, along which panels are cut.
pub(super) fn longer([rows, cols]: [usize; 2]) -> usize {
    usize::from(cols > rows)
}

impl<T: Multiply> Call<'_, '_, T> {
    /// The rows and columns of a panel of the part of C of `rank`.
    fn panel(&self, rank: usize, panel: usize) -> [Range<usize>; 2] {
        let mut region = self.regions[rank].clone();
        let longer = longer(region.each_ref().map(|range| range.len()));
        let along = &mut region[longer];
        let of_part = cut(along.len(), self.panels, panel);
        *along = along.start + of_part.start..along.start + of_part.end;
        region
    }

    /// The elements of a panel.
    fn elements(&self, rank: usize, panel: usize) -> usize {
        self.panel(rank, panel).iter().map(Range::len).product()
    }

    /// Whether `rank` has a part of K.
    fn contributes(&self, rank: usize) -> bool {
        let [k, parts] = [self.product.a.shape()[1], self.regions.len()];
        !cut(k, parts, rank).is_empty()
    }

    /// Bytes of the partial sum that `from` sends to `to`.
    fn bytes(&self, from: usize, to: usize, panel: usize) -> usize {
        if self.contributes(from) { 4 * self.elements(to, panel) } else { 0 }
    }

    /// This rank's parts of A and B for some rows and columns of C.
    fn operands(
        &self,
        rows: &Range<usize>,
        cols: &Range<usize>,
    ) -> Result<[DeviceMatrixRef<'_, T>; 2], Error> {
        let [a, b] = [self.product.a, self.product.b].map(|operand| {
            let local = operand.matrix.local();
            if operand.transposed { local.t() } else { local }
        });
        let depth = 0..a.cols();
        Ok([a.submatrix(rows.clone(), depth.clone())?, b.submatrix(depth, cols.clone())?])
    }

    pub(super) fn reduce<U>(
        &self,
        c: &mut DistributedMatrix<U>,
        buffers: &Buffers,
    ) -> Result<(), Error>
    where
        U: Multiply + OutputOf<T>,
        f32: OutputOf<T> + OutputOf<U>,
    {
        let world = c.world().clone();
        let (rank, size) = (world.rank(), world.size());
        let compute = world.device().stream();
        let [own_rows, own_cols] = self.regions[rank].clone();
        let own_bytes = 4 * own_rows.len() * own_cols.len();
        // Where the partial sum of another rank's step arrives.
        let received = |step: usize, panel: usize| {
            let before: usize = (0..panel).map(|panel| self.elements(rank, panel)).sum();
            buffers.parts[1] + ((step - 1) * own_bytes + 4 * before) as u64
        };
        let mut sent = buffers.parts[0];
        let mut arrivals: Vec<Option<Arc<Event>>> = vec![None; self.panels];
        for step in 1..size {
            let (to, from) = ((rank + step) % size, (rank + size - step) % size);
            for (panel, arrival) in arrivals.iter_mut().enumerate() {
                let (mut sends, mut receives) = (Vec::new(), Vec::new());
                let bytes = self.bytes(rank, to, panel);
                if bytes > 0 {
                    let [rows, cols] = &self.panel(to, panel);
                    // SAFETY: the buffer has room for all partial sums, and each is made once.
                    let sum = unsafe { dense::<f32>(&compute, sent, [rows.len(), cols.len()]) }?;
                    self.multiply(self.operands(rows, cols)?, sum, 0.0, [rows, cols], End::Stored)?;
                    world.transfers().wait_for(&compute)?;
                    sends.push(Piece { peer: to, address: sent, bytes });
                    sent += bytes as u64;
                }
                let bytes = self.bytes(from, rank, panel);
                if bytes > 0 {
                    let address = received(step, panel);
                    receives.push(Piece { peer: from, address, bytes });
                }
                let travels = |from: usize| self.bytes(from, (from + step) % size, panel) > 0;
                if (0..size).any(travels) {
                    // SAFETY: the buffers have these bytes, each for one message. The product above
                    // is waited for, and the sums below wait.
                    *arrival = Some(unsafe { world.transfer(&sends, &receives) }?);
                }
            }
        }
        let [first_row, first_col] = c.part().map(|range| range.start);
        // Others' sums in rank order.
        let steps = (0..size).filter(|from| *from != rank && self.contributes(*from));
        let steps: Vec<_> = steps.map(|from| (rank + size - from) % size).collect();
        for (panel, arrival) in arrivals.iter().enumerate() {
            let [rows, cols] = &self.panel(rank, panel);
            if rows.is_empty() || cols.is_empty() {
                continue;
            }
            let (place, shape) = ([rows, cols], [rows.len(), cols.len()]);
            let operands = self.operands(rows, cols)?;
            let part = (within(rows, first_row), within(cols, first_col));
            let part = c.local_mut().submatrix(part.0, part.1)?;
            // SAFETY: each buffer has room for the sum of the panel, which one view at a time uses.
            let sum = |address: u64| unsafe { dense::<f32>(&compute, address, shape) };
            let Some((first, others)) = steps.split_first() else {
                self.multiply(operands, part, self.product.beta, place, End::Epilogue)?;
                continue;
            };
            let waits =
                || arrival.as_ref().map_or(Ok(()), |arrival| compute.wait_for_event(arrival));
            if self.panels == 1 {
                self.multiply(operands, sum(buffers.sum)?, 0.0, place, End::Stored)?;
                waits()?;
                for step in &steps {
                    add(sum(received(*step, panel))?.view(), sum(buffers.sum)?)?;
                }
                self.finish(&compute, sum(buffers.sum)?, part, place, buffers.one)?;
                continue;
            }
            waits()?;
            let total = received(*first, panel);
            for step in others {
                add(sum(received(*step, panel))?.view(), sum(total)?)?;
            }
            if self.product.adds_only() {
                let total = sum(total)?;
                let summand = End::Summand(total.view());
                self.multiply(operands, part, self.product.beta, place, summand)?;
            } else {
                self.multiply(operands, sum(total)?, 1.0, place, End::Stored)?;
                self.finish(&compute, sum(total)?, part, place, buffers.one)?;
            }
        }
        Ok(())
    }
}
