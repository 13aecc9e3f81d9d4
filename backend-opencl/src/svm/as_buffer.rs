//! Buffers over shared virtual memory.

use std::sync::Arc;

use binpool_allocators::{Error, InvalidRequest, Memory, MemoryFlags, Region, Result};

use crate::{
    cl_error::Purpose,
    memory::cl_memory::{Body, ClMemory},
    memory::host_buffer::host_flags,
    memory::root::Root,
    sys,
};

/// A buffer over the first `bytes` bytes of `memory`.
///
/// It is a value of the block like any region of it: the block lives as long as it does, the commands on both stand in
/// one log, and the block is not freed under the buffer's commands.
pub(super) fn buffer_over(memory: &ClMemory, flags: MemoryFlags, bytes: usize) -> Result<ClMemory> {
    let block = memory.svm().ok_or(InvalidRequest::NotSvm)?;
    flags.check()?;
    if bytes == 0 {
        return Err(InvalidRequest::ZeroSize.into());
    }
    let region = Region::first(bytes);
    region.check_within(memory.bytes())?;
    let start = memory.offset();
    let failed = |error: crate::ClError| error.into_error(Purpose::Memory(bytes));
    let range = block
        .range(Region::new(start, bytes))
        .ok_or(InvalidRequest::NotSvm)?;
    let limits = &memory.context().limits;
    let Some(handle) = range.as_kept_buffer(host_flags(flags)).map_err(failed)? else {
        return Err(Error::unsupported(format!(
            "a buffer over shared virtual memory of {} that is aligned to more than the runtime does: allocate it with \
             an alignment of at most {}",
            limits.device_name, limits.largest_svm_alignment
        )));
    };
    let body = match start {
        0 => Body::Buffer(Arc::new(Root::over(handle, block))),
        offset => Body::SubBuffer {
            handle: sys::create_sub_buffer(&handle, offset, bytes).map_err(failed)?,
            root: Arc::new(Root::over(handle, block)),
            offset,
        },
    };
    Ok(ClMemory::new(memory.shared_context(), bytes, flags, body))
}
