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
        let driver = context.enter_relaxed()?;
        let mut raw = 0;
        // SAFETY: `raw` is a place for the result, and the text ends with a zero.
        context.seen(unsafe { driver.module_load(&raw mut raw, text.as_ptr()) })?;
        Ok(Self {
            context: Arc::clone(context),
            raw,
        })
    }

    /// Returns the `CUfunction` of a name, which lives as long as this value.
    pub(crate) fn function(&self, name: &CStr) -> CudaResult<Handle> {
        let driver = self.context.enter_relaxed()?;
        let mut function = 0;
        // SAFETY: `function` is a place for the result, the module lives (I1), and the name ends with a zero.
        let result = unsafe { driver.module_function(&raw mut function, self.raw, name.as_ptr()) };
        self.context.seen(result)?;
        Ok(function)
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
