//! Manual completion: nothing runs before the test says so.

use binpool_allocators::{Backend, Event, Outcome, Queue, QueueOrder};
use binpool_mock::Completion;

use crate::common::{Rig, cause, is_complete, is_pending};

#[test]
fn steps_run_the_oldest_first() {
    let rig = Rig::new(Completion::Manual);
    let buffer = rig.buffer(4);
    let other = rig.queue(QueueOrder::InOrder);
    let first = rig.fill(&buffer, 1, &[]);
    let second = rig.fill_on(&other, &buffer, 2, &[]);
    assert!(rig.device.step());
    assert!(is_complete(&first) && is_pending(&second));
    assert!(rig.device.step());
    assert!(is_complete(&second));
    assert!(!rig.device.step());
}

#[test]
fn the_test_picks_among_legal_commands_only() {
    let rig = Rig::new(Completion::Manual);
    let buffer = rig.buffer(4);
    let other = rig.queue(QueueOrder::InOrder);
    let first = rig.fill(&buffer, 1, &[]);
    let behind = rig.fill(&buffer, 2, &[]);
    let elsewhere = rig.fill_on(&other, &buffer, 3, &[]);
    let runnable = rig.device.runnable();
    assert_eq!(
        runnable.iter().map(|id| id.get()).collect::<Vec<_>>(),
        [1, 3]
    );
    assert!(rig.device.run_command(runnable[1]));
    assert!(is_complete(&elsewhere) && is_pending(&first));
    // It has run before.
    assert!(!rig.device.run_command(runnable[1]));
    assert_eq!(rig.device.run(), 2);
    assert!(is_complete(&behind));
    assert_eq!(rig.contents(&buffer), [2; 4]);
}

#[test]
fn a_host_wait_runs_what_it_needs_and_nothing_else() {
    let rig = Rig::new(Completion::Manual);
    let (one, two) = (rig.buffer(4), rig.buffer(4));
    let [other, unordered] =
        [QueueOrder::InOrder, QueueOrder::OutOfOrder].map(|order| rig.queue(order));
    let unrelated = rig.fill_on(&other, &two, 1, &[]);
    let needed = rig.fill_on(&unordered, &one, 1, &[]);
    let beside = rig.fill_on(&unordered, &two, 2, &[]);
    let awaited = rig.fill(&one, 2, std::slice::from_ref(&needed));
    let behind = rig.fill(&one, 3, &[]);
    awaited.wait().unwrap();
    assert!(is_complete(&needed) && is_complete(&awaited));
    assert!([&unrelated, &beside, &behind].into_iter().all(is_pending));
    unordered.finish().unwrap();
    assert!(is_complete(&beside) && is_pending(&unrelated) && is_pending(&behind));
    rig.queue.finish().unwrap();
    assert!(is_complete(&behind) && is_pending(&unrelated));
}

#[test]
fn blocking_calls_drive_the_device() {
    let rig = Rig::new(Completion::Manual);
    let buffer = rig.buffer(4);
    rig.fill(&buffer, 1, &[]);
    rig.backend.write(&rig.queue, &buffer, 0, &[9_u8]).unwrap();
    let mut bytes = [0_u8; 4];
    rig.backend
        .read(&rig.queue, &buffer, 0, &mut bytes)
        .unwrap();
    assert_eq!(bytes, [9, 1, 1, 1]);
    rig.fill(&buffer, 1, &[]);
    rig.backend.commit(&rig.queue, &buffer).unwrap();
    assert_eq!(rig.device.pending_commands(), 0);
}

#[test]
fn released_buffers_live_until_their_commands_have_ended() {
    let rig = Rig::new(Completion::Manual);
    let buffer = rig.buffer(100);
    rig.fill(&buffer, 1, &[]);
    let marker = rig.backend.enqueue_marker(&rig.queue).unwrap();
    rig.backend
        .release(buffer, std::slice::from_ref(&marker))
        .unwrap();
    assert_eq!(rig.device.statistics().committed_bytes, 100);
    assert!(rig.device.step());
    assert_eq!(rig.device.statistics().live_blocks, 1);
    assert!(rig.device.step());
    assert_eq!(rig.device.statistics().live_blocks, 0);
    assert_eq!(rig.device.statistics().committed_bytes, 0);
    assert!(rig.device.violations().is_empty());
}

#[test]
fn a_release_waits_for_events_that_fail_too() {
    let rig = Rig::new(Completion::Manual);
    let (gate, buffer) = (rig.gate(), rig.buffer(100));
    rig.backend
        .release(buffer, &[gate.clone(), gate.clone()])
        .unwrap();
    assert_eq!(rig.device.statistics().live_blocks, 1);
    rig.backend
        .resolve_user_event(&gate, Outcome::Failed)
        .unwrap();
    assert_eq!(rig.device.statistics().live_blocks, 0);
}

#[test]
fn dropping_a_queue_lets_its_commands_go_on() {
    let rig = Rig::new(Completion::Manual);
    let (buffer, other) = (rig.buffer(4), rig.queue(QueueOrder::InOrder));
    let fill = rig.fill_on(&other, &buffer, 1, &[]);
    drop(other);
    assert_eq!(rig.device.live_queues(), 2);
    fill.wait().unwrap();
    assert_eq!(rig.device.live_queues(), 1);
    assert_eq!(rig.contents(&buffer), [1; 4]);
}

#[test]
fn an_endless_wait_runs_what_it_can_and_then_names_the_gate() {
    let rig = Rig::new(Completion::Manual);
    let (gate, buffer) = (rig.gate(), rig.buffer(4));
    let first = rig.fill(&buffer, 1, &[]);
    let second = rig.fill(&buffer, 2, std::slice::from_ref(&gate));
    let error = rig.queue.finish().unwrap_err();
    let expected = format!(
        "command 2 (enqueue_fill) waits for user event {}",
        gate.id()
    );
    assert!(cause(&error).contains(&expected), "{error:?}");
    assert!(is_complete(&first) && is_pending(&second));
}
