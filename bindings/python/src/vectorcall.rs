//! Calls of pools and allocators without a tuple of arguments.
//!
//! Python calls an object with its arguments as they lie on the stack (vectorcall, PEP 590), if the object's class says where the function
//! for that is. `PyO3`'s classes do not, and a tuple and what takes it apart are a seventh of a request. So an object is, from its first call
//! on, one of a class below `PyO3`'s that has nothing of its own but that.

#![expect(unsafe_code, reason = "Python's interface of C calls by pointers")]

use std::{
    ffi::{CString, c_uint},
    ptr, slice,
};

use pyo3::{
    Borrowed, PyClass, ffi, intern,
    prelude::*,
    pyclass::boolean_struct::True,
    types::{PyDict, PyTuple, PyType},
};

use crate::{argument::number, with_python::WithPython};

/// A class whose objects are called for blocks.
pub(crate) trait Requests: PyClass<Frozen = True> + Sync {
    /// Returns a block of at least `bytes` bytes.
    fn request<'py>(&self, py: Python<'py>, bytes: usize) -> PyResult<Bound<'py, PyAny>>;

    /// The function that Python calls, which lies in the object.
    fn vectorcall(&self) -> &Vectorcall;
}

/// The function that Python calls for an object.
pub(crate) struct Vectorcall(#[expect(dead_code, reason = "Python reads it")] ffi::vectorcallfunc);

impl Vectorcall {
    pub(crate) const fn of<T: Requests>() -> Self {
        Self(call::<T>)
    }
}

/// `PyO3`'s classes of objects that were called, and the class below each.
static CLASSES: WithPython<Vec<[Py<PyType>; 2]>> = WithPython::new(Vec::new());

/// `Py_TPFLAGS_HAVE_VECTORCALL`, in Python since 3.8, and in the limited interface since 3.12.
const HAVE_VECTORCALL: c_uint = 1 << 11;

/// Has further calls of an object take no tuple. Classes of the program's own are left as they are.
pub(crate) fn speed_up<T: Requests>(object: &Bound<'_, T>) -> PyResult<()> {
    let (py, class) = (object.py(), object.as_any().get_type());
    let known = CLASSES.with(py, |classes| {
        let found = classes
            .iter()
            .find(|pair| pair.iter().any(|it| it.is(&class)));
        found.map(|[_, below]| below.clone_ref(py))
    });
    let below = match known.flatten() {
        Some(below) => below,
        None if is_own(&class)? => {
            let function = ptr::from_ref(object.get().vectorcall()).addr();
            let below = class_below(&class, function - object.as_ptr().addr())?;
            let pair = [class.clone().unbind(), below.clone_ref(py)];
            CLASSES.with(py, |classes| classes.push(pair));
            below
        }
        None => return Ok(()),
    };
    if below.is(&class) {
        return Ok(());
    }
    // SAFETY: (1) The object lives, and this thread has Python's lock. (2) The class below has the layout of the object's, to which it adds
    // nothing. (3) An object has a reference to its class: this is a new one.
    unsafe { (*object.as_ptr()).ob_type = below.into_ptr().cast() };
    // SAFETY: The object had this reference to its former class.
    drop(unsafe { Bound::from_owned_ptr(py, class.as_ptr()) });
    Ok(())
}

/// Returns whether a class is one of the library. A class of the program's may have attributes, or call itself one of the package.
fn is_own(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let py = class.py();
    if class.getattr(intern!(py, "__module__"))?.ne("binpool")? {
        return Ok(false);
    }
    let library = py.import(intern!(py, "binpool._binpool"))?;
    let of_name = library.getattr_opt(class.name()?)?;
    Ok(of_name.is_some_and(|known| known.is(class)))
}

/// Makes a class of the same name and layout, whose objects have the function at `offset`.
fn class_below(class: &Bound<'_, PyType>, offset: usize) -> PyResult<Py<PyType>> {
    let name = format!("binpool.{}\0", class.name()?);
    let doc: Option<String> = class.getattr(intern!(class.py(), "__doc__"))?.extract()?;
    let doc = CString::new(doc.unwrap_or_default())?;
    let mut members = [
        ffi::PyMemberDef {
            name: c"__vectorcalloffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: offset.cast_signed(),
            flags: ffi::Py_READONLY,
            doc: ptr::null(),
        },
        ffi::PyMemberDef::default(),
    ];
    // SAFETY: The class is a type, made from slots as all of `PyO3`'s.
    let call_by_tuple = unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_call) };
    let mut slots = [
        ffi::PyType_Slot {
            slot: ffi::Py_tp_members,
            pfunc: members.as_mut_ptr().cast(),
        },
        ffi::PyType_Slot {
            slot: ffi::Py_tp_call,
            pfunc: call_by_tuple,
        },
        ffi::PyType_Slot {
            slot: ffi::Py_tp_doc,
            pfunc: doc.as_ptr().cast_mut().cast(),
        },
        ffi::PyType_Slot::default(),
    ];
    let mut spec = ffi::PyType_Spec {
        name: name.as_ptr().cast(),
        basicsize: 0,
        itemsize: 0,
        flags: c_uint::try_from(ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_BASETYPE)?
            | HAVE_VECTORCALL,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: The specification and what it points to live during the call, and what Python keeps of it for good, it copies; the name of the
    // member is kept for good. A basic size of 0 is that of the base.
    let below = unsafe { ffi::PyType_FromSpecWithBases(&raw mut spec, class.as_ptr()) };
    // SAFETY: It is a new reference, or null with an exception.
    let below = unsafe { Bound::from_owned_ptr_or_err(class.py(), below) }?;
    Ok(below.cast_into::<PyType>()?.unbind())
}

/// Calls an object.
///
/// # Safety
///
/// Python calls it, with its lock, an object of the class `T`, `count` arguments by place, and after them one for each of `names`.
unsafe extern "C" fn call<T: Requests>(
    object: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python's lock is held, as the caller promises.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: The object lives, as the caller promises.
    let object = unsafe { Borrowed::from_ptr(py, object) };
    // SAFETY: It is a tuple or null, as the caller promises.
    let names = unsafe { Bound::from_borrowed_ptr_or_opt(py, names) };
    let names = names
        .as_ref()
        .and_then(|names| names.cast::<PyTuple>().ok());
    // The highest bit says something else.
    let count = count & (usize::MAX >> 1);
    let all = count + names.map_or(0, PyTupleMethods::len);
    let arguments = if all == 0 {
        &[]
    } else {
        // SAFETY: There are `all` arguments, as the caller promises.
        unsafe { slice::from_raw_parts(arguments, all) }
    };
    // SAFETY: An argument lives, as the caller promises.
    let argument = |it: &*mut ffi::PyObject| unsafe { Bound::from_borrowed_ptr(py, *it) };
    let block = match (arguments, names) {
        ([bytes], None) => request::<T>(object, argument(bytes)),
        _ => call_by_name(object, arguments.iter().map(argument), count, names),
    };
    match block {
        Ok(block) => block.into_ptr(),
        Err(error) => {
            error.restore(py);
            ptr::null_mut()
        }
    }
}

fn request<'py, T: Requests>(
    object: Borrowed<'_, 'py, PyAny>,
    bytes: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let object = object.cast::<T>()?;
    object.get().request(object.py(), number("bytes", &bytes)?)
}

/// Calls an object in the slow way: with no argument, too many, or named ones, which come after the first `count`.
fn call_by_name<'py>(
    object: Borrowed<'_, 'py, PyAny>,
    mut arguments: impl Iterator<Item = Bound<'py, PyAny>>,
    count: usize,
    names: Option<&Bound<'py, PyTuple>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let by_place: Vec<_> = arguments.by_ref().take(count).collect();
    let by_name = PyDict::new(py);
    for (name, argument) in names.into_iter().flatten().zip(arguments) {
        by_name.set_item(name, argument)?;
    }
    let by_place = PyTuple::new(py, by_place)?;
    // The method, which calls by a tuple.
    object.call_method(intern!(py, "__call__"), by_place, Some(&by_name))
}
