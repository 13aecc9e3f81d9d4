//! The end of a backend: it waits for its commands, and leaks what they use if they cannot end.

use std::sync::{Arc, atomic::Ordering};

use binpool_allocators::EventStatus;
use tracing_subscriber::filter::LevelFilter;

use super::{LOW, buffer, device::Scripted, fill, in_order, launch_on, rig};
use crate::log::logged;

#[test]
fn a_backend_ends_with_its_last_object_and_frees_everything() {
    let (device, [one, two], memory) = rig();
    let count = device.count();
    let used = fill(&device, &one, &memory, LOW);
    drop((device, one, memory));
    assert_eq!(count.load(Ordering::Relaxed), 1);
    used.set(EventStatus::Complete);
    drop(two);
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[test]
fn the_end_waits_for_every_command_that_can_end() {
    let lines = logged(LevelFilter::TRACE, || {
        let (device, [one, two], memory) = rig();
        let count = device.count();
        let ended = fill(&device, &one, &buffer(&device), LOW);
        for queue in [&one, &two] {
            fill(&device, queue, &memory, LOW).end_if_waited_for();
        }
        fill(&device, &in_order(&device), &buffer(&device), LOW).end_if_waited_for();
        ended.set(EventStatus::Complete);
        drop((memory, one, two));
        assert!(count.load(Ordering::Relaxed) > 0);
        drop(device);
        assert_eq!(count.load(Ordering::Relaxed), 0);
    });
    assert_eq!(lines, [""; 0]);
}

#[test]
fn memory_is_leaked_if_any_command_cannot_end() {
    // Whichever of three commands, of one block or of several.
    for never in 0..3 {
        for blocks in [1, 3] {
            let mut count = Arc::default();
            let lines = logged(LevelFilter::TRACE, || {
                let device = Scripted::new();
                count = device.count();
                let memory: Vec<_> = (0..blocks).map(|_| buffer(&device)).collect();
                for index in 0..3 {
                    let mark = launch_on(&device, &in_order(&device), &memory[index % blocks]);
                    if index != never {
                        mark.end_if_waited_for();
                    }
                }
            });
            assert_eq!(count.load(Ordering::Relaxed), blocks);
            assert_eq!(lines.len(), 1, "{lines:?}");
            let said = format!(
                "memory is leaked: the backend is dropped before commands that use it can end blocks={blocks}"
            );
            assert!(
                lines[0].contains("WARN") && lines[0].ends_with(&said),
                "{lines:?}"
            );
        }
    }
}

#[test]
fn memory_that_may_not_be_freed_is_leaked() {
    for held in 0..2 {
        let mut count = Arc::default();
        let lines = logged(LevelFilter::TRACE, || {
            let device = Scripted::new();
            count = device.count();
            let memory = [(); 2].map(|()| buffer(&device));
            for one_of in &memory {
                fill(&device, &in_order(&device), one_of, LOW).end_if_waited_for();
            }
            *memory[held].block().unwrap().held.lock() = Some("unmap it");
        });
        assert_eq!(count.load(Ordering::Relaxed), 2);
        assert_eq!(lines.len(), 1, "{lines:?}");
    }
}

#[test]
fn what_may_be_freed_by_the_end_is_not_leaked_with_the_rest() {
    let (device, [one, two], memory) = rig();
    let count = device.count();
    let ended = fill(&device, &one, &buffer(&device), LOW);
    fill(&device, &two, &memory, LOW);
    drop((one, two, memory));
    ended.set(EventStatus::Complete);
    let lines = logged(LevelFilter::WARN, || drop(device));
    assert_eq!(count.load(Ordering::Relaxed), 1);
    assert!(lines[0].ends_with("blocks=1"), "{lines:?}");
}

#[test]
fn what_the_backend_keeps_for_a_command_that_cannot_end_is_leaked() {
    let kept = Arc::new(());
    let (device, [one, _], memory) = rig();
    let never = fill(&device, &one, &memory, LOW);
    device.core().keep_until(Arc::clone(&kept), vec![never]);
    drop((device, one, memory));
    assert_eq!(Arc::strong_count(&kept), 2);
}
