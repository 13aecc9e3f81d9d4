//! The history of every block and segment of a program.

use serde::Serialize;

use binpool_trace::ShortageReport;

use crate::{
    Shortage, Trace, Use,
    view::{
        By, Life, Lives, Segment,
        free_memory::FreeMemory,
        grouping::Grouping,
        neighbours::{Neighbour, Stretch},
    },
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
    /// The most that the pool could take, in bytes: the limit, or the capacity of the device. 0 if another tool's recording does not say.
    pub capacity_bytes: u64,
    /// The limit that the program had set, if it is less than the capacity.
    pub limit_bytes: Option<u64>,
    /// The effect of each event: the block that it frees, or `None` if it allocates the next one, in order. If memory
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
    /// The first use of each block on each stream, if the trace says so.
    pub uses: Vec<Use>,
    /// What the pool did beside handing out blocks, in order; empty if it is simulated.
    pub pool_events: Vec<EventRow>,
    /// The failed request, if the replay ran out of memory.
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
pub struct EventRow {
    /// The number of events before it.
    pub moment: usize,
    /// Its time, in nanoseconds; `None` in a trace without times.
    pub time_ns: Option<u64>,
    /// What it did: `taken` and `given back` for memory of the allocator, or a word of [`What`](binpool_trace::What).
    pub what: String,
    /// The bytes that it was about.
    pub bytes: u64,
    /// The index of the segment that it took or gave back; `None` for anything else, and for memory from before the recording.
    pub segment: Option<usize>,
    /// More about it, in words; may be empty.
    pub text: String,
}

/// A request that failed.
#[derive(Clone, Debug)]
pub struct FailedRequest {
    /// The event, by its file, line and block.
    pub event: String,
    /// The bytes that it was for.
    pub bytes: usize,
    /// The stream that it was for.
    pub stream: u32,
    /// Its group.
    pub group: Option<String>,
    /// The pool's report.
    pub report: ShortageReport,
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

impl History {
    /// Returns the history of a replay of `trace` on this device, which ends with the trace or with a request that failed.
    #[must_use]
    pub fn simulated(
        trace: &Trace,
        device: &str,
        capacity_bytes: u64,
        lives: Lives,
        out_of_memory: Option<FailedRequest>,
    ) -> Self {
        let Lives {
            frees,
            blocks,
            segments,
        } = lives;
        let moments = frees.len() + usize::from(out_of_memory.is_some());
        let shortages = trace.shortages().iter();
        Self {
            name: trace.name().to_owned(),
            origin: Origin::Simulated,
            device: device.to_owned(),
            allocator: None,
            capacity_bytes,
            limit_bytes: None,
            times: (0..moments)
                .map_while(|event| trace.time_of(event))
                .collect(),
            groups: trace.groups().to_vec(),
            stacks: trace.stacks().to_vec(),
            shortages: shortages
                .filter(|shortage| shortage.events_before <= moments)
                .copied()
                .collect(),
            uses: trace.uses().to_vec(),
            pool_events: Vec::new(),
            groupings: By::ALL.map(|by| by.of(trace, &blocks)),
            frees,
            blocks,
            segments,
            out_of_memory,
        }
    }

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

    /// Whether so much of the time is idle that an axis of time would show little more than gaps.
    pub(crate) fn is_mostly_idle(&self) -> bool {
        is_mostly_idle(&self.times)
    }

    /// Returns the group of a block, as the index of its row among those of `Numbers::by`.
    #[must_use]
    pub fn group_of(&self, by: By, block: usize) -> usize {
        self.groupings[by as usize].numbers[block] as usize
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

    /// Returns the bytes that the allocator has given, at each moment.
    #[must_use]
    pub fn reserved_bytes(&self) -> Vec<u64> {
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

/// The parts of the time in which events are looked for.
const PARTS: usize = 100;

/// Whether events, at these rising times, are in less than a fifth of the parts of the time that they could be in.
fn is_mostly_idle(times: &[u64]) -> bool {
    let [Some(first), Some(last)] = [times.first(), times.last()] else {
        return false;
    };
    let wide = last.saturating_sub(*first) / PARTS as u64 + 1;
    let part_of = |time: &u64| time.saturating_sub(*first) / wide;
    let mut busy: Vec<u64> = times.iter().map(part_of).collect();
    busy.dedup();
    busy.len() * 5 < times.len().min(PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_mostly_idle_if_events_are_in_few_parts_of_it() {
        let busy_for =
            |percent: u64| -> Vec<u64> { (0..1000).map(|step| step * percent).collect() };
        let idle_until = |end: u64, mut times: Vec<u64>| {
            times.push(end);
            is_mostly_idle(&times)
        };
        assert!(idle_until(100_000, busy_for(10)));
        assert!(!idle_until(100_000, busy_for(30)));
        // A few events leave most of the time idle wherever they are.
        assert!(!is_mostly_idle(&[0, 500, 1000]));
        assert!(is_mostly_idle(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1 << 60]));
        assert!(!is_mostly_idle(&[]));
        assert!(!is_mostly_idle(&[7, 7]));
    }
}
