//! Shared virtual memory of the mock device: real addresses.

use std::{ptr::NonNull, sync::Arc};

use binpool_allocators::{
    Align, Backend, Error, InvalidRequest, MemoryFlags, MemoryKind, Queue, QueueOrder, Region,
    Result, SvmBackend, SvmGrain,
};

use parking_lot::Mutex;

use crate::{CallKind, MockBackend, MockMemory, MockQueue, memory::Binding};

impl SvmBackend for MockBackend {
    fn allocate_svm_with_flags(
        &self,
        bytes: usize,
        alignment: Option<Align>,
        grain: SvmGrain,
        queue: Option<&MockQueue>,
        flags: MemoryFlags,
    ) -> Result<MockMemory> {
        let limits = self.limits();
        if !grain.is_in(limits.svm) {
            return Err(Error::svm_unsupported(&limits.device_name, grain));
        }
        limits.check_block(bytes)?;
        flags.check_svm()?;
        let largest = limits.largest_svm_alignment;
        if let Some(alignment) = alignment.filter(|alignment| *alignment > largest) {
            return Err(InvalidRequest::AlignmentTooLarge { alignment, largest }.into());
        }
        self.check_bound(queue)?;
        let alignment = alignment.unwrap_or(limits.alignment);
        let binding = Arc::new(Mutex::new(queue.cloned()));
        let queue = queue.map(MockQueue::key);
        let object = self.shared.call(CallKind::AllocateSvm, bytes, |state| {
            state.allocate_svm(bytes, alignment, grain, queue, flags)
        })?;
        let kind = MemoryKind::Svm(grain);
        Ok(self.new_memory(object, Region::first(bytes), kind, Some(binding)))
    }

    fn svm_address(&self, memory: &MockMemory) -> Option<NonNull<u8>> {
        self.check_memory(memory).ok()?;
        self.shared.with(|state| state.svm_address(memory.key()))
    }

    fn bound_queue(&self, memory: &MockMemory) -> Result<Option<MockQueue>> {
        Ok(self.binding(memory)?.lock().clone())
    }

    fn set_bound_queue(&self, memory: &MockMemory, queue: Option<&MockQueue>) -> Result<()> {
        let binding = self.binding(memory)?;
        self.check_bound(queue)?;
        let mut bound = binding.lock();
        self.shared
            .with(|state| state.bind(memory.key(), queue.map(MockQueue::key)));
        // Dropped without the lock, since the queue may be dropped with it.
        let _old = std::mem::replace(&mut *bound, queue.cloned());
        drop(bound);
        Ok(())
    }
}

impl MockBackend {
    /// Refuses a queue that memory cannot be freed in the order of.
    fn check_bound(&self, queue: Option<&MockQueue>) -> Result<()> {
        let Some(queue) = queue else {
            return Ok(());
        };
        self.check_queue(queue)?;
        if queue.order() == QueueOrder::OutOfOrder {
            return Err(InvalidRequest::OutOfOrderQueue.into());
        }
        Ok(())
    }

    fn binding<'a>(&self, memory: &'a MockMemory) -> Result<&'a Binding> {
        self.check_memory(memory)?;
        let binding = memory.binding.as_ref();
        binding.ok_or_else(|| InvalidRequest::NotSvm.into())
    }

    /// Frees the block of SVM that starts at `address` now, even while commands use it, as `clSVMFree` does.
    ///
    /// Every command that has not ended and uses the block is recorded as a
    /// [`Violation`](crate::Violation::FreedInUse), and fails when it runs. From then on, releasing the [`MockMemory`] of
    /// the block is a double free; avoid that with
    /// [`MockMemory::into_handle`].
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] with the code -38 (`CL_INVALID_MEM_OBJECT`) for a double free, and -30 (`CL_INVALID_VALUE`) for an address where
    /// no block starts; each is recorded as a [`Violation`](crate::Violation) too.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, QueueOrder, Region, SvmBackend, SvmGrain};
    /// # use binpool_mock::{Completion, MockDevice};
    /// use binpool_mock::Violation;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = MockDevice::builder().completion(Completion::Manual).build();
    /// # let backend = device.backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let block = backend.allocate_svm(4096, None, SvmGrain::Coarse, None)?;
    /// let address = backend.svm_address(&block).ok_or("no SVM")?;
    /// backend.enqueue_fill(&queue, &block, Region::first(4096), &[7_u8])?;
    /// let _handle = block.into_handle();
    /// backend.free_svm_address(address)?; // Too early: the fill has not run.
    /// let [Violation::FreedInUse { bytes, name, .. }] = &device.violations()[..] else {
    ///     return Err("the misuse was not reported".into());
    /// };
    /// assert_eq!((*bytes, name.as_ref()), (4096, "enqueue_fill"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn free_svm_address(&self, address: NonNull<u8>) -> Result<()> {
        let address = address.addr().get();
        self.shared.with(|state| state.free_svm_address(address))
    }
}
