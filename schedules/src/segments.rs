//! The segment allocator, from several threads.

use binpool::{Allocator as _, Backend, Memory, QueueOrder, SegmentAllocator};
use binpool_mock::{Completion, MockDevice, MockMemory, MockQueue};
use shuttle::thread::yield_now;

use crate::{
    program::Program,
    world::{Allocator, BYTES, join},
};

pub(crate) const PROGRAMS: &[Program] = &[
    Program::new("segments-from-two-threads", 3, from_two_threads),
    Program::new("segments-that-are-just-enough", 3, just_enough),
    Program::new("segments-that-go-back-meanwhile", 3, go_back_meanwhile),
    Program::new("segments-with-pending-ranges", 3, pending_ranges),
    Program::new(
        "segments-that-outlive-their-allocator",
        3,
        outlive_their_allocator,
    ),
    Program::listed("segments-of-a-block-each", 2, of_a_block_each),
];

struct Segments {
    device: MockDevice,
    queue: MockQueue,
    allocator: SegmentAllocator<Allocator>,
}

impl Clone for Segments {
    fn clone(&self) -> Self {
        Self {
            device: self.device.clone(),
            queue: self.queue.clone(),
            allocator: self.allocator.clone(),
        }
    }
}

impl Segments {
    fn with_room_for(blocks: usize, completion: Completion) -> Self {
        let device = MockDevice::builder()
            .capacity_bytes((blocks * BYTES) as u64)
            .completion(completion)
            .build();
        let backend = device.backend();
        Self {
            queue: backend.create_queue(QueueOrder::InOrder).unwrap(),
            allocator: SegmentAllocator::new(Allocator::new(&backend).unwrap()),
            device,
        }
    }

    fn spawn(&self, run: impl FnOnce(&Self) + Send + 'static) -> shuttle::thread::JoinHandle<()> {
        let own = self.clone();
        shuttle::thread::spawn(move || run(&own))
    }

    /// A block with this mark.
    fn allocate(&self, mark: u8) -> MockMemory {
        let block = self.allocator.allocate(BYTES).unwrap();
        let backend = self.allocator.backend();
        backend.write(&self.queue, &block, 0, &[mark]).unwrap();
        block
    }

    /// Checks that no other thread has written into the block, and frees it.
    fn check(&self, block: MockMemory, mark: u8) {
        let mut found = [0_u8];
        let backend = self.allocator.backend();
        backend
            .read(&self.queue, &block, 0, &mut found)
            .unwrap();
        assert_eq!(found, [mark], "the range was handed out twice");
        self.allocator.release(block, &[]).unwrap();
    }

    fn end(self) {
        let statistics = self.allocator.statistics();
        assert_eq!((statistics.live_blocks, statistics.pending_bytes), (0, 0));
        assert_eq!(statistics.free_bytes, statistics.segment_bytes);
        assert_eq!(
            self.device.statistics().committed_bytes,
            statistics.segment_bytes
        );
        assert_eq!(self.allocator.free_idle(), statistics.segment_bytes);
        assert_eq!(self.device.statistics().live_blocks, 0);
        assert_eq!(self.device.violations(), []);
    }
}

fn come_and_go(segments: &Segments, mark: u8) {
    let kept = segments.allocate(mark);
    let other = segments.allocate(mark + 1);
    segments.check(kept, mark);
    segments.check(other, mark + 1);
}

fn from_two_threads() {
    let segments = Segments::with_room_for(1024, Completion::AtOnce);
    let others = [1, 3].map(|mark| segments.spawn(move |it| come_and_go(it, mark)));
    let statistics = segments.allocator.statistics();
    assert!(statistics.free_bytes <= statistics.segment_bytes);
    join(others);
    segments.end();
}

/// There is room for what is in use at the same time: what another thread has in hand is waited for.
fn just_enough() {
    let segments = Segments::with_room_for(2, Completion::AtOnce);
    let others = [1, 2].map(|mark| {
        segments.spawn(move |it| {
            for _ in 0..3 {
                let block = it.allocate(mark);
                it.check(block, mark);
            }
        })
    });
    for _ in 0..3 {
        segments.allocator.free_idle();
    }
    join(others);
    segments.end();
}

fn go_back_meanwhile() {
    let segments = Segments::with_room_for(4, Completion::AtOnce);
    let others = [1, 3].map(|mark| segments.spawn(move |it| come_and_go(it, mark)));
    segments.allocator.free_idle();
    segments.allocator.free_idle();
    join(others);
    segments.end();
}

/// Ranges are free once commands have ended, which others wait for and a third thread runs.
fn pending_ranges() {
    let segments = Segments::with_room_for(2, Completion::Manual);
    let others = [1, 2].map(|mark| {
        segments.spawn(move |it| {
            let backend = it.allocator.backend();
            let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
            for _ in 0..2 {
                let block = it.allocator.allocate(BYTES).unwrap();
                let all = binpool::Region::first(block.bytes());
                let filled = backend
                    .enqueue_fill(&queue, &block, all, &[mark])
                    .unwrap();
                it.allocator.release(block, &[filled]).unwrap();
            }
        })
    });
    segments.device.step();
    yield_now();
    segments.device.step();
    join(others);
    segments.device.run();
    segments.allocator.free_idle();
    segments.end();
}

/// The allocator goes with the last clone, on any thread, and a block that lives on keeps its segment.
fn outlive_their_allocator() {
    let segments = Segments::with_room_for(64, Completion::AtOnce);
    let device = segments.device.clone();
    let block = segments.allocate(9);
    let others = [1, 3].map(|mark| segments.spawn(move |it| come_and_go(it, mark)));
    drop(segments);
    join(others);
    assert_eq!(
        device.statistics().live_blocks,
        1,
        "the segment of the block"
    );
    drop(block);
    assert_eq!(device.statistics().live_blocks, 0);
    assert_eq!(device.violations(), []);
}

/// The smallest program: one block each.
fn of_a_block_each() {
    let segments = Segments::with_room_for(2, Completion::AtOnce);
    let allocate_and_release = |it: &Segments| {
        let block = it.allocator.allocate(BYTES).unwrap();
        it.allocator.release(block, &[]).unwrap();
    };
    let other = segments.spawn(allocate_and_release);
    allocate_and_release(&segments);
    join([other]);
    segments.end();
}
