//! The message of the last call that failed on a thread.

use std::{
    cell::{Cell, RefCell},
    ffi::{CStr, CString, c_char},
};

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
    /// Set once `LAST` has had a message. It has no destructor, so a thread that ends can look at it.
    static IS_SET: Cell<bool> = const { Cell::new(false) };
}

/// Keeps a message for the calling thread. What is behind a zero in it is lost.
pub(crate) fn set(message: &str) {
    let text = message.split('\0').next().unwrap_or_default();
    let text = CString::new(text).ok();
    IS_SET.set(true);
    // A thread that ends has no message any more.
    let _ended = LAST.try_with(|last| last.replace(text));
}

/// Forgets the message of a thread that ends.
pub(crate) fn forget() {
    // A first use of `LAST` here would register a destructor that never runs, and glibc would keep 32 bytes for it.
    if IS_SET.get() {
        let _ended = LAST.try_with(RefCell::take);
    }
}

/// The message of the last call that failed on the calling thread; an empty text if none has. It is in UTF-8, and may have several
/// lines: an out-of-memory error is a whole report.
///
/// It is valid until another call fails on this thread, or the thread ends. Calls that succeed do not change it. Do not free it.
///
/// Any thread may call it.
#[expect(
    unsafe_code,
    reason = "an exported name is declared by an attribute that is unsafe"
)]
// SAFETY: No other library has names that begin like this.
#[unsafe(no_mangle)]
pub extern "C" fn binpool_last_error_message() -> *const c_char {
    let found = LAST.try_with(|last| last.borrow().as_deref().map(CStr::as_ptr));
    found.ok().flatten().unwrap_or(c"".as_ptr())
}
