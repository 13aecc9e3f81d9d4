//! What a pool keeps under its lock.

use binpool_allocators::{Allocator, Queue, QueueId, QueueOf, QueueOrder};
use slab::Slab;

use crate::{
    PoolStatistics,
    bins::{Bins, Block},
    pending::{Events, Pending},
};

/// The free blocks whose last user was one in-order queue: ready for the next user on that queue.
#[derive(Debug)]
pub(crate) struct Stock<A: Allocator> {
    pub(crate) queue: QueueOf<A>,
    pub(crate) bins: Bins<A>,
    /// Blocks that were allocated for the queue and are in the user's hands, or on their way there. While
    /// there are any, the stock stays, and its key stands for this queue.
    active: usize,
    /// Whether memory went back to the allocator that the queue's commands may still keep from being freed.
    pub(crate) draining: bool,
}

/// Everything of a pool that changes.
///
/// # Invariants
///
/// - I1: there is one stock for each queue, and the home queue's is never removed.
/// - I2: blocks are in a stock only if the stock's queue is in order and was their only user.
/// - I3: `managed_bytes = active blocks in whole + held_bytes`.
#[derive(Debug)]
pub(crate) struct State<A: Allocator> {
    stocks: Slab<Stock<A>>,
    /// Blocks that no command uses: ready for any queue.
    pub(crate) common: Bins<A>,
    pub(crate) pending: Pending<A>,
    /// Queues that no block needs any more, but whose commands may still keep released memory from being
    /// freed: until these events have ended.
    pub(crate) drains: Vec<(QueueOf<A>, Events<A>)>,
    /// Whether freed blocks are kept. Off for good once the last handle of the pool is gone.
    pub(crate) holding: bool,
    counters: PoolStatistics,
}

impl<A: Allocator> State<A> {
    pub(crate) fn new(home: &QueueOf<A>) -> Self {
        let mut state = Self {
            stocks: Slab::new(),
            common: Bins::default(),
            pending: Pending::default(),
            drains: Vec::new(),
            holding: true,
            counters: PoolStatistics::default(),
        };
        state.add_stock(home);
        state
    }

    fn add_stock(&mut self, queue: &QueueOf<A>) -> usize {
        self.stocks.insert(Stock {
            queue: queue.clone(),
            bins: Bins::default(),
            active: 0,
            draining: false,
        })
    }

    /// The key of the stock of this queue, where it has one.
    fn find_stock(&self, queue: QueueId) -> Option<usize> {
        self.stocks
            .iter()
            .find(|(_, stock)| stock.queue.id() == queue)
            .map(|(key, _)| key)
    }

    /// The key of this queue's stock, which stays until [`leave`](Self::leave) is called with it.
    pub(crate) fn enter(&mut self, queue: &QueueOf<A>) -> usize {
        let key = self
            .find_stock(queue.id())
            .unwrap_or_else(|| self.add_stock(queue));
        if let Some(stock) = self.stocks.get_mut(key) {
            stock.active += 1;
        }
        key
    }

    /// Ends what [`enter`](Self::enter) began.
    pub(crate) fn leave(&mut self, key: usize) {
        if let Some(stock) = self.stocks.get_mut(key) {
            stock.active -= 1;
        }
    }

    pub(crate) fn stock_mut(&mut self, key: usize) -> Option<&mut Stock<A>> {
        self.stocks.get_mut(key)
    }

    /// A free block of exactly this bin that the queue of stock `key` may have at once.
    pub(crate) fn pop(&mut self, key: usize, bin: usize, bytes: usize) -> Option<Block<A>> {
        let own = self.stocks.get_mut(key);
        own.and_then(|stock| stock.bins.pop(bin, bytes))
            .or_else(|| self.common.pop(bin, bytes))
    }

    /// A free block of this bin, or else of the least larger one, that the queue of stock `key` may have at
    /// once.
    pub(crate) fn pop_fitting(&mut self, key: usize, bin: usize, bytes: usize) -> Option<Block<A>> {
        let own = self
            .stocks
            .get(key)
            .and_then(|stock| stock.bins.least_fitting(bin, bytes));
        let common = self.common.least_fitting(bin, bytes);
        let bin = own.into_iter().chain(common).min()?;
        self.pop(key, bin, bytes)
    }

    /// Counts a block into the user's hands.
    pub(crate) fn activate(&mut self, asked: usize, block_bytes: usize, hit: bool) {
        let counters = &mut self.counters;
        counters.active_blocks += 1;
        counters.active_bytes += asked as u64;
        counters.peak_active_bytes = counters.peak_active_bytes.max(counters.active_bytes);
        if hit {
            counters.hits += 1;
        } else {
            counters.misses += 1;
            counters.managed_bytes += block_bytes as u64;
            counters.peak_managed_bytes = counters.peak_managed_bytes.max(counters.managed_bytes);
        }
    }

    /// Counts a block out of the user's hands.
    pub(crate) fn deactivate(&mut self, key: usize, asked: usize) {
        self.leave(key);
        self.counters.active_blocks -= 1;
        self.counters.active_bytes -= asked as u64;
    }

    /// Counts a block out of the pool.
    pub(crate) fn forget(&mut self, block_bytes: usize) {
        self.counters.managed_bytes -= block_bytes as u64;
    }

    pub(crate) fn count_empty(&mut self) {
        self.counters.empty_allocations += 1;
    }

    pub(crate) fn count_out_of_memory(&mut self) {
        self.counters.out_of_memory += 1;
    }

    pub(crate) fn count_released(&mut self, blocks: usize, bytes: u64) {
        self.counters.released_blocks += blocks as u64;
        self.counters.managed_bytes -= bytes;
    }

    /// Remembers that commands of `queue` may keep released memory from being freed.
    pub(crate) fn mark_draining(&mut self, queue: &QueueOf<A>) {
        let key = self
            .find_stock(queue.id())
            .unwrap_or_else(|| self.add_stock(queue));
        if let Some(stock) = self.stocks.get_mut(key) {
            stock.draining = true;
        }
    }

    /// The queues that hold memory back: pending blocks, or memory that was released.
    pub(crate) fn queues_that_hold_back(&self) -> Vec<QueueOf<A>> {
        let draining = self.stocks.iter().filter(|(_, stock)| stock.draining);
        let draining = draining.map(|(_, stock)| &stock.queue);
        let mut queues = self.pending.queues();
        for queue in draining.chain(self.drains.iter().map(|(queue, _)| queue)) {
            if !queues.contains(queue) {
                queues.push(queue.clone());
            }
        }
        queues
    }

    /// Notes that everything that was enqueued on `queue` has ended. What is returned is to be dropped without
    /// the lock.
    pub(crate) fn caught_up(&mut self, queue: &QueueOf<A>) -> Vec<(QueueOf<A>, Events<A>)> {
        if let Some(key) = self.find_stock(queue.id())
            && let Some(stock) = self.stocks.get_mut(key)
        {
            stock.draining = false;
        }
        self.drains
            .extract_if(.., |(drain, _)| drain == queue)
            .collect()
    }

    /// Takes held blocks out, largest first, until they have `enough` bytes together. Each comes with the
    /// queue that may still use it.
    pub(crate) fn take_largest(&mut self, enough: u64) -> Vec<(Block<A>, Option<QueueOf<A>>)> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        while bytes < enough {
            let common = self.common.largest_bytes();
            let stocked = self
                .stocks
                .iter_mut()
                .map(|(_, stock)| stock)
                .max_by_key(|stock| stock.bins.largest_bytes())
                .filter(|stock| stock.bins.largest_bytes() > common);
            let (block, queue) = match stocked {
                Some(stock) => {
                    stock.draining = true;
                    (stock.bins.pop_largest(), Some(stock.queue.clone()))
                }
                None => (self.common.pop_largest(), None),
            };
            let Some(block) = block else { break };
            bytes += block.bytes as u64;
            taken.push((block, queue));
        }
        taken
    }

    /// Takes out the stocks of queues that no block needs any more, except the home queue's. Dropping them
    /// lets go of their queues, which is a call to the device.
    pub(crate) fn take_idle_stocks(&mut self, home: QueueId) -> Vec<Stock<A>> {
        let is_idle = |stock: &Stock<A>| {
            stock.active == 0 && stock.bins.blocks() == 0 && stock.queue.id() != home
        };
        let stocks = self.stocks.iter();
        let idle: Vec<usize> = stocks
            .filter(|(_, stock)| is_idle(stock))
            .map(|(key, _)| key)
            .collect();
        idle.into_iter()
            .map(|key| self.stocks.remove(key))
            .collect()
    }

    pub(crate) fn largest_held_bytes(&self) -> usize {
        let stocked = self
            .stocks
            .iter()
            .map(|(_, stock)| stock.bins.largest_bytes());
        stocked
            .chain([self.common.largest_bytes(), self.pending.largest_bytes()])
            .max()
            .unwrap_or(0)
    }

    pub(crate) fn statistics(&self) -> PoolStatistics {
        let (mut blocks, mut bytes) = (self.common.blocks(), self.common.bytes());
        for (_, stock) in &self.stocks {
            blocks += stock.bins.blocks();
            bytes += stock.bins.bytes();
        }
        PoolStatistics {
            held_blocks: (blocks + self.pending.blocks()) as u64,
            held_bytes: bytes + self.pending.bytes(),
            pending_blocks: self.pending.blocks() as u64,
            pending_bytes: self.pending.bytes(),
            ..self.counters
        }
    }
}

/// Whether the queue itself keeps a block's old commands from its new ones.
pub(crate) fn is_ordered<Q: Queue>(queue: &Q) -> bool {
    queue.order() == QueueOrder::InOrder
}
