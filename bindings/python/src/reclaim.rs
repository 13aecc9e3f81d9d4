//! What frees memory when a pool runs out: the collector of Python's garbage, and hooks of the program.

#![expect(unsafe_code, reason = "a call that Python may not return from")]

use std::{mem, ptr, thread};

use binpool::Shortage;
use pyo3::{exceptions::PyTypeError, ffi, prelude::*};

/// Identifies a hook of a pool, to remove it again.
#[pyclass(frozen, module = "binpool")]
pub(crate) struct HookId(pub(crate) binpool::HookId);

/// Returns a function as a hook. What it raises goes to `sys.unraisablehook`: the request goes on.
pub(crate) fn hook(
    function: Bound<'_, PyAny>,
) -> PyResult<impl Fn(&Shortage) -> bool + Send + Sync + use<>> {
    if !function.is_callable() {
        let text = format!("hook: a function of a number of bytes is needed, not {function:?}");
        return Err(PyTypeError::new_err(text));
    }
    let function = function.unbind();
    Ok(move |shortage: &Shortage| {
        // `None` once Python has ended.
        let has_freed = Python::try_attach(|py| {
            let function = function.bind(py);
            let answer = call(function, shortage.bytes);
            answer.map_err(|error| error.write_unraisable(py, Some(function))) == Ok(true)
        });
        has_freed == Some(true)
    })
}

/// Returns the function that has Python collect its garbage, as PyOpenCL's and CuPy's own pools do: arrays may wait for Python to find that nothing refers to
/// them.
pub(crate) fn collector(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("binpool._garbage")?.getattr("collect")
}

// SAFETY: this is its declaration.
unsafe extern "C-unwind" {
    /// As `PyO3` has it, but that Python may end the thread in it.
    fn PyObject_Call(
        function: *mut ffi::PyObject,
        arguments: *mut ffi::PyObject,
        named: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
}

/// Waits forever when it is dropped.
struct NoWayOut;

impl Drop for NoWayOut {
    fn drop(&mut self) {
        loop {
            thread::park();
        }
    }
}

/// Calls a function for a request that finds no memory. Returns whether its answer is a true value: that it freed something.
///
/// Up to Python 3.13, the interpreter ends daemon threads when it ends itself, by an unwinding that functions of Rust further out do not let through. Such a
/// thread stays here, as later versions have it.
pub(crate) fn call(function: &Bound<'_, PyAny>, bytes: usize) -> PyResult<bool> {
    let arguments = (bytes,).into_pyobject(function.py())?;
    let no_way_out = NoWayOut;
    // SAFETY: Both are objects that live, the second is a tuple, and this thread has Python's lock.
    let returned = unsafe { PyObject_Call(function.as_ptr(), arguments.as_ptr(), ptr::null_mut()) };
    mem::forget(no_way_out);
    // SAFETY: It is a new reference, or null with an exception.
    let answer = unsafe { Bound::from_owned_ptr_or_err(function.py(), returned) }?;
    answer.is_truthy()
}
