//! A device that is full: what the pool gives back, what the program gives back when it is asked, and what the error says
//! when nothing is left.
//!
//! ```text
//! cargo run -p binpool --example out_of_memory
//! ```

use std::{
    error::Error,
    sync::{Arc, Mutex},
};

use binpool::{
    Backend, ImmediateAllocator, MemoryPool, PoolError, PooledBuffer, QueueOrder, Verdict, WeakPool,
};
use binpool_mock::{MockBackend, MockDevice};

type Allocator = ImmediateAllocator<MockBackend>;

const MIB: usize = 1 << 20;

/// Results that an array crate could compute again: a cache of blocks of the pool.
#[derive(Default)]
struct Cache {
    blocks: Mutex<Vec<PooledBuffer<Allocator>>>,
}

impl Cache {
    fn clear(&self) -> usize {
        let blocks = std::mem::take(&mut *self.blocks.lock().unwrap_or_else(|it| it.into_inner()));
        blocks.len()
    }
}

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

    let cache = Arc::new(Cache::default());
    let cached = pool.allocate(12 * MIB)?;
    cache.blocks.lock().map_err(|_| "poisoned")?.push(cached);

    // The pool keeps its hooks, so a hook that kept the pool would keep it for good: it keeps a `WeakPool`.
    let (hooked, weak): (_, WeakPool<Allocator>) = (Arc::clone(&cache), pool.downgrade());
    pool.add_reclaim_hook(move |shortage| {
        let dropped = hooked.clear();
        let active = weak.upgrade().map_or(0, |pool| pool.active_bytes());
        println!(
            "hook: {} bytes are missing; {dropped} cached blocks dropped, {active} bytes are left in use",
            shortage.bytes
        );
    });
    let activations = pool.allocate(14 * MIB)?;
    println!("14 MiB, because the hook dropped the cache");
    assert_eq!(cache.clear(), 0, "the hook has done it");

    // Now the hook has nothing left to drop.
    let Err(PoolError::OutOfMemory(report)) = pool.allocate(8 * MIB) else {
        return Err("8 MiB more than there are".into());
    };
    println!("{report:#}");
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
