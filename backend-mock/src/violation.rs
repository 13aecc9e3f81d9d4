//! Violations: misuse that a real device may not report.

use std::{borrow::Cow, fmt};

use binpool_allocators::MemoryId;

use crate::{CallKind, CommandId, Race};

/// A misuse of the device, which a real device may not report while memory is corrupted.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder, Region};
/// use binpool_mock::{MockDevice, Violation};
///
/// let device = MockDevice::new();
/// let backend = device.backend();
/// let buffer = backend.create_buffer(16, MemoryFlags::empty())?;
/// // Two queues, and nothing that orders the commands of one before those of the other.
/// for value in [1_u8, 2] {
///     let queue = backend.create_queue(QueueOrder::InOrder)?;
///     backend.enqueue_fill(&queue, &buffer, Region::first(16), &[value])?;
/// }
/// assert!(matches!(&device.violations()[..], [Violation::Race(_)]));
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// Memory was released twice.
    DoubleFree {
        /// The memory.
        memory: MemoryId,
        /// Its size in bytes, where that is still known.
        bytes: Option<usize>,
    },
    /// A call was made with released memory.
    UseAfterFree {
        /// The memory.
        memory: MemoryId,
        /// The number of bytes that the command was to use.
        bytes: usize,
        /// The call.
        call: CallKind,
        /// The name of the command that it was to enqueue.
        command: Cow<'static, str>,
    },
    /// SVM was freed before a command that uses it had ended. There is one report for each such command.
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
    /// Two commands touch the same bytes without an order.
    Race(Box<Race>),
    /// An address was freed at which no block of SVM starts or started.
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
                    Some(bytes) => write!(f, " of {bytes} bytes was released twice"),
                    None => f.write_str(" was released twice"),
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
                 released before"
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
