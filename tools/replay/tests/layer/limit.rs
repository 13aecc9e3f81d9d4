//! A limit on the memory of a program.

use std::ptr;

use opencl_sys::*;

use crate::{
    cl::cl,
    rig::{Rig, say},
    runs::{Run, rule_with, under},
};

/// As many bytes as the programs below may have.
const LIMIT: usize = 1 << 20;
const VARIABLES: [(&str, &str); 1] = [("BINPOOL_LIMIT", "1048576")];

#[track_caller]
fn both_say(runs: Option<(Run, Run)>, expected: &str) {
    if let Some((recorded, pooled)) = runs {
        assert_eq!(
            recorded.transcript, expected,
            "recorded: {}",
            recorded.errors
        );
        assert_eq!(pooled.transcript, expected, "pooled: {}", pooled.errors);
    }
}

fn status_of(rig: &Rig, bytes: usize) -> (cl_mem, cl_int) {
    rig.try_buffer(0, bytes, ptr::null_mut())
}

#[test]
fn a_program_that_stays_below_the_limit_does_not_notice_it() {
    rule_with(&VARIABLES, |rig| {
        for round in 0..50 {
            let (buffer, status) = status_of(rig, LIMIT / 2 + round);
            let (other, other_status) = status_of(rig, LIMIT / 4);
            rig.fill(rig.queue, buffer, 1, LIMIT / 2);
            say!(
                rig,
                "{status} {other_status} {:?}",
                rig.read(rig.queue, buffer, 2)
            );
            rig.release(buffer);
            rig.release(other);
        }
    });
}

#[test]
fn memory_above_the_limit_is_refused_as_by_a_device_that_is_full() {
    let runs = under(&VARIABLES, |rig| {
        let (buffer, status) = status_of(rig, LIMIT);
        say!(rig, "{} {status}", buffer.is_null());
        for bytes in [1, LIMIT, 1 << 30] {
            let (other, status) = status_of(rig, bytes);
            say!(rig, "{} {status}", other.is_null());
        }
        let address = cl!(clSVMAlloc(rig.context, CL_MEM_READ_WRITE, 64, 0));
        say!(rig, "{}", address.is_null());
        rig.fill(rig.queue, buffer, 1, LIMIT);
        say!(rig, "{:?}", rig.read(rig.queue, buffer, 2));
        rig.release(buffer);
        let (buffer, status) = status_of(rig, LIMIT);
        say!(rig, "{} {status}", buffer.is_null());
        rig.release(buffer);
    });
    if let Some((_, pooled)) = &runs {
        assert_eq!(pooled.count("o "), 4);
    }
    both_say(
        runs,
        "false 0\ntrue -4\ntrue -4\ntrue -4\ntrue\n[1, 1]\nfalse 0\n",
    );
}

#[test]
fn memory_that_a_pool_keeps_is_released_before_anything_is_refused() {
    let runs = under(&VARIABLES, |rig| {
        // Each size, each kind of flags and each kind of memory has its own.
        for bytes in [LIMIT / 2, LIMIT / 2 + 1, LIMIT / 2 + 2, LIMIT, LIMIT - 1] {
            for flags in [0, CL_MEM_READ_ONLY, CL_MEM_ALLOC_HOST_PTR] {
                let buffer = rig.buffer_with(flags, bytes);
                rig.release(buffer);
            }
            let address = cl!(clSVMAlloc(rig.context, CL_MEM_READ_WRITE, bytes, 0));
            say!(rig, "{}", address.is_null());
            cl!(clSVMFree(rig.context, address));
        }
        let context = rig.new_context(&[rig.device]);
        let mut status = 0;
        let buffer = cl!(clCreateBuffer(
            context,
            0,
            LIMIT,
            ptr::null_mut(),
            &raw mut status
        ));
        say!(rig, "{} {status}", buffer.is_null());
    });
    both_say(runs, "false\nfalse\nfalse\nfalse\nfalse\nfalse 0\n");
}

#[test]
fn memory_that_pending_commands_use_is_not_waited_for() {
    let runs = under(&VARIABLES, |rig| {
        let event = rig.user_event();
        let first = rig.buffer(LIMIT);
        rig.fill_after(rig.queue, first, 1, LIMIT, &[event]);
        rig.release(first);
        let (second, status) = status_of(rig, LIMIT);
        // The driver frees the first once its command has ended; it is not memory of the program any more.
        say!(rig, "{} {status}", second.is_null());
        rig.resolve(event, CL_COMPLETE);
        rig.finish(rig.queue);
    });
    both_say(runs, "false 0\n");
}

#[test]
fn parts_count_once_and_images_count() {
    let runs = under(&VARIABLES, |rig| {
        let whole = rig.buffer(LIMIT);
        let (part, status) = rig.sub_buffer(whole, 0, LIMIT / 2);
        say!(rig, "{status}");
        rig.release(part);
        rig.release(whole);
        let format = cl_image_format {
            image_channel_order: CL_RGBA,
            image_channel_data_type: CL_UNSIGNED_INT8,
        };
        // SAFETY: numbers and pointers.
        let mut description: cl_image_desc = unsafe { std::mem::zeroed() };
        description.image_type = CL_MEM_OBJECT_IMAGE2D;
        description.image_width = 512;
        for height in [512, 513, 100] {
            description.image_height = height;
            let mut status = 0;
            let image = cl!(clCreateImage(
                rig.context,
                0,
                &raw const format,
                &raw const description,
                ptr::null_mut(),
                &raw mut status
            ));
            say!(rig, "{height} {} {status}", image.is_null());
            if !image.is_null() {
                say!(rig, "{}", status_of(rig, LIMIT).1);
                rig.release(image);
            }
        }
        say!(rig, "{}", status_of(rig, LIMIT).1);
    });
    both_say(
        runs,
        "0\n512 false 0\n-4\n513 true -4\n100 false 0\n-4\n0\n",
    );
}

#[test]
fn a_buffer_whose_end_is_reported_counts_until_then() {
    let runs = under(&VARIABLES, |rig| {
        unsafe extern "C" fn ended(_memory: cl_mem, _data: *mut std::ffi::c_void) {}
        for _ in 0..3 {
            let buffer = rig.buffer(LIMIT);
            cl!(clSetMemObjectDestructorCallback(
                buffer,
                Some(ended),
                ptr::null_mut()
            ));
            say!(rig, "{}", status_of(rig, 1).1);
            rig.release(buffer);
        }
    });
    both_say(runs, "-4\n-4\n-4\n");
}
