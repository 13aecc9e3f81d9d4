//! Images: how they are made, and every command on them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use std::{collections::HashSet, slice::from_ref, sync::Arc};

use binpool::{ImmediateAllocator, MemoryPool};
use binpool_allocators::{
    Backend, Event, EventStatus, InvalidRequest, Memory, MemoryFlags, ObjectKind, Region,
    SvmBackend, SvmGrain,
};
use binpool_opencl::{
    Axis, ChannelOrder, ChannelType, ClImage, ClMemory, HostPitches, ImageColor, ImageError,
    ImageFormat, ImageKind, ImageRegion, ImageShape,
};
use common::{
    Bench, Error, numbered,
    picture::{Picture, SHAPES, spread},
    until_given_back,
};

const RGBA8: ImageFormat = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnsignedInt8);
const FLOAT: ImageFormat = ImageFormat::new(ChannelOrder::R, ChannelType::Float);
const ANY: MemoryFlags = MemoryFlags::empty();
const TIGHT: HostPitches = HostPitches::TIGHT;

const PLANE: ImageShape = ImageShape::D2 {
    width: 7,
    height: 5,
};

impl Bench {
    fn image(&self, format: ImageFormat, shape: ImageShape) -> ClImage {
        self.backend.create_image(ANY, format, shape).unwrap()
    }

    /// An image of RGBA with pixels that tell their places apart, and the same pixels in a picture.
    fn numbered_image(&self, shape: ImageShape) -> (ClImage, Picture) {
        let picture = Picture::numbered(shape, 4);
        let image = self
            .backend
            .create_image_with_data(ANY, RGBA8, shape, &picture.bytes, TIGHT)
            .unwrap();
        (image, picture)
    }
}

/// A part of every image of [`SHAPES`] that touches no edge where there is room.
fn inner(shape: ImageShape) -> ImageRegion {
    let extent = shape.extent();
    let origin = extent.map(|size| usize::from(size > 1));
    let size = extent.map(|size| size.saturating_sub(2).max(1));
    ImageRegion { origin, size }
}

fn request<T: std::fmt::Debug>(result: Result<T, ImageError>) -> InvalidRequest {
    match result.unwrap_err() {
        ImageError::Device(Error::InvalidRequest(request)) => request,
        error => panic!("not a refusal: {error}"),
    }
}

/// Asserts that a call was refused with an error of that shape, and that the error says something.
macro_rules! assert_refused {
    ($result:expr, $pattern:pat $(if $guard:expr)?) => {{
        let error = $result.map(|_| ()).unwrap_err();
        assert!(matches!(error, $pattern $(if $guard)?), "{error:?}");
        assert!(!error.to_string().is_empty());
    }};
}

#[test]
fn pixels_come_back_as_they_were_written_whole_and_in_part() {
    let bench = Bench::new();
    for shape in SHAPES {
        let image = bench.image(RGBA8, shape);
        let mut picture = Picture::numbered(shape, 4);
        let all = ImageRegion::all(shape);
        let (backend, queue) = (&bench.backend, &bench.queue);
        backend
            .write_image(queue, &image, all, &picture.bytes, TIGHT, &[])
            .unwrap();
        assert_eq!(bench.pixels(&image), picture.bytes, "{shape}");

        let part = inner(shape);
        let pixels = vec![200_u8; picture.get(part).len()];
        backend
            .write_image(queue, &image, part, &pixels, TIGHT, &[])
            .unwrap();
        picture.put(part, &pixels);
        assert_eq!(bench.pixels(&image), picture.bytes, "{shape}");

        let mut wider = part;
        wider.origin[0] -= 1;
        wider.size[0] += 2;
        let mut read = vec![0_u8; picture.get(wider).len()];
        backend
            .read_image(queue, &image, wider, &mut read, TIGHT, &[])
            .unwrap();
        assert_eq!(read, picture.get(wider), "{shape}");
    }
}

#[test]
fn an_image_starts_with_a_copy_of_the_hosts_pixels_of_whatever_pitches() {
    let bench = Bench::new();
    for shape in SHAPES {
        let (image, picture) = bench.numbered_image(shape);
        assert_eq!(bench.pixels(&image), picture.bytes, "{shape}");

        let row_bytes = 7 * 4;
        let [_, height, depth] = shape.extent();
        let has_slices = matches!(shape.kind(), ImageKind::D2Array | ImageKind::D3);
        let pitches = if has_slices {
            HostPitches::rows_and_slices(row_bytes + 8, (row_bytes + 8) * (height + 1))
        } else {
            HostPitches::rows(row_bytes + 8)
        };
        let padded = spread(&picture.bytes, [7, height, depth], row_bytes, pitches, 0xaa);
        let image = bench
            .backend
            .create_image_with_data(ANY, RGBA8, shape, &padded, pitches)
            .unwrap();
        assert_eq!(bench.pixels(&image), picture.bytes, "{shape}");
    }
}

#[test]
fn transfers_leave_what_lies_between_rows_and_slices() {
    let bench = Bench::new();
    for shape in SHAPES {
        let (image, mut picture) = bench.numbered_image(shape);
        let part = inner(shape);
        let row_bytes = part.size[0] * 4;
        let row = row_bytes + 12;
        let has_slices = matches!(shape.kind(), ImageKind::D2Array | ImageKind::D3);
        let pitches = if has_slices {
            HostPitches::rows_and_slices(row, row * (part.size[1] + 2))
        } else {
            HostPitches::rows(row)
        };
        let (backend, queue) = (&bench.backend, &bench.queue);
        let expected = spread(&picture.get(part), part.size, row_bytes, pitches, 0xaa);
        let mut read = vec![0xaa_u8; expected.len()];
        backend
            .read_image(queue, &image, part, &mut read, pitches, &[])
            .unwrap();
        assert_eq!(read, expected, "{shape}");

        let pixels = vec![77_u8; picture.get(part).len()];
        let data = spread(&pixels, part.size, row_bytes, pitches, 0xaa);
        let write = backend
            .enqueue_write_image(queue, &image, part, data.into(), pitches, &[])
            .unwrap();
        write.wait().unwrap();
        picture.put(part, &pixels);
        assert_eq!(bench.pixels(&image), picture.bytes, "{shape}");
    }
}

#[test]
fn elements_may_be_of_any_plain_type() {
    let bench = Bench::new();
    let heights: Vec<f32> = (0..35_u8).map(f32::from).collect();
    let image = bench
        .backend
        .create_image_with_data(ANY, FLOAT, PLANE, &heights, TIGHT)
        .unwrap();
    let mut row = [0_f32; 7];
    let region = ImageRegion::new([0, 2], [7, 1]);
    bench
        .backend
        .read_image(&bench.queue, &image, region, &mut row, TIGHT, &[])
        .unwrap();
    assert_eq!(row, [14.0, 15.0, 16.0, 17.0, 18.0, 19.0, 20.0]);
}

#[test]
fn a_write_keeps_its_pixels_and_a_read_hands_them_out() {
    let bench = Bench::new();
    let (image, picture) = bench.numbered_image(PLANE);
    let all = ImageRegion::all(PLANE);
    let (backend, queue) = (&bench.backend, &bench.queue);
    let gate = bench.gate();
    let before = backend
        .enqueue_read_image(queue, &image, all, from_ref(&gate))
        .unwrap();
    let data: Arc<[u8]> = vec![9; 7 * 5 * 4].into();
    let write = backend
        .enqueue_write_image(queue, &image, all, Arc::clone(&data), TIGHT, &[])
        .unwrap();
    let after = backend.enqueue_read_image(queue, &image, all, &[]).unwrap();
    assert!(Arc::strong_count(&data) > 1);
    assert_eq!(before.event().status().unwrap(), EventStatus::Pending);
    bench.open_gate(&gate);
    assert_eq!(before.wait().unwrap(), picture.bytes);
    assert_eq!(after.wait().unwrap(), vec![9; 7 * 5 * 4]);
    write.wait().unwrap();
    until_given_back(&data);
}

#[test]
fn a_read_that_is_forgotten_leaves_its_memory_to_the_command() {
    let bench = Bench::new();
    let (image, _) = bench.numbered_image(PLANE);
    let gate = bench.gate();
    let all = ImageRegion::all(PLANE);
    for _ in 0..10 {
        let read = bench
            .backend
            .enqueue_read_image(&bench.queue, &image, all, from_ref(&gate));
        std::mem::forget(read.unwrap());
    }
    drop(image);
    bench.open_gate(&gate);
    binpool_allocators::Queue::finish(&bench.queue).unwrap();
}

#[test]
fn what_waits_for_something_that_failed_fails() {
    let bench = Bench::new();
    let (image, _) = bench.numbered_image(PLANE);
    let gate = bench.gate();
    bench.fail_gate(&gate);
    let region = ImageRegion::new([0], [1]);
    let mut pixel = [0_u8; 4];
    let read = bench.backend.read_image(
        &bench.queue,
        &image,
        region,
        &mut pixel,
        TIGHT,
        from_ref(&gate),
    );
    assert_refused!(read, ImageError::Device(Error::Backend(_)));
}

#[test]
fn every_kind_of_channel_is_filled_with_its_kind_of_color() {
    let bench = Bench::new();
    let colors: [(ChannelType, ImageColor, Vec<u8>); 5] = [
        (
            ChannelType::UnsignedInt8,
            ImageColor::Unsigned([1, 2, 3, 200]),
            vec![1, 2, 3, 200],
        ),
        (
            ChannelType::SignedInt16,
            ImageColor::Signed([-1, 2, -300, 4]),
            [-1_i16, 2, -300, 4]
                .into_iter()
                .flat_map(i16::to_ne_bytes)
                .collect(),
        ),
        (
            ChannelType::UnsignedInt32,
            ImageColor::Unsigned([u32::MAX, 0, 7, 9]),
            [u32::MAX, 0, 7, 9]
                .into_iter()
                .flat_map(u32::to_ne_bytes)
                .collect(),
        ),
        (
            ChannelType::Float,
            ImageColor::Float([0.25, -1.5, 3.0, 1.0]),
            [0.25_f32, -1.5, 3.0, 1.0]
                .into_iter()
                .flat_map(f32::to_ne_bytes)
                .collect(),
        ),
        (
            ChannelType::UnormInt8,
            ImageColor::Float([1.0, 0.0, 0.2, 1.0]),
            vec![255, 0, 51, 255],
        ),
    ];
    for (data, color, pixel) in colors {
        let format = ImageFormat::new(ChannelOrder::Rgba, data);
        for shape in SHAPES {
            let mut picture = Picture::numbered(shape, pixel.len());
            let image = bench
                .backend
                .create_image_with_data(ANY, format, shape, &picture.bytes, TIGHT)
                .unwrap();
            let part = inner(shape);
            let fill = bench
                .backend
                .enqueue_fill_image(&bench.queue, &image, part, color, &[]);
            fill.unwrap().wait().unwrap();
            picture.fill(part, &pixel);
            assert_eq!(bench.pixels(&image), picture.bytes, "{shape} of {format}");
        }
    }
}

#[test]
fn a_color_of_other_numbers_than_the_channels_is_refused() {
    let bench = Bench::new();
    let [float, signed, unsigned] = [
        ImageColor::Float([0.0; 4]),
        ImageColor::Signed([0; 4]),
        ImageColor::Unsigned([0; 4]),
    ];
    for (data, wrong) in [
        (ChannelType::Float, [signed, unsigned]),
        (ChannelType::UnormInt8, [signed, unsigned]),
        (ChannelType::SignedInt32, [float, unsigned]),
        (ChannelType::UnsignedInt16, [float, signed]),
    ] {
        let format = ImageFormat::new(ChannelOrder::Rgba, data);
        let image = bench.image(format, PLANE);
        for color in wrong {
            let all = ImageRegion::all(PLANE);
            let fill = bench
                .backend
                .enqueue_fill_image(&bench.queue, &image, all, color, &[]);
            assert_refused!(
                fill,
                ImageError::ColorMismatch { format: f, color: c } if f == format && c == color
            );
        }
    }
}

#[test]
fn pixels_are_copied_between_images_of_any_kind() {
    let bench = Bench::new();
    for from_shape in SHAPES {
        for to_shape in SHAPES {
            let (source, from_picture) = bench.numbered_image(from_shape);
            let destination = bench.image(RGBA8, to_shape);
            let mut to_picture = Picture {
                shape: to_shape,
                ..from_picture.clone()
            };
            to_picture.bytes = vec![5; to_shape.pixels().unwrap() * 4];
            let color = ImageColor::Unsigned([5; 4]);
            let (backend, queue) = (&bench.backend, &bench.queue);
            let all = ImageRegion::all(to_shape);
            backend
                .enqueue_fill_image(queue, &destination, all, color, &[])
                .unwrap();
            // One row is what they all have.
            let row = ImageRegion::new([1], [4]);
            let to = to_shape.extent().map(|size| usize::from(size > 1) * 2);
            let copy = backend.enqueue_copy_image(queue, &source, row, &destination, to, &[]);
            copy.unwrap().wait().unwrap();
            to_picture.put(row.moved_to(to), &from_picture.get(row));
            assert_eq!(
                bench.pixels(&destination),
                to_picture.bytes,
                "{from_shape} to {to_shape}"
            );
        }
    }
}

#[test]
fn a_copy_within_one_image_takes_regions_that_share_no_pixel() {
    let bench = Bench::new();
    for shape in SHAPES {
        let (image, mut picture) = bench.numbered_image(shape);
        let (backend, queue) = (&bench.backend, &bench.queue);
        let [_, height, depth] = shape.extent();
        let from = ImageRegion::new([0, 0, 0], [3, height, depth]);
        let to = [4, 0, 0];
        let copy = backend.enqueue_copy_image(queue, &image, from, &image, to, &[]);
        copy.unwrap().wait().unwrap();
        picture.put(from.moved_to(to), &picture.get(from));
        assert_eq!(bench.pixels(&image), picture.bytes, "{shape}");

        let overlapping = backend.enqueue_copy_image(queue, &image, from, &image, [2, 0, 0], &[]);
        assert_refused!(overlapping, ImageError::OverlappingCopy { .. });
        // A clone is the same image.
        let overlapping =
            backend.enqueue_copy_image(queue, &image, from, &image.clone(), [2, 0, 0], &[]);
        assert_refused!(overlapping, ImageError::OverlappingCopy { .. });
    }
}

#[test]
fn a_copy_changes_no_format() {
    let bench = Bench::new();
    let (source, destination) = (bench.image(RGBA8, PLANE), bench.image(FLOAT, PLANE));
    let region = ImageRegion::new([0], [1]);
    let copy =
        bench
            .backend
            .enqueue_copy_image(&bench.queue, &source, region, &destination, [0; 3], &[]);
    assert_refused!(
        copy,
        ImageError::FormatMismatch { from: RGBA8, to } if to == FLOAT
    );
}

/// Copies all of `shape`'s pixels to `memory` from `offset` on, and back into another image.
fn there_and_back(
    bench: &Bench,
    memory: &dyn binpool_allocators::AsMemory<binpool_opencl::OpenClBackend>,
    offset: usize,
    shape: ImageShape,
) {
    let (image, picture) = bench.numbered_image(shape);
    let (backend, queue) = (&bench.backend, &bench.queue);
    let part = inner(shape);
    backend
        .enqueue_copy_image_to_buffer(queue, &image, part, memory, offset, &[])
        .unwrap();
    let bytes = picture.get(part);
    let other = bench.image(RGBA8, shape);
    let color = ImageColor::Unsigned([1; 4]);
    backend
        .enqueue_fill_image(queue, &other, ImageRegion::all(shape), color, &[])
        .unwrap();
    backend
        .enqueue_copy_buffer_to_image(queue, memory, offset, &other, part, &[])
        .unwrap()
        .wait()
        .unwrap();
    let mut expected = Picture::numbered(shape, 4);
    expected.bytes.fill(1);
    expected.put(part, &bytes);
    assert_eq!(bench.pixels(&other), expected.bytes, "{shape}");
    let mut there = vec![0; bytes.len()];
    let block = memory.memory_on(queue).unwrap();
    backend.read(queue, block, offset, &mut there, &[]).unwrap();
    assert_eq!(there, bytes, "{shape}");
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
    let refused = |memory: &dyn binpool_allocators::AsMemory<_>, offset| {
        let size = memory.size();
        let expected = InvalidRequest::OutOfBounds {
            offset,
            bytes,
            size,
        };
        let (backend, queue) = (&bench.backend, &bench.queue);
        let there = backend.enqueue_copy_image_to_buffer(queue, &image, all, memory, offset, &[]);
        assert_eq!(request(there), expected);
        let back = backend.enqueue_copy_buffer_to_image(queue, memory, offset, &image, all, &[]);
        assert_eq!(request(back), expected);
    };
    refused(&pooled, 0);
    refused(&empty, 0);
    refused(&bare, 1);
    refused(&bare, usize::MAX);
}

/// Asserts that a call failed because the device does not have something, which the error says.
fn assert_unsupported<T: std::fmt::Debug>(bench: &Bench, result: Result<T, ImageError>) {
    let error = result.unwrap_err();
    let ImageError::Device(Error::Unsupported { what }) = &error else {
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
    let shape = ImageShape::D1Buffer { width: 16 };
    let over = |memory| bench.backend.create_image_over(memory, RGBA8, shape, None);
    check(&root, over(&root).unwrap());
    match over(&part) {
        Ok(image) => check(&part, image),
        refused => assert_unsupported(bench, refused),
    }
}

#[test]
fn an_image_over_a_buffer_is_the_buffers_bytes() {
    let bench = Bench::new();
    over_all_and_over_a_part(&bench, |memory, image| {
        let mut bytes = numbered(memory.bytes());
        bench.write(memory, &bytes);
        assert_eq!(image.parent(), memory.raw());
        assert_eq!(image.flags(), ANY);
        assert_eq!(bench.pixels(&image), bytes[..64]);
        let region = ImageRegion::new([1], [2]);
        let (backend, queue) = (&bench.backend, &bench.queue);
        backend
            .write_image(queue, &image, region, &[4_u8; 8], TIGHT, &[])
            .unwrap();
        bytes[4..12].fill(4);
        assert_eq!(bench.read(memory), bytes);

        let color = ImageColor::Unsigned([5; 4]);
        let fill = backend.enqueue_fill_image(queue, &image, region, color, &[]);
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
            backend
                .enqueue_copy_image(queue, &image, row, &other, [1, 0, 0], &[])
                .unwrap();
            picture.put(row.moved_to([1, 0, 0]), &bytes[12..28]);
            assert_eq!(bench.pixels(&other), picture.bytes, "{shape}");
            let from = row.moved_to([0, 0, 0]);
            backend
                .enqueue_copy_image(queue, &other, from, &image, [5, 0, 0], &[])
                .unwrap();
            bytes[20..36].copy_from_slice(&picture.get(from));
            assert_eq!(bench.read(memory), bytes, "{shape}");
        }
        // Within the image, to the rest of its buffer, and to another one and back.
        let mut bytes = numbered(memory.bytes());
        bench.write(memory, &bytes);
        backend
            .enqueue_copy_image(queue, &image, row, &image, [7, 0, 0], &[])
            .unwrap();
        bytes.copy_within(12..28, 28);
        backend
            .enqueue_copy_image_to_buffer(queue, &image, row, memory, 64, &[])
            .unwrap();
        bytes.copy_within(12..28, 64);
        let other = bench.buffer(100);
        backend
            .enqueue_copy_image_to_buffer(queue, &image, row, &other, 8, &[])
            .unwrap();
        let to = row.moved_to([12, 0, 0]);
        backend
            .enqueue_copy_buffer_to_image(queue, &other, 8, &image, to, &[])
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
    let shape = ImageShape::D1Buffer { width: 16 };
    let image = bench
        .backend
        .create_image_over(&buffer, RGBA8, shape, None)
        .unwrap();
    bench.backend.release(buffer, &[]).unwrap();
    assert_eq!(bench.pixels(&image), vec![3; 64]);
}

#[test]
fn only_what_can_be_is_made_over_a_buffer() {
    let bench = Bench::new();
    let buffer = bench.buffer(256);
    let over =
        |memory: &ClMemory, shape| bench.backend.create_image_over(memory, RGBA8, shape, None);
    for shape in SHAPES {
        if shape.kind() != ImageKind::D2 {
            let kind = shape.kind();
            assert_refused!(
                over(&buffer, shape),
                ImageError::NotOverBuffers { kind: k } if k == kind
            );
        }
    }
    let row = |width| ImageShape::D1Buffer { width };
    assert_eq!(
        request(over(&buffer, row(65))),
        InvalidRequest::OutOfBounds {
            offset: 0,
            bytes: 260,
            size: 256
        }
    );
    assert_refused!(over(&buffer, row(0)), ImageError::Empty { .. });
    assert_refused!(
        bench.backend.create_image(ANY, RGBA8, row(4)),
        ImageError::NeedsBuffer {
            kind: ImageKind::D1Buffer
        }
    );
    if bench.backend.limits().svm.any() {
        let block = bench
            .backend
            .allocate_svm(256, None, SvmGrain::Coarse, None)
            .unwrap();
        assert_refused!(over(&block, row(4)), ImageError::OverSvm);
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
    let shape = ImageShape::D2 {
        width: 8,
        height: 4,
    };
    let image = bench
        .backend
        .create_image_over(&buffer, RGBA8, shape, Some(pitch));
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
            &[],
        )
        .unwrap();
    let mut expected = vec![0; pitch * 4];
    for row in [1, 2] {
        expected[row * pitch + 4..row * pitch + 12].fill(9);
    }
    assert_eq!(bench.read(&buffer), expected);
    let too_large = bench
        .backend
        .create_image_over(&buffer, RGBA8, shape, Some(pitch * 2));
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
        let shape = ImageShape::D1Buffer { width };
        bench
            .backend
            .create_image_over(&buffer, RGBA8, shape, None)
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
    overlapping(backend.enqueue_copy_image_to_buffer(queue, &image, row, &buffer, 32, &[]));
    overlapping(backend.enqueue_copy_buffer_to_image(queue, &buffer, 32, &image, row, &[]));
    overlapping(backend.enqueue_copy_image(queue, &image, row, &other, [0; 3], &[]));
    backend
        .enqueue_copy_image_to_buffer(queue, &image, row, &buffer, 64, &[])
        .unwrap();
}

#[test]
fn host_pixels_are_as_many_as_shape_format_and_pitches_say() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let image = bench.image(RGBA8, PLANE);
    let all = ImageRegion::all(PLANE);
    for (pitches, expected) in [(TIGHT, 140), (HostPitches::rows(32), 160)] {
        for actual in [0, expected - 1, expected + 1] {
            let mut data = vec![0_u8; actual];
            let wrong = InvalidRequest::LengthMismatch { expected, actual };
            let created = backend.create_image_with_data(ANY, RGBA8, PLANE, &data, pitches);
            assert_eq!(request(created), wrong);
            let write = backend.write_image(queue, &image, all, &data, pitches, &[]);
            assert_eq!(request(write), wrong);
            let read = backend.read_image(queue, &image, all, &mut data, pitches, &[]);
            assert_eq!(request(read), wrong);
            let write = backend.enqueue_write_image(queue, &image, all, data.into(), pitches, &[]);
            assert_eq!(request(write), wrong);
        }
    }
}

#[test]
fn pitches_hold_their_rows_and_slices() {
    let bench = Bench::new();
    let data = [0_u8; 1000];
    let volume = ImageShape::D3 {
        width: 7,
        height: 5,
        depth: 2,
    };
    for (shape, pitches, axis) in [
        (PLANE, HostPitches::rows(24), Axis::Row),
        (PLANE, HostPitches::rows(30), Axis::Row),
        (volume, HostPitches::rows_and_slices(28, 112), Axis::Slice),
        (volume, HostPitches::rows_and_slices(28, 150), Axis::Slice),
    ] {
        let created = bench
            .backend
            .create_image_with_data(ANY, RGBA8, shape, &data, pitches);
        assert_refused!(created, ImageError::Pitch { axis: a, .. } if a == axis);
        let image = bench.image(RGBA8, shape);
        let all = ImageRegion::all(shape);
        let write = bench
            .backend
            .write_image(&bench.queue, &image, all, &data, pitches, &[]);
        assert_refused!(write, ImageError::Pitch { axis: a, .. } if a == axis);
    }
    let slices = HostPitches::rows_and_slices(28, 280);
    let created = bench
        .backend
        .create_image_with_data(ANY, RGBA8, PLANE, &data[..280], slices);
    assert_refused!(created, ImageError::NoSlices { pitch: 280, .. });
}

#[test]
fn regions_have_pixels_and_lie_inside_their_images() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let buffer = bench.buffer(4096);
    for shape in SHAPES {
        let (image, other) = (bench.image(RGBA8, shape), bench.image(RGBA8, shape));
        let extent = shape.extent();
        let mut wrong = Vec::new();
        for axis in 0..3 {
            let mut empty = ImageRegion::all(shape);
            empty.size[axis] = 0;
            wrong.push(empty);
            for (origin, size) in [
                (1, extent[axis]),
                (extent[axis], 1),
                (0, extent[axis] + 1),
                (usize::MAX, 1),
                (1, usize::MAX),
            ] {
                let mut outside = ImageRegion::all(shape);
                (outside.origin[axis], outside.size[axis]) = (origin, size);
                wrong.push(outside);
            }
        }
        for region in wrong {
            let refused = |result: Result<(), ImageError>| {
                if region.size.contains(&0) {
                    assert_refused!(result, ImageError::EmptyRegion { .. });
                } else {
                    assert_refused!(
                        result,
                        ImageError::OutOfBounds { region: r, shape: s } if r == region && s == shape
                    );
                }
            };
            let (color, none) = (ImageColor::Unsigned([0; 4]), &mut [0_u8; 0]);
            refused(backend.write_image(queue, &image, region, none, TIGHT, &[]));
            refused(backend.read_image(queue, &image, region, none, TIGHT, &[]));
            let no_bytes = Arc::from([]);
            refused(
                backend
                    .enqueue_write_image(queue, &image, region, no_bytes, TIGHT, &[])
                    .map(drop),
            );
            refused(
                backend
                    .enqueue_read_image(queue, &image, region, &[])
                    .map(drop),
            );
            refused(
                backend
                    .enqueue_fill_image(queue, &image, region, color, &[])
                    .map(drop),
            );
            refused(
                backend
                    .enqueue_copy_image_to_buffer(queue, &image, region, &buffer, 0, &[])
                    .map(drop),
            );
            refused(
                backend
                    .enqueue_copy_buffer_to_image(queue, &buffer, 0, &image, region, &[])
                    .map(drop),
            );
            refused(
                backend
                    .enqueue_copy_image(queue, &image, region, &other, [0; 3], &[])
                    .map(drop),
            );
        }
        // The region of the destination, too.
        let all = ImageRegion::all(shape);
        let copy = backend.enqueue_copy_image(queue, &image, all, &other, [1, 0, 0], &[]);
        assert_refused!(copy, ImageError::OutOfBounds { .. });
    }
}

#[test]
fn an_image_has_pixels_and_fits_the_device() {
    let bench = Bench::new();
    let limits = bench.backend.image_limits().unwrap();
    for shape in SHAPES {
        for axis in 0..shape.extent().len() {
            let mut extent = shape.extent();
            if extent[axis] == 1 {
                continue;
            }
            extent[axis] = 0;
            let [width, height, depth] = extent;
            let empty = match shape.kind() {
                ImageKind::D1 => ImageShape::D1 { width },
                ImageKind::D1Array => ImageShape::D1Array {
                    width,
                    layers: height,
                },
                ImageKind::D2 => ImageShape::D2 { width, height },
                ImageKind::D2Array => ImageShape::D2Array {
                    width,
                    height,
                    layers: depth,
                },
                _ => ImageShape::D3 {
                    width,
                    height,
                    depth,
                },
            };
            assert_refused!(
                bench.backend.create_image(ANY, RGBA8, empty),
                ImageError::Empty { shape } if shape == empty
            );
        }
    }
    let (width, height) = (limits.plane_width + 1, limits.plane_height + 1);
    let layers = limits.layers + 1;
    for (shape, axis, largest) in [
        (ImageShape::D1 { width }, Axis::Width, limits.plane_width),
        (
            ImageShape::D1Array { width: 1, layers },
            Axis::Layers,
            limits.layers,
        ),
        (
            ImageShape::D2 { width, height: 1 },
            Axis::Width,
            limits.plane_width,
        ),
        (
            ImageShape::D2 { width: 1, height },
            Axis::Height,
            limits.plane_height,
        ),
        (
            ImageShape::D2Array {
                width: 1,
                height: 1,
                layers,
            },
            Axis::Layers,
            limits.layers,
        ),
        (
            ImageShape::D3 {
                width: limits.volume_width + 1,
                height: 1,
                depth: 1,
            },
            Axis::Width,
            limits.volume_width,
        ),
        (
            ImageShape::D3 {
                width: 1,
                height: limits.volume_height + 1,
                depth: 1,
            },
            Axis::Height,
            limits.volume_height,
        ),
        (
            ImageShape::D3 {
                width: 1,
                height: 1,
                depth: usize::MAX,
            },
            Axis::Depth,
            limits.volume_depth,
        ),
    ] {
        assert_refused!(
            bench.backend.create_image(ANY, RGBA8, shape),
            ImageError::TooLarge { axis: a, largest: l, .. } if a == axis && l == largest
        );
    }
    // Each size fits, and all together are more than one block of memory.
    let huge = ImageShape::D3 {
        width: limits.volume_width,
        height: limits.volume_height,
        depth: limits.volume_depth,
    };
    let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::Float);
    assert!(matches!(
        request(bench.backend.create_image(ANY, format, huge)),
        InvalidRequest::TooLarge { .. }
    ));
}

#[test]
fn flags_are_kept_and_do_not_contradict_each_other() {
    let bench = Bench::new();
    for flags in [
        ANY,
        MemoryFlags::READ_ONLY,
        MemoryFlags::WRITE_ONLY | MemoryFlags::HOST_READ_ONLY,
        MemoryFlags::HOST_RESIDENT,
    ] {
        let image = bench.backend.create_image(flags, RGBA8, PLANE).unwrap();
        assert_eq!(image.flags(), flags);
    }
    let flags = MemoryFlags::READ_ONLY | MemoryFlags::WRITE_ONLY;
    assert_eq!(
        request(bench.backend.create_image(flags, RGBA8, PLANE)),
        InvalidRequest::ContradictoryFlags { flags }
    );
}

#[test]
fn an_image_tells_what_it_is() {
    let bench = Bench::new();
    for shape in SHAPES {
        let image = bench.image(RGBA8, shape);
        assert_eq!((image.shape(), image.format()), (shape, RGBA8));
        assert_eq!((image.item_bytes(), image.parent()), (4, None));
        assert!(image.row_pitch().unwrap() >= 28, "{shape}");
        assert!(
            image.bytes().unwrap() >= shape.pixels().unwrap() * 4,
            "{shape}"
        );
        let slices = image.slice_pitch().unwrap();
        match shape.kind() {
            ImageKind::D2Array | ImageKind::D3 => assert!(slices >= 28 * 5, "{shape}"),
            ImageKind::D1Array => assert!(slices >= 28, "{shape}"),
            _ => assert_eq!(slices, 0, "{shape}"),
        }
    }
}

#[test]
#[allow(unsafe_code)]
fn an_image_is_the_runtimes_object_whoever_made_it() {
    let bench = Bench::new();
    for shape in SHAPES {
        let (image, picture) = bench.numbered_image(shape);
        // SAFETY: The image lives, and no other command on it runs.
        let again = unsafe { bench.backend.image_from_raw(image.raw(), true) }.unwrap();
        assert_eq!(again, image);
        assert_eq!((again.shape(), again.format()), (shape, RGBA8));
        assert_eq!(again.flags(), image.flags());
        let other = bench.image(RGBA8, shape);
        assert_ne!(other, image);
        assert_eq!(
            HashSet::from([image.clone(), again.clone(), other]).len(),
            2
        );
        drop(image);
        assert_eq!(bench.pixels(&again), picture.bytes);

        // A reference of the program's own, which is handed over.
        let raw = again.raw();
        // SAFETY: The image lives.
        unsafe { cl3::memory::retain_mem_object(raw) }.unwrap();
        drop(again);
        // SAFETY: The image lives, and its last reference is given.
        let owned = unsafe { bench.backend.image_from_raw(raw, false) }.unwrap();
        assert_eq!(bench.pixels(&owned), picture.bytes);
    }
}

#[test]
#[allow(unsafe_code)]
fn a_buffer_image_of_the_programs_own_is_copied_as_one_of_ours() {
    let bench = Bench::new();
    let buffer = bench.buffer(64);
    bench.write(&buffer, &numbered(64));
    let shape = ImageShape::D1Buffer { width: 16 };
    let image = bench
        .backend
        .create_image_over(&buffer, RGBA8, shape, None)
        .unwrap();
    // SAFETY: The image lives, and no other command on it runs.
    let again = unsafe { bench.backend.image_from_raw(image.raw(), true) }.unwrap();
    assert_eq!((again.shape(), again.parent()), (shape, buffer.raw()));
    let target = bench.filled(16, 0);
    let row = ImageRegion::new([2], [4]);
    let (backend, queue) = (&bench.backend, &bench.queue);
    backend
        .enqueue_copy_image_to_buffer(queue, &again, row, &target, 0, &[])
        .unwrap();
    assert_eq!(bench.read(&target), numbered(64)[8..24]);
}

#[test]
#[allow(unsafe_code)]
fn what_is_no_image_of_this_context_is_not_taken_for_one() {
    let bench = Bench::new();
    let buffer = bench.buffer(64);
    // SAFETY: The buffer lives.
    let image = unsafe { bench.backend.image_from_raw(buffer.raw().unwrap(), true) };
    assert_refused!(image, ImageError::NotAnImage { code: 0x10f0 });
    // SAFETY: The handle is null.
    let image = unsafe { bench.backend.image_from_raw(std::ptr::null_mut(), true) };
    assert_refused!(image, ImageError::Device(Error::Backend(_)));
    let foreign = Bench::new().image(RGBA8, PLANE);
    // SAFETY: The image lives.
    let image = unsafe { bench.backend.image_from_raw(foreign.raw(), true) };
    assert!(matches!(
        request(image),
        InvalidRequest::ForeignObject { .. }
    ));
}

#[test]
fn objects_of_another_backend_are_refused() {
    let bench = Bench::new();
    let stranger = Bench::new();
    let own = bench.image(RGBA8, PLANE);
    let foreign = stranger.image(RGBA8, PLANE);
    let (own_buffer, foreign_buffer) = (bench.buffer(256), stranger.buffer(256));
    let all = ImageRegion::all(PLANE);
    let color = ImageColor::Unsigned([0; 4]);
    let backend = &bench.backend;
    let refused = |result: Result<_, ImageError>, kind| {
        assert_eq!(request(result), InvalidRequest::ForeignObject { kind });
    };
    for (queue, image, buffer, kind) in [
        (&stranger.queue, &own, &own_buffer, ObjectKind::Queue),
        (&bench.queue, &foreign, &own_buffer, ObjectKind::Memory),
    ] {
        let pixels = &mut [0_u8; 140];
        refused(
            backend.write_image(queue, image, all, pixels, TIGHT, &[]),
            kind,
        );
        refused(
            backend.read_image(queue, image, all, pixels, TIGHT, &[]),
            kind,
        );
        let fill = backend.enqueue_fill_image(queue, image, all, color, &[]);
        refused(fill.map(drop), kind);
        let copy = backend.enqueue_copy_image(queue, image, all, &own, [0; 3], &[]);
        refused(copy.map(drop), kind);
        let copy = backend.enqueue_copy_image_to_buffer(queue, image, all, buffer, 0, &[]);
        refused(copy.map(drop), kind);
    }
    let memory = ObjectKind::Memory;
    let queue = &bench.queue;
    let to = backend.enqueue_copy_image_to_buffer(queue, &own, all, &foreign_buffer, 0, &[]);
    refused(to.map(drop), memory);
    let from = backend.enqueue_copy_buffer_to_image(queue, &foreign_buffer, 0, &own, all, &[]);
    refused(from.map(drop), memory);
    let gate = stranger.gate();
    let fill = backend.enqueue_fill_image(queue, &own, all, color, from_ref(&gate));
    refused(fill.map(drop), ObjectKind::Event);
    assert_eq!(own_buffer.bytes(), 256);
}
