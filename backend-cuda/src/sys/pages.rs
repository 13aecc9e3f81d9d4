//! Pages: memory without addresses.

use std::sync::Arc;

use super::{context::Context, driver::Properties, status::CudaResult};

/// Memory that can be mapped, released when this value is dropped.
///
/// # Invariants
///
/// I1: `raw` is a handle of `cuMemCreate` that nothing else releases. Each reservation has a reference for each place where it is mapped,
/// unless a failed map has left it there.
pub(crate) struct Pages {
    context: Arc<Context>,
    raw: u64,
}

impl Pages {
    /// Allocates `bytes` bytes, a multiple of a page.
    pub(crate) fn create(context: &Arc<Context>, bytes: usize) -> CudaResult<Self> {
        let properties = Properties::on(context.device());
        let raw = context.ask(|driver, raw| {
            // SAFETY: `raw` is a place for the result, and `properties` lives until the call returns.
            unsafe { driver.pages_create(raw, bytes, &raw const properties, 0) }
        })?;
        Ok(Self {
            context: Arc::clone(context),
            raw,
        })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn raw(&self) -> u64 {
        self.raw
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let raw = self.raw;
        // SAFETY: It takes no pointers; nothing else releases it (I1). Where it is mapped, the driver keeps the memory.
        self.context
            .free("pages", move |driver| unsafe { driver.pages_release(raw) });
    }
}
