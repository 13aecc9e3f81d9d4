//! Objects that are still alive on a device.

use std::fmt;

use binpool_allocators::{MemoryId, MemoryKind};

/// What holds a live block.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder, Region};
/// use binpool_mock::{Completion, Holder, MockDevice};
///
/// let device = MockDevice::builder().completion(Completion::Manual).build();
/// let backend = device.backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let [kept, dropped] = [(); 2].map(|()| backend.create_buffer(1024, MemoryFlags::empty()).unwrap());
/// backend.enqueue_fill(&queue, &dropped, Region::first(1024), &[7_u8])?;
/// drop(dropped); // The fill still holds it.
/// let leaks = device.leaks();
/// assert_eq!(leaks.memory[0].held_by, Holder::Host); // A leak, if the program has forgotten `kept`.
/// assert_eq!(leaks.memory[1].held_by, Holder::Device);
/// device.run();
/// assert_eq!(device.leaks().memory.len(), 1);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holder {
    /// The program, which has not released it.
    Host,
    /// The device: it was released, and commands, events or views that use it remain.
    Device,
}

/// A block of memory, or a view of one, that is still alive.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, Region};
/// use binpool_mock::{CallKind, MockDevice};
///
/// let device = MockDevice::builder().log_calls(true).build();
/// let backend = device.backend();
/// let block = backend.create_buffer(1024, MemoryFlags::empty())?;
/// let view = backend.create_sub_region(&block, Region::new(512, 256))?;
/// let live = device.leaks().memory;
/// assert_eq!((live[0].bytes, live[0].view_of), (1024, None));
/// assert_eq!((live[1].bytes, live[1].view_of), (256, Some(live[0].id)));
/// // The call that created it, by its number in the log.
/// let mut calls = device.calls();
/// calls.retain(|call| call.number == live[1].created_by_call);
/// assert_eq!(calls[0].kind, CallKind::CreateSubRegion);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveMemory {
    /// Its identity.
    pub id: MemoryId,
    /// Its size in bytes.
    pub bytes: usize,
    /// The kind of its memory.
    pub kind: MemoryKind,
    /// The block that it is a view of; `None` if it is a block itself.
    pub view_of: Option<MemoryId>,
    /// The number of the call that created it ([`Call::number`](crate::Call::number)).
    pub created_by_call: u64,
    /// What holds the block.
    pub held_by: Holder,
}

impl fmt::Display for LiveMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            MemoryKind::Buffer => "buffer".to_owned(),
            MemoryKind::Svm(grain) => format!("{grain} SVM"),
            _ => "memory".to_owned(),
        };
        write!(f, "{kind} {} of {} bytes", self.id, self.bytes)?;
        if let Some(block) = self.view_of {
            write!(f, ", a view of {block}")?;
        }
        write!(f, ", created by call {}", self.created_by_call)?;
        match self.held_by {
            Holder::Host => Ok(()),
            Holder::Device => f.write_str(", released, still in use"),
        }
    }
}

/// All objects that are alive on a device: at the end of a program, its leaks.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags};
/// use binpool_mock::MockDevice;
///
/// let device = MockDevice::new();
/// let buffer = device.backend().create_buffer(1024, MemoryFlags::empty())?;
/// std::mem::forget(buffer);
/// let leaks = device.leaks();
/// assert_eq!((leaks.memory.len(), leaks.bytes()), (1, 1024));
/// println!("{leaks}"); // Names the call that created it.
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeakReport {
    /// Blocks and views, in the order in which they were created.
    pub memory: Vec<LiveMemory>,
    /// The number of queues that the host holds, or that have commands.
    pub queues: usize,
    /// The number of events that the host holds, that a command waits for, or whose command has not ended.
    pub events: usize,
}

impl LeakReport {
    /// Returns whether nothing is alive.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, Backend, ImmediateAllocator, QueueOrder};
    /// use binpool_mock::MockDevice;
    ///
    /// let device = MockDevice::new();
    /// {
    ///     let backend = device.backend();
    ///     let queue = backend.create_queue(QueueOrder::InOrder)?;
    ///     let block = ImmediateAllocator::new(&backend)?.allocate(1024)?;
    ///     backend.write(&queue, &block, 0, &[7_u8; 1024])?;
    ///     assert!(!device.leaks().is_empty());
    /// }
    /// // The end of a test: if it fails, the report names what is left.
    /// assert!(device.leaks().is_empty(), "{}", device.leaks());
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.queues == 0 && self.events == 0
    }

    /// The bytes of all blocks. Views have no bytes of their own.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let blocks = self.memory.iter().filter(|memory| memory.view_of.is_none());
        blocks.map(|block| block.bytes as u64).sum()
    }
}

impl fmt::Display for LeakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing is alive");
        }
        write!(
            f,
            "{} blocks and views ({} bytes), {} queues and {} events are alive",
            self.memory.len(),
            self.bytes(),
            self.queues,
            self.events
        )?;
        self.memory
            .iter()
            .try_for_each(|memory| write!(f, "\n  {memory}"))
    }
}
