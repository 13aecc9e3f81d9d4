//! Timestamps, and the queues that a block was used on up to them.

use std::num::NonZeroUsize;

use smallvec::SmallVec;

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

/// The uses of a free block, usually one. The first is on the queue that it was allocated for.
pub(crate) type QueueUses = SmallVec<[QueueUse; 1]>;

/// Returns the uses of two neighbouring free ranges together, if they may become one range: that is, if at most one queue used
/// them. With uses on several queues, commands of one queue would keep the bytes of the other from their next user.
pub(crate) fn join(one: &QueueUses, two: &QueueUses) -> Option<QueueUses> {
    // Nearly all free ranges have one use or none.
    match (&one[..], &two[..]) {
        ([], uses) | (uses, []) if uses.len() <= 1 => Some(QueueUses::from(uses)),
        ([one], [two]) if one.key != two.key => None,
        _ => {
            let uses = together(one, two);
            (uses.len() <= 1).then_some(uses)
        }
    }
}

/// Returns all of these uses, the latest of each queue.
pub(crate) fn together(one: &[QueueUse], two: &[QueueUse]) -> QueueUses {
    let mut uses = QueueUses::from(one);
    for use_ in two {
        add_to(&mut uses, *use_);
    }
    uses
}

/// Adds a use to `uses`, which have at most one of each queue: the later one stays.
pub(crate) fn add_to(uses: &mut QueueUses, use_: QueueUse) {
    match uses.iter_mut().find(|other| other.key == use_.key) {
        Some(other) => other.timestamp = other.timestamp.max(use_.timestamp),
        None => uses.push(use_),
    }
}

/// The moment of the latest of these uses.
pub(crate) fn last_of(uses: &[QueueUse]) -> Timestamp {
    uses.iter()
        .map(|use_| use_.timestamp)
        .max()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(of: &[(usize, u64)]) -> QueueUses {
        let uses = of.iter().map(|(queue_key, moment)| QueueUse {
            key: QueueKey::new(*queue_key),
            timestamp: Timestamp::at(*moment),
        });
        uses.collect()
    }

    #[test]
    fn neighbours_join_if_at_most_one_queue_used_them() {
        let none: &[_] = &[];
        let programs = [
            (none, none, Some(none)),
            (&[(1, 5)], none, Some(&[(1, 5)])),
            (&[(1, 5)], &[(1, 7)], Some(&[(1, 7)])),
            (&[(1, 5)], &[(2, 5)], None),
            (none, &[(1, 5), (2, 5)], None),
            (&[(1, 5)], &[(1, 5), (2, 5)], None),
        ];
        for (one, two, joined) in programs {
            let (one, two, joined) = (uses(one), uses(two), joined.map(uses));
            assert_eq!(join(&one, &two), joined, "{one:?} {two:?}");
            assert_eq!(join(&two, &one), joined, "{two:?} {one:?}");
        }
    }
}
