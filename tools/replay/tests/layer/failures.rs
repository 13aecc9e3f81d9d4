//! Calls and commands that fail.

use std::{
    ffi::{c_char, c_void},
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

use opencl_sys::*;

use crate::{cl::cl, rig::say, runs::rule};

#[test]
fn a_count_of_kernels_is_left_alone_when_the_call_fails() {
    rule(|rig| {
        let program = rig.program();
        let mut kernels: [cl_kernel; 1] = [ptr::null_mut()];
        let mut count = 77;
        let status = cl!(clCreateKernelsInProgram(
            program,
            1,
            kernels.as_mut_ptr(),
            &raw mut count
        ));
        say!(rig, "{status} {count}");
        let status = cl!(clCreateKernelsInProgram(
            ptr::null_mut(),
            0,
            ptr::null_mut(),
            &raw mut count
        ));
        say!(rig, "{status} {count}");
        let status = cl!(clCreateKernelsInProgram(
            program,
            0,
            ptr::null_mut(),
            &raw mut count
        ));
        say!(rig, "{status} {count}");
    });
}

static NOTIFIED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn notified(
    _what: *const c_char,
    _data: *const c_void,
    _bytes: usize,
    _user: *mut c_void,
) {
    NOTIFIED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_context_reports_an_error_once() {
    let runs = rule(|rig| {
        let mut status = 0;
        let context = cl!(clCreateContext(
            ptr::null(),
            1,
            &raw const rig.device,
            Some(notified),
            ptr::null_mut(),
            &raw mut status
        ));
        say!(rig, "{status}");
        let wrong = [
            (CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 64),
            (CL_MEM_READ_WRITE, usize::MAX),
            (CL_MEM_READ_WRITE, 0),
        ];
        for (flags, bytes) in wrong {
            cl!(clCreateBuffer(
                context,
                flags,
                bytes,
                ptr::null_mut(),
                &raw mut status
            ));
            say!(rig, "{status} {}", NOTIFIED.load(Ordering::Relaxed));
        }
        // A program without memory has no recording.
        let buffer = rig.buffer(64);
        rig.release(buffer);
    });
    if let Some(runs) = runs {
        assert_eq!(
            runs.pooled.calls("clCreateBuffer"),
            runs.recorded.calls("clCreateBuffer")
        );
    }
}

#[test]
fn commands_after_one_that_fails_end_as_they_would() {
    rule(|rig| {
        for properties in [0, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE] {
            let (queue, other_queue) = (rig.new_queue(properties), rig.new_queue(0));
            let first = rig.buffer(2048);
            let event = rig.user_event();
            let mut filled = ptr::null_mut();
            let value = 1_u8;
            cl!(clEnqueueFillBuffer(
                queue,
                first,
                (&raw const value).cast(),
                1,
                0,
                2048,
                1,
                &raw const event,
                &raw mut filled
            ));
            rig.release(first);
            let second = rig.buffer(2048);
            let mut other = ptr::null_mut();
            cl!(clEnqueueFillBuffer(
                other_queue,
                second,
                (&raw const value).cast(),
                1,
                0,
                2048,
                0,
                ptr::null(),
                &raw mut other
            ));
            rig.resolve(event, -5);
            cl!(clFinish(queue));
            let finished = cl!(clFinish(other_queue));
            say!(
                rig,
                "{} {} {finished}",
                rig.event_status(filled),
                rig.event_status(other)
            );
            say!(rig, "{:?}", rig.read(other_queue, second, 2));
            rig.release(second);
        }
    });
}

#[test]
fn a_failure_on_the_only_queue_does_not_reach_another_queue_by_the_memory() {
    rule(|rig| {
        let first = rig.buffer(2048);
        rig.fill(rig.queue, first, 1, 2048);
        rig.release(first);
        let second = rig.buffer(2048);
        let event = rig.user_event();
        let unrelated = rig.buffer(64);
        rig.fill_after(rig.queue, unrelated, 1, 64, &[event]);
        let other_queue = rig.new_queue(0);
        let mut filled = ptr::null_mut();
        let value = 3_u8;
        cl!(clEnqueueFillBuffer(
            other_queue,
            second,
            (&raw const value).cast(),
            1,
            0,
            2048,
            0,
            ptr::null(),
            &raw mut filled
        ));
        rig.resolve(event, -5);
        let finished = cl!(clFinish(other_queue));
        say!(rig, "{finished} {}", rig.event_status(filled));
        say!(rig, "{:?}", rig.read(other_queue, second, 2));
    });
}
