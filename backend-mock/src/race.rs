//! Two commands that touch the same bytes in no order.

use std::{borrow::Cow, fmt};

use binpool_allocators::{MemoryId, QueueId, Region};

use crate::CommandId;

/// A command and the bytes of a block that it touched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Touch {
    /// The command.
    pub command: CommandId,
    /// Its name: a kernel's own, or the call's.
    pub name: Cow<'static, str>,
    /// Its queue.
    pub queue: QueueId,
    /// Whether it writes there; else it reads.
    pub writes: bool,
    /// The bytes, counted from the start of the block.
    pub region: Region,
    /// The block, or the view of it, that the command was given.
    pub memory: MemoryId,
}

impl fmt::Display for Touch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            command,
            name,
            queue,
            writes,
            region,
            memory,
        } = self;
        write!(
            f,
            "command {command} ({name}) on queue {queue} {} bytes {}..{} (as memory {memory})",
            if *writes { "writes" } else { "reads" },
            region.offset,
            region.offset.saturating_add(region.bytes),
        )
    }
}

/// Two commands that touch the same bytes of a block, at least one of them to write, and that nothing orders: no
/// queue, wait list, barrier or marker, and nothing that the host has seen to end before it enqueued the second. On
/// a real device they may run in either order, or at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Race {
    /// The block.
    pub memory: MemoryId,
    /// Its size in bytes.
    pub bytes: usize,
    /// The command that happened to end first.
    pub first: Touch,
    /// The one that ended second.
    pub second: Touch,
    /// The last commands that touched the block before the second one, oldest first, at most 16.
    pub history: Vec<Touch>,
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            memory,
            bytes,
            first,
            second,
            history,
        } = self;
        write!(
            f,
            "race on memory {memory} of {bytes} bytes: {first}, and {second}, but no queue, event, barrier or host \
             wait puts the one before the other; before, the block was touched by"
        )?;
        for touch in history {
            write!(f, "\n  {touch}")?;
        }
        Ok(())
    }
}
