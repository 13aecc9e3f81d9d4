//! Statistics, logs and leak reports.

use binpool_allocators::{Backend, Memory, MemoryKind, Region, SvmBackend, SvmGrain};
use binpool_mock::{CallKind, CommandId, Completion, Holder, LeakReport, MockDevice};

use crate::common::Rig;

#[test]
fn every_call_is_counted_and_refusals_are_not() {
    let rig = Rig::new(Completion::AtOnce);
    let buffer = rig.buffer(64);
    rig.fill(&buffer, 1, &[]);
    assert!(rig.backend.write(&rig.queue, &buffer, 64, &[1_u8]).is_err());
    drop(buffer);
    let statistics = rig.device.statistics();
    let expected = [
        (CallKind::CreateQueue, 1),
        (CallKind::CreateBuffer, 1),
        (CallKind::Release, 1),
        (CallKind::Fill, 1),
    ];
    assert_eq!(statistics.calls.iter().collect::<Vec<_>>(), expected);
    assert_eq!(statistics.total_calls(), 4);
}

#[test]
fn bytes_are_counted_with_their_peaks() {
    let rig = Rig::new(Completion::AtOnce);
    let (one, two) = (rig.buffer(100), rig.buffer(50));
    let svm = rig
        .backend
        .allocate_svm(10, None, SvmGrain::Coarse, None)
        .unwrap();
    let view = rig
        .backend
        .create_sub_region(&one, Region::first(10))
        .unwrap();
    rig.backend.commit(&rig.queue, &two).unwrap();
    drop(two);
    rig.backend.commit(&rig.queue, &view).unwrap();
    let statistics = rig.device.statistics();
    assert_eq!(
        (statistics.created_bytes, statistics.peak_created_bytes),
        (110, 160)
    );
    assert_eq!(
        (statistics.committed_bytes, statistics.peak_committed_bytes),
        (110, 110)
    );
    assert_eq!(
        (statistics.live_blocks, statistics.live_sub_regions),
        (2, 1)
    );
    drop((one, svm, view));
    let statistics = rig.device.statistics();
    assert_eq!(
        (statistics.created_bytes, statistics.committed_bytes),
        (0, 0)
    );
    assert_eq!(
        (statistics.live_blocks, statistics.live_sub_regions),
        (0, 0)
    );
}

#[test]
fn leaks_are_listed_with_the_call_that_made_them() {
    let rig = Rig::new(Completion::Manual);
    let gone = rig.buffer(100);
    let view = rig
        .backend
        .create_sub_region(&gone, Region::first(10))
        .unwrap();
    let svm = rig
        .backend
        .allocate_svm(10, None, SvmGrain::Fine, None)
        .unwrap();
    let block = gone.id();
    drop(gone);
    let pending = rig.buffer(7);
    let event = rig.fill(&pending, 1, &[]);
    drop(pending);
    let report = rig.device.leaks();
    let summary: Vec<_> = report
        .memory
        .iter()
        .map(|memory| {
            (
                memory.bytes,
                memory.view_of,
                memory.created_by_call,
                memory.held_by,
            )
        })
        .collect();
    assert_eq!(
        summary,
        [
            (100, None, 2, Holder::Device),
            (10, Some(block), 3, Holder::Host),
            (10, None, 4, Holder::Host),
            (7, None, 6, Holder::Device),
        ]
    );
    assert_eq!(report.memory[2].kind, MemoryKind::Svm(SvmGrain::Fine));
    assert_eq!((report.bytes(), report.queues, report.events), (117, 1, 1));
    let text = report.to_string();
    for part in [
        "4 blocks and views (117 bytes)",
        "fine-grained SVM",
        "a view of",
        "still in use",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    rig.device.run();
    drop((view, svm, event));
    let Rig {
        device,
        queue,
        backend,
    } = rig;
    drop((queue, backend));
    assert_eq!(device.leaks(), LeakReport::default());
    assert_eq!(device.leaks().to_string(), "nothing is alive");
}

#[test]
fn forgotten_memory_is_a_leak() {
    let rig = Rig::new(Completion::AtOnce);
    let _handle_that_is_never_released = rig.buffer(64).into_handle();
    assert_eq!(rig.device.leaks().bytes(), 64);
}

#[test]
fn the_log_has_every_call_with_its_command() {
    let rig = Rig::on(MockDevice::builder().log_calls(true).capacity_bytes(100));
    let (small, large) = (rig.buffer(60), rig.buffer(60));
    rig.fill(&small, 1, &[]);
    assert!(rig.backend.commit(&rig.queue, &large).is_err());
    let log: Vec<_> = rig
        .device
        .calls()
        .into_iter()
        .map(|call| {
            (
                call.number,
                call.kind,
                call.bytes,
                call.command.map(CommandId::get),
                call.succeeded,
            )
        })
        .collect();
    assert_eq!(
        log,
        [
            (1, CallKind::CreateQueue, 0, None, true),
            (2, CallKind::CreateBuffer, 60, None, true),
            (3, CallKind::CreateBuffer, 60, None, true),
            (4, CallKind::Fill, 60, Some(1), true),
            (5, CallKind::Commit, 60, None, false),
        ]
    );
    let ended = rig.device.ended_commands();
    assert_eq!(ended.len(), 1);
    assert_eq!(
        (ended[0].id.get(), ended[0].name.as_ref()),
        (1, "enqueue_fill")
    );
}

#[test]
fn nothing_is_logged_unless_asked_for() {
    let rig = Rig::new(Completion::AtOnce);
    let buffer = rig.buffer(60);
    rig.fill(&buffer, 1, &[]);
    assert!(rig.device.calls().is_empty() && rig.device.ended_commands().is_empty());
}
