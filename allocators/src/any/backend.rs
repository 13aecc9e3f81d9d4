//! A backend that is chosen at run time.

use std::{ptr::NonNull, sync::Arc};

use super::{
    AnyEvent, AnyMemory, AnyQueue,
    mirror::{Mirror, Reflected},
};
use crate::{
    Align, Backend, DeviceLimits, MemoryFlags, Outcome, PendingRead, QueueOrder, Region, Result,
    SvmBackend, SvmGrain, SvmSupport,
};

/// A backend that is chosen at run time.
///
/// It is a [`Backend`] itself, so that one pool type serves every device. Each object costs one more heap
/// allocation than with the backend's own type, and each call one more indirection.
///
/// ```
/// use binpool_allocators::{Allocator, AnyBackend, Backend, ImmediateAllocator, Memory};
/// use binpool_mock::MockDevice;
///
/// fn open(name: &str) -> AnyBackend {
///     match name {
///         "mock with SVM" => AnyBackend::with_svm(MockDevice::new().backend()),
///         _ => AnyBackend::new(MockDevice::new().backend()),
///     }
/// }
///
/// let backend = open("mock");
/// let block = ImmediateAllocator::new(&backend)?.allocate(4096)?;
/// assert_eq!(block.bytes(), 4096);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnyBackend {
    mirror: Arc<dyn Mirror>,
    limits: DeviceLimits,
}

impl AnyBackend {
    /// Erases a backend. Its SVM, where it has any, cannot be reached; see [`with_svm`](Self::with_svm).
    pub fn new(backend: impl Backend) -> Self {
        let mut limits = backend.limits().clone();
        limits.svm = SvmSupport::default();
        Self {
            mirror: Arc::new(Reflected::without_svm(backend)),
            limits,
        }
    }

    /// Erases a backend that has SVM.
    pub fn with_svm(backend: impl SvmBackend) -> Self {
        Self {
            limits: backend.limits().clone(),
            mirror: Arc::new(Reflected::with_svm(backend)),
        }
    }
}

impl Backend for AnyBackend {
    type Memory = AnyMemory;
    type Queue = AnyQueue;
    type Event = AnyEvent;

    fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    fn create_queue(&self, order: QueueOrder) -> Result<AnyQueue> {
        self.mirror.create_queue(order)
    }

    fn check_queue(&self, queue: &AnyQueue) -> Result<()> {
        self.mirror.check_queue(queue)
    }

    fn check_use(&self, queue: &AnyQueue) -> Result<()> {
        self.mirror.check_use(queue)
    }

    fn create_buffer(&self, bytes: usize, flags: MemoryFlags) -> Result<AnyMemory> {
        self.mirror.create_buffer(bytes, flags)
    }

    fn create_sub_region(&self, parent: &AnyMemory, region: Region) -> Result<AnyMemory> {
        self.mirror.create_sub_region(parent, region)
    }

    fn commit(&self, queue: &AnyQueue, memory: &AnyMemory) -> Result<()> {
        self.mirror.commit(queue, memory)
    }

    fn release(&self, memory: AnyMemory, after: &[AnyEvent]) -> Result<()> {
        self.mirror.release(memory, after)
    }

    fn write(
        &self,
        queue: &AnyQueue,
        memory: &AnyMemory,
        offset: usize,
        data: &[u8],
        wait_for: &[AnyEvent],
    ) -> Result<()> {
        self.mirror.write(queue, memory, offset, data, wait_for)
    }

    fn read(
        &self,
        queue: &AnyQueue,
        memory: &AnyMemory,
        offset: usize,
        data: &mut [u8],
        wait_for: &[AnyEvent],
    ) -> Result<()> {
        self.mirror.read(queue, memory, offset, data, wait_for)
    }

    fn enqueue_write(
        &self,
        queue: &AnyQueue,
        memory: &AnyMemory,
        offset: usize,
        data: Arc<[u8]>,
        wait_for: &[AnyEvent],
    ) -> Result<AnyEvent> {
        self.mirror
            .enqueue_write(queue, memory, offset, data, wait_for)
    }

    fn enqueue_read(
        &self,
        queue: &AnyQueue,
        memory: &AnyMemory,
        region: Region,
        wait_for: &[AnyEvent],
    ) -> Result<PendingRead<AnyEvent>> {
        self.mirror.enqueue_read(queue, memory, region, wait_for)
    }

    fn enqueue_copy(
        &self,
        queue: &AnyQueue,
        source: &AnyMemory,
        from: Region,
        destination: &AnyMemory,
        to: usize,
        wait_for: &[AnyEvent],
    ) -> Result<AnyEvent> {
        self.mirror
            .enqueue_copy(queue, source, from, destination, to, wait_for)
    }

    fn enqueue_fill(
        &self,
        queue: &AnyQueue,
        memory: &AnyMemory,
        region: Region,
        pattern: &[u8],
        wait_for: &[AnyEvent],
    ) -> Result<AnyEvent> {
        self.mirror
            .enqueue_fill(queue, memory, region, pattern, wait_for)
    }

    fn enqueue_marker(&self, queue: &AnyQueue, wait_for: &[AnyEvent]) -> Result<AnyEvent> {
        self.mirror.enqueue_marker(queue, wait_for)
    }

    fn enqueue_barrier(&self, queue: &AnyQueue, wait_for: &[AnyEvent]) -> Result<AnyEvent> {
        self.mirror.enqueue_barrier(queue, wait_for)
    }

    fn create_user_event(&self) -> Result<AnyEvent> {
        self.mirror.create_user_event()
    }

    fn resolve_user_event(&self, event: &AnyEvent, outcome: Outcome) -> Result<()> {
        self.mirror.resolve_user_event(event, outcome)
    }
}

impl SvmBackend for AnyBackend {
    fn allocate_svm(
        &self,
        bytes: usize,
        alignment: Option<Align>,
        grain: SvmGrain,
        queue: Option<&AnyQueue>,
    ) -> Result<AnyMemory> {
        self.mirror.allocate_svm(bytes, alignment, grain, queue)
    }

    fn svm_address(&self, memory: &AnyMemory) -> Option<NonNull<u8>> {
        self.mirror.svm_address(memory)
    }

    fn bound_queue(&self, memory: &AnyMemory) -> Result<Option<AnyQueue>> {
        self.mirror.bound_queue(memory)
    }

    fn set_bound_queue(&self, memory: &AnyMemory, queue: Option<&AnyQueue>) -> Result<()> {
        self.mirror.set_bound_queue(memory, queue)
    }
}
