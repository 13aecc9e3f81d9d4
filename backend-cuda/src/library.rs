//! The driver's library, and the backends over it.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    sync::{Arc, OnceLock, Weak},
};

use binpool_allocators::{Result, debug_by};
use parking_lot::Mutex;

use crate::{backend::Shared, sys::Driver};

/// The CUDA driver's library, loaded and initialized. Clones are the same library.
///
/// [`CudaDevice`](crate::CudaDevice) loads the installed one itself; a program can name another, such as a stand-in:
///
/// ```
/// use binpool_cuda::CudaLibrary;
///
/// // SAFETY: there is no such file.
/// let missing = unsafe { CudaLibrary::open("/no/such/libcuda.so") };
/// let text = missing.unwrap_err().to_string();
/// assert!(text.contains("/no/such/libcuda.so") && text.contains("install"), "{text}");
///
/// match CudaLibrary::load() {
///     Ok(library) => println!("{library:?}"),
///     Err(error) => println!("{error}"), // What to install.
/// }
/// ```
#[derive(Clone)]
pub struct CudaLibrary {
    inner: Arc<Inner>,
}

struct Inner {
    driver: Arc<Driver>,
    /// The backend of each device, by `CUdevice`.
    backends: Mutex<BTreeMap<i32, Weak<Shared>>>,
}

impl CudaLibrary {
    /// Loads the library that is installed, once for the process.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](binpool_allocators::Error::Unsupported) if there is none, or if its version lacks a call; a failure of `cuInit`.
    pub fn load() -> Result<Self> {
        static LOADED: OnceLock<CudaLibrary> = OnceLock::new();
        if let Some(library) = LOADED.get() {
            return Ok(library.clone());
        }
        let loaded = Self::over(Driver::installed()?);
        Ok(LOADED.get_or_init(|| loaded).clone())
    }

    /// Loads the library at `path`: another version of the driver, or a stand-in for it. Each call makes a library of its own, whose
    /// objects are foreign to those of the others: call it once, and clone the result.
    ///
    /// # Safety
    ///
    /// Its functions have the signatures and the behaviour of the CUDA driver's, and loading it does no harm.
    ///
    /// # Errors
    ///
    /// As for [`load`](Self::load).
    #[expect(
        unsafe_code,
        reason = "the program promises that the library is a driver"
    )]
    pub unsafe fn open(path: impl AsRef<OsStr>) -> Result<Self> {
        // SAFETY: It is a CUDA driver, as the caller promises.
        Ok(Self::over(unsafe { Driver::open(path.as_ref()) }?))
    }

    fn over(driver: Driver) -> Self {
        let inner = Inner {
            driver: Arc::new(driver),
            backends: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.inner.driver
    }

    /// Returns the backend of a device: the one that lives, or what `open` makes.
    pub(crate) fn backend(
        &self,
        device: i32,
        open: impl FnOnce() -> Result<Shared>,
    ) -> Result<Arc<Shared>> {
        // Held while `open` runs, so that no two threads open one device.
        let mut backends = self.inner.backends.lock();
        if let Some(living) = backends.get(&device).and_then(Weak::upgrade) {
            return Ok(living);
        }
        let opened = Arc::new(open()?);
        backends.insert(device, Arc::downgrade(&opened));
        Ok(opened)
    }
}

debug_by!(CudaLibrary);
