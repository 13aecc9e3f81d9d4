//! Events.

use std::slice::from_ref;

use binpool_allocators::{
    Backend, Error, Event, EventStatus, FailureOrder, InvalidRequest, Outcome, Queue as _,
    runtime::CoreEvent,
};
use tracing_subscriber::filter::LevelFilter;

use super::{
    LOW, buffer,
    device::{Call, Scripted, Told},
    fill, hash, in_order, refusal, rig,
};
use crate::log::logged;

#[test]
fn an_event_tells_what_the_runtime_does() {
    let (device, [one, _], _) = rig();
    let event = device.enqueue_marker(&one).unwrap();
    assert_eq!(event.status().unwrap(), EventStatus::Pending);
    event.mark().set(EventStatus::Complete);
    assert_eq!(event.status().unwrap(), EventStatus::Complete);
    event.wait().unwrap();
    event.mark().set(EventStatus::Failed);
    assert_eq!(event.status().unwrap(), EventStatus::Failed);
    event.wait().unwrap_err();
    event.mark().lose();
    event.status().unwrap_err();
    event.wait().unwrap_err();
}

#[test]
fn clones_are_the_same_event_and_others_are_not() {
    let (device, [one, _], _) = rig();
    let lost = Scripted::of(FailureOrder::Lost, None);
    let events = [
        device.enqueue_marker(&one).unwrap(),
        device.create_user_event().unwrap(),
        lost.enqueue_marker(&in_order(&lost)).unwrap(),
    ];
    for event in &events {
        let clone = event.clone();
        assert_eq!((&clone, clone.id()), (event, event.id()));
        assert!(hash(&clone) == hash(event) && clone.mark().is(event.mark()));
    }
    for other in &events[1..] {
        assert_ne!(&events[0], other);
        assert_ne!(hash(&events[0]), hash(other));
    }
}

/// An event of a marker on a device where failures are so, and how often its queue was asked to finish since.
fn marker_of(failure_order: FailureOrder) -> (CoreEvent<Scripted>, impl Fn() -> Vec<usize>) {
    let device = Scripted::of(failure_order, None);
    let _other = in_order(&device);
    let queue = in_order(&device);
    let event = device.enqueue_marker(&queue).unwrap();
    device.set(|options| options.status = EventStatus::Complete);
    // A queue finishes by a marker of the core.
    let finished = move || {
        let since = device.commands().split_off(1);
        assert!(since.iter().all(|command| command.told == Told::Marker));
        since.iter().map(|command| command.stream).collect()
    };
    (event, finished)
}

#[test]
fn a_command_that_failed_in_its_turn_tells_that_all_before_it_have_ended() {
    let (event, finished) = marker_of(FailureOrder::Kept);
    for status in [EventStatus::Complete, EventStatus::Failed] {
        event.mark().set(status);
        event.wait_for_all_before().unwrap();
        event.clone().wait_for_all_before().unwrap();
    }
    assert_eq!(finished(), [0; 0]);
    // If the runtime cannot tell that it has ended, it tells nothing.
    event.mark().lose();
    event.wait_for_all_before().unwrap_err();
}

#[test]
fn a_command_that_failed_early_tells_of_others_only_with_its_queue() {
    for failure_order in [FailureOrder::FailsEarly, FailureOrder::Lost] {
        let (event, finished) = marker_of(failure_order);
        event.mark().set(EventStatus::Complete);
        event.wait_for_all_before().unwrap();
        assert_eq!(finished(), [0; 0]);
        event.mark().set(EventStatus::Failed);
        event.wait_for_all_before().unwrap();
        assert_eq!(finished(), [1], "its own queue has finished");
        event.clone().wait_for_all_before().unwrap();
        assert_eq!(finished(), [1, 1]);
    }
}

#[test]
fn a_failed_user_event_says_nothing_of_a_queue() {
    for failure_order in [FailureOrder::Kept, FailureOrder::Lost] {
        let device = Scripted::of(failure_order, None);
        let event = device.create_user_event().unwrap();
        device.resolve_user_event(&event, Outcome::Failed).unwrap();
        event.wait_for_all_before().unwrap();
        assert_eq!(device.commands().len(), 0);
    }
}

#[test]
fn a_user_event_ends_as_the_program_says() {
    for (outcome, status) in [
        (Outcome::Complete, EventStatus::Complete),
        (Outcome::Failed, EventStatus::Failed),
    ] {
        let device = Scripted::new();
        let event = device.create_user_event().unwrap();
        assert_eq!(event.status().unwrap(), EventStatus::Pending);
        device.resolve_user_event(&event, outcome).unwrap();
        assert_eq!(event.status().unwrap(), status);
        drop(event.clone());
        drop(event);
        assert!(device.has_acted());
    }
}

#[test]
fn a_user_event_that_is_dropped_fails_what_waits_for_it() {
    let (device, [one, _], _) = rig();
    let gate = device.create_user_event().unwrap();
    let mark = gate.mark().clone();
    device.enqueue_marker(one.after(from_ref(&gate))).unwrap();
    let copy = gate.clone();
    drop(gate);
    assert_eq!(mark.get(), EventStatus::Pending);
    drop(copy);
    assert_eq!(mark.get(), EventStatus::Failed);
}

#[test]
fn a_user_event_that_is_dropped_completes_where_it_cannot_fail() {
    let device = Scripted::new();
    let gate = device.create_user_event().unwrap();
    let mark = gate.mark().clone();
    device.fail(Call::Resolve);
    let lines = logged(LevelFilter::TRACE, || drop(gate));
    assert_eq!((mark.get(), lines.len()), (EventStatus::Complete, 0));
}

#[test]
fn a_user_event_that_cannot_be_resolved_as_it_is_dropped_is_in_the_log() {
    let device = Scripted::new();
    let gate = device.create_user_event().unwrap();
    device.fail(Call::Resolve);
    device.fail(Call::Resolve);
    let lines = logged(LevelFilter::TRACE, || drop(gate));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("ERROR"), "{lines:?}");
    assert!(device.has_acted());
}

#[test]
fn a_user_event_that_is_resolved_is_left_alone_as_it_is_dropped() {
    let device = Scripted::new();
    let gate = device.create_user_event().unwrap();
    let mark = gate.mark().clone();
    device.resolve_user_event(&gate, Outcome::Complete).unwrap();
    device.fail(Call::Resolve);
    drop(gate);
    assert_eq!(mark.get(), EventStatus::Complete);
    assert!(!device.has_acted(), "the runtime was asked again");
}

#[test]
fn a_user_event_is_resolved_once_and_no_other_event_is() {
    let (device, [one, _], _) = rig();
    let gate = device.create_user_event().unwrap();
    device.resolve_user_event(&gate, Outcome::Complete).unwrap();
    let again = device.resolve_user_event(&gate.clone(), Outcome::Failed);
    assert_eq!(refusal(again), InvalidRequest::AlreadyResolved);
    assert_eq!(gate.mark().get(), EventStatus::Complete);
    let lost = Scripted::of(FailureOrder::Lost, None);
    let markers = [(&device, &one), (&lost, &in_order(&lost))];
    for (device, queue) in markers {
        let marker = device.enqueue_marker(queue).unwrap();
        let not_one = device.resolve_user_event(&marker, Outcome::Complete);
        assert_eq!(refusal(not_one), InvalidRequest::NotAUserEvent);
        assert_eq!(marker.mark().get(), EventStatus::Pending);
    }
}

#[test]
fn a_user_event_whose_resolution_the_runtime_refuses_may_be_resolved_otherwise() {
    let device = Scripted::new();
    let gate = device.create_user_event().unwrap();
    device.fail(Call::Resolve);
    let refused = device.resolve_user_event(&gate, Outcome::Failed);
    assert!(matches!(refused, Err(Error::Backend(_))));
    assert_eq!(gate.mark().get(), EventStatus::Pending);
    device.resolve_user_event(&gate, Outcome::Complete).unwrap();
    assert_eq!(gate.mark().get(), EventStatus::Complete);
}

#[test]
fn of_two_threads_that_resolve_a_user_event_one_does() {
    let device = Scripted::new();
    let gate = device.create_user_event().unwrap();
    let (clone, same) = (device.clone(), gate.clone());
    device.at(Call::Resolve, move || {
        // As another thread could meanwhile.
        let other = clone.resolve_user_event(&same, Outcome::Failed);
        assert_eq!(refusal(other), InvalidRequest::AlreadyResolved);
        Ok(())
    });
    device.resolve_user_event(&gate, Outcome::Complete).unwrap();
    assert!(device.has_acted());
    assert_eq!(gate.mark().get(), EventStatus::Complete);
}

#[test]
fn an_event_outlives_what_its_command_used() {
    let (device, [one, two], memory) = rig();
    let event = device.enqueue_fill(&one, &memory, LOW, &[1_u8]).unwrap();
    drop((one, two, memory));
    event.mark().set(EventStatus::Complete);
    assert_eq!(device.blocks(), 0);
    event.wait().unwrap();
    drop(device);
    event.wait_for_all_before().unwrap();
}

#[test]
fn a_transfer_that_waits_has_ended_as_it_returns() {
    let (device, [one, _], memory) = rig();
    device.set(|options| options.status = EventStatus::Failed);
    device.write(&one, &memory, 0, &[1_u8]).unwrap_err();
    device.read(&one, &memory, 0, &mut [0_u8]).unwrap_err();
    device.set(|options| options.status = EventStatus::Complete);
    device.write(&one, &memory, 0, &[1_u8]).unwrap();
    device.read(&one, &memory, 0, &mut [0_u8]).unwrap();
    let memory = buffer(&device);
    fill(&device, &one, &memory, LOW);
    drop(memory);
    assert_eq!(device.blocks(), 1, "that of the rig");
    assert_eq!(device.free_bytes(), Some(77));
}
