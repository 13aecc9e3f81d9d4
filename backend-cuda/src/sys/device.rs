//! What the driver says of a device.

use std::{ffi::CStr, sync::Arc};

use super::{
    driver::{Driver, Properties, Sharing},
    status::CudaResult,
};

const UNIFIED_ADDRESSING: i32 = 41;
const MANAGED_MEMORY: i32 = 83;
const VIRTUAL_MEMORY: i32 = 102;
const SHARED_BY_DESCRIPTOR: i32 = 103;
const PAGES_BY_RDMA: i32 = 110;
const MEMORY_POOLS: i32 = 115;

/// The page of every device so far.
const USUAL_PAGE: usize = 2 << 20;

/// What the driver says about a device.
#[derive(Clone)]
pub(crate) struct DeviceFacts {
    /// `CUdevice`.
    pub(crate) device: i32,
    pub(crate) name: String,
    pub(crate) total_bytes: usize,
    pub(crate) unified_addressing: bool,
    pub(crate) managed_memory: bool,
    pub(crate) virtual_memory: bool,
    pub(crate) memory_pools: bool,
    /// How far its pages can be shared.
    pub(crate) sharing: Sharing,
}

/// Returns the number of devices.
pub(crate) fn count(driver: &Driver) -> CudaResult<i32> {
    let mut count = 0;
    // SAFETY: `count` is a place for the result.
    unsafe { driver.device_count(&raw mut count) }?;
    Ok(count)
}

/// Asks for the facts about the device of a number.
pub(crate) fn facts(driver: &Arc<Driver>, ordinal: i32) -> CudaResult<DeviceFacts> {
    let mut device = 0;
    // SAFETY: `device` is a place for the result.
    unsafe { driver.device_get(&raw mut device, ordinal) }?;
    let mut name = [0_u8; 256];
    // SAFETY: `name` is a place for 256 bytes.
    unsafe { driver.device_name(name.as_mut_ptr().cast(), 256, device) }?;
    let name =
        CStr::from_bytes_until_nul(&name).map_or("a CUDA device".into(), CStr::to_string_lossy);
    let mut total_bytes = 0;
    // SAFETY: `total_bytes` is a place for the result.
    unsafe { driver.device_bytes(&raw mut total_bytes, device) }?;
    let has = |attribute| -> CudaResult<bool> {
        let mut value = 0;
        // SAFETY: `value` is a place for the result.
        unsafe { driver.device_attribute(&raw mut value, attribute, device) }?;
        Ok(value != 0)
    };
    let sharing = match (
        cfg!(unix) && has(SHARED_BY_DESCRIPTOR)?,
        has(PAGES_BY_RDMA)?,
    ) {
        (false, _) => Sharing::No,
        (true, false) => Sharing::Descriptor,
        (true, true) => Sharing::DescriptorAndRdma,
    };
    Ok(DeviceFacts {
        device,
        name: name.into_owned(),
        total_bytes,
        unified_addressing: has(UNIFIED_ADDRESSING)?,
        managed_memory: has(MANAGED_MEMORY)?,
        virtual_memory: has(VIRTUAL_MEMORY)?,
        memory_pools: has(MEMORY_POOLS)?,
        sharing,
    })
}

/// Returns the size of a page of virtual memory, in bytes.
pub(crate) fn page_bytes(driver: &Driver, facts: &DeviceFacts) -> CudaResult<usize> {
    if !facts.virtual_memory {
        return Ok(USUAL_PAGE);
    }
    let (mut bytes, properties) = (0, Properties::on(facts.device));
    // SAFETY: `bytes` is a place for the result, and `properties` lives until the call returns.
    unsafe { driver.granularity(&raw mut bytes, &raw const properties, 0) }?;
    Ok(bytes)
}
