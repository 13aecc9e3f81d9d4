//! User events, markers, barriers, and events that are waited for or dropped.

use binpool_allocators::{Backend, Event, Queue};
use binpool_conformance::Random;

use crate::rig::{accepted::Refusal, gates::Opening, worker::Worker};

pub(crate) fn gate(worker: &mut Worker<'_>, _: &mut Random) {
    if worker.gates.is_full() {
        return;
    }
    let gate = worker.backend().create_user_event();
    if let Some(gate) = worker.accepted("create_user_event", gate, false) {
        let number = worker.gates.add(gate);
        worker.say(format_args!("gate {number}"));
    }
}

pub(crate) fn open(worker: &mut Worker<'_>, random: &mut Random) {
    if let Some((number, gate)) = worker.gates.any(random) {
        drop(gate);
        worker.open(number, Opening::any(worker.program.failing, random));
    }
}

/// A marker or a barrier.
pub(crate) fn mark(worker: &mut Worker<'_>, random: &mut Random) {
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    let queue = worker.queue(slot);
    let event = if random.below(2) == 0 {
        worker.say(format_args!("marker on queue {slot}, {wait:?}"));
        let event = worker.backend().enqueue_marker(queue.after(&wait.events));
        worker.accepted("enqueue_marker", event, false)
    } else {
        worker.say(format_args!("barrier on queue {slot}, {wait:?}"));
        let event = worker.backend().enqueue_barrier(queue.after(&wait.events));
        worker.accepted("enqueue_barrier", event, false)
    };
    if let Some(event) = event {
        if !worker.is_alone() {
            worker.program.events.lock().unwrap().push(event.clone());
        }
        worker.enqueued(slot, &wait, &[], event);
    }
}

/// Waits for the event of a command, or asks how it is.
pub(crate) fn wait(worker: &mut Worker<'_>, random: &mut Random) {
    let held = worker.commands.held();
    let Some(&id) = held.get(random.below(held.len())) else {
        return;
    };
    let Some(event) = worker.commands.event(id).cloned() else {
        return;
    };
    if random.below(3) == 0 {
        let status = event.status();
        worker.accepted("status", status, false);
        return;
    }
    worker.may_block(worker.commands.gates(id), random);
    worker.say(format_args!("wait for {id:?}"));
    let ended = event.wait().map_err(Refusal::from);
    worker.accepted("wait", ended, false);
}

/// Drops events of commands, which are pending or have ended.
pub(crate) fn forget(worker: &mut Worker<'_>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let held = worker.commands.held();
        if let Some(&id) = held.get(random.below(held.len())) {
            worker.say(format_args!("drop the event of {id:?}"));
            worker.commands.drop_event(id);
        }
    }
    if !worker.is_alone() && random.below(4) == 0 {
        worker.program.events.lock().unwrap().clear();
    }
}
