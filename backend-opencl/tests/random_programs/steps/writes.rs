//! Fills, and writes of the host.

use binpool_allocators::{Backend, Queue, Region};
use binpool_conformance::Random;
use binpool_opencl::{ClEvent, ClQueue};

use super::pick;
use crate::rig::{
    object::{Handle, Object},
    worker::{Wait, Worker},
};

pub(crate) fn fill(worker: &mut Worker<'_>, random: &mut Random) {
    let Some(object) = worker.any_object(random) else {
        return;
    };
    let length = 1 << random.below(5);
    // A view starts on a multiple of every pattern's length.
    let Some(region) = pick::whole_region(object.bytes(), length, random) else {
        return;
    };
    let pattern = pick::bytes(length, random);
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    worker.say(format_args!(
        "fill {} at {region:?} with {pattern:?} on queue {slot}, {wait:?}",
        object.name
    ));
    let queue = worker.queue(slot);
    let event = match &object.handle {
        Handle::Pooled(block) => block.enqueue_fill(queue.after(&wait.events), region, &pattern),
        _ => worker.backend().enqueue_fill(
            queue.after(&wait.events),
            object.memory(),
            region,
            &pattern,
        ),
    };
    let mapped = worker.may_be_mapped(&[object.place]);
    if let Some(event) = worker.accepted("enqueue_fill", event, mapped) {
        let bytes: Vec<u8> = pattern.into_iter().cycle().take(region.bytes).collect();
        written(
            worker,
            (slot, &wait),
            &object,
            (region.offset, &bytes),
            event,
        );
    }
}

/// Takes down that a command has written these bytes.
fn written(
    worker: &mut Worker<'_>,
    (slot, wait): (usize, &Wait),
    object: &Object,
    (offset, bytes): (usize, &[u8]),
    event: ClEvent,
) {
    let command = worker.enqueued(slot, wait, &[object.place], event);
    let cells = worker.sources.written(command, bytes);
    worker.roots.write(object.place, offset, &cells);
}

pub(crate) fn write(worker: &mut Worker<'_>, random: &mut Random) {
    let Some(object) = worker.any_object(random) else {
        return;
    };
    let region = pick::region(object.bytes(), random);
    let data = pick::bytes(region.bytes, random);
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    let queue = worker.queue(slot);
    let way = random.below(3);
    worker.say(format_args!(
        "write {} at {region:?} in way {way} on queue {slot}, {wait:?}",
        object.name
    ));
    if !object.host_writes() {
        let refused = worker.backend().enqueue_write(
            queue.after(&wait.events),
            object.memory(),
            region.offset,
            data.into(),
        );
        return worker.refused("a write that the flags forbid", refused);
    }
    if way == 0 {
        return write_and_wait(worker, random, &object, (region, &data), (slot, &wait));
    }
    let mapped = worker.may_be_mapped(&[object.place]);
    let event = if way == 1 {
        let event = enqueue_write(worker, &queue, &object, (region, &data), &wait);
        worker.accepted("enqueue_write", event, mapped)
    } else {
        let write = worker.backend().enqueue_write_owned(
            queue.after(&wait.events),
            (object.memory(), region.offset),
            data.clone(),
        );
        let write = worker.accepted("enqueue_write_owned", write, mapped);
        write.map(|write| write.event().clone())
    };
    if let Some(event) = event {
        written(
            worker,
            (slot, &wait),
            &object,
            (region.offset, &data),
            event,
        );
    }
}

fn enqueue_write(
    worker: &Worker<'_>,
    queue: &ClQueue,
    object: &Object,
    (region, data): (Region, &[u8]),
    wait: &Wait,
) -> binpool_allocators::Result<ClEvent> {
    let (memory, data) = (object.memory(), data.into());
    worker
        .backend()
        .enqueue_write(queue.after(&wait.events), memory, region.offset, data)
}

fn write_and_wait(
    worker: &mut Worker<'_>,
    random: &mut Random,
    object: &Object,
    (region, data): (Region, &[u8]),
    (slot, wait): (usize, &Wait),
) {
    let mapped = worker.may_be_mapped(&[object.place]);
    let gates = worker.gates_of(slot, wait, &[object.place]);
    worker.may_block(gates, random);
    let queue = worker.queue(slot);
    let (memory, events) = (object.memory(), &wait.events);
    let result = worker
        .backend()
        .write(queue.after(events), memory, region.offset, data);
    let failed = matches!(&result, Err(error) if !is_refusal(error));
    if worker.accepted("write", result, mapped).is_some() {
        // It has completed: whatever fails from now on, the bytes are there.
        let cells = known(data);
        worker.roots.write(object.place, region.offset, &cells);
    } else if failed {
        worker
            .roots
            .forget(object.place, region.offset, region.bytes);
    }
}

fn known(data: &[u8]) -> Vec<crate::model::cells::Cell> {
    let cell = |&value| crate::model::cells::Cell {
        value,
        source: crate::model::cells::Source::HOST,
    };
    data.iter().map(cell).collect()
}

fn is_refusal(error: &binpool_allocators::Error) -> bool {
    matches!(error, binpool_allocators::Error::InvalidRequest(_))
}
