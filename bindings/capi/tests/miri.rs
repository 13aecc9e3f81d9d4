//! The C interface under Miri (`scripts/miri`), over the stand-in for CUDA's driver, which is linked, since Miri loads no libraries.

#![cfg(miri)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    ffi::{CStr, c_char},
    ptr,
    sync::mpsc::channel,
    thread,
};

use binpool_capi::{
    Block, Options, Pool, PoolMemory, Statistics, Status, binpool_allocate, binpool_allocate_on,
    binpool_block_class_size, binpool_block_device_ptr, binpool_block_free, binpool_block_host_ptr,
    binpool_block_order_before, binpool_block_record_use, binpool_block_size, binpool_block_wait,
    binpool_last_error_message, binpool_pool_free, binpool_pool_limit, binpool_pool_new_cuda,
    binpool_pool_report, binpool_pool_retire_queue, binpool_pool_set_limit,
    binpool_pool_snapshot_json, binpool_pool_statistics, binpool_pool_stop_watching,
    binpool_pool_trim, binpool_pool_watch, binpool_string_free, binpool_tag_enter,
    binpool_tag_leave,
};
use binpool_cuda_stand_in as _;

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: *mut std::ffi::c_void = ptr::without_provenance_mut(2);

fn message() -> String {
    // SAFETY: It is a text until the next failure of this thread.
    let text = unsafe { CStr::from_ptr(binpool_last_error_message()) };
    text.to_str().unwrap().to_owned()
}

#[track_caller]
fn ok(status: Status) {
    assert_eq!(status, Status::Ok, "{}", message());
}

/// Takes a text that binpool has returned.
fn take_text(fill: impl FnOnce(*mut *mut c_char) -> Status) -> String {
    let mut text = ptr::null_mut();
    ok(fill(&raw mut text));
    // SAFETY: It ends with a zero.
    let taken = unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
    // SAFETY: It was returned to be freed.
    unsafe { binpool_string_free(text) };
    taken
}

/// A handle that threads share, or that goes to another.
struct Shared<T>(*mut T);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<T> {}

// SAFETY: Any thread may use a pool or a block, as the header says.
unsafe impl<T> Send for Shared<T> {}

impl Shared<Pool> {
    /// A pool over a device of its own, so that tests share none.
    fn new(device: u32, memory: PoolMemory) -> Self {
        let options = Options {
            struct_size: size_of::<Options>(),
            memory: memory as u32,
            ..Options::default()
        };
        let mut pool = ptr::null_mut();
        // SAFETY: The options and the place live.
        ok(unsafe {
            binpool_pool_new_cuda(device, ptr::null_mut(), &raw const options, &raw mut pool)
        });
        Self(pool)
    }

    fn allocate(self, bytes: usize) -> Shared<Block> {
        let mut block = ptr::null_mut();
        // SAFETY: The pool lives.
        ok(unsafe { binpool_allocate(self.0, bytes, &raw mut block) });
        Shared(block)
    }

    fn statistics(self) -> Statistics {
        let mut now = Statistics::default();
        // SAFETY: The pool lives, and the place has this size.
        ok(unsafe { binpool_pool_statistics(self.0, &raw mut now, size_of::<Statistics>()) });
        now
    }

    fn trim(self) -> u64 {
        let mut released = 0;
        // SAFETY: The pool lives.
        ok(unsafe { binpool_pool_trim(self.0, 0, &raw mut released) });
        released
    }

    /// Frees the pool.
    fn end(self) {
        // SAFETY: Each test does this once, at its end.
        ok(unsafe { binpool_pool_free(self.0) });
    }
}

impl Shared<Block> {
    fn free(self) {
        // SAFETY: Each test frees its blocks once.
        ok(unsafe { binpool_block_free(self.0) });
    }
}

#[test]
fn every_question_has_its_answer() {
    let pool = Shared::new(1, PoolMemory::Device);
    // SAFETY: The pool and the text live.
    unsafe {
        ok(binpool_pool_watch(pool.0, 0));
        ok(binpool_tag_enter(c"step".as_ptr()));
    }
    let block = pool.allocate(5000);
    ok(binpool_tag_leave());
    let (mut address, mut limit, mut nowhere) = (0, 0, ptr::null_mut());
    // SAFETY: The pool and the block live, and so do the places. The stream is the thread's.
    unsafe {
        assert_eq!(binpool_block_size(block.0), 5000);
        assert!(binpool_block_class_size(block.0) >= 5000);
        ok(binpool_block_device_ptr(block.0, &raw mut address));
        assert_ne!(address, 0);
        let refused = binpool_block_host_ptr(block.0, &raw mut nowhere);
        assert_eq!((refused, nowhere.is_null()), (Status::Unsupported, true));
        ok(binpool_block_record_use(block.0, PER_THREAD));
        ok(binpool_block_order_before(block.0, PER_THREAD));
        ok(binpool_block_wait(block.0));
        ok(binpool_pool_set_limit(pool.0, 1 << 28));
        ok(binpool_pool_limit(pool.0, &raw mut limit));
        assert_eq!(limit, 1 << 28);
        let report = take_text(|place| binpool_pool_report(pool.0, place));
        assert!(report.contains("step"), "{report}");
        let json = take_text(|place| binpool_pool_snapshot_json(pool.0, place));
        assert!(json.starts_with('{'), "{json}");
        ok(binpool_pool_stop_watching(pool.0));
        ok(binpool_pool_retire_queue(pool.0, PER_THREAD));
    }
    assert_eq!(pool.statistics().active_blocks, 1);
    block.free();
    assert!(pool.trim() > 0);
    pool.end();
}

#[test]
fn what_is_wrong_is_a_status_with_a_message() {
    let pool = Shared::new(2, PoolMemory::Device);
    // SAFETY: Null pointers may be passed, and the pool lives.
    unsafe {
        let mut block = ptr::null_mut();
        let refused = binpool_allocate(ptr::null(), 1, &raw mut block);
        assert_eq!(refused, Status::InvalidArgument);
        assert!(message().contains("`pool` is null"), "{}", message());
        let refused = binpool_allocate(pool.0, 1, ptr::null_mut());
        assert_eq!(refused, Status::InvalidArgument);
        let refused = binpool_allocate(pool.0, usize::MAX / 2, &raw mut block);
        assert_eq!((refused, block.is_null()), (Status::OutOfMemory, true));
        assert_eq!(binpool_block_free(ptr::null_mut()), Status::InvalidArgument);
        binpool_string_free(ptr::null_mut());
        // As a program that knows fewer fields, and more.
        let mut few = [u64::MAX; 2];
        ok(binpool_pool_statistics(pool.0, few.as_mut_ptr().cast(), 8));
        assert_eq!(few, [0, u64::MAX]);
        let mut many = [u64::MAX; 64];
        let bytes = size_of_val(&many);
        ok(binpool_pool_statistics(
            pool.0,
            many.as_mut_ptr().cast(),
            bytes,
        ));
        assert_eq!(many[63], 0);
    }
    pool.end();
}

#[test]
fn the_host_uses_shared_memory_by_its_address() {
    let pool = Shared::new(3, PoolMemory::Shared);
    let block = pool.allocate(100);
    let mut address = ptr::null_mut();
    // SAFETY: The block lives.
    ok(unsafe { binpool_block_host_ptr(block.0, &raw mut address) });
    assert!(!address.is_null());
    block.free();
    pool.end();
}

/// Blocks of one thread are freed by another, threads end with cached blocks, and a third one trims and looks.
#[test]
fn threads_share_a_pool_and_free_the_blocks_of_others() {
    const ROUNDS: usize = 3;
    let pool = Shared::new(4, PoolMemory::Device);
    let (send, receive) = channel::<Shared<Block>>();
    let allocating = thread::spawn(move || {
        let pool = pool;
        for round in 1..=ROUNDS {
            send.send(pool.allocate(round * 1000)).unwrap();
            let mut own = ptr::null_mut();
            // SAFETY: The pool lives, and the stream is the thread's.
            ok(unsafe { binpool_allocate_on(pool.0, PER_THREAD, 3 << 20, &raw mut own) });
            Shared(own).free();
        }
    });
    let freeing = thread::spawn(move || receive.into_iter().for_each(Shared::<Block>::free));
    for _ in 0..2 {
        let now = pool.statistics();
        assert!(now.active_bytes <= now.managed_bytes);
        pool.trim();
    }
    allocating.join().unwrap();
    freeing.join().unwrap();
    let now = pool.statistics();
    assert_eq!((now.active_blocks, now.active_bytes), (0, 0));
    assert_eq!(now.hits + now.misses, 2 * ROUNDS as u64);
    pool.end();
}

/// The handle of a pool goes before a block of it, on another thread.
#[test]
fn a_block_outlives_its_pool() {
    let pool = Shared::new(5, PoolMemory::Device);
    let block = pool.allocate(1 << 20);
    pool.allocate(4096).free();
    let other = thread::spawn(move || {
        let block = block;
        block.free();
    });
    pool.end();
    other.join().unwrap();
}
