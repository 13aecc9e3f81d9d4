//! Vector clocks: the set of commands that come before something, for queues of both kinds.

use binpool_allocators::QueueId;
use smallvec::SmallVec;

/// A command's position: its queue, and its index in that queue from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) queue: QueueId,
    pub(crate) index: u64,
}

/// A set of commands. With each command it has everything that comes before that command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// By queue, ascending.
    queues: SmallVec<[QueueClock; 2]>,
}

/// The commands of one queue in a clock.
#[derive(Clone, Debug)]
struct QueueClock {
    queue: QueueId,
    /// All commands up to this one are in the set.
    upto: u64,
    /// Single commands of an out-of-order queue that are in the set, too, ascending, all beyond `upto` + 1.
    beyond: SmallVec<[u64; 2]>,
}

/// The most single commands of a queue in a clock. With more, the commands between them count as members as well: in a
/// program that waits for only every other command of an out-of-order queue a race may stay unreported, but memory
/// does not grow.
const MOST_BEYOND: usize = 256;

impl QueueClock {
    fn add(&mut self, index: u64) {
        if index <= self.upto {
            return;
        }
        if let Err(position) = self.beyond.binary_search(&index) {
            self.beyond.insert(position, index);
        }
        self.settle();
    }

    fn add_upto(&mut self, index: u64) {
        self.upto = self.upto.max(index);
        self.settle();
    }

    /// Moves commands from `beyond` to `upto` where no gap is left, or where there are too many.
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
    pub(crate) fn covers(&self, position: Position) -> bool {
        self.find(position.queue).is_ok_and(|at| {
            let queue = &self.queues[at];
            position.index <= queue.upto || queue.beyond.binary_search(&position.index).is_ok()
        })
    }

    pub(crate) fn add(&mut self, position: Position) {
        self.entry(position.queue).add(position.index);
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
    use super::{Clock, MOST_BEYOND, Position};
    use binpool_allocators::QueueId;

    #[test]
    fn a_clock_is_the_set_of_what_was_added_and_joined() {
        let [one, two] = [(); 2].map(|()| QueueId::fresh());
        let position = |queue, index| Position { queue, index };
        let (mut left, mut right) = (Clock::default(), Clock::default());
        for index in [5, 2, 1] {
            left.add(position(one, index));
        }
        right.add(position(one, 4));
        right.add(position(two, 1));
        left.join(&right);
        let covered: Vec<u64> = (1..8)
            .filter(|index| left.covers(position(one, *index)))
            .collect();
        assert_eq!(covered, [1, 2, 4, 5]);
        assert!(left.covers(position(two, 1)) && !right.covers(position(one, 5)));
        left.add(position(one, 3));
        assert_eq!((left.queues[0].upto, left.queues[0].beyond.len()), (5, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes, for numbers alone")]
    fn a_clock_stays_small_whatever_is_added() {
        let queue = QueueId::fresh();
        let mut clock = Clock::default();
        for index in (0..100_000).map(|index| 2 * index + 2) {
            clock.add(Position { queue, index });
            assert!(clock.queues[0].beyond.len() <= MOST_BEYOND);
        }
    }
}
