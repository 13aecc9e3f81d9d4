//! What is done in the layer during a call of the program.

use std::{
    ffi::c_int,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::{
    fork::without_locks,
    report_once::{begin, report_once},
};

/// `PTHREAD_CANCEL_DISABLE`.
const UNCANCELLED: c_int = 1;

// SAFETY: this is its declaration.
unsafe extern "C" {
    safe fn pthread_setcancelstate(state: c_int, before: &mut c_int) -> c_int;
}

/// Calls `action`. A panic in it is a fault of the layer, and the answer is the default then.
///
/// A thread that the program cancels ends later, at a call of its own: the layer opens files, where it would end here.
pub(crate) fn contained<T: Default>(action: impl FnOnce() -> T) -> T {
    let mut state = UNCANCELLED;
    pthread_setcancelstate(UNCANCELLED, &mut state);
    begin();
    let result = without_locks(|| catch_unwind(AssertUnwindSafe(action)));
    let answer = result.unwrap_or_else(|_| {
        report_once("an error in binpool's layer");
        T::default()
    });
    pthread_setcancelstate(state, &mut 0);
    answer
}
