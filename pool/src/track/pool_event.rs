//! What a pool did, as a recording says it.

use std::{fmt, io};

use binpool_allocators::{Memory, Region};

use crate::track::allocation_record::AllocationRecord;

/// An event of the pool itself. It happens under the pool's lock, far less often than blocks are handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoolEvent {
    /// The allocator gave memory.
    Taken { memory: u64, bytes: u64 },
    /// Memory leaves the pool.
    GivenBack { memory: u64 },
    /// A block got its place.
    Placed {
        block: u64,
        memory: u64,
        offset: u64,
        bytes: u64,
    },
    /// Pages were mapped to these bytes of a reservation.
    Mapped {
        reservation: u64,
        offset: u64,
        bytes: u64,
    },
    /// The pages of these bytes of a reservation were unmapped.
    Unmapped {
        reservation: u64,
        offset: u64,
        bytes: u64,
    },
    /// The numbers of the report of the request that was refused last, as `KEY=NUMBER`.
    Report(Box<str>),
    /// Anything else.
    Did {
        what: What,
        bytes: u64,
        text: Box<str>,
    },
}

/// What a pool did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Blocks were in use when the recording began of which it knows nothing.
    Untracked,
    /// A request found no free memory.
    Miss,
    /// Cached blocks went back to their segments.
    Flush,
    /// Free memory was released.
    Trim,
    /// What was idle was released.
    Sweep,
    /// A reclaim hook was called.
    Hook,
    /// The host waited for a queue.
    Wait,
    /// Pages were created and mapped for a request.
    Map,
    /// So many bytes of pages are mapped nowhere now.
    Spare,
}

impl What {
    const fn word(self) -> &'static str {
        match self {
            Self::Untracked => "untracked",
            Self::Miss => "miss",
            Self::Flush => "flush",
            Self::Trim => "trim",
            Self::Sweep => "sweep",
            Self::Hook => "hook",
            Self::Wait => "wait",
            Self::Map => "map",
            Self::Spare => "spare",
        }
    }
}

impl PoolEvent {
    pub(crate) fn placed(record: &AllocationRecord) -> Self {
        let place = record.place;
        Self::Placed {
            block: record.number(),
            memory: place.memory,
            offset: place.offset,
            bytes: place.bytes,
        }
    }

    pub(crate) fn mapped(reservation: &impl Memory, region: Region) -> Self {
        Self::Mapped {
            reservation: reservation.id().get(),
            offset: region.offset as u64,
            bytes: region.bytes as u64,
        }
    }

    pub(crate) fn unmapped(reservation: &impl Memory, region: Region) -> Self {
        Self::Unmapped {
            reservation: reservation.id().get(),
            offset: region.offset as u64,
            bytes: region.bytes as u64,
        }
    }

    pub(crate) fn did(what: What, bytes: u64, text: impl fmt::Display) -> Self {
        Self::Did {
            what,
            bytes,
            text: text.to_string().into(),
        }
    }

    /// Writes the event as a line without its end. `time` is in nanoseconds.
    pub(crate) fn write(&self, time: u64, line: &mut impl io::Write) -> io::Result<()> {
        match self {
            Self::Taken { memory, bytes } => write!(line, "s {memory} {bytes} {time}"),
            Self::GivenBack { memory } => write!(line, "S {memory} {time}"),
            Self::Placed {
                block,
                memory,
                offset,
                bytes,
            } => write!(line, "b {block} {memory} {offset} {bytes} {time}"),
            Self::Mapped {
                reservation,
                offset,
                bytes,
            } => write!(line, "m {reservation} {offset} {bytes} {time}"),
            Self::Unmapped {
                reservation,
                offset,
                bytes,
            } => write!(line, "M {reservation} {offset} {bytes} {time}"),
            Self::Report(numbers) => write!(line, "r {numbers}"),
            Self::Did { what, bytes, text } => {
                let gap = if text.is_empty() { "" } else { " " };
                write!(line, "p {} {bytes} {time}{gap}{text}", what.word())
            }
        }
    }
}
