//! Submits of the program's own, as commands of a queue.

#![expect(
    unsafe_code,
    reason = "the caller promises what its submit waits for, touches and signals"
)]

use ash::vk;
use binpool_allocators::{Result, runtime::enqueue};

use crate::{
    backend::{VulkanBackend, VulkanEvent, VulkanMemory, VulkanQueue},
    mark::VulkanMark,
    queue::{On, QueueStream},
    sys::Wait,
};

/// What a submit of the program's own waits for, and what it signals: timeline semaphores, and their numbers.
///
/// [`VulkanBackend::enqueue_own`] has an example for `vkQueueSubmit`. For `vkQueueSubmit2`:
///
/// ```
/// use ash::vk::{PipelineStageFlags2, SemaphoreSubmitInfo};
/// use binpool_vulkan::OwnSubmit;
///
/// fn waits(own: &OwnSubmit) -> Vec<SemaphoreSubmitInfo<'static>> {
///     let waits = own.wait_semaphores.iter().zip(&own.wait_values);
///     let info = |(&semaphore, &value)| {
///         let info = SemaphoreSubmitInfo::default().semaphore(semaphore).value(value);
///         info.stage_mask(PipelineStageFlags2::ALL_COMMANDS)
///     };
///     waits.map(info).collect()
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct OwnSubmit {
    /// The queue, which is locked during the call.
    pub queue: vk::Queue,
    /// The semaphores that it waits for.
    pub wait_semaphores: Vec<vk::Semaphore>,
    /// The numbers that it waits for, one a semaphore.
    pub wait_values: Vec<u64>,
    /// The semaphore that it signals.
    pub semaphore: vk::Semaphore,
    /// The number that the semaphore has then.
    pub value: u64,
}

impl VulkanBackend {
    /// Enqueues a submit of the program's own as a command of `queue`, after `wait_for` and all earlier commands. The submit itself signals the
    /// number of the event, so no further call is made. The memory is not freed before it has ended.
    ///
    /// `submit` is called once, with the queue locked, so it calls nothing of this crate that submits. Any call will do that signals a timeline
    /// semaphore: `vkQueueSubmit`, `vkQueueSubmit2`, or that of another library. If it fails or panics, its number is left out: later commands and
    /// markers have larger ones, and nothing waits for it.
    ///
    /// ```no_run
    /// use ash::vk;
    /// use binpool_allocators::Result;
    /// use binpool_vulkan::{OwnSubmit, VulkanBackend, VulkanEvent, VulkanMemory, VulkanQueue};
    ///
    /// fn submitted(backend: &VulkanBackend, queue: &VulkanQueue, commands: vk::CommandBuffer, block: &VulkanMemory) -> Result<VulkanEvent> {
    ///     let submit = |own: &OwnSubmit| {
    ///         let (commands, semaphores, values) = ([commands], [own.semaphore], [own.value]);
    ///         let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; own.wait_semaphores.len()];
    ///         let mut numbers = vk::TimelineSemaphoreSubmitInfo::default()
    ///             .wait_semaphore_values(&own.wait_values)
    ///             .signal_semaphore_values(&values);
    ///         let info = vk::SubmitInfo::default()
    ///             .wait_semaphores(&own.wait_semaphores)
    ///             .wait_dst_stage_mask(&stages)
    ///             .command_buffers(&commands)
    ///             .signal_semaphores(&semaphores)
    ///             .push_next(&mut numbers);
    ///         // SAFETY: the commands are recorded, and use this block.
    ///         unsafe { backend.raw().queue_submit(own.queue, &[info], vk::Fence::null()) }
    ///     };
    ///     // SAFETY: it waits for and signals what it is to, and the commands use no memory of the backend but this block.
    ///     unsafe { backend.enqueue_own(queue, &[block], &[], submit) }
    /// }
    /// ```
    ///
    /// # Safety
    ///
    /// Where `submit` returns `Ok`, it has submitted work on the queue that waits for the semaphores, and signals the semaphore once it has ended.
    /// Where it fails or panics, what it has submitted uses none of the memory. The work touches no memory of this backend but `memory`, and that not
    /// at the same time as a command of another queue, unless both read.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject) for objects of another backend;
    /// [`Unsupported`](binpool_allocators::Error::Unsupported) if it would wait for a user event that is not resolved; what `submit` returns.
    pub unsafe fn enqueue_own(
        &self,
        queue: &VulkanQueue,
        memory: &[&VulkanMemory],
        wait_for: &[VulkanEvent],
        submit: impl FnOnce(&OwnSubmit) -> Result<(), vk::Result>,
    ) -> Result<VulkanEvent> {
        let parts = memory.iter().map(|memory| memory.part_of_kernel());
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let parts: Vec<_> = parts.iter().collect();
        let call = |stream: &QueueStream, after: &[VulkanMark]| {
            let (lane, on) = (stream.lane(), On { stream, after });
            let submit = |queue, waits: &[Wait], value| {
                submit(&OwnSubmit {
                    queue,
                    wait_semaphores: waits.iter().map(|wait| wait.timeline.raw()).collect(),
                    wait_values: waits.iter().map(|wait| wait.value).collect(),
                    semaphore: lane.timeline.raw(),
                    value,
                })
            };
            let value = lane.submit_own(on.waits(), submit)?;
            Ok(VulkanMark::new(&lane.timeline, value))
        };
        // SAFETY: the caller promises what the submit touches, and that it signals the number of the mark.
        unsafe { enqueue(self, queue, &parts, wait_for, call) }
    }
}
