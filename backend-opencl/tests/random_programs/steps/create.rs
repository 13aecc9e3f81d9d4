//! Steps that make memory: buffers, views, pooled blocks and shared virtual memory.

use std::sync::Arc;

use binpool_allocators::{Backend, MemoryFlags, Region};
use binpool_conformance::Random;
use binpool_opencl::{ClMemory, SvmOptions, SvmPointer};

use super::pick;
use crate::{
    model::{
        cells::{Cell, Source},
        roots::Place,
    },
    rig::{
        object::{Handle, Object},
        worker::Worker,
    },
};

/// A thread has at most this many at once.
const MOST: usize = 16;

fn is_full(worker: &Worker<'_>) -> bool {
    worker.objects.len() >= MOST
}

fn flags(random: &mut Random) -> MemoryFlags {
    match random.below(12) {
        0 => MemoryFlags::HOST_RESIDENT,
        1 => MemoryFlags::HOST_READ_ONLY,
        2 => MemoryFlags::HOST_WRITE_ONLY,
        3 => MemoryFlags::HOST_NO_ACCESS,
        4 => MemoryFlags::READ_ONLY,
        5 => MemoryFlags::WRITE_ONLY | MemoryFlags::HOST_RESIDENT,
        _ => MemoryFlags::empty(),
    }
}

fn unknown(worker: &mut Worker<'_>, bytes: usize) -> Place {
    worker.roots.add(vec![Cell::UNKNOWN; bytes])
}

fn known(worker: &mut Worker<'_>, bytes: &[u8]) -> Place {
    let cells = bytes.iter().map(|&value| Cell {
        value,
        source: Source::HOST,
    });
    worker.roots.add(cells.collect())
}

fn bare(name: String, memory: ClMemory, place: Place, flags: MemoryFlags) -> Object {
    Object {
        name,
        handle: Handle::Bare(memory),
        place,
        flags,
        is_svm: false,
        has_views: true,
    }
}

fn add(worker: &mut Worker<'_>, object: Object) {
    worker.objects.push(Arc::new(object));
}

pub(crate) fn buffer(worker: &mut Worker<'_>, random: &mut Random) {
    if is_full(worker) {
        return;
    }
    let (bytes, flags) = (pick::size(random), flags(random));
    let name = worker.fresh_name("buffer");
    worker.say(format_args!("{name} = buffer of {bytes}, {flags:?}"));
    let memory = worker.backend().create_buffer(bytes, flags);
    if let Some(memory) = worker.accepted("create_buffer", memory, false) {
        let place = unknown(worker, bytes);
        add(worker, bare(name, memory, place, flags));
    }
}

pub(crate) fn buffer_with_data(worker: &mut Worker<'_>, random: &mut Random) {
    if is_full(worker) {
        return;
    }
    let (bytes, flags) = (pick::size(random), flags(random));
    let data = pick::bytes(bytes, random);
    let name = worker.fresh_name("buffer");
    worker.say(format_args!(
        "{name} = buffer of {bytes}, {flags:?}, with data"
    ));
    let memory = worker.backend().create_buffer_from(&data, flags);
    if let Some(memory) = worker.accepted("create_buffer_from", memory, false) {
        let place = known(worker, &data);
        add(worker, bare(name, memory, place, flags));
    }
}

pub(crate) fn shared_memory(worker: &mut Worker<'_>, random: &mut Random) {
    let support = worker.backend().limits().svm;
    if is_full(worker) || !support.any() {
        return;
    }
    let bytes = pick::size(random);
    let fine = support.fine && random.below(2) == 0;
    let mut options = if fine {
        SvmOptions::fine()
    } else {
        SvmOptions::coarse()
    };
    let slot = worker.any_queue(random);
    let bound = random.below(3) == 0 && worker.in_order(slot);
    if bound {
        options.queue = Some(worker.queue(slot));
    }
    let name = worker.fresh_name("svm");
    let queue = bound.then_some(slot);
    worker.say(format_args!(
        "{name} = svm of {bytes}, fine: {fine}, bound to queue: {queue:?}"
    ));
    let memory = worker.backend().svm_empty::<u8>(bytes, &options);
    if let Some(memory) = worker.accepted("svm_empty", memory, false) {
        let place = unknown(worker, bytes);
        let object = bare(name, memory.into_memory(), place, MemoryFlags::empty());
        add(
            worker,
            Object {
                is_svm: true,
                ..object
            },
        );
    }
}

pub(crate) fn block(worker: &mut Worker<'_>, random: &mut Random) {
    if is_full(worker) {
        return;
    }
    let number = random.below(worker.program.pools.len());
    let pool = &worker.program.pools[number];
    let bytes = pick::size(random);
    let slot = (random.below(4) > 0).then(|| worker.any_queue(random));
    if pool.waits {
        worker.may_block(u64::MAX, random);
    }
    let name = worker.fresh_name("block");
    worker.say(format_args!(
        "{name} = block of {bytes} of pool {number} on queue {slot:?}"
    ));
    let queue = slot.map(|slot| worker.queue(slot));
    let block = match &queue {
        Some(queue) => pool.pool.allocate_on(queue, bytes),
        None => pool.pool.allocate(bytes),
    };
    // The first queue is the pool's own.
    let slot = slot.unwrap_or(0);
    worker.ordered_by_a_pool(Some(slot));
    if let Some(block) = worker.accepted("allocate", block, false) {
        let place = unknown(worker, bytes);
        // It may be scrubbed first.
        worker.roots.add_gates(place, worker.queue_gates(slot));
        let object = Object {
            name,
            handle: Handle::Pooled(block),
            place,
            flags: MemoryFlags::empty(),
            is_svm: pool.is_svm,
            has_views: false,
        };
        add(worker, object);
    }
}

pub(crate) fn host_buffer(worker: &mut Worker<'_>, random: &mut Random) {
    if is_full(worker) {
        return;
    }
    let bytes = pick::size(random);
    let data = pick::bytes(bytes, random);
    let name = worker.fresh_name("host");
    worker.say(format_args!(
        "{name} = buffer over {bytes} bytes of the host"
    ));
    let flags = MemoryFlags::empty();
    let buffer = worker.backend().create_host_buffer(data.clone(), flags);
    if let Some(buffer) = worker.accepted("create_host_buffer", buffer, false) {
        let place = known(worker, &data);
        add(
            worker,
            Object {
                name,
                handle: Handle::Host(buffer),
                place,
                flags,
                is_svm: false,
                has_views: true,
            },
        );
    }
}

pub(crate) fn system_memory(worker: &mut Worker<'_>, random: &mut Random) {
    if is_full(worker) || !worker.backend().limits().svm.system {
        return;
    }
    let bytes = pick::size(random);
    let data = pick::bytes(bytes, random);
    let name = worker.fresh_name("system");
    worker.say(format_args!("{name} = {bytes} bytes of the host as svm"));
    let memory = worker.backend().system_svm(data.clone());
    if let Some(memory) = worker.accepted("system_svm", memory, false) {
        let place = known(worker, &data);
        add(
            worker,
            Object {
                name,
                handle: Handle::System(memory),
                place,
                flags: MemoryFlags::empty(),
                is_svm: true,
                has_views: false,
            },
        );
    }
}

/// A view of a buffer, of shared virtual memory, or of another view.
pub(crate) fn view(worker: &mut Worker<'_>, random: &mut Random) {
    let Some(parent) = worker.any_object(random) else {
        return;
    };
    if is_full(worker) || !parent.has_views {
        return;
    }
    let alignment = worker.backend().limits().alignment.bytes();
    let offset = random.below(parent.bytes().div_ceil(alignment)) * alignment;
    let bytes = 1 + random.below(parent.bytes() - offset);
    let region = Region::new(offset, bytes);
    let name = worker.fresh_name("view");
    worker.say(format_args!(
        "{name} = view of {} at {region:?}",
        parent.name
    ));
    let queue = worker.queue(0);
    let view = worker
        .backend()
        .create_sub_region(parent.on(&queue), region);
    if let Some(view) = worker.accepted("create_sub_region", view, false) {
        let place = Place {
            root: parent.place.root,
            offset: parent.place.offset + offset,
        };
        let object = Object {
            is_svm: parent.is_svm,
            ..bare(name, view, place, parent.flags)
        };
        keep(worker, &parent, object);
    }
}

/// A buffer over a block of shared virtual memory, or over a region of one.
pub(crate) fn buffer_over_shared_memory(worker: &mut Worker<'_>, random: &mut Random) {
    let Some(parent) = worker.any_object(random) else {
        return;
    };
    let Handle::Bare(memory) = &parent.handle else {
        return;
    };
    if is_full(worker) || !parent.is_svm || memory.svm_memory().is_err() {
        return;
    }
    let bytes = 1 + random.below(parent.bytes());
    let name = worker.fresh_name("over");
    worker.say(format_args!(
        "{name} = buffer over {bytes} of {}",
        parent.name
    ));
    let buffer = memory.as_buffer(MemoryFlags::empty(), Some(bytes));
    if let Some(buffer) = worker.accepted("as_buffer", buffer, false) {
        let object = Object {
            is_svm: true,
            ..bare(name, buffer, parent.place, MemoryFlags::empty())
        };
        keep(worker, &parent, object);
    }
}

/// Views of memory that threads share are shared, too.
fn keep(worker: &mut Worker<'_>, parent: &Object, object: Object) {
    match parent.place.root {
        Some(_) => add(worker, object),
        None => share(worker, object),
    }
}

fn share(worker: &mut Worker<'_>, object: Object) {
    let mut shared = worker.program.shared.lock().unwrap();
    if shared.len() < MOST {
        shared.push(Arc::new(object));
    }
}

/// Gives memory to all threads. The model knows nothing of it any more.
pub(crate) fn publish(worker: &mut Worker<'_>, random: &mut Random) {
    if worker.is_alone() || worker.objects.is_empty() {
        return;
    }
    let object = worker
        .objects
        .swap_remove(random.below(worker.objects.len()));
    match Arc::try_unwrap(object) {
        Ok(object) if worker.is_only(object.place) => {
            worker.say(format_args!("all threads have {}", object.name));
            let place = Place {
                root: None,
                offset: 0,
            };
            share(worker, Object { place, ..object });
        }
        Ok(object) => worker.objects.push(Arc::new(object)),
        Err(object) => worker.objects.push(object),
    }
}
