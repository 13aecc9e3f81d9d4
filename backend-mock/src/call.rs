//! The calls to a device.

use std::fmt;

use crate::CommandId;

macro_rules! call_kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// A kind of call to the device.
        ///
        /// A request that is refused before it reaches the device (a foreign object, a region out of bounds,
        /// a bad pattern) is not a call.
        ///
        /// ```
        /// use binpool_allocators::{Allocator, Error, ImmediateAllocator};
        /// use binpool_mock::{CallKind, Fault, MockDevice, Persistence};
        ///
        /// // The result of an allocation when each of the calls that it makes fails.
        /// for kind in [CallKind::CreateBuffer, CallKind::Commit] {
        ///     let device = MockDevice::new();
        ///     let allocator = ImmediateAllocator::new(&device.backend())?;
        ///     device.fail_nth(kind, 1, Fault::Backend(-5), Persistence::Once);
        ///     match allocator.allocate(1024) {
        ///         Err(Error::Backend(failure)) => assert_eq!(failure.operation, kind.name()),
        ///         other => panic!("{other:?}"),
        ///     }
        /// }
        /// # Ok::<(), Error>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum CallKind {
            $($(#[$doc])* $kind,)*
        }

        impl CallKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The call's name in error texts.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

call_kinds! {
    /// [`Backend::create_queue`](binpool_allocators::Backend::create_queue).
    CreateQueue = "create_queue",
    /// [`Backend::create_buffer`](binpool_allocators::Backend::create_buffer).
    CreateBuffer = "create_buffer",
    /// [`Backend::create_sub_region`](binpool_allocators::Backend::create_sub_region).
    CreateSubRegion = "create_sub_region",
    /// [`SvmBackend::allocate_svm`](binpool_allocators::SvmBackend::allocate_svm).
    AllocateSvm = "allocate_svm",
    /// [`VirtualMemory::reserve`](binpool_allocators::VirtualMemory::reserve).
    Reserve = "reserve",
    /// [`VirtualMemory::create_pages`](binpool_allocators::VirtualMemory::create_pages).
    CreatePages = "create_pages",
    /// [`VirtualMemory::map`](binpool_allocators::VirtualMemory::map).
    Map = "map",
    /// [`VirtualMemory::unmap`](binpool_allocators::VirtualMemory::unmap).
    Unmap = "unmap",
    /// [`Backend::commit`](binpool_allocators::Backend::commit).
    Commit = "commit",
    /// [`Backend::release`](binpool_allocators::Backend::release), also when a block is dropped, and
    /// [`MockBackend::release_handle`](crate::MockBackend::release_handle).
    Release = "release",
    /// [`MockBackend::free_svm_address`](crate::MockBackend::free_svm_address).
    FreeSvmAddress = "free_svm_address",
    /// [`Backend::write`](binpool_allocators::Backend::write).
    Write = "write",
    /// [`Backend::read`](binpool_allocators::Backend::read).
    Read = "read",
    /// [`Backend::enqueue_write`](binpool_allocators::Backend::enqueue_write).
    EnqueueWrite = "enqueue_write",
    /// [`Backend::enqueue_read`](binpool_allocators::Backend::enqueue_read).
    EnqueueRead = "enqueue_read",
    /// [`Backend::enqueue_copy`](binpool_allocators::Backend::enqueue_copy).
    Copy = "enqueue_copy",
    /// [`Backend::enqueue_fill`](binpool_allocators::Backend::enqueue_fill).
    Fill = "enqueue_fill",
    /// [`MockBackend::launch`](crate::MockBackend::launch).
    Launch = "launch",
    /// [`Backend::enqueue_marker`](binpool_allocators::Backend::enqueue_marker).
    Marker = "enqueue_marker",
    /// [`Backend::enqueue_barrier`](binpool_allocators::Backend::enqueue_barrier).
    Barrier = "enqueue_barrier",
    /// [`Backend::create_user_event`](binpool_allocators::Backend::create_user_event).
    CreateUserEvent = "create_user_event",
    /// [`Backend::resolve_user_event`](binpool_allocators::Backend::resolve_user_event).
    ResolveUserEvent = "resolve_user_event",
    /// [`Event::status`](binpool_allocators::Event::status).
    Status = "status",
    /// [`Event::wait`](binpool_allocators::Event::wait).
    Wait = "wait",
    /// [`Queue::flush`](binpool_allocators::Queue::flush).
    Flush = "flush",
    /// [`Queue::finish`](binpool_allocators::Queue::finish).
    Finish = "finish",
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The number of calls of each kind.
///
/// ```
/// use binpool_allocators::{Allocator, ImmediateAllocator};
/// use binpool_mock::{CallKind, MockDevice};
///
/// let device = MockDevice::new();
/// let allocator = ImmediateAllocator::new(&device.backend())?;
/// let before = device.statistics().calls;
/// drop(allocator.allocate(1024)?);
/// let now = device.statistics().calls;
/// assert_eq!(now.get(CallKind::CreateBuffer), 1);
/// // The calls that a block costs from its creation to its release.
/// assert_eq!(now.total() - before.total(), 3);
/// for (kind, count) in now.iter() {
///     println!("{kind}: {count}"); // Kinds with calls only, such as `commit: 1`.
/// }
/// assert_eq!(now.iter().count(), 4);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CallCounts {
    counts: [u64; CallKind::ALL.len()],
}

impl Default for CallCounts {
    fn default() -> Self {
        Self {
            counts: [0; CallKind::ALL.len()],
        }
    }
}

impl CallCounts {
    /// The number of calls of this kind.
    #[must_use]
    pub const fn get(&self, kind: CallKind) -> u64 {
        self.counts[kind as usize]
    }

    /// The number of all calls.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The kinds with at least one call, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (CallKind, u64)> + '_ {
        let all = CallKind::ALL.iter().map(|kind| (*kind, self.get(*kind)));
        all.filter(|(_, count)| *count > 0)
    }

    pub(crate) const fn add(&mut self, kind: CallKind) {
        self.counts[kind as usize] += 1;
    }
}

impl fmt::Debug for CallCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// An entry of the call log.
///
/// It does not depend on anything else in the process, so that two runs of one program can be compared.
///
/// ```
/// use binpool_allocators::{Backend, QueueOrder};
/// use binpool_mock::{CallKind, Fault, MockDevice, Persistence};
///
/// let device = MockDevice::builder().log_calls(true).build();
/// let backend = device.backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// device.fail_nth(CallKind::Marker, 1, Fault::DeviceLost, Persistence::Once);
/// assert!(backend.enqueue_marker(&queue).is_err());
/// backend.enqueue_marker(&queue)?;
///
/// let calls = device.calls();
/// let [_, failed, marker] = &calls[..] else {
///     panic!("{calls:?}");
/// };
/// assert_eq!((failed.number, failed.kind), (2, CallKind::Marker));
/// assert!(!failed.succeeded && failed.command.is_none());
/// assert_eq!(marker.command.map(|command| command.get()), Some(1));
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The call's number among all calls to the device, from 1 on.
    pub number: u64,
    /// The kind of the call.
    pub kind: CallKind,
    /// The bytes of memory that the call concerns; 0 if there are none.
    pub bytes: usize,
    /// The command that it enqueued.
    pub command: Option<CommandId>,
    /// Set if the call succeeded. A wait that follows an enqueue in the same call does not count.
    pub succeeded: bool,
}
