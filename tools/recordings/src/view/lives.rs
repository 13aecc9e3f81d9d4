//! The lives of blocks and segments.

/// The lives of all blocks and segments.
#[derive(Debug)]
pub struct Lives {
    /// The effect of each event: the block that it frees, or `None` if it allocates the next one.
    pub frees: Vec<Option<usize>>,
    /// The blocks, in the order of their allocations.
    pub blocks: Vec<Life>,
    /// The memory that the allocator gave.
    pub segments: Vec<Segment>,
}

/// The life of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The requested bytes.
    pub requested_bytes: u64,
    /// The bytes that it takes of its segment.
    pub class_bytes: u64,
    /// The stream that it is for.
    pub stream: u32,
    /// The event that allocated it.
    pub from: usize,
    /// The event that freed it.
    pub to: Option<usize>,
    /// The number of events before the program freed it, if the allocator then waited for commands of other streams.
    pub waiting: Option<usize>,
    /// The index of its segment; `None` for a block of 0 bytes.
    pub segment: Option<usize>,
    /// Its offset in the segment, in bytes.
    pub offset: u64,
    /// The index of the stack of its request among those of the history.
    pub stack: Option<usize>,
}

/// A piece of memory that the allocator gave: a segment, one block by itself, or pages that are mapped and unmapped as a whole. Pages that
/// adjoin are one segment at each moment, so a block may reach into those after its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its size in bytes.
    pub bytes: u64,
    /// The event at which it was allocated.
    pub from: usize,
    /// The event at which it was released.
    pub to: Option<usize>,
    /// The reservation that it is mapped to, counted from 0; `None` if it is no pages.
    pub reservation: Option<usize>,
    /// Its offset in the reservation, in bytes.
    pub offset: u64,
}

impl Life {
    pub(crate) fn is_there(&self, moment: usize) -> bool {
        is_there(self.from, self.to, moment)
    }

    /// Returns whether the program has freed it by a moment.
    pub(crate) fn is_waiting(&self, moment: usize) -> bool {
        self.waiting.is_some_and(|since| since <= moment)
    }
}

impl Segment {
    /// A segment that is no pages, and is there from an event on.
    #[must_use]
    pub const fn new(bytes: u64, from: usize) -> Self {
        Self {
            bytes,
            from,
            to: None,
            reservation: None,
            offset: 0,
        }
    }

    pub(crate) fn is_there(&self, moment: usize) -> bool {
        is_there(self.from, self.to, moment)
    }
}

fn is_there(from: usize, to: Option<usize>, moment: usize) -> bool {
    from < moment && to.is_none_or(|to| moment <= to)
}
