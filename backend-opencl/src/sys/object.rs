//! The creation of contexts and queues.

use std::ptr;

use cl3::command_queue::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;

use super::{ClResult, ContextHandle, DeviceId, QueueHandle};

/// A context with one device.
pub(crate) fn create_context(device: DeviceId) -> ClResult<ContextHandle> {
    let created = cl3::context::create_context(&[device.raw()], ptr::null(), None, ptr::null_mut());
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { ContextHandle::own(created, "clCreateContext") }
}

/// A queue of `device`.
///
/// This is the call of OpenCL 1.x, which every later version has too.
pub(crate) fn create_queue(
    context: &ContextHandle,
    device: DeviceId,
    out_of_order: bool,
) -> ClResult<QueueHandle> {
    let properties = if out_of_order {
        CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
    } else {
        0
    };
    // SAFETY: The context is kept alive by its handle, and the runtime checks that `device` is one of its devices.
    let created = unsafe {
        cl3::command_queue::create_command_queue(context.raw(), device.raw(), properties)
    };
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { QueueHandle::own(created, "clCreateCommandQueue") }
}
