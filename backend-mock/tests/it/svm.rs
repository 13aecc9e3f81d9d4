//! Shared virtual memory: real addresses, and frees in order.

use binpool_allocators::{
    Align, Backend, Error, InvalidRequest, Memory, MemoryKind, Outcome, Queue, QueueOrder, Region,
    SvmBackend, SvmGrain, SvmSupport,
};
use binpool_mock::{CallKind, Completion, DeviceProfile, Fault, MockDevice, Persistence};

use crate::common::{KIB, MIB, Rig, is_pending};

fn align(bytes: usize) -> Align {
    Align::new(bytes).unwrap()
}

#[test]
fn addresses_have_the_alignment_that_was_asked_for() {
    let rig = Rig::new(Completion::AtOnce);
    for alignment in [1, 8, 64, 256, 1024, 4096] {
        for bytes in [1, 100, 64 * KIB] {
            let block = rig
                .backend
                .allocate_svm(bytes, Some(align(alignment)), SvmGrain::Coarse, None)
                .unwrap();
            let address = rig.backend.svm_address(&block).unwrap();
            assert_eq!(address.addr().get() % alignment, 0);
            assert_eq!(
                (block.bytes(), block.kind()),
                (bytes, MemoryKind::Svm(SvmGrain::Coarse))
            );
        }
    }
    let block = rig
        .backend
        .allocate_svm(1, None, SvmGrain::Fine, None)
        .unwrap();
    assert_eq!(
        rig.backend.svm_address(&block).unwrap().addr().get() % 256,
        0
    );
}

#[test]
fn a_release_is_one_command_and_two_after_a_list_on_an_out_of_order_queue() {
    let rig = Rig::new(Completion::AtOnce);
    let gate = rig.gate();
    let waits: [(&[_], _); 2] = [(&[], [1, 1]), (std::slice::from_ref(&gate), [1, 2])];
    for (wait_for, markers) in waits {
        for (order, expected) in [QueueOrder::InOrder, QueueOrder::OutOfOrder]
            .into_iter()
            .zip(markers)
        {
            let queue = rig.queue(order);
            let block = rig
                .backend
                .allocate_svm(64, None, SvmGrain::Coarse, None)
                .unwrap();
            let before = rig.device.call_count(CallKind::Marker);
            rig.backend
                .enqueue_release(block, Some(&queue), wait_for)
                .unwrap();
            let made = rig.device.call_count(CallKind::Marker) - before;
            assert_eq!(made, expected, "{order:?}, {} events", wait_for.len());
        }
    }
    rig.backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    assert_eq!(rig.device.statistics().live_blocks, 0);
}

#[test]
fn host_and_device_see_the_same_bytes() {
    let rig = Rig::new(Completion::AtOnce);
    let block = rig
        .backend
        .allocate_svm(64, None, SvmGrain::Fine, None)
        .unwrap();
    let address = rig.backend.svm_address(&block).unwrap();
    rig.fill(&block, 7, &[]);
    // SAFETY: the block lives, has 64 bytes, and no command is pending.
    assert_eq!(unsafe { address.read() }, 7);
    // SAFETY: as above.
    unsafe { address.write(9) };
    assert_eq!(rig.contents(&block)[..2], [9, 7]);
}

#[test]
fn a_region_of_svm_starts_where_its_block_does_plus_its_offset() {
    let rig = Rig::new(Completion::AtOnce);
    let block = rig
        .backend
        .allocate_svm(1024, None, SvmGrain::Coarse, None)
        .unwrap();
    let outer = rig
        .backend
        .create_sub_region(&block, Region::new(256, 768))
        .unwrap();
    let inner = rig
        .backend
        .create_sub_region(&outer, Region::new(256, 256))
        .unwrap();
    let base = rig.backend.svm_address(&block).unwrap().addr().get();
    assert_eq!(
        rig.backend.svm_address(&inner).unwrap().addr().get(),
        base + 512
    );
    assert_eq!(inner.kind(), block.kind());
}

#[test]
fn buffers_have_no_address_and_neither_has_foreign_memory() {
    let (rig, other) = (Rig::new(Completion::AtOnce), Rig::new(Completion::AtOnce));
    assert_eq!(rig.backend.svm_address(&rig.buffer(4)), None);
    let block = rig
        .backend
        .allocate_svm(4, None, SvmGrain::Coarse, None)
        .unwrap();
    assert_eq!(other.backend.svm_address(&block), None);
}

#[test]
fn svm_is_committed_when_it_is_allocated() {
    let rig = Rig::on(MockDevice::builder().capacity_bytes(MIB as u64));
    let block = rig
        .backend
        .allocate_svm(MIB, None, SvmGrain::Coarse, None)
        .unwrap();
    assert_eq!(rig.device.statistics().committed_bytes, MIB as u64);
    let error = rig
        .backend
        .allocate_svm(1, None, SvmGrain::Coarse, None)
        .unwrap_err();
    assert!(error.is_out_of_memory());
    rig.backend.commit(&rig.queue, &block).unwrap();
    drop(block);
    assert_eq!(rig.device.statistics().committed_bytes, 0);
}

#[test]
fn bad_requests_are_refused() {
    let rig = Rig::on(MockDevice::builder().capacity_bytes(MIB as u64));
    let allocate = |bytes, alignment, queue| {
        let result = rig
            .backend
            .allocate_svm(bytes, alignment, SvmGrain::Coarse, queue);
        match result.unwrap_err() {
            Error::InvalidRequest(request) => request,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(allocate(0, None, None), InvalidRequest::ZeroSize);
    for requested in [MIB + 1, usize::MAX] {
        let expected = InvalidRequest::TooLarge {
            requested,
            largest: MIB,
        };
        assert_eq!(allocate(requested, None, None), expected);
    }
    let (alignment, largest) = (align(8192), align(4096));
    let expected = InvalidRequest::AlignmentTooLarge { alignment, largest };
    assert_eq!(allocate(1, Some(alignment), None), expected);
    let unordered = rig.queue(QueueOrder::OutOfOrder);
    assert_eq!(
        allocate(1, None, Some(&unordered)),
        InvalidRequest::OutOfOrderQueue
    );
}

#[test]
fn a_device_has_the_grains_that_it_has() {
    let h200 = Rig::on(MockDevice::builder().profile(DeviceProfile::h200()));
    let none = Rig::on(MockDevice::builder().svm(SvmSupport::default()));
    assert!(
        h200.backend
            .allocate_svm(1, None, SvmGrain::Coarse, None)
            .is_ok()
    );
    for (rig, grain) in [
        (&h200, SvmGrain::Fine),
        (&h200, SvmGrain::FineAtomics),
        (&none, SvmGrain::Coarse),
    ] {
        let error = rig.backend.allocate_svm(1, None, grain, None).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }));
    }
}

#[test]
fn a_free_waits_for_all_that_was_enqueued_on_its_queue_before() {
    let rig = Rig::new(Completion::AtOnce);
    let (gate, buffer) = (rig.gate(), rig.buffer(4));
    let block = rig
        .backend
        .allocate_svm(4, None, SvmGrain::Coarse, Some(&rig.queue))
        .unwrap();
    // A command that was never told of the block: a kernel may have its bare address.
    let gated = rig.fill(&buffer, 1, std::slice::from_ref(&gate));
    drop(block);
    assert!(is_pending(&gated));
    assert_eq!(rig.device.statistics().live_blocks, 2);
    rig.backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    assert_eq!(rig.device.statistics().live_blocks, 1);
}

#[test]
fn a_free_waits_for_commands_on_other_queues_that_use_the_block() {
    let rig = Rig::new(Completion::Manual);
    let other = rig.queue(QueueOrder::OutOfOrder);
    let block = rig
        .backend
        .allocate_svm(4, None, SvmGrain::Coarse, Some(&rig.queue))
        .unwrap();
    rig.fill_on(&other, &block, 1, &[]);
    rig.backend.release(block, &[]).unwrap();
    rig.queue.finish().unwrap();
    assert_eq!(rig.device.statistics().live_blocks, 1);
    other.finish().unwrap();
    assert_eq!(rig.device.statistics().live_blocks, 0);
    assert!(rig.device.violations().is_empty());
}

#[test]
fn a_queue_may_go_before_the_svm_that_is_freed_on_it() {
    let rig = Rig::new(Completion::AtOnce);
    let other = rig.queue(QueueOrder::InOrder);
    let block = rig
        .backend
        .allocate_svm(4, None, SvmGrain::Coarse, Some(&other))
        .unwrap();
    drop(other);
    drop(block);
    assert_eq!(rig.device.statistics().live_blocks, 0);
}

#[test]
fn a_binding_flushes_the_old_queue_before_the_new_one_waits_and_leaves_no_event() {
    let rig = Rig::on(MockDevice::builder().log_calls(true));
    let other = rig.queue(QueueOrder::InOrder);
    let block = rig
        .backend
        .allocate_svm(KIB, None, SvmGrain::Coarse, Some(&rig.queue))
        .unwrap();
    let (calls, events) = (rig.device.calls().len(), rig.device.live_events());
    rig.backend.bind_to_queue(&block, &other).unwrap();
    let made: Vec<CallKind> = rig.device.calls()[calls..]
        .iter()
        .map(|call| call.kind)
        .collect();
    assert_eq!(made, [CallKind::Marker, CallKind::Flush, CallKind::Barrier]);
    rig.backend.bind_to_queue(&block, &other).unwrap();
    assert_eq!(rig.device.calls().len(), calls + 3, "bound there already");
    for turn in 0..1000 {
        let queue = if turn % 2 == 0 { &rig.queue } else { &other };
        rig.backend.bind_to_queue(&block, queue).unwrap();
    }
    assert_eq!(rig.device.live_events(), events);
}

#[test]
fn a_block_holds_the_queue_that_it_is_bound_to() {
    let rig = Rig::new(Completion::AtOnce);
    let queues = rig.device.live_queues();
    let block = rig
        .backend
        .allocate_svm(KIB, None, SvmGrain::Coarse, None)
        .unwrap();
    let bound = rig.queue(QueueOrder::InOrder);
    rig.backend.bind_to_queue(&block, &bound).unwrap();
    drop(bound);
    assert_eq!(rig.device.live_queues(), queues + 1);
    rig.backend.unbind_from_queue(&block).unwrap();
    assert_eq!(rig.device.live_queues(), queues);
}

#[test]
fn an_enqueued_release_that_fails_frees_the_block_after_its_wait_list() {
    let rig = Rig::new(Completion::AtOnce);
    let block = rig
        .backend
        .allocate_svm(KIB, None, SvmGrain::Coarse, Some(&rig.queue))
        .unwrap();
    let gate = rig.gate();
    rig.device
        .fail_nth(CallKind::Marker, 1, Fault::Backend(-1), Persistence::Once);
    let released = rig
        .backend
        .enqueue_release(block, None, std::slice::from_ref(&gate));
    assert!(released.is_err());
    assert_eq!(rig.device.statistics().live_blocks, 1);
    rig.backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    assert_eq!(rig.device.statistics().live_blocks, 0);
}
