//! Transfers, fills and copies of images.

use std::{slice::from_ref, sync::Arc};

use binpool_allocators::{Event, EventStatus, InvalidRequest, Memory, ObjectKind, Queue};
use binpool_opencl::{
    ChannelOrder, ChannelType, HostPitches, ImageColor, ImageFormat, ImageKind, ImagePart,
    ImageRegion, ImageShape, OpenClError,
};

use crate::common::{
    Bench, Error,
    picture::{
        ANY, FLOAT, PLANE, Picture, RGBA8, SHAPES, TIGHT, assert_says, copies_layers, inner,
        refused, request, spread,
    },
    until_given_back,
};
#[test]
fn pixels_come_back_as_they_were_written_whole_and_in_part() {
    let bench = Bench::new();
    for shape in SHAPES {
        let image = bench.image(RGBA8, shape);
        let mut picture = Picture::numbered(shape, 4);
        let all = ImageRegion::all(shape);
        let (backend, queue) = (&bench.backend, &bench.queue);
        backend
            .write_part(queue, ImagePart::new(&image, all), &picture.bytes)
            .unwrap();
        assert_eq!(bench.pixels(&image), picture.bytes, "{shape}");

        let part = inner(shape);
        let pixels = vec![200_u8; picture.get(part).len()];
        backend
            .write_part(queue, ImagePart::new(&image, part), &pixels)
            .unwrap();
        picture.put(part, &pixels);
        assert_eq!(bench.pixels(&image), picture.bytes, "{shape}");

        let mut wider = part;
        wider.origin[0] -= 1;
        wider.size[0] += 2;
        let mut read = vec![0_u8; picture.get(wider).len()];
        backend
            .read_part(queue, ImagePart::new(&image, wider), &mut read)
            .unwrap();
        assert_eq!(read, picture.get(wider), "{shape}");
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
            .read_part(
                queue,
                ImagePart::new(&image, part).with_pitches(pitches),
                &mut read,
            )
            .unwrap();
        assert_eq!(read, expected, "{shape}");

        let pixels = vec![77_u8; picture.get(part).len()];
        let data = spread(&pixels, part.size, row_bytes, pitches, 0xaa);
        let write = backend
            .enqueue_write_part(
                queue,
                ImagePart::new(&image, part).with_pitches(pitches),
                data.into(),
            )
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
        .read_part(&bench.queue, ImagePart::new(&image, region), &mut row)
        .unwrap();
    let expected = [14.0_f32, 15.0, 16.0, 17.0, 18.0, 19.0, 20.0];
    assert_eq!(row.map(f32::to_bits), expected.map(f32::to_bits));
}

#[test]
fn a_write_keeps_its_pixels_and_a_read_hands_them_out() {
    let bench = Bench::new();
    let (image, picture) = bench.numbered_image(PLANE);
    let all = ImageRegion::all(PLANE);
    let (backend, queue) = (&bench.backend, &bench.queue);
    let gate = bench.gate();
    let before = backend
        .enqueue_read_part(queue.after(from_ref(&gate)), ImagePart::new(&image, all))
        .unwrap();
    let data: Arc<[u8]> = vec![9; 7 * 5 * 4].into();
    let write = backend
        .enqueue_write_part(queue, ImagePart::new(&image, all), Arc::clone(&data))
        .unwrap();
    let after = backend
        .enqueue_read_part(queue, ImagePart::new(&image, all))
        .unwrap();
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
        let read = bench.backend.enqueue_read_part(
            bench.queue.after(from_ref(&gate)),
            ImagePart::new(&image, all),
        );
        std::mem::forget(read.unwrap());
    }
    drop(image);
    bench.open_gate(&gate);
    bench.queue.finish().unwrap();
}

#[test]
fn commands_of_two_queues_on_one_image_run_one_after_the_other() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let other = bench.another_queue();
    let (image, mut picture) = bench.numbered_image(PLANE);
    let (all, row) = (ImageRegion::all(PLANE), ImageRegion::new([0, 1], [7, 1]));
    let gate = bench.gate();
    let data = Arc::from(vec![9; 28]);
    let write = backend
        .enqueue_write_part(
            queue.after(from_ref(&gate)),
            ImagePart::new(&image, row),
            data,
        )
        .unwrap();
    let read = backend
        .enqueue_read_part(&other, ImagePart::new(&image.clone(), all))
        .unwrap();
    let fill = backend
        .enqueue_fill_image(queue, &image, row, ImageColor::Unsigned([3; 4]))
        .unwrap();
    let again = backend
        .enqueue_read_part(&other, ImagePart::new(&image, row))
        .unwrap();
    for event in [&write, read.event(), &fill, again.event()] {
        assert_eq!(event.status().unwrap(), EventStatus::Pending);
    }
    bench.open_gate(&gate);
    picture.put(row, &[9; 28]);
    assert_eq!(read.wait().unwrap(), picture.bytes);
    assert_eq!(again.wait().unwrap(), vec![3; 28]);
}

#[test]
fn reads_of_one_image_run_side_by_side() {
    let bench = Bench::new();
    let other = bench.another_queue();
    let (image, picture) = bench.numbered_image(PLANE);
    let all = ImageRegion::all(PLANE);
    let gate = bench.gate();
    let held = bench
        .backend
        .enqueue_read_part(
            bench.queue.after(from_ref(&gate)),
            ImagePart::new(&image, all),
        )
        .unwrap();
    let free = bench
        .backend
        .enqueue_read_part(&other, ImagePart::new(&image, all))
        .unwrap();
    assert_eq!(free.wait().unwrap(), picture.bytes);
    assert_eq!(held.event().status().unwrap(), EventStatus::Pending);
    bench.open_gate(&gate);
    held.wait().unwrap();
}

#[test]
fn what_waits_for_something_that_failed_fails() {
    let bench = Bench::new();
    let (image, _) = bench.numbered_image(PLANE);
    let gate = bench.gate();
    bench.fail_gate(&gate);
    let region = ImageRegion::new([0], [1]);
    let mut pixel = [0_u8; 4];
    let read = bench.backend.read_part(
        bench.queue.after(from_ref(&gate)),
        ImagePart::new(&image, region),
        &mut pixel,
    );
    assert!(matches!(
        refused(read),
        OpenClError::Device(Error::Backend(_))
    ));
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
                .enqueue_fill_image(&bench.queue, &image, part, color);
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
                .enqueue_fill_image(&bench.queue, &image, all, color);
            let says = format!("the colour {color:?} for pixels of {format}");
            assert_says(&refused(fill), &says);
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
                .enqueue_fill_image(queue, &destination, all, color)
                .unwrap();
            // One row is what they all have.
            let row = ImageRegion::new([1], [4]);
            let to = to_shape.extent().map(|size| usize::from(size > 1) * 2);
            let copy = backend.enqueue_copy_image(queue, &source, row, &destination, to);
            if !copies_layers(&bench, &source, &destination) {
                assert!(matches!(
                    refused(copy),
                    OpenClError::Device(Error::Unsupported { .. })
                ));
                continue;
            }
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
        // Beside it.
        let to = [3, 0, 0];
        let copy = backend.enqueue_copy_image(queue, &image, from, &image, to);
        if copies_layers(&bench, &image, &image) {
            copy.unwrap().wait().unwrap();
            picture.put(from.moved_to(to), &picture.get(from));
        } else {
            assert!(matches!(
                refused(copy),
                OpenClError::Device(Error::Unsupported { .. })
            ));
        }
        assert_eq!(bench.pixels(&image), picture.bytes, "{shape}");

        let overlapping = backend.enqueue_copy_image(queue, &image, from, &image, [2, 0, 0]);
        assert_says(&refused(overlapping), "the two regions overlap");
        // A clone is the same image.
        let overlapping =
            backend.enqueue_copy_image(queue, &image, from, &image.clone(), [2, 0, 0]);
        assert_says(&refused(overlapping), "the two regions overlap");
    }
}

/// Intel's runtime takes all layers of an array for one.
#[test]
fn a_layer_is_copied_to_another_one_of_its_image() {
    let bench = Bench::new();
    for shape in SHAPES {
        let layers = match shape.kind() {
            ImageKind::D2Array | ImageKind::D3 => [[0, 0, 0], [0, 0, 2]],
            ImageKind::D1Array => [[0, 0, 0], [0, 2, 0]],
            _ => continue,
        };
        let (image, mut picture) = bench.numbered_image(shape);
        if !copies_layers(&bench, &image, &image) {
            continue;
        }
        let mut size = shape.extent();
        let layer = usize::from(shape.kind() != ImageKind::D1Array) + 1;
        size[layer] = 1;
        let from = ImageRegion::new(layers[0], size);
        let (backend, queue) = (&bench.backend, &bench.queue);
        let copied = backend.enqueue_copy_image(queue, &image, from, &image, layers[1]);
        copied.unwrap().wait().unwrap();
        picture.put(from.moved_to(layers[1]), &picture.get(from));
        assert_eq!(bench.pixels(&image), picture.bytes, "{shape}");
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
            .enqueue_copy_image(&bench.queue, &source, region, &destination, [0; 3]);
    let says = format!("a copy from pixels of {RGBA8} to pixels of {FLOAT}");
    assert_says(&refused(copy), &says);
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
            let write = backend.write_part(
                queue,
                ImagePart::new(&image, all).with_pitches(pitches),
                &data,
            );
            assert_eq!(request(write), wrong);
            let read = backend.read_part(
                queue,
                ImagePart::new(&image, all).with_pitches(pitches),
                &mut data,
            );
            assert_eq!(request(read), wrong);
            let write = backend.enqueue_write_part(
                queue,
                ImagePart::new(&image, all).with_pitches(pitches),
                data.into(),
            );
            assert_eq!(request(write), wrong);
        }
    }
}

#[test]
fn pitches_hold_their_rows_and_slices() {
    let bench = Bench::new();
    let data = [0_u8; 1000];
    let volume = ImageShape::d3(7, 5, 2);
    for (shape, pitches, axis) in [
        (PLANE, HostPitches::rows(24), "row"),
        (PLANE, HostPitches::rows(30), "row"),
        (volume, HostPitches::rows_and_slices(28, 112), "slice"),
        (volume, HostPitches::rows_and_slices(28, 150), "slice"),
    ] {
        let created = bench
            .backend
            .create_image_with_data(ANY, RGBA8, shape, &data, pitches);
        let says = format!("a {axis} pitch of");
        assert_says(&refused(created), &says);
        let image = bench.image(RGBA8, shape);
        let all = ImageRegion::all(shape);
        let write = bench.backend.write_part(
            &bench.queue,
            ImagePart::new(&image, all).with_pitches(pitches),
            &data,
        );
        assert_says(&refused(write), &says);
    }
    let slices = HostPitches::rows_and_slices(28, 280);
    let created = bench
        .backend
        .create_image_with_data(ANY, RGBA8, PLANE, &data[..280], slices);
    assert_says(
        &refused(created),
        "a slice pitch of 280 bytes for a 2D image",
    );
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
        for (axis, &all) in extent.iter().enumerate() {
            let mut empty = ImageRegion::all(shape);
            empty.size[axis] = 0;
            wrong.push(empty);
            for (origin, size) in [
                (1, all),
                (all, 1),
                (0, all + 1),
                (usize::MAX, 1),
                (1, usize::MAX),
            ] {
                let mut outside = ImageRegion::all(shape);
                (outside.origin[axis], outside.size[axis]) = (origin, size);
                wrong.push(outside);
            }
        }
        for region in wrong {
            let refused = |result: Result<(), OpenClError>| {
                if region.size.contains(&0) {
                    assert_says(&refused(result), "each size has to be at least 1");
                } else {
                    let says = format!("{region} do not lie inside a {shape}");
                    assert_says(&refused(result), &says);
                }
            };
            let (color, none) = (ImageColor::Unsigned([0; 4]), &mut [0_u8; 0]);
            refused(backend.write_part(queue, ImagePart::new(&image, region), none));
            refused(backend.read_part(queue, ImagePart::new(&image, region), none));
            let no_bytes = Arc::from([]);
            refused(
                backend
                    .enqueue_write_part(queue, ImagePart::new(&image, region), no_bytes)
                    .map(drop),
            );
            refused(
                backend
                    .enqueue_read_part(queue, ImagePart::new(&image, region))
                    .map(drop),
            );
            refused(
                backend
                    .enqueue_fill_image(queue, &image, region, color)
                    .map(drop),
            );
            refused(
                backend
                    .enqueue_copy_image_to_buffer(queue, &image, region, &buffer, 0)
                    .map(drop),
            );
            refused(
                backend
                    .enqueue_copy_buffer_to_image(queue, &buffer, 0, &image, region)
                    .map(drop),
            );
            refused(
                backend
                    .enqueue_copy_image(queue, &image, region, &other, [0; 3])
                    .map(drop),
            );
        }
        // The region of the destination, too.
        let all = ImageRegion::all(shape);
        let copy = backend.enqueue_copy_image(queue, &image, all, &other, [1, 0, 0]);
        assert_says(&refused(copy), "do not lie inside");
    }
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
    let refused = |result: Result<_, OpenClError>, kind| {
        assert_eq!(request(result), InvalidRequest::ForeignObject { kind });
    };
    for (queue, image, buffer, kind) in [
        (&stranger.queue, &own, &own_buffer, ObjectKind::Queue),
        (&bench.queue, &foreign, &own_buffer, ObjectKind::Memory),
    ] {
        let pixels = &mut [0_u8; 140];
        refused(
            backend.write_part(queue, ImagePart::new(image, all), pixels),
            kind,
        );
        refused(
            backend.read_part(queue, ImagePart::new(image, all), pixels),
            kind,
        );
        let fill = backend.enqueue_fill_image(queue, image, all, color);
        refused(fill.map(drop), kind);
        let copy = backend.enqueue_copy_image(queue, image, all, &own, [0; 3]);
        refused(copy.map(drop), kind);
        let copy = backend.enqueue_copy_image_to_buffer(queue, image, all, buffer, 0);
        refused(copy.map(drop), kind);
    }
    let memory = ObjectKind::Memory;
    let queue = &bench.queue;
    let to = backend.enqueue_copy_image_to_buffer(queue, &own, all, &foreign_buffer, 0);
    refused(to.map(drop), memory);
    let from = backend.enqueue_copy_buffer_to_image(queue, &foreign_buffer, 0, &own, all);
    refused(from.map(drop), memory);
    let gate = stranger.gate();
    let fill = backend.enqueue_fill_image(queue.after(from_ref(&gate)), &own, all, color);
    refused(fill.map(drop), ObjectKind::Event);
    assert_eq!(own_buffer.bytes(), 256);
}
