//! Two queues that share a pool: one uploads, the other computes.
//!
//! ```text
//! cargo run -p binpool --example two_queues
//! ```

use std::error::Error;

use binpool::{
    Backend, ImmediateAllocator, MemoryPool, PoolError, PoolOptions, Queue, QueueOrder, ReusePolicy,
};
use binpool_mock::{Completion, MockBackend, MockDevice, MockQueue};

const BYTES: usize = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    hand_over()?;
    use_on_both()?;
    for policy in ReusePolicy::ALL {
        cross(policy)?;
    }
    Ok(())
}

/// A device on which no command ends before a thread waits for it, so that mistakes show.
fn device() -> Result<(MockDevice, [MockQueue; 2]), binpool::Error> {
    let device = MockDevice::builder().completion(Completion::Manual).build();
    let backend = device.backend();
    let queues = [
        backend.create_queue(QueueOrder::InOrder)?,
        backend.create_queue(QueueOrder::InOrder)?,
    ];
    Ok((device, queues))
}

type Pool = MemoryPool<MockBackend>;

fn pool(device: &MockDevice, home: &MockQueue, policy: ReusePolicy) -> Result<Pool, PoolError> {
    PoolOptions::new()
        .segments(false) // One block is then one piece of the device's memory, so that it is seen who gets it.
        .reuse(policy)
        .build(ImmediateAllocator::new(&device.backend())?, home)
}

/// A block is written on one queue and read on the other: nothing but `order_before` puts the two in order.
fn hand_over() -> Result<(), Box<dyn Error>> {
    let (device, [upload, compute]) = device()?;
    let pool = pool(&device, &upload, ReusePolicy::default())?;
    let block = pool.allocate(BYTES)?; // For the pool's home queue, `upload`.
    block.enqueue_write(&upload, 0, vec![7; BYTES].into())?;
    block.order_before(&compute)?; // `compute` waits, on the device. The host goes on at once.
    let mut bytes = [0_u8; BYTES];
    block.read(&compute, 0, &mut bytes)?;
    assert_eq!(bytes, [7; BYTES]);
    assert!(device.violations().is_empty());
    println!("handed over: read on the other queue what was written on the one");
    Ok(())
}

/// A block that both queues use has no next user before both are done with it.
fn use_on_both() -> Result<(), Box<dyn Error>> {
    let (device, [upload, compute]) = device()?;
    let backend = device.backend();
    let pool = pool(&device, &upload, ReusePolicy::default())?;
    let block = pool.allocate(BYTES)?;
    let filled = block.enqueue_fill(&upload, 0..BYTES, &[1_u8])?;
    // Here the program itself puts the two in order, by the event. The launch tells the pool that the block is used on `compute`. A
    // kernel that finds the memory in another way, such as an address in its data, needs `block.record_use(&compute)`.
    backend.launch(compute.after(&[filled]), "sum", &[&block], &[], |_, _| ())?;
    let first = block.memory_id();
    drop(block);
    assert_eq!(pool.statistics().pending_blocks, 1);
    let early = pool.allocate(BYTES)?;
    assert_ne!(early.memory_id(), first);
    device.run();
    let later = pool.allocate(BYTES)?;
    assert_eq!(later.memory_id(), first);
    println!("used on both: not handed out before the kernel had ended, and then it was");
    assert!(device.violations().is_empty());
    Ok(())
}

/// A block comes back while its command is pending, and the other queue asks.
fn cross(policy: ReusePolicy) -> Result<(), Box<dyn Error>> {
    let (device, [upload, compute]) = device()?;
    let pool = pool(&device, &upload, policy)?;
    let block = pool.allocate(BYTES)?;
    block.enqueue_fill(&upload, 0..BYTES, &[1_u8])?;
    let first = block.memory_id();
    drop(block);

    let block = pool.allocate_on(&compute, BYTES)?;
    let what = match (block.memory_id() == first, device.pending_commands()) {
        (false, _) => "fresh memory",
        (true, 0) => "the same memory, after a wait of the host",
        (true, _) => "the same memory, after a wait on the device",
    };
    println!("{policy:?}: {what}");
    let expected = match policy {
        ReusePolicy::InsertWait => "the same memory, after a wait on the device",
        ReusePolicy::WaitOnHost => "the same memory, after a wait of the host",
        _ => "fresh memory",
    };
    assert_eq!(what, expected);
    // The next user of the memory comes after the fill.
    block.write(&compute, 0, &[2_u8; BYTES])?;
    device.run();
    assert!(device.violations().is_empty());
    Ok(())
}

#[test]
fn the_example_runs() {
    main().unwrap();
}
