//! Calls with numbers near the largest, which are refused by the library, and have no effect.

use binpool_allocators::{Align, Backend, MemoryFlags, Queue, Region, SvmBackend, SvmGrain};
use binpool_conformance::Random;
use binpool_opencl::{
    ChannelOrder, ChannelType, HostPitches, ImageFormat, ImagePart, ImageRegion, ImageShape,
    MapMode, Rect, RectPart,
};

use crate::rig::worker::Worker;

/// A number that no region of a block here goes with.
fn huge(random: &mut Random) -> usize {
    const HALF: usize = isize::MAX as usize;
    let near = random.below(9);
    match random.below(5) {
        0 => usize::MAX - near,
        1 => HALF - near,
        2 => HALF + 1 + near,
        3 => usize::MAX / 2 - near,
        _ => 1 << (40 + random.below(23)),
    }
}

/// A region that goes beyond a block of this many bytes.
fn beyond(bytes: usize, random: &mut Random) -> Region {
    match random.below(5) {
        0 => Region::new(huge(random), 1 + random.below(64)),
        1 => Region::new(random.below(bytes), huge(random)),
        2 => Region::new(huge(random), huge(random)),
        3 => Region::new(bytes, 1),
        _ => {
            let offset = random.below(bytes);
            Region::new(offset, bytes - offset + 1)
        }
    }
}

pub(crate) fn extreme(worker: &mut Worker<'_>, random: &mut Random) {
    match random.below(12) {
        0..7 => on_memory(worker, random),
        7..9 => on_images(worker, random),
        _ => on_the_device(worker, random),
    }
}

fn on_memory(worker: &mut Worker<'_>, random: &mut Random) {
    let (Some(object), Some(other)) = (worker.any_object(random), worker.any_object(random)) else {
        return;
    };
    let backend = worker.backend();
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    let queue = worker.queue(slot);
    let events = &wait.events[..];
    let memory = object.memory();
    let bytes = object.bytes();
    let region = beyond(bytes, random);
    let way = random.below(12);
    worker.say(format_args!(
        "way {way} with {region:?} of {} on queue {slot}",
        object.name
    ));
    let all = Region::first(1);
    match way {
        0 => worker.refused(
            "fill beyond",
            backend.enqueue_fill(queue.after(events), memory, region, &[1]),
        ),
        1 => worker.refused(
            "read beyond",
            backend.enqueue_read(queue.after(events), memory, region),
        ),
        2 => {
            let data = vec![1; random.below(64) + 1];
            let offset = bytes - random.below(bytes.min(data.len()));
            let offset = [offset, huge(random)][random.below(2)];
            let written = backend.enqueue_write(queue.after(events), memory, offset, data.into());
            worker.refused("write beyond", written);
        }
        3 => {
            let to = other.memory();
            worker.refused(
                "copy beyond",
                backend.enqueue_copy(queue.after(events), memory, region, to, 0),
            );
        }
        4 => {
            let (from, to) = (other.memory(), huge(random));
            worker.refused(
                "copy to beyond",
                backend.enqueue_copy(queue.after(events), from, all, memory, to),
            );
        }
        5 => {
            let map = backend.enqueue_map_mut::<u8>(
                queue.after(events),
                memory,
                region,
                MapMode::ReadWrite,
            );
            worker.refused("map beyond", map);
        }
        // The memory of a block may be larger than the block.
        6 if object.has_views => worker.refused(
            "view beyond",
            backend.create_sub_region(object.on(&queue), region),
        ),
        7 => {
            let pattern = vec![1; [0, 3, 12, 256][random.below(4)]];
            let filled = backend.enqueue_fill(queue.after(events), memory, all, &pattern);
            worker.refused("fill with an odd pattern", filled);
        }
        8 | 9 => rect(worker, random, (&object, &other), (slot, events)),
        6 => {}
        10 => {
            let nothing = Region::new(random.below(bytes), 0);
            let map = backend.enqueue_map::<u8>(queue.after(events), object.memory(), nothing);
            worker.refused("map of nothing", map);
        }
        _ => {
            let kernel = &worker.kernels().scale_and_add;
            let sizes = [[huge(random)], [bytes / 4 + 1], [0]][random.below(3)];
            let launch = kernel
                .launch(queue.after(events), &sizes)
                .memory(object.memory());
            let event = launch.value(&1_u32).enqueue();
            worker.refused("launch beyond", event);
        }
    }
}

fn rect(
    worker: &mut Worker<'_>,
    random: &mut Random,
    (object, other): (&crate::rig::object::Object, &crate::rig::object::Object),
    (slot, events): (usize, &[binpool_opencl::ClEvent]),
) {
    let queue = worker.queue(slot);
    let mut region = [
        1 + random.below(4),
        1 + random.below(3),
        1 + random.below(3),
    ];
    let mut rect = Rect {
        origin: [random.below(8), random.below(3), random.below(3)],
        row_pitch: 8,
        slice_pitch: 64,
    };
    let number = huge(random);
    match random.below(4) {
        0 => rect.origin[random.below(3)] = number,
        1 => region[random.below(3)] = number,
        2 => region[random.below(3)] = 0,
        _ => {
            // More than one row and slice, so that pitches count.
            region = [2, 2, 2];
            match random.below(2) {
                0 => rect.row_pitch = number,
                _ => rect.slice_pitch = number,
            }
        }
    }
    worker.say(format_args!("{region:?} at {rect:?}"));
    let backend = worker.backend();
    let (memory, other) = (object.memory(), other.memory());
    match random.below(4) {
        0 => {
            let read = backend.enqueue_read_part(
                queue.after(events),
                RectPart::new((memory, rect), Rect::default(), region),
            );
            worker.refused("read a rectangle beyond", read);
        }
        1 => {
            let data = (vec![1; 64].into(), Rect::default());
            let written = backend.enqueue_write_part(
                queue.after(events),
                RectPart::new((memory, rect), data.1, region),
                data.0,
            );
            worker.refused("write a rectangle beyond", written);
        }
        2 => {
            let to = (other, Rect::default());
            let copied = backend.enqueue_copy_rect(queue.after(events), (memory, rect), to, region);
            worker.refused("copy a rectangle beyond", copied);
        }
        _ => {
            let from = (other, Rect::default());
            let copied =
                backend.enqueue_copy_rect(queue.after(events), from, (memory, rect), region);
            worker.refused("copy to a rectangle beyond", copied);
        }
    }
}

fn on_images(worker: &mut Worker<'_>, random: &mut Random) {
    let Some(picture) = worker.any_picture(random) else {
        return;
    };
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    let queue = worker.queue(slot);
    let mut region = picture.any_region(random);
    let axis = random.below(3);
    let beyond = picture.shape().extent()[axis] - region.origin[axis] + 1;
    match random.below(4) {
        0 => region.origin[axis] = huge(random),
        1 => region.size[axis] = huge(random),
        2 => region.size[axis] = 0,
        _ => region.size[axis] = beyond,
    }
    worker.say(format_args!("{} at {region:?}", picture.name));
    let (backend, image, events) = (worker.backend(), &picture.image, &wait.events[..]);
    match random.below(4) {
        0 => {
            let read =
                backend.enqueue_read_part(queue.after(events), ImagePart::new(image, region));
            worker.refused("read an image beyond", read);
        }
        1 => {
            let (data, tight) = (vec![1; 64].into(), HostPitches::TIGHT);
            let written = backend.enqueue_write_part(
                queue.after(events),
                ImagePart::new(image, region).with_pitches(tight),
                data,
            );
            worker.refused("write an image beyond", written);
        }
        2 => {
            let map = backend.enqueue_map_image_mut::<u8>(
                queue.after(events),
                image,
                region,
                MapMode::ReadWrite,
            );
            worker.refused("map an image beyond", map);
        }
        _ => {
            let whole = ImageRegion::all(picture.shape());
            let pitches = HostPitches::rows(huge(random));
            let data = vec![1; picture.bytes(whole)].into();
            // Of a single row the pitch says nothing.
            if picture.shape().extent()[1] > 1 {
                let written = backend.enqueue_write_part(
                    queue.after(events),
                    ImagePart::new(image, whole).with_pitches(pitches),
                    data,
                );
                worker.refused("write an image with a huge pitch", written);
            }
        }
    }
}

fn on_the_device(worker: &mut Worker<'_>, random: &mut Random) {
    let backend = worker.backend();
    let number = [huge(random), 0][random.below(2)];
    let way = random.below(5);
    worker.say(format_args!("way {way} with {number} on the device"));
    match way {
        0 => {
            let buffer = backend.create_buffer(number, MemoryFlags::empty());
            worker.refused("a huge buffer", buffer);
        }
        1 if backend.limits().svm.any() => {
            let align = Align::new(1 << random.below(63));
            let memory = backend.allocate_svm(number, align, SvmGrain::Coarse, None);
            worker.refused("huge shared memory", memory);
        }
        2 => {
            let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnsignedInt8);
            let mut extent = [4, 4, 4];
            extent[random.below(3)] = number;
            let [width, height, depth] = extent;
            let shape = ImageShape::d3(width, height, depth);
            let image = backend.create_image(MemoryFlags::empty(), format, shape);
            worker.refused("a huge image", image);
        }
        3 => {
            let buffer = backend.create_buffer_from::<u8>(&[], MemoryFlags::empty());
            worker.refused("a buffer of nothing", buffer);
        }
        _ if number > 0 => {
            // A budget of the program may be smaller, but no device has so much.
            let pool = &worker.program.pools[0].pool;
            let block = pool.allocate(number);
            match block {
                Ok(_) => worker.violated(format_args!("a block of {number} bytes was handed out")),
                Err(_) => worker.counts.refuse("a huge block"),
            }
        }
        _ => {}
    }
}
