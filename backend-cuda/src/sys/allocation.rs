//! Memory that the driver has allocated.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    context::Context,
    driver::{Address, Driver, Handle, Properties},
    staging::allocate_host,
    status::CudaResult,
    stream::{LEGACY, Stream},
};

/// Every stream and the host may use managed memory.
const ATTACH_GLOBAL: u32 = 1;
const RELEASE_THRESHOLD: i32 = 4;
const RESERVED_HIGH: i32 = 6;
const USED_HIGH: i32 = 8;

/// How memory was allocated, and so how it is freed.
enum Source {
    Device,
    Host,
    Managed,
    Pool {
        /// Keeps the pool.
        _pool: Arc<DriverPool>,
        /// It is freed there.
        stream: Handle,
    },
}

/// Memory of the driver, freed when this value is dropped.
///
/// # Invariants
///
/// I1: `address` is that of an allocation from `source` that nothing else frees.
/// I2: The stream of a pool's memory lives as long as this value.
pub(crate) struct Allocation {
    context: Arc<Context>,
    address: Address,
    source: Source,
}

impl Allocation {
    pub(crate) fn device(context: &Arc<Context>, bytes: usize) -> CudaResult<Self> {
        // SAFETY: `address` is a place for the result.
        let address = context.ask(|driver, address| unsafe { driver.allocate(address, bytes) })?;
        Ok(Self::own(context, address, Source::Device))
    }

    /// Pinned memory of the host.
    pub(crate) fn host(context: &Arc<Context>, bytes: usize) -> CudaResult<Self> {
        let address = allocate_host(context, bytes)? as Address;
        Ok(Self::own(context, address, Source::Host))
    }

    /// Memory that the driver moves between host and device.
    pub(crate) fn managed(context: &Arc<Context>, bytes: usize) -> CudaResult<Self> {
        let address = context.ask(|driver, address| {
            // SAFETY: `address` is a place for the result.
            unsafe { driver.allocate_managed(address, bytes, ATTACH_GLOBAL) }
        })?;
        Ok(Self::own(context, address, Source::Managed))
    }

    /// Memory of a pool of the driver. It is there when this returns.
    pub(crate) fn pooled(pool: &Arc<DriverPool>, bytes: usize) -> CudaResult<Self> {
        let allocation = Self::ordered(pool, &pool.stream, bytes)?;
        // Nothing but allocations and frees is on this stream, and none of them waits.
        pool.stream.synchronize()?;
        Ok(allocation)
    }

    /// Memory of a pool of the driver. It is there for what is enqueued on the stream from now on, and freed after what is enqueued there
    /// when this value is dropped, before which the caller keeps the stream.
    pub(crate) fn ordered(
        pool: &Arc<DriverPool>,
        stream: &Stream,
        bytes: usize,
    ) -> CudaResult<Self> {
        let (context, stream) = (&pool.context, stream.raw());
        let address = context.ask(|driver, address| {
            // SAFETY: `address` is a place for the result; pool and stream live.
            unsafe { driver.pool_allocate(address, bytes, pool.raw, stream) }
        })?;
        let source = Source::Pool {
            _pool: Arc::clone(pool),
            stream,
        };
        Ok(Self::own(context, address, source))
    }

    fn own(context: &Arc<Context>, address: Address, source: Source) -> Self {
        Self {
            context: Arc::clone(context),
            address,
            source,
        }
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns whether it is memory of one device, rather than of the host or of all devices.
    pub(crate) fn is_of_device(&self) -> bool {
        matches!(self.source, Source::Device | Source::Pool { .. })
    }

    /// Returns whether freeing it waits for all commands of the device.
    pub(crate) fn waits(&self) -> bool {
        !matches!(self.source, Source::Pool { .. })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let (address, what) = (self.address, "memory");
        // For all of these: nothing else frees it (I1), and no command uses it any more, which the graveyard sees to, or none but those
        // that are before on its stream.
        match self.source {
            // SAFETY: See above.
            Source::Device | Source::Managed => self
                .context
                .free(what, move |driver| unsafe { driver.free(address) }),
            // SAFETY: See above.
            Source::Host => self.context.free(what, move |driver| unsafe {
                driver.free_host(usize::try_from(address).unwrap_or(0))
            }),
            Source::Pool { stream, .. } => {
                // SAFETY: See above; the stream lives (I2).
                let free = |driver: &Driver| unsafe { driver.pool_free(address, stream) };
                let freed = self.context.call(free);
                // The stream may be gone by then, and its commands have ended after the wait.
                self.context.freed(what, freed, move |driver| {
                    // SAFETY: It takes no pointers.
                    unsafe { driver.context_wait() }?;
                    // SAFETY: See above.
                    unsafe { driver.pool_free(address, LEGACY) }
                });
            }
        }
    }
}

/// A memory pool of the driver (`CUmemoryPool`).
///
/// # Invariants
///
/// I1: `raw` is a pool of `context` that nothing else destroys.
pub(crate) struct DriverPool {
    context: Arc<Context>,
    stream: Stream,
    raw: Handle,
}

impl DriverPool {
    pub(crate) fn create(context: &Arc<Context>) -> CudaResult<Self> {
        let stream = Stream::create(context)?;
        let properties = Properties::on(context.device());
        // SAFETY: `raw` is a place for the result, and `properties` lives until the call returns.
        let raw =
            context.ask(|driver, raw| unsafe { driver.pool_create(raw, &raw const properties) })?;
        let pool = Self {
            context: Arc::clone(context),
            stream,
            raw,
        };
        pool.allow_peers()?;
        Ok(pool)
    }

    /// Lets the device's peers use its memory.
    fn allow_peers(&self) -> CudaResult<()> {
        // A device may use its own pools in any case.
        let access = self.context.access();
        let peers = access.get(1..).unwrap_or_default();
        if peers.is_empty() {
            return Ok(());
        }
        let (peers, count) = (peers.as_ptr(), peers.len());
        // SAFETY: `peers` lives until the call returns; the pool lives (I1).
        self.context
            .call(|driver| unsafe { driver.pool_access(self.raw, peers, count) })
    }

    /// Sets how many free bytes it keeps.
    pub(crate) fn set_release_threshold(&self, bytes: u64) -> CudaResult<()> {
        let bytes = &raw const bytes;
        // SAFETY: `bytes` lives until the call returns; the pool lives (I1).
        self.context
            .call(|driver| unsafe { driver.pool_set(self.raw, RELEASE_THRESHOLD, bytes) })
    }

    /// Returns the most bytes that it had of the device, and the most that were allocated from it.
    pub(crate) fn peaks(&self) -> CudaResult<(u64, u64)> {
        Ok((self.attribute(RESERVED_HIGH)?, self.attribute(USED_HIGH)?))
    }

    fn attribute(&self, attribute: i32) -> CudaResult<u64> {
        // SAFETY: `value` is a place for the result; the pool lives (I1).
        self.context
            .ask(|driver, value| unsafe { driver.pool_get(self.raw, attribute, value) })
    }

    /// Returns how long the bare calls take that allocate on a stream and free there, `pairs` times.
    pub(crate) fn time_pairs(
        &self,
        stream: &Stream,
        bytes: usize,
        pairs: u64,
    ) -> CudaResult<Duration> {
        let (driver, stream) = (self.context.enter_relaxed()?, stream.raw());
        let start = Instant::now();
        for _ in 0..pairs {
            let mut address = 0;
            // SAFETY: `address` is a place for the result; pool (I1) and stream live.
            let result = unsafe { driver.pool_allocate(&raw mut address, bytes, self.raw, stream) };
            self.context.seen(result)?;
            // SAFETY: It was allocated just now, and nothing uses it.
            let result = unsafe { driver.pool_free(address, stream) };
            self.context.seen(result)?;
        }
        Ok(start.elapsed())
    }

    /// Gives free memory back to the device, but keeps this many bytes.
    pub(crate) fn trim_to(&self, bytes: usize) -> CudaResult<()> {
        // SAFETY: It takes no pointers; the pool lives (I1).
        self.context
            .call(|driver| unsafe { driver.pool_trim(self.raw, bytes) })
    }
}

impl Drop for DriverPool {
    fn drop(&mut self) {
        let raw = self.raw;
        // SAFETY: It takes no pointers; nothing else destroys the pool (I1). Its memory keeps it.
        self.context
            .free("a pool of the driver", move |driver| unsafe {
                driver.pool_destroy(raw)
            });
    }
}
