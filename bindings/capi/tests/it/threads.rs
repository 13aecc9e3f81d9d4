//! Handles that threads share, and messages that they do not.

use std::{ptr, thread};

use binpool_capi::{Block, Status, binpool_block_free, binpool_block_size};

use crate::common::{Bench, failed, free, message, ok};

/// A block on its way to another thread.
struct Sent(*mut Block);

// SAFETY: Any thread may use and free a block, as the header says.
unsafe impl Send for Sent {}

impl Sent {
    fn free(self) {
        // SAFETY: The block lives, and this is its only thread.
        ok(unsafe { binpool_block_free(self.0) });
    }
}

#[test]
fn each_thread_has_its_own_message() {
    // SAFETY: A null pointer may be passed.
    failed(
        unsafe { binpool_block_free(ptr::null_mut()) },
        Status::InvalidArgument,
    );
    thread::spawn(|| assert_eq!(message(), "")).join().unwrap();
    assert_eq!(message(), "the argument `block` is null");
}

#[test]
fn threads_share_a_pool_and_free_the_blocks_of_others() {
    const ROUNDS: usize = 300;
    let bench = Bench::new(0);
    thread::scope(|scope| {
        for number in 1..=4 {
            let (send, receive) = std::sync::mpsc::channel::<Sent>();
            scope.spawn({
                let bench = &bench;
                move || {
                    for round in 0..ROUNDS {
                        let bytes = number * (1000 + round);
                        let block = bench.allocate(bytes);
                        // SAFETY: The block lives.
                        assert_eq!(unsafe { binpool_block_size(block) }, bytes);
                        send.send(Sent(block)).unwrap();
                    }
                }
            });
            scope.spawn(move || receive.into_iter().for_each(Sent::free));
        }
    });
    let now = bench.statistics();
    assert_eq!((now.active_blocks, now.active_bytes), (0, 0));
    assert_eq!(now.hits + now.misses, 4 * ROUNDS as u64);
    free(bench.allocate(64));
}
