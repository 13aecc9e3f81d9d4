//! Blocks that move from queue to queue take their order with them.

use binpool::{
    Backend, Error, Event, EventStatus, InvalidRequest, Memory, MemoryPool, Outcome, PoolOptions,
    Queue, QueueOrder, ReusePolicy, ScrubPolicy, SvmAllocator, SvmGrain,
};
use binpool_mock::{CallKind, Completion, Fault, MockDevice, Persistence};

use crate::common::{MIB, Rig};

fn manual() -> Rig {
    Rig::on(MockDevice::builder().completion(Completion::Manual))
}

#[test]
fn a_queue_that_a_block_is_ordered_before_waits_for_it() {
    let rig = manual();
    let other = rig.another_queue(QueueOrder::InOrder);
    let gate = rig.gate();
    let block = rig.gated(&rig.queue, &gate);
    block.order_before(&other).unwrap();
    let second = block.enqueue_fill(&other, 0..100, &[2_u8]).unwrap();
    rig.device.run();
    assert_eq!(second.status().unwrap(), EventStatus::Pending);
    rig.open(&gate);
    let mut bytes = [0_u8; 100];
    block.read(&other, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [2; 100]);
}

#[test]
fn a_block_of_one_in_order_queue_is_in_order_there_already() {
    let rig = manual();
    let mut block = rig.pool.allocate(100).unwrap();
    let before = rig.device.statistics().total_calls();
    block.order_before(&rig.queue).unwrap();
    block.bind_to_queue(&rig.queue).unwrap();
    assert_eq!(rig.device.statistics().total_calls(), before);
}

#[test]
fn a_bound_block_goes_back_to_its_new_queue() {
    for policy in ReusePolicy::ALL {
        let builder = MockDevice::builder().completion(Completion::Manual);
        let rig = Rig::with_policy(builder, policy);
        let other = rig.another_queue(QueueOrder::InOrder);
        let gate = rig.gate();
        let mut block = rig.gated(&rig.queue, &gate);
        let memory = block.memory_id();
        block.bind_to_queue(&other).unwrap();
        assert_eq!(block.queue_id(), Some(other.id()));
        drop(block);
        let calls = rig.device.statistics().total_calls();
        let again = rig.pool.allocate_on(&other, 100).unwrap();
        assert_eq!(again.memory_id(), memory, "{policy:?}");
        assert_eq!(rig.device.statistics().total_calls(), calls);
        // Its new commands there come after the old ones on the first queue.
        let filled = again.enqueue_fill(&other, 0..100, &[2_u8]).unwrap();
        rig.device.run();
        assert_eq!(filled.status().unwrap(), EventStatus::Pending);
        rig.open(&gate);
    }
}

#[test]
fn a_block_is_bound_to_in_order_queues_of_its_own_backend_only() {
    let rig = manual();
    let unordered = rig.another_queue(QueueOrder::OutOfOrder);
    let foreign = MockDevice::new()
        .backend()
        .create_queue(QueueOrder::InOrder)
        .unwrap();
    let mut block = rig.pool.allocate(100).unwrap();
    assert!(matches!(
        block.bind_to_queue(&unordered),
        Err(Error::InvalidRequest(InvalidRequest::OutOfOrderQueue))
    ));
    for refused in [block.bind_to_queue(&foreign), block.order_before(&foreign)] {
        assert!(matches!(
            refused,
            Err(Error::InvalidRequest(InvalidRequest::ForeignObject { .. }))
        ));
    }
    assert_eq!(block.queue_id(), Some(rig.queue.id()));
}

#[test]
fn a_binding_that_fails_leaves_the_block_where_it_was() {
    let rig = manual();
    let other = rig.another_queue(QueueOrder::InOrder);
    for kind in [CallKind::Marker, CallKind::Flush, CallKind::Barrier] {
        let mut block = rig.pool.allocate(100).unwrap();
        rig.device
            .fail_nth(kind, 1, Fault::Backend(-1), Persistence::Once);
        assert!(block.bind_to_queue(&other).is_err(), "{kind}");
        assert_eq!(block.queue_id(), Some(rig.queue.id()));
        drop(block);
        assert_eq!(rig.pool.held_blocks(), 1, "{kind}");
        assert_eq!(rig.pool.active_blocks(), 0, "{kind}");
    }
}

#[test]
fn an_unbound_block_is_free_for_all_when_it_comes_back() {
    for policy in ReusePolicy::ALL {
        let builder = MockDevice::builder().completion(Completion::Manual);
        let rig = Rig::with_policy(builder, policy);
        let queues =
            [QueueOrder::InOrder, QueueOrder::OutOfOrder].map(|order| rig.another_queue(order));
        let mut block = rig.pool.allocate(100).unwrap();
        let memory = block.memory_id();
        let filled = block.enqueue_fill(&queues[1], 0..100, &[1_u8]).unwrap();
        block.unbind_from_queue().unwrap();
        assert_eq!(filled.status().unwrap(), EventStatus::Complete);
        assert_eq!(block.queue_id(), None);
        drop(block);
        let calls = rig.device.statistics().total_calls();
        let again = rig.pool.allocate_on(&queues[0], 100).unwrap();
        assert_eq!(again.memory_id(), memory, "{policy:?}");
        assert_eq!(rig.device.statistics().total_calls(), calls);
    }
}

#[test]
fn an_unbound_block_that_is_used_again_is_not() {
    let rig = manual();
    let other = rig.another_queue(QueueOrder::InOrder);
    let gate = rig.gate();
    let mut block = rig.pool.allocate(100).unwrap();
    block.unbind_from_queue().unwrap();
    block
        .enqueue_fill(
            rig.queue.after(std::slice::from_ref(&gate)),
            0..100,
            &[1_u8],
        )
        .unwrap();
    let memory = block.memory_id();
    drop(block);
    assert_ne!(
        rig.pool.allocate_on(&other, 100).unwrap().memory_id(),
        memory
    );
    assert_eq!(rig.pool.allocate(100).unwrap().memory_id(), memory);
    rig.open(&gate);
}

#[test]
fn an_enqueued_release_waits_for_its_list_and_for_every_queue() {
    for order in [QueueOrder::InOrder, QueueOrder::OutOfOrder] {
        let rig = manual();
        let [other, on] = [QueueOrder::InOrder, order].map(|order| rig.another_queue(order));
        let (own_gate, list_gate) = (rig.gate(), rig.gate());
        let block = rig.gated(&rig.queue, &own_gate);
        let elsewhere = block.enqueue_fill(&other, 0..100, &[2_u8]).unwrap();
        let memory = block.memory_id();
        let released = block
            .enqueue_release(Some(&on), std::slice::from_ref(&list_gate))
            .unwrap();
        assert_eq!(rig.pool.active_blocks(), 0);
        rig.device.run();
        assert_eq!(elsewhere.status().unwrap(), EventStatus::Complete);
        rig.open(&own_gate);
        rig.device.run();
        // Its own queue must not have it yet, although its own commands there have ended.
        assert_ne!(
            rig.pool.allocate(100).unwrap().memory_id(),
            memory,
            "{order:?}"
        );
        assert_eq!(released.status().unwrap(), EventStatus::Pending);
        rig.open(&list_gate);
        released.wait().unwrap();
        rig.device.run();
        rig.pool.free_held();
        rig.device.run();
        assert_eq!(rig.blocks_on_device(), 0, "{order:?}");
    }
}

#[test]
fn a_release_without_a_queue_is_on_the_blocks_own() {
    let rig = manual();
    let gate = rig.gate();
    let block = rig.pool.allocate(100).unwrap();
    let memory = block.memory_id();
    let released = block
        .enqueue_release(None, std::slice::from_ref(&gate))
        .unwrap();
    // The next user on the same queue comes after the gate, too.
    let block = rig.pool.allocate(100).unwrap();
    assert_eq!(block.memory_id(), memory);
    let filled = block.enqueue_fill(&rig.queue, 0..100, &[1_u8]).unwrap();
    rig.device.run();
    assert_eq!(filled.status().unwrap(), EventStatus::Pending);
    rig.open(&gate);
    filled.wait().unwrap();
    assert_eq!(released.status().unwrap(), EventStatus::Complete);
}

#[test]
fn a_release_that_cannot_be_enqueued_is_nobodys_block() {
    let rig = manual();
    let gate = rig.gate();
    let mut block = rig.pool.allocate(100).unwrap();
    block.unbind_from_queue().unwrap();
    assert!(matches!(
        block.enqueue_release(None, std::slice::from_ref(&gate)),
        Err(Error::InvalidRequest(InvalidRequest::NoQueue))
    ));
    let block = rig.pool.allocate(100).unwrap();
    rig.device
        .fail_nth(CallKind::Marker, 1, Fault::Backend(-1), Persistence::Once);
    assert!(
        block
            .enqueue_release(None, std::slice::from_ref(&gate))
            .is_err()
    );
    assert_eq!((rig.pool.held_blocks(), rig.pool.managed_bytes()), (0, 0));
    // Freed, but not before what it was to wait for.
    assert_eq!(rig.blocks_on_device(), 2);
    rig.open(&gate);
    assert_eq!(rig.blocks_on_device(), 0);
}

#[test]
fn the_empty_block_moves_too() {
    let rig = manual();
    let other = rig.another_queue(QueueOrder::InOrder);
    let mut empty = rig.pool.allocate(0).unwrap();
    empty.order_before(&other).unwrap();
    empty.bind_to_queue(&other).unwrap();
    empty.unbind_from_queue().unwrap();
    let released = empty.enqueue_release(Some(&other), &[]).unwrap();
    released.wait().unwrap();
    assert_eq!(rig.pool.held_blocks(), 0);
}

#[test]
fn shared_virtual_memory_moves_as_well() {
    let device = MockDevice::builder()
        .completion(Completion::Manual)
        .capacity_bytes(MIB as u64)
        .build();
    let backend = device.backend();
    let [first, second] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    let allocator = SvmAllocator::new(&backend, SvmGrain::Coarse).unwrap();
    let pool = MemoryPool::new(allocator, &first).unwrap();
    assert_eq!(pool.reuse_policy(), ReusePolicy::default());
    let gate = backend.create_user_event().unwrap();
    let mut block = pool.allocate(100).unwrap();
    block
        .enqueue_fill(first.after(std::slice::from_ref(&gate)), 0..100, &[1_u8])
        .unwrap();
    let address = block.address();
    block.bind_to_queue(&second).unwrap();
    drop(block);
    assert_ne!(pool.allocate(100).unwrap().address(), address);
    let block = pool.allocate_on(&second, 100).unwrap();
    assert_eq!(block.address(), address);
    block.enqueue_fill(&second, 0..100, &[2_u8]).unwrap();
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    let mut bytes = [0_u8; 100];
    block.read(&second, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [2; 100]);
    let memory = block.detach().unwrap();
    assert_eq!(memory.bytes(), 256);
    assert!(device.violations().is_empty());
}

#[test]
fn a_block_of_no_queue_was_no_other_queues() {
    let rig = manual();
    let mut block = rig.pool.allocate(100).unwrap();
    block.unbind_from_queue().unwrap();
    drop(block);
    drop(rig.pool.allocate(100).unwrap());
    let statistics = rig.pool.statistics();
    assert_eq!((statistics.hits, statistics.ended_hits), (1, 0));
}

#[test]
fn a_block_that_is_given_back_by_a_command_is_filled_where_the_pool_scrubs_on_free() {
    for (scrub, fills) in [
        (ScrubPolicy::Never, 0),
        (ScrubPolicy::OnFree, 1),
        (ScrubPolicy::OnHandOut, 0),
    ] {
        let options = PoolOptions::new().segments(false).scrub(scrub);
        let rig = Rig::with_options(MockDevice::builder(), options);
        let block = rig.pool.allocate(100).unwrap();
        let before = rig.device.call_count(CallKind::Fill);
        block.enqueue_release(None, &[]).unwrap();
        let filled = rig.device.call_count(CallKind::Fill) - before;
        assert_eq!(filled, fills, "{scrub:?}");
    }
}

#[test]
fn giving_a_block_back_takes_one_marker_where_its_queue_is_in_order() {
    let rig = manual();
    let block = rig.pool.allocate(100).unwrap();
    let before = rig.device.call_count(CallKind::Marker);
    block.enqueue_release(None, &[]).unwrap();
    assert_eq!(rig.device.call_count(CallKind::Marker) - before, 1);
}

#[test]
fn a_block_of_an_out_of_order_queue_is_given_back_after_what_is_there() {
    let rig = manual();
    let unordered = rig.another_queue(QueueOrder::OutOfOrder);
    let [gate, open] = [(); 2].map(|()| rig.gate());
    rig.open(&open);
    let block = rig.gated(&unordered, &gate);
    let end = block.enqueue_release(None, &[open]).unwrap();
    rig.device.run();
    assert_eq!(end.status().unwrap(), EventStatus::Pending);
    rig.open(&gate);
    rig.device.run();
    assert!(end.status().unwrap().has_ended());
}
