//! What a thread does: mostly allocating and dropping, and now and then everything else.

use std::{cell::RefCell, mem};

use binpool::{Allocator, PoolError, Queue, QueueOrder};
use binpool_conformance::Random;

use crate::{
    books::Tally,
    rig::{CAPACITY, Held, MOST_IN_A_BOX, Rig, THREADS},
};

/// The most blocks in a thread's hand.
const MOST_IN_HAND: usize = 24;

/// The largest block whose bytes are written and read.
const LARGEST_MARKED: usize = 4 << 10;

/// The limit is set to a power of two from this exponent on, in bytes: less than the threads have in hand.
const LEAST_LIMIT: u32 = 18;

/// How many such powers there are.
const LIMITS: usize = 7;

thread_local! {
    /// Blocks that the thread's end drops, maybe after the pool's own part of it.
    static LAST: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct Worker<'a> {
    rig: &'a Rig,
    place: usize,
    random: Random,
    hand: Vec<Held>,
    tally: Tally,
    /// The pool that this thread has told to hold nothing.
    stopped: Option<usize>,
}

impl<'a> Worker<'a> {
    /// A thread that takes over the hand of the one before.
    pub(crate) fn new(rig: &'a Rig, place: usize, seed: u64, hand: Vec<Held>) -> Self {
        Self {
            rig,
            place,
            random: Random::new(seed),
            hand,
            tally: Tally::default(),
            stopped: None,
        }
    }

    /// What is in hand at the end, and what was done, added to this.
    pub(crate) fn leave(self, mut before: Tally) -> (Vec<Held>, Tally) {
        before += self.tally;
        (self.hand, before)
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.random.below(times) == 0
    }

    /// This many operations, on the thread that it is called on.
    pub(crate) fn live(&mut self, steps: u64) {
        for _ in 0..steps {
            self.step();
        }
        if let Some(pool) = self.stopped.take() {
            self.rig.pools[pool].resume_holding();
        }
        if self.one_in(4) {
            let left = mem::take(&mut self.hand);
            self.tally.dropped += left.len() as u64;
            LAST.with_borrow_mut(|last| last.extend(left));
        }
    }

    fn step(&mut self) {
        self.tally.operations += 1;
        let which = self.random.below(1024);
        match which {
            0..996 if self.hand.len() > self.random.below(MOST_IN_HAND) => self.drop_one(),
            0..996 => self.allocate(),
            996..1004 => self.send(),
            1004..1010 => self.receive(),
            1010..1015 => self.move_one(),
            1015..1018 => self.release_by_command(),
            1018 => self.cache(),
            1019 => self.detach(),
            1020 => self.recycle_small(),
            _ => self.rarely(),
        }
    }

    fn size(&mut self) -> usize {
        match self.random.below(512) {
            0 => 1 + self.random.below(1 << 20),
            1..32 => 1 + self.random.below(64 << 10),
            // Sizes that come again and again, and sizes that do not.
            32..272 => 512 << self.random.below(4),
            _ => 1 + self.random.below(LARGEST_MARKED),
        }
    }

    fn pool(&mut self) -> usize {
        match self.random.below(128) {
            0..60 => 0,
            60..120 => 1,
            120..126 => 2,
            _ => 3,
        }
    }

    fn queue(&mut self) -> usize {
        // Each has a favourite.
        if self.one_in(16) {
            self.random.below(self.rig.queues.len())
        } else {
            self.place % 3
        }
    }

    fn allocate(&mut self) {
        let (pool, queue, bytes) = (self.pool(), self.queue(), self.size());
        let result = self.rig.pools[pool].allocate_on(&self.rig.queues[queue], bytes);
        match result {
            Ok(block) => {
                self.tally.allocated[pool] += 1;
                let mut held = Held {
                    block,
                    pool,
                    mark: None,
                };
                if bytes <= LARGEST_MARKED && self.one_in(16) {
                    self.mark(&mut held, queue);
                }
                self.hand.push(held);
            }
            Err(error) => self.run_out(pool, &error),
        }
    }

    fn run_out(&mut self, pool: usize, error: &PoolError) {
        if error.is_out_of_memory() {
            self.tally.out_of_memory[pool] += 1;
            // Under a limit that stays low the threads would do nothing else.
            if self.one_in(32) {
                self.rig.budget.set_max_bytes(CAPACITY);
            }
        } else {
            self.tally.failed[pool] += 1;
        }
        // Others may have it then.
        for _ in 0..self.hand.len().div_ceil(2) {
            self.drop_one();
        }
    }

    /// Writes every byte, in one of three ways. A fresh block of a pool that scrubs has zeros before.
    fn mark(&mut self, held: &mut Held, place: usize) {
        let queue = &self.rig.queues[place];
        if self.rig.scrubs[held.pool] && held.mark.is_none() {
            held.mark = Some((0, place));
            self.tally.check_bytes(self.rig, held);
        }
        held.mark = None;
        let mark = u8::try_from(self.random.below(256)).expect("a byte");
        let block = &held.block;
        let marked = match self.random.below(3) {
            0 => block.enqueue_fill(queue, 0..block.size(), &[mark]).is_ok(),
            1 => block
                .enqueue_write(queue, 0, vec![mark; block.size()].into())
                .is_ok(),
            _ => self.mark_halves(held, place, mark),
        };
        // On a queue without an order, what comes next has to be put after it.
        let in_order = queue.order() == QueueOrder::InOrder;
        if marked && (in_order || held.block.order_before(queue).is_ok()) {
            held.mark = Some((mark, place));
            self.tally.marked += 1;
        }
    }

    /// A slice of the first half where there is one, and what lies after it.
    fn mark_halves(&self, held: &Held, place: usize, mark: u8) -> bool {
        let (queue, block) = (&self.rig.queues[place], &held.block);
        let half = block.size() / 2;
        if half == 0 {
            return false;
        }
        let first = block
            .slice(..half)
            .is_ok_and(|slice| slice.enqueue_fill(queue, .., &[mark]).is_ok());
        first
            && block
                .enqueue_fill(queue, half..block.size(), &[mark])
                .is_ok()
    }

    fn drop_one(&mut self) {
        let place = self.random.below(self.hand.len());
        if self.hand.is_empty() {
            return;
        }
        let held = self.hand.swap_remove(place);
        self.drop_held(held);
    }

    fn drop_held(&mut self, held: Held) {
        self.tally.check_bytes(self.rig, &held);
        self.tally.dropped += 1;
        drop(held);
    }

    fn take(&mut self) -> Option<Held> {
        let place = self.random.below(self.hand.len());
        (!self.hand.is_empty()).then(|| self.hand.swap_remove(place))
    }

    /// Another thread drops it.
    fn send(&mut self) {
        let Some(held) = self.take() else { return };
        let to = self.random.below(THREADS);
        let mut mailbox = self.rig.mailboxes[to].lock().unwrap();
        if mailbox.len() < MOST_IN_A_BOX {
            mailbox.push(held);
            self.tally.sent += 1;
        } else {
            drop(mailbox);
            self.drop_held(held);
        }
    }

    fn receive(&mut self) {
        let received = mem::take(&mut *self.rig.mailboxes[self.place].lock().unwrap());
        for held in received {
            if self.hand.len() < MOST_IN_HAND && self.one_in(2) {
                self.hand.push(held);
            } else {
                self.drop_held(held);
            }
        }
    }

    /// To another queue, with its bytes.
    fn move_one(&mut self) {
        let Some(mut held) = self.take() else { return };
        let to = self.random.below(self.rig.queues.len());
        let queue = &self.rig.queues[to];
        let moved = match self.random.below(3) {
            0 => held.block.order_before(queue).is_ok(),
            1 => held.block.bind_to_queue(queue).is_ok(),
            _ => held.block.unbind_from_queue().is_ok(),
        };
        if moved {
            self.tally.moved += 1;
            held.mark = held.mark.map(|(mark, _)| (mark, to));
            self.tally.check_bytes(self.rig, &held);
        }
        self.hand.push(held);
    }

    fn release_by_command(&mut self) {
        let Some(held) = self.take() else { return };
        self.tally.check_bytes(self.rig, &held);
        let queue = self.random.below(self.rig.queues.len());
        // A failure is the device's; the block is gone anyway.
        let _failed = held
            .block
            .enqueue_release(Some(&self.rig.queues[queue]), &[]);
        self.tally.enqueued_releases += 1;
    }

    fn cache(&mut self) {
        let Some(held) = self.take() else { return };
        let mut cache = self.rig.cache.lock().unwrap();
        if cache.len() < MOST_IN_A_BOX {
            cache.push(held);
            self.tally.cached += 1;
        } else {
            drop(cache);
            self.hand.push(held);
        }
    }

    /// Out of the pool for good, and to the allocator, where it is a block of its own.
    fn detach(&mut self) {
        let Some(mut held) = self.take() else { return };
        let pool = held.pool;
        if pool != 1 || held.block.unbind_from_queue().is_err() {
            self.hand.push(held);
            return;
        }
        if let Some(memory) = held.block.detach() {
            self.tally.detached += 1;
            let _failed = self.rig.pools[pool].allocator().release(memory, &[]);
        }
    }

    /// Many blocks of one size at once: more than a thread caches.
    fn recycle_small(&mut self) {
        let pool = self.random.below(2);
        let queue = &self.rig.queues[self.place % 3];
        let blocks = 1 + self.random.below(100);
        let blocks: Vec<_> = (0..blocks)
            .map(|_| self.rig.pools[pool].allocate_on(queue, 256))
            .collect();
        for block in blocks {
            match block {
                Ok(block) => {
                    self.tally.allocated[pool] += 1;
                    self.tally.dropped += 1;
                    drop(block);
                }
                Err(error) if error.is_out_of_memory() => self.tally.out_of_memory[pool] += 1,
                Err(_) => self.tally.failed[pool] += 1,
            }
        }
    }

    /// What a program does a few times a second.
    fn rarely(&mut self) {
        if !self.one_in(8) {
            return;
        }
        let which = self.random.below(self.rig.pools.len());
        let pool = &self.rig.pools[which];
        let random = self.random.next();
        match self.random.below(16) {
            0..3 => {
                let exponent = LEAST_LIMIT + u32::try_from(self.random.below(LIMITS)).expect("few");
                self.rig.budget.set_max_bytes(1 << exponent);
                self.tally.limits_changed += 1;
            }
            3 => {
                self.rig.budget.set_max_bytes(CAPACITY);
                self.tally.limits_changed += 1;
            }
            4 | 5 => {
                pool.trim_to(random % (4 << 20));
                self.tally.trimmed += 1;
            }
            6 => {
                pool.free_held();
            }
            7 => {
                pool.sweep();
            }
            8 | 9 if self.stopped.is_none() => {
                pool.stop_holding();
                self.stopped = Some(which);
                self.tally.stopped_holding += 1;
            }
            8..12 => {
                if let Some(pool) = self.stopped.take() {
                    self.rig.pools[pool].resume_holding();
                }
            }
            12 => pool.retire_queue(&self.rig.queues[self.place % 3]),
            13 => {
                let fits = pool.would_fit(4096);
                assert!(fits || self.rig.budget.available_bytes() < CAPACITY);
            }
            _ => {
                let statistics = pool.statistics();
                assert!(statistics.held_bytes <= statistics.managed_bytes);
            }
        }
    }
}
