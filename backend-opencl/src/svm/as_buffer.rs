//! Buffers over shared virtual memory.

use std::sync::Arc;

use binpool_allocators::{Error, InvalidRequest, Memory, MemoryFlags, Region, Result};

use crate::{
    memory::cl_memory::{ClMemory, MemoryBody},
    memory::flags,
    memory::flags::host_flags,
    memory::part::Part,
    memory::root::Root,
    sys::Purpose,
};

/// Returns a buffer over the first `bytes` bytes of `memory`.
///
/// It is like a region of the block: it keeps the block, commands on both are in one log, and the block is freed after the
/// buffer's commands.
pub(super) fn buffer_over(memory: &ClMemory, flags: MemoryFlags, bytes: usize) -> Result<ClMemory> {
    let block = memory.svm().ok_or(InvalidRequest::NotSvm)?;
    memory.check_may_be_retained()?;
    let flags = flags::narrowed(memory.flags(), flags)?;
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
    let Some(handle) = range
        .as_retained_buffer(host_flags(flags))
        .map_err(failed)?
    else {
        return Err(Error::unsupported(format!(
            "a buffer over shared virtual memory of {} that is aligned to more than the runtime does: allocate it with \
             an alignment of at most {}",
            limits.device_name, limits.largest_svm_alignment
        )));
    };
    let body = match start {
        0 => MemoryBody::Buffer(Arc::new(Root::over(handle, block))),
        offset => MemoryBody::Part(Box::new(Part::new(
            memory.context(),
            &Arc::new(Root::over(handle, block)),
            Region::new(offset, bytes),
            host_flags(flags),
        ))),
    };
    let buffer = ClMemory::new(memory.shared_context(), bytes, flags, body);
    Ok(buffer.into_view_of(memory))
}
