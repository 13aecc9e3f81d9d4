//! Whole blocks, and the commands that use them.

use std::sync::Arc;

use binpool_allocators::{MemoryFlags, QueueId};
use parking_lot::Mutex;

use crate::{
    graveyard::{Conditions, End},
    queue::CudaQueue,
    shared::Shared,
    sys::{Address, Allocation, Context, Mark, Pages, Reservation},
};

/// Uses of so many queues are kept before those that have ended are looked for.
const USES: usize = 16;

pub(crate) enum Body {
    Block(Allocation),
    /// Allocated and freed in the order of a queue.
    Ordered(Allocation, CudaQueue),
    Reservation(Reservation),
    Pages(Arc<Pages>),
}

/// A whole block, which is freed once the commands that use it have ended.
pub(crate) struct Root {
    shared: Arc<Shared>,
    /// Taken when this value is dropped.
    body: Option<Body>,
    flags: MemoryFlags,
    uses: Mutex<Uses>,
}

#[derive(Default)]
struct Uses {
    /// The last command of each queue.
    commands: Vec<LastUse>,
    /// What the release was told to come after.
    others: Vec<End>,
}

struct LastUse {
    queue: QueueId,
    /// The number of the command on its queue.
    number: u64,
    mark: Arc<Mark>,
}

impl Root {
    pub(crate) fn new(shared: &Arc<Shared>, body: Body, flags: MemoryFlags) -> Self {
        Self {
            shared: Arc::clone(shared),
            body: Some(body),
            flags,
            uses: Mutex::new(Uses::default()),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn flags(&self) -> MemoryFlags {
        self.flags
    }

    /// The address of the first byte, except for pages.
    pub(crate) fn address(&self) -> Option<Address> {
        match self.body.as_ref()? {
            Body::Block(allocation) | Body::Ordered(allocation, _) => Some(allocation.address()),
            Body::Reservation(reservation) => Some(reservation.address()),
            Body::Pages(_) => None,
        }
    }

    /// The context of the device whose memory it is; none for memory of the host, and for managed memory, which all devices use.
    pub(crate) fn device_context(&self) -> Option<&Arc<Context>> {
        let is_of_device = match self.body.as_ref()? {
            Body::Block(allocation) | Body::Ordered(allocation, _) => allocation.is_of_device(),
            Body::Reservation(_) | Body::Pages(_) => true,
        };
        is_of_device.then_some(&self.shared.context)
    }

    pub(crate) fn reservation(&self) -> Option<&Reservation> {
        match self.body.as_ref()? {
            Body::Reservation(reservation) => Some(reservation),
            Body::Block(_) | Body::Ordered(..) | Body::Pages(_) => None,
        }
    }

    /// The only queue whose commands may use the block, where there is one.
    pub(crate) fn queue(&self) -> Option<&CudaQueue> {
        match self.body.as_ref()? {
            Body::Ordered(_, queue) => Some(queue),
            Body::Block(_) | Body::Reservation(_) | Body::Pages(_) => None,
        }
    }

    pub(crate) fn pages(&self) -> Option<&Arc<Pages>> {
        match self.body.as_ref()? {
            Body::Pages(pages) => Some(pages),
            Body::Block(_) | Body::Ordered(..) | Body::Reservation(_) => None,
        }
    }

    /// Notes that a command uses the block.
    pub(crate) fn note_use(&self, queue: QueueId, number: u64, mark: &Arc<Mark>) {
        let mut uses = self.uses.lock();
        let mark = Arc::clone(mark);
        let commands = &mut uses.commands;
        if let Some(last) = commands.iter_mut().find(|last| last.queue == queue) {
            if last.number < number {
                (last.number, last.mark) = (number, mark);
            }
            return;
        }
        if commands.len() >= USES {
            commands.retain(|last| !End::Mark(Arc::clone(&last.mark)).has_come());
        }
        commands.push(LastUse {
            queue,
            number,
            mark,
        });
    }

    /// Adds something that the block is not freed before.
    pub(crate) fn free_after(&self, ends: impl Iterator<Item = End>) {
        self.uses.lock().others.extend(ends);
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let Some(body) = self.body.take() else {
            return;
        };
        let uses = self.uses.get_mut();
        if matches!(body, Body::Ordered(..)) {
            // It is freed behind them.
            uses.commands.clear();
        }
        let commands = uses.commands.drain(..).map(|last| End::Mark(last.mark));
        let after = commands.chain(uses.others.drain(..)).collect();
        let when = Conditions {
            nothing_unresolved: match &body {
                Body::Block(allocation) => allocation.waits(),
                Body::Reservation(_) => true,
                Body::Ordered(..) | Body::Pages(_) => false,
            },
            // The first waits for its context, the second is freed by a command of its queue.
            no_capture: matches!(body, Body::Reservation(_) | Body::Ordered(..)),
        };
        self.shared.graveyard.bury(body, after, when);
    }
}
