//! The pools under a program: one for each context and kind of memory.

use std::{collections::HashMap, sync::Arc};

use binpool::{
    DeferredAllocator, Error, MemoryPool, PoolError, PoolOptions, PooledBuffer, QueueOrder,
};
use binpool_allocators::runtime::{CoreQueue, adopt_queue};
use parking_lot::Mutex;

use super::runtime::{ContextRuntime, Kind, Period, Stream};
use crate::{
    opencl::{about::is_in_order, objects::Handle},
    pool_figures::Counted,
    recording::report_once,
    whole_blocks::{Bound, whole_blocks},
};

/// A pool keeps whatever is freed up to this size, and beyond that up to a quarter more than was in use at the most.
const KEPT_ANYWAY: u64 = 64 << 20;
const PERCENT_OF_PEAK: u64 = 125;

/// Memory of one kind for one context.
#[derive(Debug)]
pub(crate) struct ContextPool {
    runtime: ContextRuntime,
    pool: MemoryPool<ContextRuntime>,
    /// No queue.
    none: CoreQueue<ContextRuntime>,
    queues: Mutex<Vec<CoreQueue<ContextRuntime>>>,
    bound: Mutex<Bound>,
}

/// A block that the program has.
#[derive(Debug)]
pub(crate) struct PooledBlock {
    pool: Arc<ContextPool>,
    block: Mutex<Option<PooledBuffer<ContextRuntime>>>,
    handle: Handle,
    /// The queue whose earlier commands may still use the block, and since when they are there.
    allocated_for: Option<(Arc<Stream>, Arc<Period>)>,
    _in_use: Counted,
}

/// A queue of the program.
#[derive(Clone, Debug)]
pub(crate) struct ProgramQueue {
    pub(crate) stream: Arc<Stream>,
    pub(crate) is_in_order: bool,
    pub(crate) context: Handle,
}

impl ProgramQueue {
    pub(crate) fn new(queue: Handle, context: Handle) -> Self {
        Self {
            stream: Stream::of(Some(queue)),
            is_in_order: is_in_order(queue),
            context,
        }
    }
}

impl ContextPool {
    pub(crate) fn new(context: Handle, kind: Kind) -> Result<Arc<Self>, PoolError> {
        let runtime = ContextRuntime::new(context, kind);
        let none = core_queue(&runtime, &Stream::of(None), true);
        let pool =
            whole_blocks(PoolOptions::new(), 1).build(DeferredAllocator::new(&runtime), &none)?;
        Ok(Arc::new(Self {
            runtime,
            pool,
            none,
            queues: Mutex::default(),
            bound: Mutex::new(Bound::new(KEPT_ANYWAY, PERCENT_OF_PEAK)),
        }))
    }

    /// Allocates a block of exactly `bytes` bytes: for `queue`, whose earlier commands may still use it, or for any use at once.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub(crate) fn allocate(
        self: &Arc<Self>,
        queue: Option<&ProgramQueue>,
        bytes: usize,
    ) -> Result<PooledBlock, PoolError> {
        let queue = queue.filter(|queue| queue.is_in_order);
        let core_queue = match queue {
            Some(queue) => self.queue(queue),
            None => self.none.clone(),
        };
        let block = self.pool.allocate_on(&core_queue, bytes)?;
        self.keep_within_bounds();
        let memory = block
            .memory_on(&core_queue)
            .and_then(|memory| memory.block());
        let Some(memory) = memory.filter(|memory| memory.bytes() == bytes) else {
            return Err(Error::unsupported("a block of another size").into());
        };
        let handle = memory.handle();
        Ok(PooledBlock {
            pool: Arc::clone(self),
            block: Mutex::new(Some(block)),
            handle,
            allocated_for: queue.map(|queue| (Arc::clone(&queue.stream), queue.stream.period())),
            _in_use: Counted::in_use(bytes),
        })
    }

    /// Releases what exceeds the bound, once the pool has grown.
    fn keep_within_bounds(&self) {
        if !self.runtime.has_grown() {
            return;
        }
        let most = self.bound.lock().most(self.pool.active_bytes());
        if self.pool.managed_bytes() > most {
            self.pool.trim_to(most);
        }
    }

    /// Releases all that is free.
    pub(crate) fn release_kept(&self) -> u64 {
        self.pool.free_held()
    }

    /// Keeps nothing any more: what is free is released, and what the program still has, when it is released.
    pub(crate) fn stop_keeping(&self) {
        self.pool.stop_holding();
    }

    /// Forgets a queue that was [closed](Stream::close).
    pub(crate) fn forget(&self, stream: &Arc<Stream>) {
        let mut queues = self.queues.lock();
        let known = queues
            .iter()
            .position(|queue| Arc::ptr_eq(queue.stream(), stream));
        let Some(queue) = known.map(|at| queues.swap_remove(at)) else {
            return;
        };
        drop(queues);
        self.pool.retire_queue(&queue);
    }

    fn queue(&self, queue: &ProgramQueue) -> CoreQueue<ContextRuntime> {
        let mut queues = self.queues.lock();
        let known = queues
            .iter()
            .find(|known| Arc::ptr_eq(known.stream(), &queue.stream));
        if let Some(known) = known {
            return known.clone();
        }
        let made = core_queue(&self.runtime, &queue.stream, queue.is_in_order);
        queues.push(made.clone());
        made
    }
}

fn core_queue(
    runtime: &ContextRuntime,
    stream: &Arc<Stream>,
    is_in_order: bool,
) -> CoreQueue<ContextRuntime> {
    let order = if is_in_order {
        QueueOrder::InOrder
    } else {
        QueueOrder::OutOfOrder
    };
    // SAFETY: commands are sent to the stream's queue until it is closed, which happens before the program's last reference to it ends.
    unsafe {
        adopt_queue(
            runtime,
            |known| Arc::ptr_eq(known, stream),
            || (Arc::clone(stream), order),
        )
    }
}

impl PooledBlock {
    /// The driver's buffer, or its address.
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Notes that commands on `queue` use the block from now on, and puts them after the block's former users.
    pub(crate) fn use_on(&self, queue: &ProgramQueue, is_first_queue: bool) {
        // The driver refuses a command on memory of another context. The program waits for what uses shared virtual memory before it frees that.
        if !self.pool.runtime.is_of(queue.context) || self.pool.runtime.is_svm() {
            return;
        }
        let own = self.allocated_for.as_ref();
        if own.is_some_and(|(stream, _)| Arc::ptr_eq(stream, &queue.stream)) {
            return;
        }
        let mut guard = self.block.lock();
        let Some(block) = guard.as_mut() else {
            return;
        };
        let core_queue = self.pool.queue(queue);
        let noted = if let Some((stream, period)) = own {
            let followed = queue.stream.follow(stream, period);
            followed.and_then(|()| block.record_use(&core_queue))
        } else if is_first_queue && queue.is_in_order {
            block.bind_to_queue(&core_queue)
        } else {
            block.record_use(&core_queue)
        };
        if let Err(error) = noted {
            report_once(format_args!("the order of a queue: {error}"));
        }
    }

    /// Leaves the driver's object to the program: the pool does not get it back.
    pub(crate) fn give_away(&self) {
        let Some(block) = self.block.lock().take() else {
            return;
        };
        if let Some(memory) = block.detach()
            && let Some(memory) = memory.block()
        {
            memory.give_away();
        }
    }
}

/// The pools of a context.
#[derive(Debug, Default)]
pub(crate) struct ContextPools(HashMap<Kind, Arc<ContextPool>>);

impl ContextPools {
    /// Returns the pool of a kind of memory, which is made for its first request.
    pub(crate) fn of_kind(&mut self, context: Handle, kind: Kind) -> Option<Arc<ContextPool>> {
        if let Some(pool) = self.0.get(&kind) {
            return Some(Arc::clone(pool));
        }
        // A pool takes much of a stack until it is in its place, and the threads of programs may have as little as 16 KiB.
        let made = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new();
            let made = thread.spawn_scoped(scope, || ContextPool::new(context, kind));
            made.ok().and_then(|made| made.join().ok())
        });
        match made.unwrap_or_else(|| ContextPool::new(context, kind)) {
            Ok(pool) => {
                self.0.insert(kind, Arc::clone(&pool));
                Some(pool)
            }
            Err(error) => {
                report_once(error);
                None
            }
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<ContextPool>> {
        self.0.values().cloned().collect()
    }
}
