//! Which commands come before something: vector clocks for queues of both kinds.

use binpool_allocators::QueueId;
use smallvec::SmallVec;

/// A command by its place in its queue, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) queue: QueueId,
    pub(crate) index: u64,
}

/// A set of commands that is closed under what comes before them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// By queue, ascending.
    queues: SmallVec<[QueueClock; 2]>,
}

/// The part of a clock that is about one queue.
#[derive(Clone, Debug)]
struct QueueClock {
    queue: QueueId,
    /// All commands up to this one are in the set,
    upto: u64,
    /// and these single ones of an out-of-order queue, ascending, all beyond `upto` + 1.
    beyond: SmallVec<[u64; 2]>,
}

/// How many single commands of a queue a clock keeps. With more, those between count as seen too: a program that
/// waits for every other command only of an out-of-order queue goes with a race unreported, not with memory that
/// grows.
const MOST_BEYOND: usize = 256;

impl QueueClock {
    fn add(&mut self, index: u64) {
        if index <= self.upto {
            return;
        }
        if let Err(place) = self.beyond.binary_search(&index) {
            self.beyond.insert(place, index);
        }
        self.settle();
    }

    fn add_upto(&mut self, index: u64) {
        self.upto = self.upto.max(index);
        self.settle();
    }

    /// Keeps `beyond` beyond.
    fn settle(&mut self) {
        if self.beyond.len() > MOST_BEYOND {
            self.upto = self.upto.max(self.beyond[0]);
        }
        let mut settled = 0;
        for index in &self.beyond {
            if *index > self.upto + 1 {
                break;
            }
            self.upto = self.upto.max(*index);
            settled += 1;
        }
        self.beyond.drain(..settled);
    }
}

impl Clock {
    pub(crate) fn covers(&self, place: Place) -> bool {
        self.find(place.queue).is_ok_and(|at| {
            let queue = &self.queues[at];
            place.index <= queue.upto || queue.beyond.binary_search(&place.index).is_ok()
        })
    }

    pub(crate) fn add(&mut self, place: Place) {
        self.entry(place.queue).add(place.index);
    }

    pub(crate) fn join(&mut self, other: &Self) {
        for theirs in &other.queues {
            let ours = self.entry(theirs.queue);
            ours.add_upto(theirs.upto);
            for index in &theirs.beyond {
                ours.add(*index);
            }
        }
    }

    fn find(&self, queue: QueueId) -> Result<usize, usize> {
        self.queues
            .binary_search_by_key(&queue, |queue| queue.queue)
    }

    fn entry(&mut self, queue: QueueId) -> &mut QueueClock {
        let at = self.find(queue).unwrap_or_else(|at| {
            let none = QueueClock {
                queue,
                upto: 0,
                beyond: SmallVec::new(),
            };
            self.queues.insert(at, none);
            at
        });
        &mut self.queues[at]
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, MOST_BEYOND, Place};
    use binpool_allocators::QueueId;

    #[test]
    fn a_clock_is_the_set_of_what_was_added_and_joined() {
        let [one, two] = [(); 2].map(|()| QueueId::fresh());
        let place = |queue, index| Place { queue, index };
        let (mut left, mut right) = (Clock::default(), Clock::default());
        for index in [5, 2, 1] {
            left.add(place(one, index));
        }
        right.add(place(one, 4));
        right.add(place(two, 1));
        left.join(&right);
        let covered: Vec<u64> = (1..8)
            .filter(|index| left.covers(place(one, *index)))
            .collect();
        assert_eq!(covered, [1, 2, 4, 5]);
        assert!(left.covers(place(two, 1)) && !right.covers(place(one, 5)));
        left.add(place(one, 3));
        assert_eq!((left.queues[0].upto, left.queues[0].beyond.len()), (5, 0));
    }

    #[test]
    fn a_clock_stays_small_whatever_is_added() {
        let queue = QueueId::fresh();
        let mut clock = Clock::default();
        for index in (0..100_000).map(|index| 2 * index + 2) {
            clock.add(Place { queue, index });
            assert!(clock.queues[0].beyond.len() <= MOST_BEYOND);
        }
    }
}
