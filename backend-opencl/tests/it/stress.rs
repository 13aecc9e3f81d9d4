//! Random programs of real kernels on several queues over one pool. Every block is full of a pattern of its own, which is
//! checked on the device and on the host; blocks go back to the pool while their commands are pending, and move between
//! queues and threads: no word is ever another's.
//!
//! `BINPOOL_STRESS_ROUNDS` says how many steps each thread takes under each policy (default 150),
//! `BINPOOL_STRESS_SEED` which steps they are (default 0), `BINPOOL_STRESS_THREADS` how many threads take them where there are
//! several (default 4), `BINPOOL_TEST_DEVICE` on which device:
//!
//! ```sh
//! BINPOOL_STRESS_ROUNDS=20000 cargo test --release -p binpool-opencl --test it stress:: -- --test-threads=1 --nocapture
//! ```
//!
//! The array crate has a stress of its own, in which its operations order what they use by themselves. Here it is the
//! program that does, by `order_before` or by the events of its commands.

use std::{
    env,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use binpool::{
    Allocator, Backend, DeferredAllocator, ImmediateAllocator, MemoryFlags, MemoryPool,
    PendingRead, PoolOptions, PooledBuffer, Queue, QueueOrder, ReusePolicy, SvmAllocator, SvmGrain,
};
use binpool_conformance::Random;
use binpool_opencl::{ClEvent, ClMemory, ClQueue, OpenClBackend};

use crate::common::kernels::{Kernels, pattern};

/// Words of a block: two of one class, so that blocks meet again, and a few others.
const WORDS: [usize; 4] = [64, 1000, 1024, 16_384];

/// Blocks that a thread has at most in its hands.
const MOST_LIVE: usize = 8;

fn from_environment(name: &str, default: u64) -> u64 {
    let value = env::var(name).ok();
    value.map_or(default, |value| value.parse().expect(name))
}

/// One of these; there is at least one.
fn pick<'a, T>(random: &mut Random, among: &'a [T]) -> &'a T {
    &among[random.below(among.len())]
}

/// A command, and the queue that is to be flushed before another queue waits for it.
#[derive(Clone)]
struct Command {
    queue: ClQueue,
    event: ClEvent,
}

/// A block full of the pattern of `seed`, once `writer` has ended.
struct Live {
    block: PooledBuffer<OpenClBackend>,
    seed: u32,
    writer: Command,
    /// What has read it since, on whichever queues, in no order.
    readers: Vec<Command>,
}

impl Live {
    fn words(&self) -> usize {
        words(&self.block)
    }

    fn commands(&self) -> Vec<Command> {
        let mut commands = self.readers.clone();
        commands.push(self.writer.clone());
        commands
    }
}

fn words(block: &PooledBuffer<OpenClBackend>) -> usize {
    block.size() / size_of::<u32>()
}

/// The events of these commands, for a wait list on any queue.
fn events(commands: &[Command]) -> Vec<ClEvent> {
    let event = |command: &Command| {
        command.queue.flush().unwrap();
        command.event.clone()
    };
    commands.iter().map(event).collect()
}

/// What the threads of a run share.
struct Shared<'a> {
    kernels: &'a Kernels,
    pool: &'a MemoryPool<OpenClBackend>,
    /// Blocks on their way from thread to thread.
    exchange: Mutex<Vec<Live>>,
    /// No two patterns are the same.
    next_seed: AtomicU32,
}

/// A thread of the program, with queues of its own.
struct Worker<'a> {
    shared: &'a Shared<'a>,
    /// Each with a counter of the words that were wrong there.
    queues: Vec<(ClQueue, ClMemory)>,
    random: Random,
    live: Vec<Live>,
    /// Reads under way, most of them of blocks that have gone back to the pool, and the patterns they are to bring.
    reads: Vec<(PendingRead<ClEvent>, u32)>,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared<'a>, seed: u64) -> Self {
        let backend = &shared.kernels.backend;
        let mut orders = vec![QueueOrder::InOrder; 2];
        if backend.limits().out_of_order_queues {
            orders.push(QueueOrder::OutOfOrder);
        }
        let queue = |order| {
            let queue = backend.create_queue(order).unwrap();
            let errors = backend.create_buffer(4, MemoryFlags::empty()).unwrap();
            backend.write(&queue, &errors, 0, &[0_u8; 4]).unwrap();
            (queue, errors)
        };
        Self {
            shared,
            queues: orders.into_iter().map(queue).collect(),
            random: Random::new(seed),
            live: Vec::new(),
            reads: Vec::new(),
        }
    }

    fn any_queue(&mut self) -> ClQueue {
        pick(&mut self.random, &self.queues).0.clone()
    }

    fn take_any(&mut self) -> Live {
        let index = self.random.below(self.live.len());
        self.live.swap_remove(index)
    }

    fn fresh_seed(&self) -> u32 {
        self.shared.next_seed.fetch_add(1, Ordering::Relaxed)
    }

    /// Has the next command on `queue` come after these commands on the block: by its wait list, which is returned, or
    /// else by the pool, which puts it after everything that uses the block.
    fn order<'c>(
        &mut self,
        block: &PooledBuffer<OpenClBackend>,
        commands: impl IntoIterator<Item = &'c Command>,
        queue: &ClQueue,
    ) -> Vec<ClEvent> {
        if self.random.below(2) == 0 {
            block.order_before(queue).unwrap();
            return Vec::new();
        }
        let commands: Vec<Command> = commands.into_iter().cloned().collect();
        events(&commands)
    }

    /// Fills a block with a pattern: by a kernel, or with bytes of the host.
    fn write(
        &mut self,
        block: &PooledBuffer<OpenClBackend>,
        queue: &ClQueue,
        seed: u32,
        wait_for: &[ClEvent],
    ) -> Command {
        let words = words(block);
        let event = if self.random.below(8) == 0 {
            let bytes = pattern(seed, words);
            block
                .enqueue_write(queue.after(wait_for), 0, bytes.into())
                .unwrap()
        } else {
            let memory = block.memory_on(queue).unwrap();
            let kernels = self.shared.kernels;
            kernels.write_pattern(queue, (memory, words), seed, wait_for)
        };
        Command {
            queue: queue.clone(),
            event,
        }
    }

    fn make(&mut self) {
        let (queue, words) = (self.any_queue(), *pick(&mut self.random, &WORDS));
        self.make_on(&queue, words);
    }

    fn make_on(&mut self, queue: &ClQueue, words: usize) {
        let block = self.shared.pool.allocate_on(queue, words * 4).unwrap();
        let seed = self.fresh_seed();
        // The pool has put the former users' commands first.
        let writer = self.write(&block, queue, seed, &[]);
        self.live.push(Live {
            block,
            seed,
            writer,
            readers: Vec::new(),
        });
    }

    fn rewrite(&mut self, live: &mut Live) {
        let (queue, seed) = (self.any_queue(), self.fresh_seed());
        let wait_for = self.order(&live.block, &live.commands(), &queue);
        live.writer = self.write(&live.block, &queue, seed, &wait_for);
        live.seed = seed;
        live.readers.clear();
    }

    fn check_on_the_device(&mut self, live: &mut Live) {
        let queue = self.any_queue();
        let wait_for = self.order(&live.block, [&live.writer], &queue);
        self.check_on(live, queue, &wait_for);
    }

    fn check_on(&self, live: &mut Live, queue: ClQueue, wait_for: &[ClEvent]) {
        let block = (live.block.memory_on(&queue).unwrap(), live.words());
        let (_, errors) = self.queues.iter().find(|(own, _)| *own == queue).unwrap();
        let kernels = self.shared.kernels;
        let event = kernels.check_pattern(&queue, block, live.seed, errors, wait_for);
        live.readers.push(Command { queue, event });
    }

    fn check_on_the_host(&mut self, live: &mut Live) {
        let queue = self.any_queue();
        let wait_for = self.order(&live.block, [&live.writer], &queue);
        let all = 0..live.block.size();
        let read = live
            .block
            .enqueue_read(queue.after(&wait_for), all)
            .unwrap();
        let event = read.event().clone();
        live.readers.push(Command { queue, event });
        self.reads.push((read, live.seed));
        if self.reads.len() > 4 {
            self.verify_reads();
        }
    }

    /// Copies the block to a fresh one, on the queue of the one, of the other, or of neither.
    fn copy(&mut self, live: &mut Live) {
        let (home, queue) = (self.any_queue(), self.any_queue());
        let block = self
            .shared
            .pool
            .allocate_on(&home, live.block.size())
            .unwrap();
        if queue != home {
            block.order_before(&queue).unwrap();
        }
        let wait_for = self.order(&live.block, [&live.writer], &queue);
        let event = live
            .block
            .enqueue_copy_to(queue.after(&wait_for), &block)
            .unwrap();
        let command = Command { queue, event };
        live.readers.push(command.clone());
        self.live.push(Live {
            block,
            seed: live.seed,
            writer: command,
            readers: Vec::new(),
        });
    }

    fn bind(&mut self, live: &mut Live) {
        let queue = self.any_queue();
        if queue.order() == QueueOrder::InOrder {
            live.block.bind_to_queue(&queue).unwrap();
            // What comes next on that queue waits for nothing else.
            self.check_on(live, queue, &[]);
        }
    }

    /// Gives the block back by a command, which comes after the block's by itself, and asks for one like it.
    fn release(&mut self, live: Live) {
        let queue = self.any_queue();
        let wait_for = match self.random.below(2) {
            0 => Vec::new(),
            _ => events(&live.commands()),
        };
        let words = live.words();
        live.block.enqueue_release(Some(&queue), &wait_for).unwrap();
        self.make_on(&queue, words);
    }

    /// Gives a block to the other threads, and takes one of theirs.
    fn swap(&mut self, live: Live) {
        let mut exchange = self.shared.exchange.lock().unwrap();
        exchange.push(live);
        let index = self.random.below(exchange.len());
        let taken = exchange.swap_remove(index);
        drop(exchange);
        self.live.push(taken);
    }

    fn with_any(&mut self, step: impl FnOnce(&mut Self, &mut Live)) {
        let mut live = self.take_any();
        step(self, &mut live);
        self.live.push(live);
    }

    fn step(&mut self) {
        if self.live.len() < 2 {
            return self.make();
        }
        match self.random.below(64) {
            0..16 => self.make(),
            16..28 => self.with_any(Self::check_on_the_device),
            28..32 => self.with_any(Self::check_on_the_host),
            32..42 => self.with_any(Self::copy),
            42..46 => self.with_any(Self::rewrite),
            46..50 => self.with_any(Self::bind),
            50..54 => {
                let live = self.take_any();
                self.release(live);
            }
            54..58 => {
                let live = self.take_any();
                self.swap(live);
            }
            // Dropped, whatever is pending.
            58..61 => drop(self.take_any()),
            61 => self.with_any(|_, live| live.block.unbind_from_queue().unwrap()),
            62 => drop(self.shared.pool.free_held()),
            _ => {
                let queue = self.any_queue();
                self.shared.pool.retire_queue(&queue);
            }
        }
        while self.live.len() > MOST_LIVE {
            drop(self.take_any());
        }
    }

    fn verify_reads(&mut self) {
        for (read, seed) in self.reads.drain(..) {
            let bytes = read.wait().unwrap();
            let expected = pattern(seed, bytes.len() / 4);
            let wrong = bytes
                .iter()
                .zip(&expected)
                .position(|(is, to_be)| is != to_be);
            assert_eq!(
                wrong,
                None,
                "a byte of {} is not pattern {seed}'s",
                bytes.len()
            );
        }
    }

    /// Checks what is left, and that no kernel found a wrong word.
    fn end(mut self) {
        while let Some(mut live) = self.live.pop() {
            self.check_on_the_device(&mut live);
            self.check_on_the_host(&mut live);
        }
        self.verify_reads();
        let backend = &self.shared.kernels.backend;
        for (queue, errors) in &self.queues {
            queue.finish().unwrap();
            let mut count = [0_u8; 4];
            backend.read(queue, errors, 0, &mut count).unwrap();
            let count = u32::from_ne_bytes(count);
            assert_eq!(count, 0, "words that kernels on {queue:?} found wrong");
        }
    }
}

fn run(kernels: &Kernels, pool: &MemoryPool<OpenClBackend>, threads: u64) {
    let shared = Shared {
        kernels,
        pool,
        exchange: Mutex::default(),
        next_seed: AtomicU32::new(1),
    };
    let rounds = from_environment("BINPOOL_STRESS_ROUNDS", 150);
    let seed = from_environment("BINPOOL_STRESS_SEED", 0);
    thread::scope(|scope| {
        for thread in 0..threads {
            let mut worker = Worker::new(&shared, seed.wrapping_mul(1000).wrapping_add(thread));
            scope.spawn(move || {
                for _ in 0..rounds {
                    worker.step();
                }
                worker.end();
            });
        }
    });
    let mut worker = Worker::new(&shared, seed);
    worker.live = std::mem::take(&mut shared.exchange.lock().unwrap());
    worker.end();
}

/// Random programs over this memory, under every policy, with and without segments.
fn nothing_is_overwritten<A: Allocator<Backend = OpenClBackend>>(
    threads: u64,
    allocator: impl Fn(&OpenClBackend, &ClQueue) -> A,
) {
    let kernels = Kernels::open();
    let backend = &kernels.backend;
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    for policy in ReusePolicy::ALL {
        for segments in [false, true] {
            let allocator = allocator(backend, &queue);
            let pool = PoolOptions::new()
                .reuse(policy)
                .segments(segments)
                .build(allocator, &queue)
                .unwrap();
            run(&kernels, &pool, threads);
            let statistics = pool.statistics();
            println!("{policy:?}, segments: {segments}: {statistics:?}");
            assert_eq!(statistics.active_blocks, 0);
            assert!(statistics.hits > 0, "{statistics:?}");
            let after_a_wait = match policy {
                ReusePolicy::InsertWait => statistics.device_wait_hits,
                ReusePolicy::WaitOnHost => statistics.host_wait_hits,
                _ => continue,
            };
            // What crosses queues is the point. In segments most of it is counted as carved.
            let across = statistics.ended_hits + after_a_wait;
            assert!(across > 0 || segments, "{statistics:?}");
        }
    }
}

/// The number of threads where there are several.
fn threads() -> u64 {
    from_environment("BINPOOL_STRESS_THREADS", 4)
}

fn immediate(backend: &OpenClBackend, _: &ClQueue) -> ImmediateAllocator<OpenClBackend> {
    ImmediateAllocator::new(backend).unwrap()
}

fn svm(backend: &OpenClBackend, _: &ClQueue) -> SvmAllocator<OpenClBackend> {
    SvmAllocator::new(backend, SvmGrain::Coarse).unwrap()
}

#[test]
fn buffers_of_one_thread() {
    nothing_is_overwritten(1, immediate);
}

#[test]
fn buffers_of_several_threads() {
    nothing_is_overwritten(threads(), immediate);
}

#[test]
fn deferred_buffers_of_several_threads() {
    nothing_is_overwritten(threads(), |backend, _| DeferredAllocator::new(backend));
}

#[test]
fn svm_of_one_thread() {
    nothing_is_overwritten(1, svm);
}

#[test]
fn svm_of_several_threads() {
    nothing_is_overwritten(threads(), svm);
}

#[test]
fn svm_that_is_freed_on_a_queue_of_several_threads() {
    nothing_is_overwritten(threads(), |backend, queue| {
        svm(backend, queue).with_queue(queue).unwrap()
    });
}
