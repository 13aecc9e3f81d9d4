//! The class of binpool's buffers, which is one of PyOpenCL's.

#![expect(
    unsafe_code,
    reason = "Python's interface of C gives an object another class, and a class a method"
)]

use std::ptr;

use pyo3::{ffi, intern, prelude::*, types::PyType};

/// `binpool._buffer.Buffer`, a `pyopencl.Buffer` with a finalizer. PyOpenCL makes no object of another class than its own, so that one
/// becomes an object of this class.
pub(crate) struct BufferClass {
    class: Py<PyType>,
    /// `pyopencl.Buffer`.
    base: Py<PyType>,
    /// Set if an object of `base` becomes one of `class` by its type alone.
    is_type_all: bool,
}

/// Flags of a class whose objects have their attributes in themselves, or before themselves: `Py_TPFLAGS_INLINE_VALUES` and
/// `Py_TPFLAGS_MANAGED_DICT`, of Python 3.13 and 3.11.
const OWN_ATTRIBUTES: u64 = 1 << 2 | 1 << 4;

impl BufferClass {
    /// Finds the class, and has Python call `end` once for each object that ends.
    pub(crate) fn new(py: Python<'_>, end: ffi::PyCFunction) -> PyResult<Self> {
        let class = py.import("binpool._buffer")?.getattr("Buffer")?;
        let class = class.cast_into::<PyType>()?;
        let base = class.getattr("__base__")?.cast_into::<PyType>()?;
        class.setattr("__del__", method(&base, end)?)?;
        let flags = |class: &Bound<'_, PyType>| class.getattr("__flags__")?.extract::<u64>();
        let is_type_all = (flags(&class)? | flags(&base)?) & OWN_ATTRIBUTES == 0;
        Ok(Self {
            class: class.unbind(),
            base: base.unbind(),
            is_type_all,
        })
    }

    pub(crate) fn bind<'py>(&self, py: Python<'py>) -> &Bound<'py, PyType> {
        self.class.bind(py)
    }

    /// Makes a `pyopencl.Buffer` one of the class, as an assignment to its `__class__` does.
    pub(crate) fn give_to(&self, buffer: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = buffer.py();
        let is_of_base = ptr::eq(buffer.get_type_ptr().cast(), self.base.as_ptr());
        if !(is_of_base && self.is_type_all) {
            return buffer.setattr(intern!(py, "__class__"), &self.class);
        }
        let former = buffer.get_type_ptr();
        let class = self.class.clone_ref(py).into_ptr().cast();
        // SAFETY: (1) The object lives, and this thread has Python's lock. (2) The object is of the base, whose layout the class has: it adds no
        // slots, and neither has attributes elsewhere (`is_type_all`). (3) An object has a reference to its class: `class` is a new one.
        unsafe { (*buffer.as_ptr()).ob_type = class };
        // SAFETY: The object had this reference to its former class.
        drop(unsafe { Bound::from_owned_ptr(py, former.cast()) });
        Ok(())
    }
}

/// Makes a method `__del__` for the objects of a class.
fn method<'py>(
    class: &Bound<'py, PyType>,
    function: ffi::PyCFunction,
) -> PyResult<Bound<'py, PyAny>> {
    let method = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: c"__del__".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunction: function,
        },
        ml_flags: ffi::METH_NOARGS,
        ml_doc: ptr::null(),
    }));
    // SAFETY: `class` is a type, and the method is kept for good.
    let method = unsafe { ffi::PyDescr_NewMethod(class.as_type_ptr(), method) };
    // SAFETY: It is a new reference, or null with an exception.
    unsafe { Bound::from_owned_ptr_or_err(class.py(), method) }
}
