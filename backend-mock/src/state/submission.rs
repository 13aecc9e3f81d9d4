//! The commands that calls enqueue.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::records::{EventKey, Operand, QueueKey};
use crate::{CallKind, effect::Effect};

/// How a command orders other commands of its queue, beyond the queue's own order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// It does not.
    None,
    /// It waits for all earlier commands, if it has no wait list.
    Marker,
    /// It is a marker that all later commands wait for.
    Barrier,
}

/// A command that a call enqueues.
#[derive(Debug)]
pub(crate) struct Submission<'a> {
    pub(crate) kind: CallKind,
    pub(crate) name: Cow<'static, str>,
    pub(crate) queue: QueueKey,
    pub(crate) wait_for: &'a [EventKey],
    pub(crate) fence: Fence,
    /// The operands, with regions counted from the start of their blocks.
    pub(crate) reads: SmallVec<[Operand; 2]>,
    pub(crate) writes: SmallVec<[Operand; 2]>,
    pub(crate) effect: Effect,
}

impl<'a> Submission<'a> {
    /// A command that touches no memory.
    pub(crate) fn new(kind: CallKind, queue: QueueKey, wait_for: &'a [EventKey]) -> Self {
        Self {
            kind,
            name: Cow::Borrowed(kind.name()),
            queue,
            wait_for,
            fence: Fence::None,
            reads: SmallVec::new(),
            writes: SmallVec::new(),
            effect: Effect::Nothing,
        }
    }

    /// The bytes that the command moves.
    pub(crate) fn bytes(&self) -> usize {
        let touched = self.writes.iter().chain(&self.reads);
        touched
            .map(|operand| operand.region.bytes)
            .max()
            .unwrap_or(0)
    }
}
