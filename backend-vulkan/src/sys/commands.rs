//! Commands, as they are recorded.

use ash::vk;

/// A place in a buffer.
#[derive(Clone, Copy)]
pub(crate) struct At {
    pub(crate) buffer: vk::Buffer,
    pub(crate) offset: u64,
}

/// A command buffer that is being recorded. The core has checked what the commands use, and keeps it until they have ended.
#[derive(Clone, Copy)]
pub(crate) struct Commands<'a> {
    pub(super) raw: &'a ash::Device,
    pub(super) buffer: vk::CommandBuffer,
}

impl Commands<'_> {
    /// Has what follows at these stages come after all earlier commands of the queue, and see what they have written.
    pub(crate) fn barrier(self, stages: vk::PipelineStageFlags) {
        let barrier = vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::MEMORY_WRITE)
            .dst_access_mask(vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE);
        let Self { raw, buffer } = self;
        let (all, none) = (
            vk::PipelineStageFlags::ALL_COMMANDS,
            vk::DependencyFlags::empty(),
        );
        // SAFETY: The buffer is being recorded.
        unsafe { raw.cmd_pipeline_barrier(buffer, all, stages, none, &[barrier], &[], &[]) };
    }

    /// Fills a place with repetitions of a word. Offset and bytes are multiples of four.
    pub(crate) fn fill(self, to: At, bytes: usize, word: u32) {
        let Self { raw, buffer } = self;
        // SAFETY: The place has the bytes, and lives until the command has ended.
        unsafe { raw.cmd_fill_buffer(buffer, to.buffer, to.offset, bytes as u64, word) };
    }

    /// Writes a place with bytes that the command has a copy of: at most 64 KiB. Offset and bytes are multiples of four.
    pub(crate) fn update(self, to: At, data: &[u8]) {
        let Self { raw, buffer } = self;
        // SAFETY: The place has the bytes, and lives until the command has ended.
        unsafe { raw.cmd_update_buffer(buffer, to.buffer, to.offset, data) };
    }

    /// Copies bytes between places that do not overlap.
    pub(crate) fn copy(self, from: At, to: At, bytes: usize) {
        let Self { raw, buffer } = self;
        let region = vk::BufferCopy {
            src_offset: from.offset,
            dst_offset: to.offset,
            size: bytes as u64,
        };
        // SAFETY: Both places have the bytes, and live until the command has ended.
        unsafe { raw.cmd_copy_buffer(buffer, from.buffer, to.buffer, &[region]) };
    }
}
