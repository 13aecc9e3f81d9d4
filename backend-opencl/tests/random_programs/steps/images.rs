//! Images: made, written, read, filled, and dropped.

use std::sync::Arc;

use binpool_allocators::{Error, MemoryFlags, PendingRead, Queue};
use binpool_conformance::Random;
use binpool_opencl::{
    ChannelOrder, ChannelType, ClEvent, HostPitches, ImageColor, ImageFormat, ImageKind, ImagePart,
    ImageRegion, ImageShape, OpenClError,
};

use super::pick;
use crate::{
    model::{
        cells::{Cell, Source},
        roots::Place,
    },
    rig::{
        object::Handle,
        picture::Picture,
        worker::{Read, Reading, Worker},
    },
};

const MOST: usize = 6;

fn any_format(random: &mut Random) -> ImageFormat {
    let order = [ChannelOrder::Rgba, ChannelOrder::R][random.below(2)];
    let channel = [
        ChannelType::UnsignedInt8,
        ChannelType::UnsignedInt32,
        ChannelType::UnsignedInt16,
    ][random.below(3)];
    ImageFormat::new(order, channel)
}

fn any_shape(random: &mut Random) -> ImageShape {
    let mut size = |largest| 1 + random.below(largest);
    let (width, height, depth) = (size(24), size(10), size(5));
    match random.below(5) {
        0 => ImageShape::d1(width),
        1 | 2 => ImageShape::d2(width, height),
        3 => ImageShape::d2_array(width, height, depth),
        // One slice is no volume for some runtimes.
        _ => ImageShape::d3(width, height, depth + 1),
    }
}

pub(crate) fn create(worker: &mut Worker<'_>, random: &mut Random) {
    let has_images = worker
        .backend()
        .image_limits()
        .is_ok_and(|limits| limits.images);
    if worker.pictures.len() >= MOST || !has_images {
        return;
    }
    if random.below(3) == 0 {
        return create_over(worker, random);
    }
    let (format, shape) = (any_format(random), any_shape(random));
    let flags = MemoryFlags::empty();
    let item = format.item_bytes();
    let [width, height, depth] = shape.extent();
    let bytes = width * height * depth * item;
    let data = (random.below(2) == 0).then(|| pick::bytes(bytes, random));
    let name = worker.fresh_name("image");
    worker.say(format_args!(
        "{name} = {shape:?} of {format:?}, with data: {}",
        data.is_some()
    ));
    let backend = worker.backend();
    let image = match &data {
        Some(data) => {
            backend.create_image_with_data(flags, format, shape, data, HostPitches::TIGHT)
        }
        None => backend.create_image(flags, format, shape),
    };
    let Some(image) = worker.accepted("create_image", image, false) else {
        return;
    };
    let cells = match data {
        Some(data) => data
            .into_iter()
            .map(|value| Cell {
                value,
                source: Source::HOST,
            })
            .collect(),
        None => vec![Cell::UNKNOWN; bytes],
    };
    let place = worker.roots.add(cells);
    worker.pictures.push(Arc::new(Picture {
        name,
        image,
        place,
        row_pitch: width * item,
        slice_pitch: width * height * item,
    }));
}

/// An image over a buffer, which has the buffer's bytes.
fn create_over(worker: &mut Worker<'_>, random: &mut Random) {
    let Some(object) = worker.any_object(random) else {
        return;
    };
    let Handle::Bare(memory) = &object.handle else {
        return;
    };
    let item = 4;
    let plain = object.flags.is_empty() && object.place.root.is_some();
    if !plain || object.is_svm || object.bytes() < item {
        return;
    }
    let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnsignedInt8);
    let limits = worker.backend().image_limits();
    let limits = limits.expect("the limits are known");
    let pitch_unit = limits.pitch_alignment.max(1) * item;
    let (shape, row_pitch) = if random.below(2) == 0 || object.bytes() < pitch_unit {
        let width = 1 + random.below((object.bytes() / item).min(200));
        (ImageShape::d1_buffer(width), width * item)
    } else {
        let row_pitch = pitch_unit * (1 + random.below(object.bytes() / pitch_unit));
        let height = 1 + random.below(object.bytes() / row_pitch);
        let width = 1 + random.below((row_pitch / item).min(64));
        (ImageShape::d2(width, height), row_pitch)
    };
    let pitch = (shape.kind() == ImageKind::D2).then_some(row_pitch);
    let slot = worker.any_queue(random);
    let name = worker.fresh_name("image");
    worker.say(format_args!(
        "{name} = {shape:?} over {}, rows {row_pitch} apart",
        object.name
    ));
    let image =
        worker
            .backend()
            .create_image_over(&worker.queue(slot), memory, format, shape, pitch);
    // What the runtime asks of the memory, and of the offset of a view, is its own matter: Intel's takes no image over some
    // memory of the host.
    let image = match image {
        Err(OpenClError::Device(Error::Unsupported { what })) if what.contains("multiple of") => {
            return;
        }
        Err(OpenClError::Device(Error::Backend(_))) => {
            return worker.counts.refuse("create_image_over");
        }
        image => image,
    };
    if let Some(image) = worker.accepted("create_image_over", image, false) {
        let Place { root, offset } = object.place;
        worker.pictures.push(Arc::new(Picture {
            name,
            image,
            place: Place { root, offset },
            row_pitch,
            slice_pitch: row_pitch * shape.extent()[1],
        }));
    }
}

pub(crate) fn forget(worker: &mut Worker<'_>, random: &mut Random) {
    if worker.pictures.is_empty() {
        return;
    }
    let index = random.below(worker.pictures.len());
    let picture = worker.pictures.swap_remove(index);
    worker.say(format_args!("drop {}", picture.name));
}

pub(crate) fn transfer(worker: &mut Worker<'_>, random: &mut Random) {
    let Some(picture) = worker.any_picture(random) else {
        return;
    };
    let region = picture.any_region(random);
    match random.below(4) {
        0 | 1 => write(worker, random, &picture, region),
        2 => read(worker, random, &picture, region),
        _ => read_and_wait(worker, random, &picture, region),
    }
}

fn write(worker: &mut Worker<'_>, random: &mut Random, picture: &Picture, region: ImageRegion) {
    let data = pick::bytes(picture.bytes(region), random);
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    worker.say(format_args!(
        "write {} at {region:?} on queue {slot}, {wait:?}",
        picture.name
    ));
    let queue = worker.queue(slot);
    let event = worker.backend().enqueue_write_part(
        queue.after(&wait.events),
        ImagePart::new(&picture.image, region),
        data.clone().into(),
    );
    let mapped = worker.may_be_mapped(&[picture.place]);
    if let Some(event) = worker.accepted("enqueue_write_part", event, mapped) {
        let command = worker.enqueued(slot, &wait, &[picture.place], event);
        let cells = worker.sources.written(command, &data);
        picture.write(&mut worker.roots, region, &cells);
    }
}

fn read(worker: &mut Worker<'_>, random: &mut Random, picture: &Picture, region: ImageRegion) {
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    let what = format!("read {} at {region:?}", picture.name);
    worker.say(format_args!("{what} on queue {slot}, {wait:?}"));
    let queue = worker.queue(slot);
    let read = worker.backend().enqueue_read_part(
        queue.after(&wait.events),
        ImagePart::new(&picture.image, region),
    );
    let mapped = worker.may_be_mapped(&[picture.place]);
    let read: Option<PendingRead<ClEvent>> = worker.accepted("enqueue_read_part", read, mapped);
    if let Some(read) = read {
        let expected = picture.read(&worker.roots, region);
        let event = read.event().clone();
        let command = worker.enqueued(slot, &wait, &[picture.place], event);
        worker.reads.push(Read {
            reading: Reading::Bytes(read),
            expected,
            command,
            what,
        });
    }
}

fn read_and_wait(
    worker: &mut Worker<'_>,
    random: &mut Random,
    picture: &Picture,
    region: ImageRegion,
) {
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    let gates = worker.gates_of(slot, &wait, &[picture.place]);
    worker.may_block(gates, random);
    worker.say(format_args!(
        "read {} at {region:?} at once on queue {slot}, {wait:?}",
        picture.name
    ));
    let queue = worker.queue(slot);
    let mut bytes = vec![0_u8; picture.bytes(region)];
    let read = worker.backend().read_part(
        queue.after(&wait.events),
        ImagePart::new(&picture.image, region),
        &mut bytes,
    );
    let mapped = worker.may_be_mapped(&[picture.place]);
    if worker.accepted("read_part", read, mapped).is_some() {
        let expected = picture.read(&worker.roots, region);
        worker.compare(
            &format!("read {} at {region:?}", picture.name),
            &bytes,
            &expected,
        );
    }
}

pub(crate) fn fill(worker: &mut Worker<'_>, random: &mut Random) {
    let Some(picture) = worker.any_picture(random) else {
        return;
    };
    let region = picture.any_region(random);
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    let color = [(); 4].map(|()| u32::try_from(random.below(200)).unwrap());
    worker.say(format_args!(
        "fill {} at {region:?} with {color:?} on queue {slot}, {wait:?}",
        picture.name
    ));
    let queue = worker.queue(slot);
    let event = worker.backend().enqueue_fill_image(
        queue.after(&wait.events),
        &picture.image,
        region,
        ImageColor::Unsigned(color),
    );
    let mapped = worker.may_be_mapped(&[picture.place]);
    if let Some(event) = worker.accepted("enqueue_fill_image", event, mapped) {
        let command = worker.enqueued(slot, &wait, &[picture.place], event);
        let format = picture.image.format();
        let channels = color.iter().take(format.channel_count());
        let pixel =
            channels.flat_map(|channel| channel.to_le_bytes()[..format.channel_bytes()].to_vec());
        let pixel: Vec<u8> = pixel.collect();
        let bytes = pixel.into_iter().cycle().take(picture.bytes(region));
        let bytes: Vec<u8> = bytes.collect();
        let cells = worker.sources.written(command, &bytes);
        picture.write(&mut worker.roots, region, &cells);
    }
}

/// Compares all of an image, where nothing may fail any more.
pub(crate) fn compare(worker: &mut Worker<'_>, picture: &Picture, random: &mut Random) {
    let slot = worker.any_queue(random);
    let queue = worker.queue(slot);
    let all = ImageRegion::all(picture.shape());
    let mut bytes = vec![0_u8; picture.bytes(all)];
    worker.say(format_args!("compare {} on queue {slot}", picture.name));
    let pitches = HostPitches::TIGHT;
    let read = worker.backend().read_part(
        &queue,
        ImagePart::new(&picture.image, all).with_pitches(pitches),
        &mut bytes,
    );
    if let Err(error) = read {
        worker.violated(format_args!(
            "{} cannot be read where all has ended: {error} ({error:?})",
            picture.name
        ));
    }
    let expected = picture.read(&worker.roots, all);
    worker.compare(&format!("{} at the end", picture.name), &bytes, &expected);
}
