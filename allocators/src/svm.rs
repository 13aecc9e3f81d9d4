//! Shared virtual memory (SVM): pointers that host and device both understand.

use std::ptr::NonNull;

use crate::{Align, Backend, InvalidRequest, MemoryFlags, Queue, QueueOrder, Result, SvmGrain};

/// A backend with shared virtual memory.
///
/// SVM has no reference counts: the runtime frees it even while commands still use it. A backend
/// therefore remembers the commands that were enqueued with a block through [`Backend`], and frees the block
/// after them. The caller must wait for commands that were given the bare address, or *bind* the block to an
/// in-order queue: it is then freed after everything that was enqueued there before its release.
///
/// ```
/// use binpool_allocators::{Backend, Event, QueueOrder, SvmBackend, SvmGrain};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
/// let block = backend.allocate_svm(4096, None, SvmGrain::Coarse, Some(&upload))?;
/// // From here on, kernels on `compute` use its address.
/// backend.bind_to_queue(&block, &compute)?;
/// let freed = backend.enqueue_release(block, None, &[])?;
/// freed.wait()?;
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// A block can be bound to no queue, or be bound without a call to the device if the program sets the order:
///
/// ```
/// # use binpool_allocators::{Backend, Queue, QueueOrder, SvmBackend, SvmGrain};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
/// let block = backend.allocate_svm(4096, None, SvmGrain::Coarse, Some(&upload))?;
/// assert_eq!(backend.bound_queue(&block)?, Some(upload.clone()));
/// backend.unbind_from_queue(&block)?; // Waits for `upload`.
/// assert_eq!(backend.bound_queue(&block)?, None);
/// assert!(backend.enqueue_release(block, None, &[]).is_err()); // No queue is named. The block is gone anyway.
///
/// let block = backend.allocate_svm(4096, None, SvmGrain::Coarse, Some(&upload))?;
/// let handed_over = backend.enqueue_marker(&upload)?;
/// upload.flush()?;
/// backend.enqueue_barrier(compute.after(&[handed_over]))?; // One barrier serves any number of blocks.
/// backend.set_bound_queue(&block, Some(&compute))?;
/// assert_eq!(backend.bound_queue(&block)?, Some(compute.clone()));
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
pub trait SvmBackend: Backend {
    /// Allocates `bytes` bytes of SVM at an address that is a multiple of `alignment`
    /// ([`DeviceLimits::alignment`](crate::DeviceLimits::alignment) if that is `None`), bound to `queue` if one is given.
    /// SVM is never deferred.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::Error::Unsupported) for a grain that the device does not have;
    /// [`ZeroSize`](crate::InvalidRequest::ZeroSize), [`TooLarge`](crate::InvalidRequest::TooLarge),
    /// [`AlignmentTooLarge`](crate::InvalidRequest::AlignmentTooLarge),
    /// [`OutOfOrderQueue`](crate::InvalidRequest::OutOfOrderQueue);
    /// [`OutOfMemory`](crate::Error::OutOfMemory), also if the runtime returns a null pointer.
    fn allocate_svm(
        &self,
        bytes: usize,
        alignment: Option<Align>,
        grain: SvmGrain,
        queue: Option<&Self::Queue>,
    ) -> Result<Self::Memory> {
        self.allocate_svm_with_flags(bytes, alignment, grain, queue, MemoryFlags::empty())
    }

    /// Allocates SVM as [`allocate_svm`](Self::allocate_svm) does, which kernels only read
    /// ([`READ_ONLY`](MemoryFlags::READ_ONLY)) or only write ([`WRITE_ONLY`](MemoryFlags::WRITE_ONLY)).
    ///
    /// ```
    /// use binpool_allocators::{MemoryFlags, SvmBackend, SvmGrain};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// let coarse = SvmGrain::Coarse;
    /// let table = backend.allocate_svm_with_flags(4096, None, coarse, None, MemoryFlags::READ_ONLY)?;
    /// assert!(backend.svm_address(&table).is_some());
    /// let refused = backend.allocate_svm_with_flags(4096, None, coarse, None, MemoryFlags::HOST_NO_ACCESS);
    /// assert!(refused.is_err(), "the host has its address");
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`allocate_svm`](Self::allocate_svm); [`ContradictoryFlags`](InvalidRequest::ContradictoryFlags);
    /// [`Unsupported`](crate::Error::Unsupported) for flags that are about the host, which accesses SVM through maps or by its address.
    fn allocate_svm_with_flags(
        &self,
        bytes: usize,
        alignment: Option<Align>,
        grain: SvmGrain,
        queue: Option<&Self::Queue>,
        flags: MemoryFlags,
    ) -> Result<Self::Memory>;

    /// Returns the address of a block or region of SVM, or `None` for memory without an address.
    ///
    /// A caller that dereferences it, or passes it to a command, must make sure that the block still lives, that
    /// coarse-grained memory is mapped, and that host and device do not race.
    ///
    /// ```
    /// use binpool_allocators::{Align, Backend, MemoryFlags, Region, SvmBackend, SvmGrain};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// let page = Align::new(4096);
    /// let block = backend.allocate_svm(1 << 20, page, SvmGrain::Coarse, None)?;
    /// let half = backend.create_sub_region(&block, Region::new(1 << 19, 1 << 19))?;
    /// let address = |memory| backend.svm_address(memory).map(|address| address.addr().get());
    /// assert_eq!(address(&block).map(|address| address % 4096), Some(0));
    /// assert_eq!(address(&half), address(&block).map(|address| address + (1 << 19)));
    /// assert_eq!(address(&backend.create_buffer(64, MemoryFlags::empty())?), None);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    fn svm_address(&self, memory: &Self::Memory) -> Option<NonNull<u8>>;

    /// Returns the queue that a block of SVM is bound to. A region has the binding of its block.
    ///
    /// # Errors
    ///
    /// [`NotSvm`](InvalidRequest::NotSvm) for a buffer, and
    /// [`ForeignObject`](InvalidRequest::ForeignObject).
    fn bound_queue(&self, memory: &Self::Memory) -> Result<Option<Self::Queue>>;

    /// Binds a block to `queue`, or to none, without waiting and without a call to the device. The provided methods
    /// [`bind_to_queue`](Self::bind_to_queue) and [`unbind_from_queue`](Self::unbind_from_queue) use it.
    ///
    /// # Errors
    ///
    /// [`NotSvm`](InvalidRequest::NotSvm), [`OutOfOrderQueue`](InvalidRequest::OutOfOrderQueue), and
    /// [`ForeignObject`](InvalidRequest::ForeignObject).
    fn set_bound_queue(&self, memory: &Self::Memory, queue: Option<&Self::Queue>) -> Result<()>;

    /// Binds a block to another queue. A marker on the old queue and a barrier on `queue` order everything that is enqueued on
    /// `queue` from now on, including the free, after everything on the old queue.
    /// Does not call the device if both are the same queue, or if the block was bound to none.
    ///
    /// `PyOpenCL`'s `SVMAllocation.bind_to_queue`, which leaks an event each time and does not flush the
    /// old queue.
    ///
    /// # Errors
    ///
    /// [`OutOfOrderQueue`](InvalidRequest::OutOfOrderQueue), [`NotSvm`](InvalidRequest::NotSvm),
    /// [`ForeignObject`](InvalidRequest::ForeignObject), and the failures of the runtime, after which the block is
    /// bound as it was.
    fn bind_to_queue(&self, memory: &Self::Memory, queue: &Self::Queue) -> Result<()> {
        self.check_queue(queue)?;
        let old = self.bound_queue(memory)?;
        if queue.order() == QueueOrder::OutOfOrder {
            return Err(InvalidRequest::OutOfOrderQueue.into());
        }
        if let Some(old) = old.filter(|old| old != queue) {
            let before = self.enqueue_marker(&old)?;
            old.flush()?;
            self.enqueue_barrier(queue.after(&[before]))?;
        }
        self.set_bound_queue(memory, Some(queue))
    }

    /// Waits for the queue that a block is bound to, and then binds the block to none.
    ///
    /// `PyOpenCL`'s `SVMAllocation.unbind_from_queue`. The block is still freed after the commands that were enqueued
    /// with it through [`Backend`].
    ///
    /// # Errors
    ///
    /// [`NotSvm`](InvalidRequest::NotSvm), [`ForeignObject`](InvalidRequest::ForeignObject), and the failures of
    /// the runtime, after which the block is bound as it was.
    fn unbind_from_queue(&self, memory: &Self::Memory) -> Result<()> {
        if let Some(queue) = self.bound_queue(memory)? {
            queue.finish()?;
        }
        self.set_bound_queue(memory, None)
    }

    /// Releases a block by a command on `queue`, or on the queue that it is bound to if that is `None`. The block is
    /// freed after `wait_for`, after everything that was enqueued on that queue before, and after every command
    /// that was enqueued with it through [`Backend`].
    ///
    /// Returns the event of that command. Once it has ended, so has everything before it on that queue and in
    /// `wait_for`, and the block is freed unless commands on other queues still use it.
    ///
    /// `PyOpenCL`'s `SVMAllocation.enqueue_release`; OpenCL 3.0, section 5.6.1, `clEnqueueSVMFree`.
    ///
    /// # Errors
    ///
    /// [`NoQueue`](InvalidRequest::NoQueue) if `queue` is `None` and the block is bound to none;
    /// [`NotSvm`](InvalidRequest::NotSvm), [`ForeignObject`](InvalidRequest::ForeignObject), and the failures of
    /// the runtime. The block is still released, after `wait_for`.
    fn enqueue_release(
        &self,
        memory: Self::Memory,
        queue: Option<&Self::Queue>,
        wait_for: &[Self::Event],
    ) -> Result<Self::Event> {
        let enqueued = self.bound_queue(&memory).and_then(|bound| {
            let queue = queue.or(bound.as_ref()).ok_or(InvalidRequest::NoQueue)?;
            if queue.order() == QueueOrder::InOrder || wait_for.is_empty() {
                return self.enqueue_marker(queue.after(wait_for));
            }
            // On an out-of-order queue, a marker with a wait list waits for nothing else.
            let mut all = wait_for.to_vec();
            all.push(self.enqueue_marker(queue)?);
            self.enqueue_marker(queue.after(&all))
        });
        let after = enqueued.as_ref().map_or(wait_for, std::slice::from_ref);
        self.release(memory, after)?;
        enqueued
    }
}
