//! A map of one object, whatever that is, from the command that makes it to the one that ends it.

use binpool_allocators::{Event, HostUse, InvalidRequest, Queue, Region, Result};

use crate::{
    backend::OpenClBackend,
    cl_error::{ClResult, Purpose},
    event::ClEvent,
    image::{ClImage, ImageKind, ImageRegion},
    memory::cl_memory::ClMemory,
    order::access::{Access, Use},
    order::access_log::MapId,
    order::admission::Admission,
    queue::ClQueue,
    sys::{self, EventHandle, Place, WaitList, map::HostView},
};

/// What is mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mapped<'m> {
    /// Bytes of a buffer or of shared virtual memory.
    Memory(&'m ClMemory, Region),
    /// Pixels of an image.
    Image(&'m ClImage, ImageRegion),
}

/// How the host uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapMode {
    Read,
    ReadWrite,
    /// What was there is not needed.
    Overwrite,
}

impl MapMode {
    const fn flags(self) -> u64 {
        use cl3::memory::{CL_MAP_READ, CL_MAP_WRITE, CL_MAP_WRITE_INVALIDATE_REGION};
        match self {
            Self::Read => CL_MAP_READ,
            Self::ReadWrite => CL_MAP_READ | CL_MAP_WRITE,
            Self::Overwrite => CL_MAP_WRITE_INVALIDATE_REGION,
        }
    }

    /// What the host does by it.
    pub(crate) const fn host_uses(self) -> &'static [HostUse] {
        match self {
            Self::Read => &[HostUse::Read],
            Self::ReadWrite => &[HostUse::Read, HostUse::Write],
            Self::Overwrite => &[HostUse::Write],
        }
    }

    const fn access(self) -> Access {
        match self {
            Self::Read => Access::Read,
            Self::ReadWrite | Self::Overwrite => Access::Write,
        }
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
}

impl<'m> Mapped<'m> {
    fn used(&self, access: Access) -> Use<'m> {
        match *self {
            Self::Memory(memory, region) => memory.used(region, access),
            Self::Image(image, _) => image.used(access),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Memory(_, region) => region.bytes,
            Self::Image(image, region) => {
                let pixels = region.pixels().unwrap_or(usize::MAX);
                pixels.saturating_mul(image.item_bytes())
            }
        }
    }

    fn enqueue(
        &self,
        queue: &ClQueue,
        flags: u64,
        wait: &WaitList<'_>,
    ) -> ClResult<(EventHandle, HostView)> {
        let queue = queue.handle();
        match *self {
            Self::Memory(memory, region) => match memory.mapped_place(region) {
                Some(Place::Svm(range)) => sys::map::enqueue_svm_map(queue, range, flags, wait),
                Some(Place::Buffer(buffer, offset)) => {
                    sys::map::enqueue_map_buffer(queue, (buffer, offset), region.bytes, flags, wait)
                }
                // Only a block that is being freed has no place, and that is not borrowed here.
                None => Err(crate::ClError::new(
                    "clEnqueueMapBuffer",
                    cl3::error_codes::CL_INVALID_MEM_OBJECT,
                )),
            },
            Self::Image(image, region) => {
                let rows_are_layers = image.shape().kind() == ImageKind::D1Array;
                let rows = (image.item_bytes(), rows_are_layers);
                sys::map::enqueue_map_image(queue, (image.handle(), region), rows, flags, wait)
            }
        }
    }

    fn enqueue_end(
        &self,
        queue: &ClQueue,
        view: &HostView,
        wait: &WaitList<'_>,
    ) -> ClResult<EventHandle> {
        let queue = queue.handle();
        match self {
            Self::Memory(memory, region) => match memory.mapped_place(*region) {
                Some(Place::Buffer(buffer, _)) => {
                    sys::map::enqueue_unmap(queue, buffer, view, wait)
                }
                Some(Place::Svm(_)) | None => sys::map::enqueue_svm_unmap(queue, view, wait),
            },
            Self::Image(image, _) => sys::map::enqueue_unmap(queue, image.handle(), view, wait),
        }
    }
}

impl<'m> Mapping<'m> {
    /// Enqueues a map of something of the backend's own, which is not empty.
    pub(crate) fn enqueue(
        backend: &OpenClBackend,
        queue: &ClQueue,
        mapped: Mapped<'m>,
        mode: MapMode,
        wait_for: &[ClEvent],
    ) -> Result<Self> {
        let access = mode.access();
        let used = mapped.used(access);
        let (admission, id) = Admission::of_map(queue, &used)?;
        let purpose = Purpose::Memory(mapped.bytes());
        let mut view = None;
        let enqueued = backend.submit_admitted(queue, purpose, admission, wait_for, |wait| {
            let (event, mapped) = mapped.enqueue(queue, mode.flags(), wait)?;
            view = Some(mapped);
            Ok(event)
        });
        let mapping = enqueued.and_then(|event| match view {
            Some(view) => Ok(Self {
                backend: backend.clone(),
                queue: queue.clone(),
                mapped,
                access,
                id,
                view,
                event,
                ended: false,
            }),
            // Nothing was enqueued, since something to wait for has failed.
            None => Err(event
                .wait()
                .err()
                .unwrap_or(InvalidRequest::ZeroSize.into())),
        });
        if mapping.is_err() {
            used.log.forget_map(id);
        }
        mapping
    }

    pub(crate) const fn event(&self) -> &ClEvent {
        &self.event
    }

    /// How many pixels of an image are mapped, along each coordinate.
    pub(crate) fn pixels(&self) -> Option<[usize; 3]> {
        match self.mapped {
            Mapped::Memory(..) => None,
            Mapped::Image(_, region) => Some(region.size),
        }
    }

    /// The size of a pixel in bytes; 0 where no image is mapped.
    pub(crate) fn item_bytes(&self) -> usize {
        match self.mapped {
            Mapped::Memory(..) => 0,
            Mapped::Image(image, _) => image.item_bytes(),
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

    /// Ends the map where it was made.
    pub(crate) fn end_here(mut self) -> Result<ClEvent> {
        let queue = self.queue.clone();
        self.enqueue_end(&queue, &[])
    }

    fn enqueue_end(&mut self, queue: &ClQueue, wait_for: &[ClEvent]) -> Result<ClEvent> {
        let used = [self.mapped.used(self.access)];
        let admission = Admission::of_unmap(queue, &used, self.id)?;
        let mut all = Vec::new();
        let wait_for = if queue.is_in_order() && *queue == self.queue {
            wait_for
        } else {
            all.push(self.event.clone());
            all.extend_from_slice(wait_for);
            &all
        };
        let ended = self.backend.submit_admitted(
            queue,
            Purpose::Memory(self.mapped.bytes()),
            admission,
            wait_for,
            |wait| self.mapped.enqueue_end(queue, &self.view, wait),
        )?;
        self.ended = true;
        used[0].log.forget_map(self.id);
        Ok(ended)
    }
}

impl Drop for Mapping<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if self.event.has_failed() {
            // Nothing was mapped.
            self.mapped.used(self.access).log.forget_map(self.id);
            return;
        }
        let queue = self.queue.clone();
        if let Err(error) = self.enqueue_end(&queue, &[]) {
            tracing::error!(%error, queue = ?queue.id(), "memory stays mapped, and no command can use it");
        }
    }
}
