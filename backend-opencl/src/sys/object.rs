//! The creation of objects.

use std::{ffi::c_void, ptr};

use cl3::{
    command_queue::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
    memory::{CL_BUFFER_CREATE_TYPE_REGION, cl_buffer_region},
};

use super::{ClError, ClResult, ContextHandle, DeviceId, MemHandle, QueueHandle};

/// A context with one device.
pub(crate) fn create_context(device: DeviceId) -> ClResult<ContextHandle> {
    const CALL: &str = "clCreateContext";
    let raw = cl3::context::create_context(&[device.raw()], ptr::null(), None, ptr::null_mut())
        .map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
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
    // SAFETY: The context is kept alive by its handle, and the runtime checks that `device` is one of its devices.
    let raw = unsafe {
        cl3::command_queue::create_command_queue(context.raw(), device.raw(), properties)
    }
    .map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { QueueHandle::own(raw, CALL) }
}

/// A buffer with undefined contents.
pub(crate) fn create_buffer(
    context: &ContextHandle,
    flags: u64,
    bytes: usize,
) -> ClResult<MemHandle> {
    const CALL: &str = "clCreateBuffer";
    // SAFETY: The context is kept alive by its handle, and no flag that asks for a host pointer is ever passed.
    let raw = unsafe { cl3::memory::create_buffer(context.raw(), flags, bytes, ptr::null_mut()) }
        .map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { MemHandle::own(raw, CALL) }
}

/// A sub-buffer of `root`. With flags of 0 it may be used as `root` may.
pub(crate) fn create_sub_buffer(
    root: &MemHandle,
    flags: u64,
    offset: usize,
    bytes: usize,
) -> ClResult<MemHandle> {
    const CALL: &str = "clCreateSubBuffer";
    let region = cl_buffer_region {
        origin: offset,
        size: bytes,
    };
    let region = (&raw const region).cast::<c_void>();
    // SAFETY: (1) `root` is kept alive by its handle; (2) `region` points to a `cl_buffer_region`, which is what the type
    // code that is passed asks for.
    let raw = unsafe {
        cl3::memory::create_sub_buffer(root.raw(), flags, CL_BUFFER_CREATE_TYPE_REGION, region)
    }
    .map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { MemHandle::own(raw, CALL) }
}
