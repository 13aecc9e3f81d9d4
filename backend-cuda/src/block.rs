//! Memory of the device.

use std::sync::Arc;

use binpool_allocators::debug_by;

use crate::sys::{Address, Allocation, Context, Pages, Reservation, Stream};

/// Memory from the driver.
///
/// ```no_run
/// use binpool_allocators::{Backend, MemoryFlags, Region};
/// use binpool_cuda::{CudaBackend, CudaBlock};
///
/// let backend = CudaBackend::open(0)?;
/// let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
/// let half = backend.create_sub_region(&memory, Region::new(2048, 2048))?;
/// // A view is a part of the same block, which is freed after both.
/// let blocks: [Option<&CudaBlock>; 2] = [memory.block(), half.block()];
/// assert!(matches!(blocks, [Some(whole), Some(of_half)] if std::ptr::eq(whole, of_half)));
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
pub struct CudaBlock(pub(crate) Body);

pub(crate) enum Body {
    Allocation(Allocation),
    /// Memory that is allocated and freed in the order of this stream.
    Ordered(Allocation, Arc<Stream>),
    Reservation(Reservation),
    Pages(Pages),
}

impl CudaBlock {
    pub(crate) fn address(&self) -> Option<Address> {
        match &self.0 {
            Body::Allocation(allocation) | Body::Ordered(allocation, _) => {
                Some(allocation.address())
            }
            Body::Reservation(reservation) => Some(reservation.address()),
            Body::Pages(_) => None,
        }
    }

    /// The context of memory that lies on a device. That of the host is everyone's.
    pub(crate) fn device_context(&self) -> Option<&Arc<Context>> {
        let (context, is_of_device) = match &self.0 {
            Body::Allocation(allocation) | Body::Ordered(allocation, _) => {
                (allocation.context(), allocation.is_of_device())
            }
            Body::Reservation(reservation) => (reservation.context(), true),
            Body::Pages(pages) => (pages.context(), true),
        };
        is_of_device.then_some(context)
    }

    /// Checks that dropping this would not wait forever.
    pub(crate) fn may_free(&self) -> Result<(), &'static str> {
        let (context, waits, is_a_command) = match &self.0 {
            Body::Allocation(allocation) => (allocation.context(), allocation.waits(), false),
            // It waits for its context.
            Body::Reservation(reservation) => (reservation.context(), true, true),
            // It is freed by a command of its stream.
            Body::Ordered(allocation, _) => (allocation.context(), false, true),
            Body::Pages(_) => return Ok(()),
        };
        if waits && context.has_unresolved() {
            return Err("streams wait for a user event: resolve or drop it");
        }
        if is_a_command && context.has_capture() {
            return Err("a stream is captured into a graph: end the capture");
        }
        Ok(())
    }
}

debug_by!(CudaBlock);
