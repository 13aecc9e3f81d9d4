//! Commands that move memory to a device before it is used.

use binpool_allocators::{AsMemory, Event, Memory, On, Region, Result, runtime::Access};
use bitflags::bitflags;
use cl3::memory::{CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, CL_MIGRATE_MEM_OBJECT_HOST};

use super::parts;
use crate::{
    backend::OpenClBackend,
    event::{ClEvent, ClOn},
    memory::cl_memory::ClMemory,
    order::memory_use::MemoryUse,
    queue::ClQueue,
    sys::{self, ClResult, EventHandle, MemHandle, Purpose, SvmRange, WaitList},
};

bitflags! {
    /// The destination of a migration, and whether the contents move. Empty: to the queue's device, with the contents.
    ///
    /// ```
    /// use binpool_allocators::Event;
    /// use binpool_opencl::MigrationFlags;
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    ///
    /// let results = backend.create_buffer_from(&[7_u8; 4096], MemoryFlags::empty())?;
    /// // To where the host will read them.
    /// backend.enqueue_migrate(&queue, &[&results], MigrationFlags::HOST)?;
    /// let mut seen = [0_u8; 4096];
    /// backend.read(&queue, &results, 0, &mut seen)?;
    /// assert_eq!(seen, [7; 4096]);
    /// // Back to the device, where kernels will write all of it: what it holds need not go along.
    /// let room = MigrationFlags::CONTENT_UNDEFINED;
    /// backend.enqueue_migrate(&queue, &[&results], room)?.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MigrationFlags: u64 {
        /// To the host instead of the queue's device.
        const HOST = CL_MIGRATE_MEM_OBJECT_HOST;
        /// The contents are unspecified afterwards. Without effect for a part of a block, beside which the contents are kept.
        const CONTENT_UNDEFINED = CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
    }
}

impl OpenClBackend {
    /// Enqueues a migration of blocks of memory, of buffers and of shared virtual memory in any mixture, bare or pooled:
    /// `PyOpenCL`'s `enqueue_migrate_mem_objects` and `enqueue_svm_migratemem`; OpenCL 3.0, sections 5.5.1 and 5.6.1.
    /// The event ends when all of them are there. Without any memory it is that of a marker.
    ///
    /// Whole blocks migrate. A migration is a hint. NVIDIA's driver crashes if one cannot begin
    /// at once, so on its platform memory stays where it is, and the event is a marker's.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](binpool_allocators::Error::Unsupported) for shared virtual memory on a device before OpenCL 2.1;
    /// [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject);
    /// [`Mapped`](binpool_allocators::InvalidRequest::Mapped); the failures of the runtime, including lack of memory.
    ///
    /// ```
    /// # use binpool_allocators::Event;
    /// use binpool_opencl::{MigrationFlags, OpenClBackend};
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    ///
    /// let weights = backend.create_buffer(1 << 20, MemoryFlags::empty())?;
    /// let results = backend.create_buffer(1 << 20, MemoryFlags::empty())?;
    /// // Both are on the device before the first kernel; what `results` holds need not go along.
    /// backend.enqueue_migrate(&queue, &[&weights], MigrationFlags::empty())?;
    /// backend.enqueue_migrate(&queue, &[&results], MigrationFlags::CONTENT_UNDEFINED)?.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enqueue_migrate<'q>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &[&dyn AsMemory<Self>],
        mut flags: MigrationFlags,
    ) -> Result<ClEvent> {
        let On { queue, wait_for } = on.into();
        self.check_own_queue(queue)?;
        let found = memory
            .iter()
            .map(|memory| self.bytes_on(queue, *memory, ..));
        let found: Vec<_> = found.collect::<Result<_>>()?;
        let is_part = |(memory, bytes): &(&ClMemory, Region)| bytes.bytes < memory.bytes();
        if found.iter().flatten().any(is_part) {
            // The runtime moves whole blocks, and the bytes beside a part keep their contents.
            flags.remove(MigrationFlags::CONTENT_UNDEFINED);
        }
        let memory = found.into_iter().flatten().map(|(memory, _)| memory);
        let (shared, buffers): (Vec<&ClMemory>, Vec<&ClMemory>) =
            memory.partition(|memory| memory.svm().is_some());
        let stays = self.stays(flags);
        let moving = buffers.iter().filter(|_| !stays);
        let handles = moving.filter_map(|memory| memory.object().transpose());
        let handles: Vec<_> = handles.collect::<Result<_>>()?;
        if !shared.is_empty() {
            let (what, instead) = (
                "migration of shared virtual memory",
                "leave it out, the memory moves when it is used",
            );
            self.context().check_version((2, 1), what, instead)?;
        }
        let blocks = shared
            .iter()
            .filter_map(|memory| memory.svm_range(Region::first(memory.bytes())));
        // The host's own memory stays where it is.
        let moving = blocks.filter(|range| !range.is_of_the_host() && !self.nothing_migrates());
        let blocks: Vec<_> = moving.collect();
        let uses: Vec<_> = buffers.iter().chain(&shared).map(|it| whole(it)).collect();
        self.submit(queue, purpose(&uses), &uses, wait_for, |wait| {
            migrate(queue, &handles, &blocks, flags, wait)
        })
    }

    /// Makes the device allocate the memory of `buffer`, which is all or a part of `memory`, and waits for that.
    pub(crate) fn commit_memory(&self, queue: &ClQueue, memory: &ClMemory) -> Result<()> {
        let uses = [whole(memory)];
        let (object, flags) = match memory.root() {
            Some((root, _)) if self.nothing_migrates() => {
                (Some(&root.handle), MigrationFlags::empty())
            }
            _ => (memory.object()?, MigrationFlags::CONTENT_UNDEFINED),
        };
        let Some(object) = object else {
            // SVM is committed when it is allocated.
            return Ok(());
        };
        self.on_idle_queue(queue, |queue| {
            let committed = self.submit(queue, purpose(&uses), &uses, &[], |wait| {
                if self.nothing_migrates() && !wait.is_empty() {
                    // A command that it waits for uses the memory, which is therefore allocated already.
                    return sys::enqueue_marker(queue.handle(), wait);
                }
                migrate(queue, &[object], &[], flags, wait)
            });
            committed?.wait()
        })
    }

    fn nothing_migrates(&self) -> bool {
        self.context().quirks.migration_crashes
    }

    /// Returns whether buffers and images stay where they are.
    pub(crate) fn stays(&self, flags: MigrationFlags) -> bool {
        let to_host = flags.contains(MigrationFlags::HOST);
        self.nothing_migrates() || to_host && self.context().quirks.migration_to_host_hangs
    }
}

/// Enqueues a migration of objects and of shared virtual memory, as far as there are any.
///
/// OpenCL has a call for each kind: the second call waits for the first.
pub(crate) fn migrate(
    queue: &ClQueue,
    objects: &[&MemHandle],
    blocks: &[SvmRange<'_>],
    flags: MigrationFlags,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    let shared =
        |wait: &WaitList<'_>| sys::enqueue_svm_migrate(queue.handle(), blocks, flags.bits(), wait);
    match (objects.is_empty(), blocks.is_empty()) {
        (true, true) => sys::enqueue_marker(queue.handle(), wait),
        (true, false) => shared(wait),
        (false, _) => {
            let first = sys::enqueue_migrate(queue.handle(), objects, flags.bits(), wait)?;
            if blocks.is_empty() {
                return Ok(first);
            }
            parts::enqueue_after(queue, &first, shared)
        }
    }
}

/// Returns the use of a migration, which counts as a write: contents may get lost, and no other command may read them while
/// they move.
fn whole(memory: &ClMemory) -> MemoryUse<'_> {
    memory.used(Region::first(memory.bytes()), Access::Write)
}

pub(crate) fn purpose(uses: &[MemoryUse<'_>]) -> Purpose {
    let bytes = uses.iter().map(|used| used.region.bytes);
    Purpose::Memory(bytes.fold(0, usize::saturating_add))
}

#[cfg(test)]
mod tests {
    use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    use cl3::event::{
        CL_COMMAND_MARKER, CL_COMMAND_MIGRATE_MEM_OBJECTS, CL_EVENT_COMMAND_TYPE, get_event_info,
    };

    use super::*;
    use crate::testing::open_as;

    #[test]
    fn memory_moves_unless_the_runtime_crashes_or_hangs_then() {
        let (host, device) = (MigrationFlags::HOST, MigrationFlags::empty());
        for (crashes, hangs, flags, moves) in [
            (false, false, host, true),
            (false, false, device, true),
            (false, true, host, false),
            (false, true, device, true),
            (true, false, host, false),
            (true, false, device, false),
        ] {
            let backend = open_as(|context| {
                context.quirks.migration_crashes = crashes;
                context.quirks.migration_to_host_hangs = hangs;
            });
            let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
            let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
            let moved = backend.enqueue_migrate(&queue, &[&memory], flags).unwrap();
            let kind = get_event_info(moved.handle().raw(), CL_EVENT_COMMAND_TYPE).unwrap();
            let expected = if moves {
                CL_COMMAND_MIGRATE_MEM_OBJECTS
            } else {
                CL_COMMAND_MARKER
            };
            assert_eq!(kind.to_uint(), expected, "{crashes} {hangs} {flags:?}");
        }
    }
}
