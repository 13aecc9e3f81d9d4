//! Whole blocks, and the commands that use them.

use std::sync::Arc;

use binpool_allocators::{MemoryFlags, QueueId};
use parking_lot::Mutex;

use crate::{
    graveyard::{Conditions, End},
    queue::CudaQueue,
    shared::Shared,
    sys::{Address, Allocation, Context, LastUses, Mark, Pages, Reservation},
};

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
    commands: LastUses,
    /// What the release was told to come after.
    others: Vec<End>,
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

    /// Notes a command that uses the block.
    pub(crate) fn note_use(&self, queue: QueueId, number: u64, mark: &Arc<Mark>) {
        self.uses.lock().commands.note(queue, number, mark);
    }

    /// Notes a command of a context that uses the block, and whose end no event tells.
    pub(crate) fn note_unknown_use(&self, context: &Arc<Context>) {
        self.uses.lock().commands.note_unknown(context);
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
        let (mut marks, unknown) = uses.commands.take();
        if matches!(body, Body::Ordered(..)) {
            // It is freed behind them.
            marks.clear();
        }
        let commands = marks.into_iter().map(End::Mark);
        let unknown = unknown.into_iter().map(End::Everything);
        let others = uses.others.drain(..);
        let after = commands.chain(unknown).chain(others).collect();
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
