//! Arguments of kernels.

use std::{ffi::CString, ptr};

use opencl_sys::*;

use crate::{cl::cl, rig::say, runs::rule};

#[test]
fn an_argument_may_be_released_once_the_kernel_is_enqueued() {
    let runs = rule(|rig| {
        let (set, add) = (rig.kernel("set"), rig.kernel("add"));
        let sum = rig.buffer(256);
        rig.fill(rig.queue, sum, 0, 256);
        for round in 1..20_u8 {
            let buffer = rig.buffer(256);
            rig.argument(set, 0, &buffer);
            rig.argument(set, 1, &round);
            rig.launch(rig.queue, set, 256);
            rig.argument(add, 0, &sum);
            rig.argument(add, 1, &buffer);
            rig.launch(rig.queue, add, 256);
            rig.release(buffer);
        }
        say!(
            rig,
            "{:?}",
            rig.read(rig.queue, sum, 256)
                .iter()
                .all(|byte| *byte == 190)
        );
    });
    if let Some(runs) = runs {
        assert_eq!(runs.pooled.calls("clCreateBuffer"), 2);
    }
}

#[test]
fn an_argument_that_is_set_again_is_used_no_more() {
    let runs = rule(|rig| {
        let set = rig.kernel("set");
        let other_queue = rig.new_queue(0);
        let (first, second) = (rig.buffer(256), rig.buffer(256));
        rig.argument(set, 0, &first);
        rig.argument(set, 1, &3_u8);
        rig.argument(set, 0, &second);
        rig.launch(other_queue, set, 256);
        rig.finish(other_queue);
        rig.fill(rig.queue, first, 9, 256);
        say!(
            rig,
            "{:?} {:?}",
            rig.read(rig.queue, first, 2),
            rig.read(rig.queue, second, 2)
        );
    });
    if let Some(runs) = runs {
        // Block 1 on the first queue alone.
        assert_eq!(runs.recorded.count("u 1 "), 1);
    }
}

#[test]
fn an_argument_may_be_no_buffer_at_all() {
    rule(|rig| {
        let is_null = rig.kernel("is_null");
        let to = rig.used_buffer(16);
        let from = rig.used_buffer(32);
        let none: cl_mem = ptr::null_mut();
        rig.argument(is_null, 0, &to);
        say!(rig, "{}", rig.argument(is_null, 1, &none));
        rig.launch(rig.queue, is_null, 16);
        say!(rig, "{:?}", rig.read(rig.queue, to, 2));
        say!(rig, "{}", rig.argument(is_null, 1, &from));
        rig.launch(rig.queue, is_null, 16);
        say!(rig, "{:?}", rig.read(rig.queue, to, 2));
        say!(
            rig,
            "{}",
            cl!(clSetKernelArg(is_null, 1, size_of::<cl_mem>(), ptr::null()))
        );
        rig.launch(rig.queue, is_null, 16);
        say!(rig, "{:?}", rig.read(rig.queue, to, 2));
    });
}

#[test]
fn the_same_buffer_may_be_two_arguments() {
    rule(|rig| {
        let add = rig.kernel("add");
        for round in 1..4_u8 {
            let buffer = rig.buffer(64);
            rig.fill(rig.queue, buffer, round, 64);
            rig.argument(add, 0, &buffer);
            rig.argument(add, 1, &buffer);
            rig.launch(rig.queue, add, 64);
            say!(rig, "{:?}", rig.read(rig.queue, buffer, 2));
            rig.release(buffer);
        }
    });
}

#[test]
fn a_clone_of_a_kernel_has_its_arguments() {
    rule(|rig| {
        let set = rig.kernel("set");
        let (first, second) = (rig.used_buffer(64), rig.used_buffer(96));
        rig.argument(set, 0, &first);
        rig.argument(set, 1, &3_u8);
        let mut status = 1234;
        let clone = cl!(clCloneKernel(set, &raw mut status));
        say!(rig, "{status} {}", clone.is_null());
        if clone.is_null() {
            return;
        }
        rig.argument(set, 0, &second);
        rig.launch(rig.queue, clone, 64);
        rig.launch(rig.queue, set, 64);
        rig.release(first);
        let next = rig.buffer(64);
        rig.fill(rig.queue, next, 7, 64);
        say!(
            rig,
            "{:?} {:?}",
            rig.read(rig.queue, next, 2),
            rig.read(rig.queue, second, 2)
        );
    });
}

#[test]
fn a_number_that_is_the_address_of_a_buffer_is_a_number() {
    rule(|rig| {
        let keep = rig.kernel("keep");
        let (to, named) = (rig.used_buffer(8), rig.used_buffer(64));
        let number = named as u64;
        rig.argument(keep, 0, &to);
        say!(rig, "{}", rig.argument(keep, 1, &number));
        rig.launch(rig.queue, keep, 1);
        say!(
            rig,
            "{}",
            rig.read(rig.queue, to, 8) == number.to_ne_bytes()
        );
        rig.release(named);
        // It is that of memory that the program does not have any more.
        rig.launch(rig.queue, keep, 1);
        let next = rig.buffer(64);
        rig.launch(rig.queue, keep, 1);
        rig.fill(rig.queue, next, 3, 64);
        say!(
            rig,
            "{} {:?}",
            rig.read(rig.queue, to, 8) == number.to_ne_bytes(),
            rig.read(rig.queue, next, 2)
        );
    });
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    rule(|rig| {
        let set = rig.kernel("set");
        let buffer = rig.used_buffer(64);
        say!(rig, "{}", rig.argument(set, 5, &buffer));
        say!(rig, "{}", rig.argument(set, 1, &buffer));
        say!(rig, "{}", rig.argument(set, 0, &1_u32));
        say!(rig, "{}", cl!(clSetKernelArg(set, 1, 1, ptr::null())));
        say!(
            rig,
            "{}",
            cl!(clSetKernelArg(
                ptr::null_mut(),
                0,
                8,
                (&raw const buffer).cast()
            ))
        );
        let unset = rig.kernel("add");
        let items = 1_usize;
        let status = cl!(clEnqueueNDRangeKernel(
            rig.queue,
            unset,
            1,
            ptr::null(),
            &raw const items,
            ptr::null(),
            0,
            ptr::null(),
            ptr::null_mut()
        ));
        say!(rig, "{status}");
    });
}

#[test]
fn all_kernels_of_a_program_are_created_with_arguments_of_their_own() {
    rule(|rig| {
        let program = rig.program();
        let mut count = 0;
        let status = cl!(clCreateKernelsInProgram(
            program,
            0,
            ptr::null_mut(),
            &raw mut count
        ));
        say!(rig, "{status} {count}");
        let mut kernels = vec![ptr::null_mut(); count as usize];
        let status = cl!(clCreateKernelsInProgram(
            program,
            count,
            kernels.as_mut_ptr(),
            ptr::null_mut()
        ));
        say!(
            rig,
            "{status} {}",
            kernels.iter().any(|kernel: &cl_kernel| kernel.is_null())
        );
        for kernel in kernels {
            say!(rig, "{}", cl!(clReleaseKernel(kernel)));
        }
        let none = CString::new("none").unwrap();
        let mut status = 1234;
        let kernel = cl!(clCreateKernel(program, none.as_ptr(), &raw mut status));
        say!(rig, "{} {status}", kernel.is_null());
    });
}

#[test]
fn a_kernel_at_the_address_of_an_older_one_has_no_arguments_of_it() {
    let runs = rule(|rig| {
        let other_queue = rig.new_queue(0);
        let first = rig.buffer(64);
        for _ in 0..4 {
            let kernel = rig.kernel("set");
            rig.argument(kernel, 0, &first);
            rig.argument(kernel, 1, &1_u8);
            cl!(clReleaseKernel(kernel));
            let kernel = rig.kernel("is_null");
            let (to, none) = (rig.buffer(32), ptr::null_mut::<cl_mem>());
            rig.argument(kernel, 0, &to);
            rig.argument(kernel, 1, &none);
            rig.launch(other_queue, kernel, 32);
            say!(rig, "{:?}", rig.read(other_queue, to, 1));
            cl!(clReleaseKernel(kernel));
        }
    });
    if let Some(runs) = runs {
        assert_eq!(
            runs.recorded.count("u 1 "),
            0,
            "the first buffer is never used"
        );
    }
}

#[test]
fn a_kernel_runs_on_two_queues_with_the_arguments_that_it_had_when_it_was_enqueued() {
    rule(|rig| {
        let set = rig.kernel("set");
        let queues = [
            rig.queue,
            rig.new_queue(0),
            rig.new_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE),
        ];
        for round in 0..6_u8 {
            let buffers = [rig.buffer(64), rig.buffer(64), rig.buffer(64)];
            for (queue, buffer) in queues.into_iter().zip(buffers) {
                rig.argument(set, 0, &buffer);
                rig.argument(set, 1, &round);
                rig.launch(queue, set, 64);
            }
            for (queue, buffer) in queues.into_iter().zip(buffers) {
                rig.finish(queue);
                say!(rig, "{:?}", rig.read(queue, buffer, 2));
                rig.release(buffer);
            }
        }
    });
}
