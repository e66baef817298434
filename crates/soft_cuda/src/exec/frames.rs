//! What a call copies: arguments and results between the frames of a thread's stack, and the
//! registers of a function that is called while it runs.

use super::code::{Call, Code, Function, Piece, places};
use super::machine::{LANES, bits};
use super::op::Cx;

/// A function that has been called and has not returned.
#[derive(Debug)]
pub(super) struct Activation {
    /// Index into [`Code::functions`].
    pub function: u32,
    /// Index into [`Code::calls`].
    pub call: u32,
    /// The registers of the function as it was running before, if it was.
    saved: Option<Saved>,
}

/// Registers and predicates of all lanes.
#[derive(Debug)]
struct Saved {
    registers: Vec<[u8; LANES * 8]>,
    predicates: Vec<u32>,
}

impl Activation {
    /// Begins a call; `runs` says whether the function is running already.
    pub(super) fn new(
        cx: &Cx<'_>,
        code: &Code,
        (function, call): (u32, u32),
        runs: bool,
    ) -> Activation {
        let saved = runs.then(|| Saved::of(cx, &code.functions[function as usize]));
        Activation { function, call, saved }
    }

    /// The call, unless registers are saved while its function runs.
    pub(super) fn keeps_nothing(&self) -> Option<(u32, u32)> {
        self.saved.is_none().then_some((self.function, self.call))
    }

    /// Gives the lanes `mask` the registers back.
    pub(super) fn restore(&self, cx: &mut Cx<'_>, code: &Code, mask: u32) {
        if let Some(saved) = &self.saved {
            saved.restore(cx, &code.functions[self.function as usize], mask);
        }
    }
}

impl Saved {
    fn of(cx: &Cx<'_>, function: &Function) -> Saved {
        let registers = function.slots.iter().map(|&(slot, wide)| {
            let mut bytes = [0; LANES * 8];
            let size = LANES * if wide { 8 } else { 4 };
            // SAFETY: a slot of this kernel, of that many bytes.
            unsafe { cx.slot::<u8>(slot).copy_to_nonoverlapping(bytes.as_mut_ptr(), size) };
            bytes
        });
        // SAFETY: predicates of this kernel.
        let predicates = function.predicates.clone().map(|p| unsafe { cx.pred(p as u32) });
        Saved { registers: registers.collect(), predicates: predicates.collect() }
    }

    fn restore(&self, cx: &mut Cx<'_>, function: &Function, mask: u32) {
        for (&(slot, wide), saved) in function.slots.iter().zip(&self.registers) {
            let size = if wide { 8 } else { 4 };
            for lane in bits(mask) {
                let at = lane * size;
                // SAFETY: a slot of this kernel, of lanes of that size.
                unsafe {
                    let to = cx.slot::<u8>(slot).add(at);
                    to.copy_from_nonoverlapping(saved[at..].as_ptr(), size);
                }
            }
        }
        for (predicate, &saved) in function.predicates.clone().zip(&self.predicates) {
            // SAFETY: a predicate of this kernel.
            let predicate = unsafe { &mut *cx.preds.add(predicate) };
            *predicate = *predicate & !mask | saved & mask;
        }
    }
}

/// Copies variables from one frame of each lane's stack to another: the frames, and the place
/// and bytes of each variable in the caller and in the function.
fn copy(
    cx: &mut Cx<'_>,
    mask: u32,
    (caller, callee): (u32, u32),
    pieces: impl Iterator<Item = (Piece, u32)> + Clone,
    to_callee: bool,
) {
    for lane in bits(mask) {
        for (piece, place) in pieces.clone() {
            let (in_caller, in_callee) = (caller + piece.at, callee + place);
            let (from, to) = match to_callee {
                true => (in_caller, in_callee),
                false => (in_callee, in_caller),
            };
            let bytes = piece.bytes as usize;
            // SAFETY: both lie in frames of the lane's stack, which the call was checked to have
            // room for, and the frames do not overlap.
            unsafe {
                let stack = cx.local.add(lane * cx.local_size as usize);
                stack.add(to as usize).copy_from_nonoverlapping(stack.add(from as usize), bytes);
            }
            if let Some(checker) = &mut cx.checker {
                checker.local.copy((cx.warp, lane), (from, to), piece.bytes);
            }
        }
    }
}

/// Makes the frame of a function that is called, and passes the arguments from the frame of the
/// caller to it. Everything else in it is NaN, so that reading it too early is seen.
pub(super) fn begin_frame(
    cx: &mut Cx<'_>,
    mask: u32,
    (call, callee): (&Call, &Function),
    frames: (u32, u32),
) {
    for lane in bits(mask) {
        // SAFETY: the caller has checked that the stack has room for the frame.
        unsafe {
            let stack = cx.local.add(lane * cx.local_size as usize);
            stack.add(frames.1 as usize).write_bytes(0xff, callee.frame as usize);
        }
        if let Some(checker) = &mut cx.checker {
            checker.local.set((cx.warp, lane), (frames.1, callee.frame), false);
        }
    }
    let sizes = call.returns.iter().chain(&call.arguments).map(|piece| piece.bytes);
    let places = places(sizes).skip(call.returns.len());
    copy(cx, mask, frames, call.arguments.iter().copied().zip(places), true);
}

/// Passes the results back.
pub(super) fn pass_results(cx: &mut Cx<'_>, mask: u32, call: &Call, frames: (u32, u32)) {
    let places = places(call.returns.iter().map(|piece| piece.bytes));
    copy(cx, mask, frames, call.returns.iter().copied().zip(places), false);
}
