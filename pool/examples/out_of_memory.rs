//! A device that is full: what the pool gives back, what the program gives back when it is asked, and what the error says
//! when nothing is left.
//!
//! ```text
//! cargo run -p binpool --example out_of_memory
//! ```

use std::{error::Error, sync::Arc};

use binpool::{Backend, ImmediateAllocator, MemoryPool, PoolError, QueueOrder, Verdict, WeakPool};
use binpool_mock::MockDevice;
use parking_lot::Mutex;

const MIB: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let device = MockDevice::builder()
        .capacity_bytes(64 * MIB as u64)
        .build();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder)?;
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;

    // Free memory of the pool is no hook's business: it goes back by itself, where another size is needed.
    drop(pool.allocate(40 * MIB)?);
    let weights = pool.allocate(48 * MIB)?;
    assert_eq!(pool.managed_bytes(), 48 * MIB as u64);

    // Results that the program could compute again.
    let cache = Arc::new(Mutex::new(vec![pool.allocate(12 * MIB)?]));

    // The pool keeps its hooks. A hook that kept the pool, or blocks of it, would keep both forever.
    let (cached, weak): (_, WeakPool<_>) = (Arc::downgrade(&cache), pool.downgrade());
    pool.add_reclaim_hook(move |shortage| {
        let Some(cached) = cached.upgrade() else {
            return false;
        };
        // Dropped after the lock, since a block that goes back calls the pool.
        let dropped = std::mem::take(&mut *cached.lock()).len();
        let active = weak.upgrade().map_or(0, |pool| pool.active_bytes());
        println!(
            "hook: {} bytes are missing; {dropped} cached blocks dropped, {active} bytes are left in use",
            shortage.bytes
        );
        dropped > 0
    });
    let activations = pool.allocate(14 * MIB)?;
    println!("14 MiB, because the hook dropped the cache");
    assert!(cache.lock().is_empty());

    // Now the hook has nothing left to drop.
    let Err(PoolError::OutOfMemory(report)) = pool.allocate(8 * MIB) else {
        return Err("8 MiB more than there are".into());
    };
    println!("{report}");
    assert_eq!(report.verdict, Verdict::DeviceFull);
    assert_eq!(report.active_bytes, 62 * MIB as u64);
    assert!(pool.would_fit(2 * MIB) && !pool.would_fit(8 * MIB));

    drop((weights, activations, pool, queue));
    assert!(device.leaks().is_empty(), "{}", device.leaks());
    Ok(())
}

#[test]
fn the_example_runs() {
    main().unwrap();
}
