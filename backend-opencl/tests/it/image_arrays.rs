//! Images from arrays, and back.

use binpool_allocators::MemoryFlags;
use binpool_opencl::{
    ChannelOrder, ChannelType, ChannelValue, ImageColor, ImageFormat, ImageRegion, ImageShape,
};
use ndarray::{Array, Array2, Array3, Array4, ArrayD, Dimension, s};

use crate::common::{
    Bench,
    picture::{Picture, SHAPES, assert_says},
};

const READ: MemoryFlags = MemoryFlags::READ_ONLY;

fn check<T: ChannelValue + PartialEq + std::fmt::Debug, D: Dimension>(
    array: &Array<T, D>,
    channels: usize,
    normalized: bool,
    (shape, order, data): (ImageShape, ChannelOrder, ChannelType),
) {
    let bench = Bench::new();
    let image = bench
        .backend
        .image_from_array(&array.view(), channels, READ, normalized);
    let format = ImageFormat::new(order, data);
    let listed = bench.backend.supported_image_formats(READ, shape.kind());
    if !listed.unwrap().contains(&format) {
        // `PoCL` has no images of two channels.
        assert_says(&image.unwrap_err(), &format!("a 2D image of {format}"));
        return;
    }
    let image = image.unwrap();
    assert_eq!(image.shape(), shape);
    assert_eq!(image.format(), format);
    assert_eq!(image.flags(), READ);
    let back: ArrayD<T> = bench
        .backend
        .array_from_image(&bench.queue, &image, ImageRegion::all(image.shape()))
        .unwrap();
    assert_eq!(back, array.to_owned().into_dyn());
}

#[test]
fn an_array_becomes_an_image_whose_x_is_its_last_dimension() {
    let plane = ImageShape::d2(5, 3);
    let volume = ImageShape::d3(5, 3, 2);
    let numbers = |shape| {
        let mut next = 0_u8;
        Array3::from_shape_simple_fn(shape, move || {
            next += 1;
            next
        })
    };
    let grey = Array2::from_shape_fn((3, 5), |(y, x)| u8::try_from(10 * y + x).unwrap());
    let (r, rgba) = (ChannelOrder::R, ChannelOrder::Rgba);
    check(&grey, 1, false, (plane, r, ChannelType::UnsignedInt8));
    check(&grey, 1, true, (plane, r, ChannelType::UnormInt8));
    check(
        &numbers((2, 3, 5)),
        1,
        false,
        (volume, r, ChannelType::UnsignedInt8),
    );
    check(
        &numbers((3, 5, 4)),
        4,
        true,
        (plane, rgba, ChannelType::UnormInt8),
    );
    check(
        &numbers((3, 5, 2)),
        2,
        false,
        (plane, ChannelOrder::Rg, ChannelType::UnsignedInt8),
    );
    let colors = Array4::from_elem((2, 3, 5, 4), 7_u16);
    check(
        &colors,
        4,
        false,
        (volume, rgba, ChannelType::UnsignedInt16),
    );
}

#[test]
fn every_number_has_its_type_of_channel() {
    let plane = ImageShape::d2(2, 2);
    let rgba = ChannelOrder::Rgba;
    macro_rules! check_type {
        ($($number:ty, $value:expr, $plain:ident $(, $normalized:ident)?;)+) => {$(
            let array = Array3::<$number>::from_elem((2, 2, 4), $value);
            check(&array, 4, false, (plane, rgba, ChannelType::$plain));
            $(check(&array, 4, true, (plane, rgba, ChannelType::$normalized));)?
        )+};
    }
    check_type! {
        i8, -3, SignedInt8, SnormInt8;
        i16, -300, SignedInt16, SnormInt16;
        i32, -70_000, SignedInt32;
        u8, 200, UnsignedInt8, UnormInt8;
        u16, 60_000, UnsignedInt16, UnormInt16;
        u32, 3_000_000_000, UnsignedInt32;
        f32, 0.5, Float;
    }
}

#[test]
fn images_of_every_kind_become_arrays() {
    let bench = Bench::new();
    let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnsignedInt8);
    for shape in SHAPES {
        let picture = Picture::numbered(shape, 4);
        let image = bench
            .backend
            .create_image_with_data(
                MemoryFlags::empty(),
                format,
                shape,
                &picture.bytes,
                binpool_opencl::HostPitches::TIGHT,
            )
            .unwrap();
        let array: ArrayD<u8> = bench
            .backend
            .array_from_image(&bench.queue, &image, ImageRegion::all(image.shape()))
            .unwrap();
        let extent = shape.extent();
        let mut expected: Vec<usize> = extent.into_iter().rev().skip_while(|&n| n == 1).collect();
        expected.push(4);
        assert_eq!(array.shape(), expected);
        assert_eq!(array.as_slice().unwrap(), picture.bytes);
    }
}

#[test]
fn a_window_of_an_array_is_found_in_its_part_of_the_image() {
    let bench = Bench::new();
    let array = Array2::<f32>::zeros((4, 6));
    let image = bench
        .backend
        .image_from_array(&array.view(), 1, MemoryFlags::empty(), false)
        .unwrap();
    let window = ImageRegion::new([2, 1], [3, 2]);
    let color = ImageColor::Float([4.0; 4]);
    bench
        .backend
        .enqueue_fill_image(&bench.queue, &image, window, color)
        .unwrap();
    let mut expected = array;
    expected.slice_mut(s![1..3, 2..5]).fill(4.0);
    let part: ArrayD<f32> = bench
        .backend
        .array_from_image(&bench.queue, &image, window)
        .unwrap();
    assert_eq!(part, Array2::from_elem((2, 3), 4.0).into_dyn());
    let beyond = window.moved_to([4, 1]);
    let refused = bench
        .backend
        .array_from_image::<f32>(&bench.queue, &image, beyond);
    assert_says(
        &refused.unwrap_err(),
        &format!("{beyond} do not lie inside"),
    );
    let back: ArrayD<f32> = bench
        .backend
        .array_from_image(&bench.queue, &image, ImageRegion::all(image.shape()))
        .unwrap();
    assert_eq!(back, expected.into_dyn());
}

#[test]
fn arrays_that_are_no_images_are_refused() {
    let bench = Bench::new();
    let make = |array: &ndarray::ArrayViewD<'_, u8>, channels| {
        bench
            .backend
            .image_from_array(array, channels, READ, false)
            .unwrap_err()
    };
    let plane = Array3::<u8>::zeros((4, 6, 4)).into_dyn();

    let transposed = plane.t();
    assert_says(
        &make(&transposed, 1),
        "an array of shape [4, 6, 4] with strides",
    );
    let window = plane.slice(s![.., 1.., ..]).into_dyn();
    assert_says(&make(&window, 4), "is not in C order");

    for channels in [0, 5] {
        let says = format!("pixels of {channels} channels");
        assert_says(&make(&plane.view(), channels), &says);
    }
    assert_says(
        &make(&plane.view(), 2),
        "its last dimension has to be the 2 channels",
    );
    for (shape, channels) in [
        (vec![8], 1),
        (vec![2, 2, 2, 2], 1),
        (vec![8, 4], 4),
        (vec![2, 2, 2, 2, 4], 4),
    ] {
        let array = ArrayD::<u8>::zeros(shape);
        let says = "2 or 3 dimensions are needed besides the channels";
        assert_says(&make(&array.view(), channels), says);
    }
    let empty = ArrayD::<u8>::zeros(vec![0, 4]);
    assert_says(&make(&empty.view(), 1), "has no pixels");

    let floats = Array2::<f32>::zeros((2, 2));
    let normalized = bench
        .backend
        .image_from_array(&floats.view(), 1, READ, true);
    assert_says(&normalized.unwrap_err(), "normalized f32");
}

#[test]
fn an_image_is_read_as_the_numbers_that_it_has() {
    let bench = Bench::new();
    let array = Array2::<i16>::zeros((2, 2));
    let image = bench
        .backend
        .image_from_array(&array.view(), 1, READ, false)
        .unwrap();
    let back = bench.backend.array_from_image::<u16>(
        &bench.queue,
        &image,
        ImageRegion::all(image.shape()),
    );
    assert_says(&back.unwrap_err(), "into an array of u16");
}
