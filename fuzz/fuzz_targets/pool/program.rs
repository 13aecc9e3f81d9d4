//! Runs the steps of a program, and holds every answer against what is known.

use std::{
    sync::{Arc, Mutex},
    thread,
};

use binpool::{
    Backend, Error, HookId, MemoryPool, Outcome, PendingRead, PoolError, Queue, QueueOrder, Region,
    ScrubPolicy, Verdict, adaptors::Budget,
};
use binpool_mock::{CallKind, Fault, MockBackend, MockDevice, MockEvent, MockQueue, Persistence};

use crate::{
    live::{Block, Live},
    settings::{AllocatorOf, Settings},
    step::{Call, FaultOf, How, Part, Size, Step},
};

type Pool = MemoryPool<MockBackend>;

/// Of the steps that could be done on another thread, one in this many is.
const ON_THREADS: u8 = 16;

/// The most blocks of one size that are asked for at once.
const MOST_IN_A_CHURN: u8 = 24;

/// A pool, and what its counters have to say.
struct Counted {
    pool: Pool,
    scrub: ScrubPolicy,
    has_segments: bool,
    allocated: u64,
    refused: u64,
    empty: u64,
    /// The bytes of ranges that were taken out for good, and stay in the pool's segments.
    detached: u64,
}

pub(crate) struct Program {
    device: MockDevice,
    backend: MockBackend,
    budget: Budget,
    capacity: usize,
    allocator: AllocatorOf,
    queues: Vec<MockQueue>,
    pools: Vec<Counted>,
    live: Vec<Live>,
    /// Blocks that hooks drop, with their pools.
    cache: Arc<Mutex<Vec<(usize, Block)>>>,
    hooks: Vec<(usize, HookId)>,
    gates: Vec<MockEvent>,
    next_gate: Option<MockEvent>,
    /// Reads of fresh blocks of pools that scrub.
    fresh: Vec<PendingRead<MockEvent>>,
    next_mark: u8,
    /// Set if calls may fail because the program asked for it.
    is_faulty: bool,
    /// Set if the program ever asked for it.
    was_faulty: bool,
    /// Whether a release could not wait for its commands, so that a part of a segment is quarantined.
    has_quarantined: bool,
    /// Whether commands have failed after a gate.
    has_failures: bool,
    was_detached: bool,
}

fn call_kind(call: Call) -> Option<CallKind> {
    Some(match call {
        Call::CreateBuffer => CallKind::CreateBuffer,
        Call::CreateView => CallKind::CreateSubRegion,
        Call::AllocateSvm => CallKind::AllocateSvm,
        Call::Commit => CallKind::Commit,
        Call::Release => CallKind::Release,
        Call::Fill => CallKind::Fill,
        Call::Write => CallKind::EnqueueWrite,
        Call::Read => CallKind::EnqueueRead,
        Call::Copy => CallKind::Copy,
        Call::Marker => CallKind::Marker,
        Call::Barrier => CallKind::Barrier,
        Call::Status => CallKind::Status,
        Call::Wait => CallKind::Wait,
        Call::Flush => CallKind::Flush,
        Call::Finish => CallKind::Finish,
        Call::Any => return None,
    })
}

fn fault(fault: FaultOf) -> Fault {
    match fault {
        FaultOf::OutOfMemory => Fault::OutOfMemory,
        FaultOf::Backend => Fault::Backend(-9999),
        FaultOf::DeviceLost => Fault::DeviceLost,
    }
}

fn order(out_of_order: bool) -> QueueOrder {
    if out_of_order {
        QueueOrder::OutOfOrder
    } else {
        QueueOrder::InOrder
    }
}

/// Does something on a thread of its own, which ends, once in [`ON_THREADS`] times.
fn maybe_elsewhere<R: Send + 'static>(which: u8, what: impl FnOnce() -> R + Send + 'static) -> R {
    if which.is_multiple_of(ON_THREADS) {
        thread::spawn(what)
            .join()
            .expect("a failure ends the process")
    } else {
        what()
    }
}

impl Program {
    pub(crate) fn new(settings: &Settings) -> Self {
        let device = settings.device();
        let backend = device.backend();
        let queues = settings
            .orders()
            .map(|order| backend.create_queue(order).expect("no fault was asked for"));
        let budget = Budget::new(u64::MAX);
        let allocator = settings.allocator(&backend, &queues[0], &budget);
        let pools = settings.pools.iter().map(|pool| Counted {
            pool: pool
                .options(settings.allocator)
                .build(Arc::clone(&allocator), &queues[0])
                .expect("the settings are permitted"),
            scrub: pool.scrub(settings.allocator),
            has_segments: pool.has_segments(settings.allocator),
            allocated: 0,
            refused: 0,
            empty: 0,
            detached: 0,
        });
        Self {
            capacity: settings.capacity_bytes(),
            allocator: settings.allocator,
            pools: pools.collect(),
            queues: queues.into(),
            device,
            backend,
            budget,
            live: Vec::new(),
            cache: Arc::default(),
            hooks: Vec::new(),
            gates: Vec::new(),
            next_gate: None,
            fresh: Vec::new(),
            next_mark: 0,
            is_faulty: false,
            was_faulty: false,
            has_quarantined: false,
            has_failures: false,
            was_detached: false,
        }
    }

    fn queue(&self, index: u8) -> MockQueue {
        self.queues[usize::from(index) % self.queues.len()].clone()
    }

    fn pick(&self, index: u8) -> Option<usize> {
        (!self.live.is_empty()).then(|| usize::from(index) % self.live.len())
    }

    fn pool(&self, second: bool) -> &Pool {
        &self.pools[usize::from(second)].pool
    }

    /// Returns whether calls may fail that are right: the program asked for it, something waits for what has not happened, or memory
    /// was only promised.
    fn may_fail(&self) -> bool {
        self.is_faulty
            || self.has_failures
            || !self.gates.is_empty()
            || self.allocator == AllocatorOf::Deferred
    }

    /// What a call gave, if it may fail at all.
    fn take<T>(&self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                assert!(self.may_fail(), "{error}");
                None
            }
        }
    }

    fn expect_faults(&mut self) {
        self.is_faulty = true;
        self.was_faulty = true;
    }

    fn clear_faults(&mut self) {
        self.device.clear_faults();
        self.is_faulty = false;
    }

    fn open_gates(&mut self, outcome: Outcome) {
        self.clear_faults();
        for gate in self.gates.drain(..) {
            self.backend
                .resolve_user_event(&gate, outcome)
                .expect("it is a gate, and shut");
        }
        self.next_gate = None;
        self.has_failures |= outcome == Outcome::Failed;
    }

    /// The newest gate fails, and the others stay shut.
    fn fail_one_gate(&mut self) {
        let Some(gate) = self.gates.pop() else {
            return;
        };
        self.clear_faults();
        self.backend
            .resolve_user_event(&gate, Outcome::Failed)
            .expect("it is a gate, and shut");
        self.next_gate.take_if(|next| *next == gate);
        self.has_failures = true;
    }

    fn allocate(&mut self, pool: bool, bytes: usize, queue: Option<MockQueue>, thread: u8) -> bool {
        let counted = &self.pools[usize::from(pool)];
        let handle = counted.pool.clone();
        let asked = queue.clone();
        let result = maybe_elsewhere(thread, move || match asked {
            Some(queue) => handle.allocate_on(&queue, bytes),
            None => handle.allocate(bytes),
        });
        let block = match result {
            Ok(block) => block,
            Err(error) => {
                self.check_refusal(pool, bytes, &error);
                return false;
            }
        };
        assert_eq!(block.size(), bytes);
        assert!(block.class_size() >= bytes);
        assert_eq!(block.is_empty(), bytes == 0);
        let counted = &mut self.pools[usize::from(pool)];
        if bytes == 0 {
            counted.empty += 1;
        } else {
            counted.allocated += 1;
        }
        let queue = queue.unwrap_or_else(|| self.queues[0].clone());
        let may_be_dirty = counted.scrub == ScrubPolicy::Never;
        self.live.push(Live::new(block, pool.into()));
        let index = self.live.len() - 1;
        if !may_be_dirty {
            self.read_fresh(index, &queue);
        }
        self.put(index, &queue, 0..bytes, How::Fill, true);
        true
    }

    fn read_fresh(&mut self, index: usize, queue: &MockQueue) {
        let live = &mut self.live[index];
        let result = live.block.enqueue_read(queue, 0..live.block.size());
        if let Ok(read) = &result {
            live.last = vec![read.event().clone()];
        }
        let read = self.take(result);
        self.fresh.extend(read);
    }

    fn check_refusal(&mut self, pool: bool, bytes: usize, error: &PoolError) {
        let may_fail = self.may_fail();
        let Some(report) = error.out_of_memory() else {
            assert!(may_fail, "{error}");
            return;
        };
        self.pools[usize::from(pool)].refused += 1;
        assert_eq!(report.requested_bytes, bytes);
        let needed = report.class_bytes as u64;
        if report.verdict == Verdict::NeverFits {
            assert!(needed > report.device_bytes, "{report}");
        } else if !may_fail {
            // One that is larger than the limit waits for nothing.
            let is_beyond_all = needed > report.capacity_bytes;
            assert!(
                is_beyond_all || report.pending_bytes == 0,
                "every command can end: {report}"
            );
            assert!(
                report.largest_held_bytes < needed,
                "a block is free: {report}"
            );
        }
    }

    fn put(
        &mut self,
        index: usize,
        queue: &MockQueue,
        part: std::ops::Range<usize>,
        how: How,
        by_events: bool,
    ) {
        self.next_mark = self.next_mark.wrapping_add(1);
        let mark = self.next_mark;
        let gate = self.next_gate.take();
        let live = &mut self.live[index];
        let mut wait_for = Vec::new();
        // The order of a queue is not to be relied on where a failure may lose it.
        let is_kept = self.backend.limits().failure_order.keeps_places();
        if (by_events || !is_kept) && !live.last.is_empty() {
            wait_for.clone_from(&live.last);
        } else {
            let ordered = live.block.order_before(queue);
            if self.take(ordered).is_none() {
                return;
            }
        }
        wait_for.extend(gate);
        let live = &self.live[index];
        let bytes = vec![mark; part.len()];
        let start = part.start;
        let result = match how {
            How::Fill => live
                .block
                .enqueue_fill(queue.after(&wait_for), part, &[mark]),
            How::Write => {
                live.block
                    .enqueue_write(queue.after(&wait_for), start, bytes.clone().into())
            }
            How::BlockingWrite => {
                let wrote = live.block.write(queue.after(&wait_for), start, &bytes);
                if self.take(wrote).is_some() {
                    let live = &mut self.live[index];
                    live.put(start, &bytes, Vec::new());
                    live.last.clear();
                } else {
                    // It may have been enqueued, and have failed.
                    let live = &mut self.live[index];
                    live.bytes.clear();
                    // What it waited for need not have ended.
                    self.settle(index);
                }
                return;
            }
            How::View => {
                let alignment = self.backend.limits().alignment;
                match live.block.view(part.clone()) {
                    Ok(view) => {
                        let all = Region::first(view.size());
                        let memory = view.memory_on(&queue).expect("a view is never empty");
                        let backend = &self.backend;
                        backend.enqueue_fill(queue.after(&wait_for), memory, all, &[mark])
                    }
                    Err(error) => {
                        let is_refused = part.is_empty() || !alignment.divides(start);
                        assert!(is_refused || self.may_fail(), "{error}");
                        return;
                    }
                }
            }
        };
        if let Some(event) = self.take(result) {
            let live = &mut self.live[index];
            live.put(start, &bytes, vec![event.clone()]);
            live.last = vec![event];
        }
    }

    /// Waits for a block's queues, so that its next command may be on any.
    fn settle(&mut self, index: usize) -> bool {
        self.open_gates(Outcome::Complete);
        let unbound = self.live[index].block.unbind_from_queue();
        let is_over = self.take(unbound).is_some();
        if is_over {
            self.live[index].last.clear();
        }
        is_over
    }

    fn copy(&mut self, from: usize, to: usize, queue: &MockQueue, part: Part) {
        if from == to {
            return;
        }
        for index in [from, to] {
            let ordered = self.live[index].block.order_before(queue);
            if self.take(ordered).is_none() {
                return;
            }
        }
        let gate = self.next_gate.take();
        let [source, target] = self.live.get_disjoint_mut([from, to]).expect("two blocks");
        let least = source.block.size().min(target.block.size());
        let part = part.of(least, 1);
        if part.is_empty() {
            return;
        }
        let wait_for: Vec<_> = source
            .last
            .iter()
            .chain(&target.last)
            .chain(&gate)
            .cloned()
            .collect();
        let offset = target.block.size() - part.len();
        let result = source.block.enqueue_copy_region_to(
            queue.after(&wait_for),
            part.clone(),
            &target.block,
            offset,
        );
        if let Ok(event) = &result {
            if source.bytes.is_empty() {
                target.bytes.clear();
            } else {
                let mut proof = source.proof.clone();
                proof.push(event.clone());
                target.put(offset, &source.bytes[part], proof);
            }
            source.last.push(event.clone());
            target.last = vec![event.clone()];
        }
        let _failed = self.take(result);
    }

    /// The bytes of a block, which the host waits for, are what was put there.
    fn check(&mut self, index: usize) {
        self.open_gates(Outcome::Complete);
        let home = self.queues[0].clone();
        let ordered = self.live[index].block.order_before(&home);
        if self.take(ordered).is_none() {
            return;
        }
        let live = &self.live[index];
        let mut bytes = vec![0_u8; live.block.size()];
        let result = live.block.read(&home, 0, &mut bytes);
        if self.take(result).is_some()
            && let Some(expected) = self.live[index].expected()
        {
            assert!(bytes == expected, "a block was overwritten");
        }
    }

    fn check_fresh(&mut self) {
        for read in self.fresh.drain(..) {
            if let Ok(bytes) = read.wait() {
                assert!(
                    bytes.iter().all(|byte| *byte == 0),
                    "what another user left was read"
                );
            }
        }
    }

    /// A read on any queue, whose bytes are not looked at.
    fn read(&mut self, index: usize, queue: &MockQueue, part: Part) {
        let ordered = self.live[index].block.order_before(queue);
        if self.take(ordered).is_none() {
            return;
        }
        let gate = self.next_gate.take();
        let live = &mut self.live[index];
        let wait_for: Vec<_> = live.last.iter().chain(&gate).cloned().collect();
        let part = part.of(live.block.size(), 1);
        let result = live.block.enqueue_read(queue.after(&wait_for), part);
        if let Ok(read) = &result {
            live.last.push(read.event().clone());
        }
        let _failed = self.take(result);
    }

    fn detach(&mut self, index: usize) {
        // Memory that the pool has forgotten is the program's to keep for its commands.
        if !self.settle(index) {
            return;
        }
        let Live { block, pool, .. } = self.live.swap_remove(index);
        let counted = &mut self.pools[pool];
        let bytes = block.class_size() as u64;
        let Some(memory) = block.detach() else {
            return;
        };
        if counted.has_segments {
            counted.detached += bytes;
            self.was_detached = true;
            drop(memory);
        } else {
            let released = counted.pool.allocator().release(memory, &[]);
            let _failed = self.take(released);
        }
    }

    fn churn(&mut self, pool: bool, bytes: usize, blocks: u8) {
        let first = self.live.len();
        for _ in 0..blocks % MOST_IN_A_CHURN {
            if !self.allocate(pool, bytes, None, 1) {
                break;
            }
        }
        let mut index = 0;
        self.live.retain(|_| {
            index += 1;
            index <= first || index % 2 == 0
        });
    }

    fn add_hook(&mut self, pool: bool, clears_cache: bool) {
        let id = if clears_cache {
            let cache = Arc::clone(&self.cache);
            self.pool(pool).add_reclaim_hook(move |_| {
                let cached = std::mem::take(&mut *cache.lock().expect("no thread has panicked"));
                !cached.is_empty()
            })
        } else {
            let other = self.pool(!pool).clone();
            self.pool(pool)
                .add_reclaim_hook(move |_| other.free_held() > 0)
        };
        self.hooks.push((pool.into(), id));
    }

    /// What is said to have gone back has.
    fn give_back(&mut self, pool: bool, what: impl FnOnce(&Pool) -> u64) {
        let before = self.pool(pool).managed_bytes();
        let bytes = what(self.pool(pool));
        assert_eq!(before - self.pool(pool).managed_bytes(), bytes);
    }

    pub(crate) fn run(&mut self, step: &Step) {
        match *step {
            Step::Allocate {
                pool,
                size,
                queue,
                thread,
            } => {
                let queue = self.queue(queue);
                self.allocate(pool, self.bytes(size), Some(queue), thread);
            }
            Step::AllocateAtHome { pool, size } => {
                self.allocate(pool, self.bytes(size), None, 1);
            }
            Step::Churn { pool, size, blocks } => self.churn(pool, self.bytes(size), blocks),
            Step::Gate => {
                if let Some(gate) = self.take(self.backend.create_user_event()) {
                    self.gates.push(gate.clone());
                    self.next_gate = Some(gate);
                }
            }
            Step::OpenGates { fail } => {
                // A fill that fails is not seen by a pool that scrubs.
                let scrubs = self.pools.iter().any(|it| it.scrub != ScrubPolicy::Never);
                match fail % 8 {
                    0 if !scrubs => self.open_gates(Outcome::Failed),
                    1 if !scrubs => self.fail_one_gate(),
                    _ => self.open_gates(Outcome::Complete),
                }
            }
            Step::TrimTo { pool, parts } => {
                let bytes = (self.capacity * usize::from(parts) / 256) as u64;
                self.give_back(pool, |pool| pool.trim_to(bytes));
            }
            Step::FreeHeld { pool } => self.give_back(pool, Pool::free_held),
            Step::Sweep { pool } => self.give_back(pool, Pool::sweep),
            Step::Hold { pool, holds: true } => self.pool(pool).resume_holding(),
            Step::Hold { pool, holds: false } => drop(self.pool(pool).stop_holding()),
            Step::RetireQueue { pool, queue } => self.pool(pool).retire_queue(&self.queue(queue)),
            Step::ReplaceQueue {
                queue,
                out_of_order,
            } => {
                // The first one is the pools' home.
                let place = 1 + usize::from(queue) % (self.queues.len() - 1);
                if let Ok(queue) = self.backend.create_queue(order(out_of_order)) {
                    self.queues[place] = queue;
                }
            }
            Step::WouldFit { pool, size } => {
                let bytes = self.bytes(size);
                let fits = self.pool(pool).would_fit(bytes);
                let most = self.pool(pool).allocator().largest_block();
                assert!(!fits || bytes <= most);
            }
            Step::AddHook { pool, clears_cache } if self.hooks.len() < 4 => {
                self.add_hook(pool, clears_cache);
            }
            Step::AddHook { .. } => {}
            Step::RemoveHook => {
                if let Some((pool, id)) = self.hooks.pop() {
                    assert!(self.pools[pool].pool.remove_reclaim_hook(id));
                }
            }
            Step::SetLimit { parts } => {
                let bytes = self.capacity * usize::from(parts) / 128;
                self.budget.set_max_bytes(bytes as u64);
            }
            Step::Fail {
                call,
                nth,
                fault: what,
                forever,
            } => {
                let persistence = if forever.is_multiple_of(8) {
                    Persistence::Forever
                } else {
                    Persistence::Once
                };
                let nth = 1 + u64::from(nth % 8);
                match call_kind(call) {
                    Some(kind) => self.device.fail_nth(kind, nth, fault(what), persistence),
                    None => self.device.fail_nth_any(nth, fault(what), persistence),
                }
                self.expect_faults();
            }
            Step::FailRandomly {
                call,
                seed,
                fault: what,
            } => {
                self.device
                    .fail_randomly(call_kind(call), 0.3, seed.into(), fault(what));
                self.expect_faults();
            }
            Step::ClearFaults => self.clear_faults(),
            Step::Step { which } => {
                let runnable = self.device.runnable();
                if let Some(command) = runnable.get(usize::from(which) % runnable.len().max(1)) {
                    self.device.run_command(*command);
                }
            }
            Step::RunAll => drop(self.device.run()),
            _ => self.run_on_block(step),
        }
        if self.fresh.len() > 32 {
            self.open_gates(Outcome::Complete);
            self.check_fresh();
        }
    }

    /// The steps that are about one block in use by the program.
    fn run_on_block(&mut self, step: &Step) {
        let (Step::Put { block, .. }
        | Step::Copy { from: block, .. }
        | Step::Check { block }
        | Step::Read { block, .. }
        | Step::OrderBefore { block, .. }
        | Step::RecordUse { block, .. }
        | Step::Bind { block, .. }
        | Step::Unbind { block }
        | Step::Drop { block, .. }
        | Step::CheckAndDrop { block }
        | Step::Release { block }
        | Step::EnqueueRelease { block, .. }
        | Step::Detach { block }
        | Step::Cache { block }) = *step
        else {
            return;
        };
        let Some(index) = self.pick(block) else {
            return;
        };
        match *step {
            Step::Put {
                queue,
                part,
                how,
                by_events,
                ..
            } => {
                let alignment = self.backend.limits().alignment.bytes();
                let part = part.of(self.live[index].block.size(), alignment);
                self.put(index, &self.queue(queue), part, how, by_events);
            }
            Step::Copy {
                to, queue, part, ..
            } => {
                let to = self.pick(to).unwrap_or(index);
                self.copy(index, to, &self.queue(queue), part);
            }
            Step::Check { .. } => self.check(index),
            Step::Read { queue, part, .. } => self.read(index, &self.queue(queue), part),
            Step::OrderBefore { queue, .. } => {
                let queue = self.queue(queue);
                let ordered = self.live[index].block.order_before(&queue);
                let _failed = self.take(ordered);
            }
            Step::RecordUse { queue, .. } => {
                let recorded = self.live[index].block.record_use(&self.queue(queue));
                recorded.expect("the queue is this backend's");
            }
            Step::Bind { queue, .. } => {
                let queue = self.queue(queue);
                let bound = self.live[index].block.bind_to_queue(&queue);
                if queue.order() == QueueOrder::OutOfOrder {
                    assert!(
                        bound.is_err(),
                        "an out-of-order queue is none to be bound to"
                    );
                } else if self.take(bound).is_some() {
                    assert_eq!(self.live[index].block.queue_id(), Some(queue.id()));
                }
            }
            Step::Unbind { .. } => drop(self.settle(index)),
            Step::Drop { thread, .. } => {
                let Live { block, .. } = self.live.swap_remove(index);
                maybe_elsewhere(thread, move || drop(block));
            }
            Step::CheckAndDrop { .. } => {
                self.check(index);
                drop(self.live.swap_remove(index));
            }
            Step::Release { .. } => {
                let released = self.live.swap_remove(index).block.release();
                let _failed = self.take(released);
            }
            Step::EnqueueRelease { queue, .. } => {
                let queue = queue.map(|queue| self.queue(queue));
                let Live { block, last, .. } = self.live.swap_remove(index);
                let has_queue =
                    queue.is_some() || (block.queue_id().is_some() && !block.is_empty());
                let released = block.enqueue_release(queue.as_ref(), &last);
                if has_queue {
                    self.has_quarantined |= self.take(released).is_none();
                }
            }
            Step::Detach { .. } => self.detach(index),
            Step::Cache { .. } => {
                let Live { block, pool, .. } = self.live.swap_remove(index);
                self.cache
                    .lock()
                    .expect("no thread has panicked")
                    .push((pool, block));
            }
            _ => {}
        }
    }

    fn bytes(&self, size: Size) -> usize {
        size.bytes(self.capacity)
    }

    /// The counters are those of the blocks in hand, which share no bytes.
    pub(crate) fn check_counters(&self) {
        let cache = self.cache.lock().expect("no thread has panicked");
        let cached = cache.iter().map(|(pool, block)| (*pool, block));
        let blocks: Vec<_> = self
            .live
            .iter()
            .map(|live| (live.pool, &live.block))
            .chain(cached)
            .collect();
        for (index, counted) in self.pools.iter().enumerate() {
            let of_pool = || {
                let blocks = blocks
                    .iter()
                    .filter(|(pool, block)| *pool == index && !block.is_empty());
                blocks.map(|(_, block)| *block)
            };
            let statistics = counted.pool.statistics();
            assert_eq!(statistics.active_blocks, of_pool().count() as u64);
            let asked: usize = of_pool().map(Block::size).sum();
            assert_eq!(statistics.active_bytes, asked as u64);
            let in_use: usize = of_pool().map(Block::class_size).sum();
            let out = in_use as u64 + counted.detached;
            assert_eq!(
                statistics.managed_bytes,
                statistics.held_bytes + out,
                "{statistics:?}"
            );
            assert!(statistics.pending_bytes <= statistics.held_bytes);
            assert!(statistics.pending_blocks <= statistics.held_blocks);
            assert!(statistics.peak_managed_bytes >= statistics.managed_bytes);
            assert!(statistics.peak_active_bytes >= statistics.active_bytes);
            let served = statistics.hits + statistics.misses;
            if counted.scrub == ScrubPolicy::Never {
                assert_eq!(served, counted.allocated);
            } else {
                // A block that cannot be filled when it is handed out was counted, and no user has it.
                assert!(served >= counted.allocated);
            }
            assert_eq!(statistics.out_of_memory, counted.refused);
            assert_eq!(statistics.empty_allocations, counted.empty);
        }
        let mut addresses: Vec<_> = blocks
            .iter()
            .filter_map(|(_, block)| Some((block.address()?.addr().get(), block.class_size())))
            .collect();
        addresses.sort_unstable();
        for pair in addresses.windows(2) {
            assert!(
                pair[0].0 + pair[0].1 <= pair[1].0,
                "two blocks in use overlap"
            );
        }
        assert!(self.device.statistics().committed_bytes <= self.capacity as u64);
    }

    /// Everything comes to an end, every byte is what it was to be, and nothing is left.
    pub(crate) fn end(mut self) {
        self.open_gates(Outcome::Complete);
        for index in 0..self.live.len() {
            self.check(index);
        }
        self.check_fresh();
        self.check_counters();
        self.live.clear();
        self.cache.lock().expect("no thread has panicked").clear();
        for (pool, id) in self.hooks.drain(..) {
            assert!(self.pools[pool].pool.remove_reclaim_hook(id));
        }
        self.queues.clear();
        if self.was_faulty || self.has_quarantined {
            // A part of a segment may be quarantined or unscrubbed, and comes back once its commands are known to have ended: this
            // puts fences after them, which have to run.
            for counted in &self.pools {
                counted.pool.free_held();
            }
            self.device.run();
        }
        for counted in self.pools.drain(..) {
            counted.pool.free_held();
            let statistics = counted.pool.statistics();
            assert_eq!((statistics.active_blocks, statistics.active_bytes), (0, 0));
            if counted.detached == 0 {
                assert_eq!((statistics.managed_bytes, statistics.held_bytes), (0, 0));
            }
        }
        self.device.run();
        let violations = self.device.violations();
        assert!(violations.is_empty(), "{violations:#?}");
        // The budget has the events of released blocks until it is asked.
        let used = self.budget.used_bytes();
        // Where a queue can neither be marked nor waited for, memory goes past its allocator.
        if !self.was_detached && !self.was_faulty {
            assert_eq!(used, 0);
        }
        let leaks = self.device.leaks();
        assert!(leaks.is_empty(), "{leaks}");
    }
}
