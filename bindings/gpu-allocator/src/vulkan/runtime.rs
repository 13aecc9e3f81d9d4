//! A device without commands, for the pools: its blocks are memory of one type.
//!
//! Programs do not tell gpu-allocator about queues: what they free may be used again at once. So each mark here has
//! been reached.

use std::{fmt, sync::Arc};

use ash::vk;
use binpool_allocators::{
    Align, DeviceLimits, Error, EventStatus, MemoryFlags, OutOfMemory, QueueOrder, Result, Scope,
    Work,
    runtime::{Core, Objects, Part, Runtime},
};

use super::memory::{DeviceMemory, Failed, For, MemoryBlock};

/// A memory type.
pub(super) struct Kind {
    pub(super) memory: Arc<DeviceMemory>,
    pub(super) index: u32,
    pub(super) flags: vk::MemoryPropertyFlags,
    /// The size of its heap.
    pub(super) heap_bytes: u64,
}

impl Kind {
    pub(super) fn allocate(&self, bytes: u64, what: For) -> Result<MemoryBlock, Failed> {
        let is_mapped = self.flags.contains(vk::MemoryPropertyFlags::HOST_VISIBLE);
        MemoryBlock::new(&self.memory, self.index, bytes, is_mapped, what)
    }
}

/// A memory type, for parts of one alignment.
#[derive(Clone)]
pub(super) struct OneType {
    kind: Arc<Kind>,
    core: Arc<Core<Self>>,
}

impl OneType {
    pub(super) fn new(kind: &Arc<Kind>, alignment: Align) -> Self {
        let name = format!("memory type {}", kind.index);
        let largest = usize::try_from(kind.heap_bytes).unwrap_or(usize::MAX);
        let mut limits = DeviceLimits::new(name, kind.heap_bytes, largest, alignment);
        limits.buffer_views_are_addresses = true;
        Self {
            kind: Arc::clone(kind),
            core: Arc::new(Core::new(limits)),
        }
    }
}

impl fmt::Debug for OneType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

impl Objects for OneType {
    type Block = MemoryBlock;
    type Stream = ();
    type Mark = ();

    fn status((): &()) -> Result<EventStatus> {
        Ok(EventStatus::Complete)
    }

    fn wait((): &()) -> Result<()> {
        Ok(())
    }
}

impl Runtime for OneType {
    fn core(&self) -> &Arc<Core<Self>> {
        &self.core
    }

    fn allocate(&self, bytes: usize, _flags: MemoryFlags) -> Result<MemoryBlock> {
        let block = self.kind.allocate(bytes as u64, For::Parts);
        block.map_err(|failed| {
            let scope = match failed.result {
                vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_TOO_MANY_OBJECTS => {
                    Scope::Device
                }
                vk::Result::ERROR_OUT_OF_HOST_MEMORY => Scope::Host,
                result => return Error::backend(failed.call, Some(result.as_raw()), failed),
            };
            OutOfMemory::new(bytes, scope).with_source(failed).into()
        })
    }

    fn create_stream(&self, _order: QueueOrder) -> Result<()> {
        Ok(())
    }

    // SAFETY: a contract of the trait, which this does not need: there are no commands.
    #[expect(unsafe_code, reason = "only the core may call it")]
    unsafe fn submit(&self, (): &(), _after: &[()], work: Work<'_, &Part<'_, Self>>) -> Result<()> {
        match work {
            Work::Marker | Work::Barrier => Ok(()),
            _ => Err(Error::unsupported(
                "commands of an allocator without a queue",
            )),
        }
    }
}
