//! Threads: how they end, and how small they are.

use std::{ffi::c_void, ptr};

use crate::{cl::cl, rig::say, runs::rule};

// SAFETY: these are their declarations.
unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: i32, before: *mut i32) -> i32;
    /// Ends the thread by unwinding it.
    fn pthread_testcancel();
}

/// `PTHREAD_CANCELED`.
const CANCELLED: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// A thread whose cancellation is pending before its calls, none of which the driver has a point of cancellation in.
unsafe extern "C-unwind" fn create_and_end(context: *mut c_void) -> *mut c_void {
    let mut before = 0;
    // SAFETY: the place is for a state. The thread may end from here on.
    unsafe { pthread_setcancelstate(1, &raw mut before) };
    // SAFETY: this is the thread itself.
    unsafe { libc::pthread_cancel(libc::pthread_self()) };
    // SAFETY: as above.
    unsafe { pthread_setcancelstate(before, ptr::null_mut()) };
    let mut status = 0;
    for bytes in [4096, 100, 4096] {
        let buffer = cl!(clCreateBuffer(
            context,
            0,
            bytes,
            ptr::null_mut(),
            &raw mut status
        ));
        cl!(clReleaseMemObject(buffer));
    }
    // SAFETY: nothing in this function is dropped.
    unsafe { pthread_testcancel() };
    ptr::null_mut()
}

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type UnwindingStart = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

#[test]
fn a_thread_that_is_cancelled_ends_at_a_call_of_its_own() {
    rule(|rig| {
        // SAFETY: as the C library calls it, which lets a thread unwind.
        let start = unsafe { std::mem::transmute::<UnwindingStart, Start>(create_and_end) };
        for _ in 0..3 {
            let mut thread = 0;
            let mut ended = ptr::null_mut();
            // SAFETY: the place is for a thread, which is joined.
            let made =
                unsafe { libc::pthread_create(&raw mut thread, ptr::null(), start, rig.context) };
            // SAFETY: as above.
            let joined = unsafe { libc::pthread_join(thread, &raw mut ended) };
            say!(rig, "{made} {joined} {}", ended == CANCELLED);
        }
        let buffer = rig.buffer(4096);
        rig.fill(rig.queue, buffer, 3, 4096);
        say!(rig, "{:?}", rig.read(rig.queue, buffer, 2));
        rig.release(buffer);
    });
}

#[test]
fn a_thread_with_a_small_stack_may_create_memory() {
    rule(|rig| {
        let context = rig.context.expose_provenance();
        // The least that the system allows, and what frames that are not optimized take.
        let least = if cfg!(debug_assertions) { 24 } else { 16 };
        for kilobytes in [64, least, 128] {
            let thread = std::thread::Builder::new()
                .stack_size(kilobytes << 10)
                .spawn(move || {
                    let mut status = 0;
                    let context = ptr::with_exposed_provenance_mut(context);
                    let buffer = cl!(clCreateBuffer(
                        context,
                        0,
                        64,
                        ptr::null_mut(),
                        &raw mut status
                    ));
                    (status, cl!(clReleaseMemObject(buffer)))
                });
            say!(rig, "{:?}", thread.unwrap().join().unwrap());
        }
    });
}
