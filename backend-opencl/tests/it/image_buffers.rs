//! Images and buffers: copies between them, and images over the bytes of a buffer.

use std::{slice::from_ref, sync::Arc};

use binpool::{ImmediateAllocator, MemoryPool, PoolOptions, Queue};
use binpool_allocators::{
    AsMemory, Backend, Event, EventStatus, InvalidRequest, Memory, ObjectKind, Region, SvmBackend,
    SvmGrain,
};
use binpool_opencl::{
    ClImage, ClMemory, ImageColor, ImageKind, ImagePart, ImageRegion, ImageShape, OpenClBackend,
    OpenClError,
};

use crate::common::{
    Bench, Error, numbered,
    picture::{
        ANY, PLANE, Picture, RGBA8, SHAPES, assert_says, copies_layers, inner, refused, request,
    },
};
/// Copies all of `shape`'s pixels to `memory` from `offset` on, and back into another image.
fn there_and_back(
    bench: &Bench,
    memory: &dyn AsMemory<OpenClBackend>,
    offset: usize,
    shape: ImageShape,
) {
    let (image, picture) = bench.numbered_image(shape);
    let (backend, queue) = (&bench.backend, &bench.queue);
    let part = inner(shape);
    let copied = backend.enqueue_copy_image_to_buffer(queue, &image, part, memory, offset);
    if shape.kind() == ImageKind::D1Array && !backend.image_limits().unwrap().layer_copies {
        assert_unsupported(bench, copied);
        let back = backend.enqueue_copy_buffer_to_image(queue, memory, offset, &image, part);
        return assert_unsupported(bench, back);
    }
    copied.unwrap();
    let bytes = picture.get(part);
    let other = bench.image(RGBA8, shape);
    let color = ImageColor::Unsigned([1; 4]);
    backend
        .enqueue_fill_image(queue, &other, ImageRegion::all(shape), color)
        .unwrap();
    backend
        .enqueue_copy_buffer_to_image(queue, memory, offset, &other, part)
        .unwrap()
        .wait()
        .unwrap();
    let mut expected = Picture::numbered(shape, 4);
    expected.bytes.fill(1);
    expected.put(part, &bytes);
    assert_eq!(bench.pixels(&other), expected.bytes, "{shape}");
    let mut there = vec![0_u8; bytes.len()];
    let block = memory.memory_on(queue).unwrap();
    backend.read(queue, block, offset, &mut there).unwrap();
    assert_eq!(there, bytes, "{shape}");
}

/// Asserts that a call failed because the device does not have something, which the error says.
fn assert_unsupported<T: std::fmt::Debug>(bench: &Bench, result: Result<T, OpenClError>) {
    let error = result.unwrap_err();
    let OpenClError::Device(Error::Unsupported { what }) = &error else {
        panic!("another error: {error}");
    };
    assert!(what.contains(&bench.backend.limits().device_name), "{what}");
}

/// A buffer and a part of one, and how they are read and written as images. `PoCL` 3.1 makes no images over parts.
fn over_all_and_over_a_part(bench: &Bench, check: impl Fn(&ClMemory, ClImage)) {
    let align = bench.backend.limits().alignment.bytes();
    let root = bench.buffer(align + 256);
    let part = bench
        .backend
        .create_sub_region(&root, Region::new(align, 256))
        .unwrap();
    let shape = ImageShape::d1_buffer(16);
    let over = |memory| {
        bench
            .backend
            .create_image_over(&bench.queue, memory, RGBA8, shape, None)
    };
    check(&root, over(&root).unwrap());
    match over(&part) {
        Ok(image) => check(&part, image),
        refused => assert_unsupported(bench, refused),
    }
}

#[test]
fn an_image_over_a_pooled_block_ends_where_the_block_was_asked_to() {
    let bench = Bench::new();
    let allocator = ImmediateAllocator::new(&bench.backend).unwrap();
    // Whole buffers: `PoCL` has no images over views.
    let pool = PoolOptions::new()
        .segments(false)
        .build(allocator, &bench.queue)
        .unwrap();
    let block = pool.allocate(400).unwrap();
    assert!(block.class_size() >= 101 * 4, "there is room behind it");
    let over = |width| {
        let shape = ImageShape::d1_buffer(width);
        let backend = &bench.backend;
        backend.create_image_over(&bench.queue, &block, RGBA8, shape, None)
    };
    let image = over(100).unwrap();
    assert_eq!(
        request(over(101)),
        InvalidRequest::OutOfBounds {
            offset: 0,
            bytes: 404,
            size: 400
        }
    );
    block.write(&bench.queue, 0, &[3_u8; 400]).unwrap();
    assert_eq!(bench.pixels(&image), [3; 400]);
    let nothing = pool.allocate(0).unwrap();
    let shape = ImageShape::d1_buffer(1);
    let refused = bench
        .backend
        .create_image_over(&bench.queue, &nothing, RGBA8, shape, None);
    assert_eq!(request(refused), InvalidRequest::ZeroSize);
}

#[test]
fn pixels_are_copied_to_buffers_and_back() {
    let bench = Bench::new();
    let pool = MemoryPool::new(
        ImmediateAllocator::new(&bench.backend).unwrap(),
        &bench.queue,
    )
    .unwrap();
    let align = bench.backend.limits().alignment.bytes();
    for shape in SHAPES {
        there_and_back(&bench, &bench.buffer(1000), 100, shape);
        let root = bench.buffer(align + 1000);
        let part = bench
            .backend
            .create_sub_region(&root, Region::new(align, 1000))
            .unwrap();
        there_and_back(&bench, &part, 64, shape);
        there_and_back(&bench, &pool.allocate(1000).unwrap(), 12, shape);
        if bench.backend.limits().svm.any() {
            let block = bench
                .backend
                .allocate_svm(1000, None, SvmGrain::Coarse, None)
                .unwrap();
            there_and_back(&bench, &block, 16, shape);
        }
    }
}

#[test]
fn copies_to_buffers_stay_within_what_the_owner_asked_for() {
    let bench = Bench::new();
    let (image, picture) = bench.numbered_image(PLANE);
    let bytes = picture.bytes.len();
    let all = ImageRegion::all(PLANE);
    let pool = MemoryPool::new(
        ImmediateAllocator::new(&bench.backend).unwrap(),
        &bench.queue,
    )
    .unwrap();
    let pooled = pool.allocate(bytes - 1).unwrap();
    let empty = pool.allocate(0).unwrap();
    let bare = bench.buffer(bytes);
    let refused = |memory: &dyn AsMemory<_>, offset| {
        let size = memory.size();
        let expected = InvalidRequest::OutOfBounds {
            offset,
            bytes,
            size,
        };
        let (backend, queue) = (&bench.backend, &bench.queue);
        let there = backend.enqueue_copy_image_to_buffer(queue, &image, all, memory, offset);
        assert_eq!(request(there), expected);
        let back = backend.enqueue_copy_buffer_to_image(queue, memory, offset, &image, all);
        assert_eq!(request(back), expected);
    };
    refused(&pooled, 0);
    refused(&empty, 0);
    refused(&bare, 1);
    refused(&bare, usize::MAX);
}

#[test]
fn an_image_over_a_buffer_is_the_buffers_bytes() {
    let bench = Bench::new();
    over_all_and_over_a_part(&bench, |memory, image| {
        let mut bytes = numbered(memory.bytes());
        bench.write(memory, &bytes);
        assert_eq!(image.parent(), Some(memory.key()));
        assert_eq!(image.flags(), ANY);
        assert_eq!(bench.pixels(&image), bytes[..64]);
        let region = ImageRegion::new([1], [2]);
        let (backend, queue) = (&bench.backend, &bench.queue);
        backend
            .write_part(queue, ImagePart::new(&image, region), &[4_u8; 8])
            .unwrap();
        bytes[4..12].fill(4);
        assert_eq!(bench.read(memory), bytes);

        let color = ImageColor::Unsigned([5; 4]);
        let fill = backend.enqueue_fill_image(queue, &image, region, color);
        if backend.image_limits().unwrap().buffer_fills {
            fill.unwrap().wait().unwrap();
            bytes[4..12].fill(5);
            assert_eq!(bench.read(memory), bytes);
        } else {
            assert_unsupported(&bench, fill);
        }
    });
}

#[test]
fn pixels_of_a_buffer_are_copied_as_those_of_other_images() {
    let bench = Bench::new();
    over_all_and_over_a_part(&bench, |memory, image| {
        let (backend, queue) = (&bench.backend, &bench.queue);
        let row = ImageRegion::new([3], [4]);
        for shape in SHAPES {
            let mut bytes = numbered(memory.bytes());
            bench.write(memory, &bytes);
            let (other, mut picture) = bench.numbered_image(shape);
            let copied = backend.enqueue_copy_image(queue, &image, row, &other, [1, 0, 0]);
            if !copies_layers(&bench, &image, &other) {
                assert_unsupported(&bench, copied);
                continue;
            }
            copied.unwrap();
            picture.put(row.moved_to([1, 0, 0]), &bytes[12..28]);
            assert_eq!(bench.pixels(&other), picture.bytes, "{shape}");
            let from = row.moved_to([0, 0, 0]);
            backend
                .enqueue_copy_image(queue, &other, from, &image, [5, 0, 0])
                .unwrap();
            bytes[20..36].copy_from_slice(&picture.get(from));
            assert_eq!(bench.read(memory), bytes, "{shape}");
        }
        // Within the image, to the rest of its buffer, and to another one and back.
        let mut bytes = numbered(memory.bytes());
        bench.write(memory, &bytes);
        backend
            .enqueue_copy_image(queue, &image, row, &image, [7, 0, 0])
            .unwrap();
        bytes.copy_within(12..28, 28);
        backend
            .enqueue_copy_image_to_buffer(queue, &image, row, memory, 64)
            .unwrap();
        bytes.copy_within(12..28, 64);
        let other = bench.buffer(100);
        backend
            .enqueue_copy_image_to_buffer(queue, &image, row, &other, 8)
            .unwrap();
        let to = row.moved_to([12, 0, 0]);
        backend
            .enqueue_copy_buffer_to_image(queue, &other, 8, &image, to)
            .unwrap();
        bytes.copy_within(12..28, 48);
        assert_eq!(bench.read(memory), bytes);
    });
}

#[test]
fn an_image_keeps_the_buffer_that_it_is_made_over() {
    let bench = Bench::new();
    let kept = std::cell::RefCell::new(Vec::new());
    over_all_and_over_a_part(&bench, |memory, image| {
        bench.write(memory, &vec![3; memory.bytes()]);
        kept.borrow_mut().push(image);
    });
    // The buffers are gone.
    let _others: Vec<_> = (0..8).map(|_| bench.filled(1024, 9)).collect();
    for image in kept.take() {
        assert_eq!(bench.pixels(&image), vec![3; 64]);
    }
}

#[test]
fn releasing_a_buffer_leaves_it_to_its_images() {
    let bench = Bench::new();
    let buffer = bench.filled(64, 3);
    let shape = ImageShape::d1_buffer(16);
    let image = bench
        .backend
        .create_image_over(&bench.queue, &buffer, RGBA8, shape, None)
        .unwrap();
    bench.backend.release(buffer, &[]).unwrap();
    assert_eq!(bench.pixels(&image), vec![3; 64]);
}

#[test]
fn only_what_can_be_is_made_over_a_buffer() {
    let bench = Bench::new();
    let buffer = bench.buffer(256);
    let over = |memory: &ClMemory, shape| {
        bench
            .backend
            .create_image_over(&bench.queue, memory, RGBA8, shape, None)
    };
    for shape in SHAPES {
        if shape.kind() != ImageKind::D2 {
            let kind = shape.kind();
            let says = format!("a {kind} over a buffer: only");
            assert_says(&refused(over(&buffer, shape)), &says);
        }
    }
    let row = |width| ImageShape::d1_buffer(width);
    assert_eq!(
        request(over(&buffer, row(65))),
        InvalidRequest::OutOfBounds {
            offset: 0,
            bytes: 260,
            size: 256
        }
    );
    assert_says(&refused(over(&buffer, row(0))), "has no pixels");
    let own = refused(bench.backend.create_image(ANY, RGBA8, row(4)));
    assert_says(&own, "a 1D buffer image is made over a buffer");
    if bench.backend.limits().svm.any() {
        let block = bench
            .backend
            .allocate_svm(256, None, SvmGrain::Coarse, None)
            .unwrap();
        assert_says(
            &refused(over(&block, row(4))),
            "an image over shared virtual memory",
        );
    }
    let stranger = Bench::new();
    assert_eq!(
        request(over(&stranger.buffer(256), row(4))),
        InvalidRequest::ForeignObject {
            kind: ObjectKind::Memory
        }
    );
}

#[test]
fn a_plane_over_a_buffer_shares_its_bytes_where_the_device_has_such() {
    let bench = Bench::new();
    let limits = bench.backend.image_limits().unwrap();
    let pitch = limits.pitch_alignment.max(16) * 4;
    let buffer = bench.filled(pitch * 4, 0);
    let shape = ImageShape::d2(8, 4);
    let image = bench
        .backend
        .create_image_over(&bench.queue, &buffer, RGBA8, shape, Some(pitch));
    if !limits.planes_over_buffers {
        assert_unsupported(&bench, image);
        return;
    }
    let image = image.unwrap();
    bench
        .backend
        .enqueue_fill_image(
            &bench.queue,
            &image,
            ImageRegion::new([1, 1], [2, 2]),
            ImageColor::Unsigned([9; 4]),
        )
        .unwrap();
    let mut expected = vec![0; pitch * 4];
    for row in [1, 2] {
        expected[row * pitch + 4..row * pitch + 12].fill(9);
    }
    assert_eq!(bench.read(&buffer), expected);
    let too_large =
        bench
            .backend
            .create_image_over(&bench.queue, &buffer, RGBA8, shape, Some(pitch * 2));
    assert!(matches!(
        request(too_large),
        InvalidRequest::OutOfBounds { .. }
    ));
}

#[test]
fn a_copy_between_an_image_and_its_own_bytes_is_refused() {
    let bench = Bench::new();
    let buffer = bench.buffer(256);
    let over = |width| {
        let shape = ImageShape::d1_buffer(width);
        bench
            .backend
            .create_image_over(&bench.queue, &buffer, RGBA8, shape, None)
            .unwrap()
    };
    let (image, other) = (over(16), over(8));
    let row = ImageRegion::new([0], [8]);
    let (backend, queue) = (&bench.backend, &bench.queue);
    let overlapping = |result| {
        assert!(matches!(
            request(result),
            InvalidRequest::OverlappingCopy { .. }
        ));
    };
    overlapping(backend.enqueue_copy_image_to_buffer(queue, &image, row, &buffer, 32));
    overlapping(backend.enqueue_copy_buffer_to_image(queue, &buffer, 32, &image, row));
    overlapping(backend.enqueue_copy_image(queue, &image, row, &other, [0; 3]));
    backend
        .enqueue_copy_image_to_buffer(queue, &image, row, &buffer, 64)
        .unwrap();
}

#[test]
fn an_image_and_the_buffer_under_it_are_one_thing_to_two_queues() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let other = bench.another_queue();
    let buffer = bench.filled(256, 1);
    let shape = ImageShape::d1_buffer(16);
    let image = backend
        .create_image_over(&bench.queue, &buffer, RGBA8, shape, None)
        .unwrap();
    let all = ImageRegion::all(shape);
    let gate = bench.gate();
    let filled = backend.enqueue_fill(
        queue.after(from_ref(&gate)),
        &buffer,
        Region::new(0, 4),
        &[7_u8],
    );
    let read = backend
        .enqueue_read_part(&other, ImagePart::new(&image, all))
        .unwrap();
    // Bytes that the image does not have are not held up.
    let free = backend.enqueue_fill(&bench.another_queue(), &buffer, Region::new(64, 4), &[8_u8]);
    free.unwrap().wait().unwrap();
    assert_eq!(read.event().status().unwrap(), EventStatus::Pending);
    bench.open_gate(&gate);
    assert_eq!(read.wait().unwrap()[..8], [7, 7, 7, 7, 1, 1, 1, 1]);
    filled.unwrap().wait().unwrap();

    let gate = bench.gate();
    let data = Arc::from([5; 64]);
    backend
        .enqueue_write_part(
            queue.after(from_ref(&gate)),
            ImagePart::new(&image, all),
            data,
        )
        .unwrap();
    let read = backend
        .enqueue_read(&other, &buffer, Region::new(60, 8))
        .unwrap();
    assert_eq!(read.event().status().unwrap(), EventStatus::Pending);
    bench.open_gate(&gate);
    assert_eq!(read.wait().unwrap(), [5, 5, 5, 5, 8, 8, 8, 8]);
}

#[test]
fn an_image_over_bytes_that_the_host_has_mapped_is_not_used() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let buffer = bench.filled(256, 1);
    let shape = ImageShape::d1_buffer(16);
    let image = backend
        .create_image_over(&bench.queue, &buffer, RGBA8, shape, None)
        .unwrap();
    let all = ImageRegion::all(shape);
    let mapped = backend
        .map_mut::<u8>(queue, &buffer, Region::new(32, 8))
        .unwrap();
    let read = backend.enqueue_read_part(queue, ImagePart::new(&image, all));
    assert!(matches!(
        request(read.map(drop)),
        InvalidRequest::Mapped { .. }
    ));
    drop(mapped);
    assert_eq!(bench.pixels(&image), [1; 64]);
}

#[test]
#[allow(unsafe_code)]
fn a_buffer_image_of_the_programs_own_is_copied_as_one_of_ours() {
    let bench = Bench::new();
    let buffer = bench.buffer(64);
    bench.write(&buffer, &numbered(64));
    let shape = ImageShape::d1_buffer(16);
    let image = bench
        .backend
        .create_image_over(&bench.queue, &buffer, RGBA8, shape, None)
        .unwrap();
    // SAFETY: The image lives, and no other command on it runs.
    let again = unsafe { bench.backend.wrap_raw_image(image.raw(), true) }.unwrap();
    assert_eq!((again.shape(), again.parent()), (shape, Some(buffer.key())));
    let target = bench.filled(16, 0);
    let row = ImageRegion::new([2], [4]);
    let (backend, queue) = (&bench.backend, &bench.queue);
    backend
        .enqueue_copy_image_to_buffer(queue, &again, row, &target, 0)
        .unwrap();
    assert_eq!(bench.read(&target), numbered(64)[8..24]);
}
