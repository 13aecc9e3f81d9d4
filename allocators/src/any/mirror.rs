//! The object-safe mirror of the backend traits.

use std::{fmt, ptr::NonNull, sync::Arc};

use super::{AnyEvent, AnyMemory, AnyQueue};
use crate::{
    Align, Backend, Error, MemoryFlags, Outcome, PendingRead, QueueOrder, Region, Result,
    SvmBackend, SvmGrain,
};

/// [`Backend`] and [`SvmBackend`] over erased objects. The methods are described there.
pub(super) trait Mirror: fmt::Debug + Send + Sync {
    fn create_queue(&self, order: QueueOrder) -> Result<AnyQueue>;
    fn check_queue(&self, queue: &AnyQueue) -> Result<()>;
    fn check_use(&self, queue: &AnyQueue) -> Result<()>;
    fn create_buffer(&self, bytes: usize, flags: MemoryFlags) -> Result<AnyMemory>;
    fn create_sub_region(&self, parent: &AnyMemory, region: Region) -> Result<AnyMemory>;
    fn commit(&self, queue: &AnyQueue, memory: &AnyMemory) -> Result<()>;
    fn release(&self, memory: AnyMemory, after: &[AnyEvent]) -> Result<()>;
    fn write(
        &self,
        queue: &AnyQueue,
        memory: &AnyMemory,
        offset: usize,
        data: &[u8],
        wait_for: &[AnyEvent],
    ) -> Result<()>;
    fn read(
        &self,
        queue: &AnyQueue,
        memory: &AnyMemory,
        offset: usize,
        data: &mut [u8],
        wait_for: &[AnyEvent],
    ) -> Result<()>;
    fn enqueue_write(
        &self,
        queue: &AnyQueue,
        memory: &AnyMemory,
        offset: usize,
        data: Arc<[u8]>,
        wait_for: &[AnyEvent],
    ) -> Result<AnyEvent>;
    fn enqueue_read(
        &self,
        queue: &AnyQueue,
        memory: &AnyMemory,
        region: Region,
        wait_for: &[AnyEvent],
    ) -> Result<PendingRead<AnyEvent>>;
    fn enqueue_copy(
        &self,
        queue: &AnyQueue,
        source: &AnyMemory,
        from: Region,
        destination: &AnyMemory,
        to: usize,
        wait_for: &[AnyEvent],
    ) -> Result<AnyEvent>;
    fn enqueue_fill(
        &self,
        queue: &AnyQueue,
        memory: &AnyMemory,
        region: Region,
        pattern: &[u8],
        wait_for: &[AnyEvent],
    ) -> Result<AnyEvent>;
    fn enqueue_marker(&self, queue: &AnyQueue, wait_for: &[AnyEvent]) -> Result<AnyEvent>;
    fn enqueue_barrier(&self, queue: &AnyQueue, wait_for: &[AnyEvent]) -> Result<AnyEvent>;
    fn create_user_event(&self) -> Result<AnyEvent>;
    fn resolve_user_event(&self, event: &AnyEvent, outcome: Outcome) -> Result<()>;
    fn allocate_svm(
        &self,
        bytes: usize,
        alignment: Option<Align>,
        grain: SvmGrain,
        queue: Option<&AnyQueue>,
    ) -> Result<AnyMemory>;
    fn svm_address(&self, memory: &AnyMemory) -> Option<NonNull<u8>>;
    fn bound_queue(&self, memory: &AnyMemory) -> Result<Option<AnyQueue>>;
    fn set_bound_queue(&self, memory: &AnyMemory, queue: Option<&AnyQueue>) -> Result<()>;
}

type AllocateSvm<B> = fn(
    &B,
    usize,
    Option<Align>,
    SvmGrain,
    Option<&<B as Backend>::Queue>,
) -> Result<<B as Backend>::Memory>;

type BoundQueue<B> = fn(&B, &<B as Backend>::Memory) -> Result<Option<<B as Backend>::Queue>>;

type SetBoundQueue<B> =
    fn(&B, &<B as Backend>::Memory, Option<&<B as Backend>::Queue>) -> Result<()>;

/// The SVM calls of a backend that has them.
#[derive(Debug)]
struct SvmCalls<B: Backend> {
    allocate: AllocateSvm<B>,
    address: fn(&B, &B::Memory) -> Option<NonNull<u8>>,
    bound_queue: BoundQueue<B>,
    set_bound_queue: SetBoundQueue<B>,
}

/// A backend behind the mirror.
#[derive(Debug)]
pub(super) struct Reflected<B: Backend> {
    backend: B,
    svm: Option<SvmCalls<B>>,
}

impl<B: Backend> Reflected<B> {
    pub(super) fn without_svm(backend: B) -> Self {
        Self { backend, svm: None }
    }

    pub(super) fn with_svm(backend: B) -> Self
    where
        B: SvmBackend,
    {
        Self {
            backend,
            svm: Some(SvmCalls {
                allocate: B::allocate_svm,
                address: B::svm_address,
                bound_queue: B::bound_queue,
                set_bound_queue: B::set_bound_queue,
            }),
        }
    }

    fn svm(&self) -> Result<&SvmCalls<B>> {
        self.svm.as_ref().ok_or_else(|| {
            Error::unsupported(
                "SVM on a backend that was erased without it: use `AnyBackend::with_svm`",
            )
        })
    }

    fn events(events: &[AnyEvent]) -> Result<Vec<B::Event>> {
        events
            .iter()
            .map(|event| event.expect_ref().cloned())
            .collect()
    }
}

impl<B: Backend> Mirror for Reflected<B> {
    fn create_queue(&self, order: QueueOrder) -> Result<AnyQueue> {
        self.backend.create_queue(order).map(AnyQueue::new)
    }

    fn check_queue(&self, queue: &AnyQueue) -> Result<()> {
        self.backend.check_queue(queue.expect_ref()?)
    }

    fn check_use(&self, queue: &AnyQueue) -> Result<()> {
        self.backend.check_use(queue.expect_ref()?)
    }

    fn create_buffer(&self, bytes: usize, flags: MemoryFlags) -> Result<AnyMemory> {
        self.backend.create_buffer(bytes, flags).map(AnyMemory::new)
    }

    fn create_sub_region(&self, parent: &AnyMemory, region: Region) -> Result<AnyMemory> {
        self.backend
            .create_sub_region(parent.expect_ref()?, region)
            .map(AnyMemory::new)
    }

    fn commit(&self, queue: &AnyQueue, memory: &AnyMemory) -> Result<()> {
        self.backend
            .commit(queue.expect_ref()?, memory.expect_ref()?)
    }

    fn release(&self, memory: AnyMemory, after: &[AnyEvent]) -> Result<()> {
        let after = Self::events(after)?;
        self.backend.release(memory.expect()?, &after)
    }

    fn write(
        &self,
        queue: &AnyQueue,
        memory: &AnyMemory,
        offset: usize,
        data: &[u8],
        wait_for: &[AnyEvent],
    ) -> Result<()> {
        let (queue, memory) = (queue.expect_ref()?, memory.expect_ref()?);
        self.backend
            .write(queue, memory, offset, data, &Self::events(wait_for)?)
    }

    fn read(
        &self,
        queue: &AnyQueue,
        memory: &AnyMemory,
        offset: usize,
        data: &mut [u8],
        wait_for: &[AnyEvent],
    ) -> Result<()> {
        let (queue, memory) = (queue.expect_ref()?, memory.expect_ref()?);
        self.backend
            .read(queue, memory, offset, data, &Self::events(wait_for)?)
    }

    fn enqueue_write(
        &self,
        queue: &AnyQueue,
        memory: &AnyMemory,
        offset: usize,
        data: Arc<[u8]>,
        wait_for: &[AnyEvent],
    ) -> Result<AnyEvent> {
        let (queue, memory) = (queue.expect_ref()?, memory.expect_ref()?);
        self.backend
            .enqueue_write(queue, memory, offset, data, &Self::events(wait_for)?)
            .map(AnyEvent::new)
    }

    fn enqueue_read(
        &self,
        queue: &AnyQueue,
        memory: &AnyMemory,
        region: Region,
        wait_for: &[AnyEvent],
    ) -> Result<PendingRead<AnyEvent>> {
        let (queue, memory) = (queue.expect_ref()?, memory.expect_ref()?);
        self.backend
            .enqueue_read(queue, memory, region, &Self::events(wait_for)?)
            .map(|read| read.map_event(AnyEvent::new))
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
        self.backend
            .enqueue_copy(
                queue.expect_ref()?,
                source.expect_ref()?,
                from,
                destination.expect_ref()?,
                to,
                &Self::events(wait_for)?,
            )
            .map(AnyEvent::new)
    }

    fn enqueue_fill(
        &self,
        queue: &AnyQueue,
        memory: &AnyMemory,
        region: Region,
        pattern: &[u8],
        wait_for: &[AnyEvent],
    ) -> Result<AnyEvent> {
        let (queue, memory) = (queue.expect_ref()?, memory.expect_ref()?);
        self.backend
            .enqueue_fill(queue, memory, region, pattern, &Self::events(wait_for)?)
            .map(AnyEvent::new)
    }

    fn enqueue_marker(&self, queue: &AnyQueue, wait_for: &[AnyEvent]) -> Result<AnyEvent> {
        self.backend
            .enqueue_marker(queue.expect_ref()?, &Self::events(wait_for)?)
            .map(AnyEvent::new)
    }

    fn enqueue_barrier(&self, queue: &AnyQueue, wait_for: &[AnyEvent]) -> Result<AnyEvent> {
        self.backend
            .enqueue_barrier(queue.expect_ref()?, &Self::events(wait_for)?)
            .map(AnyEvent::new)
    }

    fn create_user_event(&self) -> Result<AnyEvent> {
        self.backend.create_user_event().map(AnyEvent::new)
    }

    fn resolve_user_event(&self, event: &AnyEvent, outcome: Outcome) -> Result<()> {
        self.backend
            .resolve_user_event(event.expect_ref()?, outcome)
    }

    fn allocate_svm(
        &self,
        bytes: usize,
        alignment: Option<Align>,
        grain: SvmGrain,
        queue: Option<&AnyQueue>,
    ) -> Result<AnyMemory> {
        let svm = self.svm()?;
        let queue = queue.map(AnyQueue::expect_ref).transpose()?;
        (svm.allocate)(&self.backend, bytes, alignment, grain, queue).map(AnyMemory::new)
    }

    fn svm_address(&self, memory: &AnyMemory) -> Option<NonNull<u8>> {
        let svm = self.svm.as_ref()?;
        (svm.address)(&self.backend, memory.downcast_ref()?)
    }

    fn bound_queue(&self, memory: &AnyMemory) -> Result<Option<AnyQueue>> {
        let bound = (self.svm()?.bound_queue)(&self.backend, memory.expect_ref()?)?;
        Ok(bound.map(AnyQueue::new))
    }

    fn set_bound_queue(&self, memory: &AnyMemory, queue: Option<&AnyQueue>) -> Result<()> {
        let queue = queue.map(AnyQueue::expect_ref).transpose()?;
        (self.svm()?.set_bound_queue)(&self.backend, memory.expect_ref()?, queue)
    }
}
