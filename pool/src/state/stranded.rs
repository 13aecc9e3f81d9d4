//! Memory that cannot be given back yet: the runtime would not even say when the commands that use it have ended.
//!
//! A block of its own is neither the program's nor the pool's any more, and its allocator still counts it; a part of a
//! segment counts as held. [`Shared::flush`], which whoever misses or trims calls, tries again. What is left when the pool
//! has gone is dropped, past its allocator.

use binpool_allocators::{Allocator, EventOf, MemoryOf};

use crate::{
    shared::Shared,
    state::{bins::HeldBlock, fences::has_ended, lane::Uses},
};

/// What is to be tried again, with the events of its release.
#[derive(Debug)]
enum Stranded<A: Allocator> {
    /// It goes to the allocator behind its uses.
    Memory(MemoryOf<A>, Uses, Vec<EventOf<A>>),
    /// It goes to its segment, which remembers its uses, after the events.
    Range(HeldBlock<A>, Vec<EventOf<A>>),
}

/// All that is stranded in a pool.
#[derive(Debug)]
pub(crate) struct Strand<A: Allocator>(Vec<Stranded<A>>);

impl<A: Allocator> Default for Strand<A> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<A: Allocator> Strand<A> {
    /// Keeps memory whose uses can be neither marked nor waited for.
    pub(crate) fn keep(&mut self, memory: MemoryOf<A>, uses: &Uses, after: &[EventOf<A>]) {
        let stranded = Stranded::Memory(memory, uses.clone(), after.to_vec());
        self.0.push(stranded);
    }

    /// Keeps a part of a segment that goes back after these events, for which nobody can wait now.
    pub(crate) fn keep_range(&mut self, held: HeldBlock<A>, after: &[EventOf<A>]) {
        self.0.push(Stranded::Range(held, after.to_vec()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts of segments.
    #[cfg(feature = "snapshot")]
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &HeldBlock<A>> {
        self.0.iter().filter_map(|stranded| match stranded {
            Stranded::Memory(..) => None,
            Stranded::Range(held, _) => Some(held),
        })
    }

    /// What the pool still manages of it.
    pub(crate) fn bytes_of_ranges(&self) -> u64 {
        let bytes = self.0.iter().map(|stranded| match stranded {
            Stranded::Memory(..) => 0,
            Stranded::Range(held, _) => held.block.bytes as u64,
        });
        bytes.sum()
    }
}

impl<A: Allocator> Shared<A> {
    /// Tries again to give back what is stranded.
    pub(crate) fn release_stranded(&self) {
        let stranded = std::mem::take(&mut self.state.lock().strand);
        for stranded in stranded.0 {
            match stranded {
                Stranded::Memory(memory, uses, after) => {
                    if let Err(error) = self.release(memory, &uses, &after) {
                        tracing::warn!(%error, "memory can still not be given back cleanly");
                    }
                }
                // Whoever flushes may be the one that they wait for.
                Stranded::Range(held, after) if !after.iter().all(has_ended) => {
                    self.state.lock().strand.keep_range(held, &after);
                }
                Stranded::Range(held, _) => {
                    self.state.lock().in_transit += 1;
                    if self.scrubber.is_on_free() {
                        self.set_apart(held);
                    } else {
                        self.return_to_segment(held);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_pool::{Immediate, MockPool};

    #[test]
    fn what_is_stranded_is_known_of_and_parts_of_segments_count() {
        let mock = MockPool::of_segments();
        let mut strand = Strand::<Immediate>::default();
        assert!(strand.is_empty());
        let memory = mock.shared.allocator.allocate(1024).unwrap();
        strand.keep(memory, &Uses::new(), &[]);
        assert!(!strand.is_empty());
        assert_eq!(strand.bytes_of_ranges(), 0);
        strand.keep_range(mock.unused(256), &[]);
        strand.keep_range(mock.unused(1024), &[]);
        assert_eq!(strand.bytes_of_ranges(), 256 + 1024);
    }
}
