//! What the pool says through `tracing`.

use binpool::{
    Backend, DeferredAllocator, ImmediateAllocator, MemoryPool, PoolOptions, QueueOrder,
    ScrubPolicy,
};
use binpool_mock::{CallKind, Fault, MockDevice, Persistence};
use tracing_subscriber::filter::LevelFilter;

use crate::common::log::logged;

#[test]
fn a_deferred_allocator_is_warned_of() {
    let warn = LevelFilter::WARN;
    let backend = MockDevice::new().backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let text = logged(warn, || {
        MemoryPool::new(DeferredAllocator::new(&backend), &queue).unwrap();
    });
    assert!(
        text.contains("WARN") && text.contains("ImmediateAllocator"),
        "{text:?}"
    );
    let text = logged(warn, || {
        MemoryPool::new(ImmediateAllocator::new(&backend).unwrap(), &queue).unwrap();
    });
    assert_eq!(text, "");
}

#[test]
fn running_out_is_warned_of_and_misses_are_told() {
    let backend = MockDevice::builder().capacity_bytes(1024).build().backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    let pool = PoolOptions::new()
        .segments(false)
        .build(allocator, &queue)
        .unwrap();
    let text = logged(LevelFilter::DEBUG, || {
        let _full = pool.allocate(1024).unwrap();
        assert!(pool.allocate(1024).is_err());
    });
    assert!(
        text.contains("miss")
            && text.contains("WARN reclaim{bytes=1024}: binpool::flow::climb: out of memory"),
        "{text:?}"
    );
}

#[test]
fn a_block_that_is_not_given_back_cleanly_is_told_of() {
    let device = MockDevice::new();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    let options = PoolOptions::new().scrub(ScrubPolicy::OnFree);
    let pool = options.build(allocator, &queue).unwrap();
    let block = pool.allocate(1024).unwrap();
    device.fail_nth(CallKind::Fill, 1, Fault::Backend(-1), Persistence::Once);
    let error = LevelFilter::ERROR;
    let text = logged(error, || drop(block));
    assert!(text.contains("could not be released cleanly"), "{text:?}");
}

#[test]
fn what_goes_back_by_itself_is_told_of() {
    let backend = MockDevice::new().backend();
    let [queue, other] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend).unwrap(), &queue).unwrap();
    drop(pool.allocate(1024).unwrap());
    drop(pool.allocate_on(&other, 1024).unwrap());
    let debug = LevelFilter::DEBUG;
    for (program, is_told) in [
        (&(|| pool.retire_queue(&queue)) as &dyn Fn(), None),
        (&|| pool.retire_queue(&other), Some("released idle queues")),
        (&|| assert_eq!(pool.sweep(), 0), None),
        (&|| assert!(pool.sweep() > 0), Some("released idle memory")),
        (&|| assert_eq!(pool.sweep(), 0), None),
    ] {
        let text = logged(debug, program);
        match is_told {
            Some(words) => assert!(text.contains(words), "{text:?}"),
            None => assert_eq!(text, ""),
        }
    }
}
