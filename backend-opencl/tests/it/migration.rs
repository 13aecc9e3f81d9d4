//! Memory that moves before it is needed.

use binpool::{ImmediateAllocator, MemoryPool};
use binpool_allocators::{
    AsMemory, Backend, Error, Event, InvalidRequest, ObjectKind, Queue, SvmBackend, SvmGrain,
};
use binpool_opencl::{ImageColor, ImagePart, ImageRegion, MigrationFlags, OpenClBackend};

use crate::common::{Bench, picture::PLANE, refusal};

#[test]
fn buffers_views_and_pooled_blocks_keep_what_they_hold() {
    let bench = Bench::new();
    let memory = bench.filled(1 << 20, 7);
    let view = bench
        .backend
        .create_sub_region(&memory, (0..4096).into())
        .unwrap();
    let allocator = ImmediateAllocator::new(&bench.backend).unwrap();
    let pool = MemoryPool::new(allocator, &bench.queue).unwrap();
    let block = pool.allocate(4096).unwrap();
    block.write(&bench.queue, 0, &[8_u8; 4096]).unwrap();
    let part = block.view(0..4096).unwrap();
    let all: [&dyn AsMemory<OpenClBackend>; 4] = [&memory, &view, &block, &part];
    for flags in [MigrationFlags::HOST, MigrationFlags::empty()] {
        let moved = bench
            .backend
            .enqueue_migrate(&bench.queue, &all, flags)
            .unwrap();
        moved.wait().unwrap();
        assert_eq!(bench.read(&memory), vec![7; 1 << 20]);
        assert_eq!(crate::common::contents(&block, &bench.queue), [8; 4096]);
    }
    let undefined = MigrationFlags::CONTENT_UNDEFINED;
    bench
        .backend
        .enqueue_migrate(&bench.queue, &[&memory], undefined)
        .unwrap()
        .wait()
        .unwrap();
}

/// `PoCL` 3.1 has the migration wait for the command that has failed, which never ends.
#[test]
fn memory_whose_last_command_has_failed_migrates_to_the_host() {
    let bench = Bench::new();
    let memory = bench.filled(64, 1);
    let gate = bench.gate();
    let failed = bench.fill(&bench.queue, &memory, 2, std::slice::from_ref(&gate));
    bench.fail_gate(&gate);
    assert!(failed.wait().is_err());
    let moved = bench
        .backend
        .enqueue_migrate(&bench.queue, &[&memory], MigrationFlags::HOST)
        .unwrap();
    moved.wait().unwrap();
    assert_eq!(bench.read(&memory), [1; 64]);
}

#[test]
fn an_image_whose_last_command_has_failed_migrates_to_the_host() {
    let bench = Bench::new();
    let (backend, gate) = (&bench.backend, bench.gate());
    let (image, picture) = bench.numbered_image(PLANE);
    let behind = bench.queue.after(std::slice::from_ref(&gate));
    let (all, color) = (ImageRegion::all(PLANE), ImageColor::Unsigned([9; 4]));
    let failed = backend.enqueue_fill_image(behind, &image, all, color);
    bench.fail_gate(&gate);
    assert!(failed.unwrap().wait().is_err());
    let moved = backend.enqueue_migrate_images(&bench.queue, &[&image], MigrationFlags::HOST);
    moved.unwrap().wait().unwrap();
    assert_eq!(bench.pixels(&image), picture.bytes);
}

#[test]
fn shared_virtual_memory_migrates_from_version_2_1_on() {
    let bench = Bench::new();
    let shared = bench
        .backend
        .allocate_svm(4096, None, SvmGrain::Coarse, None)
        .unwrap();
    bench.write(&shared, &[5; 4096]);
    let buffer = bench.filled(64, 6);
    let all: [&dyn AsMemory<OpenClBackend>; 2] = [&buffer, &shared];
    for memory in [&all[..], &all[1..]] {
        for flags in [MigrationFlags::HOST, MigrationFlags::empty()] {
            let moved = bench.backend.enqueue_migrate(&bench.queue, memory, flags);
            if bench.backend.version() >= (2, 1) {
                moved.unwrap().wait().unwrap();
                assert_eq!(bench.read(&shared), [5; 4096]);
                assert_eq!(bench.read(&buffer), [6; 64]);
            } else {
                assert!(matches!(moved, Err(Error::Unsupported { .. })));
            }
        }
    }
}

#[test]
fn nothing_migrates_as_a_marker() {
    let bench = Bench::new();
    let moved = bench
        .backend
        .enqueue_migrate(&bench.queue, &[], MigrationFlags::empty());
    moved.unwrap().wait().unwrap();
}

#[test]
fn memory_of_another_context_stays_where_it_is() {
    let (bench, stranger) = (Bench::new(), Bench::new());
    let memory = stranger.buffer(64);
    let moved = bench
        .backend
        .enqueue_migrate(&bench.queue, &[&memory], MigrationFlags::empty());
    let kind = ObjectKind::Memory;
    assert_eq!(refusal(moved), InvalidRequest::ForeignObject { kind });
    let moved = bench
        .backend
        .enqueue_migrate(&stranger.queue, &[], MigrationFlags::empty());
    let kind = ObjectKind::Queue;
    assert_eq!(refusal(moved), InvalidRequest::ForeignObject { kind });
}

/// A call that is refused has enqueued nothing: not a part of what it was to move either.
#[test]
fn a_migration_that_is_refused_moves_nothing() {
    let bench = Bench::new();
    if !bench.backend.limits().svm.coarse {
        return;
    }
    let (buffer, gate) = (bench.filled(64, 1), bench.gate());
    let shared = bench.backend.allocate_svm(64, None, SvmGrain::Coarse, None);
    let shared = shared.unwrap();
    let map = bench.backend.map::<u8>(&bench.queue, &shared, ..).unwrap();
    let both: [&dyn AsMemory<OpenClBackend>; 2] = [&buffer, &shared];
    let behind = bench.queue.after(std::slice::from_ref(&gate));
    let moved = bench
        .backend
        .enqueue_migrate(behind, &both, MigrationFlags::empty());
    assert!(matches!(refusal(moved), InvalidRequest::Mapped { .. }));
    // Nothing on the queue waits for the gate.
    assert_eq!(bench.read(&buffer), [1; 64]);
    drop(map);
}

/// The host would read what the migration may lose.
#[test]
fn what_the_host_has_mapped_to_read_does_not_migrate() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let to_host = MigrationFlags::HOST;
    let memory = bench.filled(64, 1);
    let map = backend.map::<u8>(queue, &memory, ..).unwrap();
    let moved = backend.enqueue_migrate(queue, &[&memory], to_host);
    assert!(matches!(refusal(moved), InvalidRequest::Mapped { .. }));
    drop(map);
    let (image, _) = bench.numbered_image(PLANE);
    let map = backend.map_image::<u8>(queue, &image, ImageRegion::all(PLANE));
    let map = map.unwrap();
    let moved = backend.enqueue_migrate_images(queue, &[&image], to_host);
    assert!(matches!(refusal(moved), InvalidRequest::Mapped { .. }));
    drop(map);
}

/// It waits for the read, so it fails with it.
#[test]
fn a_migration_comes_after_what_other_queues_read() {
    let bench = Bench::new();
    let (backend, nothing) = (&bench.backend, MigrationFlags::empty());
    let (slow, gate) = (bench.another_queue(), bench.gate());
    let (memory, (image, _)) = (bench.filled(64, 1), bench.numbered_image(PLANE));
    let behind = slow.after(std::slice::from_ref(&gate));
    let _bytes = backend.enqueue_read(behind, &memory, ..).unwrap();
    let all = ImageRegion::all(PLANE);
    let _pixels = backend
        .enqueue_read_part(behind, ImagePart::new(&image, all))
        .unwrap();
    let [one, two] = [(); 2].map(|()| bench.another_queue());
    let moved = backend.enqueue_migrate(&one, &[&memory], nothing);
    let image_moved = backend.enqueue_migrate_images(&two, &[&image], nothing);
    bench.fail_gate(&gate);
    assert!(moved.unwrap().wait().is_err());
    assert!(image_moved.unwrap().wait().is_err());
}

#[test]
fn a_migration_of_buffers_and_shared_memory_fails_with_what_it_waits_for() {
    let bench = Bench::new();
    if !bench.backend.limits().svm.coarse || bench.backend.version() < (2, 1) {
        return;
    }
    let (buffer, shared) = (bench.buffer(64), bench.svm(64));
    let both: [&dyn AsMemory<OpenClBackend>; 2] = [&buffer, &shared];
    for queue in [bench.another_queue(), bench.out_of_order_queue()] {
        let gate = bench.gate();
        let behind = queue.after(std::slice::from_ref(&gate));
        let moved = bench
            .backend
            .enqueue_migrate(behind, &both, MigrationFlags::empty());
        bench.fail_gate(&gate);
        assert!(moved.unwrap().wait().is_err());
    }
}

/// NVIDIA's driver crashes in a migration that begins after the call that enqueues it.
#[test]
fn a_migration_waits_for_its_events_and_its_queue() {
    let bench = Bench::new();
    let (memory, gate) = (bench.filled(4096, 7), bench.gate());
    let behind = bench.queue.after(std::slice::from_ref(&gate));
    let both: [&dyn AsMemory<OpenClBackend>; 2] = [&memory, &memory];
    let nothing = MigrationFlags::empty();
    let first = bench.backend.enqueue_migrate(behind, &both, nothing);
    let next = bench.backend.enqueue_migrate(&bench.queue, &both, nothing);
    bench.open_gate(&gate);
    first.unwrap().wait().unwrap();
    next.unwrap().wait().unwrap();
    assert_eq!(bench.read(&memory), [7; 4096]);
}
