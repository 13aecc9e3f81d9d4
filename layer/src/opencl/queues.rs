//! The functions that create and release contexts, queues and events of the program.

use std::{
    ffi::{c_char, c_void},
    ptr,
};

use opencl_sys::{
    CL_CONTEXT_REFERENCE_COUNT, CL_QUEUE_REFERENCE_COUNT, CL_SUCCESS, cl_bool, cl_command_queue,
    cl_command_queue_info, cl_command_queue_properties, cl_context, cl_context_info,
    cl_context_properties, cl_device_id, cl_device_type, cl_event, cl_int, cl_queue_properties,
    cl_uint,
};

use super::{driver::call, layer::layer, objects::Handle};
use crate::recording::contained;

type Notify = unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void);

fn created_context(context: cl_context) -> cl_context {
    if !context.is_null() {
        contained(|| layer().add_context(context as Handle));
    }
    context
}

fn created_queue(queue: cl_command_queue, context: cl_context) -> cl_command_queue {
    if !queue.is_null() {
        contained(|| layer().add_queue(queue as Handle, context as Handle, 1));
    }
    queue
}

pub(super) unsafe extern "C" fn clCreateContext(
    properties: *const cl_context_properties,
    count: cl_uint,
    devices: *const cl_device_id,
    notify: Option<Notify>,
    user_data: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_context {
    created_context(
        call!(clCreateContext(properties, count, devices, notify, user_data, errcode_ret) or ptr::null_mut()),
    )
}

pub(super) unsafe extern "C" fn clCreateContextFromType(
    properties: *const cl_context_properties,
    kind: cl_device_type,
    notify: Option<Notify>,
    user_data: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_context {
    created_context(
        call!(clCreateContextFromType(properties, kind, notify, user_data, errcode_ret) or ptr::null_mut()),
    )
}

pub(super) unsafe extern "C" fn clRetainContext(context: cl_context) -> cl_int {
    let status = call!(clRetainContext(context));
    if status == CL_SUCCESS {
        contained(|| layer().retain_context(context as Handle));
    }
    status
}

pub(super) unsafe extern "C" fn clReleaseContext(context: cl_context) -> cl_int {
    contained(|| layer().release_context(context as Handle));
    call!(clReleaseContext(context))
}

pub(super) unsafe extern "C" fn clGetContextInfo(
    context: cl_context,
    name: cl_context_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    if name == CL_CONTEXT_REFERENCE_COUNT {
        // Memory that the pools keep has references, too.
        contained(|| layer().release_kept());
    }
    call!(clGetContextInfo(context, name, size, value, size_ret))
}

pub(super) unsafe extern "C" fn clGetCommandQueueInfo(
    queue: cl_command_queue,
    name: cl_command_queue_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    if name == CL_QUEUE_REFERENCE_COUNT {
        // The markers of memory that the pools keep have references, too.
        contained(|| layer().release_kept());
    }
    call!(clGetCommandQueueInfo(queue, name, size, value, size_ret))
}

pub(super) unsafe extern "C" fn clCreateCommandQueue(
    context: cl_context,
    device: cl_device_id,
    properties: cl_command_queue_properties,
    errcode_ret: *mut cl_int,
) -> cl_command_queue {
    created_queue(
        call!(clCreateCommandQueue(context, device, properties, errcode_ret) or ptr::null_mut()),
        context,
    )
}

pub(super) unsafe extern "C" fn clCreateCommandQueueWithProperties(
    context: cl_context,
    device: cl_device_id,
    properties: *const cl_queue_properties,
    errcode_ret: *mut cl_int,
) -> cl_command_queue {
    let queue = call!(clCreateCommandQueueWithProperties(context, device, properties, errcode_ret) or ptr::null_mut());
    created_queue(queue, context)
}

/// Of version 1.0, and deprecated since.
pub(super) unsafe extern "C" fn clSetCommandQueueProperty(
    queue: cl_command_queue,
    properties: cl_command_queue_properties,
    enable: cl_bool,
    old_properties: *mut cl_command_queue_properties,
) -> cl_int {
    contained(|| layer().stop_pooling("the program changes the order of a queue"));
    call!(clSetCommandQueueProperty(
        queue,
        properties,
        enable,
        old_properties
    ))
}

pub(super) unsafe extern "C" fn clRetainCommandQueue(queue: cl_command_queue) -> cl_int {
    let status = call!(clRetainCommandQueue(queue));
    if status == CL_SUCCESS {
        contained(|| layer().retain_queue(queue as Handle));
    }
    status
}

pub(super) unsafe extern "C" fn clReleaseCommandQueue(queue: cl_command_queue) -> cl_int {
    contained(|| layer().release_queue(queue as Handle));
    call!(clReleaseCommandQueue(queue))
}

pub(super) unsafe extern "C" fn clCreateUserEvent(
    context: cl_context,
    errcode_ret: *mut cl_int,
) -> cl_event {
    let event = call!(clCreateUserEvent(context, errcode_ret) or ptr::null_mut());
    if !event.is_null() {
        contained(|| layer().add_user_event());
    }
    event
}

pub(super) unsafe extern "C" fn clSetUserEventStatus(event: cl_event, status: cl_int) -> cl_int {
    if status < 0 {
        // What a command that fails leaves of the order of its queue is not the same on all drivers.
        contained(|| layer().stop_pooling("the program lets commands fail"));
    }
    let set = call!(clSetUserEventStatus(event, status));
    if set == CL_SUCCESS {
        contained(|| layer().resolve_user_event());
    }
    set
}
