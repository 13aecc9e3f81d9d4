//! What a program did wrong that a real device may let pass.

use std::{borrow::Cow, fmt};

use binpool_allocators::MemoryId;

use crate::{CallKind, CommandId, Race};

/// Something that a program must not do, and that a real device may let pass and corrupt memory for.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder, Region};
/// use binpool_mock::{MockDevice, Violation};
///
/// let device = MockDevice::new();
/// let backend = device.backend();
/// let buffer = backend.create_buffer(16, MemoryFlags::empty())?;
/// // Two queues, and nothing that puts the one's command before the other's.
/// for value in [1, 2] {
///     let queue = backend.create_queue(QueueOrder::InOrder)?;
///     backend.enqueue_fill(&queue, &buffer, Region::first(16), &[value], &[])?;
/// }
/// assert!(matches!(&device.violations()[..], [Violation::Race(_)]));
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
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
        /// How many bytes of it the command was to use.
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
                "use after free: {call} ({command}) with {bytes} bytes of memory {memory}, which was \
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
