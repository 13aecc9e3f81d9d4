//! The only room with `unsafe` in it: one wrapper for each call of the runtime.
//!
//! A wrapper takes handles that own a reference, so that nothing it passes on can be gone; it returns the
//! runtime's code together with the name of the call. Four rules are kept by the callers inside this crate,
//! since no single call can see them:
//!
//! * **Shared virtual memory is not freed under a command.** Whoever enqueues a command on an
//!   [`SvmAllocation`] records its event with the block ([`SvmBlock`](crate::svm::block::SvmBlock)), or waits
//!   for it while the block is borrowed.
//! * **A kernel touches the declared bytes only.** Whoever made it has promised that of the extents of its
//!   parameters ([`ClProgram::kernel`](crate::ClProgram::kernel)); that its arguments have those bytes is checked
//!   before it is enqueued ([`Launch`](crate::Launch)).
//! * **Host bytes outlive the command.** Bytes are either borrowed for a call that waits until the command has
//!   ended, or kept by the command's event ([`Kept`](crate::kept::Kept)).
//! * **Mapped bytes are the host's.** They are touched between the ends of the commands that map and unmap them only, and
//!   commands that conflict with a map are not enqueued ([`AccessLog`](crate::order::access_log::AccessLog)).

pub(crate) mod buffer;
mod callback;
pub(crate) mod destructor;
#[cfg(feature = "dlpack")]
pub(crate) mod dlpack;
mod enqueue;
mod event;
mod handle;
mod host_bytes;
pub(crate) mod host_vec;
pub(crate) mod image;
mod info;
mod join;
pub(crate) mod kernel;
pub(crate) mod map;
pub(crate) mod mem_info;
pub(crate) mod migrate;
mod object;
pub(crate) mod p2p;
pub(crate) mod pipe;
pub(crate) mod program;
pub(crate) mod rect;
pub(crate) mod sampler;
pub(crate) mod scoped;
pub(crate) mod sizes;
mod svm;
mod svm_reaper;
mod transfer;

pub(crate) use enqueue::{
    enqueue_barrier, enqueue_copy_buffer, enqueue_fill_buffer, enqueue_marker, finish, flush,
};
pub(crate) use event::{
    create_user_event, execution_status, set_user_event_status, wait_for_event, wait_until_ended,
};
pub(crate) use handle::{
    ContextHandle, DeviceId, EventHandle, MemHandle, PlatformId, QueueHandle, SamplerHandle,
    WaitList,
};
pub(crate) use host_bytes::HostBytes;
pub(crate) use info::{
    context_devices, device_number, device_sizes, device_text, devices_of, event_queue,
    library_is_available, platform_name_of, platform_text, platforms, queue_info,
};
pub(crate) use join::join;
pub(crate) use object::{
    create_buffer, create_context, create_queue, create_sub_buffer, retain_context_of,
    retain_event_of, retain_queue_of,
};
pub(crate) use svm::{
    SvmAllocation, SvmRange, Threads, Uses, enqueue_svm_copy, enqueue_svm_fill, free_after,
    free_on_the_host,
};
pub(crate) use transfer::{
    Place, read_borrowed, read_kept, read_vec, write_borrowed, write_kept, write_vec,
};
