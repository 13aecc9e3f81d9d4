//! Pools that scrub: no user reads what another left, whatever the queues, the policy, the memory and the failures.
//!
//! The allocator under these pools hands out memory full of another program's bytes, and looks at what it gets back.

use std::slice::from_ref;

use binpool::{
    Allocator, Backend, Error, Event, EventStatus, Memory, Outcome, PoolError, PoolOptions,
    PooledBuffer, Queue, QueueOrder, Region, ReusePolicy, ScrubPolicy,
};
use binpool_mock::{CallKind, Completion, Fault, MockBackend, MockDevice, MockQueue, Persistence};

use crate::common::{
    MIB, Rig, SMALLEST, every_call_fails_once,
    tenants::{
        ALL, ORDERS, SCRUBBING, SECRET, Tenants, are_zeros, buffers, immediate, manual, scrub, svm,
    },
};

/// Leaves a secret in all of a block that was allocated for `queue`, which it is written on `writer`.
fn leave_a_secret(
    tenants: &Tenants,
    queue: &MockQueue,
    writer: &MockQueue,
    bytes: usize,
) -> PooledBuffer<MockBackend> {
    let block = tenants.pool.allocate_on(queue, bytes).unwrap();
    block.order_before(writer).unwrap();
    let memory = block.memory_on(writer).unwrap();
    let all = Region::first(memory.bytes());
    let backend = &tenants.backend;
    backend
        .enqueue_fill(writer, memory, all, &[SECRET])
        .unwrap();
    block
}

/// Every way from one user to the next, with one block that takes the whole device.
fn no_user_reads_a_secret<A: Allocator<Backend = MockBackend>>(
    allocator: impl Fn(&MockBackend) -> A + Copy,
) {
    let completions = [
        Completion::AtOnce,
        Completion::Manual,
        Completion::Seeded(3),
    ];
    for (scrubbing, policy, segments, completion) in SCRUBBING
        .into_iter()
        .flat_map(|scrub| ReusePolicy::ALL.map(|policy| (scrub, policy)))
        .flat_map(|(scrub, policy)| [false, true].map(|segments| (scrub, policy, segments)))
        .flat_map(|(s, p, g)| completions.map(|completion| (s, p, g, completion)))
    {
        let builder = MockDevice::builder().completion(completion);
        let options = scrub(scrubbing).reuse(policy).segments(segments);
        let tenants = Tenants::new(builder, options, allocator);
        let queues = ORDERS.map(|order| tenants.backend.create_queue(order).unwrap());
        let [ordered, unordered] = &queues;
        let home = &tenants.queue;
        let all = [home, ordered, unordered];
        for (first, writer, second) in all
            .into_iter()
            .flat_map(|first| all.map(|writer| (first, writer)))
            .flat_map(|(first, writer)| all.map(|second| (first, writer, second)))
        {
            drop(leave_a_secret(&tenants, first, writer, ALL));
            let bytes = tenants.next_user(second, ALL);
            assert!(
                are_zeros(&bytes, ALL),
                "{scrubbing:?}, {policy:?}, segments {segments}, {completion:?}, \
                 {first:?}, {writer:?}, {second:?}"
            );
        }
        tenants.has_no_violations();
    }
}

#[test]
fn no_user_reads_a_secret_in_buffers() {
    no_user_reads_a_secret(immediate);
}

#[test]
fn no_user_reads_a_secret_in_shared_virtual_memory() {
    no_user_reads_a_secret(svm);
}

#[test]
fn a_pool_that_does_not_scrub_makes_no_call_for_it() {
    let rig = Rig::with_capacity(MIB);
    assert_eq!(rig.pool.scrub_policy(), ScrubPolicy::Never);
    // The program's and the allocator's.
    assert_eq!(rig.device.call_count(CallKind::CreateQueue), 2);
    let secret = rig.pool.allocate(4096).unwrap();
    secret.write(&rig.queue, 0, &[SECRET; 4096]).unwrap();
    let calls = rig.device.statistics().total_calls();
    drop(secret);
    let block = rig.pool.allocate(4096).unwrap();
    assert_eq!(rig.device.statistics().total_calls(), calls);
    assert_eq!(rig.device.call_count(CallKind::Fill), 0);
    let mut bytes = [0_u8; 4096];
    block.read(&rig.queue, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [SECRET; 4096]);
}

#[test]
fn on_one_queue_a_fill_is_the_only_command_and_a_look_at_it_the_only_other_call() {
    for (policy, looks) in SCRUBBING.into_iter().zip([1, 0]) {
        let tenants = buffers(scrub(policy));
        assert_eq!(tenants.pool.scrub_policy(), policy);
        drop(tenants.pool.allocate(4096).unwrap());
        let calls = || {
            let all = tenants.device.statistics().total_calls();
            (all, tenants.device.call_count(CallKind::Fill))
        };
        let (before, fills) = calls();
        let block = tenants.pool.allocate(4096).unwrap();
        // The check whether the fill has failed, or the fill.
        assert_eq!(calls(), (before + 1, fills + 1 - looks), "{policy:?}");
        drop(block);
        assert_eq!(calls(), (before + 1 + looks, fills + 1), "{policy:?}");
        assert_eq!(tenants.pool.statistics().hits, 1);
    }
}

#[test]
fn the_whole_class_is_filled() {
    for policy in SCRUBBING {
        let tenants = buffers(scrub(policy));
        drop(leave_a_secret(&tenants, &tenants.queue, &tenants.queue, 1));
        assert_eq!(tenants.next_user(&tenants.queue, 1), [0; SMALLEST]);
        assert_eq!(tenants.pool.statistics().hits, 1);
    }
}

#[test]
fn blocks_of_no_bytes_have_nothing_to_fill() {
    for policy in SCRUBBING {
        let tenants = buffers(scrub(policy));
        let calls = tenants.device.statistics().total_calls();
        drop(tenants.pool.allocate(0).unwrap());
        assert_eq!(tenants.device.statistics().total_calls(), calls);
        let block = tenants.pool.allocate(0).unwrap();
        let end = block.enqueue_release(None, &[]).unwrap_err();
        assert!(matches!(end, Error::InvalidRequest(_)), "{end}");
        let block = tenants.pool.allocate(0).unwrap();
        let queue = &tenants.queue;
        block.enqueue_release(Some(queue), &[]).unwrap();
        assert_eq!(tenants.device.call_count(CallKind::Fill), 0);
    }
}

#[test]
fn what_lies_in_the_pool_is_zeros_on_free_and_a_secret_on_hand_out() {
    for (policy, left) in SCRUBBING.into_iter().zip([0, SECRET]) {
        for segments in [false, true] {
            let tenants = buffers(scrub(policy).segments(segments));
            let queue = &tenants.queue;
            let block = leave_a_secret(&tenants, queue, queue, ALL);
            drop(block);
            tenants.pool.free_held();
            let returned = tenants.dirty.returned.lock().unwrap().concat();
            assert_eq!(returned.len(), ALL);
            assert!(returned.iter().all(|byte| *byte == left), "{policy:?}");
        }
    }
}

#[test]
fn blocks_that_are_not_held_go_to_the_allocator_as_zeros() {
    for segments in [false, true] {
        let tenants = manual(scrub(ScrubPolicy::OnFree).segments(segments));
        let other = tenants
            .backend
            .create_queue(QueueOrder::OutOfOrder)
            .unwrap();
        let held = leave_a_secret(&tenants, &tenants.queue, &other, 1000);
        let late = leave_a_secret(&tenants, &tenants.queue, &other, 1000);
        let last = leave_a_secret(&tenants, &tenants.queue, &tenants.queue, 1000);
        drop(held);
        tenants.pool.stop_holding();
        drop(late);
        let Tenants {
            device,
            dirty,
            pool,
            ..
        } = tenants;
        drop(pool);
        drop(last);
        device.run();
        assert!(dirty.got_zeros_only());
        assert!(!dirty.returned.lock().unwrap().is_empty());
        assert_eq!(device.statistics().live_blocks, 0);
        assert!(device.violations().is_empty());
    }
}

#[test]
fn the_fill_waits_for_the_queues_that_used_the_block() {
    for order in ORDERS {
        let tenants = manual(scrub(ScrubPolicy::OnFree));
        let own = tenants.backend.create_queue(order).unwrap();
        let other = tenants.backend.create_queue(order).unwrap();
        let block = tenants.pool.allocate_on(&own, ALL).unwrap();
        let gate = tenants.gate();
        block
            .enqueue_fill(other.after(from_ref(&gate)), 0..ALL, &[SECRET])
            .unwrap();
        drop(block);
        tenants.device.run();
        assert!(tenants.device.pending_commands() > 1, "the fill waits too");
        tenants.open(&gate);
        assert!(are_zeros(&tenants.next_user(&own, ALL), ALL));
        tenants.has_no_violations();
    }
}

#[test]
fn a_gated_queue_has_its_block_back_at_once_and_clean() {
    for policy in SCRUBBING {
        let tenants = manual(scrub(policy));
        let queue = &tenants.queue;
        let gate = tenants.gate();
        let secret = tenants.pool.allocate(ALL).unwrap();
        secret
            .enqueue_fill(queue.after(from_ref(&gate)), 0..ALL, &[SECRET])
            .unwrap();
        drop(secret);
        let block = tenants.pool.allocate(ALL).unwrap();
        let read = block.enqueue_read(queue, 0..ALL).unwrap();
        tenants.open(&gate);
        assert!(are_zeros(&read.wait().unwrap(), ALL));
    }
}

#[test]
fn an_unordered_queue_reads_behind_the_fill() {
    for policy in SCRUBBING {
        let tenants = manual(scrub(policy).reuse(ReusePolicy::InsertWait));
        let queue = tenants
            .backend
            .create_queue(QueueOrder::OutOfOrder)
            .unwrap();
        let gate = tenants.gate();
        let secret = tenants.pool.allocate_on(&queue, ALL).unwrap();
        secret
            .enqueue_fill(queue.after(from_ref(&gate)), 0..ALL, &[SECRET])
            .unwrap();
        drop(secret);
        let block = tenants.pool.allocate_on(&queue, ALL).unwrap();
        let read = block.enqueue_read(&queue, 0..ALL).unwrap();
        tenants.device.run();
        assert_eq!(read.event().status().unwrap(), EventStatus::Pending);
        tenants.open(&gate);
        assert!(are_zeros(&read.wait().unwrap(), ALL));
        tenants.has_no_violations();
    }
}

#[test]
fn blocks_that_moved_between_queues_are_filled() {
    for segments in [false, true] {
        let tenants = buffers(scrub(ScrubPolicy::OnFree).segments(segments));
        let home = &tenants.queue;
        let other = &tenants.backend.create_queue(QueueOrder::InOrder).unwrap();
        let mut bound = leave_a_secret(&tenants, home, home, ALL);
        bound.bind_to_queue(other).unwrap();
        drop(bound);
        assert!(are_zeros(&tenants.next_user(other, ALL), ALL));
        for used_again in [false, true] {
            let mut unbound = leave_a_secret(&tenants, other, other, ALL);
            unbound.unbind_from_queue().unwrap();
            if used_again {
                unbound.enqueue_fill(other, 0..ALL, &[SECRET]).unwrap();
            }
            drop(unbound);
            assert!(are_zeros(&tenants.next_user(home, ALL), ALL));
        }
        tenants.has_no_violations();
    }
}

#[test]
fn a_released_block_is_filled_by_the_time_of_its_event() {
    for order in ORDERS {
        let builder = MockDevice::builder().completion(Completion::Manual);
        let builder = builder.log_calls(true);
        let tenants = Tenants::new(builder, scrub(ScrubPolicy::OnFree), immediate);
        let queue = tenants.backend.create_queue(order).unwrap();
        let home = &tenants.queue;
        let secret = leave_a_secret(&tenants, home, home, ALL);
        let gate = tenants.gate();
        let end = secret
            .enqueue_release(Some(&queue), from_ref(&gate))
            .unwrap();
        tenants.device.run();
        assert_eq!(end.status().unwrap(), EventStatus::Pending);
        tenants.open(&gate);
        end.wait().unwrap();
        let ended = tenants.device.ended_commands();
        let fills = ended
            .iter()
            .filter(|command| command.name == CallKind::Fill.name());
        let enqueued = tenants.device.call_count(CallKind::Fill);
        assert_eq!(
            fills.count() as u64,
            enqueued,
            "nothing else was waited for"
        );
        assert!(are_zeros(&tenants.next_user(&queue, ALL), ALL));
    }
}

#[test]
fn a_failure_that_a_release_waits_for_keeps_no_secret() {
    for order in ORDERS {
        let tenants = manual(scrub(ScrubPolicy::OnFree));
        let queue = tenants.backend.create_queue(order).unwrap();
        let secret = leave_a_secret(&tenants, &tenants.queue, &tenants.queue, ALL);
        let gate = tenants.gate();
        secret
            .enqueue_release(Some(&queue), from_ref(&gate))
            .unwrap();
        tenants
            .backend
            .resolve_user_event(&gate, Outcome::Failed)
            .unwrap();
        assert!(are_zeros(&tenants.next_user(&queue, ALL), ALL));
    }
}

#[test]
fn an_allocation_whose_fill_fails_loses_nothing() {
    for (segments, order) in [false, true]
        .into_iter()
        .flat_map(|segments| ORDERS.map(|order| (segments, order)))
    {
        let tenants = buffers(scrub(ScrubPolicy::OnHandOut).segments(segments));
        let queue = tenants.backend.create_queue(order).unwrap();
        drop(leave_a_secret(&tenants, &queue, &queue, ALL));
        for call in [CallKind::Fill, CallKind::Barrier] {
            if call == CallKind::Barrier && order == QueueOrder::InOrder {
                continue;
            }
            tenants
                .device
                .fail_nth(call, 1, Fault::Backend(-7), Persistence::Once);
            let error = tenants.pool.allocate_on(&queue, ALL).err().unwrap();
            assert!(
                matches!(error, PoolError::Allocator(Error::Backend(_))),
                "{error}"
            );
            let statistics = tenants.pool.statistics();
            assert_eq!(statistics.active_blocks, 0);
            assert_eq!(statistics.held_bytes, ALL as u64);
        }
        assert!(are_zeros(&tenants.next_user(&queue, ALL), ALL));
    }
}

#[test]
fn fresh_memory_whose_fill_fails_goes_back() {
    for segments in [false, true] {
        let tenants = buffers(scrub(ScrubPolicy::OnFree).segments(segments));
        let device = &tenants.device;
        device.fail_nth(CallKind::Fill, 1, Fault::Backend(-7), Persistence::Once);
        assert!(tenants.pool.allocate(ALL).is_err());
        assert_eq!(device.statistics().live_blocks, 0);
        assert_eq!(tenants.pool.managed_bytes(), 0);
        assert!(are_zeros(&tenants.next_user(&tenants.queue, ALL), ALL));
    }
}

#[test]
fn a_block_that_cannot_be_filled_goes_to_the_allocator() {
    for call in [CallKind::Fill, CallKind::Marker, CallKind::Barrier] {
        let tenants = buffers(scrub(ScrubPolicy::OnFree));
        let other = tenants.backend.create_queue(QueueOrder::InOrder).unwrap();
        // A release that is a command on the block's own queue has no barrier.
        let ways = if call == CallKind::Barrier { 2 } else { 3 };
        for way in 0..ways {
            let secret = leave_a_secret(&tenants, &tenants.queue, &other, ALL);
            tenants
                .device
                .fail_nth(call, 1, Fault::Backend(-7), Persistence::Once);
            match way {
                0 => drop(secret),
                1 => assert!(secret.release().is_err()),
                _ => drop(secret.enqueue_release(None, &[])),
            }
            let statistics = tenants.pool.statistics();
            assert_eq!((statistics.active_blocks, statistics.managed_bytes), (0, 0));
            assert_eq!(tenants.device.statistics().live_blocks, 0);
            tenants.device.clear_faults();
            // The driver may give the very same memory again.
            assert!(are_zeros(&tenants.next_user(&tenants.queue, ALL), ALL));
        }
    }
}

#[test]
fn a_part_of_a_segment_that_cannot_be_filled_stays_out_of_use() {
    let tenants = buffers(scrub(ScrubPolicy::OnFree).segments(true));
    let (pool, device) = (&tenants.pool, &tenants.device);
    // Four blocks have all memory. The second and the third become one range only once both are clean.
    let [first, second, third, fourth] =
        [(); 4].map(|()| leave_a_secret(&tenants, &tenants.queue, &tenants.queue, ALL / 4));
    let forever = Persistence::Forever;
    device.fail_nth(CallKind::Fill, 1, Fault::Backend(-7), forever);
    drop(second);
    assert!(third.enqueue_release(None, &[]).is_err());
    let statistics = pool.statistics();
    assert_eq!(statistics.held_bytes, ALL as u64 / 2);
    assert_eq!(statistics.active_blocks, 2);
    let fills = device.call_count(CallKind::Fill);
    let error = pool.allocate(ALL / 4).unwrap_err();
    let tries = device.call_count(CallKind::Fill) - fills;
    assert!(tries < 40, "{tries}");
    let report = error.out_of_memory().unwrap();
    assert_eq!(report.held_bytes, ALL as u64 / 2);
    assert_eq!(pool.free_held(), 0);
    device.clear_faults();
    assert!(are_zeros(
        &tenants.next_user(&tenants.queue, ALL / 2),
        ALL / 2
    ));
    drop((first, fourth));
    assert_eq!(pool.free_held(), ALL as u64);
    assert!(tenants.dirty.got_zeros_only());
    assert_eq!(device.statistics().live_blocks, 0);
    tenants.has_no_violations();
}

#[test]
fn what_is_unscrubbed_waits_for_its_commands() {
    let tenants = manual(scrub(ScrubPolicy::OnFree).segments(true));
    let gate = tenants.gate();
    let secret = tenants.pool.allocate(ALL).unwrap();
    secret
        .enqueue_fill(tenants.queue.after(from_ref(&gate)), 0..ALL, &[SECRET])
        .unwrap();
    tenants
        .device
        .fail_nth(CallKind::Fill, 1, Fault::Backend(-7), Persistence::Once);
    drop(secret);
    let other = tenants.backend.create_queue(QueueOrder::InOrder).unwrap();
    let error = tenants.pool.allocate_on(&other, ALL).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    tenants.open(&gate);
    assert!(are_zeros(&tenants.next_user(&other, ALL), ALL));
    tenants.has_no_violations();
}

#[test]
fn the_last_handle_ends_the_tries() {
    for late in [false, true] {
        let tenants = buffers(scrub(ScrubPolicy::OnFree).segments(true));
        let secret = leave_a_secret(&tenants, &tenants.queue, &tenants.queue, ALL);
        let Tenants {
            device,
            dirty,
            pool,
            ..
        } = tenants;
        let forever = Persistence::Forever;
        device.fail_nth(CallKind::Fill, 1, Fault::Backend(-7), forever);
        let returned = dirty.returned;
        if late {
            drop(pool);
            drop(secret);
        } else {
            drop(secret);
            assert_eq!(device.statistics().live_blocks, 1);
            drop(pool);
        }
        assert_eq!(device.statistics().live_blocks, 0);
        assert_eq!(returned.lock().unwrap().len(), 1);
    }
}

#[test]
fn a_detached_block_is_left_as_it_is() {
    let tenants = buffers(scrub(ScrubPolicy::OnFree));
    let block = leave_a_secret(&tenants, &tenants.queue, &tenants.queue, ALL);
    let fills = tenants.device.call_count(CallKind::Fill);
    let memory = block.detach().unwrap();
    assert_eq!(tenants.device.call_count(CallKind::Fill), fills);
    drop(memory);
}

#[test]
fn no_queue_no_pool() {
    let device = MockDevice::new();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = immediate(&backend);
    device.fail_nth(
        CallKind::CreateQueue,
        1,
        Fault::Backend(-7),
        Persistence::Forever,
    );
    let refused = scrub(ScrubPolicy::OnFree).build(allocator.clone(), &queue);
    assert!(matches!(refused, Err(PoolError::Allocator(_))));
    assert!(
        scrub(ScrubPolicy::OnHandOut)
            .build(allocator, &queue)
            .is_ok()
    );
}

#[test]
fn every_call_may_fail_once() {
    for (policy, segments) in SCRUBBING
        .into_iter()
        .flat_map(|policy| [false, true].map(|segments| (policy, segments)))
    {
        let rig = || {
            let builder = MockDevice::builder().capacity_bytes(MIB as u64);
            Rig::with_options(builder, scrub(policy).segments(segments))
        };
        every_call_fails_once(rig, MIB, |rig, other| {
            let first = rig.pool.allocate(MIB / 2)?;
            first.write(&rig.queue, 0, &[1_u8; 64])?;
            let second = rig.pool.allocate_on(other, 1000)?;
            second.enqueue_fill(other, 0..1000, &[2_u8])?;
            second.order_before(&rig.queue)?;
            drop((first, second));
            let mut third = rig.pool.allocate(MIB / 2 + 1)?;
            third.unbind_from_queue()?;
            third.record_use(other)?;
            drop(third);
            let fourth = rig.pool.allocate_on(other, 1000)?;
            fourth.enqueue_release(Some(&rig.queue), &[])?;
            Ok(())
        });
    }
}

#[test]
fn a_block_that_could_not_be_filled_is_tried_again_once_its_commands_have_ended() {
    // Of the size of a segment, so that another one would be a buffer of its own.
    const WHOLE_SEGMENT: usize = 4 << 20;
    let options = PoolOptions::new().segments(true).scrub(ScrubPolicy::OnFree);
    let rig = Rig::with_options(MockDevice::builder(), options);
    let block = rig.pool.allocate(WHOLE_SEGMENT).unwrap();
    rig.device
        .fail_nth(CallKind::Fill, 1, Fault::Backend(-1), Persistence::Once);
    drop(block);
    assert_eq!(rig.pool.held_blocks(), 1);
    let _block = rig.pool.allocate(WHOLE_SEGMENT).unwrap();
    assert_eq!(rig.device.call_count(CallKind::CreateBuffer), 1);
}
