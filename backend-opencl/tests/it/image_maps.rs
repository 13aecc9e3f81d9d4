//! Maps of images: rows of the host's.

use std::slice::from_ref;

use binpool_allocators::{Event, EventStatus, HostUse, InvalidRequest, MemoryFlags, Queue};
use binpool_opencl::{ClImage, ImageColor, ImagePart, ImageRegion, MapMode, MigrationFlags};

use crate::common::{
    Bench,
    picture::{ANY, PLANE, Picture, RGBA8, SHAPES, TIGHT, assert_says, inner, refused, request},
};

/// An image with a picture in it.
fn drawn(bench: &Bench, picture: &Picture) -> ClImage {
    let (format, shape) = (RGBA8, picture.shape);
    let data = &picture.bytes;
    bench
        .backend
        .create_image_with_data(ANY, format, shape, data, TIGHT)
        .unwrap()
}

fn contents(bench: &Bench, image: &ClImage) -> Vec<u8> {
    let all = ImageRegion::all(image.shape());
    let read = bench
        .backend
        .enqueue_read_part(&bench.queue, ImagePart::new(image, all));
    read.unwrap().wait().unwrap()
}

#[test]
fn a_map_shows_the_rows_of_its_region() {
    let bench = Bench::new();
    for shape in SHAPES {
        let picture = Picture::numbered(shape, 4);
        let image = drawn(&bench, &picture);
        for region in [ImageRegion::all(shape), inner(shape)] {
            let map = bench
                .backend
                .map_image::<[u8; 4]>(&bench.queue, &image, region)
                .unwrap();
            let seen: Vec<u8> = map.rows().flat_map(<[_]>::as_flattened).copied().collect();
            assert_eq!(seen, picture.get(region), "{shape:?} {region}");
            assert_eq!(map.row(region.size[1], 0), None);
            assert_eq!(map.row(0, region.size[2]), None);
            assert_eq!(map.row(0, 0).map(<[_]>::len), Some(region.size[0]));
        }
    }
}

#[test]
fn a_map_that_overwrites_leaves_the_pixels_around_it() {
    let bench = Bench::new();
    for shape in SHAPES {
        let mut picture = Picture::numbered(shape, 4);
        let image = drawn(&bench, &picture);
        let region = inner(shape);
        let gate = bench.gate();
        let pending = bench
            .backend
            .enqueue_map_image_mut::<u8>(
                bench.queue.after(from_ref(&gate)),
                &image,
                region,
                MapMode::Overwrite,
            )
            .unwrap();
        bench.open_gate(&gate);
        let mut map = pending.wait().unwrap();
        let [_, rows, slices] = region.size;
        for (row, slice) in (0..slices).flat_map(|slice| (0..rows).map(move |row| (row, slice))) {
            map.row_mut(row, slice).unwrap().fill(100);
        }
        map.unmap().unwrap();
        picture.fill(region, &[100; 4]);
        assert_eq!(contents(&bench, &image), picture.bytes, "{shape:?}");
    }
}

fn host_access(way: HostUse, flags: MemoryFlags) -> InvalidRequest {
    InvalidRequest::HostAccess { way, flags }
}

#[test]
fn the_host_uses_images_as_their_flags_allow() {
    let bench = Bench::new();
    let (backend, queue, all) = (&bench.backend, &bench.queue, ImageRegion::all(PLANE));
    let image = |flags| backend.create_image(flags, RGBA8, PLANE).unwrap();
    let mut pixels = Picture::numbered(PLANE, 4).bytes;
    let written = MemoryFlags::HOST_WRITE_ONLY;
    let output = image(written);
    let map = backend.map_image::<u8>(queue, &output, all);
    assert_eq!(request(map), host_access(HostUse::Read, written));
    let map = backend.map_image_mut::<u8>(queue, &output, all);
    assert_eq!(request(map), host_access(HostUse::Read, written));
    let read = backend.read_part(queue, ImagePart::new(&output, all), &mut pixels);
    assert_eq!(request(read), host_access(HostUse::Read, written));
    backend
        .enqueue_map_image_mut::<u8>(queue, &output, all, MapMode::Overwrite)
        .unwrap()
        .wait()
        .unwrap()
        .unmap()
        .unwrap();

    let read = MemoryFlags::HOST_READ_ONLY;
    let input = image(read);
    let map = backend.enqueue_map_image_mut::<u8>(queue, &input, all, MapMode::Overwrite);
    assert_eq!(request(map), host_access(HostUse::Write, read));
    let write = backend.write_part(queue, ImagePart::new(&input, all), &pixels);
    assert_eq!(request(write), host_access(HostUse::Write, read));
}

#[test]
fn an_image_tells_how_often_it_is_mapped() {
    let bench = Bench::new();
    let image = drawn(&bench, &Picture::numbered(PLANE, 4));
    let before = image.info().unwrap();
    assert_eq!((before.map_count, before.parent), (Some(0), None));
    assert_eq!(before.bytes, image.bytes().unwrap());
    let all = ImageRegion::all(PLANE);
    let map = bench
        .backend
        .map_image::<u8>(&bench.queue, &image, all)
        .unwrap();
    assert_eq!(image.info().unwrap().map_count, Some(1));
    map.unmap().unwrap().wait().unwrap();
    assert_eq!(image.info().unwrap().map_count, Some(0));
}

#[test]
fn what_is_written_to_a_map_is_in_the_image() {
    let bench = Bench::new();
    for shape in SHAPES {
        let mut picture = Picture::numbered(shape, 4);
        let image = drawn(&bench, &picture);
        let region = inner(shape);
        let mut map = bench
            .backend
            .map_image_mut::<u8>(&bench.queue, &image, region)
            .unwrap();
        let [_, rows, slices] = region.size;
        for (row, slice) in (0..slices).flat_map(|slice| (0..rows).map(move |row| (row, slice))) {
            map.row_mut(row, slice).unwrap().fill(200);
        }
        assert_eq!(map.row_mut(rows, 0), None);
        map.unmap().unwrap();
        picture.fill(region, &[200; 4]);
        assert_eq!(contents(&bench, &image), picture.bytes, "{shape:?}");
    }
}

#[test]
fn the_device_is_kept_out_of_an_image_that_is_mapped() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let image = drawn(&bench, &Picture::numbered(PLANE, 4));
    let all = ImageRegion::all(PLANE);
    // Whatever part is mapped: only the device knows where it lies.
    let (offset, bytes) = (0, 7 * 5 * 4);
    let is_mapped = |request| assert_eq!(request, InvalidRequest::Mapped { offset, bytes });
    let fill = || backend.enqueue_fill_image(queue, &image, all, ImageColor::Unsigned([1; 4]));
    let map = backend.map_image::<u8>(queue, &image, all).unwrap();
    is_mapped(request(fill()));
    // Reads go on.
    assert_eq!(contents(&bench, &image).len(), 7 * 5 * 4);
    is_mapped(request(backend.map_image_mut::<u8>(
        queue,
        &image,
        inner(PLANE),
    )));
    drop(map);
    let map = backend
        .map_image_mut::<u8>(queue, &image, inner(PLANE))
        .unwrap();
    is_mapped(request(fill()));
    is_mapped(request(
        backend.enqueue_read_part(queue, ImagePart::new(&image, all)),
    ));
    drop(map);
    fill().unwrap();
}

#[test]
fn a_map_comes_after_what_other_queues_do_to_the_image() {
    let bench = Bench::new();
    let image = drawn(&bench, &Picture::numbered(PLANE, 4));
    let (slow, gate, all) = (bench.another_queue(), bench.gate(), ImageRegion::all(PLANE));
    let color = ImageColor::Unsigned([9; 4]);
    bench
        .backend
        .enqueue_fill_image(slow.after(from_ref(&gate)), &image, all, color)
        .unwrap();
    let pending = bench
        .backend
        .enqueue_map_image::<u8>(&bench.queue, &image, all)
        .unwrap();
    assert_eq!(pending.event().status().unwrap(), EventStatus::Pending);
    bench.open_gate(&gate);
    assert!(
        pending
            .wait()
            .unwrap()
            .rows()
            .flatten()
            .all(|byte| *byte == 9)
    );
}

#[test]
fn what_cannot_be_mapped_is_refused_with_the_reason() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let image = drawn(&bench, &Picture::numbered(PLANE, 4));
    let beyond = ImageRegion::new([1, 0], [7, 5]);
    let error = refused(backend.map_image::<u8>(queue, &image, beyond));
    assert_says(&error, "do not lie inside");
    let none = ImageRegion::new([0, 0], [7, 0]);
    let error = refused(backend.map_image::<u8>(queue, &image, none));
    assert_says(&error, "each size has to be at least 1");
    let all = ImageRegion::all(PLANE);
    let odd = request(backend.map_image::<[u8; 5]>(queue, &image, all));
    assert_eq!(
        odd,
        InvalidRequest::NotWholeElements {
            bytes: 28,
            element: 5
        }
    );
    let stranger = Bench::new();
    let foreign = request(
        stranger
            .backend
            .map_image::<u8>(&stranger.queue, &image, all),
    );
    assert!(matches!(foreign, InvalidRequest::ForeignObject { .. }));
    // None of them has left a map behind.
    drop(backend.map_image_mut::<u8>(queue, &image, all).unwrap());
}

#[test]
fn images_migrate() {
    let bench = Bench::new();
    let picture = Picture::numbered(PLANE, 4);
    let image = drawn(&bench, &picture);
    for flags in [MigrationFlags::HOST, MigrationFlags::empty()] {
        let moved = bench
            .backend
            .enqueue_migrate_images(&bench.queue, &[&image], flags);
        moved.unwrap().wait().unwrap();
        assert_eq!(contents(&bench, &image), picture.bytes);
    }
    let stranger = Bench::new();
    let moved =
        stranger
            .backend
            .enqueue_migrate_images(&stranger.queue, &[&image], MigrationFlags::HOST);
    assert!(matches!(
        crate::common::refusal(moved),
        InvalidRequest::ForeignObject { .. }
    ));
}

#[cfg(feature = "ndarray")]
#[test]
fn a_map_is_an_array_of_slices_rows_and_elements() {
    use crate::common::picture::FLOAT;

    let bench = Bench::new();
    for shape in SHAPES {
        let numbers: Vec<f32> = (0_u8..)
            .map(f32::from)
            .take(shape.pixels().unwrap())
            .collect();
        let image = bench
            .backend
            .create_image_with_data(ANY, FLOAT, shape, &numbers, TIGHT)
            .unwrap();
        let map = bench
            .backend
            .map_image::<f32>(&bench.queue, &image, ImageRegion::all(shape))
            .unwrap();
        let array = map.shaped().unwrap();
        let [width, height, depth] = shape.extent();
        assert_eq!(array.shape(), [depth, height, width]);
        assert_eq!(
            array.iter().copied().collect::<Vec<_>>(),
            numbers,
            "{shape:?}"
        );
    }
}
