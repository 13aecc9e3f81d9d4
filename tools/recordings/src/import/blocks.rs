//! Turns addresses into blocks, for every import.
//!
//! A recording of another tool often begins when the program has run for a while, or has lost its beginning. A block whose allocation is
//! not recorded is assumed to exist from the start, so the trace begins with all such blocks.

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

use binpool_allocators::words;

use super::{
    placing::{Placing, Source},
    stacks::Stacks,
};
use crate::{Trace, places::Change, trace::Asked};

/// A block of a recording.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    /// The recording's name for its stream.
    pub(crate) stream: i128,
    /// Its index among the groups of [`Blocks::group`].
    pub(crate) group: Option<u32>,
    /// Its index among [`Blocks::stacks`].
    pub(crate) stack: Option<u32>,
}

/// The time and the place of an entry of a recording.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    /// The time in nanoseconds since any fixed moment.
    pub(crate) time: Option<u64>,
    /// The line or entry, counted from 1.
    pub(crate) line: usize,
}

#[derive(Debug)]
enum Step {
    Allocate(Block),
    Free(u64),
    Wait(u64),
    /// With the bytes that the device had free, if known.
    Fail(Block, Option<u64>),
    Memory(Change),
    /// A word and a text.
    Note(&'static str, Rc<str>),
}

/// A recording that is being read.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    before: Vec<Block>,
    steps: Vec<(Step, Moment)>,
    live: HashSet<u64>,
    /// Every address that was allocated or freed.
    known: HashSet<u64>,
    groups: HashMap<String, u32>,
    group_names: Vec<String>,
    pub(crate) stacks: Stacks,
    allocated_twice: usize,
    freed_twice: usize,
    contradicted: usize,
}

impl Blocks {
    /// Returns the index of the group of this name, which must be one line and not blank.
    pub(crate) fn group(&mut self, name: String) -> u32 {
        if let Some(group) = self.groups.get(&name) {
            return *group;
        }
        let group = u32::try_from(self.group_names.len()).unwrap_or(u32::MAX);
        self.group_names.push(name.clone());
        self.groups.insert(name, group);
        group
    }

    /// Adds an allocation. If a block lives at its address, that block's free was not recorded.
    pub(crate) fn allocate(&mut self, block: Block, moment: Moment) {
        let address = block.address;
        if !self.live.insert(address) {
            self.allocated_twice += 1;
            self.steps.push((Step::Free(address), moment));
        }
        self.known.insert(address);
        self.steps.push((Step::Allocate(block), moment));
    }

    /// Adds a free. If nothing is known of the address, the block was allocated before the recording.
    pub(crate) fn free(&mut self, block: Block, moment: Moment) {
        let address = block.address;
        if self.known.insert(address) {
            self.before.push(block);
        } else if !self.live.remove(&address) {
            self.freed_twice += 1;
            return;
        }
        self.steps.push((Step::Free(address), moment));
    }

    /// Ends a run of the program, all of whose memory is free then. Returns the number of blocks that were live.
    pub(crate) fn end_run(&mut self, moment: Moment) -> usize {
        let mut live: Vec<u64> = self.live.drain().collect();
        live.sort_unstable();
        let freed = live.iter().map(|address| (Step::Free(*address), moment));
        self.steps.extend(freed);
        live.len()
    }

    /// Adds that the program has freed the block at an address, while other streams still use it.
    pub(crate) fn wait(&mut self, address: u64, moment: Moment) {
        self.steps.push((Step::Wait(address), moment));
    }

    /// Adds an allocation that failed for lack of memory. It has no address.
    pub(crate) fn fail(&mut self, block: Block, device_free: Option<u64>, moment: Moment) {
        self.steps.push((Step::Fail(block, device_free), moment));
    }

    /// Adds a change of the memory that the allocator had from the device.
    pub(crate) fn change(&mut self, change: Change, moment: Moment) {
        self.steps.push((Step::Memory(change), moment));
    }

    /// Adds something else that is known of a moment: a word of the trace's format, and a text.
    pub(crate) fn note(&mut self, what: &'static str, text: Rc<str>, moment: Moment) {
        self.steps.push((Step::Note(what, text), moment));
    }

    /// Adds a block that is live at the end, according to another part of the recording.
    pub(crate) fn lives_at_end(&mut self, block: Block) {
        let address = block.address;
        if self.known.insert(address) {
            self.live.insert(address);
            self.before.push(block);
        } else if !self.live.contains(&address) {
            self.contradicted += 1;
        }
    }

    /// Puts the blocks without a group into one that says why, unless no block has one.
    pub(crate) fn group_the_rest(&mut self, older: &str, other: &str) {
        if self.groups.is_empty() {
            return;
        }
        let is_allocated = |step: &Step| matches!(step, Step::Allocate(Block { group: None, .. }));
        if self.before.iter().any(|block| block.group.is_none()) {
            let group = self.group(older.to_owned());
            for block in &mut self.before {
                block.group.get_or_insert(group);
            }
        }
        if self.steps.iter().any(|(step, _)| is_allocated(step)) {
            let group = self.group(other.to_owned());
            for (step, _) in &mut self.steps {
                if let Step::Allocate(block) = step {
                    block.group.get_or_insert(group);
                }
            }
        }
    }

    /// Forgets the groups of all blocks.
    pub(crate) fn forget_groups(&mut self) {
        self.groups.clear();
        self.group_names.clear();
        for (step, _) in &mut self.steps {
            if let Step::Allocate(block) | Step::Fail(block, _) = step {
                block.group = None;
            }
        }
    }

    /// Returns the trace; `None` if nothing was allocated. `counted` names the unit of the moments' lines. `source` is set for a
    /// recording that says where its blocks lay.
    pub(crate) fn into_trace(
        self,
        name: String,
        counted: &'static str,
        source: Option<Source>,
    ) -> Option<Trace> {
        let mut trace = Trace::empty(name, counted);
        trace.set_of_pool_on_cuda();
        let mut streams = HashMap::new();
        let mut asked = |block: &Block, time| {
            let next = u32::try_from(streams.len()).unwrap_or(u32::MAX);
            Asked {
                bytes: block.bytes,
                stream: *streams.entry(block.stream).or_insert(next),
                time,
                group: block.group,
                stack: block.stack,
            }
        };
        for name in &self.group_names {
            trace.push_group(name);
        }
        let times = || self.steps.iter().filter_map(|(_, moment)| moment.time);
        let first = times().next();
        let lasting = self.lasting();
        let mut placing = Placing::new(source, self.changes(), &mut trace);
        let mut live = HashMap::new();
        for block in &self.before {
            let lasts = lasting.get(&block.address) == Some(&trace.allocations());
            placing.place((block.address, block.bytes), (lasts, true), 0, &mut trace);
            let number = trace.push_allocation(block.address, asked(block, 0), 0);
            live.insert(block.address, number);
        }
        let mut now = 0;
        for (step, moment) in &self.steps {
            if let (Some(time), Some(first)) = (moment.time, first) {
                // The lines of different threads may be slightly out of order.
                now = time.saturating_sub(first).max(now);
            }
            match step {
                Step::Allocate(block) => {
                    let lasts = lasting.get(&block.address) == Some(&trace.allocations());
                    placing.place(
                        (block.address, block.bytes),
                        (lasts, false),
                        now,
                        &mut trace,
                    );
                    let asked = asked(block, now);
                    let number = trace.push_allocation(block.address, asked, moment.line);
                    live.insert(block.address, number);
                }
                Step::Free(address) => {
                    if let Some(number) = live.remove(address) {
                        placing.free(*address);
                        trace.push_free(number, now, moment.line);
                    }
                }
                Step::Wait(address) => {
                    if live.contains_key(address) {
                        placing.wait(*address, now, &mut trace);
                    }
                }
                Step::Fail(block, device_free) => {
                    let report = placing.report(block.bytes, *device_free);
                    trace.push_shortage(asked(block, now), report);
                }
                Step::Memory(change) => placing.change(*change, now, &mut trace),
                Step::Note(what, text) => placing.note(what, text, now, &mut trace),
            }
        }
        placing.end(&mut trace);
        let (stacks, without_stack) = self.stacks.into_parts();
        trace.set_stacks(stacks);
        if first.is_none() {
            trace.forget_times();
        }
        let remarks = [
            (
                self.before.len(),
                "allocated before the recording began: allocated at its start",
            ),
            (
                self.allocated_twice,
                "allocated again without a free in between: freed at that point",
            ),
            (
                self.freed_twice,
                "freed without being live: the free is left out",
            ),
            (
                self.contradicted,
                "live at the end, but freed in the recording: left out",
            ),
            (
                without_stack,
                "with a call stack beyond the room for stacks: the stack is left out",
            ),
        ];
        for (count, what) in remarks {
            if count > 0 {
                trace.push_remark(format!("{}: {what}", words::blocks(count as u64)));
            }
        }
        (trace.allocations() > 0).then_some(trace)
    }

    /// The number of the block that is live at each address at the end.
    fn lasting(&self) -> HashMap<u64, usize> {
        let mut live = HashMap::new();
        let mut number = 0..;
        for block in &self.before {
            live.extend(number.next().map(|number| (block.address, number)));
        }
        for (step, _) in &self.steps {
            match step {
                Step::Allocate(block) => {
                    live.extend(number.next().map(|number| (block.address, number)));
                }
                Step::Free(address) => drop(live.remove(address)),
                _ => {}
            }
        }
        live
    }

    fn changes(&self) -> impl Iterator<Item = Change> {
        self.steps.iter().filter_map(|(step, _)| match step {
            Step::Memory(change) => Some(*change),
            _ => None,
        })
    }
}
