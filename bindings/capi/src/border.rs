//! The border to C: what comes over it is checked, and no panic goes over it.

#![expect(unsafe_code, reason = "pointers of the program are followed here")]

use std::{
    any::Any,
    ffi::{CStr, CString, c_char},
    mem::MaybeUninit,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::NonNull,
};

use binpool_allocators::contained::discard;

use crate::{
    last_error,
    status::{Failure, Status},
    thread_end,
};

/// Runs the body of a function of the interface, and keeps the message if it fails or panics.
pub(crate) fn guarded(body: impl FnOnce() -> Result<(), Failure>) -> Status {
    match caught(body) {
        Ok(()) => Status::Ok,
        Err(failure) => {
            last_error::set(&failure.message);
            failure.status
        }
    }
}

/// Returns the result of `body`, or a failure that says what it panicked with.
pub(crate) fn caught<R>(body: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    // A panic is reported as a defect; what it leaves behind is kept right by the pool's own guards.
    let result = thread_end::watched(|| catch_unwind(AssertUnwindSafe(body)));
    result.unwrap_or_else(|panic| {
        let message = panic_message(&*panic);
        discard(panic);
        Err(Failure::new(Status::Panic, message))
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message");
    format!("a panic, which is a bug in binpool: {text}")
}

fn null(name: &str) -> Failure {
    Failure::argument(format!("the argument `{name}` is null"))
}

/// Returns what `pointer` points to; a failure that names the argument where it is null.
///
/// # Safety
///
/// `pointer` is null, or points to a live value that nothing changes or frees meanwhile.
pub(crate) unsafe fn borrowed<'a, T>(
    pointer: *const T,
    name: &'static str,
) -> Result<&'a T, Failure> {
    // SAFETY: It is null or alive, as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(name))
}

/// Takes a value back that [`handed_over`] has given away; a failure that names the argument where the pointer is null.
///
/// # Safety
///
/// `pointer` is null, or was given away by [`handed_over`] and not taken back yet.
pub(crate) unsafe fn taken<T>(pointer: *mut T, name: &'static str) -> Result<Box<T>, Failure> {
    let pointer = NonNull::new(pointer).ok_or_else(|| null(name))?;
    // SAFETY: It is of a box that has no other owner, as the caller promises.
    Ok(unsafe { Box::from_raw(pointer.as_ptr()) })
}

/// A place of the program for a result.
pub(crate) struct Out<'a, T>(&'a mut MaybeUninit<T>);

impl<'a, T> Out<'a, T> {
    /// Returns the place; a failure that names the argument where it is null.
    ///
    /// # Safety
    ///
    /// `pointer` is null, or a place for a `T` that nothing else uses meanwhile.
    pub(crate) unsafe fn of(pointer: *mut T, name: &'static str) -> Result<Self, Failure> {
        // SAFETY: As the caller promises. What is there need not be initialized.
        unsafe { Self::perhaps(pointer) }.ok_or_else(|| null(name))
    }

    /// Returns the place; `None` if the program wants no result.
    ///
    /// # Safety
    ///
    /// As for [`of`](Self::of).
    pub(crate) unsafe fn perhaps(pointer: *mut T) -> Option<Self> {
        let pointer: *mut MaybeUninit<T> = pointer.cast();
        // SAFETY: As the caller promises. What is there need not be initialized.
        unsafe { pointer.as_mut::<'a>() }.map(Self)
    }

    pub(crate) fn set(self, value: T) {
        self.0.write(value);
    }
}

/// Returns what is asked and the place for the answer, as [`borrowed`] and [`Out::of`] do.
///
/// # Safety
///
/// As for those.
pub(crate) unsafe fn asked<'a, T, R>(
    pointer: *const T,
    name: &'static str,
    place: *mut R,
    place_name: &'static str,
) -> Result<(&'a T, Out<'a, R>), Failure> {
    // SAFETY: As the caller promises.
    let value = unsafe { borrowed(pointer, name) }?;
    // SAFETY: As the caller promises.
    let place = unsafe { Out::of(place, place_name) }?;
    Ok((value, place))
}

/// Gives a value away to the program, as a handle.
pub(crate) fn handed_over<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Gives a text away to the program, which frees it with `binpool_string_free`.
pub(crate) fn text(text: String) -> Result<*mut c_char, Failure> {
    CString::new(text)
        .map(CString::into_raw)
        .map_err(|error| Failure::new(Status::Backend, error.to_string()))
}

/// Returns the text that `pointer` points to.
///
/// # Safety
///
/// `pointer` is null, or points to bytes that end with a zero and that nothing changes meanwhile.
pub(crate) unsafe fn string<'a>(
    pointer: *const c_char,
    name: &'static str,
) -> Result<&'a CStr, Failure> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: It ends with a zero, as the caller promises.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// Frees a text that binpool has returned. A null pointer is ignored.
///
/// Any thread may call it.
///
/// # Safety
///
/// `string` is null, or a text that binpool has returned to be freed by this call, and that was not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_string_free(string: *mut c_char) {
    if !string.is_null() {
        // SAFETY: It is of `CString::into_raw`, as the caller promises.
        drop(unsafe { CString::from_raw(string) });
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a panic is what is caught")]
mod tests {
    use super::*;
    use crate::last_error::binpool_last_error_message;

    fn message() -> String {
        // SAFETY: It is a text until the next failure of this thread.
        let text = unsafe { CStr::from_ptr(binpool_last_error_message()) };
        text.to_str().map(str::to_owned).unwrap_or_default()
    }

    #[test]
    fn a_panic_is_a_status_and_its_text_the_message() {
        assert_eq!(guarded(|| panic!("of number {}", 7)), Status::Panic);
        let expected = "a panic, which is a bug in binpool: of number 7";
        assert_eq!(message(), expected);
        assert_eq!(guarded(|| Ok(())), Status::Ok);
        assert_eq!(message(), expected);
    }

    #[test]
    #[cfg_attr(miri, ignore = "what panics then is lost, on purpose")]
    fn what_was_panicked_with_may_itself_panic_when_it_is_dropped() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("while it is dropped");
            }
        }
        let status = guarded(|| std::panic::panic_any(Bomb));
        assert_eq!(status, Status::Panic);
        assert!(message().ends_with("no message"));
    }

    #[test]
    fn a_message_ends_before_a_zero_in_it() {
        let status = guarded(|| Err(Failure::argument("before\0behind")));
        assert_eq!(
            (status, message().as_str()),
            (Status::InvalidArgument, "before")
        );
    }
}
