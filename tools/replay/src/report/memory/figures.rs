//! The figures of the report on a program's memory.

use std::{cmp::Reverse, collections::BTreeMap};

use binpool_recordings::{Event, Trace, view::History};
use binpool_trace::{PoolEvent, What, shown};

use super::caller::{caller, parts_of_group};

/// The name of what the recording does not say.
const UNKNOWN: &str = "unknown";

/// A number of blocks, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) blocks: u64,
    pub(super) bytes: u64,
}

/// The blocks of a caller, of a kind, or all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Blocks {
    /// Those that are live when the most bytes are.
    pub(super) peak: Sum,
    pub(super) all: Sum,
    /// Those that were never released.
    pub(super) left: Sum,
}

/// Requests that were refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) requests: u64,
    pub(super) largest: u64,
}

/// Calls of a function of the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    pub(super) count: u64,
    pub(super) nanoseconds: u64,
}

/// The rows of a table, each with its name.
pub(super) type Rows<T> = Vec<(String, T)>;

/// What rows are added up to.
pub(super) trait Total: Default {
    fn add(&mut self, other: &Self);
}

/// What the report is made of. Rows come with the largest first.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) all: Blocks,
    /// When the most bytes are live first, in nanoseconds; `None` in a trace without times.
    pub(super) peak_time: Option<u64>,
    pub(super) callers: Rows<Blocks>,
    /// None for a recording that does not say them.
    pub(super) kinds: Rows<Blocks>,
    pub(super) refused: Rows<Refused>,
    pub(super) calls: Rows<Calls>,
    /// Why the pool did not serve allocations.
    pub(super) passed: Rows<Sum>,
    pub(super) devices: Vec<String>,
    /// The framework whose segments the blocks are.
    pub(super) divided_by: Option<String>,
}

/// A block.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    bytes: u64,
    /// The event that allocated it.
    from: usize,
    /// The event that freed it.
    to: Option<usize>,
    is_at_peak: bool,
}

impl Total for Sum {
    fn add(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl Total for Blocks {
    fn add(&mut self, other: &Self) {
        self.peak.add(&other.peak);
        self.all.add(&other.all);
        self.left.add(&other.left);
    }
}

impl Total for Refused {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.largest = self.largest.max(other.largest);
    }
}

impl Total for Calls {
    fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.nanoseconds = self.nanoseconds.saturating_add(other.nanoseconds);
    }
}

impl Blocks {
    fn of(block: Block) -> Self {
        let one = Sum {
            blocks: 1,
            bytes: block.bytes,
        };
        let if_so = |is_so| if is_so { one } else { Sum::default() };
        Self {
            peak: if_so(block.is_at_peak),
            all: one,
            left: if_so(block.to.is_none()),
        }
    }
}

impl Figures {
    /// Returns the figures of a trace, and of its history if its program has an allocator of its own.
    pub(super) fn of<'t>(trace: &'t Trace, history: Option<&History>) -> Self {
        let (peak, blocks) = blocks_of(trace, history);
        let mut figures = Self {
            peak_time: peak.and_then(|event| trace.time_of(event)),
            ..Self::default()
        };
        for block in &blocks {
            figures.all.add(&Blocks::of(*block));
        }
        let is_of_program = trace.is_of_program();
        // Each stack is looked at once.
        let callers: Vec<String> = trace.stacks().iter().map(|it| caller(it)).collect();
        let name_of = |stack: Option<usize>, group: Option<&'t str>| {
            // Groups of other recordings are the callers, or what the program says itself. Those of one that is not finished have no callers yet.
            let named = group.and_then(|group| match parts_of_group(group) {
                (named, _) if is_of_program => named,
                _ => Some(group),
            });
            let caller = stack.and_then(|stack| callers.get(stack));
            named.or(caller.map(String::as_str)).unwrap_or(UNKNOWN)
        };
        figures.callers = blocks_by(&blocks, |block| {
            name_of(trace.stack_of(block), trace.group_of(block))
        });
        if is_of_program {
            figures.kinds = blocks_by(&blocks, |block| kind_of(trace.group_of(block)));
        }
        let refused = trace.shortages().iter().map(|shortage| {
            let stack = shortage.stack.map(|stack| stack as usize);
            let group = shortage.group;
            let group = group.and_then(|group| trace.groups().get(group as usize));
            let refused = Refused {
                requests: 1,
                largest: shortage.bytes as u64,
            };
            (name_of(stack, group.map(String::as_str)), refused)
        });
        figures.refused = rows_of(refused, |refused| refused.requests);
        figures.add_steps(trace);
        figures
    }

    /// Adds what the recording says beside allocations and releases.
    fn add_steps(&mut self, trace: &Trace) {
        let (mut calls, mut passed) = (Vec::new(), Vec::new());
        for step in trace.pool_steps() {
            let PoolEvent::Did {
                what: What::Other(what),
                bytes,
                text,
            } = &step.event
            else {
                continue;
            };
            let bytes = *bytes;
            match &**what {
                "call" => calls.extend(calls_of(bytes, text)),
                "divided" => self.divided_by = Some(shown(text)),
                "passed" => passed.push((&**text, Sum { blocks: 1, bytes })),
                // After the number of the context.
                "context" => {
                    let devices = text
                        .split_once(": ")
                        .map_or(&**text, |(_, devices)| devices);
                    let devices = shown(devices);
                    if !self.devices.contains(&devices) {
                        self.devices.push(devices);
                    }
                }
                _ => {}
            }
        }
        self.calls = rows_of(calls, |calls| calls.nanoseconds);
        self.passed = rows_of(passed, |sum| sum.bytes);
    }
}

/// Returns the event after which the most bytes are live first, and the blocks. Where the program's allocator says what each block takes, and
/// which blocks only commands of other streams still use, these count as in its own figures.
fn blocks_of(trace: &Trace, history: Option<&History>) -> (Option<usize>, Vec<Block>) {
    let mut blocks = vec![Block::default(); trace.allocations()];
    for (index, event) in trace.events().iter().enumerate() {
        match *event {
            Event::Allocate { block, bytes, .. } => {
                (blocks[block].bytes, blocks[block].from) = (bytes as u64, index);
            }
            Event::Free { block } => blocks[block].to = Some(index),
        }
    }
    let lives = history.into_iter().flat_map(|history| &history.blocks);
    for (block, life) in blocks.iter_mut().zip(lives) {
        block.bytes = life.class_bytes;
        block.to = life.waiting.or(block.to);
    }
    let ends = blocks.iter().filter_map(|it| Some((it.to?, it.bytes)));
    let mut ends: Vec<(usize, u64)> = ends.collect();
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    let (mut live, mut most, mut peak) = (0_u64, 0, None);
    for block in &blocks {
        while let Some((_, bytes)) = ends.next_if(|(moment, _)| *moment <= block.from) {
            live = live.saturating_sub(bytes);
        }
        live = live.saturating_add(block.bytes);
        if live > most {
            (most, peak) = (live, Some(block.from));
        }
    }
    for block in &mut blocks {
        let lives = |peak| block.from <= peak && block.to.is_none_or(|to| to > peak);
        block.is_at_peak = peak.is_some_and(lives);
    }
    (peak, blocks)
}

/// Returns the blocks by their names.
fn blocks_by<'n>(blocks: &[Block], name: impl Fn(usize) -> &'n str) -> Rows<Blocks> {
    let named = blocks.iter().enumerate();
    let named = named.map(|(number, block)| (name(number), Blocks::of(*block)));
    rows_of(named, |blocks| (blocks.peak.bytes, blocks.all.bytes))
}

/// Returns the totals by their names, the largest first.
fn rows_of<'n, T: Total, O: Ord>(
    named: impl IntoIterator<Item = (&'n str, T)>,
    size: impl Fn(&T) -> O,
) -> Rows<T> {
    let mut totals: BTreeMap<&str, T> = BTreeMap::new();
    for (name, one) in named {
        totals.entry(name).or_default().add(&one);
    }
    let rows = totals.into_iter();
    let mut rows: Rows<T> = rows.map(|(name, total)| (shown(name), total)).collect();
    rows.sort_by_key(|(_, total)| Reverse(size(total)));
    rows
}

/// Returns the kind of a group `buffer, context 1`, or `caller (buffer, context 1)`.
pub(super) fn kind_of(group: Option<&str>) -> &str {
    let kind = group.and_then(|group| parts_of_group(group).1.split(", context ").next());
    kind.unwrap_or(UNKNOWN)
}

/// Returns the calls of a function of the driver, whose text is `NAME NANOSECONDS`.
fn calls_of(count: u64, text: &str) -> Option<(&str, Calls)> {
    let (name, nanoseconds) = text.rsplit_once(' ')?;
    let nanoseconds = nanoseconds.parse().ok()?;
    Some((name, Calls { count, nanoseconds }))
}
