//! The history of every block and segment of a program.

use binpool::OutOfMemoryReport;
use serde::Serialize;

use crate::{
    Shortage,
    view::{FreeMemory, Neighbour, grouping::Grouping, neighbours::Stretch},
};

/// A program's memory, from its first event to its last.
///
/// A *moment* is the number of events that are done. A block or segment is there from the moment after the event that makes
/// it, up to the moment before the event that removes it.
#[derive(Debug)]
#[non_exhaustive]
pub struct History {
    /// The trace.
    pub name: String,
    /// What it shows.
    pub origin: Origin,
    /// The device that it was recorded on, or replayed on.
    pub device: String,
    /// The allocator that another tool recorded; `None` for a pool.
    pub allocator: Option<String>,
    /// The most that the pool could take, in bytes: the limit, or the capacity of the device. 0 where another tool's recording does not say it.
    pub capacity_bytes: u64,
    /// The limit that the program had set, if it is less than the capacity.
    pub limit_bytes: Option<u64>,
    /// The effect of each event: the block that it frees, or `None` where it allocates the next one, in order. Where memory
    /// ran out, one more event follows, which does neither.
    pub frees: Vec<Option<usize>>,
    /// The time of each event, in nanoseconds; empty in a trace without times.
    pub times: Vec<u64>,
    /// The blocks, in the order of their allocations.
    pub blocks: Vec<Life>,
    /// The memory that the allocator gave.
    pub segments: Vec<Segment>,
    /// The names of the groups of [`shortages`](Self::shortages).
    pub groups: Vec<String>,
    /// The call stacks of blocks and shortages: the frames of each, innermost first.
    pub stacks: Vec<Vec<String>>,
    /// The allocations that failed when the trace was recorded.
    pub shortages: Vec<Shortage>,
    /// What the pool did beside handing out blocks, in order; empty where it is simulated.
    pub pool_events: Vec<PoolEvent>,
    /// The failed request, where the replay ran out of memory.
    pub out_of_memory: Option<FailedRequest>,
    /// The blocks grouped by each of [`By::ALL`](crate::view::By::ALL), in that order.
    pub(crate) groupings: [Grouping; 3],
}

/// What a history shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// What happened when the program was recorded.
    Happened,
    /// A replay of its requests through a pool on the simulated device.
    Simulated,
}

/// Something that the pool did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PoolEvent {
    /// The number of events before it.
    pub moment: usize,
    /// Its time, in nanoseconds; `None` in a trace without times.
    pub time_ns: Option<u64>,
    /// What it did: `taken` and `given back` for memory of the allocator, or a word of [`PoolAction::Did`](crate::PoolAction::Did).
    pub what: String,
    /// The bytes that it was about.
    pub bytes: u64,
    /// The index of the segment that it took or gave back; `None` for anything else, and for memory from before the recording.
    pub segment: Option<usize>,
    /// More about it, in words; may be empty.
    pub text: String,
}

/// A request that failed.
#[derive(Debug)]
#[non_exhaustive]
pub struct FailedRequest {
    /// The event, by its file, line and block.
    pub event: String,
    /// The stream that it was for.
    pub stream: u32,
    /// Its group.
    pub group: Option<String>,
    /// The pool's report.
    pub report: OutOfMemoryReport,
}

/// The life of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Life {
    /// The requested bytes.
    pub requested_bytes: u64,
    /// The bytes that it takes of its segment.
    pub class_bytes: u64,
    /// The stream that it is for.
    pub stream: u32,
    /// The event that allocated it.
    pub from: usize,
    /// The event that freed it.
    pub to: Option<usize>,
    /// The number of events before the program freed it, where the allocator then waited for commands of other streams.
    pub waiting: Option<usize>,
    /// The index of its segment; `None` for a block of 0 bytes.
    pub segment: Option<usize>,
    /// Its offset in the segment, in bytes.
    pub offset: u64,
    /// The index of the stack of its request among [`History::stacks`](field@History::stacks).
    pub stack: Option<usize>,
}

/// A piece of memory that the allocator gave: a segment, one block by itself, or pages that are mapped and unmapped as a whole. Pages that
/// adjoin are one segment at each moment, so a block may reach into those behind its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// Its size in bytes.
    pub bytes: u64,
    /// The event at which it was allocated.
    pub from: usize,
    /// The event at which it was released.
    pub to: Option<usize>,
    /// The reservation that it is mapped to, counted from 0; `None` if it is no pages.
    pub reservation: Option<usize>,
    /// Its offset in the reservation, in bytes.
    pub offset: u64,
}

/// The segments at a moment, where adjoining pages are one.
struct Runs {
    runs: Vec<Run>,
    /// The index of the run that each segment is in, and its offset there; `None` for one that is not there.
    places: Vec<Option<(usize, u64)>>,
}

struct Run {
    /// The index of its first segment.
    first: usize,
    bytes: u64,
}

impl Life {
    pub(crate) fn is_there(&self, moment: usize) -> bool {
        is_there(self.from, self.to, moment)
    }

    /// Returns whether the program has freed it by a moment.
    pub(crate) fn is_waiting(&self, moment: usize) -> bool {
        self.waiting.is_some_and(|since| since <= moment)
    }
}

impl Segment {
    pub(crate) fn is_there(&self, moment: usize) -> bool {
        is_there(self.from, self.to, moment)
    }
}

fn is_there(from: usize, to: Option<usize>, moment: usize) -> bool {
    from < moment && to.is_none_or(|to| moment <= to)
}

impl History {
    /// The last moment.
    #[must_use]
    pub fn last_moment(&self) -> usize {
        self.frees.len() + usize::from(self.out_of_memory.is_some())
    }

    /// The time at which a moment begins, in nanoseconds; `None` before the first event, and in a trace without times.
    #[must_use]
    pub fn time_of(&self, moment: usize) -> Option<u64> {
        self.times.get(moment.checked_sub(1)?).copied()
    }

    fn runs(&self, moment: usize) -> Runs {
        let segments = &self.segments;
        let mut there: Vec<usize> = (0..segments.len())
            .filter(|index| segments[*index].is_there(moment))
            .collect();
        there.sort_by_key(|index| (segments[*index].reservation, segments[*index].offset));
        let mut runs: Vec<Run> = Vec::new();
        let mut places = vec![None; segments.len()];
        for index in there {
            let segment = &segments[index];
            let before = runs.last_mut().filter(|run| {
                let first = &segments[run.first];
                segment.reservation.is_some()
                    && first.reservation == segment.reservation
                    && first.offset + run.bytes == segment.offset
            });
            let offset = before.as_ref().map_or(0, |run| run.bytes);
            match before {
                Some(run) => run.bytes += segment.bytes,
                None => runs.push(Run {
                    first: index,
                    bytes: segment.bytes,
                }),
            }
            places[index] = Some((runs.len() - 1, offset));
        }
        Runs { runs, places }
    }

    /// The free memory at a moment.
    pub(crate) fn free_memory(&self, moment: usize) -> FreeMemory {
        let mut free = FreeMemory::default();
        for stretch in self.stretches(moment) {
            let used = stretch.blocks.iter();
            free.add_segment(stretch.to, used.map(|block| (block.offset, block.bytes)));
        }
        free
    }

    /// The segments at a moment, with their blocks.
    pub(crate) fn stretches(&self, moment: usize) -> Vec<Stretch> {
        let Runs { runs, places } = self.runs(moment);
        let stretch = |run: &Run| Stretch {
            segment: run.first,
            from: 0,
            to: run.bytes,
            blocks: Vec::new(),
        };
        let mut stretches: Vec<Stretch> = runs.iter().map(stretch).collect();
        // The first of the groupings is by group.
        let [groups, ..] = &self.groupings;
        for (block, life) in self.blocks.iter().enumerate() {
            if !life.is_there(moment) {
                continue;
            }
            if let Some((run, start)) = life.segment.and_then(|segment| places[segment]) {
                let group = groups.numbers.get(block).copied().unwrap_or(u32::MAX);
                stretches[run].blocks.push(Neighbour {
                    block: Some(block),
                    offset: start + life.offset,
                    bytes: life.class_bytes,
                    group: groups.names.get(group as usize).cloned(),
                });
            }
        }
        for stretch in &mut stretches {
            stretch.blocks.sort_unstable_by_key(|block| block.offset);
        }
        stretches
    }

    /// The bytes that the allocator has given, at each moment.
    pub(crate) fn reserved(&self) -> Vec<u64> {
        let mut given = vec![0_u64; self.last_moment() + 1];
        let mut back = given.clone();
        for segment in &self.segments {
            given[segment.from + 1] += segment.bytes;
            if let Some(taken) = segment.to.and_then(|to| back.get_mut(to + 1)) {
                *taken += segment.bytes;
            }
        }
        let mut now = 0;
        let steps = given.iter().zip(&back);
        steps
            .map(|(given, back)| {
                now = now + given - back;
                now
            })
            .collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use binpool::PoolOptions;

    use crate::{Profile, Trace, view::record};

    #[test]
    fn what_is_reserved_at_a_moment_is_the_segments_that_are_there() {
        // Each block needs a segment of its own, and the room of the one before it.
        let text = "a 0 41943040 0\nf 0\na 1 73400320 0\nf 1\na 2 83886080 0\nf 2\n";
        let trace = Trace::parse("t", text.as_bytes()).unwrap();
        let options = PoolOptions::new().segments(true);
        let history = record(&trace, &Profile::H200, Some(100 << 20), &options, &|_| {}).unwrap();
        let gone = history.segments.iter().filter_map(|segment| segment.to);
        assert_eq!(gone.collect::<Vec<_>>(), [2, 4]);
        let there = (0..=history.last_moment()).map(|moment| {
            let segments = history.segments.iter();
            let there = segments.filter(|segment| segment.is_there(moment));
            there.map(|segment| segment.bytes).sum()
        });
        assert_eq!(history.reserved(), there.collect::<Vec<u64>>());
    }
}
