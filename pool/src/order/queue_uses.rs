//! The queues on which a free block was used, and until when.

use std::{
    ops::{Deref, DerefMut},
    slice,
};

use crate::order::timestamps::QueueUse;

/// The uses of a free block, at most one of each queue. The first is on the queue that it was allocated for.
///
/// Nearly all blocks have one use or none. These are copied without a call, because a free range passes its uses on to each part
/// of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum QueueUses {
    #[default]
    None,
    One(QueueUse),
    /// At least two uses.
    Many(Vec<QueueUse>),
}

impl QueueUses {
    pub(crate) const fn new() -> Self {
        Self::None
    }

    pub(crate) fn push(&mut self, use_: QueueUse) {
        match self {
            Self::None => *self = Self::One(use_),
            Self::One(first) => *self = Self::Many(vec![*first, use_]),
            Self::Many(uses) => uses.push(use_),
        }
    }
}

impl Deref for QueueUses {
    type Target = [QueueUse];

    #[inline]
    fn deref(&self) -> &[QueueUse] {
        match self {
            Self::None => &[],
            Self::One(only) => slice::from_ref(only),
            Self::Many(uses) => uses,
        }
    }
}

impl DerefMut for QueueUses {
    fn deref_mut(&mut self) -> &mut [QueueUse] {
        match self {
            Self::None => &mut [],
            Self::One(only) => slice::from_mut(only),
            Self::Many(uses) => uses,
        }
    }
}

impl FromIterator<QueueUse> for QueueUses {
    fn from_iter<T: IntoIterator<Item = QueueUse>>(iter: T) -> Self {
        let mut uses = Self::new();
        for use_ in iter {
            uses.push(use_);
        }
        uses
    }
}

impl<'a> IntoIterator for &'a QueueUses {
    type Item = &'a QueueUse;
    type IntoIter = slice::Iter<'a, QueueUse>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Returns the combined uses of two neighbouring free ranges if these may become one range: if at most one queue used them. Otherwise
/// commands of one queue would keep the bytes of the other from their next user.
pub(crate) fn join(one: &QueueUses, two: &QueueUses) -> Option<QueueUses> {
    match (one, two) {
        (QueueUses::None, QueueUses::None) => Some(QueueUses::None),
        (QueueUses::None, QueueUses::One(only)) | (QueueUses::One(only), QueueUses::None) => {
            Some(QueueUses::One(*only))
        }
        (QueueUses::One(one), QueueUses::One(two)) if one.key == two.key => {
            let timestamp = one.timestamp.max(two.timestamp);
            Some(QueueUses::One(QueueUse { timestamp, ..*one }))
        }
        _ => None,
    }
}

/// As [`join`], but a range that no command uses stays apart from one that a queue used. For pages, where all free memory may be one row of
/// neighbours: joined, all of it would be reserved for the queue of the last block until its commands are known to have ended.
pub(crate) fn join_of_one_kind(one: &QueueUses, two: &QueueUses) -> Option<QueueUses> {
    let is_unused = |uses: &QueueUses| matches!(uses, QueueUses::None);
    (is_unused(one) == is_unused(two)).then(|| join(one, two))?
}

/// Returns all of these uses, the latest of each queue.
pub(crate) fn together(one: &[QueueUse], two: &[QueueUse]) -> QueueUses {
    let mut uses: QueueUses = one.iter().copied().collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::timestamps::{QueueKey, Timestamp};

    fn uses(of: &[(usize, u64)]) -> QueueUses {
        let uses = of.iter().map(|(queue_key, moment)| QueueUse {
            key: QueueKey::new(*queue_key),
            timestamp: Timestamp::at(*moment),
        });
        uses.collect()
    }

    type Uses<'a> = &'a [(usize, u64)];

    /// Checks what two neighbours become, in both orders.
    fn check(
        join: fn(&QueueUses, &QueueUses) -> Option<QueueUses>,
        programs: &[(Uses<'_>, Uses<'_>, Option<Uses<'_>>)],
    ) {
        for (one, two, joined) in programs {
            let (one, two, joined) = (uses(one), uses(two), joined.map(uses));
            assert_eq!(join(&one, &two), joined, "{one:?} {two:?}");
            assert_eq!(join(&two, &one), joined, "{two:?} {one:?}");
        }
    }

    #[test]
    fn neighbours_join_if_at_most_one_queue_used_them() {
        let none: &[_] = &[];
        let programs: [(Uses<'_>, Uses<'_>, Option<Uses<'_>>); 6] = [
            (none, none, Some(none)),
            (&[(1, 5)], none, Some(&[(1, 5)])),
            (&[(1, 5)], &[(1, 7)], Some(&[(1, 7)])),
            (&[(1, 5)], &[(2, 5)], None),
            (none, &[(1, 5), (2, 5)], None),
            (&[(1, 5)], &[(1, 5), (2, 5)], None),
        ];
        check(join, &programs);
    }

    #[test]
    fn unused_neighbours_of_used_ones_stay_apart_where_that_is_wanted() {
        let none: &[_] = &[];
        let programs: [(Uses<'_>, Uses<'_>, Option<Uses<'_>>); 6] = [
            (none, none, Some(none)),
            (&[(1, 5)], none, None),
            (&[(1, 5)], &[(1, 7)], Some(&[(1, 7)])),
            (&[(1, 5)], &[(2, 5)], None),
            (none, &[(1, 5), (2, 5)], None),
            (&[(1, 5)], &[(1, 5), (2, 5)], None),
        ];
        check(join_of_one_kind, &programs);
    }
}
