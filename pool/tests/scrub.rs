//! Pools that scrub: no user reads what another left, whatever the queues, the policy, the memory and the failures.
//!
//! The allocator under these pools hands out memory full of another program's bytes, and looks at what it gets back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failing test panics"
)]

mod common;

use std::{
    slice::from_ref,
    sync::{Arc, Mutex},
};

use binpool::{
    Align, Allocator, Backend, Error, Event, EventStatus, ImmediateAllocator, Memory, MemoryOf,
    MemoryPool, Outcome, PendingRead, PoolError, PoolOptions, PooledBuffer, Queue, QueueOrder,
    Region, ReusePolicy, ScrubPolicy, SvmAllocator, SvmGrain,
};
use binpool_mock::{
    CallKind, Completion, Fault, MockBackend, MockDevice, MockDeviceBuilder, MockEvent, MockMemory,
    MockQueue, Persistence,
};
use common::{MIB, Rig, SMALLEST, every_call_fails_once};
use proptest::{prelude::*, sample::Index};

const SCRUBBING: [ScrubPolicy; 2] = [ScrubPolicy::OnFree, ScrubPolicy::OnHandOut];

const ORDERS: [QueueOrder; 2] = [QueueOrder::InOrder, QueueOrder::OutOfOrder];

/// What a tenant leaves.
const SECRET: u8 = 0x5e;

/// All memory of the device, and one block.
const ALL: usize = 64 << 10;

/// An allocator whose fresh memory is full of somebody's bytes, and that notes the bytes of what it gets back, once the
/// commands that it is told of have ended.
#[derive(Clone, Debug)]
struct Dirty<A: Allocator> {
    inner: A,
    queue: MockQueue,
    returned: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl<A: Allocator<Backend = MockBackend>> Dirty<A> {
    fn new(inner: A) -> Self {
        let queue = inner.backend().create_queue(QueueOrder::InOrder).unwrap();
        Self {
            inner,
            queue,
            returned: Arc::default(),
        }
    }

    /// Whether all that came back was zeros.
    fn got_zeros_only(&self) -> bool {
        let returned = self.returned.lock().unwrap();
        returned.iter().flatten().all(|byte| *byte == 0)
    }
}

impl<A: Allocator<Backend = MockBackend>> Allocator for Dirty<A> {
    type Backend = MockBackend;

    fn backend(&self) -> &MockBackend {
        self.inner.backend()
    }

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>, Error> {
        let memory = self.inner.allocate(bytes)?;
        let dirt = vec![SECRET; memory.bytes()];
        self.backend().write(&self.queue, &memory, 0, &dirt, &[])?;
        Ok(memory)
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[MockEvent]) -> Result<(), Error> {
        // A gate that is shut cannot be waited for.
        if after.iter().all(has_ended) {
            let mut bytes = vec![SECRET; memory.bytes()];
            self.backend()
                .read(&self.queue, &memory, 0, &mut bytes, &[])?;
            self.returned.lock().unwrap().push(bytes);
        }
        self.inner.release(memory, after)
    }

    fn is_deferred(&self) -> bool {
        self.inner.is_deferred()
    }

    fn alignment(&self) -> Align {
        self.inner.alignment()
    }
}

/// Whether it has, after a wait for it.
fn has_ended(event: &MockEvent) -> bool {
    event.wait().is_ok() || event.status().unwrap().has_ended()
}

/// A pool over dirty memory.
struct Tenants<A: Allocator<Backend = MockBackend>> {
    device: MockDevice,
    backend: MockBackend,
    queue: MockQueue,
    pool: MemoryPool<Dirty<A>>,
}

impl<A: Allocator<Backend = MockBackend>> Tenants<A> {
    fn new(
        builder: MockDeviceBuilder,
        options: PoolOptions,
        allocator: impl Fn(&MockBackend) -> A,
    ) -> Self {
        let device = builder.capacity_bytes(ALL as u64).build();
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let allocator = Dirty::new(allocator(&backend));
        let pool = options.build(allocator, &queue).unwrap();
        Self {
            device,
            backend,
            queue,
            pool,
        }
    }

    fn gate(&self) -> MockEvent {
        self.backend.create_user_event().unwrap()
    }

    fn open(&self, gate: &MockEvent) {
        self.backend
            .resolve_user_event(gate, Outcome::Complete)
            .unwrap();
    }

    /// A block, once the device has run everything, and every byte of its memory.
    fn next_user(&self, queue: &MockQueue, bytes: usize) -> Vec<u8> {
        let block = self.pool.allocate_on(queue, bytes).unwrap();
        self.all_bytes(&block, queue)
    }

    fn all_bytes(&self, block: &PooledBuffer<Dirty<A>>, queue: &MockQueue) -> Vec<u8> {
        let memory = block.memory_on(queue).unwrap();
        let mut bytes = vec![SECRET; memory.bytes()];
        self.backend
            .read(queue, memory, 0, &mut bytes, &[])
            .unwrap();
        bytes
    }

    fn has_no_violations(&self) {
        let violations = self.device.violations();
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

fn immediate(backend: &MockBackend) -> ImmediateAllocator<MockBackend> {
    ImmediateAllocator::new(backend).unwrap()
}

fn svm(backend: &MockBackend) -> SvmAllocator<MockBackend> {
    SvmAllocator::new(backend, SvmGrain::Coarse).unwrap()
}

fn buffers(options: PoolOptions) -> Tenants<ImmediateAllocator<MockBackend>> {
    Tenants::new(MockDevice::builder(), options, immediate)
}

fn manual(options: PoolOptions) -> Tenants<ImmediateAllocator<MockBackend>> {
    let builder = MockDevice::builder().completion(Completion::Manual);
    Tenants::new(builder, options, immediate)
}

fn are_zeros(bytes: &[u8], count: usize) -> bool {
    bytes.len() == count && bytes.iter().all(|byte| *byte == 0)
}

fn scrub(policy: ScrubPolicy) -> PoolOptions {
    PoolOptions::new().scrub(policy)
}

/// Leaves a secret in all of a block that was allocated for `queue`, which it is written on `writer`.
fn leave_a_secret<A: Allocator<Backend = MockBackend>>(
    tenants: &Tenants<A>,
    queue: &MockQueue,
    writer: &MockQueue,
    bytes: usize,
) -> PooledBuffer<Dirty<A>> {
    let block = tenants.pool.allocate_on(queue, bytes).unwrap();
    block.order_before(writer).unwrap();
    let memory = block.memory_on(writer).unwrap();
    let all = Region::first(memory.bytes());
    let backend = &tenants.backend;
    backend
        .enqueue_fill(writer, memory, all, &[SECRET], &[])
        .unwrap();
    block
}

/// Every way from one user to the next, with one block that takes the whole device.
fn nobody_reads_a_secret<A: Allocator<Backend = MockBackend>>(
    allocator: impl Fn(&MockBackend) -> A + Copy,
) {
    let completions = [
        Completion::AtOnce,
        Completion::Manual,
        Completion::Seeded(3),
    ];
    for (scrubbing, policy, segments, completion) in SCRUBBING
        .into_iter()
        .flat_map(|scrub| ReusePolicy::ALL.map(|policy| (scrub, policy)))
        .flat_map(|(scrub, policy)| [false, true].map(|segments| (scrub, policy, segments)))
        .flat_map(|(s, p, g)| completions.map(|completion| (s, p, g, completion)))
    {
        let builder = MockDevice::builder().completion(completion);
        let options = scrub(scrubbing).reuse(policy).segments(segments);
        let tenants = Tenants::new(builder, options, allocator);
        let queues = ORDERS.map(|order| tenants.backend.create_queue(order).unwrap());
        let [ordered, unordered] = &queues;
        let home = &tenants.queue;
        let all = [home, ordered, unordered];
        for (first, writer, second) in all
            .into_iter()
            .flat_map(|first| all.map(|writer| (first, writer)))
            .flat_map(|(first, writer)| all.map(|second| (first, writer, second)))
        {
            drop(leave_a_secret(&tenants, first, writer, ALL));
            let bytes = tenants.next_user(second, ALL);
            assert!(
                are_zeros(&bytes, ALL),
                "{scrubbing:?}, {policy:?}, segments {segments}, {completion:?}, \
                 {first:?}, {writer:?}, {second:?}"
            );
        }
        tenants.has_no_violations();
    }
}

#[test]
fn nobody_reads_a_secret_in_buffers() {
    nobody_reads_a_secret(immediate);
}

#[test]
fn nobody_reads_a_secret_in_shared_virtual_memory() {
    nobody_reads_a_secret(svm);
}

#[test]
fn a_pool_that_does_not_scrub_makes_no_call_for_it() {
    let rig = Rig::with_capacity(MIB);
    assert_eq!(rig.pool.scrub_policy(), ScrubPolicy::Never);
    // The program's and the allocator's.
    assert_eq!(rig.device.call_count(CallKind::CreateQueue), 2);
    let secret = rig.pool.allocate(4096).unwrap();
    secret.write(&rig.queue, 0, &[SECRET; 4096], &[]).unwrap();
    let calls = rig.device.statistics().total_calls();
    drop(secret);
    let block = rig.pool.allocate(4096).unwrap();
    assert_eq!(rig.device.statistics().total_calls(), calls);
    assert_eq!(rig.device.call_count(CallKind::Fill), 0);
    let mut bytes = [0; 4096];
    block.read(&rig.queue, 0, &mut bytes, &[]).unwrap();
    assert_eq!(bytes, [SECRET; 4096]);
}

#[test]
fn on_one_queue_a_fill_is_the_only_call() {
    for (policy, kept) in SCRUBBING.into_iter().zip([1, 0]) {
        let tenants = buffers(scrub(policy));
        assert_eq!(tenants.pool.scrub_policy(), policy);
        drop(tenants.pool.allocate(4096).unwrap());
        let calls = || {
            let all = tenants.device.statistics().total_calls();
            (all, tenants.device.call_count(CallKind::Fill))
        };
        let (before, fills) = calls();
        let block = tenants.pool.allocate(4096).unwrap();
        assert_eq!(calls().0 - before, 1 - kept, "{policy:?}");
        drop(block);
        assert_eq!(calls(), (before + 1, fills + 1), "{policy:?}");
        assert_eq!(tenants.pool.statistics().hits, 1);
    }
}

#[test]
fn the_whole_class_is_filled() {
    for policy in SCRUBBING {
        let tenants = buffers(scrub(policy));
        drop(leave_a_secret(&tenants, &tenants.queue, &tenants.queue, 1));
        assert_eq!(tenants.next_user(&tenants.queue, 1), [0; SMALLEST]);
        assert_eq!(tenants.pool.statistics().hits, 1);
    }
}

#[test]
fn blocks_of_no_bytes_have_nothing_to_fill() {
    for policy in SCRUBBING {
        let tenants = buffers(scrub(policy));
        let calls = tenants.device.statistics().total_calls();
        drop(tenants.pool.allocate(0).unwrap());
        assert_eq!(tenants.device.statistics().total_calls(), calls);
        let block = tenants.pool.allocate(0).unwrap();
        let end = block.enqueue_release(None, &[]).unwrap_err();
        assert!(matches!(end, Error::InvalidRequest(_)), "{end}");
        let block = tenants.pool.allocate(0).unwrap();
        let queue = &tenants.queue;
        block.enqueue_release(Some(queue), &[]).unwrap();
        assert_eq!(tenants.device.call_count(CallKind::Fill), 0);
    }
}

#[test]
fn what_lies_in_the_pool_is_zeros_on_free_and_a_secret_on_hand_out() {
    for (policy, left) in SCRUBBING.into_iter().zip([0, SECRET]) {
        for segments in [false, true] {
            let tenants = buffers(scrub(policy).segments(segments));
            let queue = &tenants.queue;
            let block = leave_a_secret(&tenants, queue, queue, ALL);
            drop(block);
            tenants.pool.free_held();
            let allocator = tenants.pool.allocator();
            let returned = allocator.returned.lock().unwrap().concat();
            assert_eq!(returned.len(), ALL);
            assert!(returned.iter().all(|byte| *byte == left), "{policy:?}");
        }
    }
}

#[test]
fn blocks_that_are_not_held_go_to_the_allocator_as_zeros() {
    for segments in [false, true] {
        let tenants = manual(scrub(ScrubPolicy::OnFree).segments(segments));
        let other = tenants
            .backend
            .create_queue(QueueOrder::OutOfOrder)
            .unwrap();
        let held = leave_a_secret(&tenants, &tenants.queue, &other, 1000);
        let late = leave_a_secret(&tenants, &tenants.queue, &other, 1000);
        let last = leave_a_secret(&tenants, &tenants.queue, &tenants.queue, 1000);
        drop(held);
        tenants.pool.stop_holding();
        drop(late);
        let Tenants { device, pool, .. } = tenants;
        let allocator = pool.allocator().clone();
        drop(pool);
        drop(last);
        device.run();
        assert!(allocator.got_zeros_only());
        assert!(!allocator.returned.lock().unwrap().is_empty());
        assert_eq!(device.statistics().live_blocks, 0);
        assert!(device.violations().is_empty());
    }
}

#[test]
fn the_fill_waits_for_the_queues_that_used_the_block() {
    for order in ORDERS {
        let tenants = manual(scrub(ScrubPolicy::OnFree));
        let own = tenants.backend.create_queue(order).unwrap();
        let other = tenants.backend.create_queue(order).unwrap();
        let block = tenants.pool.allocate_on(&own, ALL).unwrap();
        let gate = tenants.gate();
        block
            .enqueue_fill(&other, 0..ALL, &[SECRET], from_ref(&gate))
            .unwrap();
        drop(block);
        tenants.device.run();
        assert!(tenants.device.pending_commands() > 1, "the fill waits too");
        tenants.open(&gate);
        assert!(are_zeros(&tenants.next_user(&own, ALL), ALL));
        tenants.has_no_violations();
    }
}

#[test]
fn a_gated_queue_has_its_block_back_at_once_and_clean() {
    for policy in SCRUBBING {
        let tenants = manual(scrub(policy));
        let queue = &tenants.queue;
        let gate = tenants.gate();
        let secret = tenants.pool.allocate(ALL).unwrap();
        secret
            .enqueue_fill(queue, 0..ALL, &[SECRET], from_ref(&gate))
            .unwrap();
        drop(secret);
        let block = tenants.pool.allocate(ALL).unwrap();
        let read = block.enqueue_read(queue, 0..ALL, &[]).unwrap();
        tenants.open(&gate);
        assert!(are_zeros(&read.wait().unwrap(), ALL));
    }
}

#[test]
fn an_unordered_queue_reads_behind_the_fill() {
    for policy in SCRUBBING {
        let tenants = manual(scrub(policy).reuse(ReusePolicy::InsertWait));
        let queue = tenants
            .backend
            .create_queue(QueueOrder::OutOfOrder)
            .unwrap();
        let gate = tenants.gate();
        let secret = tenants.pool.allocate_on(&queue, ALL).unwrap();
        secret
            .enqueue_fill(&queue, 0..ALL, &[SECRET], from_ref(&gate))
            .unwrap();
        drop(secret);
        let block = tenants.pool.allocate_on(&queue, ALL).unwrap();
        let read = block.enqueue_read(&queue, 0..ALL, &[]).unwrap();
        tenants.device.run();
        assert_eq!(read.event().status().unwrap(), EventStatus::Pending);
        tenants.open(&gate);
        assert!(are_zeros(&read.wait().unwrap(), ALL));
        tenants.has_no_violations();
    }
}

#[test]
fn blocks_that_moved_between_queues_are_filled() {
    for segments in [false, true] {
        let tenants = buffers(scrub(ScrubPolicy::OnFree).segments(segments));
        let home = &tenants.queue;
        let other = &tenants.backend.create_queue(QueueOrder::InOrder).unwrap();
        let mut bound = leave_a_secret(&tenants, home, home, ALL);
        bound.bind_to_queue(other).unwrap();
        drop(bound);
        assert!(are_zeros(&tenants.next_user(other, ALL), ALL));
        for used_again in [false, true] {
            let mut unbound = leave_a_secret(&tenants, other, other, ALL);
            unbound.unbind_from_queue().unwrap();
            if used_again {
                unbound.enqueue_fill(other, 0..ALL, &[SECRET], &[]).unwrap();
            }
            drop(unbound);
            assert!(are_zeros(&tenants.next_user(home, ALL), ALL));
        }
        tenants.has_no_violations();
    }
}

#[test]
fn a_released_block_is_filled_by_the_time_of_its_event() {
    for order in ORDERS {
        let builder = MockDevice::builder().completion(Completion::Manual);
        let builder = builder.log_calls(true);
        let tenants = Tenants::new(builder, scrub(ScrubPolicy::OnFree), immediate);
        let queue = tenants.backend.create_queue(order).unwrap();
        let home = &tenants.queue;
        let secret = leave_a_secret(&tenants, home, home, ALL);
        let gate = tenants.gate();
        let end = secret
            .enqueue_release(Some(&queue), from_ref(&gate))
            .unwrap();
        tenants.device.run();
        assert_eq!(end.status().unwrap(), EventStatus::Pending);
        tenants.open(&gate);
        end.wait().unwrap();
        let ended = tenants.device.ended_commands();
        let fills = ended
            .iter()
            .filter(|command| command.name == CallKind::Fill.name());
        let enqueued = tenants.device.call_count(CallKind::Fill);
        assert_eq!(
            fills.count() as u64,
            enqueued,
            "nothing else was waited for"
        );
        assert!(are_zeros(&tenants.next_user(&queue, ALL), ALL));
    }
}

#[test]
fn a_failure_that_a_release_waits_for_keeps_no_secret() {
    for order in ORDERS {
        let tenants = manual(scrub(ScrubPolicy::OnFree));
        let queue = tenants.backend.create_queue(order).unwrap();
        let secret = leave_a_secret(&tenants, &tenants.queue, &tenants.queue, ALL);
        let gate = tenants.gate();
        secret
            .enqueue_release(Some(&queue), from_ref(&gate))
            .unwrap();
        tenants
            .backend
            .resolve_user_event(&gate, Outcome::Failed)
            .unwrap();
        assert!(are_zeros(&tenants.next_user(&queue, ALL), ALL));
    }
}

#[test]
fn an_allocation_whose_fill_fails_loses_nothing() {
    for (segments, order) in [false, true]
        .into_iter()
        .flat_map(|segments| ORDERS.map(|order| (segments, order)))
    {
        let tenants = buffers(scrub(ScrubPolicy::OnHandOut).segments(segments));
        let queue = tenants.backend.create_queue(order).unwrap();
        drop(leave_a_secret(&tenants, &queue, &queue, ALL));
        for call in [CallKind::Fill, CallKind::Barrier] {
            if call == CallKind::Barrier && order == QueueOrder::InOrder {
                continue;
            }
            tenants
                .device
                .fail_nth(call, 1, Fault::Backend(-7), Persistence::Once);
            let error = tenants.pool.allocate_on(&queue, ALL).err().unwrap();
            assert!(
                matches!(error, PoolError::Allocator(Error::Backend(_))),
                "{error}"
            );
            let statistics = tenants.pool.statistics();
            assert_eq!(statistics.active_blocks, 0);
            assert_eq!(statistics.held_bytes, ALL as u64);
        }
        assert!(are_zeros(&tenants.next_user(&queue, ALL), ALL));
    }
}

#[test]
fn fresh_memory_whose_fill_fails_goes_back() {
    for segments in [false, true] {
        let tenants = buffers(scrub(ScrubPolicy::OnFree).segments(segments));
        let device = &tenants.device;
        device.fail_nth(CallKind::Fill, 1, Fault::Backend(-7), Persistence::Once);
        assert!(tenants.pool.allocate(ALL).is_err());
        assert_eq!(device.statistics().live_blocks, 0);
        assert_eq!(tenants.pool.managed_bytes(), 0);
        assert!(are_zeros(&tenants.next_user(&tenants.queue, ALL), ALL));
    }
}

#[test]
fn a_block_that_cannot_be_filled_goes_to_the_allocator() {
    for call in [CallKind::Fill, CallKind::Marker, CallKind::Barrier] {
        let tenants = buffers(scrub(ScrubPolicy::OnFree));
        let other = tenants.backend.create_queue(QueueOrder::InOrder).unwrap();
        // A release that is a command on the block's own queue has no barrier.
        let ways = if call == CallKind::Barrier { 2 } else { 3 };
        for way in 0..ways {
            let secret = leave_a_secret(&tenants, &tenants.queue, &other, ALL);
            tenants
                .device
                .fail_nth(call, 1, Fault::Backend(-7), Persistence::Once);
            match way {
                0 => drop(secret),
                1 => assert!(secret.release().is_err()),
                _ => drop(secret.enqueue_release(None, &[])),
            }
            let statistics = tenants.pool.statistics();
            assert_eq!((statistics.active_blocks, statistics.managed_bytes), (0, 0));
            assert_eq!(tenants.device.statistics().live_blocks, 0);
            tenants.device.clear_faults();
            // The driver may give the very same memory again.
            assert!(are_zeros(&tenants.next_user(&tenants.queue, ALL), ALL));
        }
    }
}

#[test]
fn a_part_of_a_segment_that_cannot_be_filled_stays_out_of_use() {
    let tenants = buffers(scrub(ScrubPolicy::OnFree).segments(true));
    let (pool, device) = (&tenants.pool, &tenants.device);
    // Four blocks have all memory. The second and the third become one range only once both are clean.
    let [first, second, third, fourth] =
        [(); 4].map(|()| leave_a_secret(&tenants, &tenants.queue, &tenants.queue, ALL / 4));
    let forever = Persistence::Forever;
    device.fail_nth(CallKind::Fill, 1, Fault::Backend(-7), forever);
    drop(second);
    assert!(third.enqueue_release(None, &[]).is_err());
    let statistics = pool.statistics();
    assert_eq!(statistics.held_bytes, ALL as u64 / 2);
    assert_eq!(statistics.active_blocks, 2);
    let fills = device.call_count(CallKind::Fill);
    let error = pool.allocate(ALL / 4).unwrap_err();
    let tries = device.call_count(CallKind::Fill) - fills;
    assert!(tries < 40, "{tries}");
    let report = error.out_of_memory().unwrap();
    assert_eq!(report.held_bytes, ALL as u64 / 2);
    assert_eq!(pool.free_held(), 0);
    device.clear_faults();
    assert!(are_zeros(
        &tenants.next_user(&tenants.queue, ALL / 2),
        ALL / 2
    ));
    drop((first, fourth));
    assert_eq!(pool.free_held(), ALL as u64);
    assert!(pool.allocator().got_zeros_only());
    assert_eq!(device.statistics().live_blocks, 0);
    tenants.has_no_violations();
}

#[test]
fn what_is_unscrubbed_waits_for_its_commands() {
    let tenants = manual(scrub(ScrubPolicy::OnFree).segments(true));
    let gate = tenants.gate();
    let secret = tenants.pool.allocate(ALL).unwrap();
    secret
        .enqueue_fill(&tenants.queue, 0..ALL, &[SECRET], from_ref(&gate))
        .unwrap();
    tenants
        .device
        .fail_nth(CallKind::Fill, 1, Fault::Backend(-7), Persistence::Once);
    drop(secret);
    let other = tenants.backend.create_queue(QueueOrder::InOrder).unwrap();
    let error = tenants.pool.allocate_on(&other, ALL).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    tenants.open(&gate);
    assert!(are_zeros(&tenants.next_user(&other, ALL), ALL));
    tenants.has_no_violations();
}

#[test]
fn the_last_handle_ends_the_tries() {
    for late in [false, true] {
        let tenants = buffers(scrub(ScrubPolicy::OnFree).segments(true));
        let secret = leave_a_secret(&tenants, &tenants.queue, &tenants.queue, ALL);
        let Tenants { device, pool, .. } = tenants;
        let forever = Persistence::Forever;
        device.fail_nth(CallKind::Fill, 1, Fault::Backend(-7), forever);
        let returned = Arc::clone(&pool.allocator().returned);
        if late {
            drop(pool);
            drop(secret);
        } else {
            drop(secret);
            assert_eq!(device.statistics().live_blocks, 1);
            drop(pool);
        }
        assert_eq!(device.statistics().live_blocks, 0);
        assert_eq!(returned.lock().unwrap().len(), 1);
    }
}

#[test]
fn a_detached_block_is_left_as_it_is() {
    let tenants = buffers(scrub(ScrubPolicy::OnFree));
    let block = leave_a_secret(&tenants, &tenants.queue, &tenants.queue, ALL);
    let fills = tenants.device.call_count(CallKind::Fill);
    let memory = block.detach().unwrap();
    assert_eq!(tenants.device.call_count(CallKind::Fill), fills);
    drop(memory);
}

#[test]
fn no_queue_no_pool() {
    let device = MockDevice::new();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = immediate(&backend);
    device.fail_nth(
        CallKind::CreateQueue,
        1,
        Fault::Backend(-7),
        Persistence::Forever,
    );
    let refused = scrub(ScrubPolicy::OnFree).build(allocator.clone(), &queue);
    assert!(matches!(refused, Err(PoolError::Allocator(_))));
    assert!(
        scrub(ScrubPolicy::OnHandOut)
            .build(allocator, &queue)
            .is_ok()
    );
}

#[test]
fn every_call_may_fail_once() {
    for (policy, segments) in SCRUBBING
        .into_iter()
        .flat_map(|policy| [false, true].map(|segments| (policy, segments)))
    {
        let rig = || {
            let builder = MockDevice::builder().capacity_bytes(MIB as u64);
            Rig::with_options(builder, scrub(policy).segments(segments))
        };
        every_call_fails_once(rig, MIB, |rig, other| {
            let first = rig.pool.allocate(MIB / 2)?;
            first.write(&rig.queue, 0, &[1; 64], &[])?;
            let second = rig.pool.allocate_on(other, 1000)?;
            second.enqueue_fill(other, 0..1000, &[2], &[])?;
            second.order_before(&rig.queue)?;
            drop((first, second));
            let mut third = rig.pool.allocate(MIB / 2 + 1)?;
            third.unbind_from_queue()?;
            third.record_use(other)?;
            drop(third);
            let fourth = rig.pool.allocate_on(other, 1000)?;
            fourth.enqueue_release(Some(&rig.queue), &[])?;
            Ok(())
        });
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Allocate {
        bytes: usize,
        queue: Index,
    },
    /// More secrets, on this queue, maybe behind the gate.
    Fill {
        block: Index,
        queue: Index,
    },
    Bind {
        block: Index,
        queue: Index,
    },
    Unbind {
        block: Index,
    },
    Drop {
        block: Index,
    },
    Release {
        block: Index,
        queue: Index,
    },
    /// The next fill, or release, waits for a new gate.
    Gate,
    /// Whatever waits for the gates runs, or fails.
    OpenGates {
        outcome: bool,
    },
    FreeHeld,
    Hold(bool),
    Retire {
        queue: Index,
    },
    Run,
    /// A later call of this kind fails.
    Fail {
        kind: CallKind,
        nth: u64,
    },
}

fn any_operation() -> impl Strategy<Value = Operation> {
    let index = any::<Index>;
    let kinds = vec![CallKind::Fill, CallKind::Marker, CallKind::Barrier];
    prop_oneof![
        14 => (1..ALL / 3, index()).prop_map(|(bytes, queue)| Operation::Allocate { bytes, queue }),
        6 => (index(), index()).prop_map(|(block, queue)| Operation::Fill { block, queue }),
        2 => (index(), index()).prop_map(|(block, queue)| Operation::Bind { block, queue }),
        1 => index().prop_map(|block| Operation::Unbind { block }),
        10 => index().prop_map(|block| Operation::Drop { block }),
        2 => (index(), index()).prop_map(|(block, queue)| Operation::Release { block, queue }),
        2 => Just(Operation::Gate),
        2 => any::<bool>().prop_map(|outcome| Operation::OpenGates { outcome }),
        1 => Just(Operation::FreeHeld),
        1 => any::<bool>().prop_map(Operation::Hold),
        1 => index().prop_map(|queue| Operation::Retire { queue }),
        2 => Just(Operation::Run),
        2 => (prop::sample::select(kinds), 1..4u64)
            .prop_map(|(kind, nth)| Operation::Fail { kind, nth }),
    ]
}

/// A random program. Failures of its own calls are all the same to it; what is read of fresh blocks is not.
struct Program<A: Allocator<Backend = MockBackend>> {
    tenants: Tenants<A>,
    queues: Vec<MockQueue>,
    live: Vec<PooledBuffer<Dirty<A>>>,
    reads: Vec<PendingRead<MockEvent>>,
    gates: Vec<MockEvent>,
    next_gate: Option<MockEvent>,
    with_faults: bool,
}

impl<A: Allocator<Backend = MockBackend> + Clone> Program<A> {
    fn new(tenants: Tenants<A>, orders: &[QueueOrder], with_faults: bool) -> Self {
        let mut queues = vec![tenants.queue.clone()];
        let others = orders.iter();
        queues.extend(others.map(|order| tenants.backend.create_queue(*order).unwrap()));
        Self {
            tenants,
            queues,
            live: Vec::new(),
            reads: Vec::new(),
            gates: Vec::new(),
            next_gate: None,
            with_faults,
        }
    }

    fn queue(&self, index: Index) -> MockQueue {
        index.get(&self.queues).clone()
    }

    fn pick(&self, index: Index) -> Option<usize> {
        (!self.live.is_empty()).then(|| index.index(self.live.len()))
    }

    fn open_gates(&mut self, outcome: Outcome) {
        for gate in self.gates.drain(..) {
            let backend = &self.tenants.backend;
            backend.resolve_user_event(&gate, outcome).unwrap();
        }
        self.next_gate = None;
    }

    /// A block whose bytes are read at once, and overwritten behind that.
    fn allocate(&mut self, bytes: usize, queue: &MockQueue) -> Result<(), TestCaseError> {
        let block = match self.tenants.pool.allocate_on(queue, bytes) {
            Ok(block) => block,
            Err(PoolError::OutOfMemory(_)) => return Ok(()),
            Err(error) => {
                prop_assert!(self.with_faults, "{error}");
                return Ok(());
            }
        };
        let backend = &self.tenants.backend;
        let memory: &MockMemory = block.memory_on(queue).unwrap();
        let all = Region::first(memory.bytes());
        let read = backend.enqueue_read(queue, memory, all, &[]).unwrap();
        let behind = from_ref(read.event());
        let secret = backend.enqueue_fill(queue, memory, all, &[SECRET], behind);
        prop_assert!(self.with_faults || secret.is_ok());
        self.reads.push(read);
        self.live.push(block);
        Ok(())
    }

    fn fill(&mut self, index: usize, queue: &MockQueue) {
        let block = &self.live[index];
        if block.order_before(queue).is_err() {
            return;
        }
        let gate = self.next_gate.take();
        let all = 0..block.size();
        let filled = block.enqueue_fill(queue, all, &[SECRET], gate.as_slice());
        assert!(self.with_faults || filled.is_ok());
    }

    fn run(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        match *operation {
            Operation::Allocate { bytes, queue } => {
                let queue = self.queue(queue);
                self.allocate(bytes, &queue)?;
            }
            Operation::Fill { block, queue } => {
                let queue = self.queue(queue);
                if let Some(block) = self.pick(block) {
                    self.fill(block, &queue);
                }
            }
            Operation::Bind { block, queue } => {
                let queue = self.queue(queue);
                if let Some(block) = self.pick(block) {
                    // Refused for an out-of-order queue, which leaves everything as it was.
                    let _refused = self.live[block].bind_to_queue(&queue);
                }
            }
            Operation::Unbind { block } => {
                self.open_gates(Outcome::Complete);
                if let Some(block) = self.pick(block) {
                    self.live[block].unbind_from_queue().unwrap();
                }
            }
            Operation::Drop { block } => {
                if let Some(block) = self.pick(block) {
                    drop(self.live.swap_remove(block));
                }
            }
            Operation::Release { block, queue } => {
                let queue = self.queue(queue);
                if let Some(block) = self.pick(block) {
                    let gate = self.next_gate.take();
                    let block = self.live.swap_remove(block);
                    let end = block.enqueue_release(Some(&queue), gate.as_slice());
                    prop_assert!(self.with_faults || end.is_ok());
                }
            }
            Operation::Gate => {
                let gate = self.tenants.gate();
                self.gates.push(gate.clone());
                self.next_gate = Some(gate);
            }
            Operation::OpenGates { outcome } => self.open_gates(if outcome {
                Outcome::Complete
            } else {
                Outcome::Failed
            }),
            Operation::FreeHeld => drop(self.tenants.pool.free_held()),
            Operation::Hold(true) => self.tenants.pool.resume_holding(),
            Operation::Hold(false) => self.tenants.pool.stop_holding(),
            Operation::Retire { queue } => {
                let queue = self.queue(queue);
                self.tenants.pool.retire_queue(&queue);
            }
            Operation::Run => drop(self.tenants.device.run()),
            Operation::Fail { kind, nth } => {
                if self.with_faults {
                    let device = &self.tenants.device;
                    device.fail_nth(kind, nth, Fault::Backend(-7), Persistence::Once);
                }
            }
        }
        Ok(())
    }

    fn end(mut self, policy: ScrubPolicy) -> Result<(), TestCaseError> {
        self.open_gates(Outcome::Complete);
        self.tenants.device.clear_faults();
        for queue in &self.queues {
            queue.finish().unwrap();
        }
        for read in self.reads.drain(..) {
            let bytes = read.wait().unwrap();
            prop_assert!(bytes.iter().all(|byte| *byte == 0), "a secret was read");
        }
        self.live.clear();
        self.queues.clear();
        let Tenants { device, pool, .. } = self.tenants;
        let allocator = pool.allocator().clone();
        drop(pool);
        device.run();
        // A block whose own wait fails goes to the allocator as it is.
        if policy == ScrubPolicy::OnFree && !self.with_faults {
            prop_assert!(allocator.got_zeros_only(), "a secret went to the allocator");
        }
        prop_assert!(device.violations().is_empty(), "{:#?}", device.violations());
        prop_assert_eq!(device.statistics().live_blocks, 0);
        Ok(())
    }
}

fn any_order() -> impl Strategy<Value = QueueOrder> {
    prop::sample::select(&ORDERS[..])
}

/// What a random program runs on.
#[derive(Clone, Debug)]
struct Setting {
    scrub: ScrubPolicy,
    reuse: ReusePolicy,
    segments: bool,
    orders: Vec<QueueOrder>,
    seed: u64,
    with_faults: bool,
}

fn any_setting() -> impl Strategy<Value = Setting> {
    (
        prop::sample::select(&SCRUBBING[..]),
        prop::sample::select(&ReusePolicy::ALL[..]),
        any::<bool>(),
        prop::collection::vec(any_order(), 0..4),
        any::<u64>(),
        any::<bool>(),
    )
        .prop_map(
            |(scrub, reuse, segments, orders, seed, with_faults)| Setting {
                scrub,
                reuse,
                segments,
                orders,
                seed,
                with_faults,
            },
        )
}

fn run_program<A: Allocator<Backend = MockBackend> + Clone>(
    setting: &Setting,
    operations: &[Operation],
    allocator: impl Fn(&MockBackend) -> A,
) -> Result<(), TestCaseError> {
    let options = scrub(setting.scrub)
        .reuse(setting.reuse)
        .segments(setting.segments);
    let builder = MockDevice::builder().completion(Completion::Seeded(setting.seed));
    let tenants = Tenants::new(builder, options, allocator);
    let mut program = Program::new(tenants, &setting.orders, setting.with_faults);
    for operation in operations {
        program.run(operation)?;
    }
    program.end(setting.scrub)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(600),
        // What is found is written down as a test of its own.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_program_reads_a_secret_in_buffers(
        setting in any_setting(),
        operations in prop::collection::vec(any_operation(), 1..80),
    ) {
        run_program(&setting, &operations, immediate)?;
    }

    #[test]
    fn no_program_reads_a_secret_in_shared_virtual_memory(
        setting in any_setting(),
        operations in prop::collection::vec(any_operation(), 1..80),
    ) {
        run_program(&setting, &operations, svm)?;
    }
}
