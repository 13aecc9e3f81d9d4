//! Devices that use each other's memory.

use binpool_allocators::{Error, InvalidRequest, ObjectKind, Result, runtime::Part};

use crate::backend::CudaBackend;

impl CudaBackend {
    /// Lets this device use memory of `other`, a device of the same driver: kernels of this device may read and write it, and copies
    /// go from device to device. Returns whether the devices support that; if not, copies go through the host.
    ///
    /// This enables one direction. Memory of `other` from `create_buffer` can be used at once; pages can if they are mapped after this
    /// call, and blocks of a [`DriverPoolAllocator`](crate::DriverPoolAllocator) if it is made after this call. Access stays enabled as
    /// long as the contexts live.
    ///
    /// Freeing memory waits for launches of a [`CudaKernel`](crate::CudaKernel), and for other kernels of its own device only: if the program
    /// itself launches a kernel of another device, pass its event to [`release`](binpool_allocators::Backend::release), or its
    /// stream to `memory_on` of a pool's block.
    ///
    /// ```no_run
    /// use binpool::{ImmediateAllocator, MemoryPool};
    /// use binpool_allocators::{Backend, QueueOrder};
    /// use binpool_cuda::CudaBackend;
    ///
    /// let [one, two] = [CudaBackend::open(0)?, CudaBackend::open(1)?];
    /// if !(one.enable_peer_access(&two)? && two.enable_peer_access(&one)?) {
    ///     println!("copies go through the host");
    /// }
    /// let stream = one.create_queue(QueueOrder::InOrder)?;
    /// let here = MemoryPool::new(ImmediateAllocator::new(&one)?, &stream)?;
    /// let there = MemoryPool::new(ImmediateAllocator::new(&two)?, &two.create_queue(QueueOrder::InOrder)?)?;
    /// let (from, to) = (here.allocate(4096)?, there.allocate(4096)?);
    /// from.enqueue_copy_to(&stream, &to)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject) for a device of another [library](crate::CudaLibrary), or a
    /// failure of the driver.
    pub fn enable_peer_access(&self, other: &Self) -> Result<bool> {
        let (context, peer) = (&self.shared.context, &other.shared.context);
        if context.family() != peer.family() {
            let kind = ObjectKind::Memory;
            return Err(InvalidRequest::ForeignObject { kind }.into());
        }
        Ok(context.is_same(peer) || context.enable_peer_access(peer)?)
    }

    /// Lets all [peers](Self::enable_peer_access) of this device use pages that were mapped before they were peers: `bytes` bytes at
    /// `address`, all of them mapped.
    ///
    /// ```no_run
    /// use binpool::{MemoryPool, VirtualMemoryAllocator};
    /// use binpool_allocators::{Backend, Memory, QueueOrder};
    /// use binpool_cuda::CudaBackend;
    ///
    /// let [one, two] = [CudaBackend::open(0)?, CudaBackend::open(1)?];
    /// let stream = two.create_queue(QueueOrder::InOrder)?;
    /// let there = MemoryPool::new(VirtualMemoryAllocator::new(&two), &stream)?;
    /// let block = there.allocate(2 << 20)?; // One page.
    /// one.enable_peer_access(&two)?;
    /// if let Some(memory) = block.memory_on(&stream) {
    ///     two.admit_peers(memory.device_address()?, 2 << 20)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A failure of the driver: `INVALID_VALUE` if no pages are mapped.
    pub fn admit_peers(&self, address: u64, bytes: usize) -> Result<()> {
        Ok(self.shared.context.allow(address, bytes)?)
    }

    /// Checks that kernels of this device may use memory, of whatever device.
    pub(crate) fn check_reach(&self, part: &Part<'_, Self>) -> Result<()> {
        let context = &self.shared.context;
        match part.block().device_context() {
            Some(owner) if !owner.is_same(context) && !owner.has_peer(context) => {
                let (here, there) = (context.device(), owner.device());
                Err(Error::unsupported(format!(
                    "a kernel of device {here} on memory of device {there} without peer access: call `enable_peer_access` of the \
                     backend of device {here} with the other, or copy the memory"
                )))
            }
            _ => Ok(()),
        }
    }
}
