//! A recording as text that `binpool replay` reads.

use std::{
    collections::HashSet,
    fmt,
    io::{self, Write},
};

use crate::seeing::{
    asker,
    note::{Asked, Note, Noted},
    ticks::Ticks,
};

/// How many bytes of lines are written at once, about.
const PIECE: usize = 1 << 16;

/// What a recording came to.
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
    /// Blocks that were taken back.
    pub frees: u64,
    /// Requests that failed for lack of memory.
    pub shortages: u64,
}

/// Writes events as lines, in the format of the crate `binpool-replay`:
///
/// - `a ID BYTES STREAM TIME [GROUP]`: a block is handed out. The stream is the number of its queue, counted from 0 in the
///   order in which they come up. Times are nanoseconds since the recording began;
/// - `f ID TIME`: it is taken back;
/// - `o BYTES STREAM TIME [GROUP]`: a request fails for lack of memory;
/// - `g GROUP NAME`: the tag, or else the call site, that those of this group have in common.
pub(crate) struct TraceWriter {
    writer: Box<dyn Write + Send>,
    ticks: Ticks,
    /// When the recording began.
    start: u64,
    /// The time of the last line, in nanoseconds.
    time: u64,
    /// The numbers of the queues, in the order in which they came up.
    queues: Vec<u64>,
    groups: HashSet<u32>,
    /// What the last block was asked for, whose group has been named, and the stream of its queue.
    last: (Asked, u64),
    /// Lines that are not written yet.
    lines: Vec<u8>,
    digits: itoa::Buffer,
    written: RecordingSummary,
}

impl TraceWriter {
    pub(crate) fn new(writer: Box<dyn Write + Send>, ticks: Ticks) -> Self {
        Self {
            writer,
            start: ticks.now(),
            ticks,
            time: 0,
            queues: Vec::new(),
            groups: HashSet::new(),
            // No queue has this number, so that the first block is not like it.
            last: (
                Asked {
                    queue: u64::MAX,
                    group: 0,
                },
                0,
            ),
            lines: Vec::with_capacity(PIECE + 256),
            digits: itoa::Buffer::new(),
            written: RecordingSummary::default(),
        }
    }

    pub(crate) fn written(&self) -> RecordingSummary {
        self.written
    }

    /// Writes what a note says, which was made after all that were written before.
    pub(crate) fn write(&mut self, note: Note, asked: Asked) -> io::Result<()> {
        // A block comes before it goes, so a line that is late by some ticks is not made to be earlier than those before.
        self.time = self.time.max(self.ticks.nanoseconds(self.start, note.time));
        match note.says() {
            Noted::Allocated { id, bytes } => {
                let stream = self.stream(asked);
                self.push(b'a', &[id, bytes, stream, self.time]);
                self.end_line(asked.group);
                self.written.allocations += 1;
            }
            Noted::Freed { id } => {
                self.push(b'f', &[id, self.time]);
                self.end_line(0);
                self.written.frees += 1;
            }
            Noted::Refused { bytes } => {
                let stream = self.stream(asked);
                self.push(b'o', &[bytes, stream, self.time]);
                self.end_line(asked.group);
                self.written.shortages += 1;
            }
            Noted::Asked(_) => {}
        }
        if self.lines.len() < PIECE {
            return Ok(());
        }
        self.write_lines()
    }

    /// Has everything written.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.write_lines()?;
        self.writer.flush()
    }

    /// Whole lines, so that a program that dies leaves such.
    fn write_lines(&mut self) -> io::Result<()> {
        let written = self.writer.write_all(&self.lines);
        self.lines.clear();
        written
    }

    /// The stream of a queue. Says what the group is, if that is new.
    fn stream(&mut self, asked: Asked) -> u64 {
        if asked == self.last.0 {
            return self.last.1;
        }
        self.name(asked.group);
        let place = self.queues.iter().position(|queue| *queue == asked.queue);
        let place = place.unwrap_or_else(|| {
            self.queues.push(asked.queue);
            self.queues.len() - 1
        });
        self.last = (asked, place as u64);
        self.last.1
    }

    /// Says what a group is before it is used.
    fn name(&mut self, group: u32) {
        if group == 0 || !self.groups.insert(group) {
            return;
        }
        let name = asker::name_of(group).unwrap_or_default();
        // The frames of a stack are one a line.
        let name = name.replace('\n', " < ");
        self.push(b'g', &[u64::from(group)]);
        self.lines.push(b' ');
        self.lines.extend_from_slice(name.as_bytes());
        self.lines.push(b'\n');
    }

    #[inline]
    fn push(&mut self, kind: u8, numbers: &[u64]) {
        self.lines.push(kind);
        for number in numbers {
            self.push_number(*number);
        }
    }

    #[inline]
    fn push_number(&mut self, number: u64) {
        self.lines.push(b' ');
        let digits = self.digits.format(number);
        self.lines.extend_from_slice(digits.as_bytes());
    }

    /// Ends a line, with the group that its block is of; 0 for none.
    #[inline]
    fn end_line(&mut self, group: u32) {
        if group > 0 {
            self.push_number(u64::from(group));
        }
        self.lines.push(b'\n');
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

    fn written(notes: &[(Note, Asked)]) -> Vec<String> {
        let text = Shared::default();
        let mut writer = TraceWriter::new(Box::new(text.clone()), Ticks::new());
        for (note, asked) in notes {
            writer.write(*note, *asked).unwrap();
        }
        writer.flush().unwrap();
        let text = String::from_utf8(text.0.lock().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn times_never_fall() {
        let late = u64::MAX / 2;
        let asked = Asked::default();
        let lines = written(&[
            (Note::allocated(late, 1, 100), asked),
            (Note::freed(late - 1_000_000, 1), asked),
        ]);
        let times = lines
            .iter()
            .map(|line| line.split(' ').next_back().unwrap());
        let times: Vec<&str> = times.collect();
        assert_eq!(times[0], times[1]);
    }

    #[test]
    fn a_stream_is_numbered_in_the_order_of_its_first_block_and_a_group_named_once() {
        let group = asker::number_of_tag("of a written trace");
        let of = |queue, group| Asked { queue, group };
        let lines = written(&[
            (Note::allocated(0, 1, 8), of(50, group)),
            (Note::allocated(0, 2, 8), of(40, group)),
            (Note::allocated(0, 3, 8), of(50, group)),
            (Note::refused(0, 9), of(40, 0)),
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
    fn more_lines_than_are_written_at_once_are_all_written() {
        let asked = Asked::default();
        let notes: Vec<_> = (0..10_000)
            .map(|id| (Note::allocated(id, id, 8), asked))
            .collect();
        let lines = written(&notes);
        for (id, line) in lines.iter().enumerate() {
            assert!(line.starts_with(&format!("a {id} 8 0 ")), "{line}");
        }
        assert_eq!(lines.len(), notes.len());
    }
}
