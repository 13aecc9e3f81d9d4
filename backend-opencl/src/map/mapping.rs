//! A map of memory or of an image, from the command that makes it to the one that ends it.

use std::{iter, slice::from_ref, thread};

use binpool_allocators::{
    Backend, CountedView, Error, Event, EventStatus, HostUse, InvalidRequest, MemoryFlags, Outcome,
    Queue, Region, Result, runtime::Access,
};
use cl3::error_codes::CL_INVALID_VALUE;

#[cfg(feature = "images")]
use crate::image::{ClImage, ImageRegion};
use crate::{
    backend::OpenClBackend,
    event::ClEvent,
    memory::cl_memory::ClMemory,
    order::{
        access_log::{MapId, wait_for},
        admission::CommandAdmission,
        memory_use::MemoryUse,
        tracked_command::Earlier,
    },
    queue::ClQueue,
    sys::{
        self, ClResult, EventHandle, MapShape, Purpose, WaitList, map::HostView,
        transfer::DevicePixels,
    },
};

/// The object that is mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mapped<'m> {
    /// Bytes of a buffer or of shared virtual memory.
    Memory(&'m ClMemory, Region),
    /// Pixels of an image.
    #[cfg(feature = "images")]
    Image(&'m ClImage, ImageRegion),
}

/// How the host writes memory that is mapped for it.
///
/// ```
/// use std::io::{Cursor, Read};
///
/// use binpool_allocators::MemoryFlags;
/// use binpool_opencl::MapMode;
/// # use binpool_allocators::{Backend, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
///
/// // From a file to the device, without a vector between: what the memory held is not fetched first.
/// let mut file = Cursor::new([7; 4096]);
/// let memory = backend.create_buffer(4096, MemoryFlags::HOST_WRITE_ONLY)?;
/// let pending = backend.enqueue_map_mut::<u8>(&queue, &memory, 0..4096, MapMode::Overwrite)?;
/// file.read_exact(&mut pending.wait()?)?;
///
/// // A part of it.
/// let pending = backend.enqueue_map_mut::<u8>(&queue, &memory, 0..4096, MapMode::Write)?;
/// pending.wait()?[1] = 30;
///
/// let copy = backend.create_buffer(4096, MemoryFlags::empty())?;
/// backend.enqueue_copy(&queue, &memory, .., &copy, 0)?;
/// assert_eq!(backend.map::<u8>(&queue, &copy, ..)?[..3], [7, 30, 7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapMode {
    /// It reads the memory, too.
    ReadWrite,
    /// It writes parts; the others keep their values. The memory may be one that the host only writes
    /// ([`HOST_WRITE_ONLY`](MemoryFlags::HOST_WRITE_ONLY)). The slice has the contents of the memory, but reading it may be slow.
    Write,
    /// It writes everything. The contents are unspecified at first, since the runtime need not fetch them, and afterwards where nothing was
    /// written.
    Overwrite,
}

impl MapMode {
    /// The runtime's flags for a map to be written so; for `None`, to be read.
    const fn flags(mode: Option<Self>) -> u64 {
        use cl3::memory::{CL_MAP_READ, CL_MAP_WRITE, CL_MAP_WRITE_INVALIDATE_REGION};
        match mode {
            None => CL_MAP_READ,
            Some(Self::ReadWrite) => CL_MAP_READ | CL_MAP_WRITE,
            Some(Self::Write) => CL_MAP_WRITE,
            Some(Self::Overwrite) => CL_MAP_WRITE_INVALIDATE_REGION,
        }
    }

    /// Checks that memory of these flags may be used so.
    pub(crate) fn check(mode: Option<Self>, flags: MemoryFlags) -> Result<()> {
        if matches!(mode, None | Some(Self::ReadWrite)) {
            flags.check_host(HostUse::Read)?;
        }
        mode.map_or(Ok(()), |_| flags.check_host(HostUse::Write))
    }
}

/// A map. Dropping it enqueues its end.
#[derive(Debug)]
pub(crate) struct Mapping<'m> {
    backend: OpenClBackend,
    queue: ClQueue,
    mapped: Mapped<'m>,
    access: Access,
    id: MapId,
    view: HostView,
    /// The command that makes the map.
    event: ClEvent,
    ended: bool,
    /// A map that is forgotten counts as a view of its memory forever, so a pool gives mapped memory to no other owner.
    counted: Option<CountedView>,
}

impl<'m> Mapped<'m> {
    fn used(&self, access: Access) -> MemoryUse<'m> {
        match *self {
            Self::Memory(memory, region) => memory.used(region, access),
            #[cfg(feature = "images")]
            Self::Image(image, _) => image.used(access),
        }
    }

    #[cfg_attr(
        not(feature = "images"),
        expect(clippy::unnecessary_wraps, reason = "images may count none")
    )]
    fn count_view(&self) -> Option<CountedView> {
        match self {
            Self::Memory(memory, _) => Some(memory.count_view()),
            #[cfg(feature = "images")]
            Self::Image(image, _) => image.count_view(),
        }
    }

    fn shape(&self) -> MapShape {
        match *self {
            Self::Memory(_, region) => MapShape {
                bytes: region.bytes,
                item: 1,
                rows_are_layers: false,
            },
            #[cfg(feature = "images")]
            Self::Image(image, region) => image.map_shape(region),
        }
    }

    fn bytes(&self) -> usize {
        self.shape().bytes
    }

    /// Returns what the runtime maps.
    fn on_device(&self) -> DevicePixels<'m> {
        match *self {
            Self::Memory(memory, region) => DevicePixels::Bytes(memory.bytes_to_map(region)),
            #[cfg(feature = "images")]
            Self::Image(image, region) => image.pixels_to_map(region),
        }
    }

    fn enqueue(
        &self,
        queue: &ClQueue,
        flags: u64,
        wait: &WaitList<'_>,
    ) -> ClResult<(EventHandle, HostView)> {
        sys::map::enqueue_map(queue.handle(), self.on_device(), self.shape(), flags, wait)
    }

    fn enqueue_end(
        &self,
        queue: &ClQueue,
        view: &HostView,
        wait: &WaitList<'_>,
    ) -> ClResult<EventHandle> {
        sys::map::enqueue_unmap(queue.handle(), self.on_device(), view, wait)
    }
}

impl<'m> Mapping<'m> {
    /// Enqueues a map of a non-empty object of this backend.
    pub(crate) fn enqueue(
        backend: &OpenClBackend,
        queue: &ClQueue,
        mapped: Mapped<'m>,
        mode: Option<MapMode>,
        wait_for: &[ClEvent],
    ) -> Result<Self> {
        let access = mode.map_or(Access::Read, |_| Access::Write);
        let used = mapped.used(access);
        let named = OpenClBackend::named(wait_for);
        let (admission, id) = CommandAdmission::of_map(queue, &used, named)?;
        let purpose = Purpose::Memory(mapped.bytes());
        let mut view = None;
        let enqueued = backend.submit_admitted(queue, purpose, admission, wait_for, |wait| {
            let (event, mapped) = mapped.enqueue(queue, MapMode::flags(mode), wait)?;
            view = Some(mapped);
            Ok(event)
        });
        let mapping = enqueued.and_then(|event| {
            let Some(view) = view else {
                // Nothing was enqueued, since an event to wait for had failed: later commands need not come after this one.
                if let Some(command) = event.tracked() {
                    command.gone();
                }
                let failed = event.wait().err();
                return Err(failed.unwrap_or(InvalidRequest::ZeroSize.into()));
            };
            Ok(Self {
                backend: backend.clone(),
                queue: queue.clone(),
                mapped,
                access,
                id,
                view,
                event,
                ended: false,
                counted: mapped.count_view(),
            })
        });
        if mapping.is_err() {
            used.log.forget_map(id);
        }
        mapping
    }

    pub(crate) const fn event(&self) -> &ClEvent {
        &self.event
    }

    /// Returns the number of mapped pixels along each coordinate, and the size of a pixel in bytes; zeros if no image is
    /// mapped.
    #[cfg(feature = "images")]
    pub(crate) fn pixels(&self) -> ([usize; 3], usize) {
        match self.mapped {
            Mapped::Memory(..) => ([0; 3], 0),
            #[cfg(feature = "images")]
            Mapped::Image(image, region) => (region.size, image.item_bytes()),
        }
    }

    pub(crate) const fn view(&self) -> &HostView {
        &self.view
    }

    pub(crate) const fn view_mut(&mut self) -> &mut HostView {
        &mut self.view
    }

    /// Waits until the memory is there.
    pub(crate) fn wait(&self) -> Result<()> {
        self.event.wait()
    }

    /// Ends the map by a command on `queue`, after `wait_for`.
    pub(crate) fn end(mut self, queue: &ClQueue, wait_for: &[ClEvent]) -> Result<ClEvent> {
        self.backend.check_own_queue(queue)?;
        self.backend.check_own_events(wait_for)?;
        self.enqueue_end(queue, wait_for)
    }

    /// Ends the map by a command on the queue that it was made on.
    pub(crate) fn end_here(mut self) -> Result<ClEvent> {
        let queue = self.queue.clone();
        self.enqueue_end(&queue, &[])
    }

    /// Returns the commands that are making other maps of the same address.
    ///
    /// A runtime identifies a map by its address, so an unmap may end another map of that address. `PoCL` then frees memory
    /// that the command which makes the other map works on.
    fn others_being_made(&self) -> Earlier {
        let MemoryUse { log, region, .. } = self.mapped.used(self.access);
        log.other_maps_being_made(region.offset, self.id)
    }

    /// Returns an event that completes when these events, these commands and all that they come after have ended, even if
    /// they fail; `None` if there is nothing to wait for. A thread of its own waits.
    fn all_ended(&self, commands: Earlier, events: &[ClEvent]) -> Result<Option<ClEvent>> {
        let pending = events.iter().filter(|event| !event.has_ended());
        let pending = pending.map(|event| event.handle().another());
        let pending: Vec<_> = pending.collect::<ClResult<_>>()?;
        if pending.is_empty() && are_over(&commands) {
            return Ok(None);
        }
        let all_ended = self.backend.create_user_event()?;
        let resolved = all_ended.clone();
        let wait_and_resolve = move || {
            for event in &pending {
                let _failed_or_not = sys::wait_until_ended(event);
            }
            while wait_for(commands.clone()).unwrap_or(false) {}
            if let Err(error) = resolved.resolve(Outcome::Complete) {
                tracing::error!(%error, "memory stays mapped, and no command can use it");
            }
        };
        let thread = thread::Builder::new().name("binpool-unmap".into());
        thread
            .spawn(wait_and_resolve)
            .map(|_| Some(all_ended))
            .map_err(|error| Error::backend("starting a thread", error.raw_os_error(), error))
    }

    /// Ends the map by a command of `queue`, after `wait_for`.
    fn enqueue_end(&mut self, queue: &ClQueue, wait_for: &[ClEvent]) -> Result<ClEvent> {
        match self.end_on(queue, wait_for)? {
            Some(ended) => Ok(ended),
            None => self.end_elsewhere(queue, wait_for),
        }
    }

    /// Ends the map on `queue` itself. `None` if something could fail that the runtime makes the end come after.
    fn end_on(&mut self, queue: &ClQueue, wait_for: &[ClEvent]) -> Result<Option<ClEvent>> {
        let others = self.others_being_made();
        let must_not_fail = self.must_not_fail();
        // Commands may be pending that the log does not name: on a queue whose bare handle the program has, and on one that the
        // runtime keeps in order though the program did not ask for it.
        let is_known = queue.id_if_exposed().is_none() && self.keeps_order_as_asked(queue);
        if !others.is_empty() || must_not_fail && !is_known {
            return Ok(None);
        }
        let used = self.mapped.used(self.access);
        let mut after = self.after(wait_for);
        let named = OpenClBackend::named(&after);
        let mut admission = CommandAdmission::of_unmap((queue, queue), &used, self.id, named)?;
        if must_not_fail {
            let earlier = admission.take_earlier();
            let completed = |event: &ClEvent| matches!(event.status(), Ok(EventStatus::Complete));
            if !are_over(&earlier) || !after.iter().all(completed) {
                return Ok(None);
            }
            after.clear();
        }
        self.submit_end(queue, admission, &after).map(Some)
    }

    /// Ends the map by a command of `home` on a queue of its own, which no failure on `home` reaches.
    fn end_elsewhere(&mut self, home: &ClQueue, wait_for: &[ClEvent]) -> Result<ClEvent> {
        let used = self.mapped.used(self.access);
        let others = self.others_being_made();
        // One on which the end waits for no command of the program's queue.
        let queue = ClQueue::for_one_command(self.queue.context())?;
        // Nothing on the program's queue waits for other maps that are being made: `finish` would wait for what those wait for.
        let home = if others.is_empty() { home } else { &queue };
        let mut after = self.after(wait_for);
        let named = OpenClBackend::named(&after);
        let mut admission = CommandAdmission::of_unmap((&queue, home), &used, self.id, named)?;
        let mut earlier = admission.take_earlier();
        earlier.extend(others);
        let events = if self.must_not_fail() {
            std::mem::take(&mut after)
        } else {
            Vec::new()
        };
        after.extend(self.all_ended(earlier, &events)?);
        let ended = self.submit_end(&queue, admission, &after)?;
        if home.id_if_exposed().is_some() {
            // For commands that the program enqueues by the bare handle.
            self.backend.enqueue_marker(home.after(from_ref(&ended)))?;
        }
        Ok(ended)
    }

    /// Returns whether the runtime may keep memory forever whose unmap fails. Commands that are enqueued meanwhile fail with it, too.
    fn must_not_fail(&self) -> bool {
        self.backend.context().quirks.failed_maps_keep_memory
    }

    /// Returns whether the runtime adds no order of its own to that of `queue`.
    fn keeps_order_as_asked(&self, queue: &ClQueue) -> bool {
        queue.is_in_order() || !self.backend.context().quirks.out_of_order_queues_crash
    }

    /// Returns the events that the end of the map comes after: that of the map, and `wait_for`.
    fn after(&self, wait_for: &[ClEvent]) -> Vec<ClEvent> {
        iter::once(&self.event).chain(wait_for).cloned().collect()
    }

    fn submit_end(
        &mut self,
        queue: &ClQueue,
        admission: CommandAdmission<'_>,
        after: &[ClEvent],
    ) -> Result<ClEvent> {
        let ended = self.backend.submit_admitted(
            queue,
            Purpose::Memory(self.mapped.bytes()),
            admission,
            after,
            |wait| match self.mapped.enqueue_end(queue, &self.view, wait) {
                // Intel's and NVIDIA's runtimes end all maps of an address with the first unmap: this one is ended already.
                Err(error) if error.code == CL_INVALID_VALUE => {
                    sys::enqueue_marker(queue.handle(), wait)
                }
                result => result,
            },
        )?;
        self.ended = true;
        self.mapped.used(self.access).log.forget_map(self.id);
        if after.is_empty() && self.backend.context().quirks.maps_after_ends_keep_memory {
            // Nothing is pending before it.
            let _failed_or_not = sys::wait_until_ended(ended.handle());
        }
        Ok(ended)
    }
}

/// Returns whether nothing has to be waited for in order to come after these commands.
fn are_over(commands: &Earlier) -> bool {
    commands.iter().all(|command| command.is_over())
}

/// How often the end of a map that is dropped is enqueued, where the runtime refuses it.
const TRIES: usize = 8;

impl Drop for Mapping<'_> {
    fn drop(&mut self) {
        let mut last = Ok(());
        for _ in 0..TRIES {
            if self.ended {
                return;
            }
            // NVIDIA's runtime refuses a command that is to wait for an event which has failed, as one may since the last look
            // at it. The next try finds that.
            last = self.end_when_dropped();
        }
        if let Err(error) = last {
            tracing::error!(%error, queue = ?self.queue.id(), "memory stays mapped, and no command can use it");
            std::mem::forget(self.counted.take());
        }
    }
}

impl Mapping<'_> {
    fn end_when_dropped(&mut self) -> Result<()> {
        let queue = self.queue.clone();
        let ended = match self.event.status() {
            Ok(EventStatus::Failed) if !self.must_not_fail() => {
                // Nothing was mapped.
                self.ended = true;
                self.mapped.used(self.access).log.forget_map(self.id);
                return Ok(());
            }
            // A map that is pending may be made later, even though a command between it and its end has failed, and the end with
            // that command. After a map that has failed, the runtime keeps the memory until its address is unmapped.
            Ok(EventStatus::Pending | EventStatus::Failed) => self.end_elsewhere(&queue, &[]),
            _ => self.enqueue_end(&queue, &[]),
        };
        ended.map(drop)
    }
}
