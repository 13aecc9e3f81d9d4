//! Buffers are promised first, and committed by the first command that uses them.

use binpool_allocators::{AsMemory, Backend, Error, MemoryFlags, OutOfMemory, Region, Scope};
use binpool_mock::{Completion, MockDevice};

use crate::common::{MIB, Rig, cause};

fn small(capacity: usize) -> Rig {
    Rig::on(MockDevice::builder().capacity_bytes(capacity as u64))
}

fn out_of_memory(error: &Error) -> &OutOfMemory {
    match error {
        Error::OutOfMemory(details) => details,
        other => panic!("{other:?}"),
    }
}

#[test]
fn more_is_promised_than_there_is() {
    let rig = small(MIB);
    let buffers: Vec<_> = (0..400).map(|_| rig.buffer(MIB)).collect();
    let statistics = rig.device.statistics();
    assert_eq!(statistics.created_bytes, 400 * MIB as u64);
    assert_eq!(statistics.committed_bytes, 0);
    drop(buffers);
    assert_eq!(rig.device.statistics().created_bytes, 0);
    assert_eq!(rig.device.statistics().peak_created_bytes, 400 * MIB as u64);
}

#[test]
fn the_first_use_fails_where_there_is_no_room() {
    let rig = small(1000);
    let (first, second) = (rig.buffer(600), rig.buffer(500));
    rig.backend.commit(&rig.queue, &first).unwrap();
    let queue = &rig.queue;
    let byte = Region::first(1);
    let uses: [&dyn Fn() -> Result<(), Error>; 6] = [
        &|| rig.backend.commit(queue, &second),
        &|| rig.backend.write(queue, &second, 0, &[1_u8]),
        &|| rig.backend.read(queue, &second, 0, &mut [0_u8]),
        &|| {
            rig.backend
                .enqueue_fill(queue, &second, byte, &[1_u8])
                .map(drop)
        },
        &|| {
            rig.backend
                .enqueue_copy(queue, &first, byte, &second, 0)
                .map(drop)
        },
        &|| {
            rig.backend
                .launch(queue, "k", &[], &[&second], |_, _| {})
                .map(drop)
        },
    ];
    for attempt in uses {
        let error = attempt().unwrap_err();
        let details = out_of_memory(&error);
        assert_eq!((details.requested, details.available), (500, Some(400)));
        assert_eq!(details.scope, Scope::Device);
        let expected = "MEM_OBJECT_ALLOCATION_FAILURE: 500 B to commit, 400 B free";
        assert_eq!(cause(&error), expected);
    }
    // Nothing was enqueued or taken, and the block is as good as before.
    assert_eq!(rig.device.live_events(), 0);
    assert_eq!(rig.device.statistics().committed_bytes, 600);
    drop(first);
    rig.backend.commit(&rig.queue, &second).unwrap();
}

#[test]
fn a_block_is_committed_once() {
    let rig = small(1000);
    let buffer = rig.buffer(1000);
    for _ in 0..3 {
        rig.backend.commit(&rig.queue, &buffer).unwrap();
        rig.fill(&buffer, 1, &[]);
    }
    assert_eq!(rig.device.statistics().committed_bytes, 1000);
}

#[test]
fn a_view_commits_its_whole_block() {
    let rig = small(1000);
    let root = rig.buffer(1000);
    let view = rig
        .backend
        .create_sub_region(&root, Region::new(256, 1))
        .unwrap();
    assert_eq!(rig.device.statistics().committed_bytes, 0);
    rig.fill(&view, 1, &[]);
    assert_eq!(rig.device.statistics().committed_bytes, 1000);
    drop(root);
    assert_eq!(rig.device.statistics().committed_bytes, 1000);
    drop(view);
    assert_eq!(rig.device.statistics().committed_bytes, 0);
}

#[test]
fn a_command_commits_all_of_its_blocks_or_none() {
    let rig = small(1000);
    let (one, two, three) = (rig.buffer(400), rig.buffer(400), rig.buffer(400));
    let reads: [&dyn AsMemory<_>; 3] = [&one, &one, &two];
    let error = rig
        .backend
        .launch(&rig.queue, "k", &reads, &[&three], |_, _| {})
        .unwrap_err();
    assert_eq!(out_of_memory(&error).requested, 1200);
    assert_eq!(rig.device.statistics().committed_bytes, 0);
    rig.backend
        .launch(&rig.queue, "k", &reads, &[], |_, _| {})
        .unwrap();
    assert_eq!(rig.device.statistics().committed_bytes, 800);
}

#[test]
fn commands_over_no_bytes_commit_nothing() {
    let rig = small(1000);
    let buffer = rig.buffer(1000);
    rig.backend
        .enqueue_fill(&rig.queue, &buffer, Region::new(0, 0), &[1_u8])
        .unwrap();
    assert_eq!(rig.device.statistics().committed_bytes, 0);
}

#[test]
fn a_device_may_commit_at_creation() {
    let rig = Rig::on(
        MockDevice::builder()
            .capacity_bytes(1000)
            .commit_at_create(true),
    );
    let buffer = rig.buffer(600);
    let error = rig
        .backend
        .create_buffer(500, MemoryFlags::empty())
        .unwrap_err();
    assert_eq!(out_of_memory(&error).available, Some(400));
    assert_eq!(rig.device.statistics().live_blocks, 1);
    drop(buffer);
    assert_eq!(rig.device.statistics().committed_bytes, 0);
}

#[test]
fn committing_costs_the_host_no_memory() {
    // Far more than any host has.
    let huge = 1 << 50;
    let rig = Rig::on(MockDevice::builder().capacity_bytes(huge));
    let buffer = rig.buffer(usize::try_from(huge).unwrap());
    rig.backend.commit(&rig.queue, &buffer).unwrap();
    assert_eq!(rig.device.statistics().committed_bytes, huge);
    // Touching it is another matter, and says so.
    let mut byte = [0_u8];
    let error = rig
        .backend
        .read(&rig.queue, &buffer, 0, &mut byte)
        .unwrap_err();
    assert_eq!(out_of_memory(&error).scope, Scope::Host);
    assert!(
        cause(&error).starts_with("OUT_OF_HOST_MEMORY: "),
        "{error:?}"
    );
}

#[test]
fn memory_that_pending_commands_use_is_not_free_yet() {
    let rig = Rig::on(
        MockDevice::builder()
            .capacity_bytes(1000)
            .completion(Completion::Manual),
    );
    let (old, new) = (rig.buffer(1000), rig.buffer(1000));
    rig.fill(&old, 1, &[]);
    drop(old);
    let other = rig.queue(binpool_allocators::QueueOrder::InOrder);
    assert!(
        rig.backend
            .commit(&other, &new)
            .unwrap_err()
            .is_out_of_memory()
    );
    rig.device.run();
    rig.backend.commit(&other, &new).unwrap();
}
