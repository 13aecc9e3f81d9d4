//! Memory of the device that did not come from pools, as far as the limit counts it.

use binpool::Budget;
use parking_lot::Mutex;

use super::{
    arguments::Arguments,
    function::{Effect, Space},
    live::{Live, Taken},
};
use crate::pool_figures;

/// What the program has beside the pools, and what the limit leaves to these.
#[derive(Debug)]
pub(super) struct Unpooled {
    limit: Option<u64>,
    /// What all pools together may take: the limit without what is counted.
    budget: Budget,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// The bytes of each block.
    live: Live<u64>,
    /// The bytes of these blocks, and of requests that are under way.
    bytes: u64,
}

impl Unpooled {
    pub(super) fn new(limit: Option<u64>) -> Self {
        Self {
            limit,
            budget: Budget::new(limit.unwrap_or(u64::MAX)),
            counted: Mutex::default(),
        }
    }

    /// The budget of the pools.
    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The most bytes that the program may have.
    pub(super) fn limit(&self) -> Option<usize> {
        self.limit
            .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// The bytes that are counted.
    pub(super) fn bytes(&self) -> usize {
        usize::try_from(self.counted.lock().bytes).unwrap_or(usize::MAX)
    }

    /// Counts a request, if it is within the limit; returns whether it is.
    pub(super) fn reserve(&self, bytes: usize) -> bool {
        let Some(limit) = self.limit else {
            return true;
        };
        let mut counted = self.counted.lock();
        let before = counted.bytes;
        let after = before.saturating_add(bytes as u64);
        if self.budget.available_bytes() < bytes as u64 {
            return false;
        }
        self.set(&mut counted, limit, after);
        // A pool may have grown in between.
        let fits = self.budget.used_bytes() <= self.budget.max_bytes();
        if !fits {
            self.set(&mut counted, limit, before);
        }
        fits
    }

    /// Notes that the limit has refused a request to the driver.
    pub(super) fn note_refusal(&self, bytes: usize) {
        pool_figures::note_refusal(bytes, self.budget.available_bytes());
    }

    /// Subtracts a request that has failed.
    pub(super) fn give_up(&self, bytes: usize) {
        if let Some(limit) = self.limit {
            let mut counted = self.counted.lock();
            self.subtract(&mut counted, limit, bytes as u64);
        }
    }

    /// Keeps the bytes of a request, which has succeeded, until its block ends.
    pub(super) fn keep(&self, space: Space, handle: usize, context: usize, bytes: usize) {
        if let Some(limit) = self.limit {
            let mut counted = self.counted.lock();
            let old = counted.live.put(space, handle, context, bytes as u64);
            self.subtract(&mut counted, limit, old.unwrap_or(0));
        }
    }

    /// Takes what a call is to end.
    pub(super) fn take(&self, effect: Effect, arguments: Arguments) -> Taken<u64> {
        match self.limit {
            Some(_) => self.counted.lock().live.take(effect, arguments),
            None => Taken::Nothing,
        }
    }

    /// Takes the blocks of the primary context of a device, which has ended.
    pub(super) fn take_primary(&self, device: usize) -> Taken<u64> {
        self.counted.lock().live.take_primary(device)
    }

    /// Subtracts what a call has ended, if it has succeeded.
    pub(super) fn after(
        &self,
        effect: Effect,
        arguments: Arguments,
        taken: Taken<u64>,
        has_succeeded: bool,
    ) {
        let Some(limit) = self.limit else {
            return;
        };
        let mut counted = self.counted.lock();
        if has_succeeded {
            let ended = counted.live.after(effect, arguments, taken);
            self.subtract(&mut counted, limit, ended.iter().sum());
        } else {
            counted.live.put_back(taken);
        }
    }

    fn subtract(&self, counted: &mut Counted, limit: u64, bytes: u64) {
        let bytes = counted.bytes.saturating_sub(bytes);
        self.set(counted, limit, bytes);
    }

    fn set(&self, counted: &mut Counted, limit: u64, bytes: u64) {
        counted.bytes = bytes;
        self.budget.set_max_bytes(limit.saturating_sub(bytes));
    }
}
