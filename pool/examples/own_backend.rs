//! A backend in whole: a device whose memory is the host's, and whose every command is a thread. Slow, and right: it passes
//! the conformance suite. What each method has to do is said in the chapter `binpool::guide::backends`.
//!
//! ```text
//! cargo run -p binpool --example own_backend
//! cargo test -p binpool --example own_backend    # the suite, a test for each promise
//! ```

use std::{
    error::Error as StdError,
    hash::{Hash, Hasher},
    sync::Arc,
    thread,
};

use binpool::{
    Align, Backend, DeviceLimits, Error, Event, EventId, EventStatus, HostUse, ImmediateAllocator,
    InvalidRequest, Memory, MemoryFlags, MemoryId, MemoryKind, MemoryPool, ObjectKind, Outcome,
    PendingRead, Queue, QueueId, QueueOrder, Region, Result, Transfers, ViewCount,
};
use parking_lot::{Condvar, Mutex};

/// Device and context in one. Clones are the same device, which the limits' address tells.
#[derive(Clone, Debug)]
struct HostBackend {
    limits: Arc<DeviceLimits>,
}

/// What memory, queues and events belong to. Here the limits; a context's handle elsewhere.
type Owner = Arc<DeviceLimits>;

#[derive(Debug)]
struct Block {
    bytes: Mutex<Vec<u8>>,
    flags: MemoryFlags,
}

/// A whole block, or a region of one, which it keeps alive.
#[derive(Debug)]
struct HostMemory {
    id: MemoryId,
    owner: Owner,
    block: Arc<Block>,
    region: Region,
    views: ViewCount,
}

impl Memory for HostMemory {
    fn id(&self) -> MemoryId {
        self.id
    }

    fn bytes(&self) -> usize {
        self.region.bytes
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::Buffer
    }

    fn has_views(&self) -> bool {
        self.views.has_views()
    }
}

/// How far a command has come, for callers that ask or wait.
#[derive(Debug)]
struct Progress {
    status: Mutex<EventStatus>,
    changed: Condvar,
}

#[derive(Clone, Debug)]
struct HostEvent {
    id: EventId,
    owner: Owner,
    is_user: bool,
    progress: Arc<Progress>,
}

impl HostEvent {
    fn new(owner: &Owner, is_user: bool, status: EventStatus) -> Self {
        let progress = Progress {
            status: Mutex::new(status),
            changed: Condvar::new(),
        };
        Self {
            id: EventId::fresh(),
            owner: Arc::clone(owner),
            is_user,
            progress: Arc::new(progress),
        }
    }

    fn set(&self, status: EventStatus) {
        *self.progress.status.lock() = status;
        self.progress.changed.notify_all();
    }

    fn end(&self) -> EventStatus {
        let mut status = self.progress.status.lock();
        while *status == EventStatus::Pending {
            self.progress.changed.wait(&mut status);
        }
        *status
    }
}

// Clones are equal, and others are not.
impl PartialEq for HostEvent {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for HostEvent {}

impl Hash for HostEvent {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl Event for HostEvent {
    fn id(&self) -> EventId {
        self.id
    }

    fn status(&self) -> Result<EventStatus> {
        Ok(*self.progress.status.lock())
    }

    fn wait(&self) -> Result<()> {
        match self.end() {
            EventStatus::Failed => {
                let why = "something that the command waited for has failed";
                Err(Error::backend("command", None, why))
            }
            _ => Ok(()),
        }
    }
}

/// In order: a command starts when the last one has ended, well or not.
#[derive(Clone, Debug)]
struct HostQueue {
    id: QueueId,
    owner: Owner,
    last: Arc<Mutex<HostEvent>>,
}

impl PartialEq for HostQueue {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for HostQueue {}

impl Hash for HostQueue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl Queue for HostQueue {
    fn id(&self) -> QueueId {
        self.id
    }

    fn order(&self) -> QueueOrder {
        QueueOrder::InOrder
    }

    fn flush(&self) -> Result<()> {
        Ok(()) // Threads start by themselves.
    }

    fn finish(&self) -> Result<()> {
        let last = self.last.lock().clone();
        last.end(); // A failure shows in its event, not here.
        Ok(())
    }
}

impl HostBackend {
    fn new() -> Self {
        let alignment = Align::new(64).unwrap_or(Align::ONE);
        // No SVM, and in-order queues only, unless said otherwise.
        let limits = DeviceLimits::new("host threads", 1 << 30, 1 << 28, alignment);
        Self {
            limits: Arc::new(limits),
        }
    }

    fn check(&self, owner: &Owner, kind: ObjectKind) -> Result<()> {
        if !Arc::ptr_eq(&self.limits, owner) {
            return Err(InvalidRequest::ForeignObject { kind }.into());
        }
        Ok(())
    }

    /// Checks a region of `memory`, and says where it is in the block.
    fn place(&self, memory: &HostMemory, region: Region) -> Result<Region> {
        self.check(&memory.owner, ObjectKind::Memory)?;
        region.check_within(memory.region.bytes)?;
        Ok(Region::new(
            memory.region.offset + region.offset,
            region.bytes,
        ))
    }

    /// The one way to enqueue anything: everything was checked before, so that a refusal enqueues nothing. `work` owns what
    /// it uses, whatever the caller drops meanwhile.
    fn enqueue(
        &self,
        queue: &HostQueue,
        wait_for: &[HostEvent],
        work: impl FnOnce() + Send + 'static,
    ) -> Result<HostEvent> {
        self.check_queue(queue)?;
        for event in wait_for {
            self.check(&event.owner, ObjectKind::Event)?;
        }
        let event = HostEvent::new(&self.limits, false, EventStatus::Pending);
        let (own, wait_for) = (event.clone(), wait_for.to_vec());
        let mut last = queue.last.lock();
        let before = last.clone();
        let command = move || {
            before.end();
            // What waits for something that fails does not run, and fails.
            let ends: Vec<_> = wait_for.iter().map(HostEvent::end).collect();
            if ends.contains(&EventStatus::Failed) {
                return own.set(EventStatus::Failed);
            }
            work();
            own.set(EventStatus::Complete);
        };
        thread::Builder::new()
            .spawn(command)
            .map_err(|error| Error::backend("spawn", error.raw_os_error(), error))?;
        *last = event.clone();
        Ok(event)
    }
}

impl Backend for HostBackend {
    type Memory = HostMemory;
    type Queue = HostQueue;
    type Event = HostEvent;

    fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    fn create_queue(&self, order: QueueOrder) -> Result<HostQueue> {
        if order == QueueOrder::OutOfOrder {
            return Err(Error::unsupported("out-of-order queues"));
        }
        let nothing = HostEvent::new(&self.limits, false, EventStatus::Complete);
        Ok(HostQueue {
            id: QueueId::fresh(),
            owner: Arc::clone(&self.limits),
            last: Arc::new(Mutex::new(nothing)),
        })
    }

    fn check_queue(&self, queue: &HostQueue) -> Result<()> {
        self.check(&queue.owner, ObjectKind::Queue)
    }

    fn create_buffer(&self, bytes: usize, flags: MemoryFlags) -> Result<HostMemory> {
        self.limits.check_block(bytes)?;
        flags.check()?;
        Ok(HostMemory {
            id: MemoryId::fresh(),
            owner: Arc::clone(&self.limits),
            block: Arc::new(Block {
                bytes: Mutex::new(vec![0; bytes]),
                flags,
            }),
            region: Region::first(bytes),
            views: ViewCount::default(),
        })
    }

    fn create_sub_region(&self, parent: &HostMemory, region: Region) -> Result<HostMemory> {
        let place = self.place(parent, region)?;
        if region.bytes == 0 {
            return Err(InvalidRequest::ZeroSize.into());
        }
        let alignment = self.limits.alignment;
        if !alignment.divides(place.offset) {
            let offset = region.offset;
            return Err(InvalidRequest::Misaligned { offset, alignment }.into());
        }
        Ok(HostMemory {
            id: MemoryId::fresh(),
            owner: Arc::clone(&parent.owner),
            block: Arc::clone(&parent.block),
            region: place,
            views: ViewCount::of_view(parent.views.count_view()),
        })
    }

    fn commit(&self, queue: &HostQueue, memory: &HostMemory) -> Result<()> {
        self.check_queue(queue)?;
        self.check(&memory.owner, ObjectKind::Memory) // It is there already.
    }

    fn release(&self, memory: HostMemory, after: &[HostEvent]) -> Result<()> {
        for event in after {
            self.check(&event.owner, ObjectKind::Event)?;
        }
        // Its commands keep the block, and there is no other way to it. Where there is one, it is freed after `after`.
        self.check(&memory.owner, ObjectKind::Memory)
    }

    fn enqueue_fill(
        &self,
        queue: &HostQueue,
        memory: &HostMemory,
        region: Region,
        pattern: &[u8],
        wait_for: &[HostEvent],
    ) -> Result<HostEvent> {
        let place = self.place(memory, region)?;
        InvalidRequest::check_pattern(region, pattern)?;
        let (block, pattern) = (Arc::clone(&memory.block), pattern.to_vec());
        self.enqueue(queue, wait_for, move || {
            let mut bytes = block.bytes.lock();
            let bytes = &mut bytes[place.offset..][..place.bytes];
            for part in bytes.chunks_exact_mut(pattern.len()) {
                part.copy_from_slice(&pattern);
            }
        })
    }

    fn enqueue_marker(&self, queue: &HostQueue, wait_for: &[HostEvent]) -> Result<HostEvent> {
        self.enqueue(queue, wait_for, || ())
    }

    fn enqueue_barrier(&self, queue: &HostQueue, wait_for: &[HostEvent]) -> Result<HostEvent> {
        self.enqueue(queue, wait_for, || ()) // In an in-order queue, any command holds up the next.
    }

    fn create_user_event(&self) -> Result<HostEvent> {
        Ok(HostEvent::new(&self.limits, true, EventStatus::Pending))
    }

    fn resolve_user_event(&self, event: &HostEvent, outcome: Outcome) -> Result<()> {
        self.check(&event.owner, ObjectKind::Event)?;
        if !event.is_user {
            return Err(InvalidRequest::NotAUserEvent.into());
        }
        let mut status = event.progress.status.lock();
        if *status != EventStatus::Pending {
            return Err(InvalidRequest::AlreadyResolved.into());
        }
        *status = match outcome {
            Outcome::Complete => EventStatus::Complete,
            Outcome::Failed => EventStatus::Failed,
        };
        event.progress.changed.notify_all();
        Ok(())
    }
}

impl Transfers for HostBackend {
    fn write(
        &self,
        queue: &HostQueue,
        memory: &HostMemory,
        offset: usize,
        data: &[u8],
        wait_for: &[HostEvent],
    ) -> Result<()> {
        self.enqueue_write(queue, memory, offset, data.into(), wait_for)?
            .wait()
    }

    fn read(
        &self,
        queue: &HostQueue,
        memory: &HostMemory,
        offset: usize,
        data: &mut [u8],
        wait_for: &[HostEvent],
    ) -> Result<()> {
        let region = Region::new(offset, data.len());
        let bytes = self.enqueue_read(queue, memory, region, wait_for)?.wait()?;
        data.copy_from_slice(&bytes);
        Ok(())
    }

    fn enqueue_write(
        &self,
        queue: &HostQueue,
        memory: &HostMemory,
        offset: usize,
        data: Arc<[u8]>,
        wait_for: &[HostEvent],
    ) -> Result<HostEvent> {
        let place = self.place(memory, Region::new(offset, data.len()))?;
        memory.block.flags.check_host(HostUse::Write)?;
        let block = Arc::clone(&memory.block);
        self.enqueue(queue, wait_for, move || {
            block.bytes.lock()[place.offset..][..place.bytes].copy_from_slice(&data);
        })
    }

    fn enqueue_read(
        &self,
        queue: &HostQueue,
        memory: &HostMemory,
        region: Region,
        wait_for: &[HostEvent],
    ) -> Result<PendingRead<HostEvent>> {
        let place = self.place(memory, region)?;
        memory.block.flags.check_host(HostUse::Read)?;
        let block = Arc::clone(&memory.block);
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let target = Arc::clone(&arrived);
        let event = self.enqueue(queue, wait_for, move || {
            *target.lock() = block.bytes.lock()[place.offset..][..place.bytes].to_vec();
        })?;
        Ok(PendingRead::new(event, move || {
            std::mem::take(&mut *arrived.lock())
        }))
    }

    fn enqueue_copy(
        &self,
        queue: &HostQueue,
        source: &HostMemory,
        from: Region,
        destination: &HostMemory,
        to: usize,
        wait_for: &[HostEvent],
    ) -> Result<HostEvent> {
        let read = self.place(source, from)?;
        let written = self.place(destination, Region::new(to, from.bytes))?;
        if source.id == destination.id && read.overlaps(written) {
            let (from, bytes) = (from.offset, from.bytes);
            return Err(InvalidRequest::OverlappingCopy { from, to, bytes }.into());
        }
        let (source, target) = (Arc::clone(&source.block), Arc::clone(&destination.block));
        self.enqueue(queue, wait_for, move || {
            // Both may be the same block, hence one lock after the other.
            let bytes = source.bytes.lock()[read.offset..][..read.bytes].to_vec();
            target.bytes.lock()[written.offset..][..written.bytes].copy_from_slice(&bytes);
        })
    }
}

fn main() -> Result<(), Box<dyn StdError>> {
    // The allocators, the adaptors and the pool come with it.
    let backend = HostBackend::new();
    let queue = backend.create_queue(QueueOrder::InOrder)?;
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    for _ in 0..100 {
        let block = pool.allocate(100_000)?;
        block.enqueue_fill(&queue, 0..100_000, &[7_u8])?;
    }
    let statistics = pool.statistics();
    println!("{}: {statistics:#?}", backend.limits().device_name);
    assert_eq!((statistics.hits, statistics.misses), (99, 1));
    Ok(())
}

#[test]
fn the_example_runs() {
    main().unwrap();
}

#[cfg(test)]
mod conformance {
    use binpool::conformance::Fixture;

    use super::HostBackend;

    struct Host;

    impl Fixture for Host {
        type Backend = HostBackend;

        fn backend(&self) -> HostBackend {
            HostBackend::new()
        }
    }

    binpool::backend_conformance!(Host);
    binpool::pending_conformance!(Host);
    binpool::failure_conformance!(Host);
}
