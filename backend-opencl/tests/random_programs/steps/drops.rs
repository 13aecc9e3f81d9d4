//! Memory goes, whatever is pending on it.

use std::sync::Arc;

use binpool_allocators::Backend;
use binpool_conformance::Random;

use crate::rig::{
    accepted::Refusal,
    object::{Handle, Object},
    worker::Worker,
};

fn take_any(worker: &mut Worker<'_>, random: &mut Random) -> Option<Arc<Object>> {
    if worker.objects.is_empty() {
        return None;
    }
    let index = random.below(worker.objects.len());
    Some(worker.objects.swap_remove(index))
}

pub(crate) fn forget(worker: &mut Worker<'_>, random: &mut Random) {
    if !worker.is_alone() && random.below(6) == 0 {
        let mut shared = worker.program.shared.lock().unwrap();
        if !shared.is_empty() {
            let index = random.below(shared.len());
            let object = shared.swap_remove(index);
            drop(shared);
            worker.say(format_args!("drop {}, which was shared", object.name));
        }
        return;
    }
    if let Some(object) = take_any(worker, random) {
        worker.say(format_args!("drop {}", object.name));
        went(worker, &object.handle);
    }
}

/// A block may be scrubbed as it goes, after all that uses it.
pub(super) fn went(worker: &mut Worker<'_>, handle: &Handle) {
    if matches!(handle, Handle::Pooled(_)) {
        worker.ordered_by_a_pool(None);
    }
}

/// Gives memory back by a call: at once, after events, or by a command on a queue.
pub(crate) fn release(worker: &mut Worker<'_>, random: &mut Random) {
    let Some(object) = take_any(worker, random) else {
        return;
    };
    // A map of it may be open.
    let object = match Arc::try_unwrap(object) {
        Ok(object) => object,
        Err(object) => return worker.objects.push(object),
    };
    let wait = worker.wait_list(random);
    let (slot, place) = (worker.any_queue(random), object.place);
    let by_command = random.below(2) == 0;
    worker.say(format_args!(
        "release {} behind {} events, by a command on queue {slot}: {by_command}",
        object.name,
        wait.events.len()
    ));
    let queue = worker.queue(slot);
    went(worker, &object.handle);
    match object.handle {
        Handle::Pooled(block) if by_command => {
            let event = block.enqueue_release(Some(&queue), &wait.events);
            if let Some(event) = worker.accepted("enqueue_release", event, false) {
                worker.enqueued(slot, &wait, &[place], event);
            }
        }
        Handle::Pooled(block) => {
            let released = block.release();
            worker.accepted("release a block", released, false);
        }
        Handle::Bare(memory) => {
            let released = worker.backend().release(memory, &wait.events);
            worker.accepted("release", released, false);
        }
        Handle::Host(_) | Handle::System(_) => {}
    }
}

/// The host gets memory of its own back, as the commands have left it.
pub(crate) fn hosts_again(worker: &mut Worker<'_>, random: &mut Random) {
    let is_host =
        |object: &Arc<Object>| matches!(object.handle, Handle::Host(_) | Handle::System(_));
    let Some(index) = worker.objects.iter().position(is_host) else {
        return;
    };
    let object = match Arc::try_unwrap(worker.objects.swap_remove(index)) {
        Ok(object) => object,
        Err(object) => return worker.objects.push(object),
    };
    let place = object.place;
    if !worker.is_only(place) {
        return worker.objects.push(Arc::new(object));
    }
    worker.may_block(u64::MAX, random);
    let name = object.name.clone();
    worker.say(format_args!("the host has {name} again"));
    let expected = worker.roots.read(place, 0, object.bytes());
    let bytes = match object.handle {
        Handle::Host(buffer) => buffer.into_host().map_err(Refusal::from),
        Handle::System(memory) => memory.into_host().map_err(Refusal::from),
        Handle::Bare(_) | Handle::Pooled(_) => return,
    };
    if let Some(bytes) = worker.accepted("the host has it again", bytes, false) {
        worker.compare(&name, &bytes, &expected);
    }
}
