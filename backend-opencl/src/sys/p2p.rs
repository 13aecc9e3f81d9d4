//! Copies between buffers of two devices, by AMD's extension `cl_amd_copy_buffer_p2p`.

use std::{ffi::c_void, mem, ptr};

use cl3::error_codes::DLOPEN_FUNCTION_NOT_AVAILABLE;

use super::{ClError, ClResult, DeviceId, EventHandle, MemHandle, QueueHandle, WaitList};

const CALL: &str = "clEnqueueCopyBufferP2PAMD";

/// The call, as the extension declares it (`cl_p2p_amd.h`).
type CopyP2p = unsafe extern "C" fn(
    command_queue: *mut c_void,
    src_buffer: *mut c_void,
    dst_buffer: *mut c_void,
    src_offset: usize,
    dst_offset: usize,
    cb: usize,
    num_events_in_wait_list: u32,
    event_wait_list: *const *mut c_void,
    event: *mut *mut c_void,
) -> i32;

/// The extension's call, of a platform that has the extension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct P2p {
    copy: CopyP2p,
}

impl P2p {
    /// Returns the call of the platform of `device`, which has the extension.
    ///
    /// # Errors
    ///
    /// If the platform does not have the call after all.
    pub(crate) fn of(device: DeviceId) -> ClResult<Self> {
        let platform = device.info(cl3::device::CL_DEVICE_PLATFORM)?.value()?;
        let platform = ptr::with_exposed_provenance_mut::<c_void>(platform);
        let missing = || ClError::new(CALL, DLOPEN_FUNCTION_NOT_AVAILABLE);
        let Ok(library) = cl3::load_library() else {
            return Err(missing());
        };
        let name = c"clEnqueueCopyBufferP2PAMD";
        // The runtime has just named the platform, which lives as long as the process.
        let address = library.clGetExtensionFunctionAddressForPlatform(platform, name.as_ptr());
        let Some(address) = address.filter(|address| !address.is_null()) else {
            return Err(missing());
        };
        // SAFETY: The platform has the extension, which declares the function of this name with this type, and the address
        // is not null.
        let copy = unsafe { mem::transmute::<*mut c_void, CopyP2p>(address) };
        Ok(Self { copy })
    }

    /// Enqueues a copy of `bytes` bytes. The runtime checks the bounds.
    pub(crate) fn enqueue(
        self,
        queue: &QueueHandle,
        (source, from): (&MemHandle, usize),
        (destination, to): (&MemHandle, usize),
        bytes: usize,
        wait: &WaitList<'_>,
    ) -> ClResult<EventHandle> {
        let mut event = ptr::null_mut();
        // SAFETY: (1) queue, buffers and events are kept alive by their handles; (2) `event` is a local variable that the
        // call writes.
        let code = unsafe {
            (self.copy)(
                queue.raw(),
                source.raw(),
                destination.raw(),
                from,
                to,
                bytes,
                wait.count(),
                wait.pointer(),
                &raw mut event,
            )
        };
        let event = if code == 0 { Ok(event) } else { Err(code) };
        // SAFETY: The call above has just returned this event, and nothing else takes its reference.
        unsafe { EventHandle::own(event, CALL) }
    }
}
