//! A pool over a device, a block from it, and the same memory again.
//!
//! ```text
//! cargo run -p binpool --example quick_start
//! ```

use std::error::Error;

// On a real device it is `binpool_opencl::OpenClBackend::open(&"gpu".parse()?)?`; nothing below would change.
use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
use binpool_mock::MockDevice;

fn main() -> Result<(), Box<dyn Error>> {
    let backend = MockDevice::new().backend();
    let queue = backend.create_queue(QueueOrder::InOrder)?;
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;

    let block = pool.allocate(4096)?;
    block.write(&queue, 0, &[7_u8; 4096])?;
    let first = block.memory_id();
    drop(block); // Held by the pool, not freed.

    let again = pool.allocate(4000)?; // No call to the device.
    println!(
        "asked twice: memory {first:?}, then {:?}",
        again.memory_id()
    );
    println!("in bytes: {} of {}", again.size(), again.class_size());
    assert_eq!(again.memory_id(), first);
    assert_eq!((pool.statistics().misses, pool.statistics().hits), (1, 1));
    Ok(())
}

#[test]
fn the_example_runs() {
    main().unwrap();
}
