//! Pools that scrub on free, where a fill of zeros is enqueued and then fails with a command that it was put behind.

use std::slice::from_ref;

use binpool::{
    Backend, Error, Event, EventStatus, Outcome, PoolError, PoolOptions, PooledBuffer, Queue,
    QueueOrder, ScrubPolicy,
};
use binpool_allocators::FailureOrder;
use binpool_mock::{CallKind, Failures, Fault, MockBackend, MockDevice, MockQueue, Persistence};

use crate::common::tenants::{ALL, SECRET, Tenants, are_zeros, immediate};

/// The orders under which a marker tells that commands have ended. Without one the host waits for all of a queue.
const WITH_MARKERS: [FailureOrder; 2] = [FailureOrder::Kept, FailureOrder::FailsEarly];

/// A pool on a device where a command that fails has all that is pending after it on its queue fail, too.
fn tenants(order: FailureOrder, segments: bool) -> Tenants {
    let failures = Failures {
        order,
        spread: true,
    };
    let options = PoolOptions::new()
        .segments(segments)
        .scrub(ScrubPolicy::OnFree);
    Tenants::new(MockDevice::builder().failures(failures), options, immediate)
}

/// A block of `bytes` bytes, of which all are secret.
fn secret(tenants: &Tenants, bytes: usize) -> PooledBuffer<MockBackend> {
    let block = tenants.pool.allocate(bytes).unwrap();
    block
        .enqueue_fill(&tenants.queue, 0..bytes, &[SECRET])
        .unwrap();
    block
}

/// Gives blocks back after a command on `queue` that fails afterwards, and their fills with it.
fn give_back_behind_a_failure(
    tenants: &Tenants,
    blocks: Vec<PooledBuffer<MockBackend>>,
    queue: &MockQueue,
) {
    let gate = tenants.gate();
    for block in &blocks {
        block.order_before(queue).unwrap();
        let after = queue.after(from_ref(&gate));
        block.enqueue_fill(after, 0..1, &[SECRET]).unwrap();
    }
    drop(blocks);
    let backend = &tenants.backend;
    backend.resolve_user_event(&gate, Outcome::Failed).unwrap();
}

#[test]
fn the_next_user_reads_zeros_where_the_fill_failed() {
    for (order, segments) in FailureOrder::ALL
        .into_iter()
        .flat_map(|order| [false, true].map(|segments| (order, segments)))
    {
        let tenants = tenants(order, segments);
        let [ordered, unordered] = [QueueOrder::InOrder, QueueOrder::OutOfOrder]
            .map(|order| tenants.backend.create_queue(order).unwrap());
        let queues = [&tenants.queue, &ordered, &unordered];
        for (writer, next) in queues
            .into_iter()
            .flat_map(|writer| queues.map(|next| (writer, next)))
        {
            let block = secret(&tenants, ALL);
            give_back_behind_a_failure(&tenants, vec![block], writer);
            assert!(
                are_zeros(&tenants.next_user(next, ALL), ALL),
                "{order:?}, segments {segments}, {writer:?}, {next:?}"
            );
        }
        tenants.has_no_violations();
    }
}

#[test]
fn blocks_that_are_carved_elsewhere_in_a_segment_are_zeros_too() {
    for order in WITH_MARKERS {
        let tenants = tenants(order, true);
        let queue = &tenants.queue;
        let halves = [(); 2].map(|()| secret(&tenants, ALL / 2));
        give_back_behind_a_failure(&tenants, halves.into(), queue);
        let whole = tenants.pool.allocate(ALL).unwrap();
        assert!(are_zeros(&tenants.all_bytes(&whole, queue), ALL));
        drop(whole);
        let whole = secret(&tenants, ALL);
        give_back_behind_a_failure(&tenants, vec![whole], queue);
        let quarters = [(); 4].map(|()| tenants.pool.allocate(ALL / 4).unwrap());
        for quarter in &quarters {
            assert!(are_zeros(&tenants.all_bytes(quarter, queue), ALL / 4));
        }
        tenants.has_no_violations();
    }
}

#[test]
fn a_failed_fill_is_made_up_for_once() {
    let tenants = tenants(FailureOrder::Kept, true);
    let blocks = [(); 2].map(|()| secret(&tenants, ALL / 2));
    give_back_behind_a_failure(&tenants, blocks.into(), &tenants.queue);
    let fills = || tenants.device.call_count(CallKind::Fill);
    for (hand_outs, refilled) in [1, 0, 0].into_iter().enumerate() {
        let before = fills();
        let block = tenants.pool.allocate(ALL / 2).unwrap();
        assert_eq!(fills() - before, refilled, "{hand_outs}");
        drop(block);
    }
}

/// The former user's commands may wait for what the thread that allocates has yet to do.
#[test]
fn the_second_fill_comes_after_commands_that_are_still_pending_and_is_not_waited_for() {
    for segments in [false, true] {
        let tenants = tenants(FailureOrder::FailsEarly, segments);
        let queue = &tenants.queue;
        let block = secret(&tenants, ALL);
        let gate = tenants.gate();
        let pending = block
            .enqueue_fill(queue.after(from_ref(&gate)), 0..ALL, &[SECRET])
            .unwrap();
        give_back_behind_a_failure(&tenants, vec![block], queue);
        let next = tenants.pool.allocate(ALL).unwrap();
        assert_eq!(pending.status().unwrap(), EventStatus::Pending);
        tenants.open(&gate);
        assert!(are_zeros(&tenants.all_bytes(&next, queue), ALL));
        tenants.has_no_violations();
    }
}

#[test]
fn a_block_that_cannot_be_filled_again_is_not_handed_out() {
    for segments in [false, true] {
        let tenants = tenants(FailureOrder::Kept, segments);
        let block = secret(&tenants, ALL);
        give_back_behind_a_failure(&tenants, vec![block], &tenants.queue);
        let device = &tenants.device;
        device.fail_nth(CallKind::Fill, 1, Fault::Backend(-7), Persistence::Once);
        let error = tenants.pool.allocate(ALL).err().unwrap();
        assert!(
            matches!(error, PoolError::Allocator(Error::Backend(_))),
            "{error}"
        );
        assert_eq!(tenants.pool.active_blocks(), 0);
        assert!(are_zeros(&tenants.next_user(&tenants.queue, ALL), ALL));
    }
}

#[test]
fn the_allocator_gets_zeros_where_the_fill_failed_and_no_command_is_left() {
    for (order, segments) in WITH_MARKERS
        .into_iter()
        .flat_map(|order| [false, true].map(|segments| (order, segments)))
    {
        let tenants = tenants(order, segments);
        let block = secret(&tenants, ALL);
        give_back_behind_a_failure(&tenants, vec![block], &tenants.queue);
        assert_eq!(tenants.pool.free_held(), ALL as u64);
        let dirty = &tenants.dirty;
        assert_eq!(dirty.returned.lock().unwrap().len(), 1);
        assert!(dirty.got_zeros_only(), "{order:?}, segments {segments}");
        tenants.has_no_violations();
    }
}

#[test]
fn events_of_fills_that_completed_are_let_go_of() {
    const BLOCKS: usize = 256;
    for segments in [false, true] {
        let tenants = tenants(FailureOrder::Kept, segments);
        let block = || tenants.pool.allocate(ALL / BLOCKS).unwrap();
        drop((0..BLOCKS).map(|_| block()).collect::<Vec<_>>());
        let events = tenants.device.live_events();
        assert!(events < BLOCKS / 2, "{events}");
        // None is left of memory that went back.
        tenants.pool.free_held();
        assert_eq!(tenants.device.live_events(), 0);
    }
}

/// A device that loses its order cannot put the zeros after the block's last command, and no marker tells when that has ended.
#[test]
fn a_block_whose_zeros_could_not_be_enqueued_goes_back_once_its_commands_have_ended() {
    for (order, segments) in FailureOrder::ALL
        .into_iter()
        .flat_map(|order| [false, true].map(|segments| (order, segments)))
    {
        let tenants = tenants(order, segments);
        for queue_order in [QueueOrder::InOrder, QueueOrder::OutOfOrder] {
            let queue = tenants.backend.create_queue(queue_order).unwrap();
            let gate = tenants.gate();
            let block = tenants.pool.allocate_on(&queue, ALL).unwrap();
            let after = queue.after(from_ref(&gate));
            block.enqueue_fill(after, 0..1, &[SECRET]).unwrap();
            drop(block);
            tenants.open(&gate);
            tenants.pool.free_held();
            assert_eq!(
                tenants.pool.managed_bytes(),
                0,
                "{order:?}, segments {segments}, {queue_order:?}"
            );
        }
        // A whole block goes to the allocator as it is: what comes from there is filled.
        assert!(!segments || tenants.dirty.got_zeros_only(), "{order:?}");
        tenants.has_no_violations();
    }
}
