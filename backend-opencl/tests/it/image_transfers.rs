//! Any sequence of commands on images does what it would do to pictures in the host's memory.

use std::sync::LazyLock;

use binpool_allocators::MemoryFlags;
use binpool_opencl::{
    ChannelOrder, ChannelType, ClImage, ClMemory, HostPitches, ImageColor, ImageFormat, ImageKind,
    ImagePart, ImageRegion, ImageShape,
};
use proptest::prelude::*;

use crate::common::{
    Bench,
    picture::{Picture, SHAPES, copies_layers, spread},
};

static BENCH: LazyLock<Bench> = LazyLock::new(Bench::new);

const FORMAT: ImageFormat = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnsignedInt8);
const BUFFER_BYTES: usize = 1024;

/// A region by fractions of what there is: where it starts, and how large it is.
type Part = [(u8, u8); 3];

#[derive(Clone, Debug)]
enum Step {
    Write {
        image: usize,
        part: Part,
        value: u8,
        padding: (usize, usize),
    },
    Read {
        image: usize,
        part: Part,
        padding: (usize, usize),
    },
    Fill {
        image: usize,
        part: Part,
        value: u8,
    },
    Copy {
        from: usize,
        part: Part,
        to: usize,
        place: [u8; 3],
    },
    ToBuffer {
        image: usize,
        part: Part,
        offset: usize,
    },
    FromBuffer {
        image: usize,
        part: Part,
        offset: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let image = 0..SHAPES.len();
    let part = any::<Part>;
    let padding = (0..4_usize, 0..3_usize);
    let offset = 0..64_usize;
    let step = prop_oneof![
        (image.clone(), part(), any::<u8>(), padding.clone()).prop_map(
            |(image, part, value, padding)| Step::Write {
                image,
                part,
                value,
                padding
            }
        ),
        (image.clone(), part(), padding).prop_map(|(image, part, padding)| Step::Read {
            image,
            part,
            padding
        }),
        (image.clone(), part(), any::<u8>()).prop_map(|(image, part, value)| Step::Fill {
            image,
            part,
            value
        }),
        (image.clone(), part(), image.clone(), any::<[u8; 3]>()).prop_map(
            |(from, part, to, place)| Step::Copy {
                from,
                part,
                to,
                place
            }
        ),
        (image.clone(), part(), offset.clone()).prop_map(|(image, part, offset)| {
            Step::ToBuffer {
                image,
                part,
                offset,
            }
        }),
        (image, part(), offset).prop_map(|(image, part, offset)| Step::FromBuffer {
            image,
            part,
            offset
        }),
    ];
    prop::collection::vec(step, 1..24)
}

fn region(shape: ImageShape, part: Part) -> ImageRegion {
    let mut region = ImageRegion::all(shape);
    for (at, (start, length)) in part.into_iter().enumerate() {
        let extent = region.size[at];
        region.origin[at] = usize::from(start) * extent / 256;
        region.size[at] = 1 + usize::from(length) * (extent - region.origin[at]) / 256;
    }
    region
}

/// Pitches with that many pixels and rows between.
fn pitches(shape: ImageShape, region: ImageRegion, (pixels, rows): (usize, usize)) -> HostPitches {
    let row = (region.size[0] + pixels) * FORMAT.item_bytes();
    match shape.kind() {
        ImageKind::D2Array | ImageKind::D3 => {
            HostPitches::rows_and_slices(row, row * (region.size[1] + rows))
        }
        _ => HostPitches::rows(row),
    }
}

/// Images, a buffer, and what is to be in them.
struct World {
    images: Vec<ClImage>,
    pictures: Vec<Picture>,
    buffer: ClMemory,
    bytes: Vec<u8>,
}

/// Whether the image is a 1D array on a device that does not copy those to buffers.
fn refuses_layers(image: &ClImage) -> bool {
    let limits = BENCH.backend.image_limits().unwrap();
    image.shape().kind() == ImageKind::D1Array && !limits.layer_copies
}

impl World {
    fn new() -> Self {
        let pictures = SHAPES.map(|shape| Picture::numbered(shape, FORMAT.item_bytes()));
        let image = |picture: &Picture| {
            BENCH
                .backend
                .create_image_with_data(
                    MemoryFlags::empty(),
                    FORMAT,
                    picture.shape,
                    &picture.bytes,
                    HostPitches::TIGHT,
                )
                .unwrap()
        };
        Self {
            images: pictures.iter().map(image).collect(),
            pictures: pictures.to_vec(),
            buffer: BENCH.filled(BUFFER_BYTES, 1),
            bytes: vec![1; BUFFER_BYTES],
        }
    }

    fn run(&mut self, step: &Step) {
        let (backend, queue) = (&BENCH.backend, &BENCH.queue);
        match *step {
            Step::Write {
                image,
                part,
                value,
                padding,
            } => {
                let region = region(SHAPES[image], part);
                let pixels: Vec<u8> = (value..=u8::MAX)
                    .chain(0..value)
                    .cycle()
                    .take(region.pixels().unwrap() * 4)
                    .collect();
                let pitches = pitches(SHAPES[image], region, padding);
                let data = spread(&pixels, region.size, region.size[0] * 4, pitches, 0xaa);
                let image_of = &self.images[image];
                backend
                    .write_part(
                        queue,
                        ImagePart::new(image_of, region).with_pitches(pitches),
                        &data,
                    )
                    .unwrap();
                self.pictures[image].put(region, &pixels);
            }
            Step::Read {
                image,
                part,
                padding,
            } => {
                let region = region(SHAPES[image], part);
                let pitches = pitches(SHAPES[image], region, padding);
                let pixels = self.pictures[image].get(region);
                let expected = spread(&pixels, region.size, region.size[0] * 4, pitches, 0xaa);
                let mut data = vec![0xaa_u8; expected.len()];
                let image = &self.images[image];
                backend
                    .read_part(
                        queue,
                        ImagePart::new(image, region).with_pitches(pitches),
                        &mut data,
                    )
                    .unwrap();
                assert_eq!(data, expected);
                let read = backend.enqueue_read_part(queue, ImagePart::new(image, region));
                assert_eq!(read.unwrap().wait().unwrap(), pixels);
            }
            Step::Fill { image, part, value } => {
                let region = region(SHAPES[image], part);
                let color = ImageColor::Unsigned([value.into(); 4]);
                backend
                    .enqueue_fill_image(queue, &self.images[image], region, color)
                    .unwrap();
                self.pictures[image].fill(region, &[value; 4]);
            }
            Step::Copy {
                from,
                part,
                to,
                place,
            } => self.copy(from, region(SHAPES[from], part), to, place),
            Step::ToBuffer {
                image,
                part,
                offset,
            } => {
                let region = region(SHAPES[image], part);
                let (image_of, buffer) = (&self.images[image], &self.buffer);
                let copied =
                    backend.enqueue_copy_image_to_buffer(queue, image_of, region, buffer, offset);
                if refuses_layers(image_of) {
                    copied.unwrap_err();
                    return;
                }
                copied.unwrap();
                let pixels = self.pictures[image].get(region);
                self.bytes[offset..offset + pixels.len()].copy_from_slice(&pixels);
            }
            Step::FromBuffer {
                image,
                part,
                offset,
            } => {
                let region = region(SHAPES[image], part);
                let (image_of, buffer) = (&self.images[image], &self.buffer);
                let copied =
                    backend.enqueue_copy_buffer_to_image(queue, buffer, offset, image_of, region);
                if refuses_layers(image_of) {
                    copied.unwrap_err();
                    return;
                }
                copied.unwrap();
                let bytes = region.pixels().unwrap() * 4;
                self.pictures[image].put(region, &self.bytes[offset..offset + bytes]);
            }
        }
    }

    /// Copies as much of a region as fits.
    fn copy(&mut self, from: usize, mut region: ImageRegion, to: usize, place: [u8; 3]) {
        let extent = SHAPES[to].extent();
        let origin = [0, 1, 2].map(|at| usize::from(place[at]) * extent[at] / 256);
        for at in 0..3 {
            region.size[at] = region.size[at].min(extent[at] - origin[at]);
        }
        let into = region.moved_to(origin);
        let copy = BENCH.backend.enqueue_copy_image(
            &BENCH.queue,
            &self.images[from],
            region,
            &self.images[to],
            origin,
        );
        if from == to && region.overlaps(into) {
            copy.unwrap_err();
            return;
        }
        if !copies_layers(&BENCH, &self.images[from], &self.images[to]) {
            copy.unwrap_err();
            return;
        }
        copy.unwrap();
        let pixels = self.pictures[from].get(region);
        self.pictures[to].put(into, &pixels);
    }

    fn check(&self) {
        for (image, picture) in self.images.iter().zip(&self.pictures) {
            assert_eq!(BENCH.pixels(image), picture.bytes, "{}", picture.shape);
        }
        assert_eq!(BENCH.read(&self.buffer), self.bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(128),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn images_are_pictures(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.run(step);
        }
        world.check();
    }
}
