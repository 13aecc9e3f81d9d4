//! Kernels are host closures that may do anything, and do not hurt the device.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

use binpool_allocators::{
    AsMemory, Backend, Event, Memory, MemoryFlags, Outcome, Queue, QueueOrder, Region,
};
use binpool_conformance::part_of;
use binpool_mock::{CallKind, Completion, Fault, MockBackend, MockDevice, Persistence};

use crate::common::{Rig, cause, code, has_failed, is_complete, is_pending};

#[test]
fn a_kernel_is_given_its_arguments_in_order() {
    let rig = Rig::new(Completion::AtOnce);
    let root = rig.buffer(1024);
    let [one, two] = [256, 512].map(|offset| {
        rig.backend
            .create_sub_region(&root, Region::new(offset, 256))
            .unwrap()
    });
    let (sum, copy) = (rig.buffer(256), rig.buffer(256));
    rig.fill(&one, 1, &[]);
    rig.fill(&two, 2, &[]);
    rig.fill(&sum, 100, &[]);
    rig.backend
        .launch(
            &rig.queue,
            String::from("add"),
            &[&one, &two, &one],
            &[&sum, &copy],
            |reads, writes| {
                for index in 0..256 {
                    writes[0][index] += reads[0][index] + reads[1][index] + reads[2][index];
                }
                let (sum, copy) = writes.split_at_mut(1);
                copy[0].copy_from_slice(sum[0]);
            },
        )
        .unwrap();
    assert_eq!(rig.contents(&sum), [104; 256]);
    assert_eq!(rig.contents(&copy), [104; 256]);
}

#[test]
fn a_kernel_is_given_the_bytes_of_its_parts() {
    let rig = Rig::new(Completion::AtOnce);
    let root = rig.buffer(1024);
    let numbers: Vec<u8> = (0..=255).cycle().take(1024).collect();
    rig.backend.write(&rig.queue, &root, 0, &numbers).unwrap();
    let view = rig.backend.create_sub_region(&root, Region::new(512, 512));
    let view = view.unwrap();
    let (read, written) = (
        part_of(&root, Region::new(3, 100)),
        part_of(&view, Region::new(5, 100)),
    );
    let (queue, backend) = (&rig.queue, &rig.backend);
    let launch = backend.launch(queue, "move", &[&read], &[&written], |reads, writes| {
        writes[0].copy_from_slice(reads[0]);
    });
    launch.unwrap();
    let mut expected = numbers;
    expected.copy_within(3..103, 517);
    assert_eq!(rig.contents(&root), expected);
    // It uses the part: a kernel may have another one.
    backend.enqueue_use(queue, &read).unwrap();
    let both: [&dyn AsMemory<_>; 2] = [&read, &written];
    backend.launch(queue, "two", &[], &both, |_, _| {}).unwrap();
    let beyond = part_of(&view, Region::new(5, 508));
    assert!(backend.enqueue_use(queue, &beyond).is_err());
    assert_eq!(rig.contents(&root), expected);
}

type Arguments<'a> = Vec<&'a dyn AsMemory<MockBackend>>;

#[test]
fn a_kernel_must_not_write_what_another_argument_shares() {
    let rig = Rig::new(Completion::AtOnce);
    let root = rig.buffer(1024);
    let view = rig
        .backend
        .create_sub_region(&root, Region::new(256, 256))
        .unwrap();
    let beside = rig
        .backend
        .create_sub_region(&root, Region::new(512, 256))
        .unwrap();
    let launch = |reads: &[&dyn AsMemory<_>], writes: &[&dyn AsMemory<_>]| {
        rig.backend
            .launch(&rig.queue, "k", reads, writes, |_, _| {})
    };
    let cases: [(Arguments<'_>, Arguments<'_>, _, _); 4] = [
        (vec![&view], vec![&root], 1, 0),
        (vec![&beside], vec![&view, &root], 2, 0),
        (vec![], vec![&view, &root], 1, 0),
        (vec![], vec![&view, &view], 1, 0),
    ];
    for (reads, writes, write, other) in cases {
        let error = launch(&reads, &writes).unwrap_err();
        let expected =
            format!("kernel k writes argument {write}, which shares bytes with argument {other}");
        assert!(cause(&error).contains(&expected), "{error:?}");
        assert_eq!(code(&error), Some(-50));
    }
    launch(&[&view], &[&beside]).unwrap();
    launch(&[&view, &root], &[]).unwrap();
}

#[test]
fn a_kernel_that_panics_fails_alone() {
    let rig = Rig::new(Completion::AtOnce);
    let buffer = rig.buffer(4);
    let kernel = rig
        .backend
        .launch(&rig.queue, "bad", &[], &[&buffer], |_, _| {
            panic!("out of luck")
        })
        .unwrap();
    let error = kernel.wait().unwrap_err();
    assert!(
        cause(&error).ends_with("(bad) panicked: out of luck"),
        "{error:?}"
    );
    rig.fill(&buffer, 1, &[]).wait().unwrap();
    rig.queue.finish().unwrap();
    assert_eq!(rig.contents(&buffer), [1; 4]);
    drop((buffer, kernel));
    assert_eq!(rig.device.statistics().live_blocks, 0);
    assert_eq!(rig.device.live_events(), 0);
}

#[test]
fn what_a_kernel_enqueues_runs_after_it() {
    let rig = Rig::new(Completion::AtOnce);
    let buffer = Arc::new(rig.buffer(4));
    let (backend, queue, inner) = (
        rig.backend.clone(),
        rig.queue(QueueOrder::OutOfOrder),
        Arc::clone(&buffer),
    );
    let (report, reported) = mpsc::channel();
    let kernel = move |_: &[&[u8]], writes: &mut [&mut [u8]]| {
        let fill = backend
            .enqueue_fill(&queue, &inner, Region::first(4), &[2_u8])
            .unwrap();
        let fresh = backend.create_buffer(16, MemoryFlags::empty()).unwrap();
        let wait = fill.wait().unwrap_err();
        let commit = backend.commit(&queue, &fresh).unwrap_err();
        writes[0].fill(1);
        report.send((is_pending(&fill), wait, commit)).unwrap();
    };
    rig.backend
        .launch(&rig.queue, "outer", &[], &[&buffer], kernel)
        .unwrap();
    let (was_pending, wait, commit) = reported.recv().unwrap();
    assert!(was_pending);
    for error in [wait, commit] {
        let expected = "a kernel cannot wait for commands of the device that runs it";
        assert_eq!(cause(&error), expected);
    }
    assert_eq!(rig.contents(&buffer), [2; 4]);
    assert_eq!(rig.device.pending_commands(), 0);
}

#[test]
fn a_kernel_that_never_runs_may_hold_what_it_likes() {
    let rig = Rig::new(Completion::AtOnce);
    let (gate, held) = (rig.gate(), rig.buffer(4));
    let (queue, event) = (rig.queue(QueueOrder::InOrder), rig.gate());
    let kernel = rig
        .backend
        .launch(
            rig.queue.after(std::slice::from_ref(&gate)),
            "k",
            &[],
            &[],
            move |_, _| drop((held, queue, event)),
        )
        .unwrap();
    rig.backend
        .resolve_user_event(&gate, Outcome::Failed)
        .unwrap();
    assert!(has_failed(&kernel));
    assert_eq!(rig.device.statistics().live_blocks, 0);
    assert_eq!((rig.device.live_queues(), rig.device.live_events()), (1, 2));
}

#[test]
fn a_launch_that_is_refused_drops_what_its_kernel_holds() {
    let rig = Rig::on(MockDevice::builder().capacity_bytes(100));
    let (buffer, large) = (rig.buffer(4), rig.buffer(100));
    rig.fill(&buffer, 1, &[]);
    let launch = |arguments: &[_]| {
        let held = (rig.buffer(4), rig.queue(QueueOrder::InOrder), rig.gate());
        let kernel = move |_: &[&[u8]], _: &mut [&mut [u8]]| drop(held);
        rig.backend
            .launch(&rig.queue, "k", &[], arguments, kernel)
            .unwrap_err()
    };
    launch(&[&buffer, &buffer]);
    assert!(launch(&[&large]).is_out_of_memory());
    rig.device
        .fail_nth(CallKind::Launch, 1, Fault::Backend(-1), Persistence::Once);
    launch(&[&buffer]);
    assert_eq!(rig.device.statistics().live_blocks, 2);
    assert_eq!((rig.device.live_queues(), rig.device.live_events()), (1, 0));
}

#[test]
fn kernels_run_on_several_threads_at_a_time() {
    let rig = Rig::new(Completion::AtOnce);
    // Each kernel waits until the other runs too.
    let meeting = Arc::new(std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (queue, buffer) = (rig.queue(QueueOrder::InOrder), rig.buffer(4));
                let meeting = Arc::clone(&meeting);
                let kernel = move |_: &[&[u8]], writes: &mut [&mut [u8]]| {
                    meeting.wait();
                    writes[0].fill(1);
                };
                let event = rig
                    .backend
                    .launch(&queue, "meet", &[], &[&buffer], kernel)
                    .unwrap();
                event.wait().unwrap();
                assert!(is_complete(&event));
            });
        }
    });
}

#[test]
fn kernels_on_one_block_never_touch_it_at_the_same_time() {
    let rig = Rig::on(MockDevice::builder());
    let counter = rig.buffer(8);
    let inside = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let queue = rig.queue(QueueOrder::OutOfOrder);
                for _ in 0..100 {
                    let inside = Arc::clone(&inside);
                    let kernel = move |_: &[&[u8]], writes: &mut [&mut [u8]]| {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        let bytes: [u8; 8] = (&*writes[0]).try_into().unwrap();
                        writes[0].copy_from_slice(&(u64::from_ne_bytes(bytes) + 1).to_ne_bytes());
                        inside.fetch_sub(1, Ordering::SeqCst);
                    };
                    let event = rig
                        .backend
                        .launch(&queue, "count", &[], &[&counter], kernel)
                        .unwrap();
                    event.wait().unwrap();
                }
            });
        }
    });
    assert_eq!(rig.contents(&counter), 400u64.to_ne_bytes());
    assert_eq!(counter.bytes(), 8);
}
