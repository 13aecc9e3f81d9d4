//! Checks of shared virtual memory that is bound to queues and released by commands.

use std::slice::from_ref;

use binpool_allocators::{
    Event, EventStatus, InvalidRequest, ObjectKind, Queue, Region, SvmBackend,
};

use crate::{
    Fixture,
    bench::{Bench, refusal, refused_as_foreign},
    checks::svm::{blocks, bound_blocks, grains},
    checks::svm_lifetimes::{addresses, assert_not_handed_out, freed_behind},
};

const SIZE: usize = 4096;

/// The queue is that of its allocation, that of its last binding, or none.
pub fn a_block_is_bound_to_one_queue_at_a_time<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (backend, other) = (&bench.backend, bench.another_queue());
    for grain in grains(backend) {
        let free = backend.allocate_svm(SIZE, None, grain, None).unwrap();
        assert_eq!(backend.bound_queue(&free).unwrap(), None);
        let queue = Some(&bench.queue);
        let block = backend.allocate_svm(SIZE, None, grain, queue).unwrap();
        assert_eq!(backend.bound_queue(&block).unwrap().as_ref(), queue);
        backend.bind_to_queue(&block, &other).unwrap();
        assert_eq!(backend.bound_queue(&block).unwrap().as_ref(), Some(&other));
        backend.unbind_from_queue(&block).unwrap();
        assert_eq!(backend.bound_queue(&block).unwrap(), None);
        backend.unbind_from_queue(&block).unwrap();
    }
}

/// A block and its regions have one binding.
pub fn a_region_is_bound_where_its_block_is<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    for block in blocks(&bench.backend, SIZE) {
        let region = bench.region(&block, Region::first(SIZE / 2));
        bench.backend.bind_to_queue(&region, &bench.queue).unwrap();
        let bound = bench.backend.bound_queue(&block).unwrap();
        assert_eq!(bound.as_ref(), Some(&bench.queue));
    }
}

/// Commands of the old queue come before later ones of the new queue.
pub fn binding_puts_the_new_queue_behind_the_old_one<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    for (old, block) in bound_blocks(&bench) {
        let new = bench.another_queue();
        let (gate, _) = bench.gated_fill(&old, &block, 1);
        bench.backend.bind_to_queue(&block, &new).unwrap();
        let filled = bench.fill(&new, &block, 2, &[]);
        new.flush().unwrap();
        bench.completes_once_open(&gate, &filled);
        assert_eq!(bench.read(&block), [2; SIZE]);
    }
}

/// The block is freed after commands on that queue that were given the bare address.
pub fn a_bound_block_is_freed_behind_its_last_queue<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    for block in blocks(&bench.backend, SIZE) {
        let queue = bench.another_queue();
        bench.backend.bind_to_queue(&block, &queue).unwrap();
        let buffer = bench.buffer(SIZE);
        let fill = bench.gated_fill(&queue, &buffer, 5);
        freed_behind(&bench, block, drop, &[fill]);
        queue.finish().unwrap();
    }
}

/// Refused are an out-of-order queue, which cannot order a free; foreign objects; a buffer.
pub fn what_cannot_be_bound_is_refused<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let (bench, foreign) = (Bench::new(fixture), Bench::new(fixture));
    let backend = &bench.backend;
    if !grains(backend).is_empty() {
        let buffer = bench.buffer(SIZE);
        let not_svm = [
            refusal(backend.bind_to_queue(&buffer, &bench.queue)),
            refusal(backend.unbind_from_queue(&buffer)),
            refusal(backend.enqueue_release(buffer, Some(&bench.queue), &[])),
        ];
        assert_eq!(not_svm, [const { InvalidRequest::NotSvm }; 3]);
    }
    for block in blocks(backend, SIZE) {
        if let Some(unordered) = bench.out_of_order_queue() {
            let refused = refusal(backend.bind_to_queue(&block, &unordered));
            assert_eq!(refused, InvalidRequest::OutOfOrderQueue);
            let refused = refusal(backend.set_bound_queue(&block, Some(&unordered)));
            assert_eq!(refused, InvalidRequest::OutOfOrderQueue);
        }
        let bound = backend.bind_to_queue(&block, &foreign.queue);
        refused_as_foreign(ObjectKind::Queue, bound);
        let bound = foreign.backend.bind_to_queue(&block, &foreign.queue);
        refused_as_foreign(ObjectKind::Memory, bound);
        assert_eq!(backend.bound_queue(&block).unwrap(), None);
    }
}

/// Nothing of that queue is pending afterwards.
pub fn unbinding_waits_for_the_queue<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    for block in blocks(&bench.backend, SIZE) {
        let queue = bench.another_queue();
        bench.backend.bind_to_queue(&block, &queue).unwrap();
        let fills = [(); 8].map(|()| bench.fill(&queue, &block, 3, &[]));
        bench.backend.unbind_from_queue(&block).unwrap();
        for fill in fills {
            assert_eq!(fill.status().unwrap(), EventStatus::Complete);
        }
    }
}

/// It also waits for everything that was enqueued on its queue, in order or not.
pub fn an_enqueued_release_waits_for_its_wait_list<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    for queue in bench.queues_of_both_orders() {
        for block in blocks(&bench.backend, SIZE) {
            let (gate, buffer) = (bench.gate(), bench.buffer(SIZE));
            let (own_gate, fill) = bench.gated_fill(&queue, &buffer, 5);
            let taken = addresses(&bench.backend, &block);
            let freed = bench
                .backend
                .enqueue_release(block, Some(&queue), from_ref(&gate))
                .unwrap();
            for gate in [gate, own_gate] {
                assert_not_handed_out(&bench.backend, &taken);
                assert_eq!(freed.status().unwrap(), EventStatus::Pending);
                bench.open(&gate);
            }
            freed.wait().unwrap();
            assert_eq!(fill.status().unwrap(), EventStatus::Complete);
        }
    }
}

/// Where the block is bound to none, the caller must name a queue.
pub fn a_release_without_a_queue_is_on_the_bound_one<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    let backend = &bench.backend;
    for (queue, block) in bound_blocks(&bench) {
        let (gate, fill) = bench.gated_fill(&queue, &block, 1);
        let freed = backend.enqueue_release(block, None, &[]).unwrap();
        bench.completes_once_open(&gate, &freed);
        assert_eq!(fill.status().unwrap(), EventStatus::Complete);
    }
    for block in blocks(backend, SIZE) {
        let refused = backend.enqueue_release(block, None, &[]);
        assert_eq!(refusal(refused), InvalidRequest::NoQueue);
    }
}
