//! Views that outlive their block: no other user has the block's bytes before the last of them is gone.

use std::{
    slice,
    sync::{Arc, Mutex, mpsc},
    thread,
};

use binpool::{
    Allocator, Backend, Budget, Error, Event, EventStatus, ImmediateAllocator, Memory, MemoryPool,
    PoolOptions, PooledBuffer, Queue, QueueOrder, Region, Retain, ReusePolicy, ScrubPolicy,
    SvmAllocator, SvmGrain, Verdict, WatchOptions,
};
use binpool_mock::{
    CallKind, Completion, Fault, MockBackend, MockDevice, MockEvent, MockMemory, MockQueue,
    Persistence,
};

use crate::common::{MIB, Rig, every_call_fails_once};

const BYTES: usize = 4096;
const OLD: u8 = 7;
const NEW: u8 = 9;

/// Blocks of their own, or of segments; cached by a thread, or only where all threads find them.
fn ways_to_hold() -> impl Iterator<Item = PoolOptions> {
    let held = [false, true].map(|segments| PoolOptions::new().segments(segments));
    let by_all = held
        .clone()
        .map(|options| options.retain(Retain::new().unused_for(std::time::Duration::MAX)));
    held.into_iter().chain(by_all)
}

/// A block that was filled, and a view of all that was asked for.
fn block_and_view(
    pool: &MemoryPool<MockBackend>,
    queue: &MockQueue,
) -> (PooledBuffer<MockBackend>, MockMemory) {
    let block = pool.allocate_on(queue, BYTES).unwrap();
    block.enqueue_fill(queue, 0..BYTES, &[OLD]).unwrap();
    let view = view_of(&block, queue);
    (block, view)
}

fn view_of(block: &PooledBuffer<MockBackend>, queue: &MockQueue) -> MockMemory {
    let memory = block.memory_on(queue).unwrap();
    let all = Region::first(block.size());
    block.backend().create_sub_region(memory, all).unwrap()
}

fn read(backend: &MockBackend, queue: &MockQueue, memory: &MockMemory) -> Vec<u8> {
    let mut bytes = vec![0_u8; memory.bytes()];
    backend.read(queue, memory, 0, &mut bytes).unwrap();
    bytes
}

/// Blocks come and go, all of them written, and the view is as it was.
fn others_leave_alone(view: &MockMemory, pool: &MemoryPool<MockBackend>, queue: &MockQueue) {
    let mut blocks = Vec::new();
    for round in 0..30 {
        let block = pool.allocate_on(queue, BYTES).unwrap();
        block.enqueue_fill(queue, 0..BYTES, &[NEW]).unwrap();
        blocks.push(block);
        if round % 3 == 2 {
            blocks.truncate(blocks.len() - 2);
        }
    }
    drop(blocks);
    pool.free_held();
    assert_eq!(read(pool.backend(), queue, view), [OLD; BYTES]);
}

fn views_outlive_blocks(pool: &MemoryPool<MockBackend>, device: &MockDevice, queue: &MockQueue) {
    let give_back: [fn(PooledBuffer<MockBackend>); 3] = [
        drop,
        |block| block.release().unwrap(),
        |block| drop(block.enqueue_release(None, &[]).unwrap()),
    ];
    for give_back in give_back {
        let (block, view) = block_and_view(pool, queue);
        let inner = pool.backend().create_sub_region(&view, Region::first(1));
        give_back(block);
        others_leave_alone(&view, pool, queue);
        assert_eq!(pool.statistics().viewed_blocks, 1);
        drop(view);
        assert_eq!(pool.statistics().viewed_blocks, 1);

        let allocations =
            || [CallKind::CreateBuffer, CallKind::AllocateSvm].map(|kind| device.call_count(kind));
        let before = allocations();
        thread::scope(|scope| drop(scope.spawn(move || drop(inner))));
        let block = pool.allocate_on(queue, BYTES).unwrap();
        assert_eq!(allocations(), before, "the block is back");
        drop(block);
        assert_eq!(pool.statistics().viewed_blocks, 0);
        pool.free_held();
        assert_eq!(pool.managed_bytes(), 0);
    }
    let violations = device.violations();
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn no_other_user_has_the_bytes_of_a_view() {
    for options in ways_to_hold() {
        let rig = Rig::with_options(MockDevice::builder(), options);
        views_outlive_blocks(&rig.pool, &rig.device, &rig.queue);
    }
}

#[test]
fn no_other_user_has_the_bytes_of_a_view_of_shared_virtual_memory() {
    for options in ways_to_hold() {
        let rig = Rig::with_options(MockDevice::builder(), PoolOptions::new());
        let allocator = SvmAllocator::new(&rig.backend, SvmGrain::Coarse).unwrap();
        let pool = options.build(allocator, &rig.queue).unwrap();
        views_outlive_blocks(&pool, &rig.device, &rig.queue);
    }
}

/// Hands released blocks out again itself, once they have no views.
#[derive(Clone, Debug)]
struct Reusing {
    inner: ImmediateAllocator<MockBackend>,
    released: Arc<Mutex<Vec<MockMemory>>>,
}

impl Allocator for Reusing {
    type Backend = MockBackend;

    fn backend(&self) -> &MockBackend {
        self.inner.backend()
    }

    fn allocate(&self, bytes: usize) -> Result<MockMemory, Error> {
        let mut released = self.released.lock().unwrap();
        let fits = |it: &MockMemory| it.bytes() == bytes && !it.has_views();
        match released.iter().position(fits) {
            Some(block) => Ok(released.swap_remove(block)),
            None => self.inner.allocate(bytes),
        }
    }

    fn release(&self, memory: MockMemory, after: &[MockEvent]) -> Result<(), Error> {
        after.iter().try_for_each(Event::wait)?;
        self.released.lock().unwrap().push(memory);
        Ok(())
    }

    fn is_deferred(&self) -> bool {
        false
    }
}

#[test]
fn no_other_user_has_the_bytes_of_a_view_where_the_allocator_reuses_blocks_itself() {
    for options in ways_to_hold() {
        let rig = Rig::with_options(MockDevice::builder(), PoolOptions::new());
        let reusing = Reusing {
            inner: ImmediateAllocator::new(&rig.backend).unwrap(),
            released: Arc::default(),
        };
        let pool = options.build(reusing, &rig.queue).unwrap();
        let (block, view) = block_and_view(&pool, &rig.queue);
        drop(block);
        others_leave_alone(&view, &pool, &rig.queue);
        // The pool goes, and its allocator goes on.
        let reusing = pool.allocator().clone();
        drop(pool);
        let next = MemoryPool::new(reusing, &rig.queue).unwrap();
        others_leave_alone(&view, &next, &rig.queue);
    }
}

#[test]
fn a_view_of_a_pooled_view_counts_for_its_block() {
    let rig = Rig::with_capacity(MIB);
    let block = rig.pool.allocate(BYTES).unwrap();
    let outer = block.view(2048..).unwrap();
    let memory = outer.memory_on(&rig.queue).unwrap();
    let view = rig.backend.create_sub_region(memory, Region::first(256));
    drop(outer);
    drop(block);
    assert_eq!(rig.pool.statistics().viewed_blocks, 1);
    drop(view);
    assert_eq!(rig.pool.statistics().viewed_blocks, 0);
    // A view that went with its block is none.
    let block = rig.pool.allocate(BYTES).unwrap();
    assert!(block.view(2048..).is_ok());
    drop(block);
    assert_eq!(rig.pool.statistics().viewed_blocks, 0);
}

#[test]
fn a_viewed_block_is_active_until_its_views_are_gone() {
    for options in ways_to_hold() {
        let rig = Rig::with_options(MockDevice::builder(), options);
        rig.pool.watch(WatchOptions::new());
        let (block, view) = block_and_view(&rig.pool, &rig.queue);
        let before = rig.pool.statistics();
        assert_eq!((before.viewed_blocks, before.viewed_bytes), (0, 0));
        drop(block);
        let told = rig.pool.statistics();
        assert_eq!((told.viewed_blocks, told.viewed_bytes), (1, BYTES as u64));
        assert_eq!((told.active_blocks, told.active_bytes), (1, BYTES as u64));
        assert_eq!(told.held_bytes, before.held_bytes);
        // Who asked for it is found like the owner of any other leak.
        let live = rig.pool.live_blocks();
        assert!(live.to_string().contains("views.rs"), "{live}");
        drop(view);
        assert_eq!(rig.pool.live_blocks().blocks, 0);
        let told = rig.pool.statistics();
        assert_eq!((told.viewed_blocks, told.active_blocks), (0, 0));
        assert_eq!(told.held_bytes, told.managed_bytes);
    }
}

#[test]
fn a_forgotten_view_keeps_its_block_for_good_and_no_other() {
    for options in ways_to_hold() {
        let rig = Rig::with_options(MockDevice::builder(), options);
        let (block, view) = block_and_view(&rig.pool, &rig.queue);
        let [lost, forgotten] = [block.memory_id(), Some(view.id())];
        std::mem::forget(view);
        drop(block);
        for _ in 0..100 {
            let block = rig.pool.allocate(BYTES).unwrap();
            assert!(![lost, forgotten].contains(&block.memory_id()));
            block.write(&rig.queue, 0, &[NEW; BYTES]).unwrap();
        }
        let told = rig.pool.statistics();
        assert_eq!(
            (told.viewed_blocks, told.misses),
            (1, 2 - told.carved_hits.min(1))
        );
    }
}

#[test]
fn a_shortage_finds_what_is_free_of_views_and_the_report_names_the_rest() {
    for segments in [false, true] {
        let builder = MockDevice::builder().capacity_bytes(MIB as u64);
        let rig = Rig::with_options(builder, PoolOptions::new().segments(segments));
        let block = rig.pool.allocate(MIB).unwrap();
        let view = view_of(&block, &rig.queue);
        drop(block);
        let refused = rig.pool.allocate(MIB).unwrap_err();
        let report = refused.out_of_memory().unwrap();
        assert_eq!((report.viewed_bytes, report.held_bytes), (MIB as u64, 0));
        assert_eq!(report.verdict, Verdict::Viewed);
        let table = refused.to_string();
        assert!(table.contains("in views          1.0 MiB"), "{table}");

        // A hook that drops the view serves the request, as does one that drops a block.
        let (tell, told) = mpsc::channel::<MockMemory>();
        let told = Mutex::new(told);
        rig.pool
            .add_reclaim_hook(move |_| told.lock().unwrap().try_recv().is_ok());
        tell.send(view).unwrap();
        assert!(rig.pool.allocate(MIB).is_ok());
        assert_eq!(rig.pool.statistics().misses, 1, "{segments}");
    }
}

#[test]
fn a_scrubbed_block_is_filled_once_its_views_are_gone() {
    for segments in [false, true] {
        for scrub in [ScrubPolicy::OnFree, ScrubPolicy::OnHandOut] {
            let options = PoolOptions::new().segments(segments).scrub(scrub);
            let rig = Rig::with_options(MockDevice::builder(), options);
            for by_event in [false, true] {
                let (block, view) = block_and_view(&rig.pool, &rig.queue);
                if by_event {
                    let end = block.enqueue_release(None, &[]).unwrap();
                    assert_eq!(end.status().unwrap(), EventStatus::Complete);
                } else {
                    drop(block);
                }
                assert_eq!(read(&rig.backend, &rig.queue, &view), [OLD; BYTES]);
                drop(view);
                assert_eq!(rig.pool.statistics().viewed_blocks, 0);
                let next = rig.pool.allocate(BYTES).unwrap();
                let mut bytes = [OLD; BYTES];
                next.read(&rig.queue, 0, &mut bytes).unwrap();
                assert_eq!(bytes, [0; BYTES]);
            }
        }
    }
}

/// The pool knows the queue of the view's command from another block, or from `record_use`.
#[test]
fn the_next_user_comes_after_the_commands_of_views() {
    for (policy, options) in ReusePolicy::ALL
        .into_iter()
        .flat_map(|policy| ways_to_hold().map(move |options| (policy, options.reuse(policy))))
    {
        for is_recorded in [false, true] {
            // One large block and a small one.
            let builder = MockDevice::builder().capacity_bytes((MIB + 64 * 1024) as u64);
            let builder = builder.completion(Completion::Manual);
            let rig = Rig::with_options(builder, options.clone());
            let other = rig.another_queue(QueueOrder::InOrder);
            let block = rig.pool.allocate(MIB).unwrap();
            let known = if is_recorded {
                block.record_use(&other).unwrap();
                None
            } else {
                Some(rig.pool.allocate_on(&other, 256).unwrap())
            };
            let view = view_of(&block, &rig.queue);
            let filled = block.enqueue_fill(&rig.queue, 0..MIB, &[OLD]);
            drop(block);
            let all = Region::first(MIB);
            let gates = [filled.unwrap(), rig.gate()];
            let written = rig
                .backend
                .enqueue_fill(other.after(&gates), &view, all, &[1_u8]);
            drop(view);
            rig.open(&gates[1]);
            let block = rig.pool.allocate(MIB).unwrap();
            block.enqueue_fill(&rig.queue, 0..MIB, &[NEW]).unwrap();
            let mut bytes = vec![0_u8; MIB];
            block.read(&rig.queue, 0, &mut bytes).unwrap();
            rig.device.run();
            assert!(bytes.iter().all(|byte| *byte == NEW), "{policy:?}");
            let violations = rig.device.violations();
            assert!(violations.is_empty(), "{policy:?}: {violations:#?}");
            drop((written, known));
        }
    }
}

#[test]
fn a_view_that_outlives_the_pool_keeps_its_memory_and_nothing_else() {
    for options in ways_to_hold() {
        for scrub in ScrubPolicy::ALL {
            let device = MockDevice::new();
            let backend = device.backend();
            let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
            let immediate = ImmediateAllocator::new(&backend).unwrap();
            let budget = Budget::new(1 << 30);
            let options = options.clone().scrub(scrub).budget(&budget);
            let pool = options.build(immediate, &queue).unwrap();
            let [(first, early), (last, late)] = [(); 2].map(|()| block_and_view(&pool, &queue));
            drop(first);
            drop(pool);
            drop(last);
            assert_eq!(budget.used_bytes(), 0, "all went to the allocator");
            for view in [early, late] {
                assert_eq!(read(&backend, &queue, &view), [OLD; BYTES]);
            }
            drop(queue);
            assert!(device.leaks().is_empty(), "{}", device.leaks());
            assert_eq!(device.violations(), []);
        }
    }
}

#[test]
fn a_pool_that_does_not_hold_frees_a_viewed_block_once_its_views_are_gone() {
    for options in ways_to_hold() {
        let rig = Rig::with_options(MockDevice::builder(), options);
        rig.pool.stop_holding();
        let (block, view) = block_and_view(&rig.pool, &rig.queue);
        drop(block);
        others_leave_alone(&view, &rig.pool, &rig.queue);
        drop(view);
        assert_eq!(rig.pool.managed_bytes(), 0);
    }
}

#[test]
fn detached_memory_takes_its_views_along() {
    let rig = Rig::with_capacity(MIB);
    let (block, view) = block_and_view(&rig.pool, &rig.queue);
    let memory = block.detach().unwrap();
    assert!(memory.has_views());
    assert_eq!(rig.pool.statistics().viewed_blocks, 0);
    drop(memory);
    others_leave_alone(&view, &rig.pool, &rig.queue);
}

#[test]
fn nothing_is_lost_where_calls_fail_around_views() {
    const ALL: usize = 64 << 10;
    for (segments, scrub) in [false, true]
        .into_iter()
        .flat_map(|segments| ScrubPolicy::ALL.map(|scrub| (segments, scrub)))
    {
        let rig = || {
            let builder = MockDevice::builder().capacity_bytes(ALL as u64);
            let options = PoolOptions::new().segments(segments).scrub(scrub);
            Rig::with_options(builder, options)
        };
        every_call_fails_once(rig, ALL, |rig, other| {
            let block = rig.pool.allocate(BYTES)?;
            let memory = block.memory_on(&rig.queue).unwrap();
            let view = rig.backend.create_sub_region(memory, Region::first(256));
            block.order_before(other)?;
            block.enqueue_fill(other, 0..BYTES, &[OLD])?;
            let ended = block.enqueue_release(Some(&rig.queue), &[]);
            let blocks = [(); 3].map(|()| rig.pool.allocate(BYTES));
            drop(view);
            drop(blocks);
            drop(rig.pool.allocate(2 * BYTES)?);
            ended?;
            Ok(())
        });
    }
}

#[test]
fn threads_share_a_pool_whose_blocks_have_views() {
    for options in ways_to_hold() {
        let rig = Rig::with_options(MockDevice::builder(), options);
        let (hand_over, views) = mpsc::channel::<(MockMemory, u8)>();
        thread::scope(|scope| {
            for mark in 0..4 {
                let (rig, hand_over) = (&rig, hand_over.clone());
                scope.spawn(move || {
                    let queue = rig.another_queue(QueueOrder::InOrder);
                    for round in 0..200_usize {
                        let block = rig.pool.allocate_on(&queue, BYTES).unwrap();
                        block.write(&queue, 0, &[mark; BYTES]).unwrap();
                        if round % 8 == 0 {
                            hand_over.send((view_of(&block, &queue), mark)).unwrap();
                        }
                    }
                });
            }
            drop(hand_over);
            let queue = rig.another_queue(QueueOrder::InOrder);
            for (view, mark) in views {
                assert_eq!(read(&rig.backend, &queue, &view), [mark; BYTES]);
            }
        });
        let told = rig.pool.statistics();
        assert_eq!((told.viewed_blocks, told.active_blocks), (0, 0));
        rig.pool.free_held();
        assert_eq!(rig.pool.managed_bytes(), 0);
    }
}

#[test]
fn a_block_whose_release_fails_leaves_its_pool_only_after_the_events_and_the_views() {
    for options in ways_to_hold() {
        let rig = Rig::with_options(MockDevice::builder(), options);
        let gate = rig.gate();
        let (block, view) = block_and_view(&rig.pool, &rig.queue);
        let fault = Fault::Backend(-5);
        rig.device
            .fail_nth(CallKind::Marker, 1, fault, Persistence::Once);
        let released = block.enqueue_release(None, slice::from_ref(&gate));
        assert!(released.is_err());
        drop(view);
        assert_eq!(
            rig.pool.statistics().viewed_blocks,
            1,
            "an event is pending"
        );
        rig.open(&gate);
        assert_eq!(rig.pool.statistics().viewed_blocks, 0);
        rig.pool.free_held();
        assert_eq!(rig.pool.managed_bytes(), 0);
    }
}
