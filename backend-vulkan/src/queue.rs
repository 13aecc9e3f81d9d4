//! The queues that programs have.

use std::sync::Arc;

use ash::vk;
use binpool_allocators::{Result, debug_by, runtime::Core};
use parking_lot::MutexGuard;

use crate::{
    backend::VulkanBackend,
    mark::VulkanMark,
    sys::{Device, Lane, Wait},
};

/// A stream of commands, which run one after the other: a timeline semaphore, and one of the device's queues, which others may be on, too.
///
/// ```no_run
/// use ash::vk;
/// use binpool_allocators::{Backend, QueueOrder};
/// use binpool_vulkan::VulkanBackend;
///
/// let backend = VulkanBackend::open(0)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// // A submit or a present of the program's own, which no other thread's submit meets.
/// let raw: &vk::Queue = &queue.lock();
/// assert_eq!(queue.family(), 0);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
pub struct QueueStream {
    core: Arc<Core<VulkanBackend>>,
    lane: Arc<Lane>,
}

impl QueueStream {
    pub(crate) fn new(
        core: &Arc<Core<VulkanBackend>>,
        device: &Arc<Device>,
        queue: usize,
    ) -> Result<Self> {
        Ok(Self {
            core: Arc::clone(core),
            lane: Arc::new(Lane::new(device, queue)?),
        })
    }

    /// Locks the queue of Vulkan for calls of the program's own, such as `vkQueueSubmit` and `vkQueuePresentKHR`. Until the guard is
    /// dropped, all calls of this crate that submit on it wait. The next command of each stream on it comes after them, also if that is a marker.
    pub fn lock(&self) -> MutexGuard<'_, vk::Queue> {
        self.lane.queue.lend()
    }

    /// The number of its family.
    #[must_use]
    pub fn family(&self) -> u32 {
        self.lane.queue.family
    }

    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    /// A mark that is reached once all commands so far have ended.
    pub(crate) fn last(&self) -> VulkanMark {
        VulkanMark::new(&self.lane.timeline, self.lane.last())
    }
}

/// Where a command goes: its stream, and what it comes after.
#[derive(Clone, Copy)]
pub(crate) struct On<'a> {
    pub(crate) stream: &'a QueueStream,
    pub(crate) after: &'a [VulkanMark],
}

impl On<'_> {
    /// What a command waits for that comes here.
    pub(crate) fn waits(self) -> Vec<Wait> {
        let after = self.after.iter();
        after
            .filter_map(|mark| mark.to_wait(&self.stream.lane.timeline))
            .collect()
    }

    /// Returns whether a marker would come after nothing but the commands of the stream.
    pub(crate) fn is_last(self) -> bool {
        self.waits().is_empty() && !self.stream.lane.was_lent()
    }
}

impl Drop for QueueStream {
    fn drop(&mut self) {
        self.core
            .keep_until(Arc::clone(&self.lane), vec![self.last()]);
    }
}

debug_by!(QueueStream, |this| family: this.family());
