//! Threads whose first call comes in a destructor of thread-specific data, after those of Rust's thread-locals.

use std::{
    ffi::{c_int, c_uint, c_void},
    ptr,
    sync::{Mutex, OnceLock},
    thread,
};

use binpool_capi::{Status, binpool_block_free};

use crate::common::{failed, message};

// SAFETY: These are their declarations.
unsafe extern "C" {
    fn pthread_key_create(
        key: *mut c_uint,
        destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    ) -> c_int;
    fn pthread_setspecific(key: c_uint, value: *const c_void) -> c_int;
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
