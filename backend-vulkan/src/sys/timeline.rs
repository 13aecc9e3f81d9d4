//! Timeline semaphores: numbers that only grow, as commands end.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use ash::vk;
use binpool_allocators::{EventStatus, Result};

use super::{Device, Named as _, VulkanError};

/// How long a wait lasts before it checks whether the device was lost meanwhile, in nanoseconds.
const LOOK_AFTER: u64 = 100_000_000;

/// A timeline semaphore.
pub(crate) struct Timeline {
    device: Arc<Device>,
    raw: vk::Semaphore,
    /// The number that it will reach without anything more from the host.
    submitted: AtomicU64,
    /// The largest number that it was seen to have.
    seen: AtomicU64,
}

impl Timeline {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self, VulkanError> {
        if let Some((raw, number)) = device.semaphores.lock().pop() {
            return Ok(Self::of(device, raw, number));
        }
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: The device lives, and has timeline semaphores.
        let raw = unsafe { device.raw().create_semaphore(&info, None) };
        Ok(Self::of(device, raw.of("vkCreateSemaphore")?, 0))
    }

    fn of(device: &Arc<Device>, raw: vk::Semaphore, number: u64) -> Self {
        Self {
            device: Arc::clone(device),
            raw,
            submitted: AtomicU64::new(number),
            seen: AtomicU64::new(number),
        }
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn raw(&self) -> vk::Semaphore {
        self.raw
    }

    /// The number that it will reach without anything more from the host.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// Returns whether it will reach `value` without anything more from the host.
    pub(crate) fn is_submitted(&self, value: u64) -> bool {
        self.submitted() >= value
    }

    pub(super) fn note_submitted(&self, value: u64) {
        self.submitted.store(value, Ordering::Release);
    }

    pub(crate) fn status(&self, value: u64) -> EventStatus {
        if self.seen.load(Ordering::Acquire) >= value {
            return EventStatus::Complete;
        }
        if self.device.is_lost() {
            return EventStatus::Failed;
        }
        // SAFETY: The semaphore lives.
        let counter = unsafe { self.device.raw().get_semaphore_counter_value(self.raw) };
        match counter.of("vkGetSemaphoreCounterValue") {
            Ok(now) => {
                self.seen.fetch_max(now, Ordering::AcqRel);
                if now >= value {
                    EventStatus::Complete
                } else {
                    EventStatus::Pending
                }
            }
            // A device that is lost is the one reason to fail.
            Err(error) if self.device.failed(error).is_lost() => EventStatus::Failed,
            Err(_) => EventStatus::Pending,
        }
    }

    pub(crate) fn wait(&self, value: u64) -> Result<()> {
        loop {
            match self.status(value) {
                EventStatus::Complete => return Ok(()),
                EventStatus::Failed => self.device.check("waiting for a command")?,
                EventStatus::Pending => {}
            }
            let (semaphores, values) = ([self.raw], [value]);
            let info = vk::SemaphoreWaitInfo::default()
                .semaphores(&semaphores)
                .values(&values);
            // SAFETY: The semaphore lives.
            let waited = unsafe { self.device.raw().wait_semaphores(&info, LOOK_AFTER) };
            match waited.of("vkWaitSemaphores") {
                Ok(()) => {}
                Err(error) if error.code() == vk::Result::TIMEOUT.as_raw() => {}
                Err(error) if self.device.failed(error).is_lost() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Has the host set the number.
    pub(crate) fn signal(&self, value: u64) -> Result<(), VulkanError> {
        let info = vk::SemaphoreSignalInfo::default()
            .semaphore(self.raw)
            .value(value);
        // SAFETY: The semaphore lives, and has a smaller number, which no command sets.
        unsafe { self.device.raw().signal_semaphore(&info) }.of("vkSignalSemaphore")?;
        self.note_submitted(value);
        Ok(())
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        // Commands that use it keep it, so that it has this number.
        let free = (self.raw, self.submitted());
        self.device.semaphores.lock().push(free);
    }
}
