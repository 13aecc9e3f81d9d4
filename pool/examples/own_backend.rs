//! A backend in whole: a device whose memory is the host's, and whose every command is a thread. Slow, and right: it passes
//! the conformance suite. The chapter `binpool::guide::backends` builds it step by step.
//!
//! ```text
//! cargo run -p binpool --example own_backend
//! cargo test -p binpool --example own_backend    # the suite, a test for each promise
//! ```

use std::{error::Error as StdError, sync::Arc, thread};

use binpool::{
    Backend, Error, EventStatus, ImmediateAllocator, MemoryFlags, MemoryPool, Outcome, QueueOrder,
    Region, Result,
};
use binpool_allocators::{
    Align, DeviceLimits, FailureOrder, Work,
    runtime::{Core, Objects, Part, Runtime},
};
use parking_lot::{Condvar, Mutex};

/// Clones are the same device.
#[derive(Clone, Debug)]
struct HostBackend {
    core: Arc<Core<Self>>,
    free: Arc<Mutex<usize>>,
}

/// Memory. Threads keep it on their own; most runtimes rely on the core for that.
type Block = Arc<Memory>;

struct Memory {
    bytes: Mutex<Vec<u8>>,
    /// The bytes of the device that are not allocated.
    free: Arc<Mutex<usize>>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        *self.free.lock() += self.bytes.get_mut().len();
    }
}

/// In order: a command starts when the last one has ended, with or without an error.
type Stream = Mutex<Arc<Mark>>;

/// How far a command has come, for callers that ask or wait.
struct Mark {
    status: Mutex<EventStatus>,
    changed: Condvar,
}

impl Mark {
    fn new(status: EventStatus) -> Arc<Self> {
        Arc::new(Self {
            status: Mutex::new(status),
            changed: Condvar::new(),
        })
    }

    fn set(&self, status: EventStatus) {
        *self.status.lock() = status;
        self.changed.notify_all();
    }

    fn end(&self) -> EventStatus {
        let mut status = self.status.lock();
        self.changed
            .wait_while(&mut status, |status| *status == EventStatus::Pending);
        *status
    }
}

/// A part of a block that the thread of a command owns.
struct Bytes(Block, Region);

impl Bytes {
    fn of(part: &Part<'_, HostBackend>) -> Self {
        Self(Arc::clone(part.block()), part.region())
    }

    fn with<T>(&self, action: impl FnOnce(&mut [u8]) -> T) -> T {
        action(&mut self.0.bytes.lock()[self.1.offset..][..self.1.bytes])
    }
}

/// The bytes of the device: 16 MiB.
const CAPACITY: usize = 16 << 20;

impl HostBackend {
    fn new() -> Self {
        let alignment = Align::new(64).unwrap_or(Align::ONE);
        // Blocks have at most half of the capacity. In-order queues only, and no shared virtual memory, unless said otherwise.
        let mut limits =
            DeviceLimits::new("host threads", CAPACITY as u64, CAPACITY / 2, alignment);
        limits.failure_order = FailureOrder::Kept; // A thread that fails has waited for all before it.
        Self {
            core: Arc::new(Core::new(limits)),
            free: Arc::new(Mutex::new(CAPACITY)),
        }
    }
}

impl Objects for HostBackend {
    type Block = Block;
    type Stream = Stream;
    type Mark = Arc<Mark>;

    fn status(mark: &Arc<Mark>) -> Result<EventStatus> {
        Ok(*mark.status.lock())
    }

    fn wait(mark: &Arc<Mark>) -> Result<()> {
        if mark.end() == EventStatus::Failed {
            let why = "something that the command waited for has failed";
            return Err(Error::backend("command", None, why));
        }
        Ok(())
    }

    unsafe fn resolve(mark: &Arc<Mark>, outcome: Outcome) -> Result<()> {
        mark.set(match outcome {
            Outcome::Complete => EventStatus::Complete,
            Outcome::Failed => EventStatus::Failed,
        });
        Ok(())
    }
}

impl Runtime for HostBackend {
    fn core(&self) -> &Arc<Core<Self>> {
        &self.core
    }

    fn allocate(&self, bytes: usize, _flags: MemoryFlags) -> Result<Block> {
        let mut free = self.free.lock();
        let left = free.checked_sub(bytes);
        *free = left.ok_or_else(|| {
            let why = format!("{free} bytes are free"); // Usually the error of the runtime.
            Error::device_out_of_memory(bytes, why)
        })?;
        Ok(Arc::new(Memory {
            bytes: Mutex::new(vec![0; bytes]),
            free: Arc::clone(&self.free),
        }))
    }

    fn create_stream(&self, _order: QueueOrder) -> Result<Stream> {
        Ok(Mutex::new(Mark::new(EventStatus::Complete)))
    }

    unsafe fn submit(
        &self,
        on: &Stream,
        after: &[Arc<Mark>],
        work: Work<'_, &Part<'_, Self>>,
    ) -> Result<Arc<Mark>> {
        let action: Box<dyn FnOnce() + Send> = match work {
            Work::Marker | Work::Barrier => Box::new(|| ()),
            Work::Fill(to, pattern) => {
                let (to, pattern) = (Bytes::of(to), pattern.to_vec());
                Box::new(move || {
                    to.with(|to| {
                        let parts = to.chunks_exact_mut(pattern.len());
                        parts.for_each(|part| part.copy_from_slice(&pattern));
                    });
                })
            }
            Work::Write(to, data) => {
                let to = Bytes::of(to);
                Box::new(move || to.with(|to| to.copy_from_slice(&data)))
            }
            Work::Read(from, sink) => {
                let from = Bytes::of(from);
                Box::new(move || {
                    let bytes = from.with(|from| from.to_vec());
                    sink.put(move || bytes);
                })
            }
            Work::Copy(from, to) => {
                let (from, to) = (Bytes::of(from), Bytes::of(to));
                Box::new(move || {
                    // Both may be the same block, hence one lock after the other.
                    let bytes = from.with(|from| from.to_vec());
                    to.with(|to| to.copy_from_slice(&bytes));
                })
            }
            _ => return Err(Error::unsupported("this command")),
        };
        let (mark, after) = (Mark::new(EventStatus::Pending), after.to_vec());
        let mut last = on.lock();
        let (own, before) = (Arc::clone(&mark), Arc::clone(&last));
        let command = move || {
            before.end();
            // What waits for something that fails does not run, and fails.
            let ends: Vec<_> = after.iter().map(|mark| mark.end()).collect();
            if ends.contains(&EventStatus::Failed) {
                drop(action); // Memory goes before the end shows.
                return own.set(EventStatus::Failed);
            }
            action();
            own.set(EventStatus::Complete);
        };
        let spawned = thread::Builder::new().spawn(command);
        spawned.map_err(|error| Error::backend("spawn", error.raw_os_error(), error))?;
        *last = Arc::clone(&mark);
        Ok(mark)
    }

    fn create_user_mark(&self) -> Result<Arc<Mark>> {
        Ok(Mark::new(EventStatus::Pending))
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
    use binpool_conformance::Fixture;

    use super::HostBackend;

    struct Host;

    impl Fixture for Host {
        type Backend = HostBackend;

        fn backend(&self) -> HostBackend {
            HostBackend::new()
        }

        fn enforced_capacity(&self) -> Option<u64> {
            Some(super::CAPACITY as u64)
        }
    }

    binpool_conformance::backend_conformance!(Host);
    binpool_conformance::pending_conformance!(Host);
    binpool_conformance::failure_conformance!(Host);
}
