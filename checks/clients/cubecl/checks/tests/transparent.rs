//! The memories of two streams over one pool, on the mock device.

use binpool::{Backend, ImmediateAllocator, MemoryPool, PoolOptions, PooledBuffer, QueueOrder};
use binpool_mock::{Completion, MockBackend, MockDevice, MockQueue};
use cubecl_environment::backtrace::BackTrace;
use cubecl_ir::MemoryDeviceProperties;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{
    Cleanup, ErrorGraph, ManagedMemoryHandle, MemoryAllocationMode, MemoryConfiguration, MemoryManagement, MemoryManagementOptions,
    PageUpdate,
};
use cubecl_server::server::IoError;
use cubecl_server::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};
use std::collections::HashMap;
use std::sync::Arc;

const SIZE: u64 = 1 << 20;

struct PoolStorage {
    pool: MemoryPool<MockBackend>,
    queue: MockQueue,
    blocks: HashMap<StorageId, PooledBuffer<MockBackend>>,
    /// The queue that other streams' uses are of.
    other: MockQueue,
}

impl ComputeStorage for PoolStorage {
    type Resource = Option<binpool::MemoryId>;

    fn alignment(&self) -> usize {
        256
    }

    fn get(&mut self, handle: &StorageHandle) -> Result<Self::Resource, IoError> {
        Ok(self.blocks[&handle.id].memory_id())
    }

    fn alloc(&mut self, size: u64) -> Result<StorageHandle, IoError> {
        let block = self.pool.allocate_on(&self.queue, size as usize);
        let block = block.map_err(|_| IoError::OutOfMemory { size, backtrace: BackTrace::capture() })?;
        let id = StorageId::new();
        self.blocks.insert(id, block);
        Ok(StorageHandle::new(id, StorageUtilization { offset: 0, size }))
    }

    fn dealloc(&mut self, id: StorageId) {
        let _block = self.blocks.remove(&id).expect("each block is given back once");
    }

    fn flush(&mut self) {}

    fn bytes_allocated(&self) -> u64 {
        self.pool.active_bytes()
    }

    fn trim(&mut self) {
        self.pool.trim_to(0);
    }

    fn record_use(&mut self, id: StorageId, _queue: usize) -> bool {
        self.blocks[&id].record_use(&self.other).is_ok()
    }
}

struct Device {
    mock: MockDevice,
    backend: MockBackend,
    pool: MemoryPool<MockBackend>,
    other: MockQueue,
}

impl Device {
    fn new() -> Self {
        let mock = MockDevice::builder().completion(Completion::Manual).build();
        let backend = mock.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let allocator = ImmediateAllocator::new(&backend).unwrap();
        let pool = PoolOptions::new().segments(false).build(allocator, &queue).unwrap();
        let other = backend.create_queue(QueueOrder::InOrder).unwrap();
        Self { mock, backend, pool, other }
    }

    fn stream(&self) -> Stream {
        let queue = self.backend.create_queue(QueueOrder::InOrder).unwrap();
        let storage = PoolStorage { pool: self.pool.clone(), queue: queue.clone(), blocks: HashMap::new(), other: self.other.clone() };
        let memory = MemoryManagement::from_configuration(
            storage,
            &MemoryDeviceProperties::new(1 << 30, 256),
            MemoryConfiguration::default(),
            Arc::new(ServerLogger::default()),
            MemoryManagementOptions::new("stream").mode(MemoryAllocationMode::Dedicated),
        );
        Stream { memory, queue, failures: ErrorGraph::default() }
    }
}

struct Stream {
    memory: MemoryManagement<PoolStorage>,
    queue: MockQueue,
    failures: ErrorGraph,
}

impl Stream {
    fn reserve(&mut self, update: PageUpdate) -> ManagedMemoryHandle {
        self.memory.reserve(SIZE, update, &mut self.failures).unwrap()
    }

    /// A client's handle, which is made before its memory is.
    fn handle(&mut self, cursor: u64) -> ManagedMemoryHandle {
        let handle = ManagedMemoryHandle::new();
        let reserved = self.reserve(PageUpdate::Allow);
        self.memory.bind(reserved, handle.clone(), cursor, &mut self.failures).unwrap();
        handle
    }

    fn give_back(&mut self) {
        self.memory.give_back(&mut self.failures);
    }
}

#[test]
fn what_one_stream_no_longer_holds_serves_another() {
    let device = Device::new();
    let (mut one, mut other) = (device.stream(), device.stream());
    drop(one.handle(1));
    one.give_back();
    // The pool asks how far the queue has come.
    device.pool.sweep();
    device.mock.run();
    let _kept = other.handle(1);
    assert_eq!(device.pool.managed_bytes(), SIZE);
}

#[test]
fn another_stream_gets_memory_only_after_the_commands_of_the_first() {
    let device = Device::new();
    let (mut one, mut other) = (device.stream(), device.stream());
    let handle = one.handle(1);
    device.backend.enqueue_marker(&one.queue).unwrap();
    drop(handle);
    one.give_back();
    let early = other.handle(1);
    assert_eq!(device.pool.managed_bytes(), 2 * SIZE, "the first block is busy");
    device.mock.run();
    let _late = other.handle(2);
    assert_eq!(device.pool.managed_bytes(), 2 * SIZE, "and is free after its commands");
    drop(early);
}

#[test]
fn its_own_stream_gets_memory_only_after_the_commands_of_another_that_used_it() {
    let device = Device::new();
    let mut stream = device.stream();
    for update in [PageUpdate::Allow, PageUpdate::Forbidden] {
        let handle = stream.handle(1);
        assert!(stream.memory.record_use(&handle.clone().binding(), 0));
        device.backend.enqueue_marker(&device.other).unwrap();
        let before = device.pool.managed_bytes();
        drop(handle);
        let _next = stream.reserve(update);
        assert_eq!(device.pool.managed_bytes(), before + SIZE, "{update:?}");
        device.mock.run();
        stream.memory.cleanup(Cleanup::Explicit, &mut stream.failures);
    }
}

#[test]
fn a_clone_and_a_binding_keep_the_memory() {
    let device = Device::new();
    let mut stream = device.stream();
    let handle = stream.handle(1);
    let binding = handle.clone().binding();
    drop(handle);
    stream.give_back();
    assert_eq!(device.pool.active_blocks(), 1);
    assert!(stream.memory.get_resource(binding.clone(), None, None).unwrap().is_some());
    drop(binding);
    stream.give_back();
    assert_eq!(device.pool.active_blocks(), 0);
}

#[test]
fn a_drop_on_another_thread_is_seen() {
    let device = Device::new();
    let mut stream = device.stream();
    let handles: Vec<_> = (0..64).map(|_| stream.handle(1)).collect();
    std::thread::spawn(move || drop(handles)).join().unwrap();
    stream.give_back();
    assert_eq!(device.pool.active_blocks(), 0);
}

#[test]
fn a_handle_may_be_written_in_place_while_it_is_the_only_one() {
    let device = Device::new();
    let mut stream = device.stream();
    let handle = stream.handle(1);
    assert!(handle.can_mut());
    let other = handle.clone();
    assert!(!handle.can_mut());
    drop(other);
    assert!(handle.can_mut());
}

#[test]
fn a_weak_binding_lives_as_long_as_an_owner() {
    let device = Device::new();
    let mut stream = device.stream();
    let handle = stream.handle(1);
    let weak = handle.clone().binding().downgrade();
    assert!(weak.upgrade().is_some());
    drop(handle);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_guarded_page_stays_until_the_guard_is_dropped() {
    let device = Device::new();
    let mut stream = device.stream();
    let handle = stream.handle(1);
    let guard = stream.memory.guard(handle.descriptor().location()).unwrap();
    drop(handle);
    stream.give_back();
    let _other = stream.handle(1);
    assert_eq!(device.pool.active_blocks(), 2);
    drop(guard);
    stream.give_back();
    assert_eq!(device.pool.active_blocks(), 1);
}

/// A recording frees a buffer before the graph is there that guards its page.
#[test]
fn a_page_can_be_guarded_after_its_owner_is_gone() {
    let device = Device::new();
    let mut stream = device.stream();
    let handle = stream.handle(1);
    let location = handle.descriptor().location();
    drop(handle);
    let guard = stream.memory.guard(location).unwrap();
    stream.give_back();
    assert_eq!(device.pool.active_blocks(), 1);
    drop(guard);
    stream.give_back();
    assert_eq!(device.pool.active_blocks(), 0);
}

#[test]
fn a_recording_reuses_what_it_freed_and_may_take_more() {
    let device = Device::new();
    let mut stream = device.stream();
    let first = stream.reserve(PageUpdate::Forbidden);
    let location = first.descriptor().location();
    drop(first);
    let again = stream.reserve(PageUpdate::Forbidden);
    assert_eq!(again.descriptor().location(), location);
    let _more = stream.reserve(PageUpdate::Forbidden);
    assert_eq!(device.pool.active_blocks(), 2);
}

#[test]
fn a_slice_has_the_cursor_of_its_allocation() {
    let device = Device::new();
    let mut stream = device.stream();
    let handle = stream.handle(7);
    assert_eq!(stream.memory.get_cursor(handle.binding()).unwrap(), 7);
}

#[test]
fn a_binding_without_memory_is_not_found() {
    let device = Device::new();
    let mut stream = device.stream();
    let binding = ManagedMemoryHandle::new().binding();
    assert!(stream.memory.get_resource(binding, None, None).is_err());
}

#[test]
fn an_explicit_cleanup_gives_free_memory_back_to_the_device() {
    let device = Device::new();
    let mut stream = device.stream();
    drop(stream.handle(1));
    device.mock.run();
    stream.memory.cleanup(Cleanup::Explicit, &mut stream.failures);
    assert_eq!(device.pool.managed_bytes(), 0);
}
