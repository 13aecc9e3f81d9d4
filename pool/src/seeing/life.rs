//! Who has which block.

use std::sync::Arc;

use binpool_allocators::Allocator;
#[cfg(feature = "snapshot")]
use binpool_allocators::segments::RangeKey;

use crate::{
    seeing::asker::Asker,
    state::bins::Block,
    sync::{AtomicU64, Ordering},
};

/// What is known of a block while it is in its user's hands.
///
/// Written by whoever hands the block out or takes it back, in the thread's own [room](crate::biased) or under the pool's lock,
/// and read by who has closed all rooms under that lock: never at the same time. So the atomics are there for the compiler,
/// and none orders anything.
///
/// On a cache line of its own: the next one may be another thread's.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Life {
    /// What was asked for, in bytes; 0 while the block is in nobody's hands.
    asked: AtomicU64,
    /// When, in ticks of the [clock](crate::ticks).
    since: AtomicU64,
    asker: AtomicU64,
    queue: AtomicU64,
    /// Its number in the recording; 0 for none.
    id: AtomicU64,
    /// What the block takes of the device.
    #[cfg(feature = "snapshot")]
    pub(crate) bytes: usize,
    /// The range of a segment that it is.
    #[cfg(feature = "snapshot")]
    pub(crate) range: Option<RangeKey>,
}

/// A block in its user's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ownership {
    /// What was asked for, in bytes.
    pub(crate) asked: u64,
    /// When, in ticks.
    pub(crate) since: u64,
    pub(crate) asker: Asker,
    /// The number of the queue that it was asked for.
    pub(crate) queue: u64,
    /// Its number in the recording; 0 for none.
    pub(crate) id: u64,
}

impl Life {
    #[cfg_attr(
        not(feature = "snapshot"),
        expect(unused_variables, reason = "for snapshots")
    )]
    fn of<A: Allocator>(block: &Block<A>) -> Self {
        Self {
            asked: AtomicU64::new(0),
            since: AtomicU64::new(0),
            asker: AtomicU64::new(0),
            queue: AtomicU64::new(0),
            id: AtomicU64::new(0),
            #[cfg(feature = "snapshot")]
            bytes: block.bytes,
            #[cfg(feature = "snapshot")]
            range: block.range,
        }
    }

    #[inline]
    pub(crate) fn begin(&self, ownership: Ownership) {
        let Ownership {
            asked,
            since,
            asker,
            queue,
            id,
        } = ownership;
        self.asked.store(asked, Ordering::Relaxed);
        self.since.store(since, Ordering::Relaxed);
        self.asker.store(asker.packed(), Ordering::Relaxed);
        self.queue.store(queue, Ordering::Relaxed);
        self.id.store(id, Ordering::Relaxed);
    }

    /// Whose it is; `None` while it is nobody's.
    #[inline]
    pub(crate) fn now(&self) -> Option<Ownership> {
        let asked = self.asked.load(Ordering::Relaxed);
        (asked > 0).then(|| Ownership {
            asked,
            since: self.since.load(Ordering::Relaxed),
            asker: Asker::unpacked(self.asker.load(Ordering::Relaxed)),
            queue: self.queue.load(Ordering::Relaxed),
            id: self.id.load(Ordering::Relaxed),
        })
    }

    /// The block is taken back. Its number in the recording, and since when it was out; `None` where it was nobody's.
    #[inline]
    pub(crate) fn end(&self) -> Option<(u64, u64)> {
        if self.asked.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.asked.store(0, Ordering::Relaxed);
        Some((
            self.id.load(Ordering::Relaxed),
            self.since.load(Ordering::Relaxed),
        ))
    }
}

/// The lives of all blocks that were handed out since the pool began to watch.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    lives: Vec<Arc<Life>>,
    /// How many of them may be there before those are looked for whose blocks are gone.
    most: usize,
}

impl Ledger {
    /// The life of a block that has none yet.
    pub(crate) fn add<'b, A: Allocator>(&mut self, block: &'b mut Block<A>) -> &'b Arc<Life> {
        if self.lives.len() >= self.most {
            self.lives.retain(|life| Arc::strong_count(life) > 1);
            // As many again may come, so that each costs the same on average.
            self.most = (2 * self.lives.len()).max(64);
        }
        let life = Arc::new(Life::of(block));
        self.lives.push(Arc::clone(&life));
        block.life.insert(life)
    }

    /// Forgets who has which block.
    pub(crate) fn forget_all(&self) {
        for life in &self.lives {
            life.end();
        }
    }

    /// The blocks in their users' hands.
    pub(crate) fn active(&self) -> impl Iterator<Item = (&Life, Ownership)> {
        // A block that was detached is the pool's no more, and its life ended with that.
        let lives = self.lives.iter().map(Arc::as_ref);
        lives.filter_map(|life| Some((life, life.now()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_pool::{Immediate, MockPool};

    fn block(pool: &MockPool) -> Box<Block<Immediate>> {
        pool.pool.allocate(1000).unwrap().take_block().unwrap()
    }

    #[test]
    fn lives_of_blocks_that_are_gone_do_not_pile_up() {
        let mock = MockPool::of_blocks();
        let mut ledger = Ledger::default();
        let mut kept = block(&mock);
        ledger.add(&mut kept);
        for _ in 0..1000 {
            let mut gone = block(&mock);
            ledger.add(&mut gone);
            assert!(ledger.lives.len() <= 64);
        }
        let life = kept.life.as_ref().unwrap();
        assert!(ledger.lives.iter().any(|it| Arc::ptr_eq(it, life)));
    }

    #[test]
    fn a_block_is_active_from_its_beginning_to_its_end() {
        let mock = MockPool::of_blocks();
        let mut ledger = Ledger::default();
        let mut block = block(&mock);
        let life = Arc::clone(ledger.add(&mut block));
        assert_eq!(ledger.active().count(), 0);
        let ownership = Ownership {
            asked: 900,
            since: 5,
            asker: Asker::default(),
            queue: 3,
            id: 8,
        };
        life.begin(ownership);
        let active: Vec<_> = ledger.active().map(|(_, ownership)| ownership).collect();
        assert_eq!(active, [ownership]);
        assert_eq!(life.end(), Some((8, 5)));
        assert_eq!((life.end(), ledger.active().count()), (None, 0));
    }
}
