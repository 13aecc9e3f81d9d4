//! User events: gates that the host opens.

use std::{sync::mpsc, thread};

use binpool_allocators::{Backend, Error, Event, EventStatus, InvalidRequest, Outcome, Queue};
use binpool_mock::{CallKind, Completion, Failures, HostWait, MockDevice};

use crate::common::{MIB, Rig, cause, code, has_failed, is_pending};

#[test]
fn a_user_event_is_resolved_once() {
    let rig = Rig::new(Completion::AtOnce);
    for (outcome, status) in [
        (Outcome::Complete, EventStatus::Complete),
        (Outcome::Failed, EventStatus::Failed),
    ] {
        let gate = rig.gate();
        assert!(is_pending(&gate));
        rig.backend.resolve_user_event(&gate, outcome).unwrap();
        assert_eq!(gate.status().unwrap(), status);
        assert_eq!(gate.wait().is_ok(), outcome == Outcome::Complete);
        let error = rig
            .backend
            .resolve_user_event(&gate, Outcome::Complete)
            .unwrap_err();
        assert!(matches!(
            error,
            Error::InvalidRequest(InvalidRequest::AlreadyResolved)
        ));
    }
}

#[test]
fn only_user_events_can_be_resolved() {
    let rig = Rig::new(Completion::Manual);
    let buffer = rig.buffer(4);
    let fill = rig.fill(&buffer, 1, &[]);
    let calls = rig.device.call_count(CallKind::ResolveUserEvent);
    for _ in 0..2 {
        let error = rig
            .backend
            .resolve_user_event(&fill, Outcome::Complete)
            .unwrap_err();
        assert!(matches!(
            error,
            Error::InvalidRequest(InvalidRequest::NotAUserEvent)
        ));
        rig.device.run();
    }
    assert_eq!(rig.device.call_count(CallKind::ResolveUserEvent), calls);
}

#[test]
fn a_failed_gate_fails_all_that_wait_for_it_and_nothing_else() {
    let rig = Rig::new(Completion::AtOnce);
    let (gate, buffer) = (rig.gate(), rig.buffer(4));
    let direct = rig.fill(&buffer, 1, std::slice::from_ref(&gate));
    let indirect = rig.fill(&buffer, 2, std::slice::from_ref(&direct));
    let behind = rig.fill(&buffer, 3, &[]);
    rig.backend
        .resolve_user_event(&gate, Outcome::Failed)
        .unwrap();
    assert!(has_failed(&direct) && has_failed(&indirect));
    // The order of a queue passes no failure on.
    behind.wait().unwrap();
    assert_eq!(rig.contents(&buffer), [3; 4]);
    let error = indirect.wait().unwrap_err();
    let told = cause(&error);
    let expected = format!(
        "command 2 (enqueue_fill) waited for event {}, which failed",
        direct.id()
    );
    assert!(told.ends_with(&expected), "{told}");
    // Finishing is about ending, not about ending well.
    rig.queue.finish().unwrap();
}

#[test]
fn a_command_enqueued_after_the_failure_fails_too() {
    let rig = Rig::new(Completion::AtOnce);
    let (gate, buffer) = (rig.gate(), rig.buffer(4));
    rig.backend
        .resolve_user_event(&gate, Outcome::Failed)
        .unwrap();
    let fill = rig.fill(&buffer, 1, std::slice::from_ref(&gate));
    assert!(has_failed(&fill));
    let mut bytes = [0_u8; 4];
    let read = rig
        .backend
        .read(rig.queue.after(&[gate]), &buffer, 0, &mut bytes);
    assert_eq!(code(&read.unwrap_err()), Some(-14));
    assert_eq!(rig.device.pending_commands(), 0);
}

#[test]
fn a_long_chain_fails_without_recursion() {
    let rig = Rig::new(Completion::AtOnce);
    let (gate, buffer) = (rig.gate(), rig.buffer(1));
    let mut last = rig.fill(&buffer, 1, std::slice::from_ref(&gate));
    for _ in 0..100_000 {
        last = rig.fill(&buffer, 1, std::slice::from_ref(&last));
    }
    rig.backend
        .resolve_user_event(&gate, Outcome::Failed)
        .unwrap();
    assert!(has_failed(&last));
    assert_eq!(rig.device.pending_commands(), 0);
}

#[test]
fn waits_that_nothing_ends_are_reported_and_have_no_effect() {
    let completions = [
        Completion::AtOnce,
        Completion::Manual,
        Completion::Seeded(3),
    ];
    // Whatever a device does after a failure: here nothing has failed.
    for (completion, failures) in completions
        .into_iter()
        .flat_map(|completion| Failures::ALL.map(|failures| (completion, failures)))
    {
        let device = MockDevice::builder().completion(completion);
        let rig = Rig::on(device.failures(failures));
        let (gate, buffer) = (rig.gate(), rig.buffer(4));
        let fill = rig.fill(&buffer, 1, std::slice::from_ref(&gate));
        let mut bytes = [0_u8; 4];
        let errors = [
            gate.wait().unwrap_err(),
            fill.wait().unwrap_err(),
            rig.queue.finish().unwrap_err(),
            rig.backend.commit(&rig.queue, &buffer).unwrap_err(),
            rig.backend
                .write(&rig.queue, &buffer, 0, &[1_u8])
                .unwrap_err(),
            rig.backend
                .read(&rig.queue, &buffer, 0, &mut bytes)
                .unwrap_err(),
        ];
        for error in &errors {
            let (told, expected) = (cause(error), format!("waits for user event {}", gate.id()));
            assert!(told.contains(&expected), "{told}");
        }
        assert_eq!(rig.device.pending_commands(), 1);
        rig.backend
            .resolve_user_event(&gate, Outcome::Complete)
            .unwrap();
        rig.queue.finish().unwrap();
        assert_eq!(rig.contents(&buffer), [1; 4]);
    }
}

#[test]
fn a_blocking_host_waits_for_the_thread_that_opens_the_gate() {
    for completion in [
        Completion::AtOnce,
        Completion::Manual,
        Completion::Seeded(3),
    ] {
        let rig = Rig::on(
            MockDevice::builder()
                .completion(completion)
                .host_waits(HostWait::Block),
        );
        let (gate, buffer) = (rig.gate(), rig.buffer(4));
        rig.fill(&buffer, 1, std::slice::from_ref(&gate));
        let (about_to_wait, waiting) = mpsc::channel();
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut bytes = [0_u8; 4];
                about_to_wait.send(()).unwrap();
                rig.backend
                    .read(&rig.queue, &buffer, 0, &mut bytes)
                    .unwrap();
                bytes
            });
            waiting.recv().unwrap();
            rig.backend
                .resolve_user_event(&gate, Outcome::Complete)
                .unwrap();
            assert_eq!(reader.join().unwrap(), [1; 4]);
        });
    }
}

#[test]
fn events_without_a_handle_are_forgotten() {
    let rig = Rig::on(MockDevice::builder().capacity_bytes(MIB as u64));
    let (gate, buffer) = (rig.gate(), rig.buffer(4));
    for _ in 0..10 {
        rig.fill(&buffer, 1, std::slice::from_ref(&gate));
    }
    assert_eq!(rig.device.live_events(), 11);
    rig.backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    assert_eq!(rig.device.live_events(), 1);
    drop(gate);
    drop(rig.gate());
    assert_eq!(rig.device.live_events(), 0);
}
