//! Identities of the objects that live on a device.

use std::{
    fmt,
    num::NonZeroU64,
    sync::atomic::{AtomicU64, Ordering},
};

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU64);

        impl $name {
            /// An identity that nothing else in this process has or had.
            #[must_use]
            pub fn fresh() -> Self {
                static NEXT: AtomicU64 = AtomicU64::new(1);
                // 2^64 identities do not run out: at one a nanosecond they last 584 years.
                Self(NonZeroU64::new(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap_or(NonZeroU64::MAX))
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
    /// Tells one block of memory from every other that this process ever had.
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
    /// Tells one queue from every other that this process ever had.
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
    /// Tells one event from every other that this process ever had.
    ///
    /// ```
    /// use std::collections::HashSet;
    ///
    /// use binpool_allocators::{Backend, Event, EventId, QueueOrder};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let [one, two] = [(); 2].map(|()| backend.enqueue_marker(&queue, &[]).unwrap());
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
