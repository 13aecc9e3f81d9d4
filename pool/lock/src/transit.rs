//! Memory on its way between the pool and its allocator or a segment.

use std::cell::Cell;

use crate::sync::thread_local;

thread_local! {
    /// The number of blocks and segments that this thread has in transit, in all pools.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// The number of blocks on their way to the allocator or to their segment, no longer held and not yet free, and of segments on their way
/// from the allocator, the rest of which other threads can use.
///
/// A request that finds the device full waits for them. Whatever departs on a thread arrives on the same thread.
#[derive(Debug, Default)]
pub struct Transit {
    count: usize,
}

impl Transit {
    /// Counts `count` blocks or segments that this thread sends on their way.
    pub fn depart(&mut self, count: usize) {
        self.count += count;
        change_own(|own| own + count);
    }

    /// Counts one arrival on this thread. Returns whether nothing is left in transit.
    pub fn arrive(&mut self) -> bool {
        self.count -= 1;
        change_own(|own| own - 1);
        self.count == 0
    }

    /// Returns whether a request of this thread should wait for memory that other threads have in transit. A thread that [has something in
    /// transit itself](is_any_of_this_thread) must not.
    pub fn is_worth_a_wait(&self) -> bool {
        self.count > 0 && !is_any_of_this_thread()
    }

    /// Returns how many are in transit.
    pub fn count(&self) -> usize {
        self.count
    }
}

/// Returns whether this thread has something in transit, in any pool. That is so if the allocator or a subscriber of `tracing`
/// calls the pool back. Such a thread must wait for no transit: it would wait for itself, or two such threads for each other.
pub fn is_any_of_this_thread() -> bool {
    OWN.try_with(Cell::get).unwrap_or(0) > 0
}

fn change_own(change: impl FnOnce(usize) -> usize) {
    // Only `shuttle` destroys it before the thread ends: the standard library keeps thread-locals that need no `drop`.
    let _is_there = OWN.try_with(|own| own.set(change(own.get())));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a thread with nothing in transit should wait.
    fn another_should_wait(transit: &Transit) -> bool {
        std::thread::scope(|scope| scope.spawn(|| transit.is_worth_a_wait()).join()).unwrap()
    }

    #[test]
    fn other_threads_wait_until_the_last_block_has_arrived() {
        let mut transit = Transit::default();
        assert!(!another_should_wait(&transit));
        transit.depart(2);
        assert!(another_should_wait(&transit));
        assert!(!transit.arrive(), "one is still in transit");
        assert!(another_should_wait(&transit));
        assert!(transit.arrive());
        assert!(!another_should_wait(&transit));
    }

    #[test]
    fn a_thread_with_something_in_transit_does_not_wait() {
        let [mut one, mut other] = [(); 2].map(|()| Transit::default());
        std::thread::scope(|scope| scope.spawn(|| other.depart(1)).join()).unwrap();
        assert!(other.is_worth_a_wait());
        one.depart(1);
        assert!(!one.is_worth_a_wait() && !other.is_worth_a_wait());
        one.arrive();
        assert!(other.is_worth_a_wait());
    }
}
