//! Pages: memory without addresses.

#[cfg(unix)]
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

#[cfg(unix)]
use super::driver::{Address, DESCRIPTOR};
use super::{
    context::Context,
    driver::{Properties, Sharing},
    status::CudaResult,
};

/// Memory that can be mapped, released when this value is dropped.
///
/// # Invariants
///
/// I1: `raw` is a handle of `cuMemCreate`, or another reference to one or to that of another process, that nothing else releases. Each reservation has a reference for each place where it is mapped,
/// unless a failed map has left it there.
pub(crate) struct Pages {
    context: Arc<Context>,
    raw: u64,
}

impl Pages {
    /// Allocates `bytes` bytes, a multiple of a page. Where the driver refuses to have them shared, they are less so, and all later ones.
    pub(crate) fn create(context: &Arc<Context>, bytes: usize) -> CudaResult<Self> {
        let mut sharing = *context.sharing.lock();
        loop {
            let properties = Properties::shared(context.device(), sharing);
            let created = context.ask(|driver, raw| {
                // SAFETY: `raw` is a place for the result, and `properties` lives until the call returns.
                unsafe { driver.pages_create(raw, bytes, &raw const properties, 0) }
            });
            sharing = match (created, sharing) {
                (Err(error), Sharing::Descriptor) if error.is_refusal() => Sharing::No,
                (Err(error), Sharing::DescriptorAndRdma) if error.is_refusal() => {
                    Sharing::Descriptor
                }
                (created, _) => return Ok(Self::own(context, created?)),
            };
            *context.sharing.lock() = sharing;
        }
    }

    /// The pages that are mapped at an address.
    #[cfg(unix)]
    pub(super) fn at(context: &Arc<Context>, address: Address) -> CudaResult<Self> {
        // SAFETY: `raw` is a place for the result.
        let raw = context.ask(|driver, raw| unsafe { driver.pages_retain(raw, address) })?;
        Ok(Self::own(context, raw))
    }

    /// Returns a descriptor of these pages for other processes.
    #[cfg(unix)]
    pub(super) fn export(&self) -> CudaResult<OwnedFd> {
        let raw = self.context.ask(|driver, descriptor| {
            // SAFETY: `descriptor` is a place for the result; the pages live (I1).
            unsafe { driver.pages_export(descriptor, self.raw, DESCRIPTOR, 0) }
        })?;
        // SAFETY: The driver has made it for the caller.
        Ok(unsafe { OwnedFd::from_raw_fd(raw) })
    }

    /// The pages of a descriptor that another process has sent.
    #[cfg(unix)]
    pub(crate) fn import(context: &Arc<Context>, descriptor: BorrowedFd<'_>) -> CudaResult<Self> {
        let descriptor = usize::try_from(descriptor.as_raw_fd()).unwrap_or(usize::MAX);
        let raw = context.ask(|driver, raw| {
            // SAFETY: `raw` is a place for the result; the descriptor is open until the call returns.
            unsafe { driver.pages_import(raw, descriptor, DESCRIPTOR) }
        })?;
        Ok(Self::own(context, raw))
    }

    fn own(context: &Arc<Context>, raw: u64) -> Self {
        Self {
            context: Arc::clone(context),
            raw,
        }
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
