//! Calls and returns of a warp's lanes.
//!
//! A node remembers a call as it does a divergent branch: the lanes reconverge where the call
//! returns to. All lanes of a split have come to it by the same calls, so that the frame of its
//! function is at one place in the stack of each.

use super::code::{Code, Target};
use super::frames::{Activation, begin_frame, pass_results};
use super::machine::bits;
use super::op::Cx;
use super::split::{Node, Split};
use super::warp::Warp;
use crate::fault::FaultKind;

impl Warp {
    /// Split `at` has come to a call. Fails with the lane and the reason.
    pub(super) fn call(
        &mut self,
        at: usize,
        index: u32,
        code: &Code,
        cx: &mut Cx<'_>,
    ) -> Result<(), (u32, FaultKind)> {
        let call = &code.calls[index as usize];
        let split = self.splits.swap_remove(at);
        let slot = match call.target {
            Target::Function(function) => {
                return self.activate(code, cx, (function, index), split);
            }
            Target::Address(slot) => slot,
        };
        let sizes = [&call.returns, &call.arguments];
        let mut node = split.node;
        let mut left = split.mask;
        while left != 0 {
            let first = left.trailing_zeros();
            // SAFETY: the slot has 64-bit lanes.
            let address = |lane: usize| unsafe { *cx.slot::<u64>(slot).add(lane) };
            let callee = address(first as usize);
            let group = bits(left).filter(|&lane| address(lane) == callee);
            let group = group.fold(0, |group, lane| group | 1 << lane);
            left &= !group;
            let function = code.by_address.get(&callee).copied().filter(|&function| {
                let declared = &code.functions[function as usize].sizes;
                let pairs = declared.iter().zip(sizes);
                pairs.into_iter().all(|(declared, given)| {
                    declared.iter().copied().eq(given.iter().map(|piece| piece.bytes))
                })
            });
            let Some(function) = function else {
                return Err((first, FaultKind::BadCall { address: callee }));
            };
            // Functions that are called together return to one place together.
            if group != split.mask && node == split.node {
                let Split { mask, node: parent, frame, .. } = split;
                node = self.add_node(Node::new(call.next, parent, mask, frame));
            }
            self.activate(code, cx, (function, index), Split { mask: group, node, ..split })?;
        }
        Ok(())
    }

    /// Lets the lanes of `split` begin a function.
    fn activate(
        &mut self,
        code: &Code,
        cx: &mut Cx<'_>,
        (function, index): (u32, u32),
        split: Split,
    ) -> Result<(), (u32, FaultKind)> {
        let Split { mask, node: parent, frame: caller, .. } = split;
        let (call, callee) = (&code.calls[index as usize], &code.functions[function as usize]);
        let frame = caller + call.frame;
        if u64::from(frame) + u64::from(callee.frame) > cx.local_size.into() {
            let (function, bytes) = (callee.name.clone(), cx.local_size);
            return Err((mask.trailing_zeros(), FaultKind::StackOverflow { function, bytes }));
        }
        if !std::mem::replace(&mut self.prepared[function as usize], true) {
            cx.fill_initial(&callee.initial);
            cx.fill_of_block(&callee.initial);
        }
        begin_frame(cx, mask, (call, callee), (caller, frame));
        let runs = self.runs(function, parent);
        let activation = Some(Activation::new(cx, code, (function, index), runs));
        let node = self.add_node(Node { activation, ..Node::new(call.next, parent, mask, caller) });
        self.splits.push(Split::new(callee.entry, mask, node, frame));
        Ok(())
    }

    /// Whether a function has been called and has not returned, seen from a node.
    fn runs(&self, function: u32, mut node: usize) -> bool {
        while let Some(Some(n)) = self.nodes.get(node) {
            if n.activation.as_ref().is_some_and(|activation| activation.function == function) {
                return true;
            }
            node = n.parent;
        }
        false
    }

    /// Split `at` returns to its caller.
    pub(super) fn ret(&mut self, at: usize, code: &Code, cx: &mut Cx<'_>) {
        let Split { mask, mut node, frame, .. } = self.splits.swap_remove(at);
        while let Some(Some(n)) = self.nodes.get_mut(node) {
            if let Some(activation) = &n.activation {
                let call = &code.calls[activation.call as usize];
                pass_results(cx, mask, call, (n.frame, frame));
                activation.restore(cx, code, mask);
                break;
            }
            // The branch is in the function: nobody comes to its end any longer.
            n.pending &= !mask;
            let parent = n.parent;
            self.release(node);
            node = parent;
        }
        self.arrive(node, mask);
    }
}
