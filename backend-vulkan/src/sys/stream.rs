//! Streams: commands that run one after the other.

use std::{collections::VecDeque, sync::Arc};

use ash::vk;
use parking_lot::Mutex;

use super::{
    Device, DeviceQueue, Named as _, VulkanError,
    submission::{HeldBack, Submission, Wait},
    timeline::Timeline,
};

/// A stream: a timeline, and a queue of Vulkan that other streams may be on, too.
pub(crate) struct Lane {
    pub(crate) timeline: Arc<Timeline>,
    /// The place of its queue among those of the device.
    queue: usize,
    recorded: Mutex<Recorded>,
}

/// The command buffers of a stream.
struct Recorded {
    pool: vk::CommandPool,
    /// The number of the last command.
    last: u64,
    /// Those that may not have ended, in their order.
    flying: VecDeque<Flying>,
}

/// Commands that may not have ended, and what they wait for.
struct Flying {
    value: u64,
    commands: vk::CommandBuffer,
    _waits: Vec<Wait>,
}

impl Lane {
    /// Makes a stream on a queue of the device.
    pub(crate) fn new(device: &Arc<Device>, queue: usize) -> Result<Self, VulkanError> {
        let timeline = Arc::new(Timeline::new(device)?);
        let info = vk::CommandPoolCreateInfo::default()
            .queue_family_index(device.queues[queue].family)
            .flags(
                vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER
                    | vk::CommandPoolCreateFlags::TRANSIENT,
            );
        // SAFETY: The device lives.
        let pool =
            unsafe { device.raw().create_command_pool(&info, None) }.of("vkCreateCommandPool")?;
        Ok(Self {
            recorded: Mutex::new(Recorded {
                pool,
                last: timeline.submitted(),
                flying: VecDeque::new(),
            }),
            timeline,
            queue,
        })
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        self.timeline.device()
    }

    pub(crate) fn queue(&self) -> &DeviceQueue {
        &self.device().queues[self.queue]
    }

    /// The number of the last command; before the first one that the timeline begins with.
    pub(crate) fn last(&self) -> u64 {
        self.recorded.lock().last
    }

    /// Enqueues what `record` records, after `waits` and all earlier commands, and returns its number.
    pub(crate) fn submit(
        self: &Arc<Self>,
        held_back: &HeldBack,
        waits: Vec<Wait>,
        record: impl FnOnce(&ash::Device, vk::CommandBuffer),
    ) -> binpool_allocators::Result<u64> {
        let device = self.device();
        device.check("a command")?;
        let mut recorded = self.recorded.lock();
        let commands = recorded.begin(device, &self.timeline)?;
        after_all_before(device.raw(), commands);
        record(device.raw(), commands);
        let value = recorded.last + 1;
        // SAFETY: It is being recorded.
        let ended = unsafe { device.raw().end_command_buffer(commands) }.of("vkEndCommandBuffer");
        let submission = Submission {
            lane: Arc::clone(self),
            commands,
            waits: waits.clone(),
            value,
        };
        if let Err(error) = ended.and_then(|()| submission.go(held_back)) {
            recorded.free(device, commands);
            return Err(error.into());
        }
        recorded.last = value;
        recorded.flying.push_back(Flying {
            value,
            commands,
            _waits: waits,
        });
        Ok(value)
    }
}

impl Recorded {
    /// Begins a command buffer: one whose commands have ended, or a new one.
    fn begin(
        &mut self,
        device: &Device,
        timeline: &Timeline,
    ) -> Result<vk::CommandBuffer, VulkanError> {
        let raw = device.raw();
        let has_ended = |first: &Flying| timeline.status(first.value).has_ended();
        let ended = if self.flying.front().is_some_and(has_ended) {
            self.flying.pop_front()
        } else {
            None
        };
        let commands = if let Some(first) = ended {
            first.commands
        } else {
            let info = vk::CommandBufferAllocateInfo::default()
                .command_pool(self.pool)
                .level(vk::CommandBufferLevel::PRIMARY)
                .command_buffer_count(1);
            // SAFETY: The pool is locked with this value.
            let made =
                unsafe { raw.allocate_command_buffers(&info) }.of("vkAllocateCommandBuffers")?;
            made.first().copied().ok_or(VulkanError::new(
                "vkAllocateCommandBuffers",
                vk::Result::ERROR_OUT_OF_HOST_MEMORY,
            ))?
        };
        let info = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: It is new, or has ended; its pool may reset it, and is locked.
        let begun = unsafe { raw.begin_command_buffer(commands, &info) }.of("vkBeginCommandBuffer");
        if let Err(error) = begun {
            self.free(device, commands);
            return Err(error);
        }
        Ok(commands)
    }

    fn free(&mut self, device: &Device, commands: vk::CommandBuffer) {
        // SAFETY: It is of the pool, which is locked with this value, and was not submitted.
        unsafe { device.raw().free_command_buffers(self.pool, &[commands]) };
    }
}

/// Has what follows come after all earlier commands of the queue, and see what they have written.
pub(super) fn after_all_before(raw: &ash::Device, commands: vk::CommandBuffer) {
    let barrier = vk::MemoryBarrier::default()
        .src_access_mask(vk::AccessFlags::MEMORY_WRITE)
        .dst_access_mask(vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE);
    let all = vk::PipelineStageFlags::ALL_COMMANDS;
    // SAFETY: The buffer is being recorded.
    unsafe {
        raw.cmd_pipeline_barrier(
            commands,
            all,
            all,
            vk::DependencyFlags::empty(),
            &[barrier],
            &[],
            &[],
        );
    };
}

impl Drop for Lane {
    fn drop(&mut self) {
        let recorded = self.recorded.get_mut();
        // SAFETY: Its commands have ended: the core keeps a stream until then.
        unsafe {
            self.timeline
                .device()
                .raw()
                .destroy_command_pool(recorded.pool, None);
        };
    }
}
