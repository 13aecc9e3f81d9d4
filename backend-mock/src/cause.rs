//! Why a call to the mock, or a command, failed.

use std::borrow::Cow;

use binpool_allocators::{Error, EventId, MemoryId, OutOfMemory, Scope, words};

use crate::{CallKind, CommandId};

/// Why a call to the mock, or a command, failed: the source of the error that the program meets. It has the name of the OpenCL error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Cause {
    /// The device has no room to commit a block.
    #[error("MEM_OBJECT_ALLOCATION_FAILURE: {}", to_commit(*.requested, *.free))]
    AllocationFailure { requested: u64, free: u64 },
    /// The host has no room for the contents of a block.
    #[error("OUT_OF_HOST_MEMORY: no room for the {} of memory {memory}", words::bytes(*.bytes as u64))]
    OutOfHostMemory { memory: MemoryId, bytes: usize },
    /// An injected fault.
    #[error("an injected fault, in {call}")]
    Injected { call: CallKind, code: Option<i32> },
    /// The host would wait forever: only a user event that has not been resolved could end the wait.
    #[error(
        "the host would wait forever: {} waits for user event {event}, which the program has not resolved",
        describe(*command, name)
    )]
    WouldWaitForever {
        /// The command that waits for the user event; `None` if the host itself waits for it.
        command: Option<CommandId>,
        name: Cow<'static, str>,
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
        kernel: Cow<'static, str>,
        write: usize,
        other: usize,
    },
    /// The flags of the memory do not allow this access.
    #[error("INVALID_OPERATION: memory {memory} was created without the right to be {access}")]
    AccessDenied {
        memory: MemoryId,
        access: &'static str,
    },
    /// A kernel panicked.
    #[error("{} panicked: {message}", describe(Some(*command), name))]
    KernelPanicked {
        command: CommandId,
        name: Cow<'static, str>,
        message: String,
    },
    /// An event that a command waited for has failed.
    #[error(
        "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: {} waited for event {event}, which failed",
        describe(Some(*command), name)
    )]
    DependencyFailed {
        command: CommandId,
        name: Cow<'static, str>,
        event: EventId,
    },
    /// The host resolved a user event as failed, or dropped it unresolved.
    #[error("user event {event} was resolved as failed, or dropped before it was resolved")]
    UserEventFailed { event: EventId },
    /// Memory was used after it had been released.
    #[error("INVALID_MEM_OBJECT: memory {memory} was released before; this is a use after free")]
    UseAfterFree { memory: MemoryId },
    /// Memory was released twice.
    #[error("INVALID_MEM_OBJECT: memory {memory} was released before; this is a double free")]
    DoubleFree { memory: MemoryId },
    /// No block of SVM starts at the address that was to be freed.
    #[error("INVALID_VALUE: no block of SVM starts at address {address:#x}")]
    UnknownAddress { address: usize },
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

impl Cause {
    /// The code of the OpenCL error, where there is one.
    const fn code(&self) -> Option<i32> {
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
