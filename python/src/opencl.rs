//! PyOpenCL's contexts, queues and events.

#![expect(
    unsafe_code,
    reason = "PyOpenCL gives its objects as the numbers of their handles"
)]

use std::{ffi::c_void, ptr::with_exposed_provenance_mut};

use binpool_opencl::{ClEvent, ClQueue, OpenClBackend};
use pyo3::{exceptions::PyTypeError, intern, prelude::*};

use crate::error::other_error;

/// The platform whose driver crashes where a program uses sub-buffers while others are made.
const NVIDIA: &str = "NVIDIA CUDA";

/// What a pool is made of.
pub(crate) struct Origin {
    pub(crate) backend: OpenClBackend,
    /// The queue of requests that name none; `None` where the program has named a context only.
    pub(crate) queue: Option<ClQueue>,
    /// Set if blocks may be parts of buffers.
    pub(crate) may_carve: bool,
}

/// Returns the handle of an object of PyOpenCL.
fn handle_of(object: &Bound<'_, PyAny>) -> PyResult<*mut c_void> {
    let number: usize = object.getattr(intern!(object.py(), "int_ptr"))?.extract()?;
    Ok(with_exposed_provenance_mut(number))
}

fn is_a(object: &Bound<'_, PyAny>, class: &str) -> PyResult<bool> {
    let pyopencl = object.py().import(intern!(object.py(), "pyopencl"))?;
    object.is_instance(&pyopencl.getattr(class)?)
}

/// Makes the backend of a `pyopencl.Context` or `pyopencl.CommandQueue`. `device` chooses one of several devices of a context.
pub(crate) fn origin_of(
    context_or_queue: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<Origin> {
    let py = context_or_queue.py();
    py.import(intern!(py, "binpool._library"))?
        .call_method0(intern!(py, "use_that_of_pyopencl"))?;
    let is_queue = is_a(context_or_queue, "CommandQueue")?;
    if !is_queue && !is_a(context_or_queue, "Context")? {
        return Err(PyTypeError::new_err(format!(
            "a pool is made for a pyopencl.CommandQueue or a pyopencl.Context, not for {}",
            context_or_queue.get_type().name()?
        )));
    }
    let (context, device) = match (is_queue, device) {
        (true, _) => (
            context_or_queue.getattr("context")?,
            context_or_queue.getattr("device")?,
        ),
        (false, Some(device)) => (context_or_queue.clone(), device.clone()),
        (false, None) => (
            context_or_queue.clone(),
            context_or_queue.getattr("devices")?.get_item(0)?,
        ),
    };
    let platform: String = device.getattr("platform")?.getattr("name")?.extract()?;
    let (context_handle, device) = (handle_of(&context)?, handle_of(&device)?);
    // SAFETY: The context lives, since the object of PyOpenCL does during this call.
    let backend = unsafe { OpenClBackend::from_raw(context_handle, device) };
    let backend = backend.map_err(other_error)?;
    let queue = is_queue.then(|| queue_of(&backend, context_or_queue));
    Ok(Origin {
        queue: queue.transpose()?,
        backend,
        may_carve: platform != NVIDIA,
    })
}

/// Returns a `pyopencl.CommandQueue` as a queue of the backend.
pub(crate) fn queue_of(backend: &OpenClBackend, queue: &Bound<'_, PyAny>) -> PyResult<ClQueue> {
    if !is_a(queue, "CommandQueue")? {
        return Err(PyTypeError::new_err(format!(
            "a pyopencl.CommandQueue is needed, not {}",
            queue.get_type().name()?
        )));
    }
    let handle = handle_of(queue)?;
    // SAFETY: The queue lives, since the object of PyOpenCL does during this call.
    let queue = unsafe { backend.wrap_raw_queue(handle) };
    queue.map_err(other_error)
}

/// Returns a `pyopencl.Event` as an event of the backend.
pub(crate) fn event_of(backend: &OpenClBackend, event: &Bound<'_, PyAny>) -> PyResult<ClEvent> {
    if !is_a(event, "Event")? {
        return Err(PyTypeError::new_err(format!(
            "a pyopencl.Event is needed, not {}",
            event.get_type().name()?
        )));
    }
    let handle = handle_of(event)?;
    // SAFETY: The event lives, since the object of PyOpenCL does during this call.
    let event = unsafe { backend.wrap_raw_event(handle) };
    event.map_err(other_error)
}

/// Returns an event of the backend as a `pyopencl.Event`, which retains it.
pub(crate) fn python_event<'py>(py: Python<'py>, event: &ClEvent) -> PyResult<Bound<'py, PyAny>> {
    let class = py.import(intern!(py, "pyopencl"))?.getattr("Event")?;
    class.call_method1("from_int_ptr", (event.raw().expose_provenance(), true))
}
