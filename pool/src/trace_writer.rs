//! A recording as text that `binpool replay` reads.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    io::{self, Write},
};

use crate::{
    asker,
    tape::{Event, EventKind},
    ticks::Ticks,
};

/// What a recording came to.
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
    /// By the numbers of the queues.
    streams: HashMap<u64, u32>,
    groups: HashSet<u32>,
    /// The line that is being written.
    line: Vec<u8>,
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
            streams: HashMap::new(),
            groups: HashSet::new(),
            line: Vec::new(),
            digits: itoa::Buffer::new(),
            written: RecordingSummary::default(),
        }
    }

    pub(crate) fn written(&self) -> RecordingSummary {
        self.written
    }

    /// Writes events, which happened after all that were written before.
    pub(crate) fn write(&mut self, mut events: Vec<Event>) -> io::Result<()> {
        put_beginnings_first(&mut events);
        for Event { time, kind } in events {
            // A block comes before it goes, so a line that is late by some ticks is not made to be earlier than those before.
            self.time = self.time.max(self.ticks.nanoseconds(self.start, time));
            match kind {
                EventKind::Allocated {
                    id,
                    bytes,
                    queue,
                    group,
                } => {
                    self.name(group)?;
                    let stream = self.stream(queue);
                    self.push(b"a", &[id, bytes, stream, self.time]);
                    self.push_group(group);
                    self.written.allocations += 1;
                }
                EventKind::Freed { id } => {
                    self.push(b"f", &[id, self.time]);
                    self.written.frees += 1;
                }
                EventKind::Refused {
                    bytes,
                    queue,
                    group,
                } => {
                    self.name(group)?;
                    let stream = self.stream(queue);
                    self.push(b"o", &[bytes, stream, self.time]);
                    self.push_group(group);
                    self.written.shortages += 1;
                }
            }
            self.end_line()?;
        }
        self.writer.flush()
    }

    fn stream(&mut self, queue: u64) -> u64 {
        let next = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        u64::from(*self.streams.entry(queue).or_insert(next))
    }

    /// Says what a group is before it is used.
    fn name(&mut self, group: u32) -> io::Result<()> {
        if group == 0 || !self.groups.insert(group) {
            return Ok(());
        }
        let name = asker::name_of(group).unwrap_or_default();
        // The frames of a stack are one a line.
        let name = name.replace('\n', " < ");
        self.push(b"g", &[u64::from(group)]);
        self.line.push(b' ');
        self.line.extend_from_slice(name.as_bytes());
        self.end_line()
    }

    fn push(&mut self, kind: &[u8], numbers: &[u64]) {
        self.line.extend_from_slice(kind);
        for number in numbers {
            self.line.push(b' ');
            let digits = self.digits.format(*number);
            self.line.extend_from_slice(digits.as_bytes());
        }
    }

    fn push_group(&mut self, group: u32) {
        if group > 0 {
            self.push(b"", &[u64::from(group)]);
        }
    }

    /// A line is one write, so that a program that dies leaves whole lines.
    fn end_line(&mut self) -> io::Result<()> {
        self.line.push(b'\n');
        self.writer.write_all(&self.line)?;
        self.line.clear();
        Ok(())
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

/// Among events of the same time, which different threads may have written, puts the beginning of a block before its end.
fn put_beginnings_first(events: &mut [Event]) {
    for same in events.chunk_by_mut(|one, other| one.time == other.time) {
        if same.len() == 1 {
            continue;
        }
        let begun = same.iter().filter_map(|event| match event.kind {
            EventKind::Allocated { id, .. } => Some(id),
            _ => None,
        });
        let begun: HashSet<u64> = begun.collect();
        let mut seen = HashSet::new();
        let is_early = same.iter().any(|event| match event.kind {
            EventKind::Allocated { id, .. } => {
                seen.insert(id);
                false
            }
            EventKind::Freed { id } => begun.contains(&id) && !seen.contains(&id),
            EventKind::Refused { .. } => false,
        });
        if is_early {
            same.sort_by_key(|event| matches!(event.kind, EventKind::Freed { .. }));
        }
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

    const fn begin(time: u64, id: u64) -> Event {
        let kind = EventKind::Allocated {
            id,
            bytes: 100,
            queue: 70,
            group: 0,
        };
        Event { time, kind }
    }

    const fn end(time: u64, id: u64) -> Event {
        let kind = EventKind::Freed { id };
        Event { time, kind }
    }

    fn written(batches: &[&[Event]]) -> Vec<String> {
        let text = Shared::default();
        let mut writer = TraceWriter::new(Box::new(text.clone()), Ticks::new());
        for batch in batches {
            writer.write(batch.to_vec()).unwrap();
        }
        let text = String::from_utf8(text.0.lock().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// The first two words of each line.
    fn kinds_and_ids(lines: &[String]) -> Vec<&str> {
        let words = lines.iter().map(|line| {
            let end = line
                .match_indices(' ')
                .nth(1)
                .map_or(line.len(), |(at, _)| at);
            &line[..end]
        });
        words.collect()
    }

    #[test]
    fn a_block_begins_before_it_ends_also_where_two_threads_say_so_at_the_same_time() {
        let lines = written(&[&[end(5, 1), begin(5, 2), begin(5, 1)]]);
        assert_eq!(kinds_and_ids(&lines), ["a 2", "a 1", "f 1"]);
        // Where nothing is wrong, nothing is moved.
        let lines = written(&[&[begin(5, 1), end(5, 1), begin(5, 2)]]);
        assert_eq!(kinds_and_ids(&lines), ["a 1", "f 1", "a 2"]);
    }

    #[test]
    fn times_never_fall() {
        let late = u64::MAX / 2;
        let lines = written(&[&[begin(late, 1)], &[end(late - 1_000_000, 1)]]);
        let times = lines
            .iter()
            .map(|line| line.split(' ').next_back().unwrap());
        let times: Vec<&str> = times.collect();
        assert_eq!(times[0], times[1]);
    }

    #[test]
    fn a_stream_is_numbered_in_the_order_of_its_first_block_and_a_group_named_once() {
        let group = asker::number_of_tag("of a written trace");
        let of = |id, queue| Event {
            time: 0,
            kind: EventKind::Allocated {
                id,
                bytes: 8,
                queue,
                group,
            },
        };
        let refused = Event {
            time: 0,
            kind: EventKind::Refused {
                bytes: 9,
                queue: 40,
                group: 0,
            },
        };
        let lines = written(&[&[of(1, 50), of(2, 40)], &[of(3, 50), refused]]);
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
