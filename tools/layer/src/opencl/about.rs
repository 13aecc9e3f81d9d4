//! What the driver says of its objects.

use std::ptr;

use opencl_sys::{
    CL_CONTEXT_DEVICES, CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_NAME, CL_DEVICE_PARENT_DEVICE,
    CL_DEVICE_REFERENCE_COUNT, CL_IMAGE_BUFFER, CL_MEM_ASSOCIATED_MEMOBJECT, CL_MEM_SIZE,
    CL_QUEUE_CONTEXT, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROPERTIES, CL_SUCCESS,
    cl_command_queue, cl_context, cl_device_id, cl_mem,
};

use super::{driver::ask, objects::Handle};
use crate::recording::Device;

/// Asks the driver for a property. The answer is `$nothing` if the driver gives none.
macro_rules! property {
    ($function:ident($object:expr, $name:expr), $nothing:expr) => {{
        let mut value = $nothing;
        let bytes = size_of_val(&value);
        let place = (&raw mut value).cast();
        match ask!($function($object, $name, bytes, place, ptr::null_mut())) {
            CL_SUCCESS => value,
            _ => $nothing,
        }
    }};
}

/// A context's devices.
pub(super) fn devices(context: Handle) -> Vec<Device> {
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
    let about = |device| Device {
        name: name(device),
        bytes: property!(clGetDeviceInfo(device, CL_DEVICE_GLOBAL_MEM_SIZE), 0_u64),
    };
    devices.into_iter().map(about).collect()
}

fn name(device: cl_device_id) -> String {
    let text = property!(clGetDeviceInfo(device, CL_DEVICE_NAME), [0_u8; 256]);
    let text = String::from_utf8_lossy(&text);
    let name = text.split('\0').next().unwrap_or_default().trim();
    if name.is_empty() { "a device" } else { name }.to_owned()
}

/// Returns whether a device ends with the program's reference, since not even its contexts have one: a sub-device of PoCL before version 4 (its issue
/// 1229).
pub(super) fn is_programs_alone(device: cl_device_id) -> bool {
    let parent = property!(clGetDeviceInfo(device, CL_DEVICE_PARENT_DEVICE), 0_usize);
    let references = property!(clGetDeviceInfo(device, CL_DEVICE_REFERENCE_COUNT), 0_u32);
    parent != 0 && references < 2
}

/// The bytes of a memory object.
pub(super) fn bytes(memory: cl_mem) -> usize {
    property!(clGetMemObjectInfo(memory, CL_MEM_SIZE), 0_usize)
}

/// The memory that an image is a part of.
pub(super) fn whole(image: cl_mem) -> Option<Handle> {
    let whole = property!(
        clGetMemObjectInfo(image, CL_MEM_ASSOCIATED_MEMOBJECT),
        0_usize
    );
    // Versions before 2.0 tell it this way only.
    let before = || property!(clGetImageInfo(image, CL_IMAGE_BUFFER), 0_usize);
    let whole = if whole == 0 { before() } else { whole };
    (whole != 0).then_some(whole)
}

/// The context of a queue.
pub(super) fn context_of(queue: Handle) -> Option<Handle> {
    let queue = queue as cl_command_queue;
    let context = property!(clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT), 0_usize);
    (context != 0).then_some(context)
}

/// Returns whether a queue runs its commands in order.
pub(super) fn is_in_order(queue: Handle) -> bool {
    let queue = queue as cl_command_queue;
    // A queue that does not say counts as out of order.
    let properties = property!(
        clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES),
        CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
    );
    properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0
}
