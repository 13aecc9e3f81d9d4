//! Why a pool could not serve a request.

use std::{error::Error as StdError, fmt};

use binpool_allocators::{Error, InvalidRequest};

/// Why a pool could not be built, or could not serve a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// No memory is left, after everything the pool could do about it.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemoryReport>),
    /// The allocator or the backend failed, for another reason than memory.
    #[error(transparent)]
    Allocator(#[from] Error),
    /// More leading bits than size classes can have.
    #[error("{requested} leading bits: size classes can have at most {largest}")]
    LeadingBits {
        /// The leading bits asked for.
        requested: u32,
        /// The most that are permitted.
        largest: u32,
    },
    /// The pool's size classes broke their law.
    #[error(
        "the size classes put {requested} bytes into blocks of {class_size}: \
         `alloc_size(bin_number(s))` must be at least `s`, and the bin number below `bin_count()`"
    )]
    SizeClassTooSmall {
        /// The bytes asked for, rounded up to the allocator's alignment.
        requested: usize,
        /// What the classes made of it.
        class_size: usize,
    },
}

impl PoolError {
    /// Whether the request failed for lack of memory.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_))
    }

    /// What the pool knows about an out-of-memory failure.
    #[must_use]
    pub fn out_of_memory(&self) -> Option<&OutOfMemoryReport> {
        match self {
            Self::OutOfMemory(report) => Some(report),
            _ => None,
        }
    }
}

impl From<InvalidRequest> for PoolError {
    fn from(error: InvalidRequest) -> Self {
        Self::Allocator(error.into())
    }
}

/// Why memory ran out, in a word.
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
    const fn advice(self) -> &'static str {
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
    /// The largest block that the device gives in one piece.
    pub largest_block_bytes: usize,
    /// All memory of the device.
    pub capacity_bytes: u64,
    /// Why, in a word.
    pub verdict: Verdict,
    /// What the allocator said last; `None` where it was not asked, because the block never fits.
    pub source: Option<Error>,
}

impl fmt::Display for OutOfMemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
            verdict,
            source: _,
        } = self;
        write!(
            f,
            "out of memory for {requested_bytes} bytes (a block of {class_bytes}): {verdict}; \
             active {active_bytes} bytes in {active_blocks} blocks, managed {managed_bytes}, \
             held {held_bytes} (pending {pending_bytes}, largest block {largest_held_bytes}), \
             given back for this request {released_bytes}; \
             the device has {capacity_bytes} bytes, at most {largest_block_bytes} in one block; \
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
