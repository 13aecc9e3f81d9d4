//! The pools under the program: its blocks, streams and contexts.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::c_int,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use binpool::{PoolError, PooledBuffer};
use binpool_cuda::{CudaBackend, CudaLibrary, CudaQueue};
use parking_lot::{Mutex, RwLock};

use super::{
    arguments::DriverPool,
    device_pools::DevicePools,
    driver::{Driver, driver},
    driver_library::DriverLibrary,
    function::{INVALID_VALUE, LEGACY, PER_THREAD, SUCCESS},
    unpooled::Unpooled,
};
use crate::{
    pool_figures::{Counted, note_refusal, report_of_limit, say_refusal, set_reserved},
    recording::report_once,
    settings::settings,
};

/// The pools under the program.
#[derive(Debug)]
pub(super) struct Pooling {
    pub(super) driver: &'static Driver,
    driver_library: &'static DriverLibrary,
    library: Mutex<Option<CudaLibrary>>,
    pub(super) unpooled: Unpooled,
    /// The pools of each context; `None` if its memory does not come from pools.
    devices: RwLock<HashMap<usize, Option<Arc<DevicePools>>>>,
    /// The streams of the program that blocks were allocated for, without default streams.
    streams: RwLock<HashMap<usize, Known>>,
    blocks: Mutex<Blocks>,
    /// The driver's pools: the default ones of devices, and those that the program has made.
    driver_pools: RwLock<HashMap<usize, DriverPool>>,
    /// How often the program retains each primary context.
    retained: Mutex<HashMap<usize, usize>>,
    /// The streams that are being captured.
    captures: AtomicUsize,
    /// Other devices may use memory of `cuMemAlloc`.
    has_peers: AtomicBool,
    /// The program has a pool of its own for memory of `cuMemAllocAsync`, or has given rights to the driver's.
    has_own_pools: AtomicBool,
}

/// The blocks of the program, by their addresses.
#[derive(Debug, Default)]
struct Blocks {
    live: BTreeMap<usize, Held>,
    /// Whole blocks of the driver that the program has freed. The pool may still keep them, so the driver would not refuse a second free.
    freed: HashSet<usize>,
}

/// A stream of the program.
#[derive(Clone, Debug)]
struct Known {
    device: Arc<DevicePools>,
    queue: CudaQueue,
}

/// A block that the program has.
#[derive(Debug)]
struct Held {
    buffer: PooledBuffer<CudaBackend>,
    bytes: usize,
    device: Arc<DevicePools>,
    /// The stream that it was allocated for; `None` if any stream may use it.
    stream: Option<usize>,
    _in_use: Counted,
}

/// Who serves a request.
#[derive(Debug)]
pub(super) enum Served {
    /// A pool, by a block at this address.
    Block(usize),
    /// Neither the pool nor the driver, for lack of memory.
    Refused,
    /// The driver, for this reason.
    Passed(&'static str),
}

impl Pooling {
    /// Returns `None` if the driver lacks what pools need.
    pub(super) fn new(driver_library: &'static DriverLibrary) -> Option<Self> {
        let driver = driver();
        if !driver.is_complete() {
            report("the driver is older than version 11.7");
            return None;
        }
        Some(Self {
            driver,
            driver_library,
            library: Mutex::default(),
            unpooled: Unpooled::new(settings().limit),
            devices: RwLock::default(),
            streams: RwLock::default(),
            blocks: Mutex::default(),
            driver_pools: RwLock::default(),
            retained: Mutex::default(),
            captures: AtomicUsize::new(0),
            has_peers: AtomicBool::new(false),
            has_own_pools: AtomicBool::new(false),
        })
    }

    /// Allocates a block that any stream may use at once.
    pub(super) fn allocate_plain(&self, bytes: usize) -> Served {
        if self.has_peers.load(Ordering::Relaxed) {
            return Served::Passed("other devices may use the memory");
        }
        if self.has_captures() {
            return Served::Passed("a stream is captured");
        }
        let Some(device) = self.device_of(self.driver.current()) else {
            return Served::Passed("not a primary context");
        };
        let made = self.with_more_memory(|| device.allocate_plain(bytes));
        self.give(made, bytes, device, None)
    }

    /// Allocates a block for a stream, in the place of the driver's pool if the program names one.
    pub(super) fn allocate_ordered(
        &self,
        bytes: usize,
        stream: usize,
        pool: Option<usize>,
    ) -> Served {
        if self.has_own_pools.load(Ordering::Relaxed) {
            return Served::Passed("the program has changed the driver's pools");
        }
        if self.is_captured(stream) {
            return Served::Passed("the stream is captured");
        }
        let Some(Known { device, queue }) = self.queue_of(stream) else {
            return Served::Passed("not a primary context");
        };
        if pool.is_some_and(|pool| !self.is_ordinary(pool, device.device)) {
            return Served::Passed("not from an ordinary pool of the device");
        }
        let made = self.with_more_memory(|| device.allocate_ordered(&queue, bytes));
        self.give(made, bytes, device, Some(stream))
    }

    /// Makes a block. If memory is short, other pools release what they keep, and it is tried again.
    fn with_more_memory<T>(&self, make: impl Fn() -> Result<T, PoolError>) -> Result<T, PoolError> {
        match make() {
            Err(error) if error.is_out_of_memory() && self.release_kept() > 0 => make(),
            made => made,
        }
    }

    /// Gives a block to the program.
    fn give(
        &self,
        made: Result<(usize, PooledBuffer<CudaBackend>), PoolError>,
        bytes: usize,
        device: Arc<DevicePools>,
        stream: Option<usize>,
    ) -> Served {
        set_reserved(self.unpooled.budget().used_bytes());
        match made {
            Ok((address, buffer)) => {
                let held = Held {
                    buffer,
                    bytes,
                    device,
                    stream,
                    _in_use: Counted::in_use(bytes),
                };
                // Before the program knows the address.
                let mut blocks = self.blocks.lock();
                blocks.freed.remove(&address);
                blocks.live.insert(address, held);
                Served::Block(address)
            }
            Err(error) if error.is_out_of_memory() => {
                let available = self.unpooled.budget().available_bytes();
                if let Some(report) = report_of_limit(error) {
                    say_refusal(&report);
                    note_refusal(report.requested_bytes, available);
                }
                Served::Refused
            }
            Err(error) => {
                report(error);
                Served::Passed("the pool failed")
            }
        }
    }

    /// Notes that the driver has given a block to the program itself.
    pub(super) fn given_by_driver(&self, address: usize) {
        self.blocks.lock().freed.remove(&address);
    }

    /// Frees a block: on a stream, or at once. Returns `None` for one that is not from a pool.
    pub(super) fn free(&self, address: usize, stream: Option<usize>) -> Option<c_int> {
        if stream.is_some_and(|stream| self.is_captured(stream)) {
            return None;
        }
        let held = {
            let mut blocks = self.blocks.lock();
            match blocks.live.remove(&address) {
                Some(held) => held,
                None if blocks.freed.contains(&address) => return Some(INVALID_VALUE),
                None => return None,
            }
        };
        let context = held.device.context;
        match stream {
            // The default streams of other threads and contexts have the same handles.
            Some(stream) if held.stream != Some(stream) || stream <= PER_THREAD => {
                let known = self.queue_of(stream);
                let recorded = known.map(|known| held.buffer.record_use(&known.queue));
                if !matches!(recorded, Some(Ok(()))) {
                    // A stream that the pool cannot ask, maybe of another context.
                    let context = self.driver.context_of(stream).unwrap_or(context);
                    self.driver.wait_for(context);
                }
            }
            None if held.stream.is_none() => {
                if self.has_captures() || self.has_peers.load(Ordering::Relaxed) {
                    // To wait would spoil the capture, or is not enough: the driver frees it.
                    drop(held.buffer.detach());
                    return Some(SUCCESS);
                }
                // The driver's own call waits, too, and programs rely on that.
                let code = self.driver.wait_for(context);
                if code != SUCCESS {
                    self.blocks.lock().live.insert(address, held);
                    return Some(code);
                }
            }
            // As for the driver: all uses have ended, or come earlier on the block's own stream.
            _ => {}
        }
        if held.stream.is_none() {
            self.blocks.lock().freed.insert(address);
        }
        drop(held);
        set_reserved(self.unpooled.budget().used_bytes());
        Some(SUCCESS)
    }

    /// Where the block of an address begins, and its bytes.
    pub(super) fn range(&self, address: usize) -> Option<(usize, usize)> {
        let blocks = self.blocks.lock();
        let (start, held) = blocks.live.range(..=address).next_back()?;
        (address - start < held.bytes).then_some((*start, held.bytes))
    }

    /// The free and all bytes that the program can have, by those of the device.
    pub(super) fn memory(&self, (free, total): (usize, usize)) -> (usize, usize) {
        let device = self.device_of(self.driver.current());
        let kept = device.map_or(0, |device| device.kept_bytes());
        let free = free.saturating_add(kept).min(total);
        let Some(limit) = self.unpooled.limit() else {
            return (free, total);
        };
        let devices = self.devices.read();
        let pooled = devices.values().flatten().map(|device| device.used_bytes());
        let used = pooled.sum::<usize>() + self.unpooled.bytes();
        (free.min(limit.saturating_sub(used)), total.min(limit))
    }

    /// Releases all that pools keep, and returns the bytes.
    pub(super) fn release_kept(&self) -> u64 {
        let devices: Vec<_> = self.devices.read().values().flatten().cloned().collect();
        devices.iter().map(|device| device.release_kept()).sum()
    }
}

/// # Captures, and what else keeps memory from coming from pools
impl Pooling {
    fn has_captures(&self) -> bool {
        self.captures.load(Ordering::SeqCst) > 0
    }

    /// Returns whether a stream is being captured.
    pub(super) fn is_captured(&self, stream: usize) -> bool {
        self.has_captures() && self.driver.may_be_captured(stream)
    }

    pub(super) fn begin_capture(&self) {
        self.captures.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn end_capture(&self) {
        let one_less = |captures: usize| captures.checked_sub(1);
        let _none_was_noted =
            self.captures
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
    }

    pub(super) fn enable_peers(&self) {
        self.has_peers.store(true, Ordering::SeqCst);
    }

    /// Gives rights that the program has given to a pool of the driver to the blocks that came from pools of the layer in its place.
    pub(super) fn share(&self, pool: usize, access: usize, count: usize) {
        let blocks: Vec<_> = {
            let blocks = self.blocks.lock();
            let ordered = blocks.live.iter().filter(|(_, held)| held.stream.is_some());
            ordered
                .map(|(address, held)| (*address, held.bytes, held.device.device))
                .collect()
        };
        let mut end_of_shared = 0;
        for (address, bytes, device) in blocks {
            // Blocks in the place of several pools may be on the same pages.
            if !self.is_ordinary(pool, device) {
                continue;
            }
            let mut at = address.max(end_of_shared);
            while at < address + bytes {
                let mapping = self.driver.mapping(at);
                let shared = mapping.filter(|pages| self.driver.give_access(*pages, access, count));
                let Some((start, bytes)) = shared else {
                    return report(
                        "other devices cannot use memory that was allocated before they got access",
                    );
                };
                at = start + bytes;
            }
            end_of_shared = at.max(end_of_shared);
        }
    }

    pub(super) fn change_pools(&self) {
        self.has_own_pools.store(true, Ordering::SeqCst);
    }

    /// Notes what a pool of the driver is.
    pub(super) fn note_pool(&self, pool: usize, what: DriverPool) {
        self.driver_pools.write().insert(pool, what);
    }

    /// Forgets a pool of the driver, which has ended.
    pub(super) fn forget_pool(&self, pool: usize) {
        self.driver_pools.write().remove(&pool);
    }

    /// Releases what is kept, if the pools of the layer are in the place of this one of the driver.
    pub(super) fn release_in_place_of(&self, pool: usize) {
        if matches!(self.driver_pool(pool), Some(DriverPool::Ordinary { .. })) {
            self.release_kept();
        }
    }

    /// Returns what a pool of the driver is, if that is known.
    pub(super) fn driver_pool(&self, pool: usize) -> Option<DriverPool> {
        self.driver_pools.read().get(&pool).copied()
    }

    fn is_ordinary(&self, pool: usize, device: usize) -> bool {
        self.driver_pool(pool) == Some(DriverPool::Ordinary { device })
    }
}

/// # Contexts and streams
impl Pooling {
    /// The pools of a context, if it is the primary one of its device and current.
    fn device_of(&self, context: usize) -> Option<Arc<DevicePools>> {
        if let Some(known) = self.devices.read().get(&context) {
            return known.clone();
        }
        // Whether it is primary is known of a current one.
        if context == 0 || self.driver.current() != context {
            return None;
        }
        let mut devices = self.devices.write();
        let opened = devices.entry(context).or_insert_with(|| self.open(context));
        opened.clone()
    }

    /// Makes the pools of a context.
    fn open(&self, context: usize) -> Option<Arc<DevicePools>> {
        let device = usize::try_from(self.driver.device()?).ok()?;
        // To open the device would make a primary context.
        if self.driver.has_primary(device) != Some(true) {
            return None;
        }
        let mut library = self.library.lock();
        if library.is_none() {
            // SAFETY: it is the driver's library, which is loaded.
            match unsafe { CudaLibrary::open(&self.driver_library.path) } {
                Ok(opened) => *library = Some(opened),
                Err(error) => report(error),
            }
        }
        if let Some(pool) = self.driver.pool_of(device) {
            self.note_pool(pool, DriverPool::Ordinary { device });
        }
        match DevicePools::open(library.as_ref()?, device, context, self.unpooled.budget()) {
            Ok(pools) => pools.map(Arc::new),
            Err(error) => {
                report(error);
                None
            }
        }
    }

    /// The queue of a stream, with the pools of its context.
    fn queue_of(&self, stream: usize) -> Option<Known> {
        if stream == LEGACY || stream == PER_THREAD {
            let device = self.device_of(self.driver.current())?;
            let queue = device.queue_of(stream)?;
            return Some(Known { device, queue });
        }
        if let Some(known) = self.streams.read().get(&stream) {
            return Some(known.clone());
        }
        let device = self.device_of(self.driver.context_of(stream)?)?;
        let queue = device.queue_of(stream)?;
        let known = Known { device, queue };
        self.streams.write().insert(stream, known.clone());
        Some(known)
    }

    /// Ends a stream. Returns whether it lives on, until no pool needs it any more.
    pub(super) fn end_stream(&self, stream: usize) -> bool {
        let Some(Known { device, queue }) = self.streams.write().remove(&stream) else {
            return false;
        };
        device.end(stream, queue, |stream| self.driver.destroy(stream));
        true
    }

    /// Forgets a context that ends, which has no pools.
    pub(super) fn forget(&self, context: usize) -> Option<Arc<DevicePools>> {
        self.devices.write().remove(&context).flatten()
    }

    /// Counts a use of the primary context of a device by the program.
    pub(super) fn retain(&self, device: usize) {
        *self.retained.lock().entry(device).or_default() += 1;
    }

    /// Counts the end of a use. All memory goes back with the last one, as the context would end then.
    pub(super) fn release(&self, device: usize) {
        let is_last = {
            let mut retained = self.retained.lock();
            let count = retained.entry(device).or_default();
            *count = count.saturating_sub(1);
            *count == 0
        };
        if is_last {
            self.close(device);
        }
    }

    /// Gives back all memory of a device, whose primary context ends.
    pub(super) fn close(&self, device: usize) {
        let is_of = |pools: &DevicePools| pools.device == device;
        let closed: Vec<_> = {
            let mut devices = self.devices.write();
            let of_device = devices.extract_if(|_, pools| pools.as_deref().is_some_and(is_of));
            of_device.filter_map(|(_, pools)| pools).collect()
        };
        let ended = DriverPool::Ordinary { device };
        self.driver_pools.write().retain(|_, pool| *pool != ended);
        for pools in &closed {
            self.driver.wait_for(pools.context);
        }
        let blocks: BTreeMap<_, _> = {
            let live = &mut self.blocks.lock().live;
            let all = std::mem::take(live).into_iter();
            let (of_device, others) = all.partition(|(_, held)| is_of(&held.device));
            *live = others;
            of_device
        };
        drop(blocks);
        let mut streams = self.streams.write();
        let of_device = streams.extract_if(|_, known| is_of(&known.device));
        let ended: Vec<_> = of_device.collect();
        drop(streams);
        drop(ended);
        for pools in closed {
            pools.destroy_ended(|stream| self.driver.destroy(stream));
        }
    }
}

/// Says once why a pool cannot be used.
fn report(what: impl std::fmt::Display) {
    report_once(format_args!("a pool for CUDA: {what}"));
}
