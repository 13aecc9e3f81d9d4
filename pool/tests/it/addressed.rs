//! `malloc` and `free`: a wrong call is an error, and changes nothing.

use std::{collections::HashSet, sync::Mutex, thread};

use binpool::{
    AddressedPool, Backend, Error, ImmediateAllocator, InvalidRequest, MemoryPool, PooledBuffer,
    QueueOrder, SvmGrain, VirtualMemoryAllocator,
};
use binpool_mock::{Completion, MockBackend, MockDevice, MockDeviceBuilder, MockQueue};

fn pool_on(builder: MockDeviceBuilder) -> (MockDevice, AddressedPool<MockBackend>) {
    let device = builder.virtual_memory(true).build();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue).unwrap();
    (device, AddressedPool::new(&pool))
}

fn home(memory: &AddressedPool<MockBackend>) -> MockQueue {
    memory.pool().home_queue().clone()
}

fn is_unknown(result: &Result<(), Error>, wanted: u64) -> bool {
    matches!(
        result,
        Err(Error::InvalidRequest(InvalidRequest::UnknownAddress { address })) if *address == wanted
    )
}

#[test]
fn an_address_that_is_not_the_start_of_a_block_is_refused() {
    let (_device, memory) = pool_on(MockDevice::builder());
    let queue = home(&memory);
    let address = memory.allocate_on(&queue, 4096).unwrap();
    for wrong in [address + 256, address - 256, 1, u64::MAX] {
        assert!(is_unknown(&memory.free_on(&queue, wrong), wrong));
        assert!(is_unknown(&memory.record_use(&queue, wrong), wrong));
        assert!(!memory.contains(wrong) && memory.take(wrong).is_none());
    }
    assert_eq!(memory.pool().active_blocks(), 1);
    memory.free_on(&queue, address).unwrap();
    assert!(is_unknown(&memory.free_on(&queue, address), address));
    assert_eq!(memory.pool().active_blocks(), 0);
}

#[test]
fn nothing_has_address_0_and_is_freed_as_often_as_one_likes() {
    let (_device, memory) = pool_on(MockDevice::builder());
    let queue = home(&memory);
    assert_eq!(memory.allocate_on(&queue, 0).unwrap(), 0);
    for _ in 0..2 {
        memory.record_use(&queue, 0).unwrap();
        memory.free_on(&queue, 0).unwrap();
    }
}

#[test]
fn a_queue_of_another_device_is_refused_and_the_block_stays() {
    let (_device, memory) = pool_on(MockDevice::builder());
    let (_other, theirs) = pool_on(MockDevice::builder());
    let address = memory.allocate_on(&home(&memory), 4096).unwrap();
    assert!(memory.allocate_on(&home(&theirs), 4096).is_err());
    assert!(memory.record_use(&home(&theirs), address).is_err());
    assert!(memory.free_on(&home(&theirs), address).is_err());
    assert_eq!(memory.pool().active_blocks(), 1);
    memory.free_on(&home(&memory), address).unwrap();
}

#[test]
fn a_block_serves_another_queue_once_the_queues_that_were_named_are_done() {
    for is_named_by_free in [false, true] {
        let builder = MockDevice::builder().completion(Completion::Manual);
        let (device, memory) = pool_on(builder);
        let queue = home(&memory);
        let other = memory
            .pool()
            .backend()
            .create_queue(QueueOrder::InOrder)
            .unwrap();
        let address = memory.allocate_on(&queue, 1 << 20).unwrap();
        device.backend().enqueue_marker(&other).unwrap(); // A kernel that has the address.
        if is_named_by_free {
            memory.free_on(&other, address).unwrap();
        } else {
            memory.record_use(&other, address).unwrap();
            memory.free_on(&queue, address).unwrap();
        }
        let second = memory.allocate_on(&queue, 1 << 20).unwrap();
        assert_ne!(second, address);
        device.run();
        memory.free_on(&queue, second).unwrap();
        let again = [(); 2].map(|()| memory.allocate_on(&queue, 1 << 20).unwrap());
        assert!(again.contains(&address), "{again:x?}, {address:x}");
    }
}

#[test]
fn blocks_that_are_left_are_freed_at_the_end() {
    let (_device, memory) = pool_on(MockDevice::builder());
    let queue = home(&memory);
    let kept = memory.allocate_on(&queue, 4096).unwrap();
    memory.allocate_on(&queue, 8192).unwrap();
    let block = memory.take(kept).unwrap();
    let pool = memory.pool().clone();
    drop(memory);
    assert_eq!(pool.active_blocks(), 1);
    drop(block);
    assert_eq!(pool.active_blocks(), 0);
}

#[test]
fn memory_without_addresses_is_refused_and_goes_back() {
    let backend = MockDevice::new().backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let buffers = MemoryPool::new(ImmediateAllocator::new(&backend).unwrap(), &queue).unwrap();
    let memory = AddressedPool::new(&buffers);
    let refused = memory.allocate_on(&queue, 4096).unwrap_err().to_string();
    assert!(
        refused.contains("shared and virtual memory have addresses"),
        "{refused}"
    );
    assert_eq!(buffers.active_blocks(), 0);

    let shared = MemoryPool::svm(&backend, SvmGrain::Coarse, &queue).unwrap();
    let memory = AddressedPool::new(&shared);
    let address = memory.allocate_on(&queue, 4096).unwrap();
    let block = memory.take(address).unwrap();
    assert_eq!(block.address().unwrap().addr().get() as u64, address);
}

#[test]
fn no_two_threads_have_one_address() {
    let (_device, memory) = pool_on(MockDevice::builder());
    let live = Mutex::new(HashSet::new());
    thread::scope(|scope| {
        for thread in 1..5_usize {
            let (memory, live, queue) = (&memory, &live, home(&memory));
            scope.spawn(move || {
                for round in 0..300 {
                    let address = memory
                        .allocate_on(&queue, 256 * (thread + round % 7))
                        .unwrap();
                    assert!(live.lock().unwrap().insert(address));
                    assert!(live.lock().unwrap().remove(&address));
                    memory.free_on(&queue, address).unwrap();
                }
            });
        }
    });
    assert_eq!(memory.pool().active_blocks(), 0);
}

#[test]
fn a_block_is_known_by_its_address_until_it_is_freed() {
    let (_device, memory) = pool_on(MockDevice::builder());
    let queue = home(&memory);
    let addresses: Vec<u64> = (1..100)
        .map(|number| memory.allocate_on(&queue, 1000 * number).unwrap())
        .collect();
    for (address, number) in addresses.iter().zip(1..) {
        assert!(memory.contains(*address));
        let size = memory.with_block(*address, PooledBuffer::size);
        assert_eq!(size, Some(1000 * number));
    }
    for address in addresses {
        memory.free_on(&queue, address).unwrap();
        assert!(!memory.contains(address));
        assert_eq!(memory.with_block(address, PooledBuffer::size), None);
    }
}

#[test]
fn what_looks_at_a_block_may_call_everything_for_it() {
    let (_device, memory) = pool_on(MockDevice::builder());
    let queue = home(&memory);
    let address = memory.allocate_on(&queue, 4096).unwrap();
    let size = memory.with_block(address, |block| {
        assert!(memory.contains(address));
        memory.record_use(&queue, address).unwrap();
        // Some of them lie in the same map.
        let others: Vec<_> = (0..200)
            .map(|_| memory.allocate_on(&queue, 4096).unwrap())
            .collect();
        for other in others {
            memory.free_on(&queue, other).unwrap();
        }
        assert!(memory.take(address).is_none(), "it is lent");
        assert_eq!(memory.with_block(address, PooledBuffer::size), Some(4096));
        block.size()
    });
    assert_eq!(size, Some(4096));
    assert!(memory.take(address).is_some());
    assert_eq!(memory.pool().active_blocks(), 0);
}

#[test]
fn a_block_that_is_freed_while_it_is_looked_at_is_freed_afterwards() {
    let (_device, memory) = pool_on(MockDevice::builder());
    let queue = home(&memory);
    let address = memory.allocate_on(&queue, 4096).unwrap();
    memory.with_block(address, |block| {
        memory.free_on(&queue, address).unwrap();
        assert!(!memory.contains(address));
        assert_ne!(memory.allocate_on(&queue, 4096).unwrap(), address);
        assert_eq!(block.size(), 4096);
        assert_eq!(memory.pool().active_blocks(), 2);
    });
    assert_eq!(memory.pool().active_blocks(), 1);
    assert!(is_unknown(&memory.free_on(&queue, address), address));
}
