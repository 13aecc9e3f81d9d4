//! Threads that are cancelled.

use std::{
    ffi::{c_int, c_ulong, c_void},
    ptr,
};

use binpool_capi::{
    Recording, RecordingSummary, binpool_allocate, binpool_block_free, binpool_pool_record,
    binpool_recording_finish,
};

use crate::common::{Bench, ok};

// SAFETY: These are their declarations on Linux.
unsafe extern "C-unwind" {
    fn pthread_create(
        thread: *mut c_ulong,
        attributes: *const c_void,
        start: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_join(thread: c_ulong, result: *mut *mut c_void) -> c_int;
    safe fn pthread_self() -> c_ulong;
    fn pthread_cancel(thread: c_ulong) -> c_int;
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    /// Ends the thread by unwinding it.
    fn pthread_testcancel();
}

/// `PTHREAD_CANCELED`.
const CANCELLED: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// Records what it allocates, while its cancellation is pending.
unsafe extern "C-unwind" fn record_and_end(bench: *mut c_void) -> *mut c_void {
    // SAFETY: The test waits for this thread.
    let bench = unsafe { &*bench.cast::<Bench>() };
    let mut before = 0;
    // SAFETY: There is a place for the state, and the thread is this one, which ends where it may be cancelled.
    unsafe { pthread_setcancelstate(1, &raw mut before) };
    // SAFETY: As above.
    unsafe { pthread_cancel(pthread_self()) };
    // SAFETY: As above.
    unsafe { pthread_setcancelstate(before, ptr::null_mut()) };
    let mut recording: *mut Recording = ptr::null_mut();
    let path = c"/dev/null".as_ptr();
    // SAFETY: The pool and the path live.
    ok(unsafe { binpool_pool_record(bench.pool, path, &raw mut recording) });
    let mut block = ptr::null_mut();
    // SAFETY: As above.
    ok(unsafe { binpool_allocate(bench.pool, 4096, &raw mut block) });
    // SAFETY: It is freed once.
    ok(unsafe { binpool_block_free(block) });
    let mut summary = RecordingSummary::default();
    // SAFETY: The recording goes on.
    ok(unsafe { binpool_recording_finish(recording, &raw mut summary) });
    // SAFETY: Nothing in this function is dropped.
    unsafe { pthread_testcancel() };
    ptr::null_mut()
}

#[test]
fn a_thread_that_is_cancelled_ends_at_a_call_of_its_own() {
    let bench = Bench::new(0);
    let (mut thread, mut ended) = (0, ptr::null_mut());
    let argument = ptr::from_ref(&bench).cast_mut().cast();
    // SAFETY: There are places for the thread and its result, and it is joined.
    let made = unsafe { pthread_create(&raw mut thread, ptr::null(), record_and_end, argument) };
    assert_eq!(made, 0);
    // SAFETY: As above.
    assert_eq!(unsafe { pthread_join(thread, &raw mut ended) }, 0);
    assert_eq!(ended, CANCELLED);
}
