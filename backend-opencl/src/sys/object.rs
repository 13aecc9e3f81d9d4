//! Making objects, and taking references to somebody else's.

use std::{ffi::c_void, ptr};

use cl3::{
    command_queue::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
    memory::{CL_BUFFER_CREATE_TYPE_REGION, cl_buffer_region},
};

use super::{ContextHandle, DeviceId, EventHandle, MemHandle, QueueHandle};
use crate::cl_error::{ClError, ClResult};

/// A context with one device.
pub(crate) fn create_context(device: DeviceId) -> ClResult<ContextHandle> {
    const CALL: &str = "clCreateContext";
    let raw = cl3::context::create_context(&[device.raw()], ptr::null(), None, ptr::null_mut())
        .map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call has just returned this reference to us.
    unsafe { ContextHandle::own(raw, CALL) }
}

/// A queue of `device`.
///
/// This is the call of OpenCL 1.x, which every later version has too.
pub(crate) fn create_queue(
    context: &ContextHandle,
    device: DeviceId,
    out_of_order: bool,
) -> ClResult<QueueHandle> {
    const CALL: &str = "clCreateCommandQueue";
    let properties = if out_of_order {
        CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
    } else {
        0
    };
    // SAFETY: `context` lives, and the runtime checks that `device` is one of its devices.
    let raw = unsafe {
        cl3::command_queue::create_command_queue(context.raw(), device.raw(), properties)
    }
    .map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call has just returned this reference to us.
    unsafe { QueueHandle::own(raw, CALL) }
}

/// A buffer with undefined contents.
pub(crate) fn create_buffer(
    context: &ContextHandle,
    flags: u64,
    bytes: usize,
) -> ClResult<MemHandle> {
    const CALL: &str = "clCreateBuffer";
    // SAFETY: `context` lives; no flag that asks for a host pointer is ever passed.
    let raw = unsafe { cl3::memory::create_buffer(context.raw(), flags, bytes, ptr::null_mut()) }
        .map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call has just returned this reference to us.
    unsafe { MemHandle::own(raw, CALL) }
}

/// A sub-buffer of `root`, which may be used as `root` may.
pub(crate) fn create_sub_buffer(
    root: &MemHandle,
    offset: usize,
    bytes: usize,
) -> ClResult<MemHandle> {
    const CALL: &str = "clCreateSubBuffer";
    let region = cl_buffer_region {
        origin: offset,
        size: bytes,
    };
    let region = (&raw const region).cast::<c_void>();
    // SAFETY: (1) `root` lives; (2) `region` points to a region, as the type that is passed says.
    let raw = unsafe {
        cl3::memory::create_sub_buffer(root.raw(), 0, CL_BUFFER_CREATE_TYPE_REGION, region)
    }
    .map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call has just returned this reference to us.
    unsafe { MemHandle::own(raw, CALL) }
}

/// A reference of our own to the context of `opencl3`.
pub(crate) fn retain_context_of(context: &opencl3::context::Context) -> ClResult<ContextHandle> {
    // SAFETY: `opencl3`'s object owns a reference for as long as it is borrowed.
    unsafe { ContextHandle::retain(context.get()) }
}

/// A reference of our own to the queue of `opencl3`.
pub(crate) fn retain_queue_of(
    queue: &opencl3::command_queue::CommandQueue,
) -> ClResult<QueueHandle> {
    // SAFETY: `opencl3`'s object owns a reference for as long as it is borrowed.
    unsafe { QueueHandle::retain(queue.get()) }
}

/// A reference of our own to the event of `opencl3`.
pub(crate) fn retain_event_of(event: &opencl3::event::Event) -> ClResult<EventHandle> {
    // SAFETY: `opencl3`'s object owns a reference for as long as it is borrowed.
    unsafe { EventHandle::retain(event.get()) }
}
