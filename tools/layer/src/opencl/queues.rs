//! The functions that create and release contexts, queues and events of the program.

use std::ffi::{c_char, c_void};

use opencl_sys::{
    CL_CONTEXT_REFERENCE_COUNT, CL_QUEUE_REFERENCE_COUNT, cl_bool, cl_command_queue,
    cl_command_queue_info, cl_command_queue_properties, cl_context, cl_context_info,
    cl_context_properties, cl_device_id, cl_device_type, cl_event, cl_int, cl_queue_properties,
    cl_uint,
};

use super::{about, driver::functions, layer::layer, objects::Handle};

type Notify = unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void);

functions! {
    clCreateContext(
        properties: *const cl_context_properties,
        count: cl_uint,
        devices: *const cl_device_id,
        notify: Option<Notify>,
        user_data: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_context, after context: {
        // SAFETY: the driver has read the same list.
        let devices = unsafe { std::slice::from_raw_parts(devices, count as usize) };
        let may_lose_devices = devices.iter().any(|device| about::is_programs_alone(*device));
        layer().change(|known| known.add_context(context as Handle, may_lose_devices));
    };

    clCreateContextFromType(
        properties: *const cl_context_properties,
        kind: cl_device_type,
        notify: Option<Notify>,
        user_data: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_context, after context: layer().change(|known| known.add_context(context as Handle, false));

    clRetainContext(context: cl_context) -> cl_int, after: layer().change(|known| known.retain_context(context as Handle));

    clReleaseContext(context: cl_context) -> cl_int, before: layer().release_context(context as Handle);

    // Memory that the pools keep has references to its context, too.
    clGetContextInfo(context: cl_context, name: cl_context_info, size: usize, value: *mut c_void, size_ret: *mut usize) -> cl_int,
        before: if name == CL_CONTEXT_REFERENCE_COUNT { layer().release_kept(); };

    // The markers of memory that the pools keep have references to their queue, too.
    clGetCommandQueueInfo(queue: cl_command_queue, name: cl_command_queue_info, size: usize, value: *mut c_void, size_ret: *mut usize) -> cl_int,
        before: if name == CL_QUEUE_REFERENCE_COUNT { layer().release_kept(); };

    clCreateCommandQueue(
        context: cl_context,
        device: cl_device_id,
        properties: cl_command_queue_properties,
        errcode_ret: *mut cl_int,
    ) -> cl_command_queue, after queue: layer().add_queue(queue as Handle, context as Handle, 1);

    clCreateCommandQueueWithProperties(
        context: cl_context,
        device: cl_device_id,
        properties: *const cl_queue_properties,
        errcode_ret: *mut cl_int,
    ) -> cl_command_queue, after queue: layer().add_queue(queue as Handle, context as Handle, 1);

    // Of version 1.0, and deprecated since.
    clSetCommandQueueProperty(
        queue: cl_command_queue,
        properties: cl_command_queue_properties,
        enable: cl_bool,
        old_properties: *mut cl_command_queue_properties,
    ) -> cl_int, before: layer().stop_pooling("the program changes the order of a queue");

    clRetainCommandQueue(queue: cl_command_queue) -> cl_int, after: layer().retain_queue(queue as Handle);

    clReleaseCommandQueue(queue: cl_command_queue) -> cl_int, before: layer().release_queue(queue as Handle);

    clCreateUserEvent(context: cl_context, errcode_ret: *mut cl_int) -> cl_event, after: layer().add_user_event();

    // What a command that fails leaves of the order of its queue is not the same on all drivers.
    clSetUserEventStatus(event: cl_event, status: cl_int) -> cl_int,
        before: if status < 0 { layer().stop_pooling("the program lets commands fail"); },
        after: layer().resolve_user_event();
}
