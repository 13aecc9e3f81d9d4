//! Devices.

use std::sync::Arc;

use binpool_allocators::{Align, DeviceLimits, Error, FailureOrder, Result, runtime::Core};
use parking_lot::Mutex;

use crate::{
    backend::{CudaBackend, Shared},
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
/// The same over a library that the program names:
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

    /// Returns the device of a number in a library.
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
    /// queues of other devices that used its memory. Where a backend of this device lives
    /// that was opened by the same [library](CudaLibrary), this returns a clone of it.
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
    /// Opens the device of a number, counted from 0.
    ///
    /// Where it is open already, the result is a clone of that [backend](CudaDevice::backend).
    ///
    /// # Errors
    ///
    /// Those of [`CudaLibrary::load`], or a failure of the driver.
    pub fn open(ordinal: u32) -> Result<Self> {
        CudaDevice::of(&CudaLibrary::load()?, ordinal)?.backend()
    }
}

debug_by!(CudaDevice, |this| ordinal: this.ordinal, name: this.facts.name);
