//! A pool over a mock device, and a program on it, one operation at a time. After each, everything is compared with the
//! reference.

use std::{collections::BTreeSet, mem::take, sync::Arc};

use binpool::{
    Allocator, Backend, DeferredAllocator, Error, HookId, ImmediateAllocator, InvalidRequest,
    Memory, MemoryPool, Outcome, PoolError, PoolOptions, PooledBuffer, Queue as _, QueueId,
    QueueOrder, Region, Retain, SvmAllocator, SvmBackend, SvmGrain, WatchOptions,
    adaptors::{Budget, Limit},
};
use binpool_allocators::FailureOrder;
use binpool_mock::{
    CallKind, Completion, Failures, Fault, Holder, LiveMemory, MockBackend, MockDevice, MockEvent,
    MockQueue, Persistence,
};

use crate::{
    common::worker::Worker,
    model::{
        ledger::{Ledger, Recorded},
        live::{Cache, Detached, Live, Read},
        operation::{
            self, Block, Bytes, CAPACITY, Hook, LARGEST, Operation, Queue, Setting, Source, Thread,
            Way,
        },
        reference::{Expected, Name, Reference, Surroundings, Tenure},
        viewed::{View, Viewed},
    },
};

type Pool = MemoryPool<MockBackend>;
type Pooled = PooledBuffer<MockBackend>;

pub(crate) struct Rig {
    device: MockDevice,
    backend: MockBackend,
    allocator: Recorded,
    budget: Budget,
    /// `None` once the program has dropped it.
    pool: Option<Pool>,
    queues: Vec<MockQueue>,
    workers: Vec<Worker>,
    live: Vec<Live>,
    views: Vec<View>,
    viewed: Vec<Viewed>,
    detached: Vec<Detached>,
    cache: Cache,
    hooks: Vec<(Hook, HookId)>,
    reads: Vec<Read>,
    gates: Vec<MockEvent>,
    next_gate: Option<MockEvent>,
    next_name: Name,
    /// Bytes of memory that was taken out and freed, and that the device may still use: the pool cannot wait for that.
    outside: usize,
    /// Calls that are to fail, and the number of the call of its kind that it is.
    faults: Vec<(CallKind, u64)>,
    /// Whether one has failed in this step.
    has_struck: bool,
    is_at_once: bool,
    failures: Failures,
    /// Set if a gate has failed.
    has_gate_failed: bool,
    reference: Reference,
}

const ORDERS: [QueueOrder; 4] = [
    QueueOrder::InOrder,
    QueueOrder::InOrder,
    QueueOrder::InOrder,
    QueueOrder::OutOfOrder,
];

impl Rig {
    pub(crate) fn new(setting: Setting) -> Self {
        let capacity = match setting.source {
            Source::Immediate | Source::Svm => CAPACITY as u64,
            Source::Deferred => 1 << 40,
        };
        let device = MockDevice::builder()
            .capacity_bytes(capacity)
            .largest_block_bytes(LARGEST)
            .completion(setting.completion)
            .failures(setting.failures)
            .build();
        let backend = device.backend();
        let queues: Vec<_> = ORDERS
            .iter()
            .map(|order| backend.create_queue(*order).unwrap())
            .collect();
        let budget = Budget::new(CAPACITY as u64);
        let allocator = match setting.source {
            Source::Immediate => {
                let inner = ImmediateAllocator::new(&backend).unwrap();
                Recorded::new(Limit::shared(inner, &budget))
            }
            Source::Deferred => {
                let inner = DeferredAllocator::new(&backend);
                Recorded::new(Limit::shared(inner, &budget))
            }
            Source::Svm => {
                let inner = SvmAllocator::new(&backend, SvmGrain::Coarse).unwrap();
                Recorded::new(Limit::shared(inner, &budget))
            }
        };
        let mut options = PoolOptions::new()
            .segments(setting.segments)
            .reuse(setting.reuse);
        if let Some(threshold) = setting.threshold {
            options = options.retain(Retain::new().at_most(threshold as u64));
        }
        let pool = options.build(allocator.clone(), &queues[0]).unwrap();
        if setting.watched {
            pool.watch(WatchOptions::new());
        }
        Self {
            device,
            backend,
            allocator,
            budget,
            pool: Some(pool),
            queues,
            workers: (1..3).map(|_| Worker::new()).collect(),
            live: Vec::new(),
            views: Vec::new(),
            viewed: Vec::new(),
            detached: Vec::new(),
            cache: Cache::default(),
            hooks: Vec::new(),
            reads: Vec::new(),
            gates: Vec::new(),
            next_gate: None,
            next_name: 0,
            outside: 0,
            faults: Vec::new(),
            has_struck: false,
            is_at_once: setting.completion == Completion::AtOnce,
            failures: setting.failures,
            has_gate_failed: false,
            reference: Reference::new(setting),
        }
    }

    /// Runs a whole program, and sees to its end.
    pub(crate) fn run(setting: Setting, operations: &[Operation]) -> Result<(), String> {
        let mut rig = Self::new(setting);
        for (step, operation) in operations.iter().enumerate() {
            rig.step(operation)
                .map_err(|error| format!("step {step}, {operation:?}: {error}"))?;
        }
        rig.end().map_err(|error| format!("the end: {error}"))
    }

    fn step(&mut self, operation: &Operation) -> Result<(), String> {
        self.begin_step();
        self.perform(*operation)?;
        self.compare()
    }

    fn begin_step(&mut self) {
        self.has_struck = false;
        if self.device.pending_commands() == 0 {
            self.outside = 0;
        }
        self.ledger(Ledger::begin_step);
    }

    fn ledger<R>(&self, with: impl FnOnce(&mut Ledger) -> R) -> R {
        with(&mut self.allocator.ledger.lock().unwrap())
    }

    /// Whether a call has failed in this step that was to fail.
    fn struck(&mut self) -> bool {
        let (device, before) = (&self.device, self.faults.len());
        self.faults
            .retain(|(kind, call)| device.call_count(*kind) < *call);
        if self.faults.len() < before {
            self.has_struck = true;
            self.reference.a_call_failed();
        }
        if self.must_finish() {
            self.reference.a_call_failed();
        }
        if self.reference.has_failed() {
            self.reconcile();
        }
        if self.may_wait_in_vain() || (self.has_struck && !self.gates.is_empty()) {
            let ledger = self.allocator.ledger.lock().unwrap();
            self.reference.may_be_stranded(&ledger);
        }
        self.has_struck
    }

    /// Returns whether the pool may have to finish a queue on which something waits for the host.
    fn may_wait_in_vain(&self) -> bool {
        self.must_finish() && !self.gates.is_empty()
    }

    /// Returns whether the pool may have to finish queues where it has markers else.
    fn must_finish(&self) -> bool {
        match self.failures.order {
            FailureOrder::Kept => false,
            FailureOrder::FailsEarly => self.has_gate_failed,
            FailureOrder::Lost => true,
        }
    }

    /// Memory that is still stranded when the pool's last block goes is dropped, past the allocator.
    fn reconcile(&mut self) {
        let is_held = |memory: &LiveMemory| memory.held_by == Holder::Host;
        let leaks = self.device.leaks().memory.into_iter().filter(is_held);
        let alive: BTreeSet<_> = leaks.map(|memory| memory.id).collect();
        let roots: Vec<_> = self.ledger(|ledger| ledger.roots.keys().copied().collect());
        for root in roots.into_iter().filter(|root| !alive.contains(root)) {
            self.ledger(|ledger| ledger.forget(root));
            self.reference.lost(root);
        }
    }

    fn around(&self) -> Surroundings {
        let committed = self.device.statistics().committed_bytes;
        let device = self.device.limits().capacity_bytes - committed;
        let limit = self.budget.max_bytes().cast_signed() - self.budget.used_bytes().cast_signed();
        let is_gated = !self.gates.is_empty();
        let has_cached = !self.cache.is_empty();
        let has = |wanted: &[Hook]| self.hooks.iter().any(|(hook, _)| wanted.contains(hook));
        Surroundings {
            is_calm: self.is_at_once && !is_gated,
            is_gated,
            room: isize::try_from(limit.min(device.cast_signed())).unwrap(),
            limit: self.budget.max_bytes(),
            left: isize::try_from(limit).unwrap(),
            can_reclaim: has_cached && has(&[Hook::DropsCache, Hook::UsesPool]),
            has_reclaimed: !(has_cached && has(&[Hook::DropsCache])),
        }
    }

    fn compare(&mut self) -> Result<(), String> {
        for (name, tenure) in self.cache.take_dropped() {
            self.reference.returned(name, 0, tenure);
        }
        self.struck();
        let ledger = Arc::clone(&self.allocator.ledger);
        let mut ledger = ledger.lock().unwrap();
        ledger.check()?;
        self.reference.end_step(&ledger)?;
        drop(ledger);
        if let Some(pool) = &self.pool
            && pool.is_holding() != self.reference.is_holding()
        {
            return Err(format!("is_holding says {}", pool.is_holding()));
        }
        self.no_address_is_shared()?;
        let violations = self.device.violations();
        if violations.is_empty() {
            Ok(())
        } else {
            Err(format!("{violations:#?}"))
        }
    }

    fn count(&mut self) -> Result<(), String> {
        let Some(pool) = &self.pool else {
            return Ok(());
        };
        let told = pool.statistics();
        self.ledger(|ledger| self.reference.check(&told, ledger))?;
        if !pool.is_watching() {
            return Ok(());
        }
        let live = pool.live_blocks();
        let is_known =
            (live.blocks, live.requested_bytes) == (told.active_blocks, told.active_bytes);
        if live.unknown_blocks > 0 || !is_known {
            return Err(format!("in use are {live}, not {told:?}"));
        }
        let snapshot = pool.snapshot();
        let ranges = snapshot.segments.iter().flat_map(|segment| &segment.ranges);
        let bytes: u64 = ranges
            .chain(&snapshot.blocks)
            .map(|block| block.bytes)
            .sum();
        if bytes != snapshot.statistics.managed_bytes {
            return Err(format!("{bytes} bytes are in {snapshot:#?}"));
        }
        Ok(())
    }

    fn no_address_is_shared(&self) -> Result<(), String> {
        let mut addresses = self.cache.addresses();
        addresses.extend(self.live.iter().filter_map(Live::address));
        let viewed = self.viewed.iter();
        addresses.extend(viewed.filter_map(|viewed| self.address_of_viewed(viewed)));
        addresses.sort_by_key(|region| region.offset);
        let mut pairs = addresses.windows(2);
        match pairs.find(|pair| pair[0].overlaps(pair[1])) {
            None => Ok(()),
            Some(pair) => Err(format!("blocks share addresses: {pair:?}")),
        }
    }

    /// Does this on one of the threads.
    fn on<R: Send + 'static>(
        &self,
        thread: Thread,
        order: impl FnOnce() -> R + Send + 'static,
    ) -> R {
        match thread.0 {
            0 => order(),
            other => self.workers[other - 1].run(order),
        }
    }

    fn queue(&self, queue: Queue) -> MockQueue {
        self.queues[queue.0].clone()
    }

    fn pick(&self, block: Block) -> Option<usize> {
        (!self.live.is_empty()).then(|| block.0 % self.live.len())
    }

    /// A failure that there may be where a call was made to fail, or where the host would wait forever.
    fn excuse(&mut self, error: impl std::fmt::Display) -> Result<(), String> {
        if self.struck() || self.may_wait_in_vain() {
            Ok(())
        } else {
            Err(error.to_string())
        }
    }

    fn perform(&mut self, operation: Operation) -> Result<(), String> {
        match operation {
            Operation::Allocate(bytes, queue, thread) => self.allocate(bytes, queue, thread),
            Operation::Drop(block, thread) => self.drop_block(block, thread),
            Operation::GiveBack(block, thread) => self.release(block, thread),
            Operation::EnqueueRelease(block, queue) => self.enqueue_release(block, queue),
            Operation::Detach(block, thread) => {
                self.detach(block, thread);
                Ok(())
            }
            Operation::DropDetached => self.drop_detached(),
            Operation::Cache(block) => self.cache(block),
            Operation::Write(block, queue, way) => self.write(block, queue, way),
            Operation::Copy(from, to, queue) => self.copy(from, to, queue),
            Operation::Read(block, queue) => self.read(block, queue),
            Operation::MakeView(block) => self.make_view(block),
            Operation::WriteView(view, queue) => self.write_view(view, queue),
            Operation::DropView(view, thread) => self.drop_view(view, thread),
            Operation::Bind(block, queue) => self.bind(block, queue),
            Operation::Unbind(block) => self.unbind(block),
            Operation::Gate => {
                let gate = self.backend.create_user_event().unwrap();
                self.gates.push(gate.clone());
                self.next_gate = Some(gate);
                Ok(())
            }
            Operation::OpenGates => {
                self.open_gates();
                Ok(())
            }
            Operation::FailGate(gate) => {
                self.fail_gate(gate);
                Ok(())
            }
            Operation::Step(commands) => {
                for _ in 0..commands {
                    self.device.step();
                }
                Ok(())
            }
            Operation::Run => {
                self.device.run();
                Ok(())
            }
            Operation::FreeHeld => self.free_held(),
            Operation::TrimTo(bytes) => self.trim_to(bytes),
            Operation::Sweep => self.sweep(),
            Operation::WouldFit(bytes) => self.would_fit(bytes),
            Operation::Count => self.count(),
            Operation::StopHolding => {
                if let Some(pool) = &self.pool {
                    pool.stop_holding();
                    self.reference.hold(false);
                }
                Ok(())
            }
            Operation::ResumeHolding => {
                if let Some(pool) = &self.pool {
                    pool.resume_holding();
                    self.reference.hold(true);
                }
                Ok(())
            }
            Operation::Limit(bytes) => {
                self.budget.set_max_bytes(bytes.0.min(CAPACITY) as u64);
                Ok(())
            }
            Operation::AddHook(hook) => {
                self.add_hook(hook);
                Ok(())
            }
            Operation::RemoveHook => self.remove_hook(),
            Operation::Retire(queue) => {
                let queue = self.queue(queue);
                if let Some(pool) = &self.pool {
                    pool.retire_queue(&queue);
                    self.reference.retire(queue.id());
                }
                Ok(())
            }
            Operation::Renew(queue) => {
                self.renew(queue);
                Ok(())
            }
            Operation::EndThread(thread) => {
                if thread.0 > 0 {
                    self.workers[thread.0 - 1] = Worker::new();
                }
                Ok(())
            }
            Operation::Fail(kind, nth, fault) => {
                self.fail(kind, nth, fault);
                Ok(())
            }
            Operation::DropPool => {
                self.drop_pool();
                Ok(())
            }
        }
    }

    fn drop_pool(&mut self) {
        let Some(pool) = self.pool.take() else { return };
        for (_, id) in self.hooks.drain(..) {
            pool.remove_reclaim_hook(id);
        }
        drop(pool);
        self.reference.hold(false);
        // No user is left to keep them from.
        for viewed in &mut self.viewed {
            viewed.is_kept = false;
            let tenure = viewed.tenure.clone();
            self.reference.returned(viewed.name, 0, tenure);
        }
    }

    fn fail(&mut self, kind: CallKind, nth: u64, fault: Fault) {
        self.device.fail_nth(kind, nth, fault, Persistence::Once);
        self.faults.push((kind, self.device.call_count(kind) + nth));
    }

    fn open_gates(&mut self) {
        for gate in self.gates.drain(..) {
            self.backend
                .resolve_user_event(&gate, Outcome::Complete)
                .unwrap();
        }
        self.next_gate = None;
    }

    fn fail_gate(&mut self, gate: usize) {
        if self.gates.is_empty() {
            return;
        }
        let gate = self.gates.remove(gate % self.gates.len());
        let failed = self.backend.resolve_user_event(&gate, Outcome::Failed);
        failed.unwrap();
        self.next_gate.take_if(|next| *next == gate);
        self.has_gate_failed = true;
        for live in &mut self.live {
            live.is_in_doubt = true;
        }
        for detached in &mut self.detached {
            detached.is_in_doubt = true;
        }
        for viewed in &mut self.viewed {
            viewed.is_in_doubt = true;
        }
        for read in &mut self.reads {
            read.is_in_doubt = true;
        }
        self.cache.doubt();
    }

    /// Returns whether commands that are enqueued now may fail though they wait for nothing that does.
    fn is_in_doubt(&self) -> bool {
        self.has_gate_failed && self.failures.spread
    }

    fn renew(&mut self, queue: Queue) {
        let order = ORDERS[queue.0];
        let new = self.backend.create_queue(order).unwrap();
        let old = std::mem::replace(&mut self.queues[queue.0], new);
        for live in &mut self.live {
            live.forget_queue(&old);
        }
        for detached in &mut self.detached {
            detached.last.take_if(|last| *last == old);
        }
    }

    fn allocate(&mut self, bytes: Bytes, queue: Queue, thread: Thread) -> Result<(), String> {
        let Some(pool) = self.pool.clone() else {
            return Ok(());
        };
        let (asked, queue) = (bytes.0, self.queue(queue));
        let around = self.around();
        let expected = self.reference.expect(asked, queue.id(), around);
        let for_queue = queue.clone();
        let got = self.on(thread, move || {
            if for_queue == *pool.home_queue() {
                pool.allocate(asked)
            } else {
                pool.allocate_on(&for_queue, asked)
            }
        });
        for (name, tenure) in self.cache.take_dropped() {
            self.reference.returned(name, thread.0, tenure);
        }
        let struck = self.struck();
        if asked > 0 && !struck {
            self.check_expected(&expected, &got)?;
        }
        // Who is refused by the allocator looks at all that is free.
        let is_tight = self
            .reference
            .block_bytes(asked)
            .is_some_and(|bytes| around.room < bytes.cast_signed());
        if is_tight || expected == Expected::Unknown {
            self.reference.looked_at();
        }
        match got {
            Ok(block) => self.receive(block, asked, &queue, thread),
            Err(PoolError::OutOfMemory(report)) => {
                self.reference.was_refused();
                if struck {
                    return Ok(());
                }
                let mut around = self.around();
                around.room -= self.outside.cast_signed();
                self.ledger(|ledger| self.reference.check_refusal(asked, around, ledger))
                    .map_err(|error| format!("{error}: {report}"))
            }
            Err(_) if struck => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn check_expected(
        &self,
        expected: &Expected,
        got: &Result<Pooled, PoolError>,
    ) -> Result<(), String> {
        let (fresh, mut returned) = self.ledger(|ledger| {
            let sizes = ledger.returned.iter().map(|(_, bytes)| *bytes);
            (ledger.fresh.len(), sizes.collect::<Vec<_>>())
        });
        returned.sort_unstable();
        let found = match got {
            Ok(_) if fresh == 0 => Expected::Hit,
            Ok(_) => Expected::Miss { released: returned },
            Err(_) => Expected::OutOfMemory { released: returned },
        };
        if *expected == Expected::Unknown || *expected == found {
            Ok(())
        } else {
            Err(format!("{expected:?} was expected, and it was {found:?}"))
        }
    }

    /// The program has got a block: every byte of it is written.
    fn receive(
        &mut self,
        block: Pooled,
        asked: usize,
        queue: &MockQueue,
        thread: Thread,
    ) -> Result<(), String> {
        let name = self.next_name;
        self.next_name += 1;
        let size = block.class_size();
        let extent = match block.memory_id() {
            None => None,
            Some(memory) => Some(
                self.ledger(|ledger| ledger.extent(memory))
                    .ok_or("a block that is not the pool's")?,
            ),
        };
        if let Some(extent) = extent {
            let least = self.reference.block_bytes(asked).unwrap_or(usize::MAX);
            if block.size() != asked || extent.region.bytes != size || size < least {
                return Err(format!("{asked} bytes are {block:?} at {extent:?}"));
            }
            if self.ledger(|ledger| ledger.fresh.contains(&extent.root)) && size != least {
                return Err(format!("{asked} bytes are {size}, and should be {least}"));
            }
        }
        self.reference.allocated(name, asked, thread.0, extent);
        let mut live = Live {
            name,
            block,
            bytes: vec![mark(name); size],
            events: Vec::new(),
            ordered: vec![queue.id()],
            last: Some(queue.clone()),
            tenure: Tenure {
                own: Some(known(queue)),
                others: Vec::new(),
            },
            is_in_doubt: self.is_in_doubt(),
        };
        if let Some(memory) = live.block.memory_on(queue) {
            let all = Region::first(size);
            let written = self.backend.enqueue_fill(queue, memory, all, &[mark(name)]);
            live.events = vec![written.map_err(|error| error.to_string())?];
        }
        self.live.push(live);
        Ok(())
    }

    /// Reads all bytes of a block where its last command is, after that.
    fn read_at_last(&mut self, live: &mut Live) -> Result<(), String> {
        let Some(queue) = &live.last else {
            return Ok(());
        };
        if live.is_empty() {
            return Ok(());
        }
        let memory = live.block.memory_on(queue).unwrap();
        let all = Region::first(live.bytes.len());
        let pending = self
            .backend
            .enqueue_read(queue.after(&live.events), memory, all);
        let pending = pending.map_err(|error| error.to_string())?;
        live.events.push(pending.event().clone());
        self.reads.push(Read {
            pending,
            expected: live.bytes.clone(),
            name: live.name,
            is_in_doubt: live.is_in_doubt,
        });
        Ok(())
    }

    /// A block that the program is about to give back.
    fn take_out(&mut self, block: Block) -> Result<Option<Live>, String> {
        let Some(index) = self.pick(block) else {
            return Ok(None);
        };
        let mut live = self.live.remove(index);
        self.read_at_last(&mut live)?;
        Ok(Some(live))
    }

    fn drop_block(&mut self, block: Block, thread: Thread) -> Result<(), String> {
        let Some(live) = self.take_out(block)? else {
            return Ok(());
        };
        let (block, left) = self.leave(live);
        self.on(thread, move || drop(block));
        self.came_back(left, thread)
    }

    /// What is left to the program of a block that it gives back.
    fn leave(&self, live: Live) -> (Pooled, Viewed) {
        let Live {
            name,
            block,
            bytes,
            events,
            tenure,
            is_in_doubt,
            ..
        } = live;
        let home = self.pool.as_ref().map(|pool| pool.home_queue().clone());
        let mut queues: Vec<_> = home.into_iter().collect();
        let used: Vec<_> = tenure.queues().collect();
        let known = self.queues.iter().filter(|it| used.contains(&known(it)));
        queues.extend(known.cloned());
        let left = Viewed {
            name,
            size: block.size(),
            bytes,
            events,
            tenure,
            queues,
            is_kept: self.pool.is_some(),
            is_in_doubt,
        };
        (block, left)
    }

    /// The program has given a block back.
    fn came_back(&mut self, left: Viewed, thread: Thread) -> Result<(), String> {
        let (name, size, is_kept) = (left.name, left.size, left.is_kept);
        let tenure = left.tenure.clone();
        if self.has_views(name) {
            self.viewed.push(left);
            if is_kept {
                self.reference.returned_viewed(name, thread.0);
                return Ok(());
            }
        }
        self.reference.returned(name, thread.0, tenure);
        if size == 0 || self.struck() || !self.around().is_calm {
            return Ok(());
        }
        self.ledger(|ledger| self.reference.is_below_threshold(ledger))
    }

    fn release(&mut self, block: Block, thread: Thread) -> Result<(), String> {
        let Some(live) = self.take_out(block)? else {
            return Ok(());
        };
        let (block, left) = self.leave(live);
        let released = self.on(thread, move || block.release());
        self.came_back(left, thread)?;
        released.or_else(|error| self.excuse(error))
    }

    fn enqueue_release(&mut self, block: Block, queue: Queue) -> Result<(), String> {
        let Some(index) = self.pick(block) else {
            return Ok(());
        };
        // A range whose end cannot be marked, nor waited for, is tried again, but a shortage does not wait for it.
        if (!self.faults.is_empty() && !self.gates.is_empty()) || self.may_wait_in_vain() {
            return Ok(());
        }
        // One with views comes back when they are gone, but not before such an end.
        if !self.faults.is_empty() && self.has_views(self.live[index].name) {
            return Ok(());
        }
        let queue = self.queue(queue);
        let live = self.live.remove(index);
        let last = self.read_untold(&live)?;
        let (block, mut left) = self.leave(live);
        left.events.extend(last);
        let end = block.enqueue_release(Some(&queue), &left.events);
        if let Ok(event) = &end {
            left.tenure = Tenure {
                own: Some(known(&queue)),
                others: Vec::new(),
            };
            left.events = vec![event.clone()];
            left.queues.truncate(1);
        }
        self.came_back(left, Thread(0))?;
        end.map(drop).or_else(|error| self.excuse(error))
    }

    /// Reads a block where the pool is not told of it: the thread that frees it names the event.
    fn read_untold(&mut self, live: &Live) -> Result<Option<MockEvent>, String> {
        let own = live.tenure.own.map(|own| own.0);
        let own = self.queues.iter().find(|queue| Some(queue.id()) == own);
        let Some(memory) = own.and_then(|own| live.block.memory_on(own)) else {
            return Ok(None);
        };
        let all = Region::first(live.bytes.len());
        let read = self
            .backend
            .enqueue_read(self.queues[2].after(&live.events), memory, all);
        let pending = read.map_err(|error| error.to_string())?;
        let event = pending.event().clone();
        self.reads.push(Read {
            pending,
            expected: live.bytes.clone(),
            name: live.name,
            is_in_doubt: live.is_in_doubt,
        });
        Ok(Some(event))
    }

    fn detach(&mut self, block: Block, thread: Thread) {
        let Some(index) = self.pick(block) else {
            return;
        };
        if self.has_views(self.live[index].name) {
            return;
        }
        let Live {
            name,
            block,
            bytes,
            events,
            last,
            is_in_doubt,
            ..
        } = self.live.remove(index);
        let memory = self.on(thread, move || block.detach());
        let is_forgotten = self.reference.detached(name, thread.0);
        let Some(memory) = memory else {
            return;
        };
        if is_forgotten {
            self.ledger(|ledger| ledger.forget(memory.id()));
        }
        self.detached.push(Detached {
            name,
            memory,
            bytes,
            events,
            last,
            is_in_doubt,
        });
    }

    fn drop_detached(&mut self) -> Result<(), String> {
        if self.detached.is_empty() {
            return Ok(());
        }
        let detached = self.detached.remove(0);
        let Detached {
            name,
            memory,
            bytes,
            events,
            last,
            is_in_doubt,
        } = detached;
        if let Some(queue) = last {
            let all = Region::first(memory.bytes());
            let pending = self
                .backend
                .enqueue_read(queue.after(&events), &memory, all);
            self.reads.push(Read {
                pending: pending.map_err(|error| error.to_string())?,
                expected: bytes,
                name,
                is_in_doubt,
            });
        }
        self.outside += memory.bytes();
        if self.reference.freed(name) {
            self.allocator.release_view(memory);
            return Ok(());
        }
        let freed = self.allocator.free_detached(memory, &events);
        freed.or_else(|error| self.excuse(error))
    }

    fn cache(&mut self, block: Block) -> Result<(), String> {
        let Some(index) = self.pick(block) else {
            return Ok(());
        };
        if self.has_views(self.live[index].name) {
            return Ok(());
        }
        let mut live = self.live.remove(index);
        self.read_at_last(&mut live)?;
        self.cache.put(live);
        Ok(())
    }

    fn has_views(&self, name: Name) -> bool {
        self.views.iter().any(|view| view.name == name)
    }

    fn pick_view(&self, view: operation::View) -> Option<usize> {
        (!self.views.is_empty()).then(|| view.0 % self.views.len())
    }

    fn make_view(&mut self, block: Block) -> Result<(), String> {
        let Some(index) = self.pick(block) else {
            return Ok(());
        };
        let live = &mut self.live[index];
        if live.is_empty() {
            return Ok(());
        }
        let name = live.name;
        let view = self.views.iter().find(|view| view.name == name);
        let memory = if let Some(view) = view {
            &view.memory
        } else {
            // Asking for the block's own queue tells the pool nothing.
            let own = live.tenure.own.map(|own| own.0);
            let own = self.queues.iter().find(|queue| Some(queue.id()) == own);
            let queue = own.unwrap_or(&self.queues[0]);
            live.tenure.record(known(queue));
            live.block.memory_on(queue).unwrap()
        };
        let all = Region::first(memory.bytes());
        match self.backend.create_sub_region(memory, all) {
            Ok(memory) => {
                self.views.push(View { name, memory });
                Ok(())
            }
            Err(error) => self.excuse(error),
        }
    }

    fn write_view(&mut self, view: operation::View, queue: Queue) -> Result<(), String> {
        let Some(view) = self.pick_view(view) else {
            return Ok(());
        };
        let View { name, memory } = &self.views[view];
        let chosen = self.queue(queue);
        let live = self.live.iter_mut().find(|live| live.name == *name);
        let viewed = self.viewed.iter_mut().find(|viewed| viewed.name == *name);
        let (bytes, events, queue) = match (live, viewed) {
            (Some(live), _) => {
                live.block.record_use(&chosen).unwrap();
                live.tenure.record(known(&chosen));
                live.last = Some(chosen.clone());
                (&mut live.bytes, &mut live.events, chosen)
            }
            (None, Some(viewed)) => {
                // One that the pool knows of.
                let queue = viewed.queues.get(queue.0 % viewed.queues.len().max(1));
                let queue = queue.unwrap_or(&chosen).clone();
                (&mut viewed.bytes, &mut viewed.events, queue)
            }
            (None, None) => return Err(format!("a view of {name}, which no thread has")),
        };
        self.next_name += 1;
        let mark = mark(self.next_name);
        let mut wait_for = events.clone();
        wait_for.extend(self.next_gate.take());
        let all = Region::first(memory.bytes());
        let written = self
            .backend
            .enqueue_fill(queue.after(&wait_for), memory, all, &[mark]);
        *events = vec![written.map_err(|error| error.to_string())?];
        bytes.fill(mark);
        Ok(())
    }

    /// Drops a view, once it was looked at. Where it was the last one of a block that was given back, the pool has that again.
    fn drop_view(&mut self, view: operation::View, thread: Thread) -> Result<(), String> {
        let Some(view) = self.pick_view(view) else {
            return Ok(());
        };
        let View { name, memory } = self.views.remove(view);
        let viewed = self.viewed.iter().position(|viewed| viewed.name == name);
        if let Some(viewed) = viewed {
            let viewed = &mut self.viewed[viewed];
            let (all, queue) = (Region::first(memory.bytes()), viewed.queues.first());
            let queue = queue.unwrap_or(&self.queues[0]);
            let read = self
                .backend
                .enqueue_read(queue.after(&viewed.events), &memory, all);
            let pending = read.map_err(|error| error.to_string())?;
            viewed.events.push(pending.event().clone());
            let expected = viewed.bytes.clone();
            let is_in_doubt = viewed.is_in_doubt;
            self.reads.push(Read {
                pending,
                expected,
                name,
                is_in_doubt,
            });
        }
        self.on(thread, move || drop(memory));
        let Some(viewed) = viewed.filter(|_| !self.has_views(name)) else {
            return Ok(());
        };
        let mut left = self.viewed.remove(viewed);
        if let Some(pool) = self.pool.as_ref().filter(|_| left.is_kept) {
            // It looks for such blocks whenever it is asked.
            let _told = pool.statistics();
            for queue in &self.queues {
                left.tenure.record(known(queue));
            }
            return self.came_back(left, Thread(0));
        }
        Ok(())
    }

    /// Where its bytes lie in the host's memory, if it is shared.
    fn address_of_viewed(&self, viewed: &Viewed) -> Option<Region> {
        let view = self.views.iter().find(|view| view.name == viewed.name)?;
        let address = self.backend.svm_address(&view.memory)?;
        Some(Region::new(address.as_ptr() as usize, view.memory.bytes()))
    }

    /// Has the block's former users' commands come before what is enqueued on the queue. Whether it could.
    fn order(&mut self, index: usize, queue: &MockQueue) -> Result<bool, String> {
        let live = &mut self.live[index];
        if live.ordered.contains(&queue.id()) {
            return Ok(true);
        }
        if let Err(error) = live.block.order_before(queue) {
            return self.excuse(error).map(|()| false);
        }
        live.tenure.record(known(queue));
        live.ordered.push(queue.id());
        Ok(true)
    }

    fn write(&mut self, block: Block, queue: Queue, way: Way) -> Result<(), String> {
        let Some(index) = self.pick(block) else {
            return Ok(());
        };
        let queue = self.queue(queue);
        // What has no command of the program yet comes after the former users' by the pool's order alone.
        let is_behind = way != Way::Ordered && !self.live[index].events.is_empty();
        if !is_behind && !self.order(index, &queue)? {
            return Ok(());
        }
        let mut wait_for = self.live[index].events.clone();
        wait_for.extend(self.next_gate.take());
        self.next_name += 1;
        let mark = mark(self.next_name);
        let live = &mut self.live[index];
        let (size, backend) = (live.block.size(), &self.backend);
        let (written, region) = match way {
            Way::Ordered | Way::Behind => {
                let all = Region::first(size);
                let filled = live
                    .block
                    .enqueue_fill(queue.after(&wait_for), all, &[mark]);
                (filled, all)
            }
            Way::Written => {
                let all = Region::first(size);
                let data = vec![mark; size].into();
                let written = live.block.enqueue_write(queue.after(&wait_for), 0, data);
                (written, all)
            }
            Way::Recorded => {
                live.block.record_use(&queue).unwrap();
                let all = Region::first(live.bytes.len());
                // Asking for the block's own queue tells the pool nothing.
                let own = live.tenure.own.map(|own| own.0);
                let own = self.queues.iter().find(|queue| Some(queue.id()) == own);
                match live.block.memory_on(own.unwrap_or(&queue)) {
                    Some(memory) => (
                        backend.enqueue_fill(queue.after(&wait_for), memory, all, &[mark]),
                        all,
                    ),
                    None => return Ok(()),
                }
            }
            Way::Viewed => {
                let middle = size / 2 / 256 * 256;
                match live.block.view(middle..) {
                    Ok(view) => {
                        let Some(memory) = view.memory_on(&queue) else {
                            return Ok(());
                        };
                        let all = Region::first(view.size());
                        let filled =
                            backend.enqueue_fill(queue.after(&wait_for), memory, all, &[mark]);
                        (filled, Region::new(middle, view.size()))
                    }
                    Err(Error::InvalidRequest(InvalidRequest::ZeroSize)) if size == 0 => {
                        return Ok(());
                    }
                    Err(error) => return self.excuse(error),
                }
            }
        };
        live.tenure.record(known(&queue));
        let event = match written {
            Ok(event) => event,
            // What has no bytes is a marker, which may be made to fail.
            Err(error) => return self.excuse(error),
        };
        live.bytes[region.offset..region.offset + region.bytes].fill(mark);
        live.events = vec![event];
        live.last = Some(queue);
        Ok(())
    }

    fn copy(&mut self, from: Block, to: Block, queue: Queue) -> Result<(), String> {
        let (Some(from), Some(to)) = (self.pick(from), self.pick(to)) else {
            return Ok(());
        };
        let queue = self.queue(queue);
        if from == to || !self.order(from, &queue)? || !self.order(to, &queue)? {
            return Ok(());
        }
        let [source, target] = self.live.get_disjoint_mut([from, to]).unwrap();
        let bytes = source.block.size().min(target.block.size());
        let wait_for = [&source.events[..], &target.events[..]].concat();
        let copied =
            source
                .block
                .enqueue_copy_region_to(queue.after(&wait_for), 0..bytes, &target.block, 0);
        // A use counts from the call on, whether the command comes to be or not.
        source.tenure.record(known(&queue));
        target.tenure.record(known(&queue));
        let event = match copied {
            Ok(event) => event,
            Err(error) => return self.excuse(error),
        };
        target.bytes[..bytes].copy_from_slice(&source.bytes[..bytes]);
        // Where the one waits for a failure, so does whatever waits for the copy.
        let is_in_doubt = source.is_in_doubt || target.is_in_doubt;
        (source.is_in_doubt, target.is_in_doubt) = (is_in_doubt, is_in_doubt);
        source.events.push(event.clone());
        target.events = vec![event];
        for live in [source, target] {
            live.last = Some(queue.clone());
        }
        Ok(())
    }

    fn read(&mut self, block: Block, queue: Queue) -> Result<(), String> {
        let Some(index) = self.pick(block) else {
            return Ok(());
        };
        let queue = self.queue(queue);
        if !self.order(index, &queue)? {
            return Ok(());
        }
        let live = &mut self.live[index];
        let size = live.block.size();
        live.tenure.record(known(&queue));
        let pending = match live.block.enqueue_read(queue.after(&live.events), 0..size) {
            Ok(pending) => pending,
            Err(error) => return self.excuse(error),
        };
        live.events.push(pending.event().clone());
        live.last = Some(queue);
        self.reads.push(Read {
            pending,
            expected: live.bytes[..size].to_vec(),
            name: live.name,
            is_in_doubt: live.is_in_doubt,
        });
        Ok(())
    }

    fn bind(&mut self, block: Block, queue: Queue) -> Result<(), String> {
        let Some(index) = self.pick(block) else {
            return Ok(());
        };
        let queue = self.queue(queue);
        let live = &mut self.live[index];
        match live.block.bind_to_queue(&queue) {
            Ok(()) => {
                live.tenure = Tenure {
                    own: Some(known(&queue)),
                    others: Vec::new(),
                };
                live.ordered.push(queue.id());
                live.last = Some(queue);
                Ok(())
            }
            Err(Error::InvalidRequest(InvalidRequest::OutOfOrderQueue))
                if queue.order() == QueueOrder::OutOfOrder =>
            {
                Ok(())
            }
            Err(error) => self.excuse(error),
        }
    }

    fn unbind(&mut self, block: Block) -> Result<(), String> {
        let Some(index) = self.pick(block) else {
            return Ok(());
        };
        let live = &mut self.live[index];
        match live.block.unbind_from_queue() {
            Ok(()) => {
                live.tenure = Tenure::default();
                live.ordered = self.queues.iter().map(binpool::Queue::id).collect();
                live.last = None;
                Ok(())
            }
            // The host cannot wait for what waits for the host.
            Err(_) if !self.gates.is_empty() => Ok(()),
            Err(error) => self.excuse(error),
        }
    }

    fn returned_bytes(&self) -> u64 {
        self.ledger(|ledger| ledger.returned.iter().map(|(_, bytes)| *bytes as u64).sum())
    }

    fn gave_back(&mut self, told: u64) -> Result<(), String> {
        let struck = self.struck() || self.may_wait_in_vain();
        let bytes = self.returned_bytes();
        // What was stranded went back before, as far as the pool is concerned.
        let is_part = self.reference.was_stranded() && told < bytes;
        if told == bytes || struck || is_part {
            return Ok(());
        }
        Err(format!(
            "the pool says it gave {told} bytes back, and it is {bytes}"
        ))
    }

    fn free_held(&mut self) -> Result<(), String> {
        let Some(pool) = &self.pool else {
            return Ok(());
        };
        let told = pool.free_held();
        if self.faults.is_empty() && self.gates.is_empty() {
            self.reference.nothing_is_stranded();
        }
        self.gave_back(told)?;
        self.ledger(|ledger| self.reference.nothing_is_idle(ledger))
    }

    fn trim_to(&mut self, bytes: Bytes) -> Result<(), String> {
        let Some(pool) = &self.pool else {
            return Ok(());
        };
        let before = self.ledger(|ledger| ledger.bytes());
        let told = pool.trim_to(bytes.0 as u64);
        self.gave_back(told)?;
        self.reference.looked_at();
        self.ledger(|ledger| {
            let excess = before.saturating_sub(bytes.0);
            let is_all = self.reference.nothing_is_idle(ledger);
            if self.reference.own_bytes(ledger) > bytes.0 {
                return is_all;
            }
            // What waited for a failed command goes back whatever is asked for.
            let chosen = ledger.returned.iter();
            let chosen = chosen.filter(|(root, _)| !self.reference.may_strand(*root));
            let sizes = || chosen.clone().map(|(_, bytes)| *bytes);
            // Which of a class goes first is told by age, and they need not be of the same size.
            let slack = |least| {
                let largest = sizes().max().unwrap_or(least);
                if self.reference.is_one_class(least, largest) {
                    largest - least
                } else {
                    0
                }
            };
            let gone: usize = sizes().sum();
            let is_too_much = sizes()
                .min()
                .is_some_and(|least| gone - least >= excess + slack(least));
            if is_too_much && is_all.is_err() {
                return Err(format!("{gone} bytes went where {excess} are enough"));
            }
            Ok(())
        })
    }

    fn sweep(&mut self) -> Result<(), String> {
        let Some(pool) = &self.pool else {
            return Ok(());
        };
        let told = pool.sweep();
        self.gave_back(told)?;
        self.reference.looked_at();
        let is_calm = self.around().is_calm;
        let ledger = Arc::clone(&self.allocator.ledger);
        let ledger = ledger.lock().unwrap();
        self.reference.swept(&ledger, is_calm)
    }

    fn would_fit(&mut self, bytes: Bytes) -> Result<(), String> {
        let Some(pool) = &self.pool else {
            return Ok(());
        };
        let known = || {
            self.ledger(|ledger| {
                let capacity = isize::try_from(self.allocator.capacity_bytes()).unwrap();
                let available = isize::try_from(self.allocator.available_bytes()).unwrap();
                let room = (capacity - ledger.bytes().cast_signed()).min(available);
                self.reference.would_fit(bytes.0, room, ledger)
            })
        };
        let before = known();
        let told = pool.would_fit(bytes.0);
        // Commands that end meanwhile make room.
        let after = known();
        // What waits in vain to go back is not in the pool any more, and no room for other blocks either.
        let is_wrong = before == after && after.is_some_and(|known| known != told);
        if is_wrong && !self.may_wait_in_vain() {
            return Err(format!("would_fit says {told}"));
        }
        Ok(())
    }

    fn add_hook(&mut self, hook: Hook) {
        let Some(pool) = &self.pool else { return };
        let cache = self.cache.clone();
        let id = match hook {
            Hook::DropsCache => pool.add_reclaim_hook(move |_| {
                cache.drop_oldest(usize::MAX);
                false
            }),
            Hook::UsesPool => {
                // It keeps the pool, until it is taken away.
                let handle = pool.clone();
                pool.add_reclaim_hook(move |shortage| {
                    let told = handle.statistics();
                    assert!(shortage.bytes > 0 && told.held_bytes <= told.managed_bytes);
                    cache.drop_oldest(1) > 0
                })
            }
            Hook::Panics => {
                pool.add_reclaim_hook(|_| std::panic::resume_unwind(Box::new("a hook that panics")))
            }
        };
        self.hooks.push((hook, id));
    }

    fn remove_hook(&mut self) -> Result<(), String> {
        let Some(pool) = &self.pool else {
            return Ok(());
        };
        if self.hooks.is_empty() {
            return Ok(());
        }
        let (_, id) = self.hooks.remove(0);
        if pool.remove_reclaim_hook(id) && !pool.remove_reclaim_hook(id) {
            Ok(())
        } else {
            Err("a hook was not there, or was there twice".into())
        }
    }

    /// Everything comes to an end, every byte is what it was to be, and nothing is left on the device.
    fn end(mut self) -> Result<(), String> {
        self.open_gates();
        self.device.clear_faults();
        self.faults.clear();
        self.begin_step();
        while !self.live.is_empty() {
            self.drop_block(Block(0), Thread(0))?;
            self.compare()?;
            self.begin_step();
        }
        while !self.views.is_empty() {
            self.drop_view(operation::View(0), Thread(0))?;
            self.compare()?;
            self.begin_step();
        }
        self.cache.drop_oldest(usize::MAX);
        self.compare()?;
        self.begin_step();
        while !self.detached.is_empty() {
            self.drop_detached()?;
        }
        self.device.run();
        for read in take(&mut self.reads) {
            read.check()?;
        }
        self.count()?;
        self.free_held()?;
        self.compare()?;
        self.count()?;
        self.drop_pool();
        self.workers.clear();
        self.queues.clear();
        self.device.run();
        let violations = self.device.violations();
        let Self {
            device,
            allocator,
            budget,
            ..
        } = self;
        // A budget keeps the events of what is leaving.
        drop((allocator, budget));
        let leaks = device.leaks();
        if leaks.is_empty() && violations.is_empty() {
            Ok(())
        } else {
            Err(format!("{leaks}\n{violations:#?}"))
        }
    }
}

fn known(queue: &MockQueue) -> (QueueId, bool) {
    (queue.id(), queue.order() == QueueOrder::InOrder)
}

/// A byte that tells what was written from what was before.
fn mark(number: u32) -> u8 {
    u8::try_from(number % 251).unwrap()
}
