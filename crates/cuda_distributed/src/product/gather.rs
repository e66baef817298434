//! [`Schedule::Gather`](super::Schedule::Gather): blocks of A and B travel, and sums stay.
//!
//! A rank multiplies its own blocks while others arrive, in steps: in step `s` it receives from
//! rank `r + s` and sends to rank `r - s`. Each step's blocks are multiplied when they are there.
//! Steps of different parts of C have two streams in turn, so that a product begins on the
//! multiprocessors that the last wave of the product before leaves idle. NCCL needs those.

use std::ops::Range;
use std::sync::Arc;

use cuda_gemm::{DeviceMatrixRef, Event, OutputOf, Scalar, Stream};

use super::local::{End, dense};
use super::{Buffers, Call, DistributedRef, Multiply, swapped};
use crate::communicator::Piece;
use crate::distribution::{Distribution, common, within};
use crate::error::Error;
use crate::matrix::DistributedMatrix;
use crate::world::Workspace;

/// A block of op(A) or op(B) that a rank needs.
pub(super) struct Needed {
    owner: usize,
    /// Its rows and columns.
    place: [Range<usize>; 2],
    /// When it arrives; 0 if the rank has it.
    step: usize,
    /// Where it arrives in the buffer, in bytes.
    offset: usize,
    bytes: usize,
}

/// Blocks begin on the boundaries of an allocation.
const ALIGNMENT: usize = 256;

/// The blocks of `operand` that `rank` needs for a region, with places in one buffer.
pub(super) fn needed<T: Multiply>(
    operand: DistributedRef<'_, T>,
    region: [Range<usize>; 2],
    rank: usize,
) -> Vec<Needed> {
    let matrix = operand.matrix;
    let size = matrix.world().size();
    let owners = match matrix.distribution() {
        Distribution::Replicated => rank..rank + 1,
        _ => 0..size,
    };
    let mut end = 0;
    let block = |owner: usize| {
        let place = operand.part_of(owner);
        let is_empty = |i: usize| common(&place[i], &region[i]).is_empty();
        if is_empty(0) || is_empty(1) {
            return None;
        }
        let (step, offset) = ((owner + size - rank) % size, end);
        let bytes = matrix.bytes_of(owner);
        if step > 0 {
            end += bytes.next_multiple_of(ALIGNMENT);
        }
        Some(Needed { owner, place, step, offset, bytes })
    };
    owners.filter_map(block).collect()
}

/// The bytes of a buffer for all blocks that arrive.
pub(super) fn bytes(needed: &[Needed]) -> usize {
    let arriving = needed.iter().filter(|block| block.step > 0);
    arriving.map(|block| block.bytes.next_multiple_of(ALIGNMENT)).sum()
}

/// A product of two blocks, of a part of C.
pub(super) struct Task {
    /// When both blocks are there.
    step: usize,
    /// Rows, columns and the part of K, in the whole matrices.
    rows: Range<usize>,
    cols: Range<usize>,
    depth: Range<usize>,
    /// The indices of the blocks.
    blocks: [usize; 2],
    pub(super) is_first: bool,
    pub(super) is_last: bool,
}

impl<T: Multiply> Call<'_, '_, T> {
    pub(super) fn buffers<U: Scalar>(&self, workspace: &mut Workspace) -> Result<Buffers, Error> {
        let world = self.product.a.matrix.world();
        let (stream, rank) = (world.device().stream(), world.rank());
        let [rows, cols] = &self.regions[rank];
        let own = 4 * rows.len() * cols.len();
        let (parts, names, sum) = match self.schedule {
            super::Schedule::Gather => {
                let parts = self.needed[rank].each_ref().map(|needed| bytes(needed));
                let has_sums = self.tasks.iter().any(|task| !task.is_first);
                (parts, ["gathered blocks of A", "gathered blocks of B"], has_sums)
            }
            super::Schedule::Reduce => {
                let all: usize =
                    self.regions.iter().map(|[rows, cols]| rows.len() * cols.len()).sum();
                let received = own * (world.size() - 1);
                let names = ["partial sums to send", "received partial sums"];
                ([4 * all - own, received], names, self.panels == 1)
            }
        };
        let mut buffers = Buffers { parts: [0; 2], sum: 0, one: 0 };
        for ((address, name), bytes) in buffers.parts.iter_mut().zip(names).zip(parts) {
            *address = workspace.buffer(&stream, name, bytes)?;
        }
        if sum {
            buffers.sum = workspace.buffer(&stream, "sums", own)?;
        }
        if self.product.beta != 0.0 && !self.product.adds_only() {
            buffers.one = workspace.one::<U>(&stream)?;
        }
        Ok(buffers)
    }

    /// The products of a rank, in their order.
    pub(super) fn find_tasks(&self, rank: usize) -> Vec<Task> {
        let ([a_blocks, b_blocks], region) = (&self.needed[rank], &self.regions[rank]);
        let mut tasks = Vec::new();
        for (i, a) in a_blocks.iter().enumerate() {
            for (j, b) in b_blocks.iter().enumerate() {
                let (rows, depth) =
                    (common(&a.place[0], &region[0]), common(&a.place[1], &b.place[0]));
                let cols = common(&b.place[1], &region[1]);
                if !depth.is_empty() {
                    let (step, blocks) = (a.step.max(b.step), [i, j]);
                    let (is_first, is_last) = (false, false);
                    tasks.push(Task { step, rows, cols, depth, blocks, is_first, is_last });
                }
            }
        }
        tasks.sort_by_key(|task| (task.step, task.rows.start, task.cols.start, task.depth.start));
        // Parts of C differ in their first row or column.
        let part = |task: &Task| (task.rows.start, task.cols.start);
        for i in 0..tasks.len() {
            tasks[i].is_first = !tasks[..i].iter().any(|other| part(other) == part(&tasks[i]));
            tasks[i].is_last = !tasks[i + 1..].iter().any(|other| part(other) == part(&tasks[i]));
        }
        tasks
    }

    pub(super) fn gather<U>(
        &self,
        c: &mut DistributedMatrix<U>,
        buffers: &Buffers,
    ) -> Result<(), Error>
    where
        U: Multiply + OutputOf<T>,
        f32: OutputOf<T> + OutputOf<U>,
    {
        let world = c.world().clone();
        let compute = world.device().stream();
        let side = self.side.unwrap_or(&compute);
        let stream = |step: usize| if step % 2 == 1 { side } else { &compute };
        let run = |step: usize, c: &mut DistributedMatrix<U>| {
            let mut ready = self.tasks.iter().filter(|task| task.step == step);
            ready.try_for_each(|task| self.run_task(task, stream(step), c, buffers))
        };
        if self.product.a.shape()[1] == 0 {
            return self.without_sums(c);
        }
        // Copy engines work beside a product that runs already; kernels need multiprocessors.
        let comes_first = !world.uses_multiprocessors();
        if comes_first {
            run(0, c)?;
        }
        let steps = (1..world.size()).map(|step| self.send_step(step, buffers));
        let arrivals = steps.collect::<Result<Vec<_>, _>>()?;
        if !comes_first {
            run(0, c)?;
        }
        for (step, arrival) in (1..).zip(arrivals) {
            // Transfers have one stream: what earlier steps have sent has then arrived too.
            if let Some(arrival) = arrival {
                stream(step).wait_for_event(&arrival)?;
            }
            run(step, c)?;
        }
        Ok(())
    }

    /// Enqueues the messages of a step, unless no rank has any.
    fn send_step(&self, step: usize, buffers: &Buffers) -> Result<Option<Arc<Event>>, Error> {
        let (a, b) = (self.product.a.matrix, self.product.b.matrix);
        let world = a.world();
        let (rank, size) = (world.rank(), world.size());
        let arrives = |block: &&Needed| block.step == step;
        let is_silent = |needed: &[Vec<Needed>; 2]| !needed.iter().flatten().any(|b| arrives(&b));
        if self.needed.iter().all(is_silent) {
            return Ok(None);
        }
        let to = (rank + size - step) % size;
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for (i, own) in [a.local().address(), b.local().address()].into_iter().enumerate() {
            for Needed { bytes, .. } in self.needed[to][i].iter().filter(arrives) {
                sends.push(Piece { peer: to, address: own, bytes: *bytes });
            }
            for Needed { owner, offset, bytes, .. } in self.needed[rank][i].iter().filter(arrives) {
                let address = buffers.parts[i] + *offset as u64;
                receives.push(Piece { peer: *owner, address, bytes: *bytes });
            }
        }
        // SAFETY: the parts of A and B and the buffers have these bytes. Earlier work with them is
        // waited for, and later work waits.
        unsafe { world.transfer(&sends, &receives) }.map(Some)
    }

    fn run_task<U>(
        &self,
        task: &Task,
        stream: &Stream,
        c: &mut DistributedMatrix<U>,
        buffers: &Buffers,
    ) -> Result<(), Error>
    where
        U: Multiply + OutputOf<T>,
        f32: OutputOf<T> + OutputOf<U>,
    {
        let world = c.world().clone();
        let compute = world.device().stream();
        let rank = world.rank();
        let view = |i: usize, rows: &Range<usize>, cols: &Range<usize>| -> Result<_, Error> {
            let operand = [self.product.a, self.product.b][i];
            let block = &self.needed[rank][i][task.blocks[i]];
            let [down, along] = swapped(block.place.clone(), operand.transposed);
            let stored = match block.step {
                0 => operand.matrix.local(),
                // SAFETY: the block arrived here before, and has this shape.
                _ => unsafe {
                    let address = buffers.parts[i] + block.offset as u64;
                    DeviceMatrixRef::from_address(
                        &compute,
                        address,
                        [down.len(), along.len()],
                        along.len(),
                    )
                }?,
            };
            let whole = if operand.transposed { stored.t() } else { stored };
            let [first_row, first_col] = block.place.each_ref().map(|range| range.start);
            Ok(whole.submatrix(within(rows, first_row), within(cols, first_col))?)
        };
        let Task { rows, cols, depth, is_first, is_last, .. } = task;
        let operands = [view(0, rows, depth)?, view(1, depth, cols)?];
        let place = [rows, cols];
        let [first_row, first_col] = c.part().map(|range| range.start);
        let [c_rows, c_cols] = [within(rows, first_row), within(cols, first_col)];
        let part = c.local_mut().submatrix(c_rows, c_cols)?;
        // SAFETY: as in `multiply`. Tasks of two streams have different parts of C.
        let part = unsafe { part.on(stream) };
        let end = if *is_last { End::Epilogue } else { End::Stored };
        // A sum that is not complete is rounded only in C of f32.
        if U::ELEMENT == cuda_gemm::Element::F32 || (*is_first && *is_last) {
            let beta = if *is_first { self.product.beta } else { 1.0 };
            return self.multiply(operands, part, beta, place, end);
        }
        // The part of C has a dense sum, at the place of its first element.
        let region = &self.regions[rank];
        let before = (rows.start - region[0].start) * region[1].len()
            + rows.len() * (cols.start - region[1].start);
        // SAFETY: the buffer has the region's elements. Rows above this part, and columns left of
        // it in the same rows, have other elements.
        let sum = |()| unsafe {
            dense::<f32>(&compute, buffers.sum + 4 * before as u64, [rows.len(), cols.len()])
        };
        let beta = if *is_first { 0.0 } else { 1.0 };
        self.multiply(operands, sum(())?, beta, place, End::Stored)?;
        if *is_last { self.finish(&compute, sum(())?, part, place, buffers.one) } else { Ok(()) }
    }

    /// C without a product: K is 0.
    fn without_sums<U>(&self, c: &mut DistributedMatrix<U>) -> Result<(), Error>
    where
        U: Multiply + OutputOf<T>,
    {
        let world = c.world().clone();
        let compute = world.device().stream();
        let [rows, cols] = &self.regions[world.rank()];
        let [first_row, first_col] = c.part().map(|range| range.start);
        let part = c.local_mut().submatrix(within(rows, first_row), within(cols, first_col))?;
        // SAFETY: the matrices have no element. The address is aligned.
        let [a, b] = [[rows.len(), 0], [0, cols.len()]].map(|shape| unsafe {
            DeviceMatrixRef::<T>::from_address(&compute, 256, shape, shape[1].max(1))
        });
        self.multiply([a?, b?], part, self.product.beta, [rows, cols], End::Epilogue)
    }
}
