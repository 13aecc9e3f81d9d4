//! Identities of the objects that live on a device.

use std::{
    cell::Cell,
    fmt,
    num::NonZeroU64,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

/// How many numbers a thread takes at once: threads that count with one counter wait for each other.
const BATCH: u64 = 64;

/// Returns the next of the numbers that a thread has, or takes others from the counter of all threads.
fn next_of(own: &Cell<Range<u64>>, all: &AtomicU64) -> NonZeroU64 {
    let mut numbers = own.take();
    let next = numbers.next().unwrap_or_else(|| {
        let first = take(all, BATCH);
        numbers = first + 1..first + BATCH;
        first
    });
    own.set(numbers);
    not_zero(next)
}

/// Takes this many numbers, and returns the first.
fn take(all: &AtomicU64, count: u64) -> u64 {
    // 2^64 identities do not run out: at one a nanosecond they last 584 years.
    all.fetch_add(count, Ordering::Relaxed)
}

fn not_zero(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap_or(NonZeroU64::MAX)
}

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU64);

        impl $name {
            /// An identity, never reused within the process.
            #[must_use]
            pub fn fresh() -> Self {
                static NEXT: AtomicU64 = AtomicU64::new(1);
                thread_local! {
                    static OWN: Cell<Range<u64>> = const { Cell::new(0..0) };
                }
                let own = OWN.try_with(|own| next_of(own, &NEXT));
                Self(own.unwrap_or_else(|_| not_zero(take(&NEXT, 1))))
            }

            /// The identity as a number, for logs and maps.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0.get()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "#{}", self.0)
            }
        }
    };
}

identity! {
    /// Identifies a block of memory; never reused within a process.
    ///
    /// ```
    /// use binpool_allocators::{Backend, Memory, MemoryFlags, MemoryId};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// let block = backend.create_buffer(4096, MemoryFlags::empty())?;
    /// let id = block.id();
    /// drop(block);
    /// let next = backend.create_buffer(4096, MemoryFlags::empty())?; // Perhaps the same bytes and the same handle.
    /// assert_ne!(next.id(), id);
    /// assert_ne!(MemoryId::fresh(), next.id()); // A backend names its blocks by `fresh`.
    /// assert_eq!(format!("{id}"), format!("#{}", id.get())); // The form in logs.
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    MemoryId
}
identity! {
    /// Identifies a queue; never reused within a process.
    ///
    /// Two values that stand for the same queue of the runtime have the same identity.
    ///
    /// ```
    /// use binpool_allocators::QueueId;
    ///
    /// /// A queue of a user's own backend.
    /// #[derive(Clone)]
    /// struct MyQueue {
    ///     handle: u64,
    ///     id: QueueId,
    /// }
    ///
    /// let open = |handle| MyQueue { handle, id: QueueId::fresh() };
    /// let old = open(7);
    /// assert_eq!(old.clone().id, old.id);
    /// # let old_handle = old.handle;
    /// let number = old.id.get(); // Its name in a trace, even after it is gone.
    /// drop(old);
    /// let new = open(7); // The runtime uses handles again.
    /// # assert_eq!(new.handle, old_handle);
    /// assert_ne!(new.id.get(), number);
    /// ```
    QueueId
}
identity! {
    /// Identifies an event; never reused within a process.
    ///
    /// ```
    /// use std::collections::HashSet;
    ///
    /// use binpool_allocators::{Backend, Event, EventId, QueueOrder};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let [one, two] = [(); 2].map(|()| backend.enqueue_marker(&queue).unwrap());
    /// // A wait list with each event once, though several blocks name the same event.
    /// let mut wait_for = vec![one.clone(), two, one];
    /// let mut seen = HashSet::new();
    /// wait_for.retain(|event| seen.insert(event.id().get()));
    /// assert_eq!(wait_for.len(), 2);
    /// assert!(seen.insert(EventId::fresh().get()), "a fresh identity is unique");
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    EventId
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, thread};

    use super::*;

    #[test]
    fn no_two_threads_have_the_same_identity_and_each_counts_upwards() {
        let threads = (0..4).map(|_| {
            thread::spawn(|| {
                let ids = (0..3 * BATCH).map(|_| MemoryId::fresh());
                ids.collect::<Vec<_>>()
            })
        });
        let threads: Vec<_> = threads.collect();
        let all = threads.into_iter().map(|it| it.join().unwrap());
        let all: Vec<_> = all.collect();
        assert!(all.iter().all(|ids| ids.is_sorted()));
        let different: HashSet<_> = all.iter().flatten().collect();
        assert_eq!(different.len() as u64, 4 * 3 * BATCH);
    }
}
