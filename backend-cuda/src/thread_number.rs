//! A number for the calling thread, which stays valid while thread-locals are dropped.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

/// A number that no other thread ever has. `ThreadId` is not available once the thread-locals of a thread are gone, and a program in C may make
/// its last calls after that, in a destructor of thread-specific data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadNumber(u64);

thread_local! {
    /// 0 before it is asked for. It has no destructor, and so stays until the end.
    static OWN: Cell<u64> = const { Cell::new(0) };
}

impl ThreadNumber {
    /// The number of the calling thread.
    pub(crate) fn own() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        OWN.with(|own| {
            if own.get() == 0 {
                own.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            Self(own.get())
        })
    }
}
