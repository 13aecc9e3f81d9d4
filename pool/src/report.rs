//! What a pool says when it gives up.

use std::{error::Error as StdError, fmt};

use binpool_allocators::Error;

use crate::words;

/// Why memory ran out, in a word.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// use binpool::Verdict;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let backend = MockDevice::builder().capacity_bytes(64 << 20).build().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let cache = pool.allocate(48 << 20)?;
/// let verdict_of = |bytes| {
///     let error = pool.allocate(bytes).err()?;
///     Some(error.out_of_memory()?.verdict)
/// };
/// // Freeing something helps the one request, and never the other.
/// assert_eq!(verdict_of(32 << 20), Some(Verdict::DeviceFull));
/// let verdict = verdict_of(128 << 20).ok_or("it fits")?;
/// assert_eq!(verdict, Verdict::NeverFits);
/// assert_eq!(verdict.name(), "never_fits"); // A label for what a program counts.
/// assert!(verdict.advice().starts_with("split the work"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The block is larger than the device ever gives in one piece, or than the whole device.
    NeverFits,
    /// A limit that the program set on itself is reached.
    Limited,
    /// The pool holds enough bytes, but in blocks that are each too small.
    Fragmented,
    /// The pool holds enough bytes, but commands that use them have not ended.
    Pending,
    /// The device is full, of this pool's active blocks or of other memory.
    DeviceFull,
}

impl Verdict {
    /// The verdict in one word, as [snapshots](crate::guide::seeing) have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NeverFits => "never_fits",
            Self::Limited => "limited",
            Self::Fragmented => "fragmented",
            Self::Pending => "pending",
            Self::DeviceFull => "device_full",
        }
    }

    /// What can be done about it, in words.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NeverFits => "split the work into smaller blocks, or use a larger device",
            Self::Limited => "free blocks, or raise the limit",
            Self::Fragmented => {
                "free blocks that stand next to each other, or ask for smaller ones"
            }
            Self::Pending => {
                "let the queues that use those blocks get on: \
                 a command there waits for something that has not happened"
            }
            Self::DeviceFull => {
                "free blocks, or memory outside the pool, or have a reclaim hook do it"
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NeverFits => "it never fits",
            Self::Limited => "a limit is reached",
            Self::Fragmented => "the free memory is fragmented",
            Self::Pending => "the free memory is in use by pending commands",
            Self::DeviceFull => "the device is full",
        })
    }
}

/// What the pool knew when it gave up. Sizes in bytes.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::builder().capacity_bytes(64 << 20).build().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let cache = pool.allocate(48 << 20)?;
/// let error = pool.allocate(32 << 20).unwrap_err();
/// let expected = "\
/// out of memory: 32.0 MiB cannot be had: the device is full
///
///   in use             48.0 MiB   in 1 block
///   free in the pool        0 B   at most 0 B in one piece
///     pending               0 B   commands may still use it
///   all of the pool    48.0 MiB   what it has from its allocator
///   given back              0 B   for this request, without avail
///   the allocator      64.0 MiB   at most 64.0 MiB in one piece
///   the device         64.0 MiB
///
/// advice: free blocks, or memory outside the pool, or have a reclaim hook do it";
/// assert_eq!(format!("{error:#}"), expected);
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct OutOfMemoryReport {
    /// What was asked for.
    pub requested_bytes: usize,
    /// The size of its class: what the device was asked for.
    pub class_bytes: usize,
    /// In the user's hands, as it was asked for.
    pub active_bytes: u64,
    /// How many blocks that is.
    pub active_blocks: u64,
    /// Active and held together, in whole blocks.
    pub managed_bytes: u64,
    /// Still held by the pool.
    pub held_bytes: u64,
    /// The part of it that pending commands may still use.
    pub pending_bytes: u64,
    /// The largest block that is still held.
    pub largest_held_bytes: u64,
    /// What the pool gave back to the allocator for this request, without avail.
    pub released_bytes: u64,
    /// The largest block that the allocator gives in one piece.
    pub largest_block_bytes: usize,
    /// All that the allocator can give: less than the device has where there is a limit.
    pub capacity_bytes: u64,
    /// All memory of the device.
    pub device_bytes: u64,
    /// Why, in a word.
    pub verdict: Verdict,
    /// What the allocator said last; `None` where it was not asked, because the block never fits.
    pub source: Option<Error>,
}

impl OutOfMemoryReport {
    /// The rows of the table that people read: what, bytes, and what there is to say about them.
    fn rows(&self) -> [(&'static str, u64, String); 7] {
        let blocks = format!("in {}", words::blocks(self.active_blocks));
        let piece = |bytes| format!("at most {} in one piece", words::bytes(bytes));
        [
            ("in use", self.active_bytes, blocks),
            (
                "free in the pool",
                self.held_bytes,
                piece(self.largest_held_bytes),
            ),
            (
                "  pending",
                self.pending_bytes,
                "commands may still use it".into(),
            ),
            (
                "all of the pool",
                self.managed_bytes,
                "what it has from its allocator".into(),
            ),
            (
                "given back",
                self.released_bytes,
                "for this request, without avail".into(),
            ),
            (
                "the allocator",
                self.capacity_bytes,
                piece(self.largest_block_bytes as u64),
            ),
            ("the device", self.device_bytes, String::new()),
        ]
    }

    /// Several lines, for people.
    fn write_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "out of memory: {}",
            words::bytes(self.requested_bytes as u64)
        )?;
        if self.class_bytes != self.requested_bytes {
            write!(f, " (a block of {})", words::bytes(self.class_bytes as u64))?;
        }
        writeln!(f, " cannot be had: {}\n", self.verdict)?;
        for (what, bytes, remark) in self.rows() {
            let line = format!("  {what:<16} {:>10}   {remark}", words::bytes(bytes));
            writeln!(f, "{}", line.trim_end())?;
        }
        write!(f, "\nadvice: {}", self.verdict.advice())
    }
}

/// One line with every number in bytes, for logs; with `{:#}`, a table for people.
impl fmt::Display for OutOfMemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return self.write_table(f);
        }
        let Self {
            requested_bytes,
            class_bytes,
            active_bytes,
            active_blocks,
            managed_bytes,
            held_bytes,
            pending_bytes,
            largest_held_bytes,
            released_bytes,
            largest_block_bytes,
            capacity_bytes,
            device_bytes,
            verdict,
            source: _,
        } = self;
        write!(
            f,
            "out of memory for {requested_bytes} bytes (a block of {class_bytes}): {verdict}; \
             active {active_bytes} bytes in {active_blocks} blocks, managed {managed_bytes}, \
             held {held_bytes} (pending {pending_bytes}, largest block {largest_held_bytes}), \
             given back for this request {released_bytes}; \
             the allocator gives {capacity_bytes} bytes, at most {largest_block_bytes} in one block, \
             of the device's {device_bytes}; \
             advice: {}",
            verdict.advice()
        )
    }
}

impl StdError for OutOfMemoryReport {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
