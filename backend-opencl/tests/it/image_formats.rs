//! The formats of pixels: what they say of themselves, and which a device has.

use std::collections::HashSet;

use binpool_allocators::MemoryFlags;
use binpool_opencl::{
    ChannelOrder, ChannelType, HostPitches, ImageFormat, ImageKind, ImageProblem, ImageShape,
    OpenClError,
};

use crate::common::{
    Bench,
    picture::{Picture, SHAPES, assert_says},
};

/// The formats of an image of four channels that every device of OpenCL 3.0 with images has (section 5.3.2.1).
const REQUIRED: [ChannelType; 6] = [
    ChannelType::UnormInt8,
    ChannelType::SignedInt8,
    ChannelType::UnsignedInt8,
    ChannelType::SignedInt32,
    ChannelType::UnsignedInt32,
    ChannelType::Float,
];

#[test]
fn every_constant_of_the_headers_is_known_by_its_number() {
    use cl3::memory as cl;
    for (order, code) in [
        (ChannelOrder::R, cl::CL_R),
        (ChannelOrder::A, cl::CL_A),
        (ChannelOrder::Rg, cl::CL_RG),
        (ChannelOrder::Ra, cl::CL_RA),
        (ChannelOrder::Rgb, cl::CL_RGB),
        (ChannelOrder::Rgba, cl::CL_RGBA),
        (ChannelOrder::Bgra, cl::CL_BGRA),
        (ChannelOrder::Argb, cl::CL_ARGB),
        (ChannelOrder::Intensity, cl::CL_INTENSITY),
        (ChannelOrder::Luminance, cl::CL_LUMINANCE),
        (ChannelOrder::Rx, cl::CL_Rx),
        (ChannelOrder::Rgx, cl::CL_RGx),
        (ChannelOrder::Rgbx, cl::CL_RGBx),
        (ChannelOrder::Depth, cl::CL_DEPTH),
        (ChannelOrder::SRgb, cl::CL_sRGB),
        (ChannelOrder::SRgbx, cl::CL_sRGBx),
        (ChannelOrder::SRgba, cl::CL_sRGBA),
        (ChannelOrder::SBgra, 0x10C2),
        (ChannelOrder::Abgr, cl::CL_ABGR),
    ] {
        assert_eq!(order.code(), code, "{order}");
        assert_eq!(ChannelOrder::from_code(code), Some(order));
    }
    for (data, code) in [
        (ChannelType::SnormInt8, cl::CL_SNORM_INT8),
        (ChannelType::SnormInt16, cl::CL_SNORM_INT16),
        (ChannelType::UnormInt8, cl::CL_UNORM_INT8),
        (ChannelType::UnormInt16, cl::CL_UNORM_INT16),
        (ChannelType::UnormShort565, cl::CL_UNORM_SHORT_565),
        (ChannelType::UnormShort555, cl::CL_UNORM_SHORT_555),
        (ChannelType::UnormInt101010, cl::CL_UNORM_INT_101010),
        (ChannelType::SignedInt8, cl::CL_SIGNED_INT8),
        (ChannelType::SignedInt16, cl::CL_SIGNED_INT16),
        (ChannelType::SignedInt32, cl::CL_SIGNED_INT32),
        (ChannelType::UnsignedInt8, cl::CL_UNSIGNED_INT8),
        (ChannelType::UnsignedInt16, cl::CL_UNSIGNED_INT16),
        (ChannelType::UnsignedInt32, cl::CL_UNSIGNED_INT32),
        (ChannelType::HalfFloat, cl::CL_HALF_FLOAT),
        (ChannelType::Float, cl::CL_FLOAT),
        (ChannelType::UnormInt101010_2, cl::CL_UNORM_INT_101010_2),
    ] {
        assert_eq!(data.code(), code, "{data}");
        assert_eq!(ChannelType::from_code(code), Some(data));
    }
    assert_eq!((ChannelOrder::ALL.len(), ChannelType::ALL.len()), (19, 16));
    // `CL_UNSIGNED_INT_RAW10_EXT`, and nothing at all.
    assert_eq!(ChannelType::from_code(0x10E3), None);
    assert_eq!(ChannelOrder::from_code(0), None);
}

#[test]
fn a_pixel_is_as_large_as_its_channels_unless_they_are_packed() {
    for (order, data, sizes) in [
        (ChannelOrder::R, ChannelType::UnormInt8, (1, 1, 1)),
        (ChannelOrder::Rg, ChannelType::HalfFloat, (2, 2, 4)),
        (ChannelOrder::Rgba, ChannelType::Float, (4, 4, 16)),
        (ChannelOrder::SBgra, ChannelType::UnormInt8, (4, 1, 4)),
        (ChannelOrder::Depth, ChannelType::UnormInt16, (1, 2, 2)),
        (ChannelOrder::Rgb, ChannelType::UnormShort565, (3, 2, 2)),
        (ChannelOrder::Rgbx, ChannelType::UnormShort555, (3, 2, 2)),
        (ChannelOrder::Rgb, ChannelType::UnormInt101010, (3, 4, 4)),
        (ChannelOrder::Rgba, ChannelType::UnormInt101010_2, (4, 4, 4)),
    ] {
        let format = ImageFormat::new(order, data);
        let all = (
            format.channel_count(),
            format.channel_bytes(),
            format.item_bytes(),
        );
        assert_eq!(all, sizes, "{format}");
    }
}

#[test]
fn formats_are_compared_and_hashed_by_what_they_are() {
    let all: HashSet<_> = ChannelOrder::ALL
        .iter()
        .flat_map(|order| {
            let format = |data: &_| ImageFormat::new(*order, *data);
            ChannelType::ALL
                .iter()
                .map(format)
                .chain(ChannelType::ALL.iter().map(format))
        })
        .collect();
    assert_eq!(all.len(), 19 * 16);
    let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
    assert_eq!(format.to_string(), "RGBA of UNORM_INT8");
}

#[test]
fn a_device_lists_what_it_has_for_each_kind_of_image() {
    let bench = Bench::new();
    for flags in [
        MemoryFlags::empty(),
        MemoryFlags::READ_ONLY,
        MemoryFlags::WRITE_ONLY | MemoryFlags::HOST_NO_ACCESS,
    ] {
        for kind in ImageKind::ALL {
            let formats = bench.backend.supported_image_formats(flags, kind).unwrap();
            for data in REQUIRED {
                let format = ImageFormat::new(ChannelOrder::Rgba, data);
                assert!(
                    formats.contains(&format),
                    "{format} for a {kind}, {flags:?}"
                );
            }
        }
    }
    let flags = MemoryFlags::READ_ONLY | MemoryFlags::WRITE_ONLY;
    crate::common::refusal(bench.backend.supported_image_formats(flags, ImageKind::D2));
}

#[test]
fn images_are_made_of_every_format_that_is_listed() {
    let bench = Bench::new();
    let flags = MemoryFlags::empty();
    for shape in SHAPES {
        let formats = bench
            .backend
            .supported_image_formats(flags, shape.kind())
            .unwrap();
        for format in formats {
            let picture = Picture::numbered(shape, format.item_bytes());
            let image = bench
                .backend
                .create_image_with_data(flags, format, shape, &picture.bytes, HostPitches::TIGHT)
                .unwrap();
            assert_eq!(bench.pixels(&image), picture.bytes, "{shape} of {format}");
        }
    }
}

#[test]
fn a_format_that_is_not_listed_is_refused_before_the_runtime_is_asked() {
    let bench = Bench::new();
    let flags = MemoryFlags::empty();
    let shape = ImageShape::d2(4, 4);
    let kind = shape.kind();
    let listed = bench.backend.supported_image_formats(flags, kind).unwrap();
    // Three channels are packed ones, and these are not: no device has them.
    let format = ImageFormat::new(ChannelOrder::Rgb, ChannelType::UnsignedInt32);
    assert!(!listed.contains(&format));
    let error = bench
        .backend
        .create_image(flags, format, shape)
        .unwrap_err();
    let others = listed.len();
    let expected = ImageProblem::Format {
        kind,
        format,
        others,
    };
    assert!(matches!(&error, OpenClError::Image(problem) if *problem == expected));
    let says = format!(
        "a {kind} of RGB of UNSIGNED_INT32: the device has {} formats",
        listed.len()
    );
    assert_says(&error, &says);
}
