//! Modules, which have kernels.

use std::{ffi::CString, sync::Arc};

use binpool_allocators::{Error, Result, debug_by};

use crate::{
    backend::CudaBackend,
    kernel::{CudaKernel, Loaded},
    sys::{CudaError, Module},
};

/// Kernels that the driver has compiled for the device. Clones are the same module; any thread may use them.
///
/// It is unloaded with its last clone and its last [`CudaKernel`]: that drop waits for the device, since launches may still run.
///
/// ```no_run
/// use binpool_cuda::{CudaBackend, CudaModule};
///
/// let backend = CudaBackend::open(0)?;
/// let module = CudaModule::load_ptx(&backend, &std::fs::read_to_string("kernels.ptx")?)?;
/// let kernel = module.kernel("scale")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CudaModule {
    loaded: Arc<Loaded>,
}

impl CudaModule {
    /// Loads PTX text.
    ///
    /// # Errors
    ///
    /// Text that is not PTX, or is for other devices or newer drivers: a [`CudaError`] says which. A failure of the driver.
    pub fn load_ptx(backend: &CudaBackend, text: &str) -> Result<Self> {
        let no_text = || Error::from(CudaError::new("cuModuleLoadData", 218));
        // The driver would take it for a binary, and read on after its end.
        if text.starts_with('\u{7f}') {
            return Err(no_text());
        }
        let text = CString::new(text).map_err(|_| no_text())?;
        let module = Module::of_ptx(&backend.shared.context, &text)?;
        let loaded = Loaded {
            backend: backend.clone(),
            module: Some(module),
        };
        Ok(Self {
            loaded: Arc::new(loaded),
        })
    }

    /// Returns the kernel with this name, its `.entry` in PTX.
    ///
    /// # Errors
    ///
    /// A module without that kernel, or a failure of the driver.
    pub fn kernel(&self, name: &str) -> Result<CudaKernel> {
        let not_found = || CudaError::new("cuModuleGetFunction", 500);
        let module = self.loaded.module.as_ref().ok_or_else(not_found)?;
        let name = CString::new(name).map_err(|_| not_found())?;
        Ok(CudaKernel {
            function: module.function(&name)?,
            loaded: Arc::clone(&self.loaded),
        })
    }
}

debug_by!(CudaModule);
