//! Every way up the ladder: whatever a small pool has, and whatever the device, the allocator and the hooks answer.
//!
//! Neither a device nor a thread takes part. Each way is walked with the real state and ladder; where something outside answers, the walk
//! branches. What is checked is written down a second time, in plain words: [`World::check`] after each step, and [`World::check_refusal`] at
//! the end of a way on which nothing helped.

use std::{collections::BTreeSet, sync::Arc};

use binpool_allocators::{Error, FailureOrder, OutOfMemory, Queue, QueueOrder, Region, Scope};

use crate::{
    Retain,
    block::{Block, BlockBox, HeldBlock, Lease},
    central::{
        State,
        caches::Drained,
        ladder::{Ask, Free, New, Step},
        ranges::RangeFilter,
        rules::{Limits, Rules},
    },
    order::{
        queue_uses::{QueueUses, join},
        timestamps::{Clock, QueueKey, QueueUse},
    },
    paper::{Paper, PaperMemory, PaperQueue},
    request::{HitKind, Request},
};
use binpool_segments::Segments;

/// What the request asks for, in bytes.
const BYTES: usize = 1024;

const REQUEST: Request = Request {
    asked: BYTES,
    bin: 0,
    slot: 0,
    bytes: BYTES,
    home: 0,
};

/// The sizes of the bins: that of the request, one that is not too large for it, and one that is.
const SIZES: [usize; 3] = [BYTES, 2 * BYTES, 8 * BYTES];

/// The answers on one way, in the order in which they were given, each with the number of possible ones.
#[derive(Debug, Default)]
struct Answers {
    given: Vec<(usize, usize)>,
    next: usize,
}

impl Answers {
    /// Returns a number below `of`: on another way another.
    fn choose(&mut self, of: usize) -> usize {
        if self.next == self.given.len() {
            self.given.push((0, of));
        }
        self.next += 1;
        self.given[self.next - 1].0
    }

    fn is(&mut self) -> bool {
        self.choose(2) == 1
    }

    /// Goes on to the next way. Returns whether there is one.
    fn next_way(&mut self) -> bool {
        self.next = 0;
        while let Some((given, of)) = self.given.pop() {
            if given + 1 < of {
                self.given.push((given + 1, of));
                return true;
            }
        }
        false
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bins,
    Segments,
    /// Pages for a block that grows.
    Pages,
}

struct World {
    kind: Kind,
    rules: Rules,
    limits: Limits,
    state: State<Paper, ()>,
    own: QueueKey,
    others: [QueueKey; 2],
    /// The bytes that the pool should have, free or given to the request.
    bytes: u64,
    /// The hooks that were not called yet.
    hooks: usize,
    steps: Vec<&'static str>,
    has_released: bool,
    /// Set if commands held memory back when the device was full at first.
    was_held_back: bool,
    wait_failed: bool,
}

/// How a way ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Free,
    Held,
    New,
    Refused,
}

impl World {
    fn new(answers: &mut Answers) -> Self {
        let kind = [Kind::Bins, Kind::Segments, Kind::Pages][answers.choose(3)];
        let [default, own, one, other, retired] =
            [(); 5].map(|()| PaperQueue::new(QueueOrder::InOrder));
        let (crosses, wait) = [
            (false, None),
            (true, None),
            (true, Some(HitKind::DeviceWait)),
        ][answers.choose(3)];
        let rules = Rules {
            crosses,
            wait,
            retain: Retain::new().percent_of_peak(100).at_least(0),
            alignment: BYTES,
            default_queue: default.id(),
            move_percent: 1,
        };
        let (capacity, available) = [(1 << 20, 1 << 20), (1 << 20, 0), (10, 0)][answers.choose(3)];
        let (clock, segments) = (Arc::<Clock>::default(), Segments::new(join));
        let carves = kind != Kind::Bins;
        let failures = FailureOrder::Kept;
        let mut state = State::new(&default, failures, clock, carves, segments, rules);
        let [own, one, other] = [own, one, other].map(|queue| state.enter(&queue));
        let mut world = Self {
            kind,
            rules,
            limits: Limits {
                capacity,
                available,
                largest: usize::MAX,
            },
            state,
            own,
            others: [one, other],
            bytes: 0,
            hooks: answers.choose(3),
            steps: Vec::new(),
            has_released: false,
            was_held_back: false,
            wait_failed: false,
        };
        if carves {
            world.fill_segment(answers);
        } else {
            world.fill_bins(answers, &retired);
        }
        world.bytes = world.state.held_bytes();
        world.state.counters.managed_bytes += world.bytes;
        world
    }

    /// Blocks of other queues, whose commands are pending, or of none, one of each size; and one of a queue that the program is done with.
    fn fill_bins(&mut self, answers: &mut Answers, retired: &PaperQueue) {
        for bin in 0..SIZES.len() {
            match answers.choose(4) {
                0 => {}
                1 => self.put(bin, QueueUses::new()),
                number => {
                    let use_ = self.state.queues.stamp(self.others[number - 2]);
                    self.put(bin, QueueUses::One(use_));
                }
            }
        }
        if answers.is() {
            let key = self.state.queues.find_or_add(retired);
            let use_ = self.state.queues.stamp(key);
            self.put(0, QueueUses::One(use_));
            self.state.queues.get_mut(key).unwrap().is_retired = true;
        }
    }

    fn put(&mut self, bin: usize, uses: QueueUses) {
        let bytes = SIZES[bin];
        let block = BlockBox::new(Block {
            memory: PaperMemory(Region::first(bytes)),
            bin,
            bytes,
            above: 0,
            slot: bin,
            range: None,
            record: None,
            lease: Lease::default(),
        });
        self.state.put_in_bin(HeldBlock::new(block, uses));
    }

    /// A segment that is free, or used by another queue; or a part of which is in use.
    fn fill_segment(&mut self, answers: &mut Answers) {
        let content = answers.choose(4);
        if content == 0 {
            return;
        }
        let segments = &mut self.state.segments;
        let memory = PaperMemory(Region::first(BYTES));
        let all = segments.add(0, memory, BYTES, BYTES).unwrap();
        drop(all.segment);
        let use_ = self.state.queues.stamp(self.others[0]);
        segments.give(
            all.range,
            [QueueUses::new(), QueueUses::One(use_)][usize::from(content > 1)].clone(),
            None,
        );
        if content == 3 {
            drop(segments.take(0, BYTES / 2, |_| true).unwrap().segment);
        }
    }

    /// The bytes that are free in the pool.
    fn held(&self) -> u64 {
        self.state.held_bytes()
    }

    fn uses(&self) -> Vec<QueueUse> {
        self.state.holding_back().iter().copied().collect()
    }

    /// Commands of these uses end.
    fn end(&mut self, uses: &[QueueUse]) {
        for use_ in uses {
            drop(self.state.queues.note_ended(*use_));
        }
    }

    /// Returns the request, unless it finds something at once.
    fn begin(&mut self) -> Option<Ask> {
        if self.kind == Kind::Pages {
            return Some(Ask::for_pages(self.own, REQUEST));
        }
        let none = |_: &mut _, _, _| Drained::default();
        let bytes = match self.state.free(self.own, REQUEST, none) {
            None => return Some(Ask::for_block(self.own, REQUEST)),
            Some(Free::Block(block, _)) => block.bytes,
            Some(Free::Range(carved)) => carved.region.bytes,
        };
        assert!((BYTES..=SIZES[2]).contains(&bytes));
        None
    }

    fn walk(&mut self, answers: &mut Answers) -> End {
        let Some(mut ask) = self.begin() else {
            return End::Free;
        };
        loop {
            assert!(self.steps.len() < 100, "it ends: {:?}", self.steps);
            ask.limits = self.limits;
            let none = |_: &mut _, _, _| Drained::default();
            let step = self.state.next_step(&mut ask, none);
            self.check(&step);
            match step {
                Step::Block(..) | Step::Range(_) => {
                    self.check_found(&step);
                    return End::Held;
                }
                Step::WaitForBlock(held, _) => {
                    if answers.is() {
                        return End::Held;
                    }
                    self.wait_failed = true;
                    self.state.put_back(held);
                }
                Step::WaitForRange(carved, _) => {
                    if answers.is() {
                        return End::Held;
                    }
                    self.wait_failed = true;
                    self.state.put_range_back(*carved);
                }
                Step::Look(uses, most) => {
                    let has_ended = answers.is();
                    if has_ended {
                        self.end(&uses);
                    }
                    ask.answer = true;
                    if most.is_some() {
                        self.state.count_looks(&mut ask, 1, has_ended);
                    }
                }
                Step::RetireQueues => {
                    let (rules, uses) = (self.rules, self.uses());
                    if answers.is() {
                        self.end(&uses);
                    }
                    drop(self.state.take_queues(|queue| {
                        rules.may_retire(queue, !rules.crosses) && queue.has_caught_up()
                    }));
                }
                Step::Flush(most) => ask.last_bin = last_bin(most),
                Step::Gather(most) => {
                    self.state.settle();
                    ask.answer = false;
                    ask.last_bin = last_bin(most);
                }
                Step::Release(released) => {
                    for it in released {
                        self.bytes -= it.bytes as u64;
                        self.state.arrive();
                    }
                    self.has_released = true;
                }
                Step::New { new, .. } => {
                    if !matches!(new, New::Block) {
                        self.state.transit.arrive();
                    }
                    if answers.is() {
                        return End::New;
                    }
                    ask.refusal = Some(refusal());
                }
                Step::Hook => {
                    ask.answer = self.hooks > 0;
                    self.hooks = self.hooks.saturating_sub(1);
                    // What it frees is of no use: a block that is too small.
                    self.state.changes += u64::from(ask.answer);
                }
                Step::WaitForQueue(use_) => {
                    if answers.is() {
                        self.end(&[use_]);
                    } else {
                        self.wait_failed = true;
                        ask.wait_failed = true;
                    }
                }
                Step::CloseCaches => {}
                Step::Retry | Step::Return(_) | Step::Review(_) | Step::WaitForTransit => {
                    unreachable!("there is nothing of that kind")
                }
                Step::Refuse => {
                    self.check_refusal(&ask);
                    return End::Refused;
                }
            }
            assert_eq!(self.held(), self.bytes, "nothing is lost: {:?}", self.steps);
        }
    }

    fn check_found(&self, step: &Step<Paper, ()>) {
        let bytes = match step {
            Step::Block(block, _) => block.bytes,
            Step::Range(carved) => carved.region.bytes,
            _ => unreachable!("nothing was found"),
        };
        assert!((BYTES..=SIZES[2]).contains(&bytes));
        let is_pages = self.kind == Kind::Pages;
        assert!(!is_pages, "no free block serves one that grows");
    }

    /// What may come next.
    fn check(&mut self, step: &Step<Paper, ()>) {
        let name = name(step);
        let before = |name| self.steps.contains(&name);
        let count = |name| self.steps.iter().filter(|it| **it == name).count();
        let is_full = before("close");
        let says = &self.steps;
        match name {
            "look" | "retire" => assert!(!is_full && !before("new"), "{says:?}"),
            "flush" => assert!(self.kind == Kind::Bins && !before("new"), "{says:?}"),
            "wait" => assert!(
                self.rules.wait.is_some() && count("gather") <= 2 && !before("hook"),
                "{says:?}"
            ),
            "new" if !is_full => self.check_first_new(),
            "new" => {
                let may_have_changed = before("hook") || self.has_released || self.may_change();
                assert!(may_have_changed && !before("refuse"), "{says:?}");
            }
            "close" => {
                assert!(!is_full, "{says:?}");
                self.was_held_back = !self.uses().is_empty();
            }
            "release" => assert!(before("gather"), "{says:?}"),
            "hook" => {
                assert!(count("gather") >= 2 && !before("queue"), "{says:?}");
                // A block that is large enough is waited for by itself, rather than by a wait for all of its queue.
                if self.rules.wait.is_some() && !self.wait_failed {
                    for bin in 0..2 {
                        let held = self.state.take_oldest(self.own, Request { bin, ..REQUEST });
                        assert!(held.is_none(), "{says:?}");
                    }
                }
                // What was released before may be free by now.
                let asks = self.was_held_back && self.kind == Kind::Bins;
                assert!(!asks || count("new") >= 3, "{says:?}");
            }
            "queue" => assert_eq!(self.hooks, 0, "hooks come first: {says:?}"),
            _ => {}
        }
        self.steps.push(name);
    }

    /// Whether commands may have freed memory that was released before.
    fn may_change(&self) -> bool {
        !self.uses().is_empty() || self.steps.contains(&"queue") || self.steps.contains(&"wait")
    }

    /// The allocator is asked only once nothing of the pool's own can serve the request by its policy.
    fn check_first_new(&mut self) {
        if self.kind == Kind::Pages {
            return;
        }
        let request = REQUEST;
        let (queue, steps) = (self.own, &self.steps);
        let bytes = BYTES as u64;
        assert!(self.state.pop(queue, request).is_none(), "{steps:?}");
        if self.rules.wait.is_some() && !self.wait_failed {
            let held = self.state.take_oldest(queue, request);
            assert!(held.is_none(), "it waits first: {steps:?}");
            let range = self.state.take_range(queue, request, RangeFilter::Any);
            assert!(range.is_none(), "it waits first: {steps:?}");
        }
        if self.kind == Kind::Segments {
            let most = self.limits.available.min(self.limits.capacity);
            assert!(bytes <= most + self.held(), "ruled out: {steps:?}");
        }
    }

    /// A request is refused only if nothing is left to try.
    fn check_refusal(&mut self, ask: &Ask) {
        assert!(ask.refusal.is_some());
        let bytes = BYTES as u64;
        if bytes > self.limits.capacity && bytes > self.state.managed_bytes() {
            return;
        }
        let steps = &self.steps;
        assert!(steps.contains(&"hook") && self.hooks == 0, "{steps:?}");
        assert!(self.uses().is_empty() || self.wait_failed, "{steps:?}");
        let held_bytes = self.held();
        let is_ruled_out = self.state.is_ruled_out(BYTES, self.limits);
        if self.kind == Kind::Pages {
            let releasable = self.state.release_largest(u64::MAX);
            assert!(releasable.is_empty() || is_ruled_out, "{steps:?}");
            return;
        }
        let (request, last) = (REQUEST, SIZES.len());
        let held = self.state.pop_up_to(last, self.own, request, true);
        assert!(held.is_none(), "{held_bytes} were free: {steps:?}");
        let range = self
            .state
            .take_range(self.own, request, RangeFilter::FreeAnywhere);
        assert!(range.is_none(), "{held_bytes} were free: {steps:?}");
    }
}

fn refusal() -> Error {
    OutOfMemory::new(BYTES, Scope::Device).into()
}

/// The last bin with blocks of at most this many bytes.
fn last_bin(most: usize) -> usize {
    let fitting = SIZES.iter().filter(|bytes| **bytes <= most);
    fitting.count().saturating_sub(1)
}

fn name(step: &Step<Paper, ()>) -> &'static str {
    match step {
        Step::Block(..) => "block",
        Step::Range(_) => "range",
        Step::WaitForBlock(..) | Step::WaitForRange(..) => "wait",
        Step::Look(..) => "look",
        Step::RetireQueues => "retire",
        Step::Retry => "retry",
        Step::Return(_) => "return",
        Step::Review(_) => "review",
        Step::Flush(_) => "flush",
        Step::Gather(_) => "gather",
        Step::Release(_) => "release",
        Step::New { .. } => "new",
        Step::CloseCaches => "close",
        Step::Hook => "hook",
        Step::WaitForQueue(_) => "queue",
        Step::WaitForTransit => "transit",
        Step::Refuse => "refuse",
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many ways, of code without a pointer")]
fn every_way_ends_and_leaves_nothing_untried() {
    let mut answers = Answers::default();
    let (mut ways, mut seen) = (0, BTreeSet::new());
    let mut ends = [End::Free, End::Held, End::New, End::Refused].map(|end| (end, 0));
    loop {
        let mut world = World::new(&mut answers);
        let end = world.walk(&mut answers);
        ends.iter_mut().find(|(it, _)| *it == end).unwrap().1 += 1;
        seen.extend(world.steps);
        ways += 1;
        if !answers.next_way() {
            break;
        }
    }
    let never = ["retry", "return", "review", "transit"];
    assert_eq!(seen.len(), 17 - never.len(), "{seen:?}");
    assert!(ends.iter().all(|(_, ways)| *ways > 100), "{ways}: {ends:?}");
    println!("{ways} ways: {ends:?}");
}
