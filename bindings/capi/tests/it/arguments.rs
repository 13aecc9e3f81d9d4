//! Arguments that are wrong.

use std::ptr::{null, null_mut};

use binpool_capi::{
    Status, binpool_allocate, binpool_allocate_on, binpool_block_cl_mem, binpool_block_class_size,
    binpool_block_device_ptr, binpool_block_free, binpool_block_order_before, binpool_block_size,
    binpool_pool_free, binpool_pool_new_opencl, binpool_pool_record, binpool_pool_report,
    binpool_pool_statistics, binpool_recording_finish, binpool_string_free, binpool_tag_enter,
};

use crate::common::{Bench, MIB, failed, free, message, ok, open};

const INVALID: Status = Status::InvalidArgument;

#[test]
fn a_null_pointer_is_an_error_that_names_the_argument() {
    let bench = Bench::new(0);
    let mut block = bench.allocate(4096);
    let own = block;
    let (mut memory, mut report) = (null_mut(), null_mut());
    let (mut recording, mut pool) = (null_mut(), null_mut());
    let queue = bench.queue.raw();
    let (context, device) = (bench.backend.raw_context(), bench.backend.raw_device());
    let names = |status, name| {
        assert_eq!(
            failed(status, INVALID),
            format!("the argument `{name}` is null")
        );
    };
    // SAFETY: Null pointers may be passed, and what the others point to lives.
    let status = unsafe { binpool_allocate(null(), 1, &raw mut block) };
    names(status, "pool");
    // SAFETY: Null pointers may be passed, and what the others point to lives.
    let status = unsafe { binpool_allocate(bench.pool, 1, null_mut()) };
    names(status, "block");
    // SAFETY: Null pointers may be passed, and what the others point to lives.
    let status = unsafe { binpool_block_cl_mem(block, &raw mut memory, null_mut()) };
    names(status, "offset");
    // SAFETY: Null pointers may be passed, and what the others point to lives.
    let status = unsafe { binpool_block_free(null_mut()) };
    names(status, "block");
    // SAFETY: Null pointers may be passed, and what the others point to lives.
    let status = unsafe { binpool_pool_free(null_mut()) };
    names(status, "pool");
    // SAFETY: Null pointers may be passed, and what the others point to lives.
    let status = unsafe { binpool_pool_report(null(), &raw mut report) };
    names(status, "pool");
    // SAFETY: Null pointers may be passed, and what the others point to lives.
    let status = unsafe { binpool_pool_statistics(bench.pool, null_mut(), 8) };
    names(status, "statistics");
    // SAFETY: Null pointers may be passed, and what the others point to lives.
    let status = unsafe { binpool_pool_record(bench.pool, null(), &raw mut recording) };
    names(status, "path");
    // SAFETY: Null pointers may be passed, and what the others point to lives.
    let status = unsafe { binpool_recording_finish(null_mut(), null_mut()) };
    names(status, "recording");
    // SAFETY: Null pointers may be passed, and what the others point to lives.
    let status = unsafe { binpool_block_order_before(block, null_mut()) };
    names(status, "queue");
    // SAFETY: Null pointers may be passed, and what the others point to lives.
    let status = unsafe { binpool_tag_enter(null()) };
    names(status, "name");
    // SAFETY: Null pointers may be passed, and what the others point to lives.
    let status =
        unsafe { binpool_pool_new_opencl(null_mut(), device, queue, null(), &raw mut pool) };
    names(status, "context");
    // SAFETY: Null pointers may be passed, and what the others point to lives.
    let status =
        unsafe { binpool_pool_new_opencl(context, null_mut(), queue, null(), &raw mut pool) };
    names(status, "device");
    // SAFETY: Null pointers may be passed, and what the others point to lives.
    let status =
        unsafe { binpool_pool_new_opencl(context, device, null_mut(), null(), &raw mut pool) };
    names(status, "queue");
    // SAFETY: Null pointers may be passed, and what the others point to lives.
    let status = unsafe { binpool_pool_new_opencl(context, device, queue, null(), null_mut()) };
    names(status, "pool");
    assert!(block == own && pool.is_null() && recording.is_null());
    // SAFETY: Null pointers may be passed.
    unsafe { binpool_string_free(null_mut()) };
    // SAFETY: As above.
    assert_eq!(unsafe { binpool_block_size(null()) }, 0);
    // SAFETY: As above.
    assert_eq!(unsafe { binpool_block_class_size(null()) }, 0);
    free(block);
}

#[test]
fn queues_and_devices_of_others_are_refused() {
    let (bench, elsewhere) = (Bench::new(0), Bench::new(0));
    let mut block = null_mut();
    let theirs = elsewhere.queue.raw();
    // SAFETY: The pool and the queue live.
    let status = unsafe { binpool_allocate_on(bench.pool, theirs, 64, &raw mut block) };
    let text = failed(status, INVALID);
    assert!(text.contains("queue") && block.is_null(), "{text}");

    let own = bench.allocate(64);
    // SAFETY: The block and the queue live.
    failed(unsafe { binpool_block_order_before(own, theirs) }, INVALID);
    free(own);

    let backend = open();
    let mut pool = null_mut();
    // SAFETY: The context and the queue live; the device may be anything.
    let status = unsafe {
        binpool_pool_new_opencl(
            backend.raw_context(),
            backend.raw_context(),
            bench.queue.raw(),
            null(),
            &raw mut pool,
        )
    };
    let expected = "the device is not one of the context's devices";
    assert_eq!(failed(status, INVALID), expected);
    assert!(pool.is_null());
}

#[test]
fn blocks_of_nothing_have_no_memory_and_blocks_of_opencl_no_address() {
    let bench = Bench::new(0);
    let nothing = bench.allocate(0);
    let (mut memory, mut offset) = (null_mut(), 7);
    // SAFETY: The block lives.
    let status = unsafe { binpool_block_cl_mem(nothing, &raw mut memory, &raw mut offset) };
    assert_eq!(failed(status, INVALID), "a block of 0 bytes has no memory");
    assert!(memory.is_null() && offset == 7);

    let block = bench.allocate(1000);
    let mut address = 0;
    // SAFETY: The block lives.
    let status = unsafe { binpool_block_device_ptr(block, &raw mut address) };
    assert!(failed(status, Status::Unsupported).contains("use `binpool_block_cl_mem`"));
    // SAFETY: As above.
    assert_eq!(unsafe { binpool_block_size(block) }, 1000);
    // SAFETY: As above.
    assert!(unsafe { binpool_block_class_size(block) } >= 1000);
    free(block);
    free(nothing);
}

#[test]
fn a_message_stays_while_calls_go_well() {
    let bench = Bench::new(MIB);
    // SAFETY: A null pointer may be passed.
    failed(unsafe { binpool_block_free(null_mut()) }, INVALID);
    free(bench.allocate(64));
    // SAFETY: The pool lives.
    ok(unsafe { binpool_capi::binpool_pool_set_limit(bench.pool, 0) });
    assert_eq!(message(), "the argument `block` is null");
}
