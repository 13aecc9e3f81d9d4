//! The figures of a history.

use serde::Serialize;

use crate::{
    Shortage,
    view::{
        By, History, Origin,
        free_memory::FreeMemory,
        grouping::Grouping,
        history::EventRow,
        neighbours::Neighbours,
        out_of_memory::{LargestGroup, OutOfMemory},
    },
};

/// The figures of a history, which its page shows. Sizes are in bytes, times in nanoseconds since the recording began.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Numbers {
    /// The trace.
    pub file: String,
    /// What they describe: what happened, or a simulation.
    pub origin: Origin,
    /// The device that it was recorded on, or replayed on.
    pub device: String,
    /// The allocator that another tool recorded; `None` for a pool.
    pub allocator: Option<String>,
    /// The most that the pool could take: the limit, or the capacity of the device. 0 if another tool's recording does not say.
    pub capacity_bytes: u64,
    /// The limit that the program had set, if it is less than the capacity.
    pub limit_bytes: Option<u64>,
    /// The number of events. If memory ran out, the one that failed is the last.
    pub events: usize,
    /// The number of blocks.
    pub blocks: usize,
    /// Whether the trace has times.
    pub has_times: bool,
    /// The first moment at which the most bytes were active.
    pub peak_active: At,
    /// The first moment at which the most bytes were reserved.
    pub peak_reserved: At,
    /// The last moment. Blocks that are active then may be leaked, or may be meant to stay.
    pub at_end: At,
    /// The blocks by group: tags of the program, or the indices of its requests.
    pub groups: Vec<GroupRow>,
    /// The blocks by size class.
    pub sizes: Vec<GroupRow>,
    /// The blocks by stream.
    pub streams: Vec<GroupRow>,
    /// The blocks by the call stack of their request, if the trace has stacks.
    pub stacks: Vec<StackRow>,
    /// The allocations that failed when the trace was recorded.
    pub shortages: Vec<ShortageRow>,
    /// What the pool did beside handing out blocks; empty if it is simulated.
    pub pool_events: Vec<EventRow>,
    /// The cause, if the replay ran out of memory.
    pub out_of_memory: Option<OutOfMemory>,
}

/// A moment of a history.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct At {
    /// The number of events that are done.
    pub moment: usize,
    /// Its time; `None` in a trace without times.
    pub time_ns: Option<u64>,
    /// The requested bytes of all active blocks.
    pub active_bytes: u64,
    /// The number of active blocks.
    pub active_blocks: u64,
    /// The part of the active bytes that the program has freed, while commands of other streams use it: of another tool's recording.
    pub waiting_bytes: u64,
    /// The bytes of all active blocks, as whole blocks.
    pub block_bytes: u64,
    /// The bytes that were allocated from the device.
    pub reserved_bytes: u64,
    /// The free bytes of the pool: the reserved bytes without those of active blocks.
    pub held_bytes: u64,
    /// The same free bytes, as ranges of segments.
    pub free: FreeMemory,
    /// The part of the free memory that is not in the largest range, from 0 to 1.
    pub scattered: f64,
}

/// The blocks of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GroupRow {
    /// The group's name.
    pub name: String,
    /// The most requested bytes of it that were active at once.
    pub peak_bytes: u64,
    /// The first moment at which they were.
    pub peak_moment: usize,
    /// Its active bytes at the peak of all active bytes.
    pub at_peak_bytes: u64,
    /// The bytes that are active at the end.
    pub end_bytes: u64,
    /// The blocks that are active at the end.
    pub end_blocks: u64,
    /// The number of all its blocks.
    pub blocks: u64,
}

/// The blocks that were requested with one call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StackRow {
    /// Its frames, innermost first.
    pub frames: Vec<String>,
    /// Its active bytes at the peak of all active bytes.
    pub at_peak_bytes: u64,
    /// Its active blocks at that moment.
    pub at_peak_blocks: u64,
    /// The bytes that are active at the end.
    pub end_bytes: u64,
    /// The blocks that are active at the end.
    pub end_blocks: u64,
    /// The number of all its blocks.
    pub blocks: u64,
}

/// An allocation that failed when the trace was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShortageRow {
    /// The number of events before it.
    pub moment: usize,
    /// Its time; `None` in a trace without times.
    pub time_ns: Option<u64>,
    /// The requested bytes.
    pub bytes: u64,
    /// The stream that it was for.
    pub stream: u32,
    /// Its group.
    pub group: Option<String>,
    /// The cause, as the pool reported it; `None` in a trace that does not say it.
    pub report: Option<OutOfMemory>,
}

impl History {
    /// Returns the figures of this history.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        let reserved = self.reserved_bytes();
        let active = self.active_bytes();
        let peak = first_peak(&active);
        let at = |moment| self.at(moment, &reserved);
        let [groups, sizes, streams] = self.groupings.each_ref().map(|it| self.rows(it, peak));
        let has_times = !self.times.is_empty();
        let shortages = self.shortages.iter().map(|shortage| ShortageRow {
            moment: shortage.events_before,
            time_ns: has_times.then_some(shortage.time),
            bytes: shortage.bytes as u64,
            stream: shortage.stream,
            group: self.group_of_shortage(shortage),
            report: self.report_of(shortage),
        });
        let failed = self.out_of_memory.as_ref().map(|failed| {
            let rows = groups.iter();
            let holds_most =
                LargestGroup::of(rows.map(|row| (&row.name, row.end_bytes, row.end_blocks)));
            let stretches = self.stretches(self.last_moment());
            let cheapest = Neighbours::cheapest(stretches, failed.report.class_bytes);
            OutOfMemory::of_replay(failed, holds_most, cheapest)
        });
        Numbers {
            file: self.name.clone(),
            origin: self.origin,
            device: self.device.clone(),
            allocator: self.allocator.clone(),
            limit_bytes: self.limit_bytes,
            pool_events: self.pool_events.clone(),
            capacity_bytes: self.capacity_bytes,
            events: self.last_moment(),
            blocks: self.blocks.len(),
            has_times,
            peak_active: at(peak),
            peak_reserved: at(first_peak(&reserved)),
            at_end: at(self.last_moment()),
            out_of_memory: failed,
            groups,
            sizes,
            streams,
            stacks: self.stack_rows(peak),
            shortages: shortages.collect(),
        }
    }

    /// The cause of a shortage that the recording has the report of. What would have made room, and which group holds the most, is
    /// looked for at the first one alone: it takes a look at all blocks.
    fn report_of(&self, shortage: &Shortage) -> Option<OutOfMemory> {
        let report = shortage.report?;
        let is_first = self.shortages.first().is_some_and(|first| {
            (first.events_before, first.time) == (shortage.events_before, shortage.time)
        });
        let (mut holds_most, mut cheapest) = (None, None);
        if is_first {
            let moment = shortage.events_before;
            holds_most = self.largest_group(moment);
            cheapest = Neighbours::cheapest(self.stretches(moment), report.class_bytes);
        }
        OutOfMemory::of_recording(
            shortage,
            self.group_of_shortage(shortage),
            holds_most,
            cheapest,
        )
    }

    /// The group with the most bytes at a moment.
    fn largest_group(&self, moment: usize) -> Option<LargestGroup> {
        let [groups, ..] = &self.groupings;
        let mut held = vec![(0, 0); groups.names.len()];
        let there = groups.numbers.iter().zip(&self.blocks);
        for (group, block) in there.filter(|(_, block)| block.is_there(moment)) {
            let (bytes, blocks) = &mut held[*group as usize];
            *bytes += block.requested_bytes;
            *blocks += 1;
        }
        let held = groups.names.iter().zip(held);
        LargestGroup::of(held.map(|(name, (bytes, blocks))| (name, bytes, blocks)))
    }

    fn group_of_shortage(&self, shortage: &Shortage) -> Option<String> {
        let group = shortage.group?;
        self.groups.get(group as usize).cloned()
    }

    /// The requested bytes of the active blocks, at each moment.
    #[must_use]
    pub fn active_bytes(&self) -> Vec<u64> {
        let mut active = Vec::with_capacity(self.last_moment() + 1);
        let (mut now, mut blocks) = (0, self.blocks.iter());
        active.push(now);
        for free in &self.frees {
            match free {
                Some(block) => now -= self.blocks[*block].requested_bytes,
                None => now += blocks.next().map_or(0, |block| block.requested_bytes),
            }
            active.push(now);
        }
        active.resize(self.last_moment() + 1, now);
        active
    }

    fn at(&self, moment: usize, reserved: &[u64]) -> At {
        let there = || self.blocks.iter().filter(|block| block.is_there(moment));
        let block_bytes = there().map(|block| block.class_bytes).sum();
        let free = self.free_memory(moment);
        At {
            moment,
            time_ns: self.time_of(moment),
            active_bytes: there().map(|block| block.requested_bytes).sum(),
            active_blocks: there().count() as u64,
            waiting_bytes: there()
                .filter(|block| block.is_waiting(moment))
                .map(|block| block.requested_bytes)
                .sum(),
            block_bytes,
            reserved_bytes: reserved[moment],
            held_bytes: reserved[moment].saturating_sub(block_bytes),
            free,
            scattered: free.scattered(),
        }
    }

    /// The blocks by call stack. `peak` is the moment at which the most bytes are active.
    fn stack_rows(&self, peak: usize) -> Vec<StackRow> {
        let row = |frames: &Vec<String>| StackRow {
            frames: frames.clone(),
            ..StackRow::default()
        };
        let mut rows: Vec<StackRow> = self.stacks.iter().map(row).collect();
        for life in &self.blocks {
            let Some(row) = life.stack.and_then(|stack| rows.get_mut(stack)) else {
                continue;
            };
            row.blocks += 1;
            if life.is_there(peak) {
                row.at_peak_bytes += life.requested_bytes;
                row.at_peak_blocks += 1;
            }
            if life.to.is_none() {
                row.end_bytes += life.requested_bytes;
                row.end_blocks += 1;
            }
        }
        rows
    }

    /// The blocks by group. `peak` is the moment at which the most bytes are active.
    fn rows(&self, grouping: &Grouping, peak: usize) -> Vec<GroupRow> {
        let row = |name: &String| GroupRow {
            name: name.clone(),
            ..GroupRow::default()
        };
        let mut rows: Vec<GroupRow> = grouping.names.iter().map(row).collect();
        let mut next = 0;
        for (event, free) in self.frees.iter().enumerate() {
            let block = free.unwrap_or(next);
            let row = &mut rows[grouping.numbers[block] as usize];
            let bytes = self.blocks[block].requested_bytes;
            if free.is_some() {
                row.end_bytes -= bytes;
                row.end_blocks -= 1;
                continue;
            }
            next += 1;
            row.blocks += 1;
            row.end_blocks += 1;
            row.end_bytes += bytes;
            if self.blocks[block].is_there(peak) {
                row.at_peak_bytes += bytes;
            }
            if row.end_bytes > row.peak_bytes {
                (row.peak_bytes, row.peak_moment) = (row.end_bytes, event + 1);
            }
        }
        rows
    }
}

impl Numbers {
    /// The rows of the blocks, grouped by this.
    #[must_use]
    pub fn by(&self, by: By) -> &[GroupRow] {
        match by {
            By::Group => &self.groups,
            By::Size => &self.sizes,
            By::Stream => &self.streams,
        }
    }
}

/// The index of the first of the largest numbers.
fn first_peak(numbers: &[u64]) -> usize {
    let first_of_largest = |best: usize, index: usize| {
        if numbers[index] > numbers[best] {
            index
        } else {
            best
        }
    };
    (0..numbers.len()).reduce(first_of_largest).unwrap_or(0)
}
