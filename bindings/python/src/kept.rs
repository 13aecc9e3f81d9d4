//! What lies below the buffers of PyOpenCL that a program has: a block, or a part of one.
//!
//! A buffer is an object of PyOpenCL, made by PyOpenCL, and has no room for anything of binpool's but its dictionary of attributes,
//! which takes as long to make as the buffer. So a table has what lies below each, by its address, and Python's finalizer, which it calls
//! once for each object, takes that out.

#![expect(unsafe_code, reason = "Python calls a finalizer by a pointer")]

use std::{collections::HashMap, sync::Arc};

use binpool::PooledBuffer;
use binpool_opencl::{ClQueue, OpenClBackend};
use foldhash::fast::FixedState;
use parking_lot::Mutex;
use pyo3::{ffi, intern, prelude::*, sync::PyOnceLock};

use crate::{buffer_class::BufferClass, with_python::WithPython};

/// A block or a part of one, below a `pyopencl.Buffer`.
pub(crate) trait Below: Send + Sync {
    /// Gives it back before Python drops the buffer.
    fn release(&self, py: Python<'_>) -> PyResult<()>;

    /// Returns a `pyopencl.Buffer` over a part of it.
    fn part(
        self: Arc<Self>,
        py: Python<'_>,
        origin: usize,
        size: usize,
        flags: u64,
    ) -> PyResult<Bound<'_, PyAny>>;

    /// Notes that commands on `queue` use it.
    fn record_use(&self, py: Python<'_>, queue: &ClQueue) -> PyResult<()>;
}

/// What lies below one buffer.
struct Entry {
    /// A block that Python has asked nothing of so far, as of most from their beginning to their end, and a queue that it is used on.
    fresh: Option<(PooledBuffer<OpenClBackend>, ClQueue)>,
    /// Anything else.
    shared: Option<Arc<dyn Below>>,
}

/// Makes what is asked of a block and a queue that it is used on.
pub(crate) type Share = fn(PooledBuffer<OpenClBackend>, ClQueue) -> Arc<dyn Below>;

impl Entry {
    fn share(&mut self, share: Share) -> Option<Arc<dyn Below>> {
        if let Some((block, queue)) = self.fresh.take() {
            self.shared = Some(share(block, queue));
        }
        self.shared.clone()
    }
}

/// What lies below each buffer, by the address of the buffer.
static TABLE: WithPython<Table> = WithPython::new(Table::with_hasher(FixedState::with_seed(0)));

type Table = HashMap<usize, Entry, FixedState>;

/// The attribute that keeps what lies below a buffer once Python has called its finalizer.
#[pyclass(frozen, module = "binpool")]
struct Kept(Mutex<Entry>);

static CLASS: PyOnceLock<BufferClass> = PyOnceLock::new();

fn class(py: Python<'_>) -> PyResult<&'static BufferClass> {
    CLASS.get_or_try_init(py, || BufferClass::new(py, end))
}

/// Ends a buffer: Python calls it before the object is freed. It also does where the object is part of a circle of garbage: then another
/// finalizer of the circle may still use it, or keep it, so that the block has to stay as long as the object.
///
/// # Safety
///
/// Python calls it, with its lock, and with an object that lives.
unsafe extern "C" fn end(
    buffer: *mut ffi::PyObject,
    _arguments: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python's lock is held, as the caller promises.
    let py = unsafe { Python::assume_attached() };
    let below = TABLE.with(py, |table| table.remove(&buffer.addr()));
    if let Some(Some(below)) = below {
        // SAFETY: The object lives, as the caller promises.
        let references = unsafe { ffi::Py_REFCNT(buffer) };
        // Python gives an object that ends one reference for this call. The upper half has flags from Python 3.14 on.
        if references & 0xFFFF_FFFF == 1 {
            drop(below);
        } else {
            // SAFETY: As above.
            let buffer = unsafe { Bound::from_borrowed_ptr(py, buffer) };
            if let Err(error) = keep_as_attribute(&buffer, below) {
                error.write_unraisable(py, Some(&buffer));
            }
        }
    }
    py.None().into_ptr()
}

fn keep_as_attribute(buffer: &Bound<'_, PyAny>, below: Entry) -> PyResult<()> {
    let kept = Bound::new(buffer.py(), Kept(Mutex::new(below)))?;
    buffer.setattr(intern!(buffer.py(), "_kept"), kept)
}

/// Makes a `pyopencl.Buffer` that nothing else refers to one of binpool's, which drops a block, used on `queue`, with itself.
pub(crate) fn keep_block<'py>(
    buffer: Bound<'py, PyAny>,
    block: PooledBuffer<OpenClBackend>,
    queue: &ClQueue,
) -> PyResult<Bound<'py, PyAny>> {
    let entry = Entry {
        fresh: Some((block, queue.clone())),
        shared: None,
    };
    keep_entry(buffer, entry)
}

/// As [`keep_block`], with anything.
pub(crate) fn keep(buffer: Bound<'_, PyAny>, below: Arc<dyn Below>) -> PyResult<Bound<'_, PyAny>> {
    let entry = Entry {
        fresh: None,
        shared: Some(below),
    };
    keep_entry(buffer, entry)
}

fn keep_entry(buffer: Bound<'_, PyAny>, below: Entry) -> PyResult<Bound<'_, PyAny>> {
    let py = buffer.py();
    class(py)?.give_to(&buffer)?;
    let former = TABLE.with(py, |table| table.insert(buffer.as_ptr().addr(), below));
    // That of an object whose finalizer was not called, because the program has given it another class.
    drop(former);
    Ok(buffer)
}

/// Returns what lies below an object; `None` if that is not a buffer of binpool's. `share` makes it of a block and its queue.
pub(crate) fn below(object: &Bound<'_, PyAny>, share: Share) -> PyResult<Option<Arc<dyn Below>>> {
    let py = object.py();
    if !object.is_instance(class(py)?.bind(py))? {
        return Ok(None);
    }
    let found = TABLE.with(py, |table| {
        let entry = table.get_mut(&object.as_ptr().addr())?;
        entry.share(share)
    });
    if let Some(Some(found)) = found {
        return Ok(Some(found));
    }
    let kept = object.getattr_opt(intern!(py, "_kept"))?;
    let kept = kept.as_ref().and_then(|kept| kept.cast::<Kept>().ok());
    Ok(kept.and_then(|kept| kept.get().0.lock().share(share)))
}
