//! What frees memory when a pool runs out: the collector of Python's garbage, and hooks of the program.

#![expect(unsafe_code, reason = "a call that Python may not return from")]

use std::{mem, thread};

use binpool::Shortage;
use pyo3::{exceptions::PyTypeError, ffi, intern, prelude::*, types::PyTuple};

/// Identifies a hook of a pool, to remove it again.
#[pyclass(frozen, module = "binpool")]
pub(crate) struct HookId(pub(crate) binpool::HookId);

/// Returns a function of the program as a hook. What it raises goes to `sys.unraisablehook`: the request goes on.
pub(crate) fn hook(
    function: Bound<'_, PyAny>,
) -> PyResult<impl Fn(&Shortage) + Send + Sync + 'static> {
    if !function.is_callable() {
        let class = function.get_type();
        let text = format!(
            "hook: a function is needed, which is called with a number of bytes, not {class}"
        );
        return Err(PyTypeError::new_err(text));
    }
    let function = function.unbind();
    Ok(move |shortage: &Shortage| {
        let bytes = shortage.bytes;
        // `None` once Python has ended.
        Python::try_attach(|py| {
            let function = function.bind(py);
            let called = (bytes,)
                .into_pyobject(py)
                .and_then(|it| call(function, &it));
            if let Err(error) = called {
                error.write_unraisable(py, Some(function));
            }
        });
    })
}

/// A hook that has Python [collect its garbage](collect_garbage).
pub(crate) fn garbage_hook(_: &Shortage) {
    Python::try_attach(|py| {
        if let Err(error) = collect_garbage(py) {
            error.write_unraisable(py, None);
        }
    });
}

/// Has Python collect its garbage, as PyOpenCL's and CuPy's own pools do: arrays may wait for Python to find that nothing refers to them.
pub(crate) fn collect_garbage(py: Python<'_>) -> PyResult<()> {
    let collect = py.import("gc")?.getattr(intern!(py, "collect"))?;
    call(&collect, &PyTuple::empty(py))
}

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

/// Calls a function that may run code of Python's, in a request, and drops what it returns.
///
/// Up to Python 3.13, the interpreter ends daemon threads when it ends itself, by an unwinding that functions of Rust further out do not let through. Such a
/// thread stays here, as later versions have it.
fn call(function: &Bound<'_, PyAny>, arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
    let no_way_out = NoWayOut;
    // SAFETY: Both are objects that live, the second is a tuple, and this thread has Python's lock.
    let returned =
        unsafe { PyObject_Call(function.as_ptr(), arguments.as_ptr(), std::ptr::null_mut()) };
    mem::forget(no_way_out);
    // SAFETY: It is a new reference, or null with an exception.
    unsafe { Bound::from_owned_ptr_or_err(function.py(), returned) }.map(drop)
}
