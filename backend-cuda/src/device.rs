//! The CUDA devices of this machine, and how one is opened.

#![expect(unsafe_code, reason = "streams that this crate did not make")]

use std::{ffi::c_void, sync::Arc};

use binpool_allocators::{
    Align, DeviceLimits, Error, FailureOrder, Result, debug_by, runtime::Core,
};
use parking_lot::Mutex;

use crate::{
    backend::{CudaBackend, CudaQueue, Shared},
    library::CudaLibrary,
    sys::{self, Context, DeviceFacts},
};

/// Blocks start on multiples of it, as those of `cuMemAlloc` do at least.
pub(crate) const ALIGNMENT: usize = 256;

/// A device of the CUDA driver.
///
/// ```no_run
/// use binpool_cuda::{CudaBackend, CudaDevice};
///
/// for device in CudaDevice::all()? {
///     println!("{}: {}, {} MiB", device.ordinal(), device.name(), device.total_bytes() >> 20);
/// }
/// let backend = CudaBackend::open(0)?;
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// With a library that the program names:
///
/// ```no_run
/// use binpool_cuda::{CudaDevice, CudaLibrary};
///
/// // SAFETY: it is a driver.
/// let library = unsafe { CudaLibrary::open("/opt/driver/libcuda.so.1") }?;
/// assert!(!CudaDevice::all_of(&library)?.is_empty());
/// let backend = CudaDevice::of(&library, 0)?.backend()?;
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone)]
pub struct CudaDevice {
    library: CudaLibrary,
    ordinal: u32,
    facts: DeviceFacts,
}

impl CudaDevice {
    /// Lists the devices.
    ///
    /// # Errors
    ///
    /// Those of [`CudaLibrary::load`], or a failure of the driver.
    pub fn all() -> Result<Vec<Self>> {
        Self::all_of(&CudaLibrary::load()?)
    }

    /// Lists the devices of a library.
    ///
    /// # Errors
    ///
    /// A failure of the driver.
    pub fn all_of(library: &CudaLibrary) -> Result<Vec<Self>> {
        let count = sys::count(library.driver())?;
        let count = u32::try_from(count).unwrap_or(0);
        (0..count)
            .map(|ordinal| Self::of(library, ordinal))
            .collect()
    }

    /// Returns the device with this number in a library.
    ///
    /// # Errors
    ///
    /// A failure of the driver.
    pub fn of(library: &CudaLibrary, ordinal: u32) -> Result<Self> {
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        Ok(Self {
            library: library.clone(),
            ordinal,
            facts: sys::facts(library.driver(), number)?,
        })
    }

    /// The number, counted from 0.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// The name, for display.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// The size of its memory in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.facts.total_bytes
    }

    /// Opens the device: retains its primary context, until everything on the backend is dropped, and the
    /// queues of other devices that used its memory. If a backend of this device exists
    /// that was opened with the same [library](CudaLibrary), this returns a clone of it.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) without unified addressing, which all devices of 64-bit systems have; a failure of the driver.
    pub fn backend(&self) -> Result<CudaBackend> {
        let facts = &self.facts;
        if !facts.unified_addressing {
            return Err(Error::unsupported(format!(
                "{}, which has no unified addressing: use its OpenCL",
                facts.name
            )));
        }
        let shared = self.library.backend(facts.device, || self.open_anew())?;
        Ok(CudaBackend::new(shared))
    }

    fn open_anew(&self) -> Result<Shared> {
        let (driver, facts) = (self.library.driver(), self.facts.clone());
        let context = Arc::new(Context::retain(driver, facts.device)?);
        *context.sharing.lock() = facts.sharing;
        let alignment = Align::new(ALIGNMENT).unwrap_or(Align::ONE);
        let bytes = facts.total_bytes;
        let mut limits = DeviceLimits::new(facts.name.clone(), bytes as u64, bytes, alignment);
        limits.failure_order = FailureOrder::Kept;
        limits.buffer_views_are_addresses = true;
        Ok(Shared {
            page_bytes: sys::page_bytes(driver, &facts)?,
            core: Arc::new(Core::new(limits).of_family(context.family())),
            captured: Mutex::default(),
            abandoned: Mutex::default(),
            context,
            facts,
        })
    }
}

impl CudaBackend {
    /// Opens the device with this number, counted from 0.
    ///
    /// If it is open already, this returns a clone of that [backend](CudaDevice::backend).
    ///
    /// # Errors
    ///
    /// Those of [`CudaLibrary::load`], or a failure of the driver.
    pub fn open(ordinal: u32) -> Result<Self> {
        CudaDevice::of(&CudaLibrary::load()?, ordinal)?.backend()
    }

    /// Opens the device of a `CUstream` that the program or another library has made, and wraps the stream: [`open`](Self::open) and
    /// [`wrap_raw_queue`](Self::wrap_raw_queue) in one call. A null pointer is the legacy default stream of the current context.
    ///
    /// ```no_run
    /// use binpool::{MemoryPool, VirtualMemoryAllocator};
    /// use binpool_cuda::CudaBackend;
    ///
    /// # let stream = std::ptr::null_mut();
    /// // SAFETY: it is a stream, which lives as long as the pool and its blocks.
    /// let (backend, queue) = unsafe { CudaBackend::from_raw_queue(stream) }?;
    /// let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue)?;
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    ///
    /// # Safety
    ///
    /// `stream` is a stream of the driver that lives until the last clone of the queue is dropped.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open); [`Unsupported`](Error::Unsupported) for a stream of a context that is not its device's primary one.
    pub unsafe fn from_raw_queue(stream: *mut c_void) -> Result<(Self, CudaQueue)> {
        // SAFETY: The stream is one of the driver's, as the caller promises.
        unsafe { Self::from_raw_queue_of(&CudaLibrary::load()?, stream) }
    }

    /// As [`from_raw_queue`](Self::from_raw_queue), for a stream of the driver library that the program names.
    ///
    /// ```no_run
    /// # use binpool_cuda::{CudaBackend, CudaLibrary};
    /// # let stream = std::ptr::null_mut();
    /// let library = CudaLibrary::load()?;
    /// // SAFETY: it is a stream of that library, and lives as long as the queue.
    /// let (backend, queue) = unsafe { CudaBackend::from_raw_queue_of(&library, stream) }?;
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// `stream` is a stream of the library that lives until the last clone of the queue is dropped.
    ///
    /// # Errors
    ///
    /// Those of [`CudaDevice::backend`], and of [`from_raw_queue`](Self::from_raw_queue).
    #[doc(hidden)]
    pub unsafe fn from_raw_queue_of(
        library: &CudaLibrary,
        stream: *mut c_void,
    ) -> Result<(Self, CudaQueue)> {
        // SAFETY: The stream lives, as the caller promises; a default stream is the current context's here.
        let (context, device) = unsafe { sys::context_of(library.driver(), stream.addr()) }?;
        // A `CUdevice` is the number of the device.
        let backend = CudaDevice::of(library, u32::try_from(device).unwrap_or(0))?.backend()?;
        if backend.raw_context().addr() != context {
            return Err(Error::unsupported(
                "a stream of a context that is not its device's primary one: make the stream in the primary context \
                 (`cuDevicePrimaryCtxRetain`), which the runtime library of CUDA uses",
            ));
        }
        // SAFETY: It is a stream of this context, and lives, as the caller promises.
        let queue = unsafe { backend.wrap_raw_queue(stream) }?;
        Ok((backend, queue))
    }
}

debug_by!(CudaDevice, |this| ordinal: this.ordinal, name: this.facts.name);
