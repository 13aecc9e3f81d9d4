//! Commands that are pending when memory is released and reused.

use std::{ptr, sync::mpsc, time::Duration};

use opencl_sys::*;

use crate::{
    cl::cl,
    rig::{Rig, say},
    runs::rule,
};

/// Says whether a queue ends its commands soon.
fn ends_soon(queue: cl_command_queue) -> bool {
    let (send, receive) = mpsc::channel();
    let queue = queue.expose_provenance();
    std::thread::spawn(move || {
        let status = cl!(clFinish(ptr::with_exposed_provenance_mut(queue)));
        let _ = send.send(status);
    });
    receive.recv_timeout(Duration::from_secs(5)) == Ok(CL_SUCCESS)
}

fn all_are(rig: &Rig, queue: cl_command_queue, memory: cl_mem, bytes: usize, value: u8) -> bool {
    rig.read(queue, memory, bytes)
        .iter()
        .all(|byte| *byte == value)
}

#[test]
fn memory_is_created_at_once_while_commands_on_released_memory_wait_for_the_program() {
    rule(|rig| {
        for properties in [0, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE] {
            let queue = rig.new_queue(properties);
            let event = rig.user_event();
            let first = rig.buffer(2048);
            rig.fill_after(queue, first, 0xEE, 2048, &[event]);
            rig.release(first);
            let second = rig.buffer(2048);
            let other_queue = rig.new_queue(0);
            rig.fill(other_queue, second, 4, 2048);
            say!(rig, "{}", ends_soon(other_queue));
            rig.resolve(event, CL_COMPLETE);
            rig.finish(queue);
            say!(rig, "{}", all_are(rig, other_queue, second, 2048, 4));
            rig.release(second);
        }
    });
}

#[test]
fn a_queue_does_not_wait_for_commands_that_another_got_after_the_memory_was_created() {
    rule(|rig| {
        let first = rig.buffer(2048);
        rig.fill(rig.queue, first, 0xEE, 2048);
        rig.release(first);
        // It may be the memory of the first, for the only queue.
        let second = rig.buffer(2048);
        let event = rig.user_event();
        let unrelated = rig.buffer(64);
        rig.fill_after(rig.queue, unrelated, 1, 64, &[event]);
        let other_queue = rig.new_queue(0);
        rig.fill(other_queue, second, 4, 2048);
        say!(rig, "{}", ends_soon(other_queue));
        rig.resolve(event, CL_COMPLETE);
        rig.finish(rig.queue);
        say!(rig, "{}", all_are(rig, other_queue, second, 2048, 4));
    });
}

#[test]
fn a_queue_does_not_wait_for_a_function_of_the_program_on_another_queue() {
    rule(|rig| {
        let first = rig.buffer(2048);
        rig.fill(rig.queue, first, 0xEE, 2048);
        rig.release(first);
        let second = rig.buffer(2048);
        let gate = rig.gate(rig.queue, None);
        let other_queue = rig.new_queue(0);
        rig.fill(other_queue, second, 4, 2048);
        say!(rig, "{}", ends_soon(other_queue));
        gate.open();
        rig.finish(rig.queue);
        say!(rig, "{}", all_are(rig, other_queue, second, 2048, 4));
    });
}

#[test]
fn memory_is_created_at_once_while_a_function_of_the_program_holds_the_only_queue_up() {
    rule(|rig| {
        let first = rig.buffer(2048);
        let gate = rig.gate(rig.queue, Some((first, 2048, 0xEE)));
        rig.release(first);
        let second = rig.buffer(2048);
        let other_queue = rig.new_queue(0);
        rig.fill(other_queue, second, 4, 2048);
        say!(rig, "{}", ends_soon(other_queue));
        gate.open();
        rig.finish(rig.queue);
        say!(rig, "{}", all_are(rig, other_queue, second, 2048, 4));
    });
}

/// Says whether another queue ends while a kernel on the first one waits until the host writes to `let_go`.
fn ends_beside_a_waiting_kernel(rig: &mut Rig, let_go: *mut u8) {
    let wait = rig.kernel("wait");
    // SAFETY: the caller's memory, which no command uses yet.
    unsafe { let_go.write_volatile(0) };
    let first = rig.buffer(2048);
    rig.argument(wait, 0, &first);
    let status = cl!(clSetKernelArgSVMPointer(wait, 1, let_go.cast()));
    rig.launch(rig.queue, wait, 1);
    cl!(clFlush(rig.queue));
    rig.release(first);
    // It may be the memory of the first, for the only queue.
    let second = rig.buffer(2048);
    let other_queue = rig.new_queue(0);
    rig.fill(other_queue, second, 4, 2048);
    say!(rig, "{status} {}", ends_soon(other_queue));
    // SAFETY: as above; the kernel reads it, as it may.
    unsafe { let_go.write_volatile(1) };
    rig.finish(rig.queue);
    say!(rig, "{}", all_are(rig, other_queue, second, 2048, 4));
    rig.release(second);
}

#[test]
fn a_queue_does_not_wait_for_a_kernel_that_fine_shared_memory_lets_go() {
    rule(|rig| {
        let flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER;
        let let_go = cl!(clSVMAlloc(rig.context, flags, 64, 0));
        ends_beside_a_waiting_kernel(rig, let_go.cast());
    });
}

#[test]
fn a_queue_does_not_wait_for_a_kernel_that_the_hosts_own_memory_lets_go() {
    rule(|rig| {
        let let_go = Box::leak(Box::new(0_u8));
        ends_beside_a_waiting_kernel(rig, let_go);
    });
}

#[test]
fn memory_that_is_reused_on_another_queue_is_not_touched_by_its_former_users() {
    let runs = rule(|rig| {
        for properties in [0, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE] {
            let first = rig.buffer(1024);
            rig.set_slowly(rig.queue, first, 1024);
            rig.release(first);
            let second = rig.buffer(1024);
            let other_queue = rig.new_queue(properties);
            rig.fill(other_queue, second, 5, 1024);
            rig.finish(other_queue);
            rig.finish(rig.queue);
            say!(rig, "{}", all_are(rig, other_queue, second, 1024, 5));
            rig.release(second);
            cl!(clReleaseCommandQueue(other_queue));
        }
    });
    if let Some(runs) = runs {
        runs.reuse();
    }
}

#[test]
fn memory_that_is_reused_on_another_queue_is_not_touched_after_its_first_queue_is_released() {
    let runs = rule(|rig| {
        let first = rig.buffer(1024);
        rig.set_slowly(rig.queue, first, 1024);
        rig.release(first);
        let second = rig.buffer(1024);
        cl!(clReleaseCommandQueue(rig.queue));
        let other_queue = rig.new_queue(0);
        rig.fill(other_queue, second, 5, 1024);
        rig.finish(other_queue);
        say!(rig, "{}", all_are(rig, other_queue, second, 1024, 5));
        std::thread::sleep(Duration::from_secs(1));
        say!(rig, "{}", all_are(rig, other_queue, second, 1024, 5));
    });
    if let Some(runs) = runs {
        runs.reuse();
    }
}

#[test]
fn memory_used_on_a_queue_that_is_retained_by_its_event_alone_is_not_reused_too_early() {
    rule(|rig| {
        let queue = rig.new_queue(0);
        let buffer = rig.buffer(1024);
        let mut event = ptr::null_mut();
        let value = 1_u8;
        cl!(clEnqueueFillBuffer(
            queue,
            buffer,
            (&raw const value).cast(),
            1,
            0,
            1024,
            0,
            ptr::null(),
            &raw mut event
        ));
        cl!(clReleaseCommandQueue(queue));
        cl!(clWaitForEvents(1, &raw const event));
        let mut again: cl_command_queue = ptr::null_mut();
        let status = cl!(clGetEventInfo(
            event,
            CL_EVENT_COMMAND_QUEUE,
            size_of::<cl_command_queue>(),
            (&raw mut again).cast(),
            ptr::null_mut()
        ));
        say!(rig, "{status} {}", again == queue);
        cl!(clRetainCommandQueue(again));
        let first = rig.buffer(1024);
        let gate = rig.gate(again, Some((first, 1024, 0xEE)));
        rig.release(first);
        let second = rig.buffer(1024);
        rig.fill(rig.queue, second, 5, 1024);
        cl!(clFlush(rig.queue));
        std::thread::sleep(Duration::from_millis(50));
        gate.open();
        rig.finish(again);
        rig.finish(rig.queue);
        say!(rig, "{}", all_are(rig, rig.queue, second, 1024, 5));
    });
}
