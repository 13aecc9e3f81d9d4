//! The end of threads: of those that are cancelled, and of those whose first call comes late.
//!
//! A destructor of thread-specific data (`pthread_key_create`) may be where a thread first calls this library. Rust registers the destructors of
//! its thread-locals then, too late for glibc to run it. So the library has a key of its own, whose destructor comes later: it returns what the
//! thread has of the pools, and drops its message.

#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "calls of the system's library for threads")
)]

/// Calls `body` on this thread, and sees to it that what the thread has is given back when it ends.
///
/// A thread that the program cancels ends later, at a call of its own: the body may open files, where it would end in `catch_unwind`.
#[cfg(target_os = "linux")]
#[inline]
pub(crate) fn watched<R>(body: impl FnOnce() -> R) -> R {
    if !linux::IS_WATCHED.get() {
        linux::set();
    }
    let state = linux::set_cancel_state(linux::UNCANCELLED);
    let result = body();
    linux::set_cancel_state(state);
    result
}

/// Elsewhere the destructors of thread-locals are of this kind themselves.
#[cfg(not(target_os = "linux"))]
pub(crate) fn watched<R>(body: impl FnOnce() -> R) -> R {
    body()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        cell::Cell,
        ffi::{c_int, c_uint, c_void},
        ptr,
        sync::OnceLock,
    };

    use binpool_allocators::contained::contained;

    use crate::last_error;

    // SAFETY: These are their declarations in glibc and musl.
    unsafe extern "C" {
        fn pthread_key_create(
            key: *mut c_uint,
            destructor: Option<unsafe extern "C" fn(*mut c_void)>,
        ) -> c_int;
        fn pthread_setspecific(key: c_uint, value: *const c_void) -> c_int;
        safe fn pthread_setcancelstate(state: c_int, before: &mut c_int) -> c_int;
    }

    /// `PTHREAD_CANCEL_DISABLE`.
    pub(super) const UNCANCELLED: c_int = 1;

    /// Sets whether this thread may be cancelled. Returns what was set before.
    #[inline]
    pub(super) fn set_cancel_state(state: c_int) -> c_int {
        let mut before = 0;
        // Miri does not know the call.
        if !cfg!(miri) {
            pthread_setcancelstate(state, &mut before);
        }
        before
    }

    thread_local! {
        /// It has no destructor, and so stays until the end.
        pub(super) static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
    }

    #[cold]
    pub(super) fn set() {
        static KEY: OnceLock<Option<c_uint>> = OnceLock::new();
        let key = KEY.get_or_init(|| {
            let mut key = 0;
            // SAFETY: `key` is a place for the result, and the library is not unloaded, since its thread-locals have destructors.
            let code = unsafe { pthread_key_create(&raw mut key, Some(ended)) };
            (code == 0).then_some(key)
        });
        IS_WATCHED.set(true);
        if let Some(key) = *key {
            let any = ptr::without_provenance(1);
            // SAFETY: The key was made, and the value is only looked at whether it is null. Without memory for it, the thread is as one that is
            // not watched.
            let _code = unsafe { pthread_setspecific(key, any) };
        }
    }

    /// Comes after the destructors of thread-locals, where these run.
    ///
    /// # Safety
    ///
    /// None is needed.
    unsafe extern "C" fn ended(_any: *mut c_void) {
        // A later destructor may call the library again.
        IS_WATCHED.set(false);
        contained("the end of a thread", || {
            binpool::leave_pools();
            last_error::forget();
        });
    }
}
