//! The end of a thread: everything is resolved, waited for and compared, and goes.

use binpool_allocators::{Backend, MemoryFlags, Region};
use binpool_conformance::Random;

use crate::rig::{counts::Counts, object::Object, worker::Worker};

pub(crate) fn end(mut worker: Worker<'_>) -> Counts {
    let mut random = Random::new(worker.program.seed);
    worker.may_block(u64::MAX, &mut random);
    worker.program.resolved.wait();
    worker.finish_queues();
    while let Some(read) = worker.reads.pop() {
        worker.take(read, &mut random);
    }
    worker.check_events();
    while let Some(picture) = worker.pictures.pop() {
        super::images::compare(&mut worker, &picture, &mut random);
    }
    while let Some(object) = worker.objects.pop() {
        compare(&mut worker, &object, &mut random);
    }
    worker.finish_queues();
    worker.counts
}

/// Compares all of an object. Nothing may fail any more.
fn compare(worker: &mut Worker<'_>, object: &Object, random: &mut Random) {
    let slot = worker.any_queue(random);
    let queue = worker.queue(slot);
    worker.say(format_args!("compare {} on queue {slot}", object.name));
    let mut bytes = vec![0; object.bytes()];
    let (backend, memory) = (worker.backend(), object.memory());
    let read = if object.host_reads() {
        backend.read(&queue, memory, 0, &mut bytes)
    } else {
        let all = Region::first(bytes.len());
        backend
            .create_buffer(bytes.len(), MemoryFlags::empty())
            .and_then(|copy| {
                backend.enqueue_copy(&queue, memory, all, &copy, 0)?;
                backend.read(&queue, &copy, 0, &mut bytes)
            })
    };
    if let Err(error) = read {
        worker.violated(format_args!(
            "{} cannot be read where all has ended: {error} ({error:?})",
            object.name
        ));
    }
    let expected = worker.roots.read(object.place, 0, bytes.len());
    worker.compare(&format!("{} at the end", object.name), &bytes, &expected);
}
