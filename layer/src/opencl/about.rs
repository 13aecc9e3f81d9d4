//! What the driver says of its objects.

use std::ptr;

use opencl_sys::{
    CL_CONTEXT_DEVICES, CL_DEVICE_NAME, CL_IMAGE_BUFFER, CL_MEM_ASSOCIATED_MEMOBJECT, CL_MEM_SIZE,
    CL_QUEUE_CONTEXT, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROPERTIES, CL_SUCCESS,
    cl_command_queue, cl_command_queue_properties, cl_context, cl_device_id, cl_mem,
};

use super::{driver::ask, objects::Handle};

/// The names of a context's devices.
pub(super) fn devices(context: Handle) -> String {
    let context = context as cl_context;
    let mut bytes = 0;
    ask!(clGetContextInfo(
        context,
        CL_CONTEXT_DEVICES,
        0,
        ptr::null_mut(),
        &raw mut bytes
    ));
    let mut devices: Vec<cl_device_id> = vec![ptr::null_mut(); bytes / size_of::<cl_device_id>()];
    let read = ask!(clGetContextInfo(
        context,
        CL_CONTEXT_DEVICES,
        size_of_val(&*devices),
        devices.as_mut_ptr().cast(),
        ptr::null_mut(),
    ));
    if read != CL_SUCCESS {
        devices.clear();
    }
    let names: Vec<String> = devices.into_iter().map(name).collect();
    names.join(", ")
}

fn name(device: cl_device_id) -> String {
    let mut text = [0_u8; 256];
    let mut bytes = 0;
    let read = ask!(clGetDeviceInfo(
        device,
        CL_DEVICE_NAME,
        text.len(),
        text.as_mut_ptr().cast(),
        &raw mut bytes
    ));
    let text = if read == CL_SUCCESS {
        &text[..bytes.min(text.len())]
    } else {
        b"a device"
    };
    String::from_utf8_lossy(text)
        .trim_end_matches('\0')
        .trim()
        .to_owned()
}

/// The bytes of a memory object.
pub(super) fn bytes(memory: cl_mem) -> usize {
    let mut bytes = 0_usize;
    ask!(clGetMemObjectInfo(
        memory,
        CL_MEM_SIZE,
        size_of::<usize>(),
        (&raw mut bytes).cast(),
        ptr::null_mut()
    ));
    bytes
}

/// The memory that an image is a part of.
pub(super) fn whole(image: cl_mem) -> Option<Handle> {
    let mut whole: cl_mem = ptr::null_mut();
    ask!(clGetMemObjectInfo(
        image,
        CL_MEM_ASSOCIATED_MEMOBJECT,
        size_of::<cl_mem>(),
        (&raw mut whole).cast(),
        ptr::null_mut(),
    ));
    if whole.is_null() {
        // Versions before 2.0 tell it this way only.
        ask!(clGetImageInfo(
            image,
            CL_IMAGE_BUFFER,
            size_of::<cl_mem>(),
            (&raw mut whole).cast(),
            ptr::null_mut()
        ));
    }
    (!whole.is_null()).then_some(whole as Handle)
}

/// The context of a queue.
pub(super) fn context_of(queue: Handle) -> Option<Handle> {
    let mut context: cl_context = ptr::null_mut();
    ask!(clGetCommandQueueInfo(
        queue as cl_command_queue,
        CL_QUEUE_CONTEXT,
        size_of::<cl_context>(),
        (&raw mut context).cast(),
        ptr::null_mut(),
    ));
    (!context.is_null()).then_some(context as Handle)
}

/// Returns whether a queue runs its commands in order.
pub(super) fn is_in_order(queue: Handle) -> bool {
    let mut properties: cl_command_queue_properties = 0;
    let read = ask!(clGetCommandQueueInfo(
        queue as cl_command_queue,
        CL_QUEUE_PROPERTIES,
        size_of::<cl_command_queue_properties>(),
        (&raw mut properties).cast(),
        ptr::null_mut(),
    ));
    read == CL_SUCCESS && properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0
}
