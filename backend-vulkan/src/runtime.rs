//! What Vulkan does for the core.

#![expect(
    unsafe_code,
    reason = "methods that only the core may call, and commands that are recorded"
)]

use std::sync::{Arc, atomic::Ordering};

use ash::vk;
use binpool_allocators::{
    Error, EventStatus, MemoryFlags, Outcome, QueueOrder, Region, Result, Scope, Work,
    runtime::{Core, Objects, Part, Runtime, RuntimePages},
};

use crate::{
    backend::VulkanBackend,
    block::{Body, VulkanBlock},
    mark::VulkanMark,
    queue::QueueStream,
    staging::Staging,
    sys::{Allocation, Pages, Place, Reservation, Wait},
};

/// The most bytes of a command that carries its bytes itself (`vkCmdUpdateBuffer`).
const MOST_INLINE_BYTES: usize = 65_536;

/// The bytes of a pattern that a fill has written by the host, and repeats on the device.
const PATTERN_BYTES: usize = 1 << 16;

impl Objects for VulkanBackend {
    type Block = VulkanBlock;
    type Stream = QueueStream;
    type Mark = VulkanMark;

    fn status(mark: &VulkanMark) -> Result<EventStatus> {
        Ok(mark.status())
    }

    fn wait(mark: &VulkanMark) -> Result<()> {
        mark.wait()
    }

    // SAFETY: a contract of the trait, which this does not need: other marks are refused, and the core resolves each once.
    unsafe fn resolve(mark: &VulkanMark, outcome: Outcome) -> Result<()> {
        mark.resolve(outcome)
    }

    fn address(block: &VulkanBlock) -> Option<u64> {
        block.address()
    }

    fn wait_at_end(mark: &VulkanMark) -> bool {
        // What waits for a user event that is never resolved is not submitted, and would be waited for for ever.
        mark.is_submitted() && mark.wait().is_ok() || Self::has_ended(mark)
    }
}

impl Runtime for VulkanBackend {
    fn core(&self) -> &Arc<Core<Self>> {
        &self.shared.core
    }

    fn allocate(&self, bytes: usize, flags: MemoryFlags) -> Result<VulkanBlock> {
        let (place, scope) = if flags.contains(MemoryFlags::HOST_RESIDENT) {
            (Place::Host, Scope::Host)
        } else {
            (Place::Device, Scope::Device)
        };
        let allocation = Allocation::new(&self.shared.device, bytes, place);
        let allocation = allocation.map_err(|error| {
            // The core asks again.
            self.shared.staging.clear();
            error.shortage(bytes, scope)
        })?;
        Ok(VulkanBlock(Body::Allocation(allocation)))
    }

    fn create_stream(&self, _order: QueueOrder) -> Result<QueueStream> {
        let shared = &self.shared;
        let number = shared.streams.fetch_add(1, Ordering::Relaxed);
        QueueStream::new(
            &shared.core,
            &shared.device,
            number % shared.device.queues.len().max(1),
        )
    }

    // SAFETY: a contract of the trait: the memory is of this device, the parts lie inside their blocks, and the core keeps them until the
    // command has ended.
    unsafe fn submit(
        &self,
        on: &QueueStream,
        after: &[VulkanMark],
        work: Work<'_, &Part<'_, Self>>,
    ) -> Result<VulkanMark> {
        match work {
            Work::Marker | Work::Barrier if waits(on, after).is_empty() => Ok(on.last()),
            Work::Marker | Work::Barrier => self.enqueue(on, after, None, |_, _| {}),
            Work::Fill(part, pattern) => self.fill(on, after, part, pattern),
            Work::Write(part, data) => self.enqueue_write(on, after, part, &data),
            Work::Read(part, sink) => {
                let (from, bytes) = (place(part), part.region().bytes);
                let staging = self.staging(bytes)?;
                let result = Arc::clone(&staging);
                let to = staging.buffer();
                let mark = self.enqueue(on, after, Some(staging), |raw, commands| {
                    let region = vk::BufferCopy::default()
                        .src_offset(from.offset)
                        .size(bytes as u64);
                    // SAFETY: Both buffers have the bytes, and live until the command has ended.
                    unsafe { raw.cmd_copy_buffer(commands, from.buffer, to, &[region]) };
                    before_the_host(raw, commands);
                })?;
                let own = mark.clone();
                sink.put(move || match own.status() {
                    EventStatus::Complete => result.to_vec(bytes),
                    _ => Vec::new(),
                });
                Ok(mark)
            }
            Work::Copy(read, written) => {
                let (from, to, bytes) = (place(read), place(written), read.region().bytes);
                self.enqueue(on, after, None, |raw, commands| {
                    let region = vk::BufferCopy {
                        src_offset: from.offset,
                        dst_offset: to.offset,
                        size: bytes as u64,
                    };
                    // SAFETY: The core has checked the parts, and keeps them until the command has ended.
                    unsafe { raw.cmd_copy_buffer(commands, from.buffer, to.buffer, &[region]) };
                })
            }
            _ => Err(Error::unsupported("this command on Vulkan")),
        }
    }

    // SAFETY: a contract of the trait, which this does not need: a stream is one of the device.
    unsafe fn finish(&self, stream: &QueueStream) -> Result<()> {
        stream.last().wait()
    }

    fn create_user_mark(&self) -> Result<VulkanMark> {
        VulkanMark::of_user(&self.shared.device, &self.shared.held_back)
    }

    fn free_bytes(&self) -> Option<u64> {
        self.shared.device.free_bytes()
    }
}

impl RuntimePages for VulkanBackend {
    fn page_bytes(&self) -> usize {
        self.shared.page_bytes
    }

    fn largest_reservation(&self) -> usize {
        self.shared.largest_reservation
    }

    fn reserve(&self, bytes: usize) -> Result<VulkanBlock> {
        let reservation = Reservation::new(&self.shared.device, bytes);
        // A device has addresses for some terabytes.
        let reservation = reservation.map_err(|error| error.shortage(bytes, Scope::Device))?;
        Ok(VulkanBlock(Body::Reservation(reservation)))
    }

    fn create_pages(&self, bytes: usize) -> Result<VulkanBlock> {
        let pages = Pages::new(&self.shared.device, bytes, self.shared.page_kinds);
        let pages = pages.map_err(|error| error.shortage(bytes, Scope::Device))?;
        Ok(VulkanBlock(Body::Pages(pages)))
    }

    // SAFETY: a contract of the trait: the region consists of whole pages of the reservation where nothing is bound.
    unsafe fn map(
        &self,
        reservation: &VulkanBlock,
        region: Region,
        pages: &VulkanBlock,
    ) -> Result<()> {
        match (&reservation.0, &pages.0) {
            (Body::Reservation(reservation), Body::Pages(pages)) => {
                Ok(reservation.bind(region, Some(pages))?)
            }
            _ => Err(Error::unsupported("a map of this memory")),
        }
    }

    // SAFETY: a contract of the trait: the region lies inside the reservation, and no command uses it.
    unsafe fn unmap(&self, reservation: &VulkanBlock, region: Region) -> Result<()> {
        match &reservation.0 {
            Body::Reservation(reservation) => Ok(reservation.bind(region, None)?),
            _ => Err(Error::unsupported("an unmap of this memory")),
        }
    }
}

/// A place in a buffer.
#[derive(Clone, Copy)]
struct At {
    buffer: vk::Buffer,
    offset: u64,
}

fn place(part: &Part<'_, VulkanBackend>) -> At {
    At {
        buffer: part.block().buffer(),
        offset: part.region().offset as u64,
    }
}

fn waits(on: &QueueStream, after: &[VulkanMark]) -> Vec<Wait> {
    after
        .iter()
        .filter_map(|mark| mark.to_wait(&on.lane().timeline))
        .collect()
}

impl VulkanBackend {
    /// Enqueues what `record` records, which uses this memory of the host.
    pub(crate) fn enqueue(
        &self,
        on: &QueueStream,
        after: &[VulkanMark],
        staging: Option<Arc<Staging>>,
        record: impl FnOnce(&ash::Device, vk::CommandBuffer),
    ) -> Result<VulkanMark> {
        let lane = on.lane();
        let value = lane.submit(&self.shared.held_back, waits(on, after), record)?;
        let mark = VulkanMark::new(&lane.timeline, value);
        if let Some(staging) = staging {
            self.shared.core.keep_until(staging, vec![mark.clone()]);
        }
        Ok(mark)
    }

    fn staging(&self, bytes: usize) -> Result<Arc<Staging>> {
        let shared = &self.shared;
        let make = || {
            let made = Staging::new(&shared.staging, &shared.device, bytes);
            made.map_err(|error| error.shortage(bytes, Scope::Host))
        };
        shared.core.allocate(make).map(Arc::new)
    }

    fn enqueue_write(
        &self,
        on: &QueueStream,
        after: &[VulkanMark],
        part: &Part<'_, Self>,
        data: &[u8],
    ) -> Result<VulkanMark> {
        let to = place(part);
        if data.is_empty() {
            return self.enqueue(on, after, None, |_, _| {});
        }
        if data.len() <= MOST_INLINE_BYTES
            && data.len().is_multiple_of(4)
            && to.offset.is_multiple_of(4)
        {
            return self.enqueue(on, after, None, |raw, commands| {
                // SAFETY: The part has the bytes, and the core keeps it until the command has ended; the bytes are copied.
                unsafe { raw.cmd_update_buffer(commands, to.buffer, to.offset, data) };
            });
        }
        let staging = self.staging(data.len())?;
        staging.put(data, data.len());
        let from = staging.buffer();
        self.enqueue(on, after, Some(staging), |raw, commands| {
            let region = vk::BufferCopy::default()
                .dst_offset(to.offset)
                .size(data.len() as u64);
            // SAFETY: Both buffers have the bytes, and live until the command has ended.
            unsafe { raw.cmd_copy_buffer(commands, from, to.buffer, &[region]) };
        })
    }

    fn fill(
        &self,
        on: &QueueStream,
        after: &[VulkanMark],
        part: &Part<'_, Self>,
        pattern: &[u8],
    ) -> Result<VulkanMark> {
        let (to, bytes) = (place(part), part.region().bytes);
        let is_of_words = to.offset.is_multiple_of(4) && bytes.is_multiple_of(4);
        if let Some(word) = word_of(pattern)
            && is_of_words
            && bytes > 0
        {
            return self.enqueue(on, after, None, |raw, commands| {
                // SAFETY: The core has checked the part, and keeps it until the command has ended.
                unsafe { raw.cmd_fill_buffer(commands, to.buffer, to.offset, bytes as u64, word) };
            });
        }
        if bytes == 0 {
            return self.enqueue(on, after, None, |_, _| {});
        }
        // Some repetitions by the host, and the rest by copies of what is there, each as long as that.
        let first = (PATTERN_BYTES.max(pattern.len()) / pattern.len() * pattern.len()).min(bytes);
        let staging = self.staging(first)?;
        staging.put(pattern, first);
        let from = staging.buffer();
        self.enqueue(on, after, Some(staging), |raw, commands| {
            let region = vk::BufferCopy::default()
                .dst_offset(to.offset)
                .size(first as u64);
            // SAFETY: Both buffers have the bytes, and live until the command has ended.
            unsafe { raw.cmd_copy_buffer(commands, from, to.buffer, &[region]) };
            let mut done = first;
            while done < bytes {
                after_transfers(raw, commands);
                let next = done.min(bytes - done);
                let region = vk::BufferCopy {
                    src_offset: to.offset,
                    dst_offset: to.offset + done as u64,
                    size: next as u64,
                };
                // SAFETY: Both regions lie in the part, and do not overlap.
                unsafe { raw.cmd_copy_buffer(commands, to.buffer, to.buffer, &[region]) };
                done += next;
            }
        })
    }
}

/// The word whose repetitions are those of a pattern.
fn word_of(pattern: &[u8]) -> Option<u32> {
    match *pattern {
        [a] => Some(u32::from_ne_bytes([a; 4])),
        [a, b] => Some(u32::from_ne_bytes([a, b, a, b])),
        [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d])),
        _ => None,
    }
}

/// Has copies that follow see what those before have written.
fn after_transfers(raw: &ash::Device, commands: vk::CommandBuffer) {
    let transfer = vk::PipelineStageFlags::TRANSFER;
    barrier(
        raw,
        commands,
        (transfer, vk::AccessFlags::TRANSFER_WRITE),
        (
            transfer,
            vk::AccessFlags::TRANSFER_READ | vk::AccessFlags::TRANSFER_WRITE,
        ),
    );
}

/// Has the host see what copies before have written.
fn before_the_host(raw: &ash::Device, commands: vk::CommandBuffer) {
    let copies = (
        vk::PipelineStageFlags::TRANSFER,
        vk::AccessFlags::TRANSFER_WRITE,
    );
    barrier(
        raw,
        commands,
        copies,
        (vk::PipelineStageFlags::HOST, vk::AccessFlags::HOST_READ),
    );
}

type Scope2 = (vk::PipelineStageFlags, vk::AccessFlags);

fn barrier(raw: &ash::Device, commands: vk::CommandBuffer, before: Scope2, after: Scope2) {
    let barrier = vk::MemoryBarrier::default()
        .src_access_mask(before.1)
        .dst_access_mask(after.1);
    // SAFETY: The buffer is being recorded.
    unsafe {
        raw.cmd_pipeline_barrier(
            commands,
            before.0,
            after.0,
            vk::DependencyFlags::empty(),
            &[barrier],
            &[],
            &[],
        );
    };
}
