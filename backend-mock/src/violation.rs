//! What a program did wrong that a real device may let pass.

use std::{borrow::Cow, fmt};

use binpool_allocators::MemoryId;

use crate::{CallKind, CommandId, Race};

/// Something that a program must not do, and that a real device may let pass and corrupt memory for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// Memory was given back twice.
    DoubleFree {
        /// The memory.
        memory: MemoryId,
        /// Its size in bytes, where that is still known.
        bytes: Option<usize>,
    },
    /// A call was made with memory that had been given back.
    UseAfterFree {
        /// The memory.
        memory: MemoryId,
        /// Its size in bytes.
        bytes: usize,
        /// The call.
        call: CallKind,
        /// The name of the command that it was to enqueue.
        command: Cow<'static, str>,
    },
    /// SVM was freed while a command that uses it had not ended. Once for each such command.
    FreedInUse {
        /// The block.
        memory: MemoryId,
        /// Its size in bytes.
        bytes: usize,
        /// The command.
        command: CommandId,
        /// The command's name.
        name: Cow<'static, str>,
    },
    /// Two commands touch the same bytes in no order.
    Race(Box<Race>),
    /// An address was freed where no block of SVM starts or started.
    UnknownAddress {
        /// The address.
        address: usize,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoubleFree { memory, bytes } => {
                write!(f, "double free: memory {memory}")?;
                match bytes {
                    Some(bytes) => write!(f, " of {bytes} bytes was given back twice"),
                    None => f.write_str(" was given back twice"),
                }
            }
            Self::UseAfterFree {
                memory,
                bytes,
                call,
                command,
            } => write!(
                f,
                "use after free: {call} ({command}) with memory {memory} of {bytes} bytes, which was \
                 given back before"
            ),
            Self::FreedInUse {
                memory,
                bytes,
                command,
                name,
            } => write!(
                f,
                "freed in use: memory {memory} of {bytes} bytes was freed before command {command} \
                 ({name}), which uses it, had ended"
            ),
            Self::Race(race) => race.fmt(f),
            Self::UnknownAddress { address } => {
                write!(f, "unknown address: no block of SVM starts at {address:#x}")
            }
        }
    }
}
