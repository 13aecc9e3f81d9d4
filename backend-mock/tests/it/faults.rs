//! Calls that fail because a test says so.

use binpool_allocators::{
    Backend, Error, Event, Memory, MemoryFlags, Outcome, Queue, QueueOrder, Region, Result,
    SvmBackend, SvmGrain, VirtualMemory,
};
use binpool_mock::{CallKind, Completion, Fault, Persistence};

use crate::common::{Rig, cause};

/// A program that makes every kind of call once, and goes on whatever fails.
fn every_call(rig: &Rig) -> Vec<Result<()>> {
    let backend = &rig.backend;
    let mut results = Vec::new();
    let mut note = |result: Result<()>| results.push(result);
    let queue = &rig.queue;
    note(backend.create_queue(QueueOrder::OutOfOrder).map(drop));
    let user = backend.create_user_event();
    let buffer = backend.create_buffer(1024, MemoryFlags::empty());
    if let Ok(buffer) = &buffer {
        let all = Region::first(1024);
        note(
            backend
                .create_sub_region(buffer, Region::first(256))
                .and_then(|view| backend.release(view, &[])),
        );
        note(backend.commit(queue, buffer));
        note(backend.write(queue, buffer, 0, &[1_u8]));
        note(backend.read(queue, buffer, 0, &mut [0_u8]));
        note(
            backend
                .enqueue_write(queue, buffer, 0, [1].into())
                .map(drop),
        );
        note(backend.enqueue_read(queue, buffer, all).map(drop));
        let (from, to) = (Region::first(4), 4);
        note(
            backend
                .enqueue_copy(queue, buffer, from, buffer, to)
                .map(drop),
        );
        note(backend.enqueue_fill(queue, buffer, all, &[1_u8]).map(drop));
        note(
            backend
                .launch(queue, "k", &[buffer], &[], |_, _| {})
                .map(drop),
        );
    }
    let reservation = backend.reserve(1);
    let pages = backend.create_pages(1);
    if let (Ok(reservation), Ok(pages)) = (&reservation, &pages) {
        note(backend.map(reservation, 0, pages));
        let all = Region::first(pages.bytes());
        note(backend.unmap(reservation, all));
    }
    note(reservation.map(drop));
    note(pages.map(drop));
    note(backend.enqueue_marker(queue).map(drop));
    note(backend.enqueue_barrier(queue).map(drop));
    if let Ok(user) = &user {
        note(user.status().map(drop));
        note(backend.resolve_user_event(user, Outcome::Complete));
        // As the program's last resort, in case that failed.
        let _resolved_before = backend.resolve_user_event(user, Outcome::Complete);
        note(user.wait());
    }
    note(user.map(drop));
    note(queue.flush());
    note(queue.finish());
    note(buffer.and_then(|buffer| backend.release(buffer, &[])));
    note(
        backend
            .allocate_svm(64, None, SvmGrain::Coarse, None)
            .and_then(|block| {
                let address = backend.svm_address(&block).unwrap();
                let _handle = block.into_handle();
                let result = backend.free_svm_address(address);
                if result.is_err() {
                    backend.free_svm_address(address)?;
                }
                result
            }),
    );
    results
}

#[test]
fn the_program_of_these_tests_makes_every_kind_of_call() {
    let rig = Rig::new(Completion::AtOnce);
    assert!(every_call(&rig).iter().all(Result::is_ok));
    for kind in CallKind::ALL {
        assert!(rig.device.call_count(*kind) > 0, "{kind}");
    }
}

#[test]
fn every_call_can_fail_in_every_way_and_leaves_nothing_behind() {
    let faults = [Fault::OutOfMemory, Fault::Backend(-5555), Fault::DeviceLost];
    for fault in faults {
        for kind in CallKind::ALL {
            let rig = Rig::new(Completion::AtOnce);
            rig.device.fail_nth(*kind, 1, fault, Persistence::Once);
            let results = every_call(&rig);
            let error = results.into_iter().find_map(Result::err);
            let error = error.unwrap_or_else(|| panic!("{kind} did not fail"));
            let expected = match fault {
                Fault::OutOfMemory => error.is_out_of_memory(),
                Fault::Backend(code) => {
                    matches!(&error, Error::Backend(failure)
                        if failure.code == Some(code) && failure.operation == kind.name())
                }
                _ => matches!(error, Error::DeviceLost { .. }),
            };
            assert!(expected, "{kind}: {error:?}");
            assert_eq!(cause(&error), format!("an injected fault, in {kind}"));
            let leaks = rig.device.leaks();
            assert!(
                leaks.memory.is_empty() && leaks.events == 0,
                "{kind}: {leaks}"
            );
            assert_eq!(rig.device.statistics().committed_bytes, 0, "{kind}");
            assert!(rig.device.violations().is_empty(), "{kind}");
        }
    }
}

#[test]
fn the_nth_call_is_counted_from_now_on_and_the_next_succeeds() {
    let rig = Rig::new(Completion::AtOnce);
    let create = || rig.backend.create_buffer(4, MemoryFlags::empty()).is_ok();
    assert!(create());
    rig.device.fail_nth(
        CallKind::CreateBuffer,
        2,
        Fault::OutOfMemory,
        Persistence::Once,
    );
    rig.backend.enqueue_marker(&rig.queue).unwrap();
    assert_eq!([(); 4].map(|()| create()), [true, false, true, true]);
}

#[test]
fn a_lasting_fault_lasts_until_it_is_cleared() {
    let rig = Rig::new(Completion::AtOnce);
    let create = || rig.backend.create_buffer(4, MemoryFlags::empty()).is_ok();
    rig.device.fail_nth(
        CallKind::CreateBuffer,
        2,
        Fault::Backend(-1),
        Persistence::Forever,
    );
    assert_eq!([(); 4].map(|()| create()), [true, false, false, false]);
    rig.backend.enqueue_marker(&rig.queue).unwrap();
    rig.device.clear_faults();
    assert!(create());
}

#[test]
fn of_several_faults_of_a_call_the_first_decides_and_each_counts_the_call() {
    let rig = Rig::new(Completion::AtOnce);
    let fail = |n, code, persistence| {
        let fault = Fault::Backend(code);
        rig.device
            .fail_nth(CallKind::CreateBuffer, n, fault, persistence);
    };
    fail(2, -1, Persistence::Once);
    fail(2, -2, Persistence::Forever);
    rig.device
        .fail_nth_any(4, Fault::Backend(-3), Persistence::Once);
    fail(5, -4, Persistence::Once);
    let code_of = |error: Error| match error {
        Error::Backend(failure) => failure.code.unwrap(),
        error => panic!("{error:?}"),
    };
    let create = || rig.backend.create_buffer(4, MemoryFlags::empty());
    let codes = [(); 5].map(|()| create().map_or_else(code_of, |_| 0));
    assert_eq!(codes, [0, -1, -2, -2, -2]);
}

#[test]
fn any_call_can_be_the_nth() {
    let rig = Rig::new(Completion::AtOnce);
    let calls = {
        let before = rig.device.statistics().total_calls();
        every_call(&rig);
        rig.device.statistics().total_calls() - before
    };
    for n in 1..=calls {
        let rig = Rig::new(Completion::AtOnce);
        rig.device
            .fail_nth_any(n, Fault::Backend(-1), Persistence::Once);
        every_call(&rig);
        assert!(rig.device.leaks().memory.is_empty(), "call {n}");
        rig.device.clear_faults();
        assert!(every_call(&rig).iter().all(Result::is_ok), "call {n}");
    }
}

#[test]
fn random_faults_strike_about_as_often_as_asked_and_the_same_way_for_a_seed() {
    let run = |seed| {
        let rig = Rig::new(Completion::AtOnce);
        rig.device
            .fail_randomly(CallKind::CreateBuffer, 0.25, seed, Fault::OutOfMemory);
        (0..1000)
            .map(|_| rig.backend.create_buffer(4, MemoryFlags::empty()).is_err())
            .collect::<Vec<_>>()
    };
    let failures = run(1).iter().filter(|failed| **failed).count();
    assert!((200..300).contains(&failures), "{failures}");
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn probabilities_of_nothing_and_of_all() {
    let rig = Rig::new(Completion::AtOnce);
    rig.device.fail_randomly(None, 0.0, 1, Fault::DeviceLost);
    assert!(every_call(&rig).iter().all(Result::is_ok));
    rig.device.fail_randomly(None, 1.0, 1, Fault::DeviceLost);
    assert!(every_call(&rig).iter().all(Result::is_err));
}

#[test]
fn a_release_that_fails_gives_the_memory_back_all_the_same() {
    let rig = Rig::new(Completion::AtOnce);
    rig.device.fail_nth(
        CallKind::Release,
        1,
        Fault::Backend(-1),
        Persistence::Forever,
    );
    let (dropped, released) = (rig.buffer(4), rig.buffer(4));
    rig.fill(&dropped, 1, &[]);
    drop(dropped);
    assert!(rig.backend.release(released, &[]).is_err());
    let statistics = rig.device.statistics();
    assert_eq!((statistics.live_blocks, statistics.committed_bytes), (0, 0));
    assert_eq!(statistics.failed_releases, 2);
    assert_eq!(statistics.injected_faults, 2);
}

#[test]
fn a_failed_enqueue_enqueues_and_commits_nothing() {
    let rig = Rig::new(Completion::Manual);
    let buffer = rig.buffer(64);
    rig.device
        .fail_nth(CallKind::Fill, 1, Fault::Backend(-1), Persistence::Once);
    let fill = rig
        .backend
        .enqueue_fill(&rig.queue, &buffer, Region::first(64), &[1_u8]);
    assert!(fill.is_err());
    assert_eq!(
        (rig.device.pending_commands(), rig.device.live_events()),
        (0, 0)
    );
    assert_eq!(rig.device.statistics().committed_bytes, 0);
}
