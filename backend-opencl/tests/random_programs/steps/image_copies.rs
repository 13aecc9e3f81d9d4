//! Copies between images, and between images and memory.

use binpool_allocators::Queue;
use binpool_conformance::Random;
use binpool_opencl::ImageRegion;

use crate::rig::{picture::Picture, worker::Worker};

pub(crate) fn copy(worker: &mut Worker<'_>, random: &mut Random) {
    let Some(picture) = worker.any_picture(random) else {
        return;
    };
    match random.below(3) {
        0 => to_image(worker, random, &picture),
        1 => to_memory(worker, random, &picture),
        _ => from_memory(worker, random, &picture),
    }
}

fn to_image(worker: &mut Worker<'_>, random: &mut Random, source: &Picture) {
    let Some(target) = worker.any_picture(random) else {
        return;
    };
    if source.place.root == target.place.root || source.image.format() != target.image.format() {
        return;
    }
    let mut from = source.any_region(random);
    let mut to = target.any_region(random);
    for axis in 0..3 {
        from.size[axis] = from.size[axis].min(to.size[axis]);
        to.size[axis] = from.size[axis];
    }
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    worker.say(format_args!(
        "copy {} at {from:?} to {} at {:?} on queue {slot}, {wait:?}",
        source.name, target.name, to.origin
    ));
    let queue = worker.queue(slot);
    let event = worker.backend().enqueue_copy_image(
        queue.after(&wait.events),
        &source.image,
        from,
        &target.image,
        to.origin,
    );
    let places = [source.place, target.place];
    let mapped = worker.may_be_mapped(&places);
    if let Some(event) = worker.accepted("enqueue_copy_image", event, mapped) {
        let cells = source.read(&worker.roots, from);
        let command = worker.enqueued(slot, &wait, &places, event);
        let cells = worker.sources.copied(command, &cells);
        target.write(&mut worker.roots, to, &cells);
    }
}

/// A box of pixels for which there is room in this many bytes.
fn fitting(picture: &Picture, bytes: usize, random: &mut Random) -> Option<ImageRegion> {
    let region = picture.any_region(random);
    (picture.bytes(region) <= bytes).then_some(region)
}

fn to_memory(worker: &mut Worker<'_>, random: &mut Random, picture: &Picture) {
    let Some(object) = worker.any_object(random) else {
        return;
    };
    let Some(region) = fitting(picture, object.bytes(), random) else {
        return;
    };
    if object.place.root == picture.place.root {
        return;
    }
    let bytes = picture.bytes(region);
    let offset = random.below(object.bytes() - bytes + 1);
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    worker.say(format_args!(
        "copy {} at {region:?} to {} at {offset} on queue {slot}, {wait:?}",
        picture.name, object.name
    ));
    let queue = worker.queue(slot);
    let event = worker.backend().enqueue_copy_image_to_buffer(
        queue.after(&wait.events),
        &picture.image,
        region,
        object.memory(),
        offset,
    );
    let places = [picture.place, object.place];
    let mapped = worker.may_be_mapped(&places);
    if let Some(event) = worker.accepted("enqueue_copy_image_to_buffer", event, mapped) {
        let cells = picture.read(&worker.roots, region);
        let command = worker.enqueued(slot, &wait, &places, event);
        let cells = worker.sources.copied(command, &cells);
        worker.roots.write(object.place, offset, &cells);
    }
}

fn from_memory(worker: &mut Worker<'_>, random: &mut Random, picture: &Picture) {
    let Some(object) = worker.any_object(random) else {
        return;
    };
    let Some(region) = fitting(picture, object.bytes(), random) else {
        return;
    };
    if object.place.root == picture.place.root {
        return;
    }
    let bytes = picture.bytes(region);
    let offset = random.below(object.bytes() - bytes + 1);
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    worker.say(format_args!(
        "copy {} at {offset} to {} at {region:?} on queue {slot}, {wait:?}",
        object.name, picture.name
    ));
    let queue = worker.queue(slot);
    let event = worker.backend().enqueue_copy_buffer_to_image(
        queue.after(&wait.events),
        object.memory(),
        offset,
        &picture.image,
        region,
    );
    let places = [object.place, picture.place];
    let mapped = worker.may_be_mapped(&places);
    if let Some(event) = worker.accepted("enqueue_copy_buffer_to_image", event, mapped) {
        let cells = worker.roots.read(object.place, offset, bytes);
        let command = worker.enqueued(slot, &wait, &places, event);
        let cells = worker.sources.copied(command, &cells);
        picture.write(&mut worker.roots, region, &cells);
    }
}
