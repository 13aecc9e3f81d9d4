//! PyOpenCL's contexts, queues and events.

#![expect(
    unsafe_code,
    reason = "PyOpenCL gives its objects as the numbers of their handles"
)]

use std::{ffi::c_void, ptr::with_exposed_provenance_mut};

use binpool_opencl::{ClEvent, ClQueue, OpenClBackend};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    ffi, intern,
    prelude::*,
    sync::PyOnceLock,
    types::PyType,
};

use crate::error::raised;

/// What a pool is made of.
pub(crate) struct Origin {
    pub(crate) backend: OpenClBackend,
    /// The queue of requests that name none; `None` if the program has named a context only.
    pub(crate) queue: Option<ClQueue>,
}

/// A class of PyOpenCL whose objects have handles.
struct Class {
    name: &'static str,
    /// The class, and its property `int_ptr`.
    found: PyOnceLock<(Py<PyType>, Py<PyAny>)>,
}

static CONTEXT: Class = Class::new("Context");
static DEVICE: Class = Class::new("Device");
static EVENT: Class = Class::new("Event");
static QUEUE: Class = Class::new("CommandQueue");

impl Class {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            found: PyOnceLock::new(),
        }
    }

    /// Returns the handle of an object as a number, if that is one of this class.
    ///
    /// The object's type says so, and the class's own property has the handle: what the object says of itself, by its `__class__` or an
    /// attribute, may be anything, as a mock's is.
    fn handle_of(&self, object: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let py = object.py();
        let (class, int_ptr) = self.found.get_or_try_init(py, || {
            let class = py.import("pyopencl")?.getattr(self.name)?;
            let int_ptr = class.getattr("int_ptr")?.unbind();
            Ok::<_, PyErr>((class.cast_into::<PyType>()?.unbind(), int_ptr))
        })?;
        // SAFETY: Both are objects of Python that live, and `class` is a type.
        let is_one = unsafe { ffi::PyObject_TypeCheck(object.as_ptr(), class.as_ptr().cast()) };
        if is_one == 0 {
            return Ok(None);
        }
        let number = int_ptr.call_method1(py, intern!(py, "__get__"), (object, class))?;
        number.extract(py).map(Some)
    }

    /// Returns the handle of an object, which has to be one of this class.
    fn handle_needed(&self, object: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.handle_of(object)?.ok_or_else(|| {
            let class = object.get_type();
            PyTypeError::new_err(format!("a pyopencl.{} is needed, not {class}", self.name))
        })
    }
}

/// Returns the handle that this number stands for.
fn pointer(handle: usize) -> *mut c_void {
    with_exposed_provenance_mut(handle)
}

/// Makes the backend of a `pyopencl.Context` or `pyopencl.CommandQueue`. `device` chooses one of several devices of a context.
pub(crate) fn origin_of(
    context_or_queue: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<Origin> {
    let py = context_or_queue.py();
    py.import(intern!(py, "binpool._library"))?
        .call_method0(intern!(py, "use_that_of_pyopencl"))?;
    let is_queue = QUEUE.handle_of(context_or_queue)?.is_some();
    let context = if is_queue {
        context_or_queue.getattr("context")?
    } else if CONTEXT.handle_of(context_or_queue)?.is_some() {
        context_or_queue.clone()
    } else {
        return Err(PyTypeError::new_err(format!(
            "a pool is made for a pyopencl.CommandQueue or a pyopencl.Context, not for {}",
            context_or_queue.get_type().name()?
        )));
    };
    let own = if is_queue {
        context_or_queue.getattr("device")?
    } else {
        context.getattr("devices")?.get_item(0)?
    };
    let device = device.unwrap_or(&own);
    let device_handle = DEVICE.handle_needed(device)?;
    if is_queue && device_handle != DEVICE.handle_needed(&own)? {
        return Err(PyValueError::new_err(
            "device: the queue has another device; leave it out, or make the pool for the context",
        ));
    }
    let context_handle = CONTEXT.handle_needed(&context)?;
    // SAFETY: The context lives, since the object of PyOpenCL does during this call.
    let backend = py.detach(|| unsafe {
        OpenClBackend::from_raw(pointer(context_handle), pointer(device_handle))
    });
    let backend = backend.map_err(raised)?;
    let queue = is_queue.then(|| queue_of(&backend, context_or_queue));
    Ok(Origin {
        queue: queue.transpose()?,
        backend,
    })
}

/// Returns a `pyopencl.CommandQueue` as a queue of the backend.
pub(crate) fn queue_of(backend: &OpenClBackend, queue: &Bound<'_, PyAny>) -> PyResult<ClQueue> {
    let handle = QUEUE.handle_needed(queue)?;
    // SAFETY: The queue lives, since the object of PyOpenCL does during this call.
    let queue = (queue.py()).detach(|| unsafe { backend.wrap_raw_queue(pointer(handle)) });
    queue.map_err(raised)
}

/// Returns a `pyopencl.Event` as an event of the backend.
pub(crate) fn event_of(backend: &OpenClBackend, event: &Bound<'_, PyAny>) -> PyResult<ClEvent> {
    let handle = EVENT.handle_needed(event)?;
    // SAFETY: The event lives, since the object of PyOpenCL does during this call.
    let event = (event.py()).detach(|| unsafe { backend.wrap_raw_event(pointer(handle)) });
    event.map_err(raised)
}

/// Returns an event of the backend as a `pyopencl.Event`, which retains it.
pub(crate) fn python_event<'py>(py: Python<'py>, event: &ClEvent) -> PyResult<Bound<'py, PyAny>> {
    let class = py.import(intern!(py, "pyopencl"))?.getattr("Event")?;
    class.call_method1("from_int_ptr", (event.raw().expose_provenance(), true))
}
