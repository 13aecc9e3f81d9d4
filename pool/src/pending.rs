//! Free blocks that commands may still use.

use binpool_allocators::{Allocator, Event, EventOf, QueueOf};
use slab::Slab;
use smallvec::SmallVec;

use crate::bins::Block;

/// Events of the queues that a block was used on: few, mostly one or two.
pub(crate) type Events<A> = SmallVec<[EventOf<A>; 2]>;

/// A free block, and the events after which no command uses it.
#[derive(Debug)]
pub(crate) struct PendingBlock<A: Allocator> {
    pub(crate) block: Block<A>,
    pub(crate) events: Events<A>,
    /// The queues of the events.
    pub(crate) queues: SmallVec<[QueueOf<A>; 2]>,
}

/// Names a pending block, also after it has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingId {
    key: usize,
    age: u64,
}

/// The free blocks of a pool that commands may still use, oldest first.
#[derive(Debug)]
pub(crate) struct Pending<A: Allocator> {
    blocks: Slab<(u64, PendingBlock<A>)>,
    next_age: u64,
    bytes: u64,
}

impl<A: Allocator> Default for Pending<A> {
    fn default() -> Self {
        Self {
            blocks: Slab::new(),
            next_age: 0,
            bytes: 0,
        }
    }
}

impl<A: Allocator> Pending<A> {
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn largest_bytes(&self) -> usize {
        let sizes = self
            .blocks
            .iter()
            .map(|(_, (_, pending))| pending.block.bytes);
        sizes.max().unwrap_or(0)
    }

    pub(crate) fn push(&mut self, pending: PendingBlock<A>) {
        self.bytes += pending.block.bytes as u64;
        self.blocks.insert((self.next_age, pending));
        self.next_age += 1;
    }

    /// The events of the blocks that `wanted` picks, to be looked at without a lock.
    pub(crate) fn watch(&self, wanted: impl Fn(&Block<A>) -> bool) -> Vec<(PendingId, Events<A>)> {
        let picked = self
            .blocks
            .iter()
            .filter(|(_, (_, pending))| wanted(&pending.block));
        picked
            .map(|(key, (age, pending))| (PendingId { key, age: *age }, pending.events.clone()))
            .collect()
    }

    /// Takes a block out; `None` where somebody else has. Its events come with it, because letting go of an
    /// event is a call to the device, which wants no lock held.
    pub(crate) fn take(&mut self, id: PendingId) -> Option<PendingBlock<A>> {
        let (age, _) = self.blocks.get(id.key)?;
        if *age != id.age {
            return None;
        }
        let (_, pending) = self.blocks.remove(id.key);
        self.bytes -= pending.block.bytes as u64;
        Some(pending)
    }

    /// Every queue that a pending block waits for, once.
    pub(crate) fn queues(&self) -> Vec<QueueOf<A>> {
        let mut queues: Vec<QueueOf<A>> = Vec::new();
        for (_, (_, pending)) in &self.blocks {
            for queue in &pending.queues {
                if !queues.contains(queue) {
                    queues.push(queue.clone());
                }
            }
        }
        queues
    }

    /// Takes every block out.
    pub(crate) fn drain(&mut self) -> Vec<PendingBlock<A>> {
        self.bytes = 0;
        self.blocks.drain().map(|(_, pending)| pending).collect()
    }
}

/// Whether every event has ended. A command that failed has ended too: it touches nothing any more.
///
/// An event whose status cannot be told counts as not ended: its block stays where it is.
pub(crate) fn have_ended<E: Event>(events: &[E]) -> bool {
    events.iter().all(|event| {
        event
            .status()
            .is_ok_and(binpool_allocators::EventStatus::has_ended)
    })
}
