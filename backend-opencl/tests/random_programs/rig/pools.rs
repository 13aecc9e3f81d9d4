//! Pools over any allocator.

use binpool::{
    DeferredAllocator, ImmediateAllocator, MemoryPool, PoolOptions, ReusePolicy, ScrubPolicy,
    SvmAllocator, SvmGrain,
};
use binpool_allocators::Backend;
use binpool_conformance::Random;
use binpool_opencl::{ClQueue, OpenClBackend};

/// A pool of a program, and what is to be known of it.
pub(crate) struct AnyPool {
    pub(crate) pool: MemoryPool<OpenClBackend>,
    pub(crate) is_svm: bool,
    /// Set if an allocation may wait on the host for commands.
    pub(crate) waits: bool,
    pub(crate) description: String,
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
        0 | 1 => options.build(ImmediateAllocator::new(backend).unwrap(), queue),
        2 => options.build(DeferredAllocator::new(backend), queue),
        3 => options.build(svm(), queue),
        _ => options.build(svm().with_queue(queue).unwrap(), queue),
    };
    AnyPool {
        pool: pool.expect("a pool can be made"),
        is_svm,
        waits: policy == ReusePolicy::WaitOnHost,
        description: format!("kind {kind}, {policy:?}, {scrub:?}, segments: {segments}"),
    }
}
