//! How far commands have come.

use std::sync::Arc;

use ash::vk;
use binpool_allocators::{Error, EventStatus, Outcome, Result, debug_by};

use crate::sys::{Device, HeldBack, Timeline, Wait};

/// The number that a timeline semaphore has once a command has ended. Clones are the same mark, and none is an object of Vulkan.
///
/// ```no_run
/// use binpool_allocators::{Backend, QueueOrder};
/// use binpool_vulkan::{VulkanBackend, VulkanMark};
///
/// let backend = VulkanBackend::open(0)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let mark: VulkanMark = backend.enqueue_marker(&queue)?.mark().clone();
/// let (semaphore, value) = (mark.semaphore(), mark.value()); // For a submit of the program's own that waits for it.
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone)]
pub struct VulkanMark {
    timeline: Arc<Timeline>,
    value: u64,
    /// What waits for a mark that the host resolves.
    held_back: Option<Arc<HeldBack>>,
}

impl VulkanMark {
    pub(crate) fn new(timeline: &Arc<Timeline>, value: u64) -> Self {
        Self {
            timeline: Arc::clone(timeline),
            value,
            held_back: None,
        }
    }

    /// A mark that the host resolves.
    pub(crate) fn of_user(device: &Arc<Device>, held_back: &Arc<HeldBack>) -> Result<Self> {
        let timeline = Timeline::new(device)?;
        Ok(Self {
            value: timeline.submitted() + 1,
            timeline: Arc::new(timeline),
            held_back: Some(Arc::clone(held_back)),
        })
    }

    /// The semaphore, which lives as long as a clone of the mark.
    #[must_use]
    pub fn semaphore(&self) -> vk::Semaphore {
        self.timeline.raw()
    }

    /// The number that the semaphore reaches.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.value
    }

    pub(crate) fn status(&self) -> EventStatus {
        self.timeline.status(self.value)
    }

    pub(crate) fn wait(&self) -> Result<()> {
        self.timeline.wait(self.value)
    }

    /// Returns whether it is reached without anything more from the host.
    pub(crate) fn is_submitted(&self) -> bool {
        self.timeline.is_submitted(self.value)
    }

    pub(crate) fn resolve(&self, outcome: Outcome) -> Result<()> {
        if outcome == Outcome::Failed {
            return Err(Error::unsupported(
                "user events of Vulkan that fail: resolve it as complete, and let the program skip what depends on it",
            ));
        }
        self.timeline.signal(self.value)?;
        if let Some(held_back) = &self.held_back {
            held_back.submit_what_can_go();
        }
        Ok(())
    }

    /// What a command on another timeline waits for; `None` if that has ended, or comes before it anyway.
    pub(crate) fn to_wait(&self, own: &Arc<Timeline>) -> Option<Wait> {
        let is_before = Arc::ptr_eq(own, &self.timeline) || self.status().has_ended();
        (!is_before).then(|| Wait {
            timeline: Arc::clone(&self.timeline),
            value: self.value,
        })
    }
}

debug_by!(VulkanMark, |this| value: this.value);
