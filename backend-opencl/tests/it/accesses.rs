//! What each command reads and writes, as commands on other queues see it while it waits: they read beside it what it reads, and
//! come after it where it writes, or where they write what it reads.

use std::{slice::from_ref, sync::Arc};

use binpool_allocators::{AsMemory, Backend, Event, EventStatus, Queue};
use binpool_opencl::{
    ClEvent, ClImage, ClMemory, ClOn, ImageColor, ImagePart, ImageRegion, MapMode, MigrationFlags,
    Rect, RectPart,
};

use crate::common::{Bench, let_commands_run, picture::PLANE};

const SIZE: usize = 4096;

/// What a command uses.
#[derive(Clone, Copy, Debug)]
enum Object<'a> {
    Memory(&'a ClMemory),
    Image(&'a ClImage),
}

impl Object<'_> {
    /// Enqueues a read of a part, on a queue of its own.
    fn read(self, bench: &Bench) -> ClEvent {
        let (backend, queue) = (&bench.backend, &bench.another_queue());
        match self {
            Self::Memory(memory) => {
                let read = backend.enqueue_read(queue, memory, 0..16).unwrap();
                read.event().clone()
            }
            Self::Image(image) => {
                let read = backend
                    .enqueue_read_part(queue, ImagePart::new(image, pixel()))
                    .unwrap();
                read.event().clone()
            }
        }
    }

    /// Enqueues a write of a part, on a queue of its own.
    fn write(self, bench: &Bench) -> ClEvent {
        let (backend, queue) = (&bench.backend, &bench.another_queue());
        match self {
            Self::Memory(memory) => backend.enqueue_fill(queue, memory, 0..16, &[1_u8]).unwrap(),
            Self::Image(image) => {
                let pixels = Arc::from([1_u8; 4]);
                let write =
                    backend.enqueue_write_part(queue, ImagePart::new(image, pixel()), pixels);
                write.unwrap()
            }
        }
    }
}

fn pixel() -> ImageRegion {
    ImageRegion::new([0, 0], [1, 1])
}

/// Checks what the command `enqueue`, which waits for a gate, does with each object.
fn check(
    bench: &Bench,
    name: &str,
    enqueue: &dyn Fn(ClOn<'_>) -> ClEvent,
    (reads, writes): (&[Object<'_>], &[Object<'_>]),
) {
    let all = reads.iter().map(|one| (one, false));
    for (object, is_written) in all.chain(writes.iter().map(|one| (one, true))) {
        let (queue, gate) = (bench.another_queue(), bench.gate());
        let command = enqueue(queue.after(from_ref(&gate)));
        let read = object.read(bench);
        let_commands_run(bench);
        let is_behind = read.status().unwrap() == EventStatus::Pending;
        let write = object.write(bench);
        let_commands_run(bench);
        let write_is_behind = write.status().unwrap() == EventStatus::Pending;
        bench.open_gate(&gate);
        for event in [command, read, write] {
            event.wait().unwrap();
        }
        assert_eq!(is_behind, is_written, "a read of {object:?} beside {name}");
        assert!(write_is_behind, "a write of {object:?} beside {name}");
    }
}

/// Two buffers and, where there is any, two blocks of shared virtual memory.
fn pairs(bench: &Bench) -> Vec<[ClMemory; 2]> {
    let shared = bench.backend.limits().svm.coarse;
    let shared = shared.then(|| [bench.svm(SIZE), bench.svm(SIZE)]);
    let buffers = [bench.buffer(SIZE), bench.buffer(SIZE)];
    let pairs: Vec<_> = [buffers].into_iter().chain(shared).collect();
    for memory in pairs.iter().flatten() {
        bench.write(memory, &[7; SIZE]);
    }
    pairs
}

#[test]
fn a_command_on_memory_is_ordered_by_what_it_reads_and_writes() {
    let bench = Bench::new();
    let backend = &bench.backend;
    let (rect, region) = ((Rect::in_rows([0; 3], 64), Rect::default()), [16, 4, 1]);
    let bytes = || Arc::<[u8]>::from([1; 64]);
    for [one, other] in &pairs(&bench) {
        let (reads, writes) = ([Object::Memory(one)], [Object::Memory(other)]);
        let check = |name, enqueue: &dyn Fn(ClOn<'_>) -> ClEvent, uses: (&[_], &[_])| {
            check(&bench, name, enqueue, uses);
        };
        let fill = |on: ClOn<'_>| backend.enqueue_fill(on, other, 0..64, &[1_u8]).unwrap();
        check("a fill", &fill, (&[], &writes));
        let write = |on: ClOn<'_>| backend.enqueue_write(on, other, 0, bytes()).unwrap();
        check("a write", &write, (&[], &writes));
        let read = |on: ClOn<'_>| {
            let read = backend.enqueue_read(on, one, 0..64).unwrap();
            read.event().clone()
        };
        check("a read", &read, (&reads, &[]));
        let write = |on: ClOn<'_>| {
            let owned = backend.enqueue_write_owned(on, (other, 0), vec![1_u8; 64]);
            owned.unwrap().event().clone()
        };
        check("a write of a vector", &write, (&[], &writes));
        let read = |on: ClOn<'_>| {
            let owned = backend.enqueue_read_owned(on, (one, 0), vec![0_u8; 64]);
            owned.unwrap().event().clone()
        };
        check("a read to a vector", &read, (&reads, &[]));
        let write = |on: ClOn<'_>| {
            let written = backend.enqueue_write_part(
                on,
                RectPart::new((other, rect.0), rect.1, region),
                bytes(),
            );
            written.unwrap()
        };
        check("a write of a rectangle", &write, (&[], &writes));
        let read = |on: ClOn<'_>| {
            let read = backend
                .enqueue_read_part(on, RectPart::new((one, rect.0), Rect::default(), region))
                .unwrap();
            read.event().clone()
        };
        check("a read of a rectangle", &read, (&reads, &[]));
        let copy = |on: ClOn<'_>| backend.enqueue_copy(on, one, 0..64, other, 0).unwrap();
        check("a copy", &copy, (&reads, &writes));
        let copy = |on: ClOn<'_>| {
            let copied = backend.enqueue_copy_rect(on, (one, rect.0), (other, rect.1), region);
            copied.unwrap()
        };
        check("a copy of a rectangle", &copy, (&reads, &writes));
        let map = |on: ClOn<'_>| {
            let pending = backend.enqueue_map::<u8>(on, one, 0..64).unwrap();
            let mapped = pending.event().clone();
            drop(pending);
            mapped
        };
        check("a map to read", &map, (&reads, &[]));
        let map = |on: ClOn<'_>| {
            let pending = backend
                .enqueue_map_mut::<u8>(on, other, 0..64, MapMode::ReadWrite)
                .unwrap();
            let mapped = pending.event().clone();
            drop(pending);
            mapped
        };
        check("a map to write", &map, (&[], &writes));
        let migrated: [&dyn AsMemory<_>; 1] = [other];
        let flags = MigrationFlags::CONTENT_UNDEFINED;
        let migrate = |on: ClOn<'_>| backend.enqueue_migrate(on, &migrated, flags).unwrap();
        check("a migration", &migrate, (&[], &writes));
    }
}

#[test]
fn a_command_on_images_is_ordered_by_what_it_reads_and_writes() {
    let bench = Bench::new();
    let backend = &bench.backend;
    let ((one, _), (other, _)) = (bench.numbered_image(PLANE), bench.numbered_image(PLANE));
    let buffer = bench.filled(SIZE, 7);
    let (reads, writes) = ([Object::Image(&one)], [Object::Image(&other)]);
    let memory = [Object::Memory(&buffer)];
    let part = ImageRegion::new([0, 0], [4, 1]);
    let check = |name, enqueue: &dyn Fn(ClOn<'_>) -> ClEvent, uses: (&[_], &[_])| {
        check(&bench, name, enqueue, uses);
    };
    let color = ImageColor::Unsigned([3; 4]);
    let fill = |on: ClOn<'_>| backend.enqueue_fill_image(on, &other, part, color).unwrap();
    check("a fill", &fill, (&[], &writes));
    let write = |on: ClOn<'_>| {
        let pixels = Arc::from([1_u8; 16]);
        let written = backend.enqueue_write_part(on, ImagePart::new(&other, part), pixels);
        written.unwrap()
    };
    check("a write", &write, (&[], &writes));
    let read = |on: ClOn<'_>| {
        let read = backend
            .enqueue_read_part(on, ImagePart::new(&one, part))
            .unwrap();
        read.event().clone()
    };
    check("a read", &read, (&reads, &[]));
    let copy = |on: ClOn<'_>| {
        let copied = backend.enqueue_copy_image(on, &one, part, &other, [0; 3]);
        copied.unwrap()
    };
    check("a copy", &copy, (&reads, &writes));
    let copy = |on: ClOn<'_>| {
        let copied = backend.enqueue_copy_image_to_buffer(on, &one, part, &buffer, 0);
        copied.unwrap()
    };
    check("a copy to a buffer", &copy, (&reads, &memory));
    let copy = |on: ClOn<'_>| {
        let copied = backend.enqueue_copy_buffer_to_image(on, &buffer, 0, &other, part);
        copied.unwrap()
    };
    check("a copy from a buffer", &copy, (&memory, &writes));
    let flags = MigrationFlags::CONTENT_UNDEFINED;
    let migrate = |on: ClOn<'_>| {
        let migrated = backend.enqueue_migrate_images(on, &[&other], flags);
        migrated.unwrap()
    };
    check("a migration", &migrate, (&[], &writes));
    let map = |on: ClOn<'_>| {
        let pending = backend.enqueue_map_image::<u8>(on, &one, part).unwrap();
        let mapped = pending.event().clone();
        drop(pending);
        mapped
    };
    check("a map to read", &map, (&reads, &[]));
    let map = |on: ClOn<'_>| {
        let pending = backend
            .enqueue_map_image_mut::<u8>(on, &other, part, MapMode::ReadWrite)
            .unwrap();
        let mapped = pending.event().clone();
        drop(pending);
        mapped
    };
    check("a map to write", &map, (&[], &writes));
}
