//! The commands that calls enqueue.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::records::{EventKey, Operand, QueueKey};
use crate::{CallKind, effect::Effect};

/// A command that a call enqueues.
#[derive(Debug)]
pub(crate) struct Submission<'a> {
    pub(crate) kind: CallKind,
    pub(crate) name: Cow<'static, str>,
    pub(crate) queue: QueueKey,
    pub(crate) wait_for: &'a [EventKey],
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
            reads: SmallVec::new(),
            writes: SmallVec::new(),
            effect: Effect::Nothing,
        }
    }

    /// Returns whether it waits for all earlier commands of its queue.
    pub(crate) fn waits_for_all(&self) -> bool {
        matches!(self.kind, CallKind::Marker | CallKind::Barrier) && self.wait_for.is_empty()
    }

    /// Returns whether all later commands of its queue wait for it.
    pub(crate) fn is_barrier(&self) -> bool {
        self.kind == CallKind::Barrier
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
