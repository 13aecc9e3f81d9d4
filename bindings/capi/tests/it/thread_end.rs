//! Threads whose first call comes in a destructor of thread-specific data, after those of Rust's thread-locals.

use std::{
    ffi::{c_int, c_uint, c_void},
    ptr,
    sync::{Mutex, OnceLock},
    thread,
};

use binpool_capi::{Pool, PoolMemory, Status, binpool_block_free, binpool_pool_limit};

use crate::{
    child::over_stand_in,
    common::{failed, free, message, ok},
    shared::{allocate, cuda_pool, free_pool},
};

// SAFETY: These are their declarations.
unsafe extern "C" {
    fn pthread_key_create(
        key: *mut c_uint,
        destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    ) -> c_int;
    fn pthread_setspecific(key: c_uint, value: *const c_void) -> c_int;
    fn mallinfo2() -> Mallinfo;
}

/// glibc's `struct mallinfo2`.
#[repr(C)]
struct Mallinfo {
    _before: [usize; 7],
    /// The bytes in use in all arenas.
    uordblks: usize,
    _after: [usize; 2],
}

static KEY: OnceLock<c_uint> = OnceLock::new();

/// The messages that the thread has had, at the end of each of its calls below.
static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Has `ending` called when the thread ends, or once more.
fn call_at_the_end(round: usize) {
    let round = ptr::without_provenance(round);
    // SAFETY: The key was made, and the value is a number.
    let code = unsafe { pthread_setspecific(*KEY.get().unwrap(), round) };
    assert_eq!(code, 0);
}

/// Fails in the first round, and looks at the message in the third, when all other destructors were called.
unsafe extern "C" fn ending(round: *mut c_void) {
    let round = round.addr();
    if round == 1 {
        // SAFETY: A null pointer may be passed.
        let status = unsafe { binpool_block_free(ptr::null_mut()) };
        failed(status, Status::InvalidArgument);
    }
    MESSAGES.lock().unwrap().push(message());
    if round < 3 {
        call_at_the_end(round + 1);
    }
}

#[test]
fn the_message_of_a_call_in_a_late_destructor_goes_with_the_thread() {
    KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: There is a place for the result, and the destructor is of this program.
        let code = unsafe { pthread_key_create(&raw mut key, Some(ending)) };
        assert_eq!(code, 0);
        key
    });
    thread::spawn(|| call_at_the_end(1)).join().unwrap();
    let messages = MESSAGES.lock().unwrap();
    assert_eq!(messages[0], "the argument `block` is null");
    assert_eq!(messages[2], "");
}

/// A pool that threads use.
#[derive(Clone, Copy)]
struct Shared(*mut Pool);

// SAFETY: Any thread may use a pool, as the header says.
unsafe impl Send for Shared {}

impl Shared {
    /// Uses the pool in a way that no failure comes of.
    fn use_it(self, allocates: bool) {
        let mut limit = 0;
        // SAFETY: The pool lives.
        ok(unsafe { binpool_pool_limit(self.0, &raw mut limit) });
        if allocates {
            free(allocate(self.0));
        }
    }
}

#[test]
fn threads_that_end_leave_no_memory() {
    over_stand_in("thread_end::threads_that_end_leave_no_memory", || {
        const THREADS: usize = 1000;
        let pool = cuda_pool(PoolMemory::Device);
        let shared = Shared(pool);
        for allocates in [false, true] {
            let run = || {
                for _ in 0..THREADS {
                    thread::spawn(move || shared.use_it(allocates))
                        .join()
                        .unwrap();
                }
                // SAFETY: The declaration is glibc's.
                unsafe { mallinfo2() }.uordblks
            };
            let before = run();
            let after = run();
            // Less than the smallest allocation for each thread.
            let most = before + THREADS * 16;
            assert!(after < most, "{before} bytes, then {after}; {allocates}");
        }
        free_pool(pool);
    });
}
