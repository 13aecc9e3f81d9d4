//! Reads of the host.

use binpool_allocators::{Backend, Queue, Region};
use binpool_conformance::Random;

use super::pick;
use crate::rig::{
    object::Object,
    worker::{Read, Reading, Wait, Worker},
};

pub(crate) fn read(worker: &mut Worker<'_>, random: &mut Random) {
    let Some(object) = worker.any_object(random) else {
        return;
    };
    let region = pick::region(object.bytes(), random);
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    let way = random.below(3);
    let what = format!("read {} at {region:?}", object.name);
    worker.say(format_args!(
        "{what} in way {way} on queue {slot}, {wait:?}"
    ));
    let queue = worker.queue(slot);
    let memory = object.memory();
    if !object.host_reads() {
        let refused = worker
            .backend()
            .enqueue_read(queue.after(&wait.events), memory, region);
        return worker.refused("a read that the flags forbid", refused);
    }
    if way == 0 {
        return read_and_wait(worker, random, &object, region, (slot, &wait));
    }
    let mapped = worker.may_be_mapped(&[object.place]);
    let reading = if way == 1 {
        let read = worker
            .backend()
            .enqueue_read(queue.after(&wait.events), memory, region);
        let read = worker.accepted("enqueue_read", read, mapped);
        read.map(|read| (read.event().clone(), Reading::Bytes(read)))
    } else {
        let target = vec![0; region.bytes];
        let read = worker.backend().enqueue_read_owned(
            queue.after(&wait.events),
            (object.memory(), region.offset),
            target,
        );
        let read = worker.accepted("enqueue_read_owned", read, mapped);
        read.map(|read| (read.event().clone(), Reading::Owned(read)))
    };
    if let Some((event, reading)) = reading {
        let expected = worker.roots.read(object.place, region.offset, region.bytes);
        let command = worker.enqueued(slot, &wait, &[object.place], event);
        worker.reads.push(Read {
            reading,
            expected,
            command,
            what,
        });
    }
}

fn read_and_wait(
    worker: &mut Worker<'_>,
    random: &mut Random,
    object: &Object,
    region: Region,
    (slot, wait): (usize, &Wait),
) {
    let mapped = worker.may_be_mapped(&[object.place]);
    let gates = worker.gates_of(slot, wait, &[object.place]);
    worker.may_block(gates, random);
    let queue = worker.queue(slot);
    let mut bytes = vec![0; region.bytes];
    let result = worker.backend().read(
        queue.after(&wait.events),
        object.memory(),
        region.offset,
        &mut bytes,
    );
    if worker.accepted("read", result, mapped).is_some() {
        let expected = worker.roots.read(object.place, region.offset, region.bytes);
        worker.compare(
            &format!("read {} at {region:?}", object.name),
            &bytes,
            &expected,
        );
    }
}

/// Waits for a read that is under way, or drops it.
pub(crate) fn take(worker: &mut Worker<'_>, random: &mut Random) {
    if worker.reads.is_empty() {
        return;
    }
    let read = worker.reads.swap_remove(random.below(worker.reads.len()));
    if random.below(6) == 0 {
        worker.say(format_args!("drop {}", read.what));
        return;
    }
    worker.take(read, random);
}
