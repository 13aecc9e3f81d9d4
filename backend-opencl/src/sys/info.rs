//! Questions to the runtime about its objects.

use std::ptr::with_exposed_provenance_mut;

use cl3::{
    command_queue::{
        CL_QUEUE_CONTEXT, CL_QUEUE_DEVICE, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
        CL_QUEUE_PROPERTIES,
    },
    context::CL_CONTEXT_DEVICES,
    device::{CL_DEVICE_PLATFORM, CL_DEVICE_TYPE_ALL},
    error_codes::CL_DEVICE_NOT_FOUND,
    event::{CL_EVENT_COMMAND_QUEUE, CL_EVENT_CONTEXT},
};

use super::{
    ClError, ClResult, ContextHandle, DeviceId, EventHandle, PlatformId, QueueHandle,
    answer::Answer,
};

/// The answer of a loader without a driver, by the extension `cl_khr_icd`.
const CL_PLATFORM_NOT_FOUND_KHR: i32 = -1001;

/// Returns whether there is an OpenCL library on this system. The first call loads it.
pub(crate) fn library_is_available() -> bool {
    cl3::is_opencl_runtime_available()
}

/// Returns all platforms. A loader without a platform answers with an error code, which is no error here.
pub(crate) fn platforms() -> ClResult<Vec<PlatformId>> {
    match cl3::platform::get_platform_ids() {
        // SAFETY: The runtime has just named these platforms, and platforms are never destroyed.
        Ok(ids) => Ok(ids
            .into_iter()
            .map(|id| unsafe { PlatformId::new(id) })
            .collect()),
        Err(CL_PLATFORM_NOT_FOUND_KHR) => Ok(Vec::new()),
        Err(code) => Err(ClError::new("clGetPlatformIDs", code)),
    }
}

/// Returns all devices of a platform. A platform without a device answers with an error code, which is no error here.
pub(crate) fn devices_of(platform: PlatformId) -> ClResult<Vec<DeviceId>> {
    match cl3::device::get_device_ids(platform.raw(), CL_DEVICE_TYPE_ALL) {
        // SAFETY: The runtime has just named these devices, and root devices are never destroyed.
        Ok(ids) => Ok(ids
            .into_iter()
            .map(|id| unsafe { DeviceId::new(id) })
            .collect()),
        Err(CL_DEVICE_NOT_FOUND) => Ok(Vec::new()),
        Err(code) => Err(ClError::new("clGetDeviceIDs", code)),
    }
}

/// Returns a text about a platform.
pub(crate) fn platform_text(platform: PlatformId, what: u32) -> ClResult<String> {
    let answered = cl3::platform::get_platform_data(platform.raw(), what);
    Ok(Answer::new(answered, "clGetPlatformInfo")?.text())
}

impl DeviceId {
    /// Returns the runtime's answer to a question about the device.
    pub(crate) fn info(self, what: u32) -> ClResult<Answer> {
        Answer::new(
            cl3::device::get_device_data(self.raw(), what),
            "clGetDeviceInfo",
        )
    }
}

/// Returns the name of a device's platform.
pub(crate) fn platform_name_of(device: DeviceId) -> ClResult<String> {
    let raw = with_exposed_provenance_mut(device.info(CL_DEVICE_PLATFORM)?.value()?);
    // SAFETY: The runtime has just named this platform, and platforms are never destroyed.
    let platform = unsafe { PlatformId::new(raw) };
    platform_text(platform, cl3::platform::CL_PLATFORM_NAME)
}

/// Returns the devices of a context.
pub(crate) fn context_devices(context: &ContextHandle) -> ClResult<Vec<DeviceId>> {
    let ids = context.info(CL_CONTEXT_DEVICES)?.list();
    // SAFETY: The runtime has just named these devices, which live as long as the context; `DeviceId`s are kept next to its
    // handle.
    let named = |id| unsafe { DeviceId::new(with_exposed_provenance_mut(id)) };
    Ok(ids.into_iter().map(named).collect())
}

/// The runtime's answers about a queue.
#[derive(Debug)]
pub(crate) struct QueueInfo {
    /// The address of its context, to compare.
    pub(crate) context: usize,
    /// The address of its device, to compare.
    pub(crate) device: usize,
    /// Whether it is out of order.
    pub(crate) out_of_order: bool,
}

/// Returns the runtime's answers about a queue.
pub(crate) fn queue_info(queue: &QueueHandle) -> ClResult<QueueInfo> {
    let properties = queue.info(CL_QUEUE_PROPERTIES)?.number()?;
    Ok(QueueInfo {
        context: queue.info(CL_QUEUE_CONTEXT)?.value()?,
        device: queue.info(CL_QUEUE_DEVICE)?.value()?,
        out_of_order: properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0,
    })
}

/// Returns the address of an event's context, to compare, and a reference to its queue, which user events do not have.
pub(crate) fn event_queue(event: &EventHandle) -> ClResult<(usize, Option<QueueHandle>)> {
    let context = event.info(CL_EVENT_CONTEXT)?.value()?;
    let queue = match event_queue_address(event)? {
        0 => None,
        raw => {
            let raw = with_exposed_provenance_mut(raw);
            // SAFETY: The runtime has just named the queue, which the event keeps alive.
            Some(unsafe { QueueHandle::retain(raw) }?)
        }
    };
    Ok((context, queue))
}

/// Returns the address of the queue of an event, to compare; 0 for a user event. On Intel's runtime the queue may be gone.
pub(crate) fn event_queue_address(event: &EventHandle) -> ClResult<usize> {
    event.info(CL_EVENT_COMMAND_QUEUE)?.value()
}
