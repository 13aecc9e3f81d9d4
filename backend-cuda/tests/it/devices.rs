//! Several devices in one process.

use std::slice::from_ref;

use binpool::{MemoryPool, PoolOptions, ReusePolicy};
use binpool_allocators::{
    Allocator, Backend, Error, Event, ImmediateAllocator, InvalidRequest, Memory, MemoryFlags,
    ObjectKind, Queue, Region, VirtualMemory, VirtualMemoryAllocator,
};
use binpool_cuda::{CudaBackend, CudaMemory, CudaQueue, DriverPoolAllocator};

use crate::common::{Device, PAGE, another_library, bytes, queue};

const SIZE: usize = 4096;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: i32 = 600;

/// Two devices of one library, with their backends and queues.
fn pair() -> ([Device; 2], [CudaBackend; 2], [CudaQueue; 2]) {
    let devices = Device::pair(64 * PAGE);
    let backends = [&devices[0], &devices[1]].map(Device::backend);
    let queues = [&backends[0], &backends[1]].map(queue);
    (devices, backends, queues)
}

fn block(backend: &CudaBackend) -> CudaMemory {
    backend.create_buffer(SIZE, MemoryFlags::empty()).unwrap()
}

/// A reservation of a page, with memory.
fn mapped(backend: &CudaBackend) -> CudaMemory {
    let reservation = backend.reserve(PAGE).unwrap();
    let pages = backend.create_pages(PAGE).unwrap();
    backend.map(&reservation, 0, &pages).unwrap();
    reservation
}

/// Memory of each kind.
fn all_kinds(backend: &CudaBackend) -> Vec<CudaMemory> {
    let pool = DriverPoolAllocator::new(backend).unwrap();
    vec![
        block(backend),
        mapped(backend),
        pool.allocate(SIZE).unwrap(),
        backend.create_managed(SIZE).unwrap(),
        backend
            .create_buffer(SIZE, MemoryFlags::HOST_RESIDENT)
            .unwrap(),
    ]
}

/// Makes a queue busy for a while.
fn keep_busy(backend: &CudaBackend, queue: &CudaQueue) {
    for _ in 0..200 {
        backend.enqueue_marker(queue).unwrap();
    }
}

#[test]
fn a_device_that_is_opened_twice_has_one_backend_while_it_lives() {
    let device = Device::new(1 << 24);
    let [one, two] = [(); 2].map(|()| device.backend());
    let queue = queue(&one);
    let block = block(&two);
    one.write(&queue, &block, 0, &[1_u8; 4]).unwrap();
    assert_eq!(one.legacy_default_queue(), two.legacy_default_queue());
    drop((one, two));
    // The block keeps the backend.
    let three = device.backend();
    three.write(&queue, &block, 0, &[1_u8; 4]).unwrap();
    drop((block, queue, three));
    assert_eq!(device.objects(), 0);
    device.backend().create_user_event().unwrap();
}

#[test]
fn objects_of_another_library_are_foreign() {
    let device = Device::new(1 << 24);
    let (one, two) = (device.backend(), device.backend_of(&another_library()));
    let refused = one.enable_peer_access(&two);
    let kind = ObjectKind::Memory;
    let foreign = InvalidRequest::ForeignObject { kind };
    assert!(
        matches!(&refused, Err(Error::InvalidRequest(refusal)) if *refusal == foreign),
        "{refused:?}"
    );
    let (from, to) = (block(&one), block(&two));
    let all = Region::first(SIZE);
    for (source, destination) in [(&from, &to), (&to, &from)] {
        let copy = one.enqueue_copy(&queue(&one), source, all, destination, 0);
        assert!(
            matches!(&copy, Err(Error::InvalidRequest(refusal)) if *refusal == foreign),
            "{copy:?}"
        );
    }
}

#[test]
fn memory_belongs_to_the_backend_of_its_device() {
    let (_devices, [here, there], [queue, _]) = pair();
    let refused = here.write(&queue, &block(&there), 0, &[1_u8]);
    assert!(matches!(
        refused,
        Err(Error::InvalidRequest(InvalidRequest::ForeignObject { .. }))
    ));
}

/// Copies memory of each kind to each kind on another device, on the queues of either and of a third device.
fn copies(devices: &[Device; 2], backends: &[CudaBackend; 2], queues: &[&CudaQueue; 3]) {
    let [here, there] = backends;
    for (number, source) in all_kinds(here).iter().enumerate() {
        for destination in &all_kinds(there) {
            for (queue, mark) in queues.iter().zip(1_u8..) {
                let mark = mark + 10 * u8::try_from(number).unwrap();
                let fill = here
                    .enqueue_fill(queue, source, Region::first(SIZE), &[mark])
                    .unwrap();
                let copy = here
                    .enqueue_copy(
                        queue.after(&[fill]),
                        source,
                        Region::new(1, 4000),
                        destination,
                        96,
                    )
                    .unwrap();
                let seen = there
                    .enqueue_read(queues[1].after(&[copy]), destination, Region::new(95, 4001))
                    .unwrap();
                assert_eq!(seen.wait().unwrap()[1..], vec![mark; 4000]);
                // And back, by the other backend.
                there
                    .enqueue_copy(queue, destination, Region::new(96, 1), source, 0)
                    .unwrap()
                    .wait()
                    .unwrap();
            }
        }
    }
    assert!(!here.is_lost() && !there.is_lost());
    assert!(devices[0].calls("cuMemcpyPeerAsync") + devices[1].calls("cuMemcpyPeerAsync") > 0);
}

#[test]
fn copies_between_devices_arrive_whether_or_not_the_devices_see_each_others_memory() {
    for can_peer in [false, true] {
        let (devices, backends, [one, two]) = pair();
        devices[1].can_peer(can_peer);
        let [here, there] = &backends;
        assert_eq!(here.enable_peer_access(there).unwrap(), can_peer);
        let third = devices[0].beside(64 * PAGE);
        copies(&devices, &backends, &[&one, &two, &queue(&third.backend())]);
    }
}

#[test]
fn a_copy_within_a_device_is_none_between_devices() {
    let (devices, [here, _], [queue, _]) = pair();
    let [from, to] = [(); 2].map(|()| block(&here));
    here.enqueue_copy(&queue, &from, Region::first(SIZE), &to, 0)
        .unwrap();
    assert_eq!(devices[0].calls("cuMemcpyPeerAsync"), 0);
}

#[test]
fn a_read_that_blocks_needs_no_memory_of_the_host_but_the_programs() {
    let (devices, [here, _], [queue, _]) = pair();
    here.read(&queue, &block(&here), 0, &mut [0_u8; 4]).unwrap();
    assert_eq!(devices[0].calls("cuMemHostAlloc"), 0);
}

#[test]
fn the_free_bytes_of_a_device_are_those_that_nothing_has() {
    let (_devices, [here, _], _) = pair();
    let free = || here.free_bytes().unwrap();
    let before = free();
    let memory = block(&here);
    assert_eq!(free(), before - memory.bytes() as u64);
}

#[test]
fn a_backend_that_ends_during_a_capture_on_another_device_frees_its_memory() {
    let (devices, [here, there], [queue, captured]) = pair();
    let memory = block(&here);
    here.enqueue_fill(&queue, &memory, Region::first(SIZE), &[1_u8])
        .unwrap();
    queue.finish().unwrap();
    devices[1].begin_capture(&captured);
    // Asked when the memory is dropped, and when the backend is; so that one waits for the command.
    devices[0].fail("cuEventQuery", 0, 2, NOT_READY);
    drop((memory, queue, here));
    assert_eq!(devices[0].used(), 0);
    assert!(devices[1].end_capture(&captured).is_ok());
    drop(there);
}

#[test]
fn both_blocks_of_a_copy_are_freed_behind_it() {
    let (devices, [here, there], queues) = pair();
    for queue in &queues {
        let (from, to) = (block(&here), block(&there));
        let gate = here.create_user_event().unwrap();
        let all = Region::first(SIZE);
        let copy = here
            .enqueue_copy(queue.after(from_ref(&gate)), &from, all, &to, 0)
            .unwrap();
        drop((from, to));
        drop(gate);
        // The copy is late still, and what was freed too early is found out by it.
        copy.wait().unwrap();
        here.enqueue_marker(queue).unwrap().wait().unwrap();
        there.enqueue_marker(queue).unwrap().wait().unwrap();
        assert_eq!((devices[0].used(), devices[1].used()), (0, 0));
        assert!(!here.is_lost() && !there.is_lost());
    }
}

#[test]
fn memory_is_freed_behind_commands_on_queues_of_another_device() {
    let (devices, [here, there], [_, queue]) = pair();
    let memory = block(&here);
    let gate = there.create_user_event().unwrap();
    let fill = here
        .enqueue_fill(
            queue.after(from_ref(&gate)),
            &memory,
            Region::first(SIZE),
            &[1_u8],
        )
        .unwrap();
    here.release(memory, from_ref(&fill)).unwrap();
    drop(gate);
    assert_eq!(devices[0].used(), SIZE);
    fill.wait().unwrap();
    here.enqueue_marker(&queue).unwrap();
    assert_eq!(devices[0].used(), 0);
}

#[test]
fn the_end_of_a_backend_waits_for_commands_of_other_devices() {
    let (_devices, [here, there], [own, queue]) = pair();
    let (from, to) = (block(&here), block(&there));
    keep_busy(&there, &queue);
    let copy = there
        .enqueue_copy(&queue, &from, Region::first(SIZE), &to, 0)
        .unwrap();
    drop((from, own, here));
    copy.wait().unwrap();
    queue.finish().unwrap();
    assert!(!there.is_lost());
}

#[test]
fn a_command_without_an_event_ends_on_its_own_device_before_memory_is_freed() {
    let (devices, [here, there], [_, queue]) = pair();
    let (from, to) = (block(&here), block(&there));
    let gate = there.create_user_event().unwrap();
    let held = there.enqueue_marker(queue.after(from_ref(&gate))).unwrap();
    keep_busy(&there, &queue);
    devices[1].fail("cuEventRecord", 0, 1, 999);
    here.enqueue_copy(&queue, &from, Region::first(SIZE), &to, 0)
        .unwrap_err();
    drop((from, to));
    drop(gate);
    drop(block(&here)); // It looks at what can be freed.
    held.wait().unwrap();
    queue.finish().unwrap();
    assert!(!here.is_lost() && !there.is_lost());
    drop((block(&here), block(&there)));
    assert_eq!((devices[0].used(), devices[1].used()), (0, 0));
}

#[test]
fn a_command_without_an_event_ends_on_the_device_of_its_memory_before_that_is_freed() {
    const BYTES: usize = 3 << 20;

    let (devices, [here, there], [_, queue]) = pair();
    // Freeing it waits for nothing.
    let pool = DriverPoolAllocator::new(&here).unwrap();
    let memory = pool.allocate(BYTES).unwrap();
    let gate = there.create_user_event().unwrap();
    // Many copies, on a stream of the memory's device.
    devices[0].fail("cuEventRecord", 0, 1, 999);
    here.enqueue_fill(
        queue.after(from_ref(&gate)),
        &memory,
        Region::first(BYTES),
        &[1_u8, 2, 3],
    )
    .unwrap_err();
    drop(memory);
    drop(gate);
    drop(block(&here));
    here.device_memory().unwrap();
    let fill = here.enqueue_fill(&queue, &block(&here), Region::first(SIZE), &[1_u8]);
    fill.unwrap().wait().unwrap();
    assert!(!here.is_lost() && !there.is_lost());
}

#[test]
fn commands_on_memory_of_another_device_share_one_more_stream() {
    let (devices, [here, _], [_, queue]) = pair();
    let memory = block(&here);
    let before = devices[0].calls("cuStreamCreate");
    for _ in 0..3 {
        here.write(&queue, &memory, 0, &[1_u8]).unwrap();
        here.enqueue_fill(&queue, &memory, Region::first(SIZE), &[1_u8])
            .unwrap();
    }
    assert_eq!(devices[0].calls("cuStreamCreate"), before + 1);
}

#[test]
fn an_event_keeps_its_device_until_the_commands_that_wait_for_it_have_ended() {
    let (devices, [here, there], [own, queue]) = pair();
    let gate = there.create_user_event().unwrap();
    there.enqueue_marker(queue.after(from_ref(&gate))).unwrap();
    let event = here.enqueue_marker(&own).unwrap();
    event.wait().unwrap();
    let behind = there.enqueue_marker(queue.after(&[event])).unwrap();
    drop((here, own));
    assert!(devices[0].objects() > 0);
    drop(gate);
    behind.wait().unwrap();
    there.enqueue_marker(&queue).unwrap();
    assert_eq!(devices[0].objects(), 0);
}

#[test]
fn an_event_keeps_its_device_for_a_transfer_that_fails_behind_it() {
    let (devices, [here, there], [own, queue]) = pair();
    let memory = block(&there);
    let gate = there.create_user_event().unwrap();
    there.enqueue_marker(queue.after(from_ref(&gate))).unwrap();
    let event = here.enqueue_marker(&own).unwrap();
    event.wait().unwrap();
    devices[1].fail("cuMemcpyAsync", 0, 1, 999);
    // The queue has been told to wait.
    there
        .write(queue.after(&[event]), &memory, 0, &[1_u8])
        .unwrap_err();
    drop((here, own));
    assert!(devices[0].objects() > 0);
    drop(gate);
    queue.finish().unwrap();
    there.enqueue_marker(&queue).unwrap();
    assert_eq!(devices[0].objects(), 0);
}

#[test]
fn a_device_that_waits_for_the_host_by_another_frees_nothing() {
    let (devices, [here, there], [one, two]) = pair();
    let memory = block(&there);
    let gate = here.create_user_event().unwrap();
    let first = here.enqueue_marker(one.after(from_ref(&gate))).unwrap();
    let second = there.enqueue_marker(two.after(&[first])).unwrap();
    drop(memory); // `cuMemFree` would wait forever.
    assert_eq!(devices[1].used(), SIZE);
    drop(gate);
    second.wait().unwrap();
    there.enqueue_marker(&two).unwrap();
    assert_eq!(devices[1].used(), 0);
}

#[test]
fn peers_use_memory_and_what_is_mapped_after_they_may() {
    let ([one, two], [here, there], _) = pair();
    let address = |memory: &CudaMemory| memory.device_address().unwrap();
    let (buffer, pages) = (block(&there), mapped(&there));
    assert!(two.can_use(address(&buffer)) && two.can_use(address(&pages)));
    assert!(!one.can_use(address(&buffer)));
    for _ in 0..2 {
        assert!(here.enable_peer_access(&there).unwrap());
    }
    assert!(one.can_use(address(&buffer)) && !one.can_use(address(&pages)));
    let more = mapped(&there);
    assert!(one.can_use(address(&more)) && two.can_use(address(&more)));
    there.admit_peers(address(&pages), PAGE).unwrap();
    assert!(one.can_use(address(&pages)) && two.can_use(address(&pages)));
    let pool = DriverPoolAllocator::new(&there).unwrap();
    let pooled = pool.allocate(SIZE).unwrap();
    assert!(one.can_use(address(&pooled)) && two.can_use(address(&pooled)));
    // The other way, and to other devices, nothing is allowed.
    assert!(!two.can_use(address(&block(&here))) && !two.can_use(address(&mapped(&here))));
    assert!(!one.beside(SIZE).can_use(address(&more)));
}

#[test]
fn devices_that_cannot_be_peers_say_so_and_a_device_is_its_own_peer() {
    let (devices, [here, there], _) = pair();
    devices[1].can_peer(false);
    assert!(!here.enable_peer_access(&there).unwrap());
    assert!(here.enable_peer_access(&here.clone()).unwrap());
    let pages = mapped(&there);
    assert!(!devices[0].can_use(pages.device_address().unwrap()));
}

/// A block of one device that a queue of another has used is not given to a queue of its own before those commands have ended.
fn crosses<A: Allocator<Backend = CudaBackend>>(allocator: A, queues: &[CudaQueue; 2]) {
    let [own, other] = queues;
    let options = PoolOptions::new()
        .segments(false)
        .reuse(ReusePolicy::InsertWait);
    let pool = options.build(allocator, own).unwrap();
    let backend = pool.backend().clone();
    let memory = pool.allocate(SIZE).unwrap();
    let id = memory.memory_id();
    let gate = backend.create_user_event().unwrap();
    memory
        .enqueue_fill(other.after(from_ref(&gate)), .., &[1_u8])
        .unwrap();
    drop(memory);
    let again = pool.allocate_on(own, SIZE).unwrap();
    assert_eq!(again.memory_id(), id);
    let fill = again.enqueue_fill(own, .., &[2_u8]).unwrap();
    assert!(!fill.has_ended());
    drop(gate);
    let mut seen = vec![0_u8; SIZE];
    again.read(own, 0, &mut seen).unwrap();
    assert_eq!(seen, vec![2; SIZE]);
}

#[test]
fn a_block_that_another_device_used_waits_for_that_when_it_is_reused() {
    let (_devices, [here, there], queues) = pair();
    crosses(ImmediateAllocator::new(&here).unwrap(), &queues);
    crosses(DriverPoolAllocator::new(&here).unwrap(), &queues);
    assert!(!here.is_lost() && !there.is_lost());
}

#[test]
fn pools_of_two_devices_copy_blocks_to_each_other() {
    let (devices, [here, there], queues) = pair();
    let pools = (
        MemoryPool::new(VirtualMemoryAllocator::new(&here), &queues[0]).unwrap(),
        MemoryPool::new(ImmediateAllocator::new(&there).unwrap(), &queues[1]).unwrap(),
    );
    for (queue, mark) in queues.iter().zip(1_u8..) {
        let (one, two) = (
            pools.0.allocate(SIZE).unwrap(),
            pools.1.allocate(SIZE).unwrap(),
        );
        one.enqueue_fill(queue, .., &[mark]).unwrap();
        let there = one.enqueue_copy_to(queue, &two).unwrap();
        let back = one
            .enqueue_copy_region_from(queues[0].after(from_ref(&there)), &two, 0..100, 100)
            .unwrap();
        two.enqueue_fill(queues[1].after(from_ref(&back)), .., &[9_u8])
            .unwrap();
        drop((one, two)); // After the commands of both queues.
        let again = pools.0.allocate(SIZE).unwrap();
        again.enqueue_fill(&queues[0], .., &[mark]).unwrap();
        let mut seen = vec![0_u8; SIZE];
        again.read(&queues[0], 0, &mut seen).unwrap();
        assert_eq!(seen, vec![mark; SIZE]);
        // A block of one device that is allocated on a queue of the other.
        let far = pools.0.allocate_on(&queues[1], SIZE).unwrap();
        far.write(&queues[1], 0, &[mark; SIZE]).unwrap();
        far.order_before(&queues[0]).unwrap();
        let mut seen = vec![0_u8; SIZE];
        far.read(&queues[0], 0, &mut seen).unwrap();
        assert_eq!(seen, vec![mark; SIZE]);
    }
    assert!(!here.is_lost() && !there.is_lost());
    drop((pools, queues, here, there));
    for device in &devices {
        assert_eq!((device.objects(), device.used()), (0, 0));
    }
}

#[test]
fn bytes_are_those_of_the_device_whatever_the_queue() {
    let (_devices, [here, _], queues) = pair();
    let memory = block(&here);
    for (queue, mark) in queues.iter().zip(1_u8..) {
        let pattern = [mark, 2, 3];
        let region = Region::first(SIZE - 1);
        here.enqueue_fill(queue, &memory, region, &pattern).unwrap();
        assert_eq!(
            bytes(&here, queue, &memory)[..memory.bytes() - 1],
            pattern.repeat(SIZE / 3)
        );
    }
}
