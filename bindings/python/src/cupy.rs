//! Blocks for CuPy, as its `MemoryPointer`.

#![expect(unsafe_code, reason = "CuPy's functions in C are found by name")]

use std::{
    ffi::{CStr, c_int},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use binpool::{PoolError, PooledBuffer, Tag};
use binpool_capi::{AnyPool, OfBackend, graph_memory};
use binpool_cuda::CudaBackend;
use pyo3::{exceptions::PyRuntimeError, ffi, intern, prelude::*, sync::PyOnceLock};

use crate::{
    argument::number,
    call_site::caller,
    cuda_place::{self, Allocated, Place},
    error::raised,
    pool::Pool,
    reclaim,
};

/// What of CuPy a request needs.
struct CuPy {
    /// `cupy.cuda.device.get_device_id`
    device: unsafe extern "C" fn(c_int) -> c_int,
    /// `cupy_backends.cuda.stream.get_stream_ptr`
    stream: unsafe extern "C" fn(c_int) -> isize,
    /// `cupy.cuda.memory_hook._has_memory_hooks`
    has_hooks: unsafe extern "C" fn(c_int) -> c_int,
    /// `cupy.cuda.UnownedMemory`
    memory: Py<PyAny>,
    /// `cupy.cuda.MemoryPointer`
    pointer: Py<PyAny>,
    /// `binpool.cupy`
    package: Py<PyModule>,
}

static CUPY: PyOnceLock<CuPy> = PyOnceLock::new();

impl CuPy {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        CUPY.get_or_try_init(py, || {
            let memory = py.import("cupy.cuda.memory")?;
            let plain = c"int (int __pyx_skip_dispatch)";
            // SAFETY: The names of the types say what these are.
            let device = unsafe { function(py, "cupy.cuda.device", "get_device_id", plain) }?;
            let of_streams = "cupy_backends.cuda.stream";
            // SAFETY: As above.
            let stream = unsafe { function(py, of_streams, "get_stream_ptr", c"intptr_t (int)") }?;
            let of_hooks = "cupy.cuda.memory_hook";
            // SAFETY: As above.
            let has_hooks = unsafe { function(py, of_hooks, "_has_memory_hooks", plain) }?;
            Ok(Self {
                device,
                stream,
                has_hooks,
                memory: memory.getattr("UnownedMemory")?.unbind(),
                pointer: memory.getattr("MemoryPointer")?.unbind(),
                package: py.import("binpool.cupy")?.unbind(),
            })
        })
    }

    /// Returns the current device.
    fn device(&self, py: Python<'_>) -> PyResult<i32> {
        // SAFETY: It takes any number, and the thread is attached to Python.
        let device = unsafe { (self.device)(0) };
        answered(py, device, -1)
    }

    /// Returns the current stream of a device.
    fn stream(&self, py: Python<'_>, device: i32) -> PyResult<usize> {
        // SAFETY: It takes any number, and the thread is attached to Python.
        let stream = unsafe { (self.stream)(device) };
        answered(py, stream, -1).map(isize::cast_unsigned)
    }

    /// Returns whether the calling thread has hooks.
    fn has_hooks(&self, py: Python<'_>) -> PyResult<bool> {
        // SAFETY: It takes any number, and the thread is attached to Python.
        let has_hooks = unsafe { (self.has_hooks)(0) };
        Ok(answered(py, has_hooks, -1)? != 0)
    }
}

/// Returns what a function in C has returned; the exception that it has set, where it is `failed`.
fn answered<T: PartialEq>(py: Python<'_>, answer: T, failed: T) -> PyResult<T> {
    if answer == failed
        && let Some(error) = PyErr::take(py)
    {
        return Err(error);
    }
    Ok(answer)
}

/// Returns a function that a module of Cython has for others.
///
/// # Safety
///
/// `F` is a pointer to a function of the type `signature`.
unsafe fn function<F: Copy>(
    py: Python<'_>,
    module: &str,
    name: &str,
    signature: &CStr,
) -> PyResult<F> {
    let functions = py.import(module)?.getattr(intern!(py, "__pyx_capi__"))?;
    let capsule = functions.get_item(name).map_err(|_| {
        PyRuntimeError::new_err(format!(
            "this version of CuPy does not export {module}.{name}: binpool is tested with CuPy 14"
        ))
    })?;
    // SAFETY: Any object may be asked for, and the name ends with 0. It is an error if the function has another type.
    let found = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), signature.as_ptr()) };
    if found.is_null() {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: It is a pointer to a function of this type, as the caller promises.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

/// A block of CuPy's, which goes back when Python drops this.
#[pyclass(frozen, module = "binpool")]
pub(crate) struct CudaBlock {
    block: Option<PooledBuffer<CudaBackend>>,
    place: Arc<Place>,
    is_of_graph: bool,
    pointer: usize,
    bytes: usize,
    /// What CuPy's hooks know the block by: the number of the object that has it.
    id: AtomicUsize,
}

impl Drop for CudaBlock {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else {
            return;
        };
        // SAFETY: Only Python drops it, on a thread that is attached.
        let py = unsafe { Python::assume_attached() };
        let hooked = has_hooks(py);
        if hooked {
            self.call_hooks(py, "_before_free");
        }
        let place = &self.place;
        let freed = if self.is_of_graph {
            // It may be the last of a pool, whose end waits for commands, among them functions of Python.
            py.detach(|| block.release())
        } else if place.has_whole_allocations() {
            // So may the driver, if the block leaves the pool.
            py.detach(|| place.free(block))
        } else {
            place.free(block)
        };
        if let Err(error) = freed {
            tracing::error!(%error, "a block was not freed in order");
        }
        if hooked {
            self.call_hooks(py, "_after_free");
        }
    }
}

impl CudaBlock {
    /// Calls this thread's hooks. What is raised there cannot be passed on.
    #[cold]
    fn call_hooks(&self, py: Python<'_>, function: &str) {
        let raised = Raised::put_aside(py);
        let called = CuPy::get(py).and_then(|cupy| {
            let function = cupy.package.bind(py).getattr(function)?;
            let id = self.id.load(Ordering::Relaxed);
            function.call1((self.place.device(), self.bytes, self.pointer, id))
        });
        if let Err(error) = called {
            error.write_unraisable(py, None);
        }
        drop(raised);
    }
}

/// Returns whether the calling thread has hooks, also while an exception is on its way.
fn has_hooks(py: Python<'_>) -> bool {
    let raised = Raised::put_aside(py);
    let has_hooks = CuPy::get(py).and_then(|cupy| cupy.has_hooks(py));
    drop(raised);
    has_hooks.unwrap_or(false)
}

/// An exception that is on its way while a block is dropped, until this is dropped.
struct Raised<'py>(Python<'py>, Option<PyErr>);

impl<'py> Raised<'py> {
    fn put_aside(py: Python<'py>) -> Self {
        Self(py, PyErr::take(py))
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        if let Some(error) = self.1.take() {
            error.restore(self.0);
        }
    }
}

/// Returns a `cupy.cuda.MemoryPointer` to `bytes` bytes for the current stream of the current device, and calls the thread's hooks.
#[pyfunction]
pub(crate) fn cupy_allocate<'py>(bytes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = bytes.py();
    let cupy = CuPy::get(py)?;
    if cupy.has_hooks(py)? {
        return cupy
            .package
            .bind(py)
            .call_method1(intern!(py, "_hooked"), (bytes,));
    }
    allocate(py, cupy, number("bytes", bytes)?)
}

/// Does the same without hooks.
#[pyfunction]
pub(crate) fn cupy_allocate_unhooked<'py>(
    bytes: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = bytes.py();
    allocate(py, CuPy::get(py)?, number("bytes", bytes)?)
}

fn allocate<'py>(py: Python<'py>, cupy: &CuPy, bytes: usize) -> PyResult<Bound<'py, PyAny>> {
    let device = cupy.device(py)?;
    if bytes == 0 {
        let memory = cupy.memory.bind(py).call1((0, 0, py.None(), device))?;
        return cupy.pointer.bind(py).call1((memory, 0));
    }
    let package = cupy.package.bind(py);
    let stream = cupy.stream(py, device)?;
    let place = Place::of(device, stream, || {
        package.call_method1(intern!(py, "_first_use"), (device, stream))?;
        Ok(())
    })?;
    let (block, is_of_graph) = match request(py, &place, bytes) {
        Err(PoolError::OutOfMemory(_)) => {
            reclaim::call(&reclaim::collector(py)?, bytes)?;
            request(py, &place, bytes).map_err(|error| match error {
                PoolError::OutOfMemory(report) => {
                    lacking(package, &place, bytes, &report.to_string())
                }
                error => raised(error),
            })?
        }
        result => result.map_err(raised)?,
    };
    let pointer = place.address(&block).map_err(raised)?;
    let owner = CudaBlock {
        block: Some(block),
        place,
        is_of_graph,
        pointer,
        bytes,
        id: AtomicUsize::new(0),
    };
    let owner = Bound::new(py, owner)?;
    let memory = cupy
        .memory
        .bind(py)
        .call1((pointer, bytes, &owner, device))?;
    owner
        .get()
        .id
        .store(memory.as_ptr().addr(), Ordering::Relaxed);
    cupy.pointer.bind(py).call1((memory, 0))
}

/// Asks for a block, under the line of the program where the pool is watched. Other threads of Python run meanwhile, unless the block is
/// at hand: the pool may wait for commands, among them functions of Python.
#[inline]
fn request(py: Python<'_>, place: &Arc<Place>, bytes: usize) -> Result<Allocated, PoolError> {
    if let Some(at_hand) = place.allocate_at_hand(bytes) {
        return Ok(at_hand);
    }
    let caller = place.pool().is_watching().then(|| Tag::new(caller(py)));
    py.detach(|| match caller {
        Some(caller) => caller.within(|| place.allocate(bytes)),
        None => place.allocate(bytes),
    })
}

/// Returns CuPy's exception for a lack of memory, with the report.
fn lacking(package: &Bound<'_, PyModule>, place: &Place, bytes: usize, report: &str) -> PyErr {
    let figures = place.pool().statistics();
    let limit = place.pool().limit();
    let limit = if limit == u64::MAX { 0 } else { limit };
    let made = package.call_method1("_lacking", (bytes, figures.managed_bytes, limit, report));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// Chooses whether each block is an allocation of `cuMemAlloc`, from now on.
#[pyfunction]
pub(crate) fn cupy_choose_whole_allocations(are_chosen: bool) {
    cuda_place::choose_whole_allocations(are_chosen);
}

/// Returns the pool that CuPy's blocks of a device are from.
#[pyfunction]
pub(crate) fn cupy_pool(py: Python<'_>, device: i32) -> PyResult<Pool> {
    let pool = py.detach(|| cuda_place::pool_of(device)).map_err(raised)?;
    let any: AnyPool = OfBackend::Cuda(pool);
    Ok(Pool { any })
}

/// Returns the bytes that are kept for the graphs of a device.
#[pyfunction]
pub(crate) fn cupy_graph_bytes(py: Python<'_>, device: i32) -> PyResult<u64> {
    py.detach(|| {
        let pool = cuda_place::pool_of(device).map_err(raised)?;
        Ok(graph_memory::bytes(pool.backend()))
    })
}
