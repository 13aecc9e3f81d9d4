//! Streams: commands that run one after the other.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use ash::vk;
use binpool_allocators::{Error, Result};
use parking_lot::Mutex;

use super::{
    Commands, Device, DeviceQueue, Named as _, VulkanError,
    submission::{HeldBack, Submission, Wait},
    timeline::Timeline,
};

/// A stream: a timeline, and a queue of Vulkan that other streams may be on, too.
pub(crate) struct Lane {
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) queue: Arc<DeviceQueue>,
    /// How often the queue was lent when the last command was submitted.
    covered: AtomicU64,
    recorded: Mutex<Recorded>,
}

/// The command buffers of a stream.
struct Recorded {
    pool: vk::CommandPool,
    /// The number of the last command.
    last: u64,
    /// The last number that was used: that of a submit of the program's own which failed is no command's.
    used: u64,
    /// Those that may not have ended, with their numbers, in their order.
    flying: VecDeque<(u64, vk::CommandBuffer)>,
}

impl Lane {
    /// Makes a stream on a queue of the device.
    pub(crate) fn new(device: &Arc<Device>, queue: usize) -> Result<Self, VulkanError> {
        let timeline = Arc::new(Timeline::new(device)?);
        let queue = Arc::clone(&device.queues[queue]);
        let info = vk::CommandPoolCreateInfo::default()
            .queue_family_index(queue.family)
            .flags(
                vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER
                    | vk::CommandPoolCreateFlags::TRANSIENT,
            );
        // SAFETY: The device lives.
        let pool =
            unsafe { device.raw().create_command_pool(&info, None) }.of("vkCreateCommandPool")?;
        let number = timeline.submitted();
        Ok(Self {
            recorded: Mutex::new(Recorded {
                pool,
                last: number,
                used: number,
                flying: VecDeque::new(),
            }),
            timeline,
            covered: AtomicU64::new(queue.lent()),
            queue,
        })
    }

    /// The number of the last command; before the first one that the timeline begins with.
    pub(crate) fn last(&self) -> u64 {
        self.recorded.lock().last
    }

    /// Returns whether the program may have submitted something on the queue since the last command, by calls of its own.
    pub(crate) fn was_lent(&self) -> bool {
        self.covered.load(Ordering::Acquire) != self.queue.lent()
    }

    /// Notes, with the queue locked, that a command comes after all that is on it.
    pub(super) fn note_submitted(&self, value: u64) {
        self.covered.store(self.queue.lent(), Ordering::Release);
        self.timeline.note_submitted(value);
    }

    /// Enqueues what `record` records, after `waits` and all earlier commands, and returns its number.
    pub(crate) fn submit(
        self: &Arc<Self>,
        held_back: &HeldBack,
        waits: Vec<Wait>,
        record: impl FnOnce(Commands<'_>),
    ) -> Result<u64> {
        let device = self.timeline.device();
        device.check("a command")?;
        let mut recorded = self.recorded.lock();
        let buffer = recorded.begin(&self.timeline)?;
        let commands = Commands {
            raw: device.raw(),
            buffer,
        };
        commands.barrier(vk::PipelineStageFlags::ALL_COMMANDS);
        record(commands);
        // What the host sees at an address, it may read once the command has ended.
        commands.barrier(vk::PipelineStageFlags::HOST);
        // SAFETY: It is being recorded.
        let ended = unsafe { device.raw().end_command_buffer(buffer) }.of("vkEndCommandBuffer");
        let value = recorded.used + 1;
        let submission = Submission {
            lane: Arc::clone(self),
            commands: buffer,
            waits,
            value,
        };
        if let Err(error) = ended.and_then(|()| submission.go(held_back)) {
            recorded.free(device, buffer);
            return Err(error.into());
        }
        (recorded.last, recorded.used) = (value, value);
        recorded.flying.push_back((value, buffer));
        Ok(value)
    }

    /// Has `submit` enqueue something of the program's own on the locked queue, after `waits`, as the next command, and returns its number, which
    /// it has the timeline signal.
    pub(crate) fn submit_own(
        &self,
        mut waits: Vec<Wait>,
        submit: impl FnOnce(vk::Queue, &[Wait], u64) -> Result<(), vk::Result>,
    ) -> Result<u64> {
        let device = self.timeline.device();
        let mut recorded = self.recorded.lock();
        if !self.timeline.status(recorded.last).has_ended() {
            waits.push(Wait {
                timeline: Arc::clone(&self.timeline),
                value: recorded.last,
            });
        }
        if !waits.iter().all(Wait::is_submitted) {
            return Err(Error::unsupported(
                "a submit of the program's own that waits for a user event: resolve the event first",
            ));
        }
        let queue = self.queue.lend();
        device.check("a submit of the program's own")?;
        // The number is used up in any case: if the call fails or panics, it may have submitted something. No mark has the number then.
        recorded.used += 1;
        let value = recorded.used;
        self.timeline.note_submitted(value);
        let submitted = submit(*queue, &waits, value).of("a submit of the program's own");
        submitted.map_err(|error| device.failed(error))?;
        self.note_submitted(value);
        recorded.last = value;
        Ok(value)
    }
}

impl Recorded {
    /// Begins a command buffer: one whose commands have ended, or a new one.
    fn begin(&mut self, timeline: &Timeline) -> Result<vk::CommandBuffer, VulkanError> {
        let device = timeline.device();
        let raw = device.raw();
        let commands = if let Some(&(value, ended)) = self.flying.front()
            && timeline.status(value).has_ended()
        {
            self.flying.pop_front();
            ended
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

impl Drop for Lane {
    fn drop(&mut self) {
        let (raw, pool) = (self.timeline.device().raw(), self.recorded.get_mut().pool);
        // SAFETY: Its commands have ended: the core keeps a stream until then.
        unsafe { raw.destroy_command_pool(pool, None) };
    }
}
