//! The creation of contexts, queues, samplers and pipes.

use std::ptr;

use cl3::command_queue::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;

use super::{
    ClResult, ContextHandle, DeviceId, MemHandle, QueueHandle, SamplerHandle, answer::Answer,
};

/// A context with one device.
pub(crate) fn create_context(device: DeviceId) -> ClResult<ContextHandle> {
    const CALL: &str = "clCreateContext";
    let created = cl3::context::create_context(&[device.raw()], ptr::null(), None, ptr::null_mut());
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { ContextHandle::own(created, CALL) }
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
    let created = unsafe {
        cl3::command_queue::create_command_queue(context.raw(), device.raw(), properties)
    };
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { QueueHandle::own(created, CALL) }
}

/// A sampler, by the call of OpenCL 1.x, which every later version has too.
pub(crate) fn create_sampler(
    context: &ContextHandle,
    normalized: bool,
    addressing: u32,
    filter: u32,
) -> ClResult<SamplerHandle> {
    const CALL: &str = "clCreateSampler";
    let created =
        cl3::sampler::create_sampler(context.raw(), u32::from(normalized), addressing, filter);
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { SamplerHandle::own(created, CALL) }
}

/// A sampler of keys and values, none of whose keys is 0. The device has OpenCL 2.0.
pub(crate) fn create_sampler_with_properties(
    context: &ContextHandle,
    properties: &[(u64, u64)],
) -> ClResult<SamplerHandle> {
    const CALL: &str = "clCreateSamplerWithProperties";
    let list: Vec<u64> = properties
        .iter()
        .flat_map(|&(key, value)| [key, value])
        .chain([0])
        .collect();
    let created = cl3::sampler::create_sampler_with_properties(context.raw(), list.as_ptr());
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { SamplerHandle::own(created, CALL) }
}

/// A pipe without packets. The device has pipes.
pub(crate) fn create_pipe(
    context: &ContextHandle,
    flags: u64,
    packet_bytes: u32,
    max_packets: u32,
) -> ClResult<MemHandle> {
    const CALL: &str = "clCreatePipe";
    // SAFETY: The context is kept alive by its handle, and the runtime checks the numbers.
    let created =
        unsafe { cl3::memory::create_pipe(context.raw(), flags, packet_bytes, max_packets) };
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { MemHandle::own(created, CALL) }
}

/// Returns a number about a pipe.
pub(crate) fn pipe_number(pipe: &MemHandle, what: u32) -> ClResult<u32> {
    Answer::new(
        cl3::memory::get_pipe_data(pipe.raw(), what),
        "clGetPipeInfo",
    )?
    .value()
}
