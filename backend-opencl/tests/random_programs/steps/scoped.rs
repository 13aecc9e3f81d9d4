//! Transfers with borrowed bytes of the host.

use binpool_allocators::Queue;
use binpool_conformance::Random;

use super::pick;
use crate::{model::cells::Cell, rig::worker::Worker};

/// Writes one object and reads another inside a scope.
pub(crate) fn scope(worker: &mut Worker<'_>, random: &mut Random) {
    let (Some(to), Some(from)) = (worker.any_object(random), worker.any_object(random)) else {
        return;
    };
    if !to.host_writes() || !from.host_reads() {
        return;
    }
    let (written, read) = (
        pick::region(to.bytes(), random),
        pick::region(from.bytes(), random),
    );
    let data = pick::bytes(written.bytes, random);
    let mut bytes = vec![0; read.bytes];
    let (slots, wait) = (
        [worker.any_queue(random), worker.any_queue(random)],
        worker.wait_list(random),
    );
    let places = [to.place, from.place];
    let gates = slots.map(|slot| worker.gates_of(slot, &wait, &places));
    worker.may_block(gates[0] | gates[1], random);
    worker.say(format_args!(
        "in a scope: write {} at {written:?} on queue {}, read {} at {read:?} on queue {}, {wait:?}",
        to.name, slots[0], from.name, slots[1]
    ));
    let queues = slots.map(|slot| worker.queue(slot));
    let (mut write_event, mut read_event) = (None, None);
    let result = worker.backend().transfer_scope(|scope| {
        let events = &wait.events;
        let memory = to.memory();
        let offset = written.offset;
        write_event = Some(scope.enqueue_write(queues[0].after(events), (memory, offset), &data));
        let memory = from.memory();
        read_event = Some(scope.enqueue_read(
            queues[1].after(events),
            (memory, read.offset),
            &mut bytes[..],
        ));
        Ok(())
    });
    let mapped = worker.may_be_mapped(&places);
    worker.accepted("transfer_scope", result, mapped);
    let write_event = worker.accepted("scoped write", write_event.unwrap(), mapped);
    if let Some(event) = write_event {
        let command = worker.enqueued(slots[0], &wait, &[to.place], event);
        let cells: Vec<Cell> = worker.sources.written(command, &data);
        worker.roots.write(to.place, written.offset, &cells);
    }
    let expected = worker.roots.read(from.place, read.offset, read.bytes);
    let read_event = worker.accepted("scoped read", read_event.unwrap(), mapped);
    if let Some(event) = read_event {
        use binpool_allocators::Event;
        let ended = event.wait();
        worker.enqueued(slots[1], &wait, &[from.place], event);
        if worker
            .accepted("end of a scoped read", ended, false)
            .is_some()
        {
            worker.compare(&format!("scoped read of {}", from.name), &bytes, &expected);
        }
    }
}
