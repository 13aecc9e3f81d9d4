//! A pool for tenants who must not read what another left, over memory that is full of another program's bytes.

use std::sync::{Arc, Mutex};

use binpool::{
    Allocator, Backend, Error, Event, ImmediateAllocator, Memory, MemoryPool, Outcome, PoolOptions,
    PooledBuffer, QueueOrder, ScrubPolicy, SvmAllocator, SvmGrain,
};
use binpool_allocators::{Align, MemoryOf};
use binpool_mock::{Completion, MockBackend, MockDevice, MockDeviceBuilder, MockEvent, MockQueue};

pub(crate) const SCRUBBING: [ScrubPolicy; 2] = [ScrubPolicy::OnFree, ScrubPolicy::OnHandOut];

pub(crate) const ORDERS: [QueueOrder; 2] = [QueueOrder::InOrder, QueueOrder::OutOfOrder];

/// What a tenant leaves.
pub(crate) const SECRET: u8 = 0x5e;

/// All memory of the device, and one block.
pub(crate) const ALL: usize = 64 << 10;

/// An allocator whose fresh memory is full of another program's bytes, and that notes the bytes of what it gets back, once the
/// commands that it is told of have ended.
#[derive(Clone, Debug)]
pub(crate) struct Dirty {
    inner: Arc<dyn Allocator<Backend = MockBackend>>,
    pub(crate) queue: MockQueue,
    pub(crate) returned: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Dirty {
    pub(crate) fn new(inner: impl Allocator<Backend = MockBackend>) -> Self {
        let queue = inner.backend().create_queue(QueueOrder::InOrder).unwrap();
        Self {
            inner: Arc::new(inner),
            queue,
            returned: Arc::default(),
        }
    }

    /// Whether all that came back was zeros.
    pub(crate) fn got_zeros_only(&self) -> bool {
        let returned = self.returned.lock().unwrap();
        returned.iter().flatten().all(|byte| *byte == 0)
    }
}

impl Allocator for Dirty {
    type Backend = MockBackend;

    fn backend(&self) -> &MockBackend {
        self.inner.backend()
    }

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>, Error> {
        let memory = self.inner.allocate(bytes)?;
        let dirt = vec![SECRET; memory.bytes()];
        self.backend().write(&self.queue, &memory, 0, &dirt)?;
        Ok(memory)
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[MockEvent]) -> Result<(), Error> {
        // A gate that is shut cannot be waited for.
        if after.iter().all(ended_after_wait) {
            let mut bytes = vec![SECRET; memory.bytes()];
            self.backend().read(&self.queue, &memory, 0, &mut bytes)?;
            self.returned.lock().unwrap().push(bytes);
        }
        self.inner.release(memory, after)
    }

    fn is_deferred(&self) -> bool {
        self.inner.is_deferred()
    }

    fn alignment(&self) -> Align {
        self.inner.alignment()
    }
}

/// Waits for a command, and returns whether it has ended.
fn ended_after_wait(event: &MockEvent) -> bool {
    event.wait().is_ok() || event.has_ended()
}

/// A pool over dirty memory.
pub(crate) struct Tenants {
    pub(crate) device: MockDevice,
    pub(crate) backend: MockBackend,
    pub(crate) queue: MockQueue,
    pub(crate) dirty: Dirty,
    pub(crate) pool: MemoryPool<MockBackend>,
}

impl Tenants {
    pub(crate) fn new<A: Allocator<Backend = MockBackend>>(
        builder: MockDeviceBuilder,
        options: PoolOptions,
        allocator: impl Fn(&MockBackend) -> A,
    ) -> Self {
        let device = builder.capacity_bytes(ALL as u64).build();
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let dirty = Dirty::new(allocator(&backend));
        let pool = options.build(dirty.clone(), &queue).unwrap();
        Self {
            device,
            backend,
            queue,
            dirty,
            pool,
        }
    }

    pub(crate) fn gate(&self) -> MockEvent {
        self.backend.create_user_event().unwrap()
    }

    pub(crate) fn open(&self, gate: &MockEvent) {
        self.backend
            .resolve_user_event(gate, Outcome::Complete)
            .unwrap();
    }

    /// A block, once the device has run everything, and every byte of its memory.
    pub(crate) fn next_user(&self, queue: &MockQueue, bytes: usize) -> Vec<u8> {
        let block = self.pool.allocate_on(queue, bytes).unwrap();
        self.all_bytes(&block, queue)
    }

    pub(crate) fn all_bytes(
        &self,
        block: &PooledBuffer<MockBackend>,
        queue: &MockQueue,
    ) -> Vec<u8> {
        let memory = block.memory_on(queue).unwrap();
        let mut bytes = vec![SECRET; memory.bytes()];
        self.backend.read(queue, memory, 0, &mut bytes).unwrap();
        bytes
    }

    pub(crate) fn has_no_violations(&self) {
        let violations = self.device.violations();
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

pub(crate) fn immediate(backend: &MockBackend) -> ImmediateAllocator<MockBackend> {
    ImmediateAllocator::new(backend).unwrap()
}

pub(crate) fn svm(backend: &MockBackend) -> SvmAllocator<MockBackend> {
    SvmAllocator::new(backend, SvmGrain::Coarse).unwrap()
}

pub(crate) fn buffers(options: PoolOptions) -> Tenants {
    Tenants::new(MockDevice::builder(), options, immediate)
}

pub(crate) fn manual(options: PoolOptions) -> Tenants {
    let builder = MockDevice::builder().completion(Completion::Manual);
    Tenants::new(builder, options, immediate)
}

pub(crate) fn are_zeros(bytes: &[u8], count: usize) -> bool {
    bytes.len() == count && bytes.iter().all(|byte| *byte == 0)
}

pub(crate) fn scrub(policy: ScrubPolicy) -> PoolOptions {
    PoolOptions::new().segments(false).scrub(policy)
}
