//! Blocks that are carved from segments of another allocator: they keep to themselves, none is handed out before its
//! events have ended, every request that fits is served, and all of it comes back.

mod blocks;
mod guarantee;
mod pending;
mod shortage;
mod views;

use std::slice::from_ref;

use binpool_allocators::{
    Allocator, Backend, ImmediateAllocator, Memory, Outcome, Queue, QueueOrder, Region,
    SegmentAllocator, SvmAllocator, SvmGrain,
};
use binpool_mock::{Completion, MockBackend, MockDevice, MockEvent, MockMemory, MockQueue};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// A device, an allocator over it, and two queues.
struct Rig<A: Allocator<Backend = MockBackend> = ImmediateAllocator<MockBackend>> {
    device: MockDevice,
    backend: MockBackend,
    queues: [MockQueue; 2],
    allocator: SegmentAllocator<A>,
}

impl<A: Allocator<Backend = MockBackend>> Rig<A> {
    fn over(device: &MockDevice, inner: impl FnOnce(&MockBackend) -> A) -> Self {
        let backend = device.backend();
        Self {
            device: device.clone(),
            queues: [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap()),
            allocator: SegmentAllocator::new(inner(&backend)),
            backend,
        }
    }

    fn fill(&self, queue: usize, memory: &MockMemory, byte: u8, after: &[MockEvent]) -> MockEvent {
        let all = Region::first(memory.bytes());
        let queue = &self.queues[queue];
        self.backend
            .enqueue_fill(queue.after(after), memory, all, &[byte])
            .unwrap()
    }

    fn read(&self, memory: &MockMemory, after: &MockEvent) -> Vec<u8> {
        let mut bytes = vec![0_u8; memory.bytes()];
        self.backend
            .read(self.queues[0].after(from_ref(after)), memory, 0, &mut bytes)
            .unwrap();
        bytes
    }

    fn gate(&self) -> MockEvent {
        self.backend.create_user_event().unwrap()
    }

    fn open(&self, gate: &MockEvent) {
        self.backend
            .resolve_user_event(gate, Outcome::Complete)
            .unwrap();
    }

    /// Everything is released: the device has all of it back, and nothing was misused.
    fn ends_clean(self) {
        let statistics = self.allocator.statistics();
        assert_eq!((statistics.live_blocks, statistics.pending_bytes), (0, 0));
        assert_eq!(statistics.free_bytes, statistics.segment_bytes);
        assert_eq!(self.allocator.free_idle(), statistics.segment_bytes);
        assert_eq!(self.allocator.statistics().segment_bytes, 0);
        drop((self.allocator, self.queues));
        assert!(self.device.leaks().is_empty(), "{}", self.device.leaks());
        assert_eq!(self.device.violations(), []);
    }
}

fn immediate(backend: &MockBackend) -> ImmediateAllocator<MockBackend> {
    ImmediateAllocator::new(backend).unwrap()
}

fn svm(backend: &MockBackend) -> SvmAllocator<MockBackend> {
    SvmAllocator::new(backend, SvmGrain::Coarse).unwrap()
}

fn rig(capacity: usize) -> Rig {
    let device = MockDevice::builder().capacity_bytes(capacity as u64);
    Rig::over(&device.build(), immediate)
}

/// Commands run when the test says so, or waits.
fn manual(capacity: usize) -> MockDevice {
    MockDevice::builder()
        .capacity_bytes(capacity as u64)
        .completion(Completion::Manual)
        .build()
}
