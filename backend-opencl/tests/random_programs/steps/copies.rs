//! Copies from memory to memory, and migrations.

use binpool_allocators::{AsMemory, Backend, Queue, Region};
use binpool_conformance::Random;
use binpool_opencl::{MigrationFlags, OpenClBackend};

use super::pick;
use crate::rig::{
    object::Object,
    worker::{Wait, Worker},
};

/// Returns whether these regions of two objects may share a byte.
pub(crate) fn may_overlap(a: (&Object, Region), b: (&Object, Region)) -> bool {
    let (Some(first), Some(second)) = (a.0.place.root, b.0.place.root) else {
        return a.0.place.root == b.0.place.root;
    };
    let start = |(object, region): (&Object, Region)| object.place.offset + region.offset;
    let (from, to) = (start(a), start(b));
    first == second && from < to + b.1.bytes && to < from + a.1.bytes
}

pub(crate) fn copy(worker: &mut Worker<'_>, random: &mut Random) {
    let (Some(source), Some(target)) = (worker.any_object(random), worker.any_object(random))
    else {
        return;
    };
    let from = pick::region(source.bytes().min(target.bytes()), random);
    let to = Region::new(random.below(target.bytes() - from.bytes + 1), from.bytes);
    // Of memory that threads share, the model does not know which lies where.
    if may_overlap((&source, from), (&target, to)) {
        return;
    }
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    worker.say(format_args!(
        "copy {} at {from:?} to {} at {} on queue {slot}, {wait:?}",
        source.name, target.name, to.offset
    ));
    let queue = worker.queue(slot);
    let event = worker.backend().enqueue_copy(
        queue.after(&wait.events),
        source.memory(),
        from,
        target.memory(),
        to.offset,
    );
    let places = [source.place, target.place];
    let mapped = worker.may_be_mapped(&places);
    if let Some(event) = worker.accepted("enqueue_copy", event, mapped) {
        let cells = worker.roots.read(source.place, from.offset, from.bytes);
        let command = worker.enqueued(slot, &wait, &places, event);
        let cells = worker.sources.copied(command, &cells);
        worker.roots.write(target.place, to.offset, &cells);
    }
}

pub(crate) fn migrate(worker: &mut Worker<'_>, random: &mut Random) {
    if random.below(4) == 0 {
        return commit(worker, random);
    }
    let count = 1 + random.below(3);
    let objects: Vec<_> = (0..count)
        .filter_map(|_| worker.any_object(random))
        .collect();
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    let flags = match random.below(5) {
        0 => MigrationFlags::CONTENT_UNDEFINED,
        1 | 2 => MigrationFlags::HOST,
        _ => MigrationFlags::empty(),
    };
    let names: Vec<_> = objects.iter().map(|object| &object.name).collect();
    worker.say(format_args!(
        "migrate {names:?}, {flags:?} on queue {slot}, {wait:?}"
    ));
    let queue = worker.queue(slot);
    let places: Vec<_> = objects.iter().map(|object| object.place).collect();
    let mapped = worker.may_be_mapped(&places);
    let memory: Vec<&dyn AsMemory<OpenClBackend>> =
        objects.iter().map(|object| object.memory()).collect();
    let backend = worker.backend();
    let event = backend.enqueue_migrate(queue.after(&wait.events), &memory, flags);
    if let Some(event) = worker.accepted("enqueue_migrate", event, mapped) {
        worker.enqueued(slot, &wait, &places, event);
        if flags.contains(MigrationFlags::CONTENT_UNDEFINED) {
            for object in &objects {
                worker.roots.forget(object.place, 0, object.bytes());
            }
        }
    }
}

/// Has the device keep memory for an object, and waits for that.
fn commit(worker: &mut Worker<'_>, random: &mut Random) {
    let Some(object) = worker.any_object(random) else {
        return;
    };
    let slot = worker.any_queue(random);
    let gates = worker.gates_of(slot, &Wait::default(), &[object.place]);
    worker.may_block(gates, random);
    worker.say(format_args!("commit {} on queue {slot}", object.name));
    let queue = worker.queue(slot);
    let committed = worker.backend().commit(&queue, object.on(&queue));
    let mapped = worker.may_be_mapped(&[object.place]);
    worker.accepted("commit", committed, mapped);
    // Contents may be lost.
    worker.roots.forget(object.place, 0, object.bytes());
}
