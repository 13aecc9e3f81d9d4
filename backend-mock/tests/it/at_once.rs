//! At-once completion: what may run has run when the call returns.

use binpool_allocators::{Backend, Outcome, Queue, QueueOrder, Region};
use binpool_mock::Completion;

use crate::common::{Rig, is_complete, is_pending};

#[test]
fn a_command_has_run_when_its_enqueue_returns() {
    let rig = Rig::new(Completion::AtOnce);
    let buffer = rig.buffer(64);
    assert!(is_complete(&rig.fill(&buffer, 7, &[])));
    assert_eq!(rig.device.pending_commands(), 0);
    assert_eq!(rig.contents(&buffer), [7; 64]);
}

#[test]
fn a_gated_command_and_all_behind_it_run_when_the_gate_opens() {
    let rig = Rig::new(Completion::AtOnce);
    let (gate, buffer) = (rig.gate(), rig.buffer(64));
    let first = rig.fill(&buffer, 1, std::slice::from_ref(&gate));
    let second = rig.fill(&buffer, 2, &[]);
    let other = rig.queue(QueueOrder::OutOfOrder);
    let third = rig
        .backend
        .enqueue_fill(
            other.after(std::slice::from_ref(&second)),
            &buffer,
            Region::first(1),
            &[3_u8],
        )
        .unwrap();
    assert!([&first, &second, &third].into_iter().all(is_pending));
    rig.backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    assert!([&first, &second, &third].into_iter().all(is_complete));
    assert_eq!(rig.contents(&buffer)[..2], [3, 2]);
}

#[test]
fn other_queues_go_on_while_one_is_gated() {
    let rig = Rig::new(Completion::AtOnce);
    let (gate, buffer) = (rig.gate(), rig.buffer(64));
    let gated = rig.fill(&buffer, 1, std::slice::from_ref(&gate));
    let other = rig.queue(QueueOrder::InOrder);
    assert!(is_complete(&rig.fill_on(&other, &buffer, 2, &[])));
    other.finish().unwrap();
    assert!(is_pending(&gated));
    drop(gate);
    assert!(!is_pending(&gated));
}

#[test]
fn transfers_move_their_bytes_and_no_others() {
    let rig = Rig::new(Completion::AtOnce);
    let (source, target) = (rig.buffer(16), rig.buffer(16));
    rig.fill(&source, 0xaa, &[]);
    rig.fill(&target, 0xbb, &[]);
    let backend = &rig.backend;
    backend
        .write(&rig.queue, &source, 4, &[1_u8, 2, 3])
        .unwrap();
    let from = Region::new(3, 5);
    backend
        .enqueue_copy(&rig.queue, &source, from, &target, 8)
        .unwrap();
    backend
        .enqueue_write(&rig.queue, &target, 0, [9, 9].into())
        .unwrap();
    backend
        .enqueue_fill(&rig.queue, &target, Region::new(4, 4), &[5_u8, 6])
        .unwrap();
    let read = backend
        .enqueue_read(&rig.queue, &target, Region::new(0, 14))
        .unwrap();
    assert_eq!(
        read.wait().unwrap(),
        [9, 9, 0xbb, 0xbb, 5, 6, 5, 6, 0xaa, 1, 2, 3, 0xaa, 0xbb]
    );
}

#[test]
fn commands_over_no_bytes_are_ordered_like_any_other() {
    let rig = Rig::new(Completion::AtOnce);
    let (gate, buffer) = (rig.gate(), rig.buffer(64));
    let backend = &rig.backend;
    let empty = Region::new(64, 0);
    rig.fill(&buffer, 1, std::slice::from_ref(&gate));
    let events = [
        backend
            .enqueue_fill(&rig.queue, &buffer, empty, &[1_u8])
            .unwrap(),
        backend
            .enqueue_write(&rig.queue, &buffer, 64, [].into())
            .unwrap(),
        backend
            .enqueue_copy(&rig.queue, &buffer, empty, &buffer, 64)
            .unwrap(),
    ];
    let read = backend.enqueue_read(&rig.queue, &buffer, empty).unwrap();
    assert!(events.iter().all(is_pending) && is_pending(read.event()));
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    assert!(events.iter().all(is_complete));
    assert_eq!(read.wait().unwrap(), [0_u8; 0]);
    backend
        .read::<u8>(&rig.queue, &buffer, 64, &mut [])
        .unwrap();
    backend.write::<u8>(&rig.queue, &buffer, 0, &[]).unwrap();
}

#[test]
fn a_read_that_is_not_waited_for_does_no_harm() {
    let rig = Rig::new(Completion::AtOnce);
    let (gate, buffer) = (rig.gate(), rig.buffer(64));
    let wait_for = std::slice::from_ref(&gate);
    drop(
        rig.backend
            .enqueue_read(rig.queue.after(wait_for), &buffer, Region::first(64))
            .unwrap(),
    );
    drop(buffer);
    rig.backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    drop(gate);
    assert_eq!(rig.device.live_events(), 0);
    assert_eq!(rig.device.statistics().live_blocks, 0);
}

#[test]
fn copies_between_overlapping_views_read_before_they_write() {
    let rig = Rig::new(Completion::AtOnce);
    let root = rig.buffer(1024);
    rig.fill(&root, 1, &[]);
    let low = rig
        .backend
        .create_sub_region(&root, Region::new(256, 512))
        .unwrap();
    let high = rig
        .backend
        .create_sub_region(&root, Region::new(512, 256))
        .unwrap();
    let pattern: Vec<u8> = (0..128).collect();
    let all = Region::first(256);
    rig.backend
        .enqueue_fill(&rig.queue, &high, all, &pattern)
        .unwrap();
    let from = Region::first(256);
    rig.backend
        .enqueue_copy(&rig.queue, &high, from, &low, 128)
        .unwrap();
    let bytes = rig.contents(&root);
    assert_eq!(bytes[..384], [1; 384]);
    assert_eq!(bytes[384..640], pattern.repeat(2));
    assert_eq!(bytes[640..768], pattern);
    assert_eq!(bytes[768..], [1; 256]);
}
