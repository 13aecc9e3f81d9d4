//! Races: two commands that touch the same bytes without an order.

use std::{borrow::Cow, fmt};

use binpool_allocators::{MemoryId, QueueId, Region};

use crate::CommandId;

/// A command, and the bytes of a block that it touched.
///
/// ```
/// # use binpool_allocators::{Backend, MemoryFlags, Queue, QueueOrder, Region};
/// # use binpool_mock::{MockDevice, Violation};
/// # let device = MockDevice::new();
/// # let backend = device.backend();
/// let buffer = backend.create_buffer(1024, MemoryFlags::empty())?;
/// let [load, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
/// backend.enqueue_fill(&load, &buffer, Region::new(256, 256), &[7_u8])?;
/// backend.launch(&compute, "sum", &[&buffer], &[], |_, _| {})?;
/// let violations = device.violations();
/// let [Violation::Race(race)] = &violations[..] else {
///     panic!("{violations:?}");
/// };
/// let (fill, sum) = (&race.first, &race.second);
/// assert_eq!((fill.queue, sum.queue), (load.id(), compute.id()));
/// assert!(fill.writes && !sum.writes);
/// assert_eq!(fill.region, Region::new(256, 256)); // The bytes that both touch.
/// assert_eq!((sum.name.as_ref(), sum.region.bytes), ("sum", 1024));
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Touch {
    /// The command.
    pub command: CommandId,
    /// Its name: a kernel's own, or the call's.
    pub name: Cow<'static, str>,
    /// Its queue.
    pub queue: QueueId,
    /// Set if the command writes the bytes; otherwise it reads them.
    pub writes: bool,
    /// The bytes, counted from the start of the block.
    pub region: Region,
    /// The block, or the view of it, that was passed to the command.
    pub memory: MemoryId,
}

impl fmt::Display for Touch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            command,
            name,
            queue,
            writes,
            region,
            memory,
        } = self;
        write!(
            f,
            "command {command} ({name}) on queue {queue} {} bytes {}..{} (as memory {memory})",
            if *writes { "writes" } else { "reads" },
            region.offset,
            region.offset.saturating_add(region.bytes),
        )
    }
}

/// Two commands that touch the same bytes of a block, at least one of them to write, without an order between them: by a
/// queue, a wait list, a barrier or a marker, or by an end that the host saw before it enqueued the second. On
/// a real device they may run in either order, or at the same time.
///
/// ```
/// # use binpool_allocators::{Queue, Backend, MemoryFlags, QueueOrder, Region};
/// # use binpool_mock::{MockDevice, Violation};
/// # let device = MockDevice::new();
/// # let backend = device.backend();
/// # let buffer = backend.create_buffer(1024, MemoryFlags::empty())?;
/// # let [load, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
/// let whole = Region::first(1024);
/// let filled = backend.enqueue_fill(&load, &buffer, whole, &[1_u8])?;
/// backend.enqueue_read(compute.after(&[filled]), &buffer, whole)?;
/// backend.enqueue_fill(&load, &buffer, whole, &[2_u8])?; // Without a wait list.
///
/// let violations = device.violations();
/// let [Violation::Race(race)] = &violations[..] else {
///     panic!("{violations:?}");
/// };
/// assert_eq!((race.bytes, race.history.len()), (1024, 2));
/// let commands = [&race.first, &race.second].map(|touch| touch.command.get());
/// assert_eq!(commands, [2, 3]); // The read and the second fill.
/// println!("{race}"); // With queues, names and bytes.
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Race {
    /// The block.
    pub memory: MemoryId,
    /// Its size in bytes.
    pub bytes: usize,
    /// The command that ended first.
    pub first: Touch,
    /// The command that ended second.
    pub second: Touch,
    /// The last commands that touched the block before the second one, oldest first, at most 16.
    pub history: Vec<Touch>,
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            memory,
            bytes,
            first,
            second,
            history,
        } = self;
        write!(
            f,
            "race on memory {memory} of {bytes} bytes: {first}, and {second}, but no queue, event, barrier or host \
             wait orders them; earlier, the block was touched by"
        )?;
        for touch in history {
            write!(f, "\n  {touch}")?;
        }
        Ok(())
    }
}
