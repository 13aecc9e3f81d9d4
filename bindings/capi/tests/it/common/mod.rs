//! Pools over the first OpenCL device, by the functions of the C interface.

#[cfg(target_os = "linux")]
pub(crate) mod native;

use std::{
    env,
    ffi::{CStr, c_char, c_void},
    ptr,
};

use binpool_capi::{
    Block, Options, Pool, Statistics, Status, binpool_allocate, binpool_block_cl_mem,
    binpool_block_free, binpool_last_error_message, binpool_pool_free, binpool_pool_new_opencl,
    binpool_pool_statistics, binpool_string_free,
};
use binpool_opencl::{ClQueue, OpenClBackend};

use binpool::{Backend, QueueOrder};

pub(crate) const MIB: u64 = 1 << 20;

/// The message of the last call that failed on this thread.
pub(crate) fn message() -> String {
    // SAFETY: It is a text until the next failure of this thread.
    let text = unsafe { CStr::from_ptr(binpool_last_error_message()) };
    text.to_str().unwrap().to_owned()
}

/// Fails with the message unless a call went well.
#[track_caller]
pub(crate) fn ok(status: Status) {
    assert_eq!(status, Status::Ok, "{}", message());
}

/// Asserts how a call failed, and returns its message.
#[track_caller]
pub(crate) fn failed(status: Status, expected: Status) -> String {
    let message = message();
    assert_eq!(status, expected, "{message}");
    message
}

/// Takes a text that binpool has returned.
pub(crate) fn take_text(text: *mut c_char) -> String {
    // SAFETY: It ends with a zero.
    let taken = unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
    // SAFETY: It was returned to be freed.
    unsafe { binpool_string_free(text) };
    taken
}

pub(crate) fn options(limit_bytes: u64) -> Options {
    Options {
        struct_size: size_of::<Options>(),
        limit_bytes,
        ..Options::default()
    }
}

/// The OpenCL device that `BINPOOL_TEST_DEVICE` names, or the first one, in a context of its own.
pub(crate) fn open() -> OpenClBackend {
    let device = env::var("BINPOOL_TEST_DEVICE").unwrap_or_else(|_| "any".to_owned());
    OpenClBackend::open(&device.parse().unwrap()).unwrap()
}

/// A pool with its device and two queues, which are the program's.
pub(crate) struct Bench {
    pub(crate) pool: *mut Pool,
    pub(crate) backend: OpenClBackend,
    pub(crate) queue: ClQueue,
    pub(crate) other: ClQueue,
}

// SAFETY: A pool may be used by several threads at once, as the header says.
unsafe impl Sync for Bench {}

impl Bench {
    /// A pool that may take this many bytes; 0 for no limit.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self::with(options(limit_bytes))
    }

    pub(crate) fn with(options: Options) -> Self {
        let backend = open();
        let [queue, other] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
        let mut pool = ptr::null_mut();
        // SAFETY: All of them live.
        ok(unsafe {
            binpool_pool_new_opencl(
                backend.raw_context(),
                backend.raw_device(),
                queue.raw(),
                &raw const options,
                &raw mut pool,
            )
        });
        Self {
            pool,
            backend,
            queue,
            other,
        }
    }

    pub(crate) fn allocate(&self, bytes: usize) -> *mut Block {
        let mut block = ptr::null_mut();
        // SAFETY: The pool lives.
        ok(unsafe { binpool_allocate(self.pool, bytes, &raw mut block) });
        block
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let mut now = Statistics::default();
        // SAFETY: The pool lives.
        ok(unsafe { binpool_pool_statistics(self.pool, &raw mut now, size_of::<Statistics>()) });
        now
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // SAFETY: It lives, and no thread uses it.
        let _status = unsafe { binpool_pool_free(self.pool) };
    }
}

pub(crate) fn free(block: *mut Block) {
    // SAFETY: Each test frees its blocks once.
    ok(unsafe { binpool_block_free(block) });
}

/// The buffer of a block, and its offset there.
pub(crate) fn place(block: *const Block) -> (*mut c_void, usize) {
    let (mut memory, mut offset) = (ptr::null_mut(), 0);
    // SAFETY: The block lives.
    ok(unsafe { binpool_block_cl_mem(block, &raw mut memory, &raw mut offset) });
    (memory, offset)
}
