//! Where threads leave blocks for each other, many at a time.

use std::collections::HashMap;

use binpool_allocators::{Allocator, QueueId};

use crate::thread_cache::{Cached, bytes_of};

/// Blocks that were at the hand of a thread, which had too many, and that the next thread takes over as they are.
///
/// Moved one at a time, blocks that one thread allocates and another one drops would keep both waiting for the pool's lock.
/// After "Magazines and Vmem" (Bonwick and Adams, 2001).
#[derive(Debug)]
pub(crate) struct Depot<A: Allocator> {
    /// By queue and [place](crate::classes::Classes::place).
    magazines: HashMap<(QueueId, usize), Vec<Vec<Cached<A>>>>,
    blocks: usize,
    bytes: usize,
}

impl<A: Allocator> Default for Depot<A> {
    fn default() -> Self {
        Self {
            magazines: HashMap::new(),
            blocks: 0,
            bytes: 0,
        }
    }
}

impl<A: Allocator> Depot<A> {
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Leaves blocks of one queue and place.
    pub(crate) fn leave(&mut self, queue: QueueId, place: usize, magazine: Vec<Cached<A>>) {
        self.blocks += magazine.len();
        self.bytes += bytes_of(&magazine);
        self.magazines
            .entry((queue, place))
            .or_default()
            .push(magazine);
    }

    /// Takes what was left last for this queue and place.
    pub(crate) fn take(&mut self, queue: QueueId, place: usize) -> Option<Vec<Cached<A>>> {
        if self.blocks == 0 {
            return None;
        }
        let left = self.magazines.get_mut(&(queue, place))?;
        let magazine = left.pop()?;
        if left.is_empty() {
            self.magazines.remove(&(queue, place));
        }
        self.blocks -= magazine.len();
        self.bytes -= bytes_of(&magazine);
        Some(magazine)
    }

    /// Takes what was left for one place, or everything, what was left first of each queue and place before what came later.
    pub(crate) fn take_all(&mut self, place: Option<usize>) -> Vec<Cached<A>> {
        let is_wanted = |of: usize| place.is_none_or(|place| place == of);
        let taken = self.magazines.extract_if(|(_, of), _| is_wanted(*of));
        let taken: Vec<_> = taken.flat_map(|(_, left)| left).flatten().collect();
        self.blocks -= taken.len();
        self.bytes -= bytes_of(&taken);
        taken
    }
}
