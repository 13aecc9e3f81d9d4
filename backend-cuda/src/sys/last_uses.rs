//! The last command of each queue that uses memory.

use std::sync::Arc;

use binpool_allocators::QueueId;

use super::{context::Context, mark::Mark, status::CudaResult};

/// The last uses of so many queues are kept before those that have ended are looked for.
const KEPT: usize = 16;

/// The commands that use memory and may not have ended: the last one of each queue, which the others of the queue come before.
#[derive(Default)]
pub(crate) struct LastUses {
    commands: Vec<LastUse>,
    /// Of commands whose end no event tells, since a call has failed: they have ended when everything in the context has.
    unknown: Vec<Arc<Context>>,
}

#[derive(Clone)]
struct LastUse {
    queue: QueueId,
    /// The number of the command on its queue.
    number: u64,
    mark: Arc<Mark>,
}

impl LastUses {
    /// Notes a command, by its number on its queue.
    pub(crate) fn note(&mut self, queue: QueueId, number: u64, mark: &Arc<Mark>) {
        let mut known = self.commands.iter_mut();
        if let Some(last) = known.find(|last| last.queue == queue) {
            if last.number < number {
                (last.number, last.mark) = (number, Arc::clone(mark));
            }
            return;
        }
        if self.commands.len() >= KEPT {
            self.commands.retain(|last| !last.mark.is_over());
        }
        self.commands.push(LastUse {
            queue,
            number,
            mark: Arc::clone(mark),
        });
    }

    /// Notes a command of a context whose end no event tells.
    pub(crate) fn note_unknown(&mut self, context: &Arc<Context>) {
        if !self.unknown.iter().any(|known| known.is_same(context)) {
            self.unknown.push(Arc::clone(context));
        }
    }

    /// Takes out the marks of the commands, and the contexts of those that have none.
    pub(crate) fn take(&mut self) -> (Vec<Arc<Mark>>, Vec<Arc<Context>>) {
        let commands = std::mem::take(&mut self.commands).into_iter();
        let marks = commands.map(|last| last.mark).collect();
        (marks, std::mem::take(&mut self.unknown))
    }

    /// Adds what `other` has.
    pub(super) fn add(&mut self, other: &Self) {
        for last in &other.commands {
            self.note(last.queue, last.number, &last.mark);
        }
        other
            .unknown
            .iter()
            .for_each(|context| self.note_unknown(context));
    }

    /// Returns whether all commands have ended. Waits only for those of which no event tells it.
    pub(super) fn have_ended(&self) -> CudaResult<bool> {
        for last in &self.commands {
            if !last.mark.has_ended()? {
                return Ok(false);
            }
        }
        Ok(self.unknown.iter().all(|context| context.has_all_ended()))
    }
}
