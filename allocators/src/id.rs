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
    MemoryId
}
identity! {
    /// Tells one queue from every other that this process ever had.
    ///
    /// Two values that stand for the same queue of the runtime have the same identity.
    QueueId
}
identity! {
    /// Tells one event from every other that this process ever had.
    EventId
}
