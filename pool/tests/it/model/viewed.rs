//! Views of blocks, and blocks that were given back while views of them were left.

use binpool_mock::{MockEvent, MockMemory, MockQueue};

use crate::model::reference::{Name, Tenure};

/// A view of all of a block's memory.
pub(crate) struct View {
    /// The block's.
    pub(crate) name: Name,
    pub(crate) memory: MockMemory,
}

/// A block that was given back, as the program knows it by its views.
pub(crate) struct Viewed {
    pub(crate) name: Name,
    /// What was asked for.
    pub(crate) size: usize,
    /// What every byte of its memory has to be.
    pub(crate) bytes: Vec<u8>,
    /// The commands that touched it: what the next one has to come after.
    pub(crate) events: Vec<MockEvent>,
    pub(crate) tenure: Tenure,
    /// Queues that the pool knows of: its home, and those that the block was used on.
    pub(crate) queues: Vec<MockQueue>,
    /// Set if the pool is there, to keep the block for the views.
    pub(crate) is_kept: bool,
    /// Set if commands that fail may be among those that wrote it.
    pub(crate) is_in_doubt: bool,
}
