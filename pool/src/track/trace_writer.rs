//! A recording as text that `binpool replay` reads.

use std::{
    borrow::Cow,
    collections::HashSet,
    fmt,
    io::{self, Write},
};

use binpool_trace::{Line, PoolEvent, Request};

use crate::track::{
    names,
    ticks::Ticks,
    trace_event::{DecodedEvent, QueueAndGroup, TraceEvent},
};

/// About how many bytes of lines are written at once.
const BYTES_PER_WRITE: usize = 1 << 16;

/// The totals of a recording.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::builder().capacity_bytes(64 << 20).build().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let recording = pool.record(std::io::sink())?;
/// let kept = pool.allocate(48 << 20)?;
/// drop(pool.allocate(4096)?);
/// assert!(pool.allocate(32 << 20).is_err());
/// let summary = recording.finish()?;
/// assert_eq!((summary.allocations, summary.frees), (2, 1));
/// assert_eq!(summary.shortages, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordingSummary {
    /// Blocks that were handed out.
    pub allocations: u64,
    /// Blocks that were freed.
    pub frees: u64,
    /// Requests that failed for lack of memory.
    pub shortages: u64,
}

/// Writes events as the [lines](Line) of a trace. The stream of a block is the number of its queue, counted from 0 in the order of
/// appearance; its group is its tag, or else its call site. Times are nanoseconds since the recording began.
pub(crate) struct TraceWriter {
    writer: Box<dyn Write + Send>,
    ticks: Ticks,
    /// The time at which the recording began, in ticks.
    start: u64,
    /// The time of the last line, in nanoseconds.
    time: u64,
    /// The numbers of the queues, in the order of appearance.
    queues: Vec<u64>,
    groups: HashSet<u32>,
    stacks: HashSet<u32>,
    /// The last queue and group, whose name has been written, and the stream of that queue.
    last: (QueueAndGroup, u32),
    /// Lines that are not written yet.
    lines: Vec<u8>,
    written: RecordingSummary,
}

impl TraceWriter {
    /// Returns a writer whose text begins with this header.
    pub(crate) fn new(
        writer: Box<dyn Write + Send>,
        ticks: Ticks,
        header: &[(&'static str, String)],
    ) -> Self {
        let mut lines = Vec::with_capacity(BYTES_PER_WRITE + 256);
        for (key, value) in header {
            // A line is one line, whatever the name of a device or a program has in it.
            let value = value.replace(char::is_control, " ");
            let value = value.trim();
            Line::Header { key, value }.write(&mut lines);
        }
        Self {
            writer,
            start: ticks.now(),
            ticks,
            time: 0,
            queues: Vec::new(),
            groups: HashSet::new(),
            stacks: HashSet::new(),
            // No queue has this number, so the first block differs from it.
            last: (
                QueueAndGroup {
                    queue: u64::MAX,
                    ..QueueAndGroup::default()
                },
                0,
            ),
            lines,
            written: RecordingSummary::default(),
        }
    }

    pub(crate) fn written(&self) -> RecordingSummary {
        self.written
    }

    /// Writes an event. Events must come in the order of [`in_order`](crate::track::merge::in_order).
    pub(crate) fn write(&mut self, event: TraceEvent, source: QueueAndGroup) -> io::Result<()> {
        self.advance(event.time);
        match event.decode() {
            DecodedEvent::Allocated { id, bytes } => {
                let request = self.request(bytes, source);
                Line::Allocated { id, request }.write(&mut self.lines);
                self.written.allocations += 1;
            }
            DecodedEvent::Freed { id } => {
                let time = Some(self.time);
                Line::Freed { id, time }.write(&mut self.lines);
                self.written.frees += 1;
            }
            DecodedEvent::Refused { bytes } => {
                let request = self.request(bytes, source);
                Line::Refused { request }.write(&mut self.lines);
                self.written.shortages += 1;
            }
            DecodedEvent::QueueAndGroup(_) | DecodedEvent::OfPool { .. } => {}
        }
        self.write_if_enough()
    }

    /// Writes an event of the pool, whose time is in ticks.
    pub(crate) fn write_of_pool(&mut self, time: u64, event: &PoolEvent) -> io::Result<()> {
        self.advance(time);
        let (event, time) = (Cow::Borrowed(event), Some(self.time));
        Line::Pool { event, time }.write(&mut self.lines);
        self.write_if_enough()
    }

    /// Moves on to a time in ticks. Times never fall: an event that is early by some ticks gets the time of the line before.
    fn advance(&mut self, time: u64) {
        self.time = self.time.max(self.ticks.nanoseconds(self.start, time));
    }

    fn write_if_enough(&mut self) -> io::Result<()> {
        if self.lines.len() < BYTES_PER_WRITE {
            return Ok(());
        }
        self.write_lines()
    }

    /// Writes all lines and flushes the writer.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.write_lines()?;
        self.writer.flush()
    }

    /// Writes whole lines, so that a program that dies leaves whole lines.
    fn write_lines(&mut self) -> io::Result<()> {
        let written = self.writer.write_all(&self.lines);
        self.lines.clear();
        written
    }

    /// Returns the request of a block, whose group and stack are named if they are new.
    #[inline]
    fn request(&mut self, bytes: u64, source: QueueAndGroup) -> Request {
        let group = u64::from(source.group);
        Request {
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            stream: self.stream(source),
            time: Some(self.time),
            group: (group > 0).then_some(group),
            stack: (group > 0 && source.stack > 0).then_some(u64::from(source.stack)),
        }
    }

    /// Returns the stream of a queue, and names the group if it is new.
    fn stream(&mut self, source: QueueAndGroup) -> u32 {
        if source == self.last.0 {
            return self.last.1;
        }
        if source.stack > 0 {
            self.name_stack(source.stack);
        }
        self.name(source.group);
        let stream = self.queues.iter().position(|queue| *queue == source.queue);
        let stream = stream.unwrap_or_else(|| {
            self.queues.push(source.queue);
            self.queues.len() - 1
        });
        self.last = (source, u32::try_from(stream).unwrap_or(u32::MAX));
        self.last.1
    }

    /// Writes the name of a group before its first use.
    fn name(&mut self, group: u32) {
        if group == 0 || !self.groups.insert(group) {
            return;
        }
        let name = names::name_of(group).unwrap_or_default();
        // Of a stack, the first frame: all of it has lines of its own.
        let (group, name) = (group.into(), name.lines().next().unwrap_or_default());
        Line::Group { group, name }.write(&mut self.lines);
    }

    /// Writes the frames of a stack before its first use.
    fn name_stack(&mut self, stack: u32) {
        if !self.stacks.insert(stack) {
            return;
        }
        let frames = names::name_of(stack).unwrap_or_default();
        let stack = stack.into();
        for frame in frames.lines() {
            Line::Frame { stack, frame }.write(&mut self.lines);
        }
    }
}

impl fmt::Debug for TraceWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceWriter")
            .field("time", &self.time)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(events: &[(TraceEvent, QueueAndGroup)]) -> Vec<String> {
        let text = Shared::default();
        let mut writer = TraceWriter::new(Box::new(text.clone()), Ticks::new(), &[]);
        for (event, source) in events {
            writer.write(*event, *source).unwrap();
        }
        writer.flush().unwrap();
        let text = String::from_utf8(text.0.lock().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn times_never_fall() {
        let late = u64::MAX / 2;
        let source = QueueAndGroup::default();
        let lines = written(&[
            (TraceEvent::allocated(late, 1, 100), source),
            (TraceEvent::freed(late - 1_000_000, 1), source),
        ]);
        let times = lines
            .iter()
            .map(|line| line.split(' ').next_back().unwrap());
        let times: Vec<&str> = times.collect();
        assert_eq!(times[0], times[1]);
    }

    #[test]
    fn streams_are_numbered_by_their_first_block_and_a_group_is_named_once() {
        let group = names::number_of_tag("of a written trace");
        let of = |queue, group| QueueAndGroup {
            queue,
            group,
            stack: 0,
        };
        let lines = written(&[
            (TraceEvent::allocated(0, 1, 8), of(50, group)),
            (TraceEvent::allocated(0, 2, 8), of(40, group)),
            (TraceEvent::allocated(0, 3, 8), of(50, group)),
            (TraceEvent::refused(0, 9), of(40, 0)),
        ]);
        let expected = [
            format!("g {group} of a written trace"),
            format!("a 1 8 0 0 {group}"),
            format!("a 2 8 1 0 {group}"),
            format!("a 3 8 0 0 {group}"),
            "o 9 1 0".into(),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn lines_beyond_the_bytes_per_write_are_all_written() {
        let source = QueueAndGroup::default();
        let events: Vec<_> = (0..10_000)
            .map(|id| (TraceEvent::allocated(id, id, 8), source))
            .collect();
        let lines = written(&events);
        for (id, line) in lines.iter().enumerate() {
            assert!(line.starts_with(&format!("a {id} 8 0 ")), "{line}");
        }
        assert_eq!(lines.len(), events.len());
    }
}
