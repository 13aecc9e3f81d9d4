//! Pools over any allocator.

use binpool::{
    Allocator, DeferredAllocator, ImmediateAllocator, MemoryPool, PoolError, PoolOptions,
    PoolStatistics, ReusePolicy, ScrubPolicy, SvmAllocator, SvmGrain,
};
use binpool_allocators::Backend;
use binpool_conformance::Random;
use binpool_opencl::{ClQueue, OpenClBackend};

use super::object::Pooled;

pub(crate) trait Pool: Send + Sync {
    fn allocate(&self, queue: Option<&ClQueue>, bytes: usize)
    -> Result<Box<dyn Pooled>, PoolError>;

    fn free_held(&self) -> u64;

    fn trim_to(&self, bytes: u64) -> u64;

    fn retire_queue(&self, queue: &ClQueue);

    fn sweep(&self) -> u64;

    fn statistics(&self) -> PoolStatistics;

    fn managed_bytes(&self) -> u64;
}

impl<A: Allocator<Backend = OpenClBackend> + Send + Sync + 'static> Pool for MemoryPool<A> {
    fn allocate(
        &self,
        queue: Option<&ClQueue>,
        bytes: usize,
    ) -> Result<Box<dyn Pooled>, PoolError> {
        let block = match queue {
            Some(queue) => self.allocate_on(queue, bytes),
            None => Self::allocate(self, bytes),
        };
        Ok(Box::new(block?))
    }

    fn free_held(&self) -> u64 {
        Self::free_held(self)
    }

    fn trim_to(&self, bytes: u64) -> u64 {
        Self::trim_to(self, bytes)
    }

    fn retire_queue(&self, queue: &ClQueue) {
        Self::retire_queue(self, queue);
    }

    fn sweep(&self) -> u64 {
        Self::sweep(self)
    }

    fn statistics(&self) -> PoolStatistics {
        Self::statistics(self)
    }

    fn managed_bytes(&self) -> u64 {
        Self::managed_bytes(self)
    }
}

/// A pool of a program, and what is to be known of it.
pub(crate) struct AnyPool {
    pub(crate) pool: Box<dyn Pool>,
    pub(crate) is_svm: bool,
    /// Set if an allocation may wait on the host for commands.
    pub(crate) waits: bool,
    pub(crate) description: String,
}

fn of<A: Allocator<Backend = OpenClBackend> + Send + Sync + 'static>(
    options: PoolOptions,
    allocator: A,
    queue: &ClQueue,
) -> Box<dyn Pool> {
    Box::new(options.build(allocator, queue).expect("a pool can be made"))
}

/// Any pool that `threads` threads may use.
pub(crate) fn any(backend: &OpenClBackend, queues: &[ClQueue], random: &mut Random) -> AnyPool {
    let limits = backend.limits();
    let policy = ReusePolicy::ALL[random.below(ReusePolicy::ALL.len())];
    let scrub = match random.below(6) {
        0 => ScrubPolicy::OnFree,
        1 => ScrubPolicy::OnHandOut,
        _ => ScrubPolicy::Never,
    };
    let kind = random.below(if limits.svm.any() { 5 } else { 3 });
    let is_svm = kind >= 3;
    let segments = random.below(2) == 0;
    let options = PoolOptions::new()
        .reuse(policy)
        .scrub(scrub)
        .segments(segments);
    // The first queue is in order.
    let queue = &queues[0];
    let grain = if limits.svm.fine && random.below(2) == 0 {
        SvmGrain::Fine
    } else {
        SvmGrain::Coarse
    };
    let svm = || SvmAllocator::new(backend, grain).expect("the device has such memory");
    let pool = match kind {
        0 | 1 => of(options, ImmediateAllocator::new(backend).unwrap(), queue),
        2 => of(options, DeferredAllocator::new(backend), queue),
        3 => of(options, svm(), queue),
        _ => of(options, svm().with_queue(queue).unwrap(), queue),
    };
    AnyPool {
        pool,
        is_svm,
        waits: policy == ReusePolicy::WaitOnHost,
        description: format!("kind {kind}, {policy:?}, {scrub:?}, segments: {segments}"),
    }
}
