//! What all objects of one backend share.

use std::sync::OnceLock;

use binpool_allocators::DeviceLimits;

use crate::{
    cache::Cache,
    cl_error::ClResult,
    context_registry,
    device::limits::{INTEL, NVIDIA},
    failures::Failures,
    image::ImageLimits,
    sys::{self, ContextHandle, DeviceId, QueueHandle, Threads},
};

/// A context, one of its devices, and what that device can do.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) handle: ContextHandle,
    pub(crate) device: DeviceId,
    pub(crate) limits: DeviceLimits,
    /// The device's OpenCL version, major and minor.
    pub(crate) version: (u32, u32),
    pub(crate) failures: Failures,
    pub(crate) svm_threads: Threads,
    /// Whether views of buffers stay where they are when they are to migrate to the host: NVIDIA's driver crashes.
    pub(crate) views_stay: bool,
    /// Whether rectangles take whole rows and slices of a buffer, up to the end of their pitches, as NVIDIA's driver
    /// counts.
    pub(crate) whole_slices: bool,
    /// Whether an event keeps the memory that its command has used, as on Intel's runtime (see
    /// [`stand_in`](crate::stand_in)).
    pub(crate) events_keep_memory: bool,
    /// Whether out-of-order queues are kept until they are idle (see [`retired`](crate::retired)).
    pub(crate) retires_queues: bool,
    /// What the program has had built for this context.
    pub(crate) cache: Cache,
    /// Where shared virtual memory is freed that waits for several queues; made when first needed.
    free_queue: OnceLock<QueueHandle>,
    /// What images the device can hold; asked when first needed.
    image_limits: OnceLock<ImageLimits>,
}

impl Context {
    pub(crate) fn new(
        handle: ContextHandle,
        device: DeviceId,
        limits: DeviceLimits,
        version: (u32, u32),
    ) -> ClResult<Self> {
        let platform = sys::platform_name_of(device)?;
        Ok(Self {
            failures: Failures::on(&platform),
            views_stay: platform == NVIDIA,
            whole_slices: platform == NVIDIA,
            events_keep_memory: platform == INTEL,
            retires_queues: platform == INTEL,
            svm_threads: if platform == NVIDIA {
                Threads::One
            } else {
                Threads::Many
            },
            cache: Cache::default(),
            handle,
            device,
            limits,
            version,
            free_queue: OnceLock::new(),
            image_limits: OnceLock::new(),
        })
    }

    /// Whether both stand for the same context of the runtime, whose objects work together.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.handle.raw() == other.handle.raw()
    }

    /// A queue that nothing but frees goes through, so that a free that waits holds up no command of the
    /// program. Out of order where the device can, so that it holds up no other free either.
    pub(crate) fn free_queue(&self) -> ClResult<&QueueHandle> {
        if let Some(queue) = self.free_queue.get() {
            return Ok(queue);
        }
        let queue = sys::create_queue(&self.handle, self.device, self.limits.out_of_order_queues)?;
        Ok(self.free_queue.get_or_init(|| queue))
    }

    /// What images the device can hold.
    pub(crate) fn image_limits(&self) -> ClResult<&ImageLimits> {
        if let Some(limits) = self.image_limits.get() {
            return Ok(limits);
        }
        let limits = ImageLimits::query(self.device)?;
        Ok(self.image_limits.get_or_init(|| limits))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Before the handle is released: until then no other context can have the same one.
        context_registry::forget(self);
    }
}
