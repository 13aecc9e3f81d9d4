//! What the driver calls: when memory and contexts end, and when commands have.

use std::{
    ffi::c_void,
    ptr,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use opencl_sys::*;

use crate::{cl::cl, rig::say, runs::rule};

static ENDED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

unsafe extern "C" fn memory_ended(_memory: cl_mem, number: *mut c_void) {
    ENDED.lock().unwrap().push(number.addr());
}

unsafe extern "C" fn context_ended(_context: cl_context, number: *mut c_void) {
    ENDED.lock().unwrap().push(number.addr());
}

fn ended() -> Vec<usize> {
    ENDED.lock().unwrap().clone()
}

fn number(number: usize) -> *mut c_void {
    ptr::without_provenance_mut(number)
}

#[test]
fn the_end_of_a_buffer_is_reported_in_reverse_order_and_after_the_last_reference() {
    rule(|rig| {
        let buffer = rig.used_buffer(512);
        for index in 1..4 {
            say!(
                rig,
                "{}",
                cl!(clSetMemObjectDestructorCallback(
                    buffer,
                    Some(memory_ended),
                    number(index)
                ))
            );
        }
        rig.retain(buffer);
        rig.release(buffer);
        say!(rig, "{:?}", ended());
        rig.release(buffer);
        say!(rig, "{:?}", ended());
        let next = rig.buffer(512);
        rig.release(next);
        say!(rig, "{:?}", ended());
    });
}

#[test]
fn a_buffer_without_a_function_for_its_end_is_refused_one() {
    rule(|rig| {
        let buffer = rig.used_buffer(512);
        say!(
            rig,
            "{}",
            cl!(clSetMemObjectDestructorCallback(
                buffer,
                None,
                ptr::null_mut()
            ))
        );
        rig.fill(rig.queue, buffer, 5, 512);
        say!(rig, "{:?}", rig.read(rig.queue, buffer, 2));
        rig.release(buffer);
    });
}

#[test]
fn the_end_of_a_context_is_reported_when_the_program_releases_the_last_of_it() {
    rule(|rig| {
        for order in 0..4 {
            let context = rig.new_context(&[rig.device]);
            let queue = rig.queue_in(context, rig.device, 0);
            say!(
                rig,
                "{}",
                cl!(clSetContextDestructorCallback(
                    context,
                    Some(context_ended),
                    number(order)
                ))
            );
            let mut status = 0;
            let mut buffers = Vec::new();
            for round in 0..6 {
                let buffer = cl!(clCreateBuffer(
                    context,
                    CL_MEM_READ_WRITE,
                    1024,
                    ptr::null_mut(),
                    &raw mut status
                ));
                rig.fill(queue, buffer, 1, 1024);
                if round % 2 == 0 {
                    rig.release(buffer);
                } else {
                    buffers.push(buffer);
                }
            }
            rig.finish(queue);
            let (memory, queues, contexts) = [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)][order];
            for step in 0..3 {
                if step == memory {
                    buffers.drain(..).for_each(|buffer| rig.release(buffer));
                }
                if step == queues {
                    cl!(clReleaseCommandQueue(queue));
                }
                if step == contexts {
                    cl!(clReleaseContext(context));
                }
                // Threads of the driver may have the last reference for a while.
                std::thread::sleep(Duration::from_millis(100));
                say!(rig, "order {order}, step {step}: {:?}", ended());
            }
        }
    });
}

#[test]
fn a_buffer_whose_end_is_reported_comes_after_the_former_users_of_its_memory() {
    rule(|rig| {
        // What is allocated for the only queue may still be in use there.
        let first = rig.buffer(1024);
        rig.set_slowly(rig.queue, first, 1024);
        rig.release(first);
        let second = rig.buffer(1024);
        cl!(clSetMemObjectDestructorCallback(
            second,
            Some(memory_ended),
            number(1)
        ));
        let other_queue = rig.new_queue(0);
        rig.fill(other_queue, second, 5, 1024);
        rig.finish(other_queue);
        rig.finish(rig.queue);
        say!(
            rig,
            "{}",
            rig.read(other_queue, second, 1024)
                .iter()
                .all(|byte| *byte == 5)
        );
    });
}

static CALLED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn release_memory(_event: cl_event, _status: cl_int, memory: *mut c_void) {
    let status = cl!(clReleaseMemObject(memory));
    assert_eq!(status, CL_SUCCESS);
    CALLED.fetch_add(1, Ordering::Release);
}

#[test]
fn memory_may_be_released_when_a_command_has_ended() {
    let runs = rule(|rig| {
        for round in 0..20 {
            let buffer = rig.buffer(1024);
            let mut event = ptr::null_mut();
            let value = 3_u8;
            cl!(clEnqueueFillBuffer(
                rig.queue,
                buffer,
                (&raw const value).cast(),
                1,
                0,
                1024,
                0,
                ptr::null(),
                &raw mut event
            ));
            cl!(clSetEventCallback(
                event,
                CL_COMPLETE,
                Some(release_memory),
                buffer
            ));
            rig.finish(rig.queue);
            while CALLED.load(Ordering::Acquire) <= round {
                std::thread::yield_now();
            }
            cl!(clReleaseEvent(event));
        }
        say!(rig, "{}", CALLED.load(Ordering::Acquire));
    });
    if let Some(runs) = runs {
        runs.reuse();
    }
}
