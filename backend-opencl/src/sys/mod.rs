//! The calls of the runtime, with one wrapper for each. Files of this folder name no file outside of it.
//!
//! Outside of this folder, `unsafe` only marks promises of callers: about bare handles that they pass in, and about the
//! bytes that a kernel touches.
//!
//! A wrapper takes handles that own a reference, so everything that it passes on is alive. It returns the runtime's code
//! together with the name of the call. No single call can check the following rules, so the callers in this crate keep
//! them:
//!
//! 1. **Shared virtual memory is not freed while a command uses it.** A command on an [`SvmAllocation`] enters the log of
//!    its block before it is enqueued, and the block is freed after the commands in its log
//!    ([`SvmBlock`](crate::memory::svm_block::SvmBlock)).
//! 2. **A kernel touches the declared bytes only.** The caller of [`ClProgram::kernel`](crate::ClProgram::kernel) promises
//!    that it stays within the extents of its parameters, and [`Launch`](crate::Launch) checks that its arguments have those
//!    bytes before it enqueues the kernel.
//! 3. **Host bytes outlive the command.** Bytes are either borrowed for a call that waits until the command has ended, which
//!    may be one of a whole scope ([`TransferScope`](crate::TransferScope)), or kept by the command's event
//!    ([`drop_after_end`](crate::after_use::drop_after_end)).
//! 4. **Mapped bytes are the host's.** The host touches them only after the end of the command that maps and before the
//!    command that unmaps is enqueued, and commands that conflict with a map are refused
//!    ([`AccessLog`](crate::order::access_log::AccessLog)).

mod answer;
pub(crate) mod buffer;
pub(crate) mod callback;
mod cl_error;
pub(crate) mod destructor;
mod enqueue;
mod event;
mod handle;
pub(crate) mod host;
#[cfg(feature = "images")]
pub(crate) mod image;
mod info;
pub(crate) mod kernel;
pub(crate) mod map;
mod object;
pub(crate) mod p2p;
#[cfg(feature = "images")]
mod pipe;
#[cfg(feature = "images")]
pub(crate) mod pixels;
pub(crate) mod program;
#[cfg(feature = "images")]
mod sampler;
mod svm;
pub(crate) mod transfer;
mod view;

pub(crate) use buffer::{create_buffer, create_sub_buffer, parent_buffer};
pub use cl_error::ClError;
pub(crate) use cl_error::{ClResult, Purpose};
pub(crate) use enqueue::{
    enqueue_barrier, enqueue_copy_buffer, enqueue_marker, enqueue_migrate, finish, flush,
};
pub(crate) use event::{
    EndedOnPanic, Progress, create_user_event, execution_status, look, set_user_event_status,
    wait_for_event, wait_until_ended,
};
pub(crate) use handle::{
    ContextHandle, DeviceId, EventHandle, MemHandle, PlatformId, QueueHandle, WaitList,
};
pub(crate) use info::{
    context_devices, devices_of, event_queue, event_queue_address, library_is_available,
    platform_name_of, platform_text, platforms, queue_info,
};
pub(crate) use map::MapShape;
pub(crate) use object::{create_context, create_queue};
#[cfg(feature = "images")]
pub(crate) use pipe::{create_pipe, pipe_number};
#[cfg(feature = "images")]
pub(crate) use sampler::{SamplerHandle, create_sampler, create_sampler_with_properties};
pub(crate) use svm::{ONE_SVM_THREAD, SvmAllocation, SvmLock, SvmRange, enqueue_svm_migrate};
pub(crate) use transfer::{DeviceBytes, enqueue_copy, enqueue_fill};
pub(crate) use view::{VIEW_LOCK, ViewHandle, ViewLock};
