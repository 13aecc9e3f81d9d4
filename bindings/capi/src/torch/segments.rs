//! Memory that PyTorch's own allocator carves blocks from, for graphs and other private pools.

use std::ffi::c_void;

use binpool::Queue;

use super::{functions::address_of, pools::DevicePool};
use crate::status::Failure;

/// Allocates a segment that nothing uses any more. A graph that is captured over it may run on any stream, which waits for none of the
/// former users of the memory: so their commands have ended before this returns. The stream of the request, which may be captured, is not
/// touched.
pub(super) fn allocate(bytes: usize, device: i32) -> Result<u64, Failure> {
    let pool = DevicePool::of(device)?;
    let home = pool.pool().home_queue();
    let address = pool.memory.allocate_on(home, bytes)?;
    // The home queue has nothing but the waits that the pool has enqueued for this request, or an earlier one.
    if let Err(error) = home.finish() {
        pool.memory.free_on(home, address)?;
        return Err(error.into());
    }
    Ok(address)
}

/// Frees a segment. Graphs that used it may still run, on streams that this call does not name: so this waits for the device, as `cudaFree` does.
pub(super) fn free(pointer: *mut c_void, device: i32) -> Result<(), Failure> {
    let pool = DevicePool::of(device)?;
    pool.pool().backend().finish_device()?;
    let home = pool.pool().home_queue();
    Ok(pool.memory.free_on(home, address_of(pointer))?)
}
