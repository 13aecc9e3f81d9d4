//! Pictures in the host's memory: what images have to do, done plainly.

use std::fmt;

use binpool_allocators::{InvalidRequest, MemoryFlags};
use binpool_opencl::{
    ChannelOrder, ChannelType, ClImage, HostPitches, ImageFormat, ImageKind, ImagePart,
    ImageRegion, ImageShape, OpenClError,
};

use super::{Bench, Error};

pub(crate) const RGBA8: ImageFormat =
    ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnsignedInt8);
pub(crate) const FLOAT: ImageFormat = ImageFormat::new(ChannelOrder::R, ChannelType::Float);
pub(crate) const ANY: MemoryFlags = MemoryFlags::empty();
pub(crate) const TIGHT: HostPitches = HostPitches::TIGHT;

pub(crate) const PLANE: ImageShape = ImageShape::d2(7, 5);

/// A shape of each kind that has pixels of its own, with sizes that tell the coordinates apart.
pub(crate) const SHAPES: [ImageShape; 5] = [
    ImageShape::d1(7),
    ImageShape::d1_array(7, 4),
    ImageShape::d2(7, 5),
    ImageShape::d2_array(7, 5, 4),
    ImageShape::d3(7, 5, 3),
];

/// Pixels without gaps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Picture {
    pub(crate) shape: ImageShape,
    /// The size of a pixel in bytes.
    pub(crate) item: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Picture {
    /// Pixels that tell their places apart.
    pub(crate) fn numbered(shape: ImageShape, item: usize) -> Self {
        let bytes = super::numbered(shape.pixels().unwrap() * item);
        Self { shape, item, bytes }
    }

    /// Where the first bytes of the rows of a region are, in the picture.
    fn rows(&self, region: ImageRegion) -> Vec<usize> {
        let [width, height, _] = self.shape.extent();
        let [x, y, z] = region.origin;
        let [_, rows, slices] = region.size;
        (z..z + slices)
            .flat_map(|z| (y..y + rows).map(move |y| ((z * height + y) * width + x) * self.item))
            .collect()
    }

    fn row_bytes(&self, region: ImageRegion) -> usize {
        region.size[0] * self.item
    }

    /// The pixels of a region, without gaps.
    pub(crate) fn get(&self, region: ImageRegion) -> Vec<u8> {
        let bytes = self.row_bytes(region);
        let rows = self.rows(region).into_iter();
        rows.flat_map(|at| &self.bytes[at..at + bytes])
            .copied()
            .collect()
    }

    /// Puts pixels without gaps into a region.
    pub(crate) fn put(&mut self, region: ImageRegion, pixels: &[u8]) {
        let bytes = self.row_bytes(region);
        for (at, row) in self.rows(region).into_iter().zip(pixels.chunks(bytes)) {
            self.bytes[at..at + bytes].copy_from_slice(row);
        }
    }

    /// Puts one pixel everywhere in a region.
    pub(crate) fn fill(&mut self, region: ImageRegion, pixel: &[u8]) {
        self.put(region, &pixel.repeat(region.pixels().unwrap()));
    }
}

/// Pixels of `size` without gaps, spread to those pitches, with `padding` between.
pub(crate) fn spread(
    pixels: &[u8],
    size: [usize; 3],
    row_bytes: usize,
    pitches: HostPitches,
    padding: u8,
) -> Vec<u8> {
    let [_, height, depth] = size;
    let row_pitch = pitches.row.unwrap_or(row_bytes);
    let slice_pitch = pitches.slice.unwrap_or(row_pitch * height);
    let mut all = vec![padding; slice_pitch * depth];
    for (index, row) in pixels.chunks(row_bytes).enumerate() {
        let at = index / height * slice_pitch + index % height * row_pitch;
        all[at..at + row_bytes].copy_from_slice(row);
    }
    all
}

/// A part of every image of [`SHAPES`] that touches no edge where there is room.
pub(crate) fn inner(shape: ImageShape) -> ImageRegion {
    let extent = shape.extent();
    let origin = extent.map(|size| usize::from(size > 1));
    let size = extent.map(|size| size.saturating_sub(2).max(1));
    ImageRegion { origin, size }
}

/// Why a call with images was refused. Every refusal says something.
/// Asserts that an error says what is wrong.
pub(crate) fn assert_says(error: &OpenClError, text: &str) {
    assert!(error.to_string().contains(text), "{error}");
}

pub(crate) fn refused<T: fmt::Debug>(result: Result<T, OpenClError>) -> OpenClError {
    let error = result.unwrap_err();
    assert!(!error.to_string().is_empty());
    error
}

/// What is wrong with the call that gave `result`.
pub(crate) fn request<T: fmt::Debug>(result: Result<T, OpenClError>) -> InvalidRequest {
    match refused(result) {
        OpenClError::Device(Error::InvalidRequest(request)) => request,
        error => panic!("not a refusal: {error}"),
    }
}

impl Bench {
    pub(crate) fn image(&self, format: ImageFormat, shape: ImageShape) -> ClImage {
        self.backend.create_image(ANY, format, shape).unwrap()
    }

    /// An image of RGBA with pixels that tell their places apart, and the same pixels in a picture.
    pub(crate) fn numbered_image(&self, shape: ImageShape) -> (ClImage, Picture) {
        let picture = Picture::numbered(shape, 4);
        let image = self
            .backend
            .create_image_with_data(ANY, RGBA8, shape, &picture.bytes, TIGHT)
            .unwrap();
        (image, picture)
    }

    /// All of an image, without gaps.
    pub(crate) fn pixels(&self, image: &ClImage) -> Vec<u8> {
        let all = ImageRegion::all(image.shape());
        let mut bytes = vec![0xee_u8; all.pixels().unwrap() * image.item_bytes()];
        self.backend
            .read_part(&self.queue, ImagePart::new(image, all), &mut bytes)
            .unwrap();
        bytes
    }
}

/// Whether the device copies from an image to another one, or to itself, of which at least one has layers. What has no layers is
/// copied everywhere.
pub(crate) fn copies_layers(bench: &Bench, from: &ClImage, to: &ClImage) -> bool {
    let [one, two] = [from, to].map(|image| image.shape().kind() == ImageKind::D1Array);
    let within_layers = from == to && from.shape().layers().is_some();
    bench.backend.image_limits().unwrap().layer_copies || (one == two && !within_layers)
}
