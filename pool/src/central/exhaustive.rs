//! Every program of a few calls, through the real ranges and queue states, against a plain table of bytes and commands.
//!
//! The table knows the commands on the device one by one, and what each of them comes after. After each call it says which units
//! of the segment are in use, and by which block; which of the pool's free ranges a queue may have, and which it must get.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use binpool_allocators::{FailureOrder, Queue, QueueOrder, Region};

use crate::{
    Retain,
    central::{State, ranges::RangeFilter, rules::Rules},
    order::{
        fence::{Fence, NewFence},
        queue_uses::{QueueUses, join},
        timestamps::{Clock, QueueKey, QueueUse},
    },
    paper::{Paper, PaperEvent, PaperMemory, PaperQueue},
    request::Request,
};
use binpool_segments::{RangeKey, RangeState, Segments};

/// What the segment is counted in.
const UNIT: usize = 256;

/// The units of the segment.
const UNITS: usize = 8;

/// The sizes of blocks, in units. Two blocks fill the segment, or three.
const SIZES: [usize; 3] = [2, 3, 5];

/// One call of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// Allocates a block, or finds nothing.
    Allocate { units: usize, queue: usize },
    /// Uses the block with this place among those in use, for the last time, on its own queue or on both, and frees it.
    Free { block: usize, on_both: bool },
    /// Enqueues a fence.
    Fence { queue: usize },
    /// Waits for all of a queue.
    Finish { queue: usize },
    /// A fence completes, and the pool notes that.
    End { fence: usize },
    /// The other queue is made to wait for a fence.
    Wait { fence: usize },
    /// The pool forgets the uses that have ended.
    Settle,
    /// The pool drops what it knows of a queue that has nothing left to do.
    LetGo { queue: usize },
}

/// A device, and how the pool treats views.
#[derive(Clone, Copy, Debug)]
struct Setting {
    orders: [QueueOrder; 2],
    failures: FailureOrder,
    /// Whether the view of a block is kept in its free range.
    keeps_views: bool,
}

impl Setting {
    fn is_ordered(self, queue: usize) -> bool {
        self.orders[queue] == QueueOrder::InOrder && self.failures.keeps_places()
    }
}

/// A set of commands, a bit for each.
type Commands = u32;

/// A block in use.
#[derive(Clone, Copy, Debug)]
struct Live {
    first: usize,
    units: usize,
    queue: usize,
    range: RangeKey,
}

#[derive(Clone, Copy, Debug)]
struct TableFence {
    queue: usize,
    /// The commands that have ended once the fence has completed.
    all: Commands,
    /// Those of them that are uses of its own queue, which the pool concludes.
    own: Commands,
    /// Whether the pool has yet to note its end.
    is_pending: bool,
}

/// What is so, in plain terms.
#[derive(Clone, Debug)]
struct Table {
    setting: Setting,
    /// The number of commands that were enqueued.
    commands: u32,
    /// The commands of each queue.
    on: [Commands; 2],
    /// The commands of each queue, and all that these come after.
    all: [Commands; 2],
    /// What the next command of each queue comes after.
    next_after: [Commands; 2],
    /// What has ended.
    ended: Commands,
    /// What the pool knows to have ended.
    known_ended: Commands,
    /// What the pool knows each queue to wait for.
    known_after: [Commands; 2],
    /// Whether the pool knows the queue.
    is_known: [bool; 2],
    /// The blocks in use, oldest first.
    live: Vec<Live>,
    fences: Vec<TableFence>,
    /// The commands that ever used each unit.
    history: [Commands; UNITS],
    /// The commands that stand for the uses of each free unit: those of its last user, and of the last users of the units that
    /// were one range with it.
    last: [Commands; UNITS],
    /// The views that are kept, as first unit and units.
    views: Vec<(usize, usize)>,
}

impl Table {
    fn new(setting: Setting) -> Self {
        Self {
            setting,
            commands: 0,
            on: [0; 2],
            all: [0; 2],
            next_after: [0; 2],
            ended: 0,
            known_ended: 0,
            known_after: [0; 2],
            is_known: [false; 2],
            live: Vec::new(),
            fences: Vec::new(),
            history: [0; UNITS],
            last: [0; UNITS],
            views: Vec::new(),
        }
    }

    /// Enqueues a command that comes after these, besides what its queue puts before it.
    fn enqueue(&mut self, queue: usize, after: Commands) -> Commands {
        let command = 1 << self.commands;
        self.commands += 1;
        let closure = command | after | self.next_after[queue];
        self.on[queue] |= command;
        self.all[queue] |= closure;
        if self.setting.is_ordered(queue) {
            self.next_after[queue] |= closure;
        }
        command
    }

    /// The commands that have ended, or end before the next command of this queue starts.
    fn harmless_to(&self, queue: usize) -> Commands {
        self.ended | self.next_after[queue]
    }

    /// The same, as far as the pool can know.
    fn known_harmless_to(&self, queue: usize) -> Commands {
        let own = if self.setting.is_ordered(queue) {
            self.on[queue]
        } else {
            0
        };
        self.known_ended | self.known_after[queue] | own
    }

    /// Returns whether the pool must let this queue have these free units.
    fn must_have(&self, queue: usize, units: &Units) -> bool {
        let uses = all_of(&self.last, units);
        uses & !self.known_harmless_to(queue) == 0
    }

    /// Returns whether this queue may have these free units.
    fn may_have(&self, queue: usize, units: &Units) -> bool {
        let uses = all_of(&self.history, units);
        uses & !self.harmless_to(queue) == 0
    }

    fn active(&self, queue: usize) -> usize {
        self.live.iter().filter(|live| live.queue == queue).count()
    }

    /// Returns whether all commands of a queue are known to have ended.
    fn has_caught_up(&self, queue: usize) -> bool {
        self.on[queue] & !self.known_ended == 0
    }

    /// The calls that can come next.
    fn calls(&self) -> Vec<Call> {
        let mut calls = Vec::new();
        // Before any call names a queue, queues of one kind are the same: a program with their names exchanged is no other.
        let is_new = !self.is_known.contains(&true) && self.on == [0; 2];
        let [one, two] = self.setting.orders;
        let queues = if is_new && one == two { 0..1 } else { 0..2 };
        for queue in queues {
            calls.extend(SIZES.map(|units| Call::Allocate { units, queue }));
        }
        for block in 0..self.live.len() {
            calls.extend([false, true].map(|on_both| Call::Free { block, on_both }));
        }
        for queue in (0..2).filter(|queue| self.is_known[*queue]) {
            calls.push(if self.setting.failures.keeps_places() {
                Call::Fence { queue }
            } else {
                Call::Finish { queue }
            });
            if self.active(queue) == 0 && self.has_caught_up(queue) {
                calls.push(Call::LetGo { queue });
            }
        }
        for (fence, it) in self.fences.iter().enumerate() {
            if it.is_pending {
                calls.push(Call::End { fence });
                if self.is_known[1 - it.queue] {
                    calls.push(Call::Wait { fence });
                }
            }
        }
        calls.push(Call::Settle);
        calls
    }

    fn end(&mut self, all: Commands, own: Commands) {
        self.ended |= all;
        self.known_ended |= own;
    }

    /// Does a call. `got` is the range that an allocation got, and the views that were released for it.
    fn apply(&mut self, call: Call, got: Option<&Got>) {
        match call {
            Call::Allocate { queue, .. } => {
                self.is_known[queue] = true;
                if let Some(got) = got {
                    self.live.push(got.live);
                    let is_gone = |view: &(usize, usize)| {
                        got.view == Some(*view) || got.dropped.contains(view)
                    };
                    self.views.retain(|view| !is_gone(view));
                }
            }
            Call::Free { block, on_both } => {
                let Live {
                    first,
                    units,
                    queue,
                    ..
                } = self.live.remove(block);
                let region = first..first + units;
                let former = all_of(&self.history, &region);
                let mut uses = self.enqueue(queue, 0);
                if on_both {
                    // The program orders its use of another queue after what its own queue comes after.
                    uses |= self.enqueue(1 - queue, former);
                    self.is_known[1 - queue] = true;
                }
                for unit in region {
                    self.history[unit] |= uses;
                    self.last[unit] = uses;
                }
                if self.setting.keeps_views {
                    self.views.push((first, units));
                }
            }
            Call::Fence { queue } => self.fences.push(TableFence {
                queue,
                all: self.all[queue],
                own: self.on[queue],
                is_pending: true,
            }),
            Call::Finish { queue } => self.end(self.on[queue], self.on[queue]),
            Call::End { fence } => {
                // Earlier fences of the queue have completed, too, but another thread may look at them later.
                let TableFence { all, own, .. } = self.fences[fence];
                self.end(all, own);
                self.fences[fence].is_pending = false;
            }
            Call::Wait { fence } => {
                let TableFence {
                    queue, all, own, ..
                } = self.fences[fence];
                self.all[1 - queue] |= all;
                self.next_after[1 - queue] |= all;
                self.known_after[1 - queue] |= own;
            }
            Call::Settle => {}
            Call::LetGo { queue } => {
                self.is_known[queue] = false;
                self.known_after[queue] = 0;
            }
        }
    }

    /// Notes which free units are one range: the uses of one stand for all of them from now on.
    fn note_ranges(&mut self, free: &[FreeRange]) {
        for FreeRange { units, .. } in free {
            let uses = all_of(&self.last, units);
            self.last[units.clone()].fill(uses);
        }
    }
}

/// Units next to each other.
type Units = std::ops::Range<usize>;

fn all_of(commands: &[Commands; UNITS], units: &Units) -> Commands {
    commands[units.clone()]
        .iter()
        .fold(0, |all, commands| all | commands)
}

fn units_of(region: Region) -> Units {
    assert_eq!((region.offset % UNIT, region.bytes % UNIT), (0, 0));
    region.offset / UNIT..(region.offset + region.bytes) / UNIT
}

fn place_of(view: &PaperMemory) -> (usize, usize) {
    let units = units_of(view.0);
    (units.start, units.len())
}

/// What an allocation got.
#[derive(Debug)]
struct Got {
    live: Live,
    /// The view that was kept of these units.
    view: Option<(usize, usize)>,
    /// Views of other units that were dropped for it.
    dropped: Vec<(usize, usize)>,
    /// The units that stayed taken until those were dropped.
    kept: Units,
}

/// A free range of the segment.
#[derive(Debug)]
struct FreeRange {
    units: Units,
    uses: QueueUses,
}

/// The queues of all programs, which no call changes. The pool has a default queue besides, which no call names, so that it may
/// drop both.
struct Queues {
    default: PaperQueue,
    both: [PaperQueue; 2],
}

/// The pool's own data.
struct Real<'a> {
    setting: Setting,
    queues: &'a Queues,
    state: State<Paper, ()>,
    live: Vec<Live>,
    /// The queue and the use of each.
    fences: Vec<(usize, QueueUse)>,
}

impl<'a> Real<'a> {
    fn new(setting: Setting, queues: &'a Queues) -> Self {
        let mut segments = Segments::new(join);
        let memory = PaperMemory(Region::first(UNITS * UNIT));
        let carved = segments.add(0, memory, UNITS * UNIT, UNIT).unwrap();
        segments.give(carved.range, QueueUses::new(), None);
        drop(carved.segment);
        let clock = Arc::<Clock>::default();
        let (default, failures) = (&queues.default, setting.failures);
        Self {
            setting,
            queues,
            state: State::new(
                default,
                failures,
                clock,
                true,
                segments,
                Rules {
                    crosses: true,
                    wait: None,
                    retain: Retain::new(),
                    alignment: UNIT,
                    default_queue: default.id(),
                    move_percent: 1,
                },
            ),
            live: Vec::new(),
            fences: Vec::new(),
        }
    }

    fn key(&self, queue: usize) -> Option<QueueKey> {
        self.state.queues.find(self.queues.both[queue].id())
    }

    /// Does a call. Returns what an allocation got.
    fn apply(&mut self, call: Call) -> Option<Got> {
        match call {
            Call::Allocate { units, queue } => return self.allocate(units, queue),
            Call::Free { block, on_both } => self.free(block, on_both),
            Call::Fence { queue } => {
                let key = self.key(queue).unwrap();
                let NewFence { at, .. } = self.state.queues.begin_fence(key).unwrap();
                let surplus = self.state.queues.add_fence(Fence {
                    key: at.key,
                    timestamp: at.timestamp,
                    event: PaperEvent::new(),
                });
                assert!(surplus.is_none());
                self.fences.push((queue, at));
            }
            Call::Finish { queue } => {
                let key = self.key(queue).unwrap();
                assert!(self.state.queues.begin_fence(key).is_none());
                let (_, at) = self.state.queues.begin_finish(key).unwrap();
                drop(self.state.queues.note_ended(at));
            }
            Call::End { fence } => drop(self.state.queues.note_ended(self.fences[fence].1)),
            Call::Wait { fence } => {
                let (queue, at) = self.fences[fence];
                let other = self.key(1 - queue).unwrap();
                self.state.queues.get_mut(other).unwrap().put_behind(at);
            }
            Call::Settle => self.state.settle(),
            Call::LetGo { queue } => {
                let id = self.queues.both[queue].id();
                let taken = self.state.take_queues(|queue_state| {
                    queue_state.queue.id() == id
                        && queue_state.active == 0
                        && queue_state.has_caught_up()
                });
                assert_eq!(taken.len(), 1);
            }
        }
        None
    }

    fn allocate(&mut self, units: usize, queue: usize) -> Option<Got> {
        let state = &mut self.state;
        let key = state.enter(&self.queues.both[queue]);
        let bytes = units * UNIT;
        let request = Request {
            asked: bytes,
            bin: 0,
            slot: 0,
            bytes,
            home: 0,
        };
        let Some(carved) = state.take_range(key, request, RangeFilter::Free) else {
            state.leave(Some(key));
            return None;
        };
        assert_eq!(carved.region.bytes, bytes);
        let segments = &state.segments;
        let (_, kept) = segments.place_of(carved.range).unwrap();
        if carved.has_excess {
            state.shrink_range(carved.range, carved.region, carved.uses);
        }
        let live = Live {
            first: units_of(carved.region).start,
            units,
            queue,
            range: carved.range,
        };
        self.live.push(live);
        Some(Got {
            live,
            view: carved.view.as_ref().map(place_of),
            dropped: carved.overlapping.iter().map(place_of).collect(),
            kept: units_of(kept),
        })
    }

    fn free(&mut self, block: usize, on_both: bool) {
        let Live {
            first,
            units,
            queue,
            range,
        } = self.live.remove(block);
        let key = self.key(queue);
        let others = on_both.then(|| self.queues.both[1 - queue].clone());
        let uses = self.state.stamp(key, others.as_slice());
        let region = Region::new(first * UNIT, units * UNIT);
        let view = self.setting.keeps_views.then_some(PaperMemory(region));
        self.state.transit.depart(1);
        assert!(self.state.return_range(range, uses, view));
        self.state.leave(key);
    }

    /// The free ranges. Checks that the ranges cover the segment, that those in use are the blocks of the table, and that
    /// neighbours are apart only if several queues used them.
    fn free_ranges(&self, table: &Table) -> Vec<FreeRange> {
        let segments = &self.state.segments;
        let mut ranges = Vec::new();
        segments.each(|segment| {
            ranges.extend(segment.ranges.iter().map(|(region, state)| match state {
                RangeState::Free(uses) => (*region, Err(QueueUses::clone(uses))),
                RangeState::Taken(range) => (*region, Ok(*range)),
            }));
        });
        let (mut end, mut in_use) = (0, 0);
        let mut free: Vec<FreeRange> = Vec::new();
        for (region, range) in ranges {
            let units = units_of(region);
            assert_eq!(units.start, end);
            end = units.end;
            match range {
                Ok(key) => {
                    let live = table.live.iter().find(|live| live.range == key).unwrap();
                    assert_eq!(live.first..live.first + live.units, units);
                    in_use += 1;
                }
                Err(uses) => {
                    if let Some(before) = free.last()
                        && before.units.end == units.start
                    {
                        let mut keys = before.uses.iter().chain(&uses).map(|use_| use_.key);
                        let first = keys.next();
                        assert!(
                            keys.any(|key| Some(key) != first),
                            "{before:?} and {units:?} are apart"
                        );
                    }
                    free.push(FreeRange { units, uses });
                }
            }
        }
        assert_eq!((end, in_use), (UNITS, table.live.len()));
        free
    }

    /// Checks which queues may have the free ranges, and what is known of each queue.
    fn check(&self, table: &Table, free: &[FreeRange]) {
        let queues = &self.state.queues;
        for queue in 0..2 {
            let key = self.key(queue);
            assert_eq!(key.is_some(), table.is_known[queue]);
            let Some(key) = key else { continue };
            for range in free {
                let may = range.uses.iter().all(|use_| queues.is_before(*use_, key));
                assert!(
                    !may || table.may_have(queue, &range.units),
                    "queue {queue} may not have {range:?} yet"
                );
                assert_eq!(
                    may,
                    table.must_have(queue, &range.units),
                    "queue {queue} and {range:?}"
                );
            }
            let queue_state = queues.get(key).unwrap();
            assert_eq!(queue_state.active, table.active(queue));
            assert_eq!(queue_state.has_caught_up(), table.has_caught_up(queue));
        }
    }
}

/// Checks what an allocation got, where these ranges were free.
fn check_got(table: &Table, free: &[FreeRange], units: usize, queue: usize, got: Option<&Got>) {
    let suits =
        |range: &&FreeRange| range.units.len() >= units && table.must_have(queue, &range.units);
    let smallest = free
        .iter()
        .filter(suits)
        .map(|range| range.units.len())
        .min();
    assert_eq!(got.is_some(), smallest.is_some());
    let (Some(got), Some(smallest)) = (got, smallest) else {
        return;
    };
    let region = got.live.first..got.live.first + units;
    let is_in =
        |range: &&FreeRange| range.units.start <= region.start && region.end <= range.units.end;
    let range = free.iter().find(is_in).filter(suits).unwrap();
    // A view of exactly these units may be in a range that is up to twice as large.
    let loosest = if got.view.is_some() {
        2 * smallest
    } else {
        smallest
    };
    assert!(range.units.len() <= loosest, "{range:?} is no best fit");
    let overlaps = |view: &(usize, usize)| view.0 < region.end && region.start < view.0 + view.1;
    for view in &table.views {
        let is_dropped = got.dropped.contains(view);
        if got.view == Some(*view) {
            assert_eq!((*view, is_dropped), ((region.start, units), false));
        } else {
            assert_eq!(is_dropped, overlaps(view), "{view:?} and {region:?}");
            // No block gets the units of a view before it is dropped.
            assert!(!is_dropped || view.0 + view.1 <= got.kept.end);
        }
    }
    let released = got.dropped.len() + usize::from(got.view.is_some());
    let is_released =
        |view: &&(usize, usize)| got.view == Some(**view) || got.dropped.contains(view);
    assert_eq!(table.views.iter().filter(is_released).count(), released);
}

/// Goes through programs.
struct Explorer {
    setting: Setting,
    queues: Queues,
    program: Vec<Call>,
    /// The number of programs so far.
    programs: u64,
}

impl Explorer {
    /// Runs every program that begins with this one, which left this table and these free ranges, and has up to `more` calls
    /// more.
    fn explore(&mut self, table: &Table, free: &[FreeRange], more: usize) {
        if more == 0 {
            return;
        }
        for call in table.calls() {
            self.program.push(call);
            let (table, free) = self.run(table.clone(), free);
            self.explore(&table, &free, more - 1);
            self.program.pop();
        }
    }

    /// Runs the program. All its calls but the last one have been checked.
    fn run(&mut self, mut table: Table, free: &[FreeRange]) -> (Table, Vec<FreeRange>) {
        self.programs += 1;
        let run = || {
            let mut real = Real::new(self.setting, &self.queues);
            let (last, before) = self.program.split_last().unwrap();
            for call in before {
                real.apply(*call);
            }
            let got = real.apply(*last);
            if let Call::Allocate { units, queue } = *last {
                check_got(&table, free, units, queue, got.as_ref());
            }
            table.apply(*last, got.as_ref());
            let free = real.free_ranges(&table);
            table.note_ranges(&free);
            real.check(&table, &free);
            free
        };
        let free = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            eprintln!("the program: {:?}\n{:#?}", self.setting, self.program);
            resume_unwind(panic)
        });
        (table, free)
    }
}

/// Runs every program of up to this many calls. Returns their number.
fn run_all(setting: Setting, calls: usize) -> u64 {
    let queues = Queues {
        default: PaperQueue::new(QueueOrder::InOrder),
        both: setting.orders.map(PaperQueue::new),
    };
    let table = Table::new(setting);
    let free = Real::new(setting, &queues).free_ranges(&table);
    let mut explorer = Explorer {
        setting,
        queues,
        program: Vec::new(),
        programs: 0,
    };
    explorer.explore(&table, &free, calls);
    println!(
        "{setting:?}, up to {calls} calls: {} programs",
        explorer.programs
    );
    explorer.programs
}

const ORDERED: [QueueOrder; 2] = [QueueOrder::InOrder; 2];

const TWO_IN_ORDER: Setting = Setting {
    orders: ORDERED,
    failures: FailureOrder::Kept,
    keeps_views: true,
};

const WITHOUT_VIEWS: Setting = Setting {
    keeps_views: false,
    ..TWO_IN_ORDER
};

const ONE_OUT_OF_ORDER: Setting = Setting {
    orders: [QueueOrder::InOrder, QueueOrder::OutOfOrder],
    failures: FailureOrder::FailsEarly,
    ..TWO_IN_ORDER
};

const NO_PLACES: Setting = Setting {
    failures: FailureOrder::Lost,
    ..TWO_IN_ORDER
};

#[test]
#[cfg_attr(miri, ignore = "too many programs, of code without a pointer")]
fn every_program_of_up_to_five_calls_does_what_a_table_says() {
    assert_eq!(run_all(TWO_IN_ORDER, 5), 60_203);
    assert_eq!(run_all(WITHOUT_VIEWS, 4), 4_826);
    assert_eq!(run_all(ONE_OUT_OF_ORDER, 4), 9_630);
    assert_eq!(run_all(NO_PLACES, 4), 4_673);
}

#[test]
#[ignore = "takes minutes: scripts/proofs"]
fn every_program_of_up_to_seven_calls_does_what_a_table_says() {
    assert_eq!(run_all(TWO_IN_ORDER, 7), 10_339_538);
    assert_eq!(run_all(WITHOUT_VIEWS, 7), 10_339_550);
    assert_eq!(run_all(ONE_OUT_OF_ORDER, 7), 20_326_113);
    assert_eq!(run_all(NO_PLACES, 7), 7_935_797);
}
