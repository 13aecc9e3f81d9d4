//! Memory that was dropped is the system's again, whatever was done with it: with a block of hundreds of MiB, the process shows it.

use std::{
    env,
    fmt::Arguments,
    process::Command,
    slice::from_ref,
    thread,
    time::{Duration, Instant},
};

use binpool::{MemoryPool, PoolOptions};
use binpool_allocators::{
    Allocator, AsMemory, Backend, DeferredAllocator, Event, ImmediateAllocator, MemoryFlags,
    Outcome, Queue, SvmAllocator, SvmGrain,
};
use binpool_opencl::{ClEvent, ClMemory, OpenClBackend};

use crate::{alone, common::Bench, resident_bytes};

const BYTES: usize = 192 << 20;
/// Less than a block, and more than all else.
const NOISE: usize = 64 << 20;

/// The last that a program does with a block.
#[derive(Clone, Copy, Debug)]
enum LastUse {
    Nothing,
    Fill,
    Write,
    Read,
    /// From the block to other memory, which lives on.
    Copy,
}

const USES: [LastUse; 5] = [
    LastUse::Nothing,
    LastUse::Fill,
    LastUse::Write,
    LastUse::Read,
    LastUse::Copy,
];

/// What the program sees of the end of that.
#[derive(Clone, Copy, Debug)]
enum Seen {
    Awaited,
    /// The block is dropped first.
    Finished,
    /// The program looks at another command only.
    Not,
}

const SEEN: [Seen; 3] = [Seen::Awaited, Seen::Finished, Seen::Not];

struct Memory {
    bench: Bench,
    others: ClMemory,
    /// The least memory of the process that a block was not part of.
    before: usize,
    host: Vec<u8>,
}

impl Memory {
    fn new() -> Self {
        let bench = Bench::new();
        Self {
            others: bench.filled(4096, 0),
            before: resident_bytes(),
            host: vec![1; 4096],
            bench,
        }
    }

    fn use_by(&mut self, block: &impl AsMemory<OpenClBackend>, last: LastUse) -> Option<ClEvent> {
        let Bench { backend, queue } = &self.bench;
        // All of the block is there.
        let filled = backend.enqueue_fill(queue, block, .., &[1_u8]).unwrap();
        filled.wait().unwrap();
        match last {
            LastUse::Nothing => None,
            LastUse::Fill => Some(backend.enqueue_fill(queue, block, .., &[2_u8]).unwrap()),
            LastUse::Write => {
                backend.write(queue, block, 0, &self.host).unwrap();
                None
            }
            LastUse::Read => {
                backend.read(queue, block, 0, &mut self.host).unwrap();
                None
            }
            LastUse::Copy => {
                let copied = backend.enqueue_copy(queue, block, ..4096, &self.others, 0);
                Some(copied.unwrap())
            }
        }
    }

    /// Uses what `allocate` returns in all ways, and checks that `give_back` gives it back.
    fn check<B: AsMemory<OpenClBackend>>(
        &mut self,
        name: &str,
        allocate: impl Fn() -> B,
        give_back: impl Fn(B),
    ) {
        for last in USES {
            for seen in SEEN {
                let block = allocate();
                let event = self.use_by(&block, last);
                // The runtime may have released memory of an earlier test only now: the block, all of which is there, tells how much
                // is not the block's.
                self.before = self.before.min(resident_bytes().saturating_sub(BYTES));
                match (seen, event) {
                    (Seen::Awaited, Some(event)) => event.wait().unwrap(),
                    (_, event) => drop(event),
                }
                give_back(block);
                if matches!(seen, Seen::Finished) {
                    self.bench.queue.finish().unwrap();
                }
                self.has_come_back(format_args!("{name}, {last:?}, {seen:?}"));
            }
        }
    }

    /// Checks that the process is as small as before, at the latest when the runtime has done what was enqueued.
    fn has_come_back(&self, case: Arguments<'_>) {
        let latest = Instant::now() + Duration::from_secs(60);
        while resident_bytes() > self.before + NOISE {
            let stay = resident_bytes().saturating_sub(self.before) >> 20;
            assert!(Instant::now() < latest, "{case}: {stay} MiB stay");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn pools<A: Allocator<Backend = OpenClBackend>>(
    name: &str,
    allocator: impl Fn(&OpenClBackend) -> A,
) {
    let _alone = alone();
    let mut memory = Memory::new();
    let (backend, queue) = (memory.bench.backend.clone(), memory.bench.queue.clone());
    for segments in [true, false] {
        let pool = PoolOptions::new().segments(segments);
        let pool: MemoryPool<OpenClBackend> = pool.build(allocator(&backend), &queue).unwrap();
        memory.check(
            &format!("{name}, segments: {segments}"),
            || pool.allocate(BYTES).unwrap(),
            |block| {
                drop(block);
                assert!(pool.free_held() >= BYTES as u64, "{name}");
                assert_eq!(pool.managed_bytes(), 0, "{name}");
            },
        );
    }
}

#[test]
fn memory_of_a_pool_comes_back() {
    pools("pool", |backend| ImmediateAllocator::new(backend).unwrap());
}

#[test]
fn shared_virtual_memory_of_a_pool_comes_back() {
    pools("pool of SVM", |backend| {
        SvmAllocator::new(backend, SvmGrain::Coarse).unwrap()
    });
}

#[test]
fn memory_of_an_allocator_comes_back() {
    let _alone = alone();
    let mut memory = Memory::new();
    let backend = memory.bench.backend.clone();
    let immediate = ImmediateAllocator::new(&backend).unwrap();
    let deferred = DeferredAllocator::new(&backend);
    memory.check("immediate", || immediate.allocate(BYTES).unwrap(), drop);
    memory.check("deferred", || deferred.allocate(BYTES).unwrap(), drop);
}

/// The block of the child below.
const LARGE: usize = 1 << 30;
const CHILD: &str = "BINPOOL_TEST_LITTLE_ROOM";

/// In a process that has room for one of the two blocks. The second is a little larger.
#[test]
fn a_block_can_be_allocated_in_the_place_of_one_that_was_dropped() {
    if !Bench::new().is_intel() {
        // `PoCL` ends the process where it has no memory.
        return;
    }
    if let Ok(case) = env::var(CHILD) {
        return in_the_place_of_one_that_was_dropped(&case);
    }
    for case in ["pool", "bins", "immediate", "deferred"] {
        for used in ["", "filled"] {
            let test = "comes_back::a_block_can_be_allocated_in_the_place_of_one_that_was_dropped";
            let mut child = Command::new(env::current_exe().unwrap());
            let child = child.args([test, "--exact", "--nocapture"]);
            let child = child.env(CHILD, format!("{case} {used}")).output().unwrap();
            let said = String::from_utf8_lossy(&child.stderr);
            assert!(child.status.success(), "{case}, {used}: {said}");
        }
    }
}

fn in_the_place_of_one_that_was_dropped(case: &str) {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let immediate = ImmediateAllocator::new(backend).unwrap();
    // All threads of the runtime are there.
    bench.queue_is_alive();
    drop(immediate.allocate(4096).unwrap());
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let size: usize = size.unwrap().trim_end_matches("kB").trim().parse().unwrap();
    let room = size * 1024 + LARGE + LARGE / 2;
    let limited = Command::new("prlimit")
        .args([
            format!("--pid={}", std::process::id()),
            format!("--as={room}"),
        ])
        .status();
    assert!(limited.unwrap().success());

    let is_filled = case.ends_with("filled");
    let use_it = |block: &dyn AsMemory<OpenClBackend>| {
        if is_filled {
            let filled = backend.enqueue_fill(queue, block, 0..4096, &[1_u8]);
            filled.unwrap().wait().unwrap();
        }
    };
    let larger = LARGE + LARGE / 8;
    let twice = |allocate: &dyn Fn(usize) -> Box<dyn AsMemory<OpenClBackend>>| {
        for bytes in [LARGE, larger, LARGE, larger] {
            use_it(&*allocate(bytes));
        }
    };
    let pooled = |segments| {
        let pool = PoolOptions::new().segments(segments);
        let pool = pool.build(immediate.clone(), queue).unwrap();
        twice(&|bytes| Box::new(pool.allocate(bytes).unwrap()));
    };
    match case.split(' ').next() {
        Some("pool") => pooled(true),
        Some("bins") => pooled(false),
        Some("immediate") => twice(&|bytes| Box::new(immediate.allocate(bytes).unwrap())),
        _ => {
            let deferred = DeferredAllocator::new(backend);
            twice(&|bytes| Box::new(deferred.allocate(bytes).unwrap()));
        }
    }
}

/// A command is pending when the last block that it uses is dropped, and only the logs keep its event.
#[test]
fn memory_of_pending_commands_comes_back_when_they_have_ended() {
    let _alone = alone();
    let memory = Memory::new();
    let (bench, others) = (&memory.bench, &memory.others);
    let block = bench
        .backend
        .create_buffer(BYTES, MemoryFlags::empty())
        .unwrap();
    bench.fill(&bench.queue, &block, 1, &[]).wait().unwrap();
    let gate = bench.gate();
    let copied = bench.backend.enqueue_copy(
        bench.queue.after(from_ref(&gate)),
        &block,
        ..4096,
        others,
        0,
    );
    drop((copied.unwrap(), block));
    bench
        .backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    bench.queue.flush().unwrap();
    memory.has_come_back(format_args!("pending"));
}
