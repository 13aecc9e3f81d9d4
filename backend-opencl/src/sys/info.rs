//! Questions to the runtime about its objects.

use cl3::{context::CL_CONTEXT_DEVICES, error_codes::CL_INVALID_VALUE, info_type::InfoType};

use super::{ClError, ClResult, ContextHandle, DeviceId, EventHandle, PlatformId, QueueHandle};

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
    match cl3::device::get_device_ids(platform.raw(), cl3::device::CL_DEVICE_TYPE_ALL) {
        // SAFETY: The runtime has just named these devices, and root devices are never destroyed.
        Ok(ids) => Ok(ids
            .into_iter()
            .map(|id| unsafe { DeviceId::new(id) })
            .collect()),
        Err(cl3::error_codes::CL_DEVICE_NOT_FOUND) => Ok(Vec::new()),
        Err(code) => Err(ClError::new("clGetDeviceIDs", code)),
    }
}

/// Returns a text about a platform.
pub(crate) fn platform_text(platform: PlatformId, what: u32) -> ClResult<String> {
    let bytes = cl3::platform::get_platform_data(platform.raw(), what)
        .map_err(|code| ClError::new("clGetPlatformInfo", code))?;
    Ok(text(&bytes))
}

/// Returns the bytes of the runtime's answer about a device.
fn device_bytes(device: DeviceId, what: u32) -> ClResult<Vec<u8>> {
    cl3::device::get_device_data(device.raw(), what)
        .map_err(|code| ClError::new("clGetDeviceInfo", code))
}

/// Returns a text about a device.
pub(crate) fn device_text(device: DeviceId, what: u32) -> ClResult<String> {
    Ok(text(&device_bytes(device, what)?))
}

/// Returns a number about a device, which the runtime answers in 4 or 8 bytes.
pub(crate) fn device_number(device: DeviceId, what: u32) -> ClResult<u64> {
    number(&device_bytes(device, what)?).ok_or(ClError::new("clGetDeviceInfo", CL_INVALID_VALUE))
}

/// Returns a list of sizes about a device.
pub(crate) fn device_sizes(device: DeviceId, what: u32) -> ClResult<Vec<usize>> {
    Ok(sizes(&device_bytes(device, what)?))
}

/// The name of a device's platform.
pub(crate) fn platform_name_of(device: DeviceId) -> ClResult<String> {
    let raw = device_number(device, cl3::device::CL_DEVICE_PLATFORM)?;
    let raw = std::ptr::with_exposed_provenance_mut(usize::try_from(raw).unwrap_or(0));
    // SAFETY: The runtime has just named this platform, and platforms are never destroyed.
    let platform = unsafe { PlatformId::new(raw) };
    platform_text(platform, cl3::platform::CL_PLATFORM_NAME)
}

/// The devices of a context.
pub(crate) fn context_devices(context: &ContextHandle) -> ClResult<Vec<DeviceId>> {
    const CALL: &str = "clGetContextInfo";
    match cl3::context::get_context_info(context.raw(), CL_CONTEXT_DEVICES) {
        Ok(InfoType::VecIntPtr(ids)) => {
            let id = |id| {
                std::ptr::with_exposed_provenance_mut(usize::from_ne_bytes(isize::to_ne_bytes(id)))
            };
            // SAFETY: The runtime has just named these devices, which live as long as the context; `DeviceId`s are kept
            // next to its handle.
            Ok(ids
                .into_iter()
                .map(|raw| unsafe { DeviceId::new(id(raw)) })
                .collect())
        }
        Ok(_) => Err(ClError::new(CALL, CL_INVALID_VALUE)),
        Err(code) => Err(ClError::new(CALL, code)),
    }
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

/// The runtime's answers about a queue.
pub(crate) fn queue_info(queue: &QueueHandle) -> ClResult<QueueInfo> {
    use cl3::command_queue::{
        CL_QUEUE_CONTEXT, CL_QUEUE_DEVICE, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
        CL_QUEUE_PROPERTIES, get_command_queue_info,
    };
    const CALL: &str = "clGetCommandQueueInfo";
    let ask =
        |what| get_command_queue_info(queue.raw(), what).map_err(|code| ClError::new(CALL, code));
    let pointer = |what| match ask(what)? {
        InfoType::Ptr(raw) => Ok(usize::from_ne_bytes(raw.to_ne_bytes())),
        _ => Err(ClError::new(CALL, CL_INVALID_VALUE)),
    };
    let InfoType::Ulong(properties) = ask(CL_QUEUE_PROPERTIES)? else {
        return Err(ClError::new(CALL, CL_INVALID_VALUE));
    };
    Ok(QueueInfo {
        context: pointer(CL_QUEUE_CONTEXT)?,
        device: pointer(CL_QUEUE_DEVICE)?,
        out_of_order: properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0,
    })
}

/// Returns the address of an event's context, to compare, and a reference to its queue, which user events do not have.
pub(crate) fn event_queue(event: &EventHandle) -> ClResult<(usize, Option<QueueHandle>)> {
    let context = event_pointer(event, cl3::event::CL_EVENT_CONTEXT)?;
    let queue = match event_queue_address(event)? {
        0 => None,
        raw => {
            let raw = std::ptr::with_exposed_provenance_mut(raw);
            // SAFETY: The runtime has just named the queue, which the event keeps alive.
            Some(unsafe { QueueHandle::retain(raw) }?)
        }
    };
    Ok((context, queue))
}

/// The address of the queue of an event, to compare; 0 for a user event. On Intel's runtime the queue may be gone.
pub(crate) fn event_queue_address(event: &EventHandle) -> ClResult<usize> {
    event_pointer(event, cl3::event::CL_EVENT_COMMAND_QUEUE)
}

fn event_pointer(event: &EventHandle, what: u32) -> ClResult<usize> {
    const CALL: &str = "clGetEventInfo";
    match cl3::event::get_event_info(event.raw(), what) {
        Ok(InfoType::Ptr(raw)) => Ok(usize::from_ne_bytes(raw.to_ne_bytes())),
        Ok(_) => Err(ClError::new(CALL, CL_INVALID_VALUE)),
        Err(code) => Err(ClError::new(CALL, code)),
    }
}

/// The number in a runtime's answer of 4 bytes or 8.
pub(super) fn number(bytes: &[u8]) -> Option<u64> {
    if let Ok(bytes) = <[u8; 8]>::try_from(bytes) {
        return Some(u64::from_ne_bytes(bytes));
    }
    let bytes = <[u8; 4]>::try_from(bytes).ok()?;
    Some(u32::from_ne_bytes(bytes).into())
}

/// The list of `size_t` in a runtime's answer.
pub(super) fn sizes(bytes: &[u8]) -> Vec<usize> {
    let (sizes, _) = bytes.as_chunks::<{ size_of::<usize>() }>();
    sizes
        .iter()
        .map(|&size| usize::from_ne_bytes(size))
        .collect()
}

/// The text in a runtime's answer, up to the null byte that ends it.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn a_text_ends_at_its_null_byte_and_has_no_blanks_around() {
        assert_eq!(text(b" NVIDIA H200 \0junk"), "NVIDIA H200");
        assert_eq!(text(b"plain"), "plain");
        assert_eq!(text(b""), "");
    }
}
