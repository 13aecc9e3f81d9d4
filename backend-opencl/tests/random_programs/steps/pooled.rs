//! What only pools, their blocks and shared virtual memory can do.

use std::sync::Arc;

use binpool_allocators::{Backend, Queue, Region, SvmBackend};
use binpool_conformance::Random;
use binpool_opencl::SvmPointer;

use super::pick;
use crate::rig::{object::Handle, worker::Worker};

pub(crate) fn pool(worker: &mut Worker<'_>, random: &mut Random) {
    let number = random.below(worker.program.pools.len());
    let pool = &worker.program.pools[number].pool;
    let slot = worker.any_queue(random);
    match random.below(6) {
        0 | 1 => {
            worker.say(format_args!("free what pool {number} holds"));
            pool.free_held();
        }
        2 => {
            let bytes = random.below(40_000) as u64;
            worker.say(format_args!("trim pool {number} to {bytes}"));
            pool.trim_to(bytes);
        }
        3 => {
            worker.say(format_args!("retire queue {slot} of pool {number}"));
            pool.retire_queue(&worker.queue(slot));
        }
        4 => {
            worker.say(format_args!("sweep pool {number}"));
            pool.sweep();
        }
        _ => {
            let statistics = pool.statistics();
            if statistics.active_bytes > statistics.managed_bytes {
                worker.violated(format_args!("pool {number}: {statistics:?}"));
            }
        }
    }
    worker.counts.accept("a call of a pool");
}

pub(crate) fn block(worker: &mut Worker<'_>, random: &mut Random) {
    let slot = worker.any_queue(random);
    let queue = worker.queue(slot);
    if random.below(3) == 0 {
        return bind(worker, random, slot);
    }
    let Some(object) = worker.any_object(random) else {
        return;
    };
    match &object.handle {
        Handle::Pooled(block) if random.below(2) == 0 => {
            worker.say(format_args!("{} before queue {slot}", object.name));
            let ordered = block.order_before(&queue);
            worker.accepted("order_before", ordered, false);
            worker.ordered_by_a_pool(Some(slot));
        }
        Handle::Pooled(block) => {
            let alignment = worker.backend().limits().alignment.bytes();
            let offset = random.below(object.bytes().div_ceil(alignment)) * alignment;
            let region = Region::new(offset, 1 + random.below(object.bytes() - offset));
            let byte = pick::bytes(1, random);
            let wait = worker.wait_list(random);
            worker.say(format_args!(
                "fill a view of {} at {region:?} with {byte:?} on queue {slot}, {wait:?}",
                object.name
            ));
            let view = worker.accepted("view", block.view(region), false);
            let memory = view.as_ref().and_then(|view| view.memory_on(&queue));
            let all = Region::first(region.bytes);
            let backend = worker.backend();
            let filled = memory
                .map(|memory| backend.enqueue_fill(queue.after(&wait.events), memory, all, &byte));
            let mapped = worker.may_be_mapped(&[object.place]);
            if let Some(filled) = filled
                && let Some(event) = worker.accepted("fill a view of a block", filled, mapped)
            {
                let command = worker.enqueued(slot, &wait, &[object.place], event);
                let cells = worker.sources.written(command, &byte.repeat(region.bytes));
                worker.roots.write(object.place, region.offset, &cells);
            }
        }
        _ => {}
    }
}

/// Binds a block or shared virtual memory to a queue, or unbinds it.
fn bind(worker: &mut Worker<'_>, random: &mut Random, slot: usize) {
    if worker.objects.is_empty() {
        return;
    }
    let index = random.below(worker.objects.len());
    let queue = worker.queue(slot);
    let unbind = random.below(3) == 0;
    let name = worker.objects[index].name.clone();
    if unbind {
        // It waits for the queue that it was bound to.
        worker.may_block(u64::MAX, random);
    }
    worker.say(format_args!(
        "bind {name} to queue {slot}, or unbind it: {unbind}"
    ));
    let backend = worker.backend();
    let in_order = worker.in_order(slot);
    let bound = match Arc::get_mut(&mut worker.objects[index]) {
        // A map of it is open.
        None => return,
        Some(object) => match &mut object.handle {
            Handle::Pooled(block) if unbind => block.unbind_from_queue(),
            Handle::Pooled(block) => block.bind_to_queue(&queue),
            Handle::Bare(memory) if memory.svm_memory().is_ok() && object.is_svm => {
                if backend.svm_address(memory).is_none() {
                    return;
                }
                if unbind {
                    backend.unbind_from_queue(memory)
                } else {
                    backend.bind_to_queue(memory, &queue)
                }
            }
            _ => return,
        },
    };
    if in_order || unbind {
        worker.accepted("bind", bound, false);
        worker.ordered_by_a_pool(Some(slot));
    } else {
        match bound {
            Err(_) => worker.counts.refuse("bind to an out-of-order queue"),
            Ok(()) => worker.counts.accept("bind to an out-of-order queue"),
        }
    }
}
