//! The errors of the mock runtime itself.

use std::borrow::Cow;

use binpool_allocators::{Error, EventId, MemoryId, OutOfMemory, Scope, words};

use crate::{CallKind, CommandId};

/// The error of the mock runtime: the source of the errors that its calls return.
///
/// ```
/// use std::error::Error;
///
/// use binpool_allocators::{Backend, Event, Queue, QueueOrder};
/// use binpool_mock::{MockDevice, MockError};
///
/// # fn main() -> Result<(), Box<dyn Error>> {
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let gate = backend.create_user_event()?;
/// let behind = backend.launch(queue.after(&[gate.clone()]), "sum", &[], &[], |_, _| {})?;
/// // The error of the call has the runtime's own as its source.
/// let error = behind.wait().unwrap_err();
/// let source = error.source().and_then(|source| source.downcast_ref());
/// let Some(MockError::WouldWaitForever { name, event, .. }) = source else {
///     return Err(error.into());
/// };
/// assert_eq!((name.as_ref(), *event), ("sum", gate.id()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MockError {
    /// The device has no room to commit a block.
    #[error("MEM_OBJECT_ALLOCATION_FAILURE: {}", to_commit(*.requested, *.free))]
    AllocationFailure {
        /// The bytes that were to be committed.
        requested: u64,
        /// The bytes of the device that are not committed.
        free: u64,
    },
    /// The host has no room for the contents of a block.
    #[error("OUT_OF_HOST_MEMORY: no room for the {} of memory {memory}", words::bytes(*.bytes as u64))]
    OutOfHostMemory {
        /// The block.
        memory: MemoryId,
        /// Its size in bytes.
        bytes: usize,
    },
    /// An injected fault.
    #[error("an injected fault, in {call}")]
    Injected {
        /// The call that failed.
        call: CallKind,
        /// The code that was injected.
        code: Option<i32>,
    },
    /// The host would wait forever: only a user event that has not been resolved could end the wait.
    #[error(
        "the host would wait forever: {} waits for user event {event}, which the program has not resolved",
        describe(*command, name)
    )]
    WouldWaitForever {
        /// The command that waits for the user event; `None` where the host itself waits for it.
        command: Option<CommandId>,
        /// The command's name.
        name: Cow<'static, str>,
        /// The user event.
        event: EventId,
    },
    /// A kernel waited for the device that runs it.
    #[error("a kernel cannot wait for commands of the device that runs it")]
    WaitInsideKernel,
    /// A kernel writes an argument that shares bytes with another one.
    #[error(
        "INVALID_ARG_VALUE: kernel {kernel} writes argument {write}, which shares bytes with \
         argument {other} (arguments counted from 0, reads first)"
    )]
    OverlappingArguments {
        /// The kernel's name.
        kernel: Cow<'static, str>,
        /// The argument that is written.
        write: usize,
        /// The argument that it shares bytes with.
        other: usize,
    },
    /// The flags of the memory do not allow this access.
    #[error("INVALID_OPERATION: memory {memory} was created without the right to be {access}")]
    AccessDenied {
        /// The memory.
        memory: MemoryId,
        /// The access.
        access: &'static str,
    },
    /// A kernel panicked.
    #[error("{} panicked: {message}", describe(Some(*command), name))]
    KernelPanicked {
        /// The kernel's command.
        command: CommandId,
        /// The kernel's name.
        name: Cow<'static, str>,
        /// The panic's message, where it had one.
        message: String,
    },
    /// An event that a command waited for has failed.
    #[error(
        "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: {} waited for event {event}, which failed",
        describe(Some(*command), name)
    )]
    DependencyFailed {
        /// The command.
        command: CommandId,
        /// The command's name.
        name: Cow<'static, str>,
        /// The event that failed.
        event: EventId,
    },
    /// The host resolved a user event as failed.
    #[error("user event {event} was resolved as failed")]
    UserEventFailed {
        /// The user event.
        event: EventId,
    },
    /// Memory was used after it had been released.
    #[error("INVALID_MEM_OBJECT: memory {memory} was given back before; this is a use after free")]
    UseAfterFree {
        /// The memory.
        memory: MemoryId,
    },
    /// Memory was released twice.
    #[error("INVALID_MEM_OBJECT: memory {memory} was given back before; this is a double free")]
    DoubleFree {
        /// The memory.
        memory: MemoryId,
    },
    /// No block of SVM starts at the address that was to be freed.
    #[error("INVALID_VALUE: no block of SVM starts at address {address:#x}")]
    UnknownAddress {
        /// The address.
        address: usize,
    },
}

fn to_commit(requested: u64, free: u64) -> String {
    let [requested, free] = words::bytes_apart([requested, free]);
    format!("{requested} to commit, {free} free")
}

fn describe(command: Option<CommandId>, name: &str) -> String {
    command.map_or_else(
        || "the host".to_owned(),
        |id| format!("command {id} ({name})"),
    )
}

impl MockError {
    /// Returns the corresponding OpenCL error code, where there is one.
    ///
    /// ```
    /// use std::error::Error;
    ///
    /// use binpool_allocators::{Allocator, ImmediateAllocator};
    /// use binpool_mock::{MockDevice, MockError};
    ///
    /// let backend = MockDevice::builder()
    ///     .capacity_bytes(1 << 20)
    ///     .build()
    ///     .backend();
    /// let allocator = ImmediateAllocator::new(&backend)?;
    /// let block = allocator.allocate(1 << 20)?;
    /// let error = allocator.allocate(4096).unwrap_err();
    /// let source = error.source().and_then(|source| source.downcast_ref());
    /// let expected = MockError::AllocationFailure {
    ///     requested: 4096,
    ///     free: 0,
    /// };
    /// assert_eq!(source, Some(&expected));
    /// assert_eq!(expected.code(), Some(-4)); // CL_MEM_OBJECT_ALLOCATION_FAILURE
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[must_use]
    pub const fn code(&self) -> Option<i32> {
        match self {
            Self::AllocationFailure { .. } => Some(-4),
            Self::OutOfHostMemory { .. } => Some(-6),
            Self::Injected { code, .. } => *code,
            Self::WouldWaitForever { .. }
            | Self::WaitInsideKernel
            | Self::KernelPanicked { .. } => None,
            Self::OverlappingArguments { .. } => Some(-50),
            Self::AccessDenied { .. } => Some(-59),
            Self::DependencyFailed { .. } | Self::UserEventFailed { .. } => Some(-14),
            Self::UseAfterFree { .. } | Self::DoubleFree { .. } => Some(-38),
            Self::UnknownAddress { .. } => Some(-30),
        }
    }

    /// The error of a call that fails with this.
    pub(crate) fn into_error(self, operation: &'static str) -> Error {
        match self {
            Self::AllocationFailure { requested, free } => {
                OutOfMemory::new(saturate(requested), Scope::Device)
                    .with_available(free)
                    .with_source(self)
                    .into()
            }
            Self::OutOfHostMemory { bytes, .. } => OutOfMemory::new(bytes, Scope::Host)
                .with_source(self)
                .into(),
            _ => Error::backend(operation, self.code(), self),
        }
    }
}

/// `bytes` as a `usize`, or its largest value.
pub(crate) fn saturate(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
