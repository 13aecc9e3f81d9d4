//! The part of a recording that is written at a time, divided so that several threads can turn it into lines.

use std::{borrow::Cow, collections::BTreeMap, ops::Range};

use binpool_trace::{Line, Request};

use crate::track::{
    merge::in_order,
    recording_summary::RecordingSummary,
    ticks::Ticks,
    trace_event::{Chunk, DecodedEvent, Source},
};

/// About how many events a window has: some tenths of a millisecond of work.
pub(crate) const EVENTS_PER_WINDOW: usize = if cfg!(shuttle) { 2 } else { 8192 };

/// One event in this many is looked at to find where windows should begin.
const EVENTS_PER_SAMPLE: usize = if cfg!(shuttle) { 1 } else { 256 };

/// Everything that happened between two moments. It is divided by time into *windows*, whose lines can be made independently of each other.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The chunks of each event buffer, in order.
    buffers: Vec<Vec<Chunk>>,
    /// The times at which windows begin, and the end of the last one.
    edges: Vec<u64>,
    clock: TraceClock,
}

/// Tells the times of lines: nanoseconds since the recording began.
#[derive(Clone, Debug)]
pub(crate) struct TraceClock {
    ticks: Ticks,
    /// The time at which the recording began, in ticks.
    start: u64,
    /// No line has an earlier time, in nanoseconds.
    earliest: u64,
}

/// The lines of a window.
#[derive(Debug, Default)]
pub(crate) struct WindowLines {
    pub(crate) text: Vec<u8>,
    pub(crate) has: RecordingSummary,
}

impl TraceClock {
    pub(crate) fn start(ticks: Ticks) -> Self {
        Self {
            start: ticks.now(),
            ticks,
            earliest: 0,
        }
    }

    fn nanoseconds(&self, time: u64) -> u64 {
        self.earliest.max(self.ticks.nanoseconds(self.start, time))
    }
}

impl Batch {
    /// Divides events into windows. Advances the clock, so that no line of a later batch has an earlier time.
    pub(crate) fn new(chunks: Vec<Chunk>, clock: &mut TraceClock) -> Self {
        let mut buffers: BTreeMap<u64, Vec<Chunk>> = BTreeMap::new();
        for chunk in chunks {
            buffers.entry(chunk.buffer).or_default().push(chunk);
        }
        let batch = Self {
            buffers: buffers.into_values().collect(),
            edges: Vec::new(),
            clock: clock.clone(),
        };
        let last = batch.chunks().filter_map(|chunk| chunk.events.last());
        let last = last.map(|event| event.time).max();
        clock.earliest = last.map_or(clock.earliest, |last| clock.nanoseconds(last));
        Self {
            edges: batch.edges(),
            ..batch
        }
    }

    fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.buffers.iter().flatten()
    }

    /// Returns times that divide the events into about equal numbers.
    fn edges(&self) -> Vec<u64> {
        let events = |chunk| -> &[_] {
            let chunk: &Chunk = chunk;
            &chunk.events
        };
        let samples = self.chunks().map(events);
        let samples = samples.flat_map(|events| events.iter().step_by(EVENTS_PER_SAMPLE));
        let mut samples: Vec<u64> = samples.map(|event| event.time).collect();
        samples.sort_unstable();
        let each = EVENTS_PER_WINDOW / EVENTS_PER_SAMPLE;
        let mut edges: Vec<u64> = samples.into_iter().skip(each).step_by(each).collect();
        edges.dedup();
        edges.insert(0, 0);
        edges.push(u64::MAX);
        edges
    }

    /// The number of windows.
    pub(crate) fn windows(&self) -> usize {
        self.edges.len() - 1
    }

    /// Returns the lines of a window, written to the memory of `text`.
    pub(crate) fn lines_of(&self, window: usize, mut text: Vec<u8>) -> WindowLines {
        text.clear();
        let mut lines = WindowLines {
            text,
            has: RecordingSummary::default(),
        };
        let times = self.times_of(window);
        in_order(&self.buffers, times, |event, source, chunk| {
            let time = Some(self.clock.nanoseconds(event.time));
            match event.decode() {
                DecodedEvent::Allocated { id, bytes } => {
                    let request = request(bytes, source, time);
                    Line::Allocated { id, request }.write(&mut lines.text);
                    lines.has.allocations += 1;
                }
                DecodedEvent::Freed { id } => {
                    Line::Freed { id, time }.write(&mut lines.text);
                    lines.has.frees += 1;
                }
                DecodedEvent::Refused { bytes } => {
                    let request = request(bytes, source, time);
                    Line::Refused { request }.write(&mut lines.text);
                    lines.has.shortages += 1;
                }
                DecodedEvent::OfPool { number } => {
                    let event = chunk
                        .of_pool
                        .get(usize::try_from(number).unwrap_or(usize::MAX));
                    if let Some(event) = event.map(Cow::Borrowed) {
                        Line::Pool { event, time }.write(&mut lines.text);
                    }
                }
            }
        });
        lines
    }

    fn times_of(&self, window: usize) -> Range<u64> {
        let edge = |number: usize| self.edges.get(number).copied().unwrap_or(u64::MAX);
        edge(window)..edge(window + 1)
    }

    /// Returns the chunks, emptied.
    pub(crate) fn into_memory(self) -> impl Iterator<Item = Chunk> {
        self.buffers.into_iter().flatten().map(|mut chunk| {
            chunk.events.clear();
            chunk.sources.clear();
            chunk.of_pool.clear();
            chunk
        })
    }
}

fn request(bytes: u64, source: &Source, time: Option<u64>) -> Request {
    let group = u64::from(source.caller.group);
    let stack = source.caller.stack;
    Request {
        bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        stream: source.stream,
        time,
        group: (group > 0).then_some(group),
        stack: (group > 0 && stack > 0).then_some(u64::from(stack)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::trace_event::TraceEvent;

    /// A batch of a buffer with this many events, one at each tick after the recording began.
    fn batch(clock: &mut TraceClock, events: u64) -> Batch {
        let start = clock.start;
        let events = (0..events).map(|tick| TraceEvent::freed(start + tick, 1));
        let chunk = Chunk {
            events: events.collect(),
            ..Chunk::default()
        };
        Batch::new(vec![chunk], clock)
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes, for thousands of events")]
    fn few_events_are_one_window_and_many_are_several() {
        let mut clock = TraceClock::start(Ticks::new());
        assert_eq!(batch(&mut clock, 0).windows(), 1);
        assert_eq!(batch(&mut clock, 10).windows(), 1);
        let each = EVENTS_PER_WINDOW as u64;
        assert_eq!(batch(&mut clock, 3 * each).windows(), 3);
    }

    #[test]
    #[cfg_attr(miri, ignore = "no time passes there")]
    fn times_are_nanoseconds_since_the_beginning_and_never_before_those_of_an_earlier_batch() {
        let mut clock = TraceClock::start(Ticks::new());
        let start = clock.start;
        assert_eq!(clock.nanoseconds(start), 0);
        let late = clock.nanoseconds(start + 1_000_000);
        assert!(late > 0);
        batch(&mut clock, 1_000_001);
        assert_eq!(clock.nanoseconds(start), late);
        assert!(clock.nanoseconds(start + 2_000_000) > late);
    }

    #[test]
    fn a_request_without_a_group_has_none_and_no_stack() {
        let of = |group, stack| {
            let mut source = Source::default();
            (source.caller.group, source.caller.stack) = (group, stack);
            let request = request(8, &source, None);
            (request.group, request.stack)
        };
        assert_eq!(of(0, 0), (None, None));
        assert_eq!(of(0, 2), (None, None));
        assert_eq!(of(1, 0), (Some(1), None));
        assert_eq!(of(1, 2), (Some(1), Some(2)));
    }
}
