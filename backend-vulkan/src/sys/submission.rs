//! Submits, and those that are held back.
//!
//! A submit that waits for a user event would hold up all others of the same queue of Vulkan, those of other streams, too, and what the host
//! waits for before it resolves the event might be among them. So nothing is submitted that waits for what is not submitted: it
//! stays on the host until the event is resolved.

use std::sync::Arc;

use ash::vk;
use parking_lot::Mutex;

use super::{Named as _, VulkanError, stream::Lane, timeline::Timeline};

const SUBMIT: &str = "vkQueueSubmit";

/// A number that a submit waits for.
#[derive(Clone)]
pub(crate) struct Wait {
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) value: u64,
}

impl Wait {
    pub(super) fn is_submitted(&self) -> bool {
        self.timeline.is_submitted(self.value)
    }
}

/// Commands that are recorded, on their way to the device.
pub(super) struct Submission {
    pub(super) lane: Arc<Lane>,
    pub(super) commands: vk::CommandBuffer,
    pub(super) waits: Vec<Wait>,
    /// What the timeline of the lane has once they have ended.
    pub(super) value: u64,
}

/// What waits for user events of a device, in the order of the calls.
#[derive(Default)]
pub(crate) struct HeldBack(Mutex<Vec<Submission>>);

impl Submission {
    /// Submits this, or holds it back.
    pub(super) fn go(self, held_back: &HeldBack) -> Result<(), VulkanError> {
        if self.can_go() {
            return self.submit();
        }
        held_back.0.lock().push(self);
        // The event may have been resolved meanwhile.
        held_back.submit_what_can_go();
        Ok(())
    }

    /// Returns whether it waits for nothing more from the host.
    fn can_go(&self) -> bool {
        let is_next = self.lane.timeline.is_submitted(self.value - 1);
        is_next && self.waits.iter().all(Wait::is_submitted)
    }

    fn submit(&self) -> Result<(), VulkanError> {
        let timeline = &self.lane.timeline;
        let device = timeline.device();
        let semaphores: Vec<_> = self.waits.iter().map(|wait| wait.timeline.raw()).collect();
        let values: Vec<_> = self.waits.iter().map(|wait| wait.value).collect();
        let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; semaphores.len()];
        let (commands, signalled, value) = ([self.commands], [timeline.raw()], [self.value]);
        let mut numbers = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&values)
            .signal_semaphore_values(&value);
        let info = vk::SubmitInfo::default()
            .wait_semaphores(&semaphores)
            .wait_dst_stage_mask(&stages)
            .command_buffers(&commands)
            .signal_semaphores(&signalled)
            .push_next(&mut numbers);
        let queue = self.lane.queue.raw.lock();
        if device.is_lost() {
            // What fails has ended for the core, so nothing may run from now on.
            return Err(VulkanError::new(SUBMIT, vk::Result::ERROR_DEVICE_LOST));
        }
        // SAFETY: The queue is locked; the lane keeps the commands and the semaphores until they have ended.
        let submitted = unsafe {
            device
                .raw()
                .queue_submit(*queue, &[info], vk::Fence::null())
        };
        submitted.of(SUBMIT).map_err(|error| device.failed(error))?;
        // With the queue locked, so that the numbers of a lane are noted in their order.
        self.lane.note_submitted(self.value);
        Ok(())
    }
}

impl HeldBack {
    /// Submits what waits for nothing more from the host, and what waits for that, until nothing more can go.
    pub(crate) fn submit_what_can_go(&self) {
        // Locked throughout, so that another thread does not go ahead of it on the same stream.
        let mut all = self.0.lock();
        while let Some(index) = all.iter().position(Submission::can_go) {
            let next = all.remove(index);
            if let Err(error) = next.submit() {
                // No caller is left to tell, and what waits for it would wait forever.
                tracing::error!(%error, "could not submit commands that waited for an event: the device counts as lost");
                next.lane.timeline.device().give_up(error);
                all.clear();
            }
        }
    }
}
