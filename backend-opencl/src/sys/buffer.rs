//! The creation of buffers.

use std::{ffi::c_void, ptr};

use cl3::memory::{
    CL_BUFFER_CREATE_TYPE_REGION, CL_MEM_ASSOCIATED_MEMOBJECT, CL_MEM_COPY_HOST_PTR,
    CL_MEM_USE_HOST_PTR, cl_buffer_region,
};

use super::{ClResult, ContextHandle, MemHandle, destructor::when_destroyed, host::Loan};

const CALL: &str = "clCreateBuffer";

/// Creates a buffer.
pub(crate) fn create_buffer(
    context: &ContextHandle,
    flags: u64,
    bytes: usize,
) -> ClResult<MemHandle> {
    // SAFETY: There is no memory of the host.
    unsafe { create(context, flags, bytes, ptr::null_mut()) }
}

/// Creates a buffer with a copy of `data`.
pub(crate) fn create_copying(
    context: &ContextHandle,
    flags: u64,
    data: &[u8],
) -> ClResult<MemHandle> {
    let start = data.as_ptr().cast_mut();
    // SAFETY: The runtime reads `data`, which is readable for its length, and only before it returns.
    unsafe { create(context, flags | CL_MEM_COPY_HOST_PTR, data.len(), start) }
}

/// Creates a buffer over lent memory.
pub(crate) fn create_over(context: &ContextHandle, flags: u64, loan: Loan) -> ClResult<MemHandle> {
    let (bytes, start) = (loan.bytes(), loan.start().as_ptr());
    // SAFETY: The bytes can be read and written, and nothing else touches them, until the loan is dropped (I1 of `Loan`):
    // when the runtime has destroyed the buffer.
    let buffer = unsafe { create(context, flags | CL_MEM_USE_HOST_PTR, bytes, start) }?;
    // If this fails, no command has used the buffer, which is released here.
    when_destroyed(&buffer, move || drop(loan))?;
    Ok(buffer)
}

/// # Safety
///
/// `host` is null, or starts as many bytes as the runtime touches by `flags`, until it returns or has destroyed the buffer.
pub(super) unsafe fn create(
    context: &ContextHandle,
    flags: u64,
    bytes: usize,
    host: *mut u8,
) -> ClResult<MemHandle> {
    // SAFETY: (1) `context` lives; (2) the host's bytes are as the caller promises.
    let created = unsafe { cl3::memory::create_buffer(context.raw(), flags, bytes, host.cast()) };
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { MemHandle::own(created, CALL) }
}

/// Creates a sub-buffer. The runtime checks the bounds, and keeps the buffer as long as the sub-buffer.
pub(crate) fn create_sub_buffer(
    root: &MemHandle,
    flags: u64,
    offset: usize,
    bytes: usize,
) -> ClResult<MemHandle> {
    let region = cl_buffer_region {
        origin: offset,
        size: bytes,
    };
    let region = (&raw const region).cast::<c_void>();
    // SAFETY: (1) the buffer is kept alive by its handle; (2) the region is of the type that the call takes.
    let created = unsafe {
        cl3::memory::create_sub_buffer(root.raw(), flags, CL_BUFFER_CREATE_TYPE_REGION, region)
    };
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { MemHandle::own(created, "clCreateSubBuffer") }
}

/// Returns a reference to the buffer that a sub-buffer is a part of.
pub(crate) fn parent_buffer(memory: &MemHandle) -> ClResult<Option<MemHandle>> {
    let parent: usize = memory.info(CL_MEM_ASSOCIATED_MEMOBJECT)?.value()?;
    if parent == 0 {
        return Ok(None);
    }
    let parent = ptr::with_exposed_provenance_mut(parent);
    // SAFETY: The runtime has just named the buffer, which its part keeps alive.
    unsafe { MemHandle::retain(parent) }.map(Some)
}
