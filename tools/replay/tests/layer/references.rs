//! Counts of references.

use std::ptr;

use opencl_sys::*;

use crate::{cl::cl, rig::say, runs::rule};

#[test]
fn a_buffer_has_one_reference_when_it_is_fresh_and_when_it_is_reused() {
    let runs = rule(|rig| {
        for _ in 0..3 {
            let buffer = rig.buffer(4096);
            say!(rig, "{}", rig.references(buffer));
            rig.retain(buffer);
            say!(rig, "{}", rig.references(buffer));
            rig.release(buffer);
            say!(rig, "{}", rig.references(buffer));
            rig.release(buffer);
        }
    });
    if let Some(runs) = runs {
        runs.reuse();
    }
}

#[test]
fn a_retained_buffer_is_not_handed_out_again() {
    rule(|rig| {
        let kept = rig.buffer(256);
        rig.retain(kept);
        rig.release(kept);
        rig.fill(rig.queue, kept, 7, 256);
        let other = rig.buffer(256);
        say!(rig, "another: {}", other != kept);
        rig.fill(rig.queue, other, 8, 256);
        say!(rig, "{:?}", rig.read(rig.queue, kept, 3));
        rig.release(kept);
        rig.release(other);
    });
}

#[test]
fn a_second_release_of_a_buffer_does_not_touch_the_next_owner_of_its_memory() {
    let runs = rule(|rig| {
        let buffer = rig.buffer(256);
        // The driver answers a buffer that it knows no more in its own way, so a bare program must not do this.
        let is_pooled = std::env::var_os("BINPOOL_POOL").is_some();
        rig.release(buffer);
        if is_pooled {
            let status = cl!(clReleaseMemObject(buffer));
            assert_eq!(status, CL_INVALID_MEM_OBJECT);
            assert_eq!(cl!(clRetainMemObject(buffer)), CL_INVALID_MEM_OBJECT);
        }
        let next = rig.buffer(256);
        rig.fill(rig.queue, next, 5, 256);
        say!(
            rig,
            "{:?} {}",
            rig.read(rig.queue, next, 3),
            rig.references(next)
        );
        rig.release(next);
    });
    if let Some(runs) = runs {
        runs.reuse();
    }
}

#[test]
fn a_context_has_as_many_references_with_memory_that_a_pool_keeps() {
    rule(|rig| {
        let count = |rig: &crate::rig::Rig| rig.context_references(rig.context);
        let before = count(rig);
        let buffer = rig.buffer(4096);
        let with = count(rig);
        rig.release(buffer);
        say!(rig, "{} {}", with - before, count(rig) - before);
        let buffers: Vec<cl_mem> = (1..9).map(|size| rig.buffer(size * 128)).collect();
        let with = count(rig);
        for buffer in buffers {
            rig.release(buffer);
        }
        say!(rig, "{} {}", with - before, count(rig) - before);
    });
}

#[test]
fn a_queue_has_the_references_of_the_program() {
    rule(|rig| {
        // Threads of the driver may have references to a queue that was used.
        let unused = rig.new_queue(0);
        say!(rig, "{}", rig.queue_references(unused));
        for round in 0..3 {
            let buffer = rig.buffer(4096);
            rig.fill(rig.queue, buffer, round, 4096);
            rig.release(buffer);
            cl!(clRetainCommandQueue(unused));
            say!(rig, "{}", rig.queue_references(unused));
        }
        for _ in 0..3 {
            say!(
                rig,
                "{} {}",
                cl!(clReleaseCommandQueue(unused)),
                rig.queue_references(unused)
            );
        }
    });
}

#[test]
fn a_context_that_is_retained_lives_on_and_so_does_its_memory() {
    rule(|rig| {
        let context = rig.new_context(&[rig.device]);
        cl!(clRetainContext(context));
        let mut status = 0;
        for _ in 0..2 {
            let buffer = cl!(clCreateBuffer(
                context,
                0,
                512,
                ptr::null_mut(),
                &raw mut status
            ));
            let queue = rig.queue_in(context, rig.device, 0);
            rig.fill(queue, buffer, 4, 512);
            say!(
                rig,
                "{status} {:?} {}",
                rig.read(queue, buffer, 2),
                cl!(clReleaseContext(context))
            );
            cl!(clReleaseCommandQueue(queue));
            rig.release(buffer);
        }
    });
}

#[test]
fn memory_and_queues_outlive_the_programs_reference_to_their_context() {
    rule(|rig| {
        let context = rig.new_context(&[rig.device]);
        let queue = rig.queue_in(context, rig.device, 0);
        let mut status = 0;
        let buffer = cl!(clCreateBuffer(
            context,
            0,
            512,
            ptr::null_mut(),
            &raw mut status
        ));
        say!(rig, "{}", cl!(clReleaseContext(context)));
        rig.fill(queue, buffer, 4, 512);
        say!(rig, "{:?}", rig.read(queue, buffer, 2));
        let own: usize = rig.about(buffer, CL_MEM_CONTEXT, 0).unwrap();
        say!(rig, "{}", own == context as usize);
        // The context is there as long as they are.
        let other = cl!(clCreateBuffer(
            context,
            0,
            512,
            ptr::null_mut(),
            &raw mut status
        ));
        rig.fill(queue, other, 5, 512);
        say!(
            rig,
            "{status} {:?} {:?}",
            rig.read(queue, other, 2),
            rig.read(queue, buffer, 2)
        );
        rig.release(buffer);
        rig.release(other);
        say!(rig, "{}", cl!(clReleaseCommandQueue(queue)));
    });
}

#[test]
fn memory_may_be_released_after_its_context_and_then_its_queue() {
    rule(|rig| {
        for round in 0..4_u8 {
            let context = rig.new_context(&[rig.device]);
            let mut status = 0;
            let buffers = [100, 200].map(|bytes| {
                cl!(clCreateBuffer(
                    context,
                    0,
                    bytes,
                    ptr::null_mut(),
                    &raw mut status
                ))
            });
            let unordered = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
            let queues = [0, unordered].map(|order| rig.queue_in(context, rig.device, order));
            for queue in queues {
                for buffer in buffers {
                    rig.fill(queue, buffer, round, 100);
                }
                rig.finish(queue);
            }
            say!(rig, "{}", cl!(clReleaseContext(context)));
            say!(
                rig,
                "{:?}",
                queues.map(|queue| cl!(clReleaseCommandQueue(queue)))
            );
            // What the driver has freed is other memory now.
            let others: Vec<Vec<u8>> = (1..2000).map(|size| vec![0xAB; size]).collect();
            for buffer in buffers {
                say!(rig, "{} {}", cl!(clReleaseMemObject(buffer)), others.len());
            }
        }
    });
}
