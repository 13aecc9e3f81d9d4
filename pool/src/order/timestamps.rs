//! Timestamps, and a use of a block up to one of them.

use std::num::NonZeroUsize;

/// A moment of a pool's [`Clock`](crate::order::clock::Clock).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(u64);

impl Timestamp {
    pub(crate) const fn at(moment: u64) -> Self {
        Self(moment)
    }
}

/// The key of a queue state, plus one, so that it is never 0. Once that queue state is gone, another one may take over the key;
/// timestamps tell the two apart (invariant L3 of [`QueueStates`](crate::central::queue_states::QueueStates)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey(NonZeroUsize);

impl QueueKey {
    pub(crate) fn new(key: usize) -> Self {
        Self(NonZeroUsize::MIN.saturating_add(key))
    }

    pub(crate) fn get(self) -> usize {
        self.0.get() - 1
    }
}

/// A use of a free block: by commands on the queue with this key, enqueued up to this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueUse {
    pub(crate) key: QueueKey,
    pub(crate) timestamp: Timestamp,
}

/// The moment of the latest of these uses.
pub(crate) fn last_of(uses: &[QueueUse]) -> Timestamp {
    uses.iter()
        .map(|use_| use_.timestamp)
        .max()
        .unwrap_or_default()
}
