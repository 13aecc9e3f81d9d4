//! Images on devices that can do less, or more, than the one under test.

use binpool_allocators::{Backend, Error, MemoryFlags, QueueOrder};

use super::{
    cl_image::ClImage,
    color::ImageColor,
    create::{check_item_bytes, check_plane_over, kernel_flags},
    format::{ChannelOrder, ChannelType, ImageFormat},
    layout::HostPitches,
    problem::ImageProblem,
    region::ImageRegion,
    sampler::{Addressing, ClSampler, Filter},
    shape::{ImageKind, ImageShape},
    transfer::ImagePart,
};
use crate::{
    backend::OpenClBackend,
    device::image_limits::ImageLimits,
    error::OpenClError,
    queue::ClQueue,
    testing::{open, open_as},
};

const RGBA8: ImageFormat = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnsignedInt8);
const ANY: MemoryFlags = MemoryFlags::empty();

fn queue(backend: &OpenClBackend) -> ClQueue {
    backend.create_queue(QueueOrder::InOrder).unwrap()
}

fn image(backend: &OpenClBackend, shape: ImageShape) -> ClImage {
    backend.create_image(ANY, RGBA8, shape).unwrap()
}

fn is_unsupported<T, E: Into<OpenClError>>(result: Result<T, E>) -> bool {
    let error = result.map(drop).map_err(Into::into);
    matches!(error, Err(OpenClError::Device(Error::Unsupported { .. })))
}

#[test]
fn a_device_that_mixes_up_layers_copies_none_within_an_array_or_between_a_1d_array_and_anything_else()
 {
    let backend = open_as(|context| context.image_limits_mut().layer_copies = false);
    let queue = queue(&backend);
    let shapes = [
        ImageShape::d2(4, 4),
        ImageShape::d1_array(4, 4),
        ImageShape::d2_array(4, 4, 4),
    ];
    let row = ImageRegion::new([0, 0], [4, 1]);
    for shape in shapes {
        let source = image(&backend, shape);
        for other in shapes {
            let target = image(&backend, other);
            let copied = backend.enqueue_copy_image(&queue, &source, row, &target, [0; 3]);
            let is_mixed =
                (shape.kind() == ImageKind::D1Array) != (other.kind() == ImageKind::D1Array);
            assert_eq!(is_unsupported(copied), is_mixed, "{shape} to {other}");
        }
        let copied = backend.enqueue_copy_image(&queue, &source, row, &source, [0, 1, 0]);
        assert_eq!(
            is_unsupported(copied),
            shape.layers().is_some(),
            "{shape} to itself"
        );

        let buffer = backend.create_buffer(16, ANY).unwrap();
        let out = backend.enqueue_copy_image_to_buffer(&queue, &source, row, &buffer, 0);
        assert_eq!(
            is_unsupported(out),
            shape.kind() == ImageKind::D1Array,
            "{shape} to a buffer"
        );
    }
}

#[test]
fn a_device_without_images_has_no_formats_and_no_samplers() {
    let backend = open_as(|context| context.image_limits_mut().images = false);
    let formats = backend.supported_image_formats(ANY, ImageKind::D2).unwrap();
    assert_eq!(formats, []);
    assert!(is_unsupported(backend.create_image(
        ANY,
        RGBA8,
        ImageShape::d2(4, 4)
    )));
    assert!(is_unsupported(ClSampler::new(
        &backend,
        true,
        Addressing::Clamp,
        Filter::Nearest
    )));
}

/// Makes as the fill of a volume what waits for nothing.
#[test]
fn a_volume_is_filled_by_a_copy_where_its_fills_block() {
    let backend = open_as(|context| context.quirks.fills_of_volumes_block = true);
    let queue = queue(&backend);
    let volume = image(&backend, ImageShape::d3(3, 2, 2));
    let all = ImageRegion::all(volume.shape());
    let color = |byte| ImageColor::Unsigned([byte; 4]);
    backend
        .enqueue_fill_image(&queue, &volume, all, color(1))
        .unwrap();
    let middle = ImageRegion::new([1, 1, 1], [1, 1, 1]);
    backend
        .enqueue_fill_image(&queue, &volume, middle, color(2))
        .unwrap();
    let mut bytes = [0_u8; 48];
    backend
        .read_part(&queue, ImagePart::new(&volume, all), &mut bytes)
        .unwrap();
    let mut expected = [1; 48];
    expected[40..44].fill(2);
    assert_eq!(bytes, expected);
}

#[test]
fn formats_depend_on_what_kernels_do_alone() {
    use cl3::memory::{CL_MEM_READ_ONLY, CL_MEM_READ_WRITE, CL_MEM_WRITE_ONLY};
    for (flags, kernels) in [
        (ANY, CL_MEM_READ_WRITE),
        (MemoryFlags::HOST_RESIDENT, CL_MEM_READ_WRITE),
        (MemoryFlags::READ_ONLY, CL_MEM_READ_ONLY),
        (
            MemoryFlags::WRITE_ONLY | MemoryFlags::HOST_RESIDENT,
            CL_MEM_WRITE_ONLY,
        ),
    ] {
        assert_eq!(kernel_flags(flags), kernels, "{flags:?}");
    }
}

#[test]
fn a_runtime_whose_pixels_have_another_size_is_refused() {
    let backend = open();
    let image = image(&backend, ImageShape::d2(4, 4));
    check_item_bytes(image.handle(), RGBA8).unwrap();
    let one = ImageFormat::new(ChannelOrder::R, ChannelType::UnsignedInt8);
    assert!(is_unsupported(check_item_bytes(image.handle(), one)));
}

#[test]
fn a_plane_over_a_buffer_starts_and_has_rows_where_the_device_can_take_them() {
    let limits = ImageLimits {
        pitch_alignment: 4,
        base_alignment: 8,
        ..ImageLimits::default()
    };
    let shape = ImageShape::d2(6, 2);
    let check = |offset, row| {
        let layout = HostPitches::rows(row).layout(shape, 4)?;
        check_plane_over(&limits, offset, RGBA8, shape, layout)
    };
    assert_eq!(check(64, 32).unwrap(), 32);
    assert!(is_unsupported(check(16, 32)));
    assert!(matches!(check(64, 24), Err(OpenClError::Image(_))));
}

#[test]
fn the_row_pitch_of_a_plane_over_a_buffer_is_checked_before_the_runtime_sees_it() {
    let backend = open_as(|context| {
        let limits = context.image_limits_mut();
        limits.planes_over_buffers = true;
        (limits.pitch_alignment, limits.base_alignment) = (4, 4);
    });
    let buffer = backend.create_buffer(256, ANY).unwrap();
    let shape = ImageShape::d2(6, 2);
    let over = backend.create_image_over(&queue(&backend), &buffer, RGBA8, shape, Some(28));
    assert!(matches!(over, Err(OpenClError::Image(_))));
}

#[test]
fn what_a_program_can_do_about_an_image_is_in_the_error() {
    let backend = open_as(|context| context.image_limits_mut().plane_width = 8);
    let queue = queue(&backend);
    let problem = |error: OpenClError| match error {
        OpenClError::Image(problem) => problem,
        error => panic!("not about an image: {error}"),
    };
    let shape = ImageShape::d2(9, 4);
    let wide = backend.create_image(ANY, RGBA8, shape).unwrap_err();
    let too_large = ImageProblem::TooLarge {
        shape,
        size: "width",
        requested: 9,
        largest: 8,
    };
    assert_eq!(problem(wide), too_large);
    let generic = Error::from(OpenClError::Image(too_large));
    assert!(matches!(generic, Error::Unsupported { .. }), "{generic}");

    let plane = image(&backend, ImageShape::d2(8, 4));
    let row = ImageRegion::new([0, 0], [4, 1]);
    let onto = backend.enqueue_copy_image(&queue, &plane, row, &plane, [1, 0, 0]);
    let (from, to) = (row, [1, 0, 0]);
    assert_eq!(
        problem(onto.unwrap_err()),
        ImageProblem::Overlap { from, to }
    );
    let floats = ImageFormat::new(ChannelOrder::Rgba, ChannelType::Float);
    let other = backend.create_image(ANY, floats, plane.shape()).unwrap();
    let copied = backend.enqueue_copy_image(&queue, &plane, row, &other, [0; 3]);
    let (from, to) = (RGBA8, floats);
    assert_eq!(
        problem(copied.unwrap_err()),
        ImageProblem::FormatsDiffer { from, to }
    );
    let region = ImageRegion::new([6, 0], [4, 1]);
    let beyond = backend.enqueue_fill_image(&queue, &plane, region, ImageColor::Unsigned([0; 4]));
    let shape = plane.shape();
    assert_eq!(
        problem(beyond.unwrap_err()),
        ImageProblem::OutOfBounds { region, shape }
    );
}
