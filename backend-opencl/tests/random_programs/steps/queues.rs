//! Queues are flushed, finished, and dropped.

use binpool_allocators::Queue;
use binpool_conformance::Random;

use crate::rig::worker::Worker;

pub(crate) fn queue(worker: &mut Worker<'_>, random: &mut Random) {
    let slot = worker.any_queue(random);
    match random.below(4) {
        0 | 1 => {
            worker.say(format_args!("flush queue {slot}"));
            let flushed = worker.queue(slot).flush();
            worker.accepted("flush", flushed, false);
        }
        2 => {
            worker.may_block(worker.queue_gates(slot), random);
            worker.say(format_args!("finish queue {slot}"));
            let finished = worker.queue(slot).finish();
            worker.accepted("finish", finished, false);
        }
        _ => {
            // Some runtimes wait for the commands of a queue that goes.
            worker.may_block(worker.queue_gates(slot), random);
            worker.say(format_args!("drop queue {slot}, and make another"));
            worker.replace_queue(slot);
        }
    }
}
