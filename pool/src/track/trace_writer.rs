//! A recording as text that `binpool replay` reads.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    io::{self, Write},
};

use binpool_trace::Line;

use crate::track::{
    batch::{Batch, TraceClock, WindowLines},
    names,
    recording_summary::RecordingSummary,
    ticks::Ticks,
    trace_event::{Chunk, QueueAndGroup},
};

/// Writes the [lines](Line) of a trace. The stream of a block is the number of its queue, counted from 0 in the order of
/// appearance; its group is its tag, or else its call site. Times are nanoseconds since the recording began.
pub(crate) struct TraceWriter {
    writer: Box<dyn Write + Send>,
    clock: TraceClock,
    /// The numbers of the queues, in the order of appearance.
    queues: Vec<u64>,
    groups: HashSet<u32>,
    stacks: HashSet<u32>,
    /// The queues and groups whose names have been written, and the streams of those queues.
    known: HashMap<QueueAndGroup, u32>,
    /// The header and names that are not written yet.
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
        let mut lines = Vec::new();
        for (key, value) in header {
            // Whatever the name of a device or a program contains, it stays on one line.
            let value = value.replace(char::is_control, " ");
            let value = value.trim();
            Line::Header { key, value }.write(&mut lines);
        }
        Self {
            writer,
            clock: TraceClock::start(ticks),
            queues: Vec::new(),
            groups: HashSet::new(),
            stacks: HashSet::new(),
            known: HashMap::new(),
            lines,
            written: RecordingSummary::default(),
        }
    }

    pub(crate) fn written(&self) -> RecordingSummary {
        self.written
    }

    /// Begins the next batch, whose events must come after those of the last one: numbers its queues, and writes the names that are new in
    /// it.
    pub(crate) fn begin(&mut self, mut chunks: Vec<Chunk>) -> Batch {
        let mut fresh = Vec::new();
        for chunk in &mut chunks {
            for source in &mut chunk.sources {
                match self.known.get(&source.caller) {
                    Some(stream) => source.stream = *stream,
                    None => fresh.push((chunk.events[source.from].time, source.caller)),
                }
            }
        }
        if !fresh.is_empty() {
            fresh.sort_by_key(|(time, _)| *time);
            for (_, caller) in fresh {
                self.introduce(caller);
            }
            return self.begin(chunks);
        }
        Batch::new(chunks, &mut self.clock)
    }

    /// Gives a queue its number, and writes the names of the group and the stack if they are new.
    fn introduce(&mut self, caller: QueueAndGroup) {
        if caller.stack > 0 {
            self.name_stack(caller.stack);
        }
        self.name(caller.group);
        let stream = self.queues.iter().position(|queue| *queue == caller.queue);
        let stream = stream.unwrap_or_else(|| {
            self.queues.push(caller.queue);
            self.queues.len() - 1
        });
        self.known
            .insert(caller, u32::try_from(stream).unwrap_or(u32::MAX));
    }

    /// Writes the lines of the next window.
    pub(crate) fn write(&mut self, lines: &WindowLines) -> io::Result<()> {
        self.write_names()?;
        self.writer.write_all(&lines.text)?;
        self.written.add(lines.has);
        Ok(())
    }

    /// Writes what is left and flushes the writer.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.write_names()?;
        self.writer.flush()
    }

    fn write_names(&mut self) -> io::Result<()> {
        let written = self.writer.write_all(&self.lines);
        self.lines.clear();
        written
    }

    /// Writes the name of a group before its first use.
    fn name(&mut self, group: u32) {
        if group == 0 || !self.groups.insert(group) {
            return;
        }
        let name = names::name_of(group).unwrap_or_default();
        // For a stack, the first frame: the whole stack has lines of its own.
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
            .field("clock", &self.clock)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::track::trace_event::{Source, TraceEvent};

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

    /// What is written of batches, each of one chunk.
    fn written(batches: Vec<Vec<(TraceEvent, QueueAndGroup)>>) -> Vec<String> {
        let text = Shared::default();
        let mut writer = TraceWriter::new(Box::new(text.clone()), Ticks::new(), &[]);
        for events in batches {
            let (events, callers): (Vec<_>, Vec<_>) = events.into_iter().unzip();
            let source = |(from, caller)| Source {
                from,
                caller,
                stream: 0,
            };
            let batch = writer.begin(vec![Chunk {
                events,
                sources: callers.into_iter().enumerate().map(source).collect(),
                ..Chunk::default()
            }]);
            for window in 0..batch.windows() {
                writer.write(&batch.lines_of(window, Vec::new())).unwrap();
            }
        }
        writer.flush().unwrap();
        let text = String::from_utf8(text.0.lock().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn times_never_fall_from_one_batch_to_the_next() {
        let late = u64::MAX / 4;
        let source = QueueAndGroup::default();
        let lines = written(vec![
            vec![(TraceEvent::allocated(late, 1, 100), source)],
            vec![(TraceEvent::freed(late - 1_000_000, 1), source)],
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
        let lines = written(vec![vec![
            (TraceEvent::allocated(0, 1, 8), of(50, group)),
            (TraceEvent::allocated(0, 2, 8), of(40, group)),
            (TraceEvent::allocated(0, 3, 8), of(50, group)),
            (TraceEvent::refused(0, 9), of(40, 0)),
        ]]);
        let expected = [
            format!("g {group} of a written trace"),
            format!("a 1 8 0 0 {group}"),
            format!("a 2 8 1 0 {group}"),
            format!("a 3 8 0 0 {group}"),
            "o 9 1 0".into(),
        ];
        assert_eq!(lines, expected);
    }
}
