//! Objects of one device are refused by another, with no effect.

use binpool_allocators::{
    Backend, Error, InvalidRequest, ObjectKind, Outcome, Queue, Region, Result, SvmBackend,
    SvmGrain,
};
use binpool_mock::Completion;

use crate::common::Rig;

#[track_caller]
fn assert_foreign<T>(result: Result<T>, expected: ObjectKind) {
    match result.map(drop) {
        Err(Error::InvalidRequest(InvalidRequest::ForeignObject { kind })) => {
            assert_eq!(kind, expected);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_call_refuses_foreign_objects() {
    let (rig, other) = (Rig::new(Completion::AtOnce), Rig::new(Completion::AtOnce));
    let backend = &rig.backend;
    let (queue, memory, all) = (&rig.queue, rig.buffer(4), Region::first(4));
    let (far_queue, far) = (&other.queue, other.buffer(4));
    let far_events = [other.gate()];
    let before = rig.device.statistics();

    let kind = ObjectKind::Queue;
    assert_foreign(backend.check_queue(far_queue), kind);
    assert_foreign(backend.commit(far_queue, &memory), kind);
    assert_foreign(backend.write(far_queue, &memory, 0, &[1_u8]), kind);
    assert_foreign(backend.read(far_queue, &memory, 0, &mut [0_u8]), kind);
    assert_foreign(
        backend.enqueue_write(far_queue, &memory, 0, [1].into()),
        kind,
    );
    assert_foreign(backend.enqueue_read(far_queue, &memory, all), kind);
    assert_foreign(
        backend.enqueue_copy(far_queue, &memory, all, &memory, 0),
        kind,
    );
    assert_foreign(backend.enqueue_fill(far_queue, &memory, all, &[1_u8]), kind);
    assert_foreign(backend.enqueue_marker(far_queue), kind);
    assert_foreign(backend.enqueue_barrier(far_queue), kind);
    assert_foreign(backend.launch(far_queue, "k", &[], &[], |_, _| {}), kind);
    assert_foreign(
        backend.allocate_svm(4, None, SvmGrain::Coarse, Some(far_queue)),
        kind,
    );

    let kind = ObjectKind::Memory;
    assert_foreign(backend.create_sub_region(&far, all), kind);
    assert_foreign(backend.commit(queue, &far), kind);
    assert_foreign(backend.write(queue, &far, 0, &[1_u8]), kind);
    assert_foreign(backend.read(queue, &far, 0, &mut [0_u8]), kind);
    assert_foreign(backend.enqueue_write(queue, &far, 0, [1].into()), kind);
    assert_foreign(backend.enqueue_read(queue, &far, all), kind);
    assert_foreign(backend.enqueue_copy(queue, &far, all, &memory, 0), kind);
    assert_foreign(backend.enqueue_copy(queue, &memory, all, &far, 0), kind);
    assert_foreign(backend.enqueue_fill(queue, &far, all, &[1_u8]), kind);
    assert_foreign(backend.launch(queue, "k", &[&far], &[], |_, _| {}), kind);
    assert_foreign(backend.launch(queue, "k", &[], &[&far], |_, _| {}), kind);
    assert_foreign(backend.release_handle(far.handle()), kind);

    let kind = ObjectKind::Event;
    assert_foreign(
        backend.write(queue.after(&far_events), &memory, 0, &[1_u8]),
        kind,
    );
    assert_foreign(
        backend.read(queue.after(&far_events), &memory, 0, &mut [0_u8]),
        kind,
    );
    assert_foreign(backend.enqueue_marker(queue.after(&far_events)), kind);
    assert_foreign(backend.enqueue_barrier(queue.after(&far_events)), kind);
    assert_foreign(
        backend.enqueue_fill(queue.after(&far_events), &memory, all, &[1_u8]),
        kind,
    );
    assert_foreign(
        backend.launch(queue.after(&far_events), "k", &[], &[], |_, _| {}),
        kind,
    );
    assert_foreign(
        backend.resolve_user_event(&far_events[0], Outcome::Complete),
        kind,
    );

    assert_eq!(
        rig.device.statistics(),
        before,
        "no call reached the device"
    );
}

#[test]
fn foreign_memory_goes_back_to_where_it_came_from() {
    let (rig, other) = (Rig::new(Completion::AtOnce), Rig::new(Completion::AtOnce));
    assert_foreign(
        rig.backend.release(other.buffer(4), &[]),
        ObjectKind::Memory,
    );
    assert_eq!(other.device.statistics().live_blocks, 0);
}

#[test]
fn a_release_after_a_foreign_event_happens_all_the_same() {
    let (rig, other) = (Rig::new(Completion::AtOnce), Rig::new(Completion::AtOnce));
    let (own, far) = (rig.gate(), other.gate());
    assert_foreign(
        rig.backend.release(rig.buffer(4), &[far, own.clone()]),
        ObjectKind::Event,
    );
    assert_eq!(rig.device.statistics().live_blocks, 1);
    rig.backend
        .resolve_user_event(&own, Outcome::Complete)
        .unwrap();
    assert_eq!(rig.device.statistics().live_blocks, 0);
}
