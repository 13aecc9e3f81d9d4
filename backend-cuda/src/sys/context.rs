//! The primary context of a device.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    current::Current,
    driver::{Access, Address, Driver, Handle, Sharing},
    left::Left,
    relaxed::Relaxed,
    slot::Slot,
    status::{CudaResult, NOT_READY, PEER_ACCESS_ALREADY_ENABLED},
    streams,
    unfreed::{AllUnfreed, LAST_ROUNDS, Unfreed},
};

/// This many events are kept to be used again. Each costs the driver less than 1 KiB.
const IDLE_EVENTS: usize = 4096;

/// This many bytes of staging memory are kept to be used again.
const IDLE_STAGING: usize = 64 << 20;

/// `cuMemSetAccess` answers that it is not ready while other threads enqueue. It is asked this many times, with this pause.
const ATTEMPTS: usize = 200;
const APART: Duration = Duration::from_micros(100);

/// A primary context, which is retained, and objects of it that are used again.
///
/// # Invariants
///
/// I1: `raw` is the primary context of `device`, retained until this value is dropped. Every object of it in this crate keeps a
/// reference to this value.
pub(crate) struct Context {
    driver: Arc<Driver>,
    device: i32,
    raw: Handle,
    is_lost: AtomicBool,
    /// The devices that may use this one's memory, `CUdevice`.
    peers: Mutex<Vec<i32>>,
    events: Mutex<Vec<Handle>>,
    /// Pinned memory: size and address.
    staging: Mutex<Vec<(usize, usize)>>,
    pub(super) slots: Mutex<Vec<Slot>>,
    /// The addresses of the memory of slots.
    pub(super) slot_pages: Mutex<Vec<usize>>,
    /// What failed maps have left, until their reservation ends.
    pub(super) left: Mutex<Vec<Left>>,
    unfreed: Mutex<AllUnfreed>,
    /// How far pages can be shared that are created from now on.
    pub(crate) sharing: Mutex<Sharing>,
}

impl Context {
    /// Retains the primary context of a device.
    pub(crate) fn retain(driver: &Arc<Driver>, device: i32) -> CudaResult<Self> {
        let mut raw = 0;
        // SAFETY: `raw` is a place for the result.
        unsafe { driver.context_retain(&raw mut raw, device) }?;
        Ok(Self {
            driver: Arc::clone(driver),
            device,
            raw,
            is_lost: AtomicBool::new(false),
            peers: Mutex::new(Vec::new()),
            events: Mutex::new(Vec::new()),
            staging: Mutex::new(Vec::new()),
            slots: Mutex::new(Vec::new()),
            slot_pages: Mutex::new(Vec::new()),
            left: Mutex::new(Vec::new()),
            unfreed: Mutex::default(),
            sharing: Mutex::default(),
        })
    }

    pub(crate) fn device(&self) -> i32 {
        self.device
    }

    pub(crate) fn raw(&self) -> Handle {
        self.raw
    }

    /// Returns whether both are the same context of the driver.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.raw == other.raw && self.family() == other.family()
    }

    /// A number that contexts of one driver have in common: their objects can be used together.
    pub(crate) fn family(&self) -> usize {
        Arc::as_ptr(&self.driver).addr()
    }

    /// Returns the driver, with this context current on the calling thread as long as the value lives.
    pub(super) fn enter(&self) -> CudaResult<Current<'_>> {
        // It is retained (I1).
        self.seen(Current::set(&self.driver, self.raw))
    }

    /// Returns the driver as [`enter`](Self::enter) does, for calls that it would refuse while a stream is captured. They do not use a
    /// stream or an event of a capture.
    pub(super) fn enter_relaxed(&self) -> CudaResult<Relaxed<'_>> {
        self.seen(self.enter().and_then(Relaxed::set))
    }

    /// Makes a call with this context current, also while a stream is captured.
    pub(super) fn call<T>(&self, call: impl FnOnce(&Driver) -> CudaResult<T>) -> CudaResult<T> {
        let driver = self.enter_relaxed()?;
        self.seen(call(&driver))
    }

    /// Makes a call that writes its result to the place that it is given.
    pub(super) fn ask<T: Default>(
        &self,
        call: impl FnOnce(&Driver, *mut T) -> CudaResult<()>,
    ) -> CudaResult<T> {
        let mut answer = T::default();
        self.call(|driver| call(driver, &raw mut answer))?;
        Ok(answer)
    }

    /// Makes a call that enqueues a command with this context current.
    pub(super) fn enqueue<T>(&self, call: impl FnOnce(&Driver) -> CudaResult<T>) -> CudaResult<T> {
        let driver = self.enter()?;
        self.seen(call(&driver))
    }

    /// Passes on the result of a call, and notes that the context is lost where it says so.
    pub(super) fn seen<T>(&self, result: CudaResult<T>) -> CudaResult<T> {
        if result.as_ref().is_err_and(super::CudaError::is_sticky) {
            self.is_lost.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Returns whether a call has answered that the context is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Waits for all commands of the context. None of its streams may be captured.
    pub(crate) fn synchronize(&self) -> CudaResult<()> {
        // SAFETY: It takes no pointers.
        self.call(|driver| unsafe { driver.context_wait() })
    }

    /// Waits for everything on the device, unless the device may wait for the host, or a stream is captured, whose commands do not run.
    /// Returns whether all has ended.
    pub(crate) fn has_all_ended(&self) -> bool {
        // A context that cannot be waited for is lost, and runs no commands.
        !self.has_unresolved()
            && !self.has_capture()
            && (self.synchronize().is_ok() || self.is_lost())
    }

    /// Returns the free and all bytes of the device.
    pub(crate) fn memory_info(&self) -> CudaResult<(usize, usize)> {
        let mut total = 0;
        // SAFETY: Both are places for the results.
        let free = self.ask(|driver, free| unsafe { driver.memory_info(free, &raw mut total) })?;
        Ok((free, total))
    }

    /// Lets commands of this context use memory of `other`, a context of another device. Returns whether the devices can do that.
    pub(crate) fn enable_peer_access(&self, other: &Self) -> CudaResult<bool> {
        let driver = self.enter()?;
        let mut can = 0;
        // SAFETY: `can` is a place for the result.
        self.seen(unsafe { driver.peer_can(&raw mut can, self.device, other.device) })?;
        if can == 0 {
            return Ok(false);
        }
        // SAFETY: It takes no pointers; the other context is retained (I1).
        match unsafe { driver.peer_enable(other.raw, 0) } {
            Err(error) if error.code() == PEER_ACCESS_ALREADY_ENABLED => {}
            result => self.seen(result)?,
        }
        let mut peers = other.peers.lock();
        if !peers.contains(&self.device) {
            peers.push(self.device);
        }
        Ok(true)
    }

    /// Returns whether the device of `other` may use this one's memory.
    pub(crate) fn has_peer(&self, other: &Self) -> bool {
        self.peers.lock().contains(&other.device)
    }

    /// The rights to new memory of this device: its own, and those of its peers.
    pub(super) fn access(&self) -> Vec<Access> {
        let peers = self.peers.lock();
        let devices = std::iter::once(self.device).chain(peers.iter().copied());
        devices.map(Access::read_and_write).collect()
    }

    /// Lets the device and its peers use addresses where pages are mapped.
    pub(crate) fn allow(&self, address: Address, bytes: usize) -> CudaResult<()> {
        let driver = self.enter_relaxed()?;
        let access = self.access();
        let mut attempts = 0;
        loop {
            // SAFETY: `access` lives until the call returns.
            let result =
                unsafe { driver.set_access(address, bytes, access.as_ptr(), access.len()) };
            attempts += 1;
            match result {
                Err(error) if error.code() == NOT_READY && attempts < ATTEMPTS => {
                    thread::sleep(APART);
                }
                result => return self.seen(result),
            }
        }
    }

    pub(super) fn count_unresolved(&self) {
        self.driver.unresolved.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn count_resolved(&self) {
        self.driver.unresolved.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns whether a device may wait for the host, so that waiting for it could last forever. It may do so over an event of another
    /// device, so this counts those of all devices.
    pub(crate) fn has_unresolved(&self) -> bool {
        self.driver.unresolved.load(Ordering::Acquire) > 0
    }

    /// Notes a stream of this context, which lives until [`forget_stream`](Self::forget_stream).
    pub(super) fn note_stream(&self, stream: Handle) {
        streams::note(&self.driver, self.raw, stream);
    }

    pub(super) fn forget_stream(&self, stream: Handle) {
        streams::forget(&self.driver, self.raw, stream);
    }

    /// Returns whether a stream of any device may be captured. A context cannot be waited for then, since its captured commands do not run.
    pub(crate) fn has_capture(&self) -> bool {
        streams::has_capture(&self.driver)
    }

    pub(super) fn idle_event(&self) -> Option<Handle> {
        self.events.lock().pop()
    }

    /// Returns whether the event is kept.
    pub(super) fn keep_event(&self, event: Handle) -> bool {
        let mut events = self.events.lock();
        let keep = events.len() < IDLE_EVENTS;
        if keep {
            events.push(event);
        }
        keep
    }

    /// Returns the address of idle staging memory of this many bytes.
    pub(super) fn idle_staging(&self, bytes: usize) -> Option<usize> {
        let mut staging = self.staging.lock();
        let at = staging.iter().position(|(size, _)| *size == bytes)?;
        Some(staging.swap_remove(at).1)
    }

    /// Returns whether the staging memory is kept. It is where freeing it might wait forever.
    pub(super) fn keep_staging(&self, bytes: usize, address: usize) -> bool {
        let mut staging = self.staging.lock();
        let idle: usize = staging.iter().map(|(bytes, _)| bytes).sum();
        let keep = idle.saturating_add(bytes) <= IDLE_STAGING || self.has_unresolved();
        if keep {
            staging.push((bytes, address));
        }
        keep
    }

    /// Frees something of this context. Where the driver refuses, [`free_again`](Self::free_again) asks again.
    pub(super) fn free(
        &self,
        what: &'static str,
        mut free: impl FnMut(&Driver) -> CudaResult<()> + Send + 'static,
    ) {
        let freed = self.call(&mut free);
        self.freed(what, freed, free);
    }

    /// Takes the result of a call that was to free something, and what frees it where the call has failed.
    pub(super) fn freed(
        &self,
        what: &'static str,
        result: CudaResult<()>,
        again: impl FnMut(&Driver) -> CudaResult<()> + Send + 'static,
    ) {
        let Err(error) = self.seen(result) else {
            return;
        };
        tracing::warn!(%error, "could not free {what}");
        // A context that is lost frees nothing.
        if !error.is_sticky() {
            let free = Box::new(again);
            self.unfreed.lock().push_back(Unfreed { what, free });
        }
    }

    /// Asks again for one thing that the driver has refused to free, unless that might wait forever, or a stream is captured.
    pub(crate) fn free_again(&self) {
        let is_any = !self.unfreed.lock().is_empty();
        if !is_any || self.has_unresolved() || self.has_capture() {
            return;
        }
        let next = self.unfreed.lock().pop_front();
        if let Some(mut unfreed) = next
            && let Err(error) = self.call(&mut unfreed.free)
            && !error.is_sticky()
        {
            self.unfreed.lock().push_back(unfreed);
        }
    }

    /// Drops what graphs have kept that are gone.
    #[inline]
    pub(crate) fn drop_what_graphs_kept(&self) {
        self.driver.of_ended_graphs.clear();
    }

    fn free_all(&self) {
        let events = std::mem::take(&mut *self.events.lock());
        for event in events {
            // SAFETY: It takes no pointers; nothing uses the event.
            self.free("an event", move |driver| unsafe {
                driver.event_destroy(event)
            });
        }
        let pages = std::mem::take(&mut *self.slot_pages.lock());
        let staging = std::mem::take(&mut *self.staging.lock());
        for address in staging.into_iter().map(|(_, address)| address).chain(pages) {
            // SAFETY: Nothing uses this memory: commands and slots keep a reference to this context. The driver itself waits for
            // streams that compare with a slot.
            self.free("pinned memory", move |driver| unsafe {
                driver.free_host(address)
            });
        }
        let attempts = LAST_ROUNDS * self.unfreed.lock().len();
        (0..attempts).for_each(|_| self.free_again());
        for unfreed in self.unfreed.lock().drain(..) {
            tracing::error!(
                "{} stays until the process ends: the driver has not freed it",
                unfreed.what
            );
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.free_all();
        // SAFETY: It takes no pointers; this value is the last that uses the context (I1).
        if let Err(error) = unsafe { self.driver.context_release(self.device) } {
            tracing::error!(%error, "could not release a context");
        }
    }
}
