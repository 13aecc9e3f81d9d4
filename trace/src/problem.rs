//! What may be wrong with a recording.

use std::fmt;

/// What is wrong with a part of a recording, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The line is of no known form.
    #[error(
        "expected \"a ID BYTES STREAM [TIME [GROUP [STACK]]]\", \"f ID [TIME]\", \
         \"o BYTES STREAM [TIME [GROUP [STACK]]]\", \"g GROUP NAME\", \"k STACK FRAME\", \"h KEY VALUE\", \
         \"s MEMORY BYTES [TIME]\", \"S MEMORY [TIME]\", \"b BLOCK MEMORY OFFSET BYTES [TIME]\", \
         \"p WHAT BYTES [TIME [TEXT]]\" or \"r KEY=NUMBER ...\""
    )]
    Form,
    /// A number is missing, or is not a number in its range.
    #[error("expected {what} to be a number up to {largest}")]
    Number {
        /// The number.
        what: &'static str,
        /// The largest valid number.
        largest: u64,
    },
    /// The ID belongs to a live block.
    #[error(
        "block {id} is allocated already, in line {since}: expected an ID that no live block has"
    )]
    Live {
        /// The ID.
        id: u64,
        /// The line in which its block was allocated.
        since: usize,
    },
    /// The ID belongs to no live block.
    #[error("block {id} is not allocated: expected the ID of a live block")]
    NotLive {
        /// The ID.
        id: u64,
    },
    /// A line is longer than any event.
    #[error("expected a line of at most {longest} bytes")]
    TooLong {
        /// The most bytes of a line, without its end.
        longest: usize,
    },
    /// Something else is wrong, which the message says.
    #[error("{0}")]
    Wrong(Box<str>),
    /// The document ends too early, or is not well-formed.
    #[error("{0}")]
    Damaged(Box<str>),
    /// The document is not a snapshot.
    #[error(
        "expected a memory snapshot of PyTorch, a dictionary with \"device_traces\" and \"segments\" as \
         torch.cuda.memory._snapshot() gives it, or the list of segments of torch.cuda.memory_snapshot()"
    )]
    NoSnapshot,
    /// The file is no recording, and is known for what it is.
    #[error("expected a recording of memory, and this is {what}: {advice}")]
    Foreign {
        /// What it is.
        what: String,
        /// What to do instead.
        advice: &'static str,
    },
    /// The snapshot has no such device.
    #[error("there is no device {device}: the snapshot has {devices}")]
    NoDevice {
        /// The requested device.
        device: usize,
        /// The number of devices.
        devices: usize,
    },
    /// There is no allocation in the recording.
    #[error("no allocation in it: {advice}")]
    NoAllocation {
        /// The advice to the user.
        advice: &'static str,
    },
}

impl Problem {
    pub(crate) fn wrong(message: impl fmt::Display) -> Self {
        Self::Wrong(message.to_string().into())
    }
}

#[cfg(feature = "tools")]
impl Problem {
    pub(crate) fn damaged(message: impl fmt::Display) -> Self {
        Self::Damaged(message.to_string().into())
    }

    /// A file that ends too early.
    pub(crate) fn truncated() -> Self {
        Self::damaged(
            "the file ends here, but more was expected: it is damaged, or was not written to its end",
        )
    }

    /// A field that is missing or has another type.
    pub(crate) fn field(field: &str, expected: &str) -> Self {
        Self::wrong(format_args!("expected {field} to be {expected}"))
    }
}
