//! Pages that move to a second address while commands use the first, from several threads.

use binpool::{Backend, MemoryPool, PooledBuffer, QueueOrder, VirtualMemoryAllocator};
use binpool_mock::{Completion, MockBackend, MockDevice, MockQueue};

use crate::{
    program::{Program, library::thread},
    world::join,
};

pub(crate) const PROGRAMS: &[Program] = &[
    Program::new("pages-that-move-while-used", 3, || move_while_used(true)),
    Program::new("pages-that-may-not-move-while-used", 3, || {
        move_while_used(false);
    }),
];

type Block = PooledBuffer<MockBackend>;

const MIB: usize = 1 << 20;

#[derive(Clone)]
struct Pages {
    device: MockDevice,
    queue: MockQueue,
    pool: MemoryPool<MockBackend>,
}

impl Pages {
    fn new(aliases: bool) -> Self {
        let device = MockDevice::builder()
            .capacity_bytes(64 * MIB as u64)
            .virtual_memory(true)
            .page_aliases(aliases)
            .completion(Completion::Manual)
            .build();
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue).unwrap();
        Self {
            device,
            queue,
            pool,
        }
    }

    /// A block whose first and last byte a pending command writes.
    fn allocate(&self, mib: usize, mark: u8) -> Block {
        let block = self.pool.allocate(mib * MIB).unwrap();
        for start in [0, block.size() - 1] {
            let region = start..start + 1;
            block.enqueue_fill(&self.queue, region, &[mark]).unwrap();
        }
        block
    }

    fn check(&self, block: &Block, mark: u8) {
        for start in [0, block.size() - 1] {
            let mut found = [0];
            block.read(&self.queue, start, &mut found).unwrap();
            assert_eq!(found, [mark], "another block has these pages");
        }
    }

    fn end(self) {
        self.pool.free_held();
        assert_eq!(self.pool.managed_bytes(), 0);
        let statistics = self.pool.statistics();
        assert_eq!(statistics.maps, statistics.unmaps);
        assert_eq!(self.device.violations(), []);
    }
}

/// Two threads take what pending commands use, and a third ends these commands and looks for what can be unmapped.
fn move_while_used(aliases: bool) {
    let pages = Pages::new(aliases);
    let [first, second, third, fourth] = [1, 2, 3, 4].map(|mark| pages.allocate(2, mark));
    drop(first);
    drop(third);
    let own = pages.clone();
    let other = thread::spawn(move || {
        let block = own.allocate(4, 5);
        own.check(&block, 5);
    });
    let own = pages.clone();
    let device = thread::spawn(move || {
        own.device.run();
        own.pool.sweep();
    });
    let block = pages.allocate(4, 6);
    join([other, device]);
    for (block, mark) in [(&second, 2), (&fourth, 4), (&block, 6)] {
        pages.check(block, mark);
    }
    drop((second, fourth, block));
    pages.end();
}
