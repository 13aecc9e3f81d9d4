//! Images: how they are made, and what they are.

use std::collections::HashSet;

use binpool_allocators::{InvalidRequest, MemoryFlags, Queue};
use binpool_opencl::{
    ChannelOrder, ChannelType, HostPitches, ImageColor, ImageFormat, ImageKind, ImageRegion,
    ImageShape, OpenClError,
};

use crate::common::{
    Bench, Error,
    picture::{ANY, PLANE, Picture, RGBA8, SHAPES, assert_says, inner, refused, request, spread},
};
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
fn an_image_over_a_vector_gives_it_back_as_the_commands_have_left_it() {
    let bench = Bench::new();
    for shape in SHAPES {
        let mut picture = Picture::numbered(shape, 4);
        let pixels = picture.bytes.clone();
        let made = bench
            .backend
            .create_host_image(ANY, RGBA8, shape, pixels, HostPitches::TIGHT);
        let image = made.unwrap();
        assert!(image.memory().info().unwrap().has_host_pointer, "{shape}");
        assert_eq!(bench.pixels(image.memory()), picture.bytes, "{shape}");
        let (region, gate) = (inner(shape), bench.gate());
        let color = ImageColor::Unsigned([9; 4]);
        let (queue, wait) = (&bench.queue, std::slice::from_ref(&gate));
        bench
            .backend
            .enqueue_fill_image(queue.after(wait), image.memory(), region, color)
            .unwrap();
        bench.open_gate(&gate);
        picture.fill(region, &[9; 4]);
        assert_eq!(image.into_host().unwrap(), picture.bytes, "{shape}");
    }
}

#[test]
fn an_image_over_a_vector_of_wide_rows_leaves_what_is_between_them() {
    let bench = Bench::new();
    let picture = Picture::numbered(PLANE, 4);
    let pitches = HostPitches::rows(7 * 4 + 8);
    let padded = spread(&picture.bytes, [7, 5, 1], 7 * 4, pitches, 0xaa);
    let image = bench
        .backend
        .create_host_image(ANY, RGBA8, PLANE, padded.clone(), pitches)
        .unwrap();
    assert_eq!(bench.pixels(image.memory()), picture.bytes);
    assert_eq!(image.into_host().unwrap(), padded);
}

#[test]
fn what_no_image_over_a_vector_can_be_comes_back() {
    let bench = Bench::new();
    let make = |flags, bytes: usize| {
        let pixels = vec![1_u8; bytes];
        let made = bench
            .backend
            .create_host_image(flags, RGBA8, PLANE, pixels, HostPitches::TIGHT);
        let refused = made.unwrap_err();
        assert_eq!(refused.value, vec![1; bytes]);
        refused.error.to_string()
    };
    assert!(make(ANY, 7 * 5 * 4 - 1).contains("139 bytes where 140 are needed"));
    assert!(make(MemoryFlags::HOST_WRITE_ONLY, 7 * 5 * 4).contains("the host cannot read"));
}

#[test]
fn a_vector_under_an_image_stays_while_anything_can_use_it() {
    let bench = Bench::new();
    let pixels = vec![1_u8; 7 * 5 * 4];
    let image = bench
        .backend
        .create_host_image(ANY, RGBA8, PLANE, pixels, HostPitches::TIGHT)
        .unwrap();
    let clone = image.memory().clone();
    let refused = image.into_host().unwrap_err();
    let (views, bytes) = (1, 7 * 5 * 4);
    assert!(matches!(
        refused.error,
        Error::InvalidRequest(request) if request == InvalidRequest::ViewsLeft { views, bytes }
    ));
    // The clone has the vector when everything else is gone.
    drop(refused.value);
    assert_eq!(bench.pixels(&clone), vec![1; bytes]);
    let forgotten = bench
        .backend
        .create_host_image(ANY, RGBA8, PLANE, vec![2_u8; bytes], HostPitches::TIGHT)
        .unwrap();
    let all = ImageRegion::all(PLANE);
    let map = bench
        .backend
        .map_image::<u8>(&bench.queue, forgotten.memory(), all);
    std::mem::forget(map.unwrap());
    let refused = forgotten.into_host().unwrap_err();
    assert!(
        refused.to_string().contains("mapped by the host"),
        "{refused}"
    );
}

#[test]
fn an_image_has_pixels() {
    let bench = Bench::new();
    let row = |width, layers| ImageShape::d1_array(width, layers);
    let plane = |width, height| ImageShape::d2(width, height);
    let planes = |width, height, layers| ImageShape::d2_array(width, height, layers);
    let volume = |width, height, depth| ImageShape::d3(width, height, depth);
    for shape in [
        ImageShape::d1(0),
        row(0, 1),
        row(1, 0),
        plane(0, 1),
        plane(1, 0),
        planes(0, 1, 1),
        planes(1, 0, 1),
        planes(1, 1, 0),
        volume(0, 1, 1),
        volume(1, 0, 1),
        volume(1, 1, 0),
    ] {
        let error = refused(bench.backend.create_image(ANY, RGBA8, shape));
        assert_says(&error, &format!("a {shape} has no pixels"));
    }
}

#[test]
fn an_image_fits_the_device() {
    let bench = Bench::new();
    let limits = bench.backend.image_limits().unwrap();
    let (width, height) = (limits.plane_width + 1, limits.plane_height + 1);
    let layers = limits.layers + 1;
    for (shape, axis, largest) in [
        (ImageShape::d1(width), "width", limits.plane_width),
        (
            ImageShape::d1_array(1, layers),
            "number of layers",
            limits.layers,
        ),
        (ImageShape::d2(width, 1), "width", limits.plane_width),
        (ImageShape::d2(1, height), "height", limits.plane_height),
        (
            ImageShape::d2_array(1, 1, layers),
            "number of layers",
            limits.layers,
        ),
        (
            ImageShape::d3(limits.volume_width + 1, 1, 1),
            "width",
            limits.volume_width,
        ),
        (
            ImageShape::d3(1, limits.volume_height + 1, 1),
            "height",
            limits.volume_height,
        ),
        (
            ImageShape::d3(1, 1, usize::MAX),
            "depth",
            limits.volume_depth,
        ),
    ] {
        let error = refused(bench.backend.create_image(ANY, RGBA8, shape));
        assert_says(&error, &format!("its {axis} is "));
        assert_says(&error, &format!(", and this device's largest is {largest}"));
    }
    // Each size fits, and all together are more than one block of memory.
    let huge = ImageShape::d3(
        limits.volume_width,
        limits.volume_height,
        limits.volume_depth,
    );
    let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::Float);
    assert!(matches!(
        request(bench.backend.create_image(ANY, format, huge)),
        InvalidRequest::TooLarge { .. }
    ));
}

#[test]
#[allow(unsafe_code)]
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
        // SAFETY: The image lives, and no command on it runs.
        let again = unsafe { bench.backend.wrap_raw_image(image.raw(), true) };
        // All images of `PoCL` have memory that the host reaches, so a handle does not tell who wanted it.
        let told = if bench.is_pocl() {
            flags - MemoryFlags::HOST_RESIDENT
        } else {
            flags
        };
        assert_eq!(again.unwrap().flags(), told);
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
fn images_with_the_same_handle_are_equal() {
    let bench = Bench::new();
    for shape in SHAPES {
        let (image, picture) = bench.numbered_image(shape);
        // SAFETY: The image lives, and no other command on it runs.
        let again = unsafe { bench.backend.wrap_raw_image(image.raw(), true) }.unwrap();
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
        let owned = unsafe { bench.backend.wrap_raw_image(raw, false) }.unwrap();
        assert_eq!(bench.pixels(&owned), picture.bytes);
    }
}

#[test]
#[allow(unsafe_code)]
fn what_is_no_image_of_this_context_is_not_taken_for_one() {
    let bench = Bench::new();
    let buffer = bench.buffer(64);
    // SAFETY: The buffer lives.
    let image = unsafe { bench.backend.wrap_raw_image(buffer.raw().unwrap(), true) };
    assert_says(&refused(image), "an object of kind 0x10f0");
    // SAFETY: The handle is null.
    let image = unsafe { bench.backend.wrap_raw_image(std::ptr::null_mut(), true) };
    assert!(matches!(
        refused(image),
        OpenClError::Device(Error::Backend(_))
    ));
    let foreign = Bench::new().image(RGBA8, PLANE);
    // SAFETY: The image lives.
    let image = unsafe { bench.backend.wrap_raw_image(foreign.raw(), true) };
    assert!(matches!(
        request(image),
        InvalidRequest::ForeignObject { .. }
    ));
}

#[test]
fn every_driver_but_nvidias_copies_layers_and_rows_of_1d_arrays() {
    let bench = Bench::new();
    let limits = bench.backend.image_limits().unwrap();
    assert_eq!(limits.layer_copies, !bench.is_nvidia());
}
