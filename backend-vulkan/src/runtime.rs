//! What Vulkan does for the core.

#![expect(unsafe_code, reason = "methods that only the core may call")]

use std::sync::{Arc, atomic::Ordering};

use ash::vk;
use binpool_allocators::{
    Error, EventStatus, MemoryFlags, Outcome, QueueOrder, Region, Result, Scope, Sink, Work,
    runtime::{Core, Objects, Part, Runtime, RuntimePages},
};

use crate::{
    backend::VulkanBackend,
    mark::VulkanMark,
    queue::{On, QueueStream},
    staging::Staging,
    sys::{At, Commands, Place, VulkanBlock},
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
        Some(block.address())
    }

    fn wait_at_end(mark: &VulkanMark) -> bool {
        // What waits for a user event that is never resolved is not submitted, and would be waited for forever.
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
        VulkanBlock::new(&self.shared.device, bytes, place).map_err(|error| {
            // The core asks again.
            self.shared.staging.clear();
            error.shortage(bytes, scope)
        })
    }

    fn create_stream(&self, _order: QueueOrder) -> Result<QueueStream> {
        let shared = &self.shared;
        let number = shared.streams.fetch_add(1, Ordering::Relaxed);
        let queue = number % shared.device.queues.len();
        QueueStream::new(&shared.core, &shared.device, queue)
    }

    // SAFETY: a contract of the trait: the memory is of this device, the parts lie inside their blocks, and the core keeps them until the
    // command has ended.
    unsafe fn submit(
        &self,
        stream: &QueueStream,
        after: &[VulkanMark],
        work: Work<'_, &Part<'_, Self>>,
    ) -> Result<VulkanMark> {
        let on = On { stream, after };
        match work {
            Work::Marker | Work::Barrier if on.is_last() => Ok(stream.last()),
            Work::Marker | Work::Barrier => self.enqueue(on, |_| {}),
            Work::Fill(part, pattern) => self.fill(on, part, pattern),
            Work::Write(part, data) => self.write(on, part, &data),
            Work::Read(part, sink) => self.read(on, part, &sink),
            Work::Copy(read, written) => {
                let (from, to, bytes) = (place(read), place(written), read.region().bytes);
                self.enqueue(on, |commands| commands.copy(from, to, bytes))
            }
            _ => Err(Error::unsupported("this command on Vulkan")),
        }
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
        let reservation = VulkanBlock::reservation(&self.shared.device, bytes);
        // A device has addresses for some terabytes.
        reservation.map_err(|error| error.shortage(bytes, Scope::Device))
    }

    fn create_pages(&self, bytes: usize) -> Result<VulkanBlock> {
        let pages = VulkanBlock::pages(&self.shared.device, bytes, self.shared.page_kinds);
        pages.map_err(|error| error.shortage(bytes, Scope::Device))
    }

    // SAFETY: a contract of the trait: the region consists of whole pages of the reservation where nothing is bound.
    unsafe fn map(
        &self,
        reservation: &VulkanBlock,
        region: Region,
        pages: &VulkanBlock,
    ) -> Result<()> {
        Ok(reservation.bind(region, Some(pages))?)
    }

    // SAFETY: a contract of the trait: the region lies inside the reservation, and no command uses it.
    unsafe fn unmap(&self, reservation: &VulkanBlock, region: Region) -> Result<()> {
        Ok(reservation.bind(region, None)?)
    }
}

fn place(part: &Part<'_, VulkanBackend>) -> At {
    At {
        buffer: part.block().buffer(),
        offset: part.region().offset as u64,
    }
}

impl VulkanBackend {
    /// Enqueues what `record` records.
    fn enqueue(&self, on: On<'_>, record: impl FnOnce(Commands<'_>)) -> Result<VulkanMark> {
        let lane = on.stream.lane();
        let value = lane.submit(&self.shared.held_back, on.waits(), record)?;
        Ok(VulkanMark::new(&lane.timeline, value))
    }

    /// Enqueues what `record` records, and keeps what that uses beside memory of the core until it has ended.
    pub(crate) fn enqueue_with(
        &self,
        on: On<'_>,
        used: impl Send + 'static,
        record: impl FnOnce(Commands<'_>),
    ) -> Result<VulkanMark> {
        let mark = self.enqueue(on, record)?;
        self.core().keep_until(used, vec![mark.clone()]);
        Ok(mark)
    }

    fn staging(&self, bytes: usize) -> Result<Arc<Staging>> {
        let shared = &self.shared;
        shared.core.allocate(|| {
            let taken = shared.staging.take(&shared.device, bytes);
            taken.map_err(|error| error.shortage(bytes, Scope::Host))
        })
    }

    fn read(&self, on: On<'_>, part: &Part<'_, Self>, sink: &Sink) -> Result<VulkanMark> {
        let (from, bytes) = (place(part), part.region().bytes);
        let staging = self.staging(bytes)?;
        let (to, result) = (staging.at(), Arc::clone(&staging));
        let mark = self.enqueue_with(on, staging, |commands| {
            commands.copy(from, to, bytes);
        })?;
        let own = mark.clone();
        sink.put(move || match own.status() {
            EventStatus::Complete => result.to_vec(bytes),
            _ => Vec::new(),
        });
        Ok(mark)
    }

    fn write(&self, on: On<'_>, part: &Part<'_, Self>, data: &[u8]) -> Result<VulkanMark> {
        let (to, bytes) = (place(part), data.len());
        if bytes <= MOST_INLINE_BYTES && is_of_words(part) {
            return self.enqueue(on, |commands| commands.update(to, data));
        }
        let staging = self.staging(bytes)?;
        staging.put(data, bytes);
        let from = staging.at();
        self.enqueue_with(on, staging, |commands| {
            commands.copy(from, to, bytes);
        })
    }

    fn fill(&self, on: On<'_>, part: &Part<'_, Self>, pattern: &[u8]) -> Result<VulkanMark> {
        let (to, bytes) = (place(part), part.region().bytes);
        if let Some(word) = word_of(pattern)
            && is_of_words(part)
        {
            return self.enqueue(on, |commands| commands.fill(to, bytes, word));
        }
        // Some repetitions by the host, and the rest by copies of what is there, each as long as that.
        let first = (PATTERN_BYTES.max(pattern.len()) / pattern.len() * pattern.len()).min(bytes);
        let staging = self.staging(first)?;
        staging.put(pattern, first);
        let from = staging.at();
        self.enqueue_with(on, staging, |commands| {
            commands.copy(from, to, first);
            let mut done = first;
            while done < bytes {
                commands.barrier(vk::PipelineStageFlags::TRANSFER);
                let next = At {
                    offset: to.offset + done as u64,
                    ..to
                };
                let more = done.min(bytes - done);
                commands.copy(to, next, more);
                done += more;
            }
        })
    }
}

/// Returns whether a part can be filled and updated by words.
fn is_of_words(part: &Part<'_, VulkanBackend>) -> bool {
    (part.region().offset | part.region().bytes).is_multiple_of(4)
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
