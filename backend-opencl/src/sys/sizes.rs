//! Lists of sizes that the runtime tells about a device.

use super::DeviceId;
use crate::cl_error::{ClError, ClResult};

/// A list of sizes about a device.
pub(crate) fn device_sizes(device: DeviceId, what: u32) -> ClResult<Vec<usize>> {
    let bytes = cl3::device::get_device_data(device.raw(), what)
        .map_err(|code| ClError::new("clGetDeviceInfo", code))?;
    let sizes = bytes.as_chunks::<{ size_of::<usize>() }>().0.iter();
    Ok(sizes.map(|size| usize::from_ne_bytes(*size)).collect())
}
