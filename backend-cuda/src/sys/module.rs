//! Modules: code on the device.

use std::{ffi::CStr, sync::Arc};

use super::{context::Context, driver::Handle, status::CudaResult};

/// Code that the driver has loaded.
///
/// # Invariants
///
/// I1: `raw` is a module of `context` that nothing else unloads.
pub(crate) struct Module {
    context: Arc<Context>,
    raw: Handle,
}

impl Module {
    /// Loads PTX, which the driver compiles for the device.
    pub(crate) fn of_ptx(context: &Arc<Context>, text: &CStr) -> CudaResult<Self> {
        // SAFETY: `raw` is a place for the result, and the text ends with a zero.
        let raw = context.ask(|driver, raw| unsafe { driver.module_load(raw, text.as_ptr()) })?;
        Ok(Self {
            context: Arc::clone(context),
            raw,
        })
    }

    /// Returns the `CUfunction` of a name, which lives as long as this value.
    pub(crate) fn function(&self, name: &CStr) -> CudaResult<Handle> {
        self.context.ask(|driver, function| {
            // SAFETY: `function` is a place for the result, the module lives (I1), and the name ends with a zero.
            unsafe { driver.module_function(function, self.raw, name.as_ptr()) }
        })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let raw = self.raw;
        // SAFETY: It takes no pointers; nothing else unloads the module (I1). Its kernels have ended, which the graveyard sees to.
        self.context.free("a module", move |driver| unsafe {
            driver.module_unload(raw)
        });
    }
}
