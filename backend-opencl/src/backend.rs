//! The backend: one device and its context.

use std::{ffi::c_void, hash::Hash, sync::Arc};

use binpool_allocators::{DeviceLimits, Error, Result};

use crate::{
    context::Context,
    device::{
        info::{DeviceInfo, System},
        selector::DeviceSelector,
    },
    error::OpenClError,
    sys,
};

/// One OpenCL device, and the context that memory, queues and events belong to. Clones are the same.
///
/// Memory and events work with every backend of the same context; queues belong to one device of it. A backend of another
/// device of the context takes them for [markers and barriers](binpool_allocators::Backend::check_use) only.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// use binpool_opencl::OpenClBackend;
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// assert!(backend.version() >= (1, 2), "older devices are not opened");
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
/// backend.write(&queue, &memory, 0, &[1_u8, 2, 3])?;
/// let mut seen = [0_u8; 2];
/// backend.read(&queue, &memory, 1, &mut seen)?;
/// assert_eq!(seen, [2, 3]);
///
/// // Another backend of the same context, whose objects are the same, too.
/// let context = backend.raw_context();
/// // SAFETY: Both live.
/// let again = unsafe { OpenClBackend::from_raw(context, backend.raw_device()) }?;
/// assert_eq!(again.raw_context(), context);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenClBackend {
    context: Arc<Context>,
}

impl OpenClBackend {
    /// Opens a device of this system, with a context of its own.
    ///
    /// # Errors
    ///
    /// [`NoDevice`](OpenClError::NoDevice), which lists the devices; [`NoLibrary`](OpenClError::NoLibrary) and
    /// [`NoPlatform`](OpenClError::NoPlatform), which say what to install; [`TooOld`](OpenClError::TooOld) before
    /// OpenCL 1.2; or a failure of the runtime.
    pub fn open(selector: &DeviceSelector) -> Result<Self, OpenClError> {
        let system = System::look()?;
        let Some(device) = selector.select(&system.devices) else {
            return Err(OpenClError::NoDevice {
                selector: selector.clone(),
                available: system.available(),
            });
        };
        device.check_version()?;
        Self::with_context(sys::create_context(device.id())?, device)
    }

    /// Returns the backend of a context and a device that was looked up.
    pub(crate) fn with_context(
        context: sys::ContextHandle,
        device: &DeviceInfo,
    ) -> Result<Self, OpenClError> {
        device.check_version()?;
        tracing::debug!(%device, limits = ?device.limits(), "opened an OpenCL device");
        let context = Context::new(context, device);
        Ok(Self {
            context: context.registered(),
        })
    }

    /// Returns the backend that an object belongs to.
    pub(crate) fn of_context(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
        }
    }

    /// The device's OpenCL version, major and minor.
    pub fn version(&self) -> (u32, u32) {
        self.context.version
    }

    /// The runtime's `cl_context`. It is borrowed: valid while this value or an object of it lives.
    pub fn raw_context(&self) -> *mut c_void {
        self.context.handle.raw()
    }

    /// The runtime's `cl_device_id`.
    pub fn raw_device(&self) -> *mut c_void {
        self.context.device.raw()
    }

    /// Returns whether commands that the program enqueues itself, with `PyOpenCL`, `opencl3` or bare calls of OpenCL, may use parts of
    /// buffers: whether [`raw_view`](crate::ClMemory::raw_view) gives the handle of a part.
    ///
    /// NVIDIA's driver (580) crashes if one thread enqueues a command on a buffer while another makes or releases a part of it, and after
    /// kernels have used parts that share bytes. This crate's own commands take parts there, too: a lock keeps its threads apart, and
    /// kernels get other parts. Commands that it does not enqueue do not take that lock, so there they must use whole buffers
    /// (`PoolOptions::segments(false)`), or what [`lend`](Self::lend) gives them.
    ///
    /// ```
    /// # use binpool::{ImmediateAllocator, PoolOptions};
    /// # use binpool_allocators::{Backend, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// // A pool for blocks whose handles go to code of others.
    /// let options = PoolOptions::new().segments(backend.parts_have_handles());
    /// let pool = options.build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(5000)?;
    /// assert!(block.memory_on(&queue).ok_or("0 bytes")?.raw_view().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parts_have_handles(&self) -> bool {
        !self.context.quirks.used_views_are_fragile
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn device_limits(&self) -> &DeviceLimits {
        &self.context.limits
    }

    /// Returns the value of that type and key for this context; `build` makes it if there is none yet. It is meant for programs and
    /// kernels, which take long to build and belong to one context. `PyOpenCL`'s `first_arg_dependent_memoize`, if the first argument is a
    /// context.
    ///
    /// A value is built once. A thread that requests it meanwhile waits; threads that request different values do not wait
    /// for one another. Keys of different types, and values of different types, are kept apart. An error or a panic is
    /// passed on and not kept: the next call builds again.
    ///
    /// Values are kept until [`clear_cache`](Self::clear_cache), or until the last backend, queue, event or memory of the
    /// context is dropped. All backends of one context and device share them, even if the program has wrapped its own
    /// context several times. A value that itself holds one of those objects keeps the context alive, and thereby itself,
    /// until the cache is cleared; programs and kernels do not.
    ///
    /// `build` may ask for other values. Two builds on two threads must not ask for each other's value, and a build must
    /// not wait for a thread that asks for the value being built: they would wait forever. `Hash`, `Eq` and `Clone` of the
    /// key must not ask for a value under a key of the same type.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use binpool_opencl::{ClKernel, ClProgram, Extent, OpenClBackend, OpenClError, Parameter};
    ///
    /// /// The kernel that fills floats with a number, built once for each context.
    /// fn filler(backend: &OpenClBackend) -> Result<Arc<ClKernel>, OpenClError> {
    ///     backend.cached("fill", || {
    ///         let source = "kernel void fill(global float *data, float value)
    ///             { data[get_global_id(0)] = value; }";
    ///         let program = ClProgram::build(backend, source, "")?;
    ///         let parameters = [
    ///             Parameter::output::<f32>(Extent::PerItem(1)),
    ///             Parameter::value::<f32>(),
    ///         ];
    ///         // SAFETY: each work item writes the float of its id, and touches nothing else.
    ///         unsafe { program.kernel("fill", &parameters) }
    ///     })
    /// }
    ///
    /// let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let fill = filler(&backend)?;
    /// assert!(Arc::ptr_eq(&fill, &filler(&backend)?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of `build`, and [`AsksForItself`](binpool_allocators::InvalidRequest::AsksForItself) if `build` requests its own value.
    pub fn cached<K, V, E>(&self, key: K, build: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
        V: Send + Sync + 'static,
        E: From<Error>,
    {
        self.context().cache.get_or_build(key, build)
    }

    /// Drops all values that [`cached`](Self::cached) keeps for this context. A value that is still in use lives on.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use binpool_allocators::Error;
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let table = backend.cached("table", || Ok::<_, Error>(vec![0_u8; 1 << 20]))?;
    /// let kept = Arc::downgrade(&table);
    /// drop(table);
    /// assert!(kept.upgrade().is_some(), "the next call returns it");
    /// backend.clear_cache();
    /// assert!(kept.upgrade().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear_cache(&self) {
        self.context().cache.clear();
    }
}
