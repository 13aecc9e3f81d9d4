//! Pinned memory that host bytes pass through, so that a command may run after its call has returned.

use std::sync::Arc;

use super::{context::Context, status::CudaResult};

/// Pinned for all contexts, and mapped for the device.
const PORTABLE_AND_MAPPED: u32 = 3;

const LEAST: usize = 4096;

/// Allocates pinned memory and returns its address, which is the same on the device.
pub(super) fn allocate_host(context: &Context, bytes: usize) -> CudaResult<usize> {
    // SAFETY: `address` is a place for the result.
    context
        .ask(|driver, address| unsafe { driver.allocate_host(address, bytes, PORTABLE_AND_MAPPED) })
}

/// Pinned memory of the host, which goes back to its context when it is dropped.
///
/// # Invariants
///
/// I1: `address` is that of `bytes` bytes of pinned memory that nothing else has. They are initialized.
/// I2: While a command uses it, the graveyard has a reference to it.
pub(crate) struct Staging {
    context: Arc<Context>,
    address: usize,
    bytes: usize,
}

impl Staging {
    /// Takes at least this many bytes.
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> CudaResult<Self> {
        let bytes = bytes
            .checked_next_power_of_two()
            .unwrap_or(bytes)
            .max(LEAST);
        let address = match context.idle_staging(bytes) {
            Some(address) => address,
            None => Self::create(context, bytes)?,
        };
        Ok(Self {
            context: Arc::clone(context),
            address,
            bytes,
        })
    }

    fn create(context: &Context, bytes: usize) -> CudaResult<usize> {
        let address = allocate_host(context, bytes)?;
        let start = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: The driver has just allocated these bytes for us.
        unsafe { start.write_bytes(0, bytes) };
        Ok(address)
    }

    /// Staging memory with a copy of `data`.
    pub(crate) fn of(context: &Arc<Context>, data: &[u8]) -> CudaResult<Self> {
        let staging = Self::new(context, data.len())?;
        let start = std::ptr::with_exposed_provenance_mut::<u8>(staging.address);
        // SAFETY: The memory is fresh, has at least this many bytes, and nothing else has it (I1).
        unsafe { start.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        Ok(staging)
    }

    /// A copy of the first bytes, or of all where there are fewer. No command may write to them any more.
    pub(crate) fn to_vec(&self, bytes: usize) -> Vec<u8> {
        let start = std::ptr::with_exposed_provenance::<u8>(self.address);
        // SAFETY: The bytes are there, and initialized (I1); the caller has waited for the command that wrote to them.
        unsafe { std::slice::from_raw_parts(start, bytes.min(self.bytes)) }.to_vec()
    }

    pub(super) fn address(&self) -> u64 {
        self.address as u64
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.context.keep_staging(self.bytes, self.address) {
            return;
        }
        let address = self.address;
        // SAFETY: Nothing else has this memory (I1), and no command uses it (I2).
        self.context.free("pinned memory", move |driver| unsafe {
            driver.free_host(address)
        });
    }
}
