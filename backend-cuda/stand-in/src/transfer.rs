//! Reads and writes by commands, at addresses of devices and of the host.

use crate::{
    Code, ILLEGAL_ADDRESS,
    device::{Device, check_host},
    memory::is_of_device,
};

/// Returns a pointer to memory of the host that a command of the device uses.
pub(crate) fn host(device: &Device, address: u64) -> Result<*mut u8, Code> {
    let address = usize::try_from(address).map_err(|_| ILLEGAL_ADDRESS)?;
    check_host(address, device)?;
    Ok(std::ptr::with_exposed_provenance_mut(address))
}

pub(crate) fn read(device: &Device, address: u64, count: usize) -> Result<Vec<u8>, Code> {
    let mut bytes = Vec::with_capacity(count);
    if count == 0 {
        return Ok(bytes);
    }
    if is_of_device(address) {
        device.visit(address, count, |part| bytes.extend_from_slice(part))?;
        return Ok(bytes);
    }
    let start = host(device, address)?;
    // SAFETY: The program keeps its bytes until the command has ended.
    bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, count) });
    Ok(bytes)
}

pub(crate) fn write(device: &Device, address: u64, bytes: &[u8]) -> Result<(), Code> {
    if is_of_device(address) {
        let mut rest = bytes;
        return device.visit(address, bytes.len(), |part| {
            let (now, later) = rest.split_at(part.len());
            part.copy_from_slice(now);
            rest = later;
        });
    }
    let start = host(device, address)?;
    // SAFETY: The program keeps its bytes until the command has ended.
    unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}
