//! Memory that cannot be released yet, because the runtime does not show when the commands that use it have ended.
//!
//! A whole block in quarantine is counted by its allocator, and no longer by the pool. A part of a segment counts as held. Each miss and
//! trim calls [`Shared::flush`](crate::shared::Shared::flush), which tries again to release it. Memory that is still there when the pool is
//! gone is dropped without its allocator.

use binpool_allocators::Backend;

use crate::{
    block::HeldBlock,
    order::queue_uses::QueueUses,
    rare::{Rare, reached},
};

/// Memory in quarantine, with the events to wait for before it goes.
#[derive(Debug)]
pub(crate) enum Quarantined<B: Backend, O> {
    /// Memory that goes to the allocator after its uses and the events.
    Memory(B::Memory, QueueUses, Vec<B::Event>),
    /// A range that goes to its segment, which remembers its uses, after the events.
    Range(HeldBlock<B, O>, Vec<B::Event>),
}

/// All quarantined memory of a pool.
#[derive(Debug)]
pub(crate) struct Quarantine<B: Backend, O>(pub(crate) Vec<Quarantined<B, O>>);

impl<B: Backend, O> Default for Quarantine<B, O> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<B: Backend, O> Quarantine<B, O> {
    /// Adds memory whose uses can neither be followed by a marker nor waited for.
    pub(crate) fn keep(&mut self, memory: B::Memory, uses: &QueueUses, after: &[B::Event]) {
        reached(Rare::QuarantinedBlock);
        let quarantined = Quarantined::Memory(memory, uses.clone(), after.to_vec());
        self.0.push(quarantined);
    }

    /// Adds a part of a segment that goes back after these events, which cannot be waited for now.
    pub(crate) fn keep_range(&mut self, held: HeldBlock<B, O>, after: &[B::Event]) {
        reached(Rare::QuarantinedRange);
        self.0.push(Quarantined::Range(held, after.to_vec()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts of segments.
    #[cfg(feature = "snapshot")]
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &HeldBlock<B, O>> {
        self.0.iter().filter_map(|quarantined| match quarantined {
            Quarantined::Memory(..) => None,
            Quarantined::Range(held, _) => Some(held),
        })
    }

    /// The bytes of the parts of segments, which the pool still manages.
    pub(crate) fn bytes_of_ranges(&self) -> u64 {
        let bytes = self.0.iter().map(|quarantined| match quarantined {
            Quarantined::Memory(..) => 0,
            Quarantined::Range(held, _) => held.block.bytes as u64,
        });
        bytes.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use binpool_mock::MockBackend;

    use crate::mock_pool::MockPool;

    #[test]
    fn only_quarantined_parts_of_segments_count_as_held() {
        let mock = MockPool::of_segments();
        let mut quarantine = Quarantine::<MockBackend, _>::default();
        assert!(quarantine.is_empty());
        let memory = mock.shared.allocator.allocate(1024).unwrap();
        quarantine.keep(memory, &QueueUses::new(), &[]);
        assert!(!quarantine.is_empty());
        assert_eq!(quarantine.bytes_of_ranges(), 0);
        quarantine.keep_range(mock.unused(256), &[]);
        quarantine.keep_range(mock.unused(1024), &[]);
        assert_eq!(quarantine.bytes_of_ranges(), 256 + 1024);
    }
}
