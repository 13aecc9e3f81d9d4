//! Memory as elements of a type.

use binpool_allocators::{Queue, Slice};
use binpool_conformance::Random;

use super::pick;
use crate::rig::worker::Worker;

/// Fills some elements, writes others, and reads them back.
pub(crate) fn elements(worker: &mut Worker<'_>, random: &mut Random) {
    let Some(object) = worker.any_object(random) else {
        return;
    };
    if !object.bytes().is_multiple_of(4) || !object.host_reads() || !object.host_writes() {
        return;
    }
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    let queue = worker.queue(slot);
    let mapped = worker.may_be_mapped(&[object.place]);
    let elements = Slice::<u32, _>::new((worker.backend(), object.memory()));
    let Some(elements) = worker.accepted("elements", elements, false) else {
        return;
    };
    let region = pick::region(elements.len(), random);
    let range = region.offset..region.offset + region.bytes;
    let value = u32::try_from(random.next() >> 32).unwrap();
    worker.say(format_args!(
        "fill elements {range:?} of {} with {value} on queue {slot}, {wait:?}",
        object.name
    ));
    let filled = elements.enqueue_fill(queue.after(&wait.events), range.clone(), &[value]);
    if let Some(event) = worker.accepted("fill elements", filled, mapped) {
        let command = worker.enqueued(slot, &wait, &[object.place], event);
        let bytes = value.to_ne_bytes().repeat(region.bytes);
        let cells = worker.sources.written(command, &bytes);
        worker.roots.write(object.place, region.offset * 4, &cells);
    }
    let data: Vec<u32> = (0..).take(region.bytes).collect();
    let written = elements.enqueue_write(queue.after(&wait.events), region.offset, &data);
    if let Some(event) = worker.accepted("write elements", written, mapped) {
        let command = worker.enqueued(slot, &wait, &[object.place], event);
        let cells = worker.sources.written(command, bytes_of(&data).as_slice());
        worker.roots.write(object.place, region.offset * 4, &cells);
    }
    let gates = worker.gates_of(slot, &wait, &[object.place]);
    worker.may_block(gates, random);
    // What is not known is not compared.
    let slice = elements.slice(range);
    let Some(slice) = worker.accepted("slice of elements", slice, false) else {
        return;
    };
    let read = slice.read_to_vec(queue.after(&wait.events));
    if let Some(values) = worker.accepted("read elements", read, mapped) {
        let expected = worker
            .roots
            .read(object.place, region.offset * 4, region.bytes * 4);
        worker.compare(
            &format!("elements of {}", object.name),
            &bytes_of(&values),
            &expected,
        );
    }
}

fn bytes_of(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}
