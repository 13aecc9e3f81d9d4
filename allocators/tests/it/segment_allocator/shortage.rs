//! A request that can be served is served.

use std::{
    collections::VecDeque,
    fmt,
    slice::from_ref,
    sync::{Arc, OnceLock, mpsc},
    thread,
    time::Duration,
};

use binpool_allocators::{
    Allocator, Backend, Error, EventOf, ImmediateAllocator, Memory, MemoryOf, QueueOrder, Region,
    Result, Scope, SegmentAllocator, adaptors::Limit,
};
use binpool_mock::{CallKind, Completion, Fault, HostWait, MockBackend, MockDevice, Persistence};
use parking_lot::Mutex;

use crate::segment_allocator::{KIB, MIB, Rig, immediate, manual, rig};

#[test]
fn a_shortage_is_waited_out_no_longer_than_needed() {
    let rig = Rig::over(&manual(MIB), immediate);
    let blocks = [(); 4].map(|()| rig.allocator.allocate(256 * KIB).unwrap());
    for (mark, block) in (1..).zip(blocks) {
        let fill = rig.fill(usize::from(mark % 2), &block, mark, &[]);
        rig.allocator.release(block, &[fill]).unwrap();
    }
    assert_eq!(rig.device.pending_commands(), 4);
    // The oldest is enough.
    let one = rig.allocator.allocate(256 * KIB).unwrap();
    assert_eq!(rig.device.pending_commands(), 3);
    rig.allocator.release(one, &[]).unwrap();
    // All are needed, and what they were carved from.
    let all = rig.allocator.allocate(MIB).unwrap();
    assert_eq!(rig.device.pending_commands(), 0);
    rig.allocator.release(all, &[]).unwrap();
    rig.ends_clean();
}

#[test]
fn a_request_that_a_limit_rules_out_releases_no_segment() {
    let device = MockDevice::new();
    let rig = Rig::over(&device, |backend| {
        Limit::new(immediate(backend), 4 * MIB as u64)
    });
    let kept = rig.allocator.allocate(2 * MIB).unwrap();
    let cached = rig.allocator.allocate(MIB).unwrap();
    rig.allocator.release(cached, &[]).unwrap();
    let before = rig.allocator.statistics();
    let calls = device.statistics().total_calls();
    // Larger than the limit; and larger than all that is not in use.
    for bytes in [5 * MIB, 2 * MIB + KIB] {
        let Err(Error::OutOfMemory(refusal)) = rig.allocator.allocate(bytes) else {
            panic!("{bytes} bytes are beyond the limit");
        };
        assert_eq!((refusal.requested, refusal.scope), (bytes, Scope::Limit));
    }
    assert_eq!(rig.allocator.statistics(), before);
    assert_eq!(device.statistics().total_calls(), calls);
    // What fits once the segment is released gets it.
    let large = rig.allocator.allocate(2 * MIB).unwrap();
    for block in [kept, large] {
        rig.allocator.release(block, &[]).unwrap();
    }
    // A limit that is lowered takes nothing either.
    rig.allocator.inner().budget().set_max_bytes(MIB as u64);
    let refused = rig.allocator.allocate(3 * MIB);
    assert!(refused.is_err_and(|error| error.is_out_of_memory()));
    assert_eq!(rig.allocator.statistics().segment_bytes, 4 * MIB as u64);
    rig.ends_clean();
}

#[test]
fn what_cannot_be_waited_for_is_left_alone_and_the_error_is_the_inner_allocators() {
    let rig = Rig::over(&manual(MIB), immediate);
    let gate = rig.gate();
    let [first, second] = [(); 2].map(|()| rig.allocator.allocate(512 * KIB).unwrap());
    let gated = rig.fill(0, &first, 1, from_ref(&gate));
    rig.allocator.release(first, &[gated]).unwrap();
    let Err(Error::OutOfMemory(refusal)) = rig.allocator.allocate(512 * KIB) else {
        panic!("nothing is free");
    };
    assert_eq!(refusal.requested, 512 * KIB);
    assert!(refusal.source.is_some(), "the device's own error");
    assert_eq!(rig.allocator.statistics().pending_bytes, 512 * KIB as u64);
    // One that came back later can be waited for.
    let fill = rig.fill(1, &second, 2, &[]);
    rig.allocator.release(second, &[fill]).unwrap();
    let third = rig.allocator.allocate(512 * KIB).unwrap();
    rig.open(&gate);
    drop(gate);
    rig.device.run();
    rig.allocator.release(third, &[]).unwrap();
    rig.allocator.free_idle();
    rig.ends_clean();
}

#[test]
fn a_segment_is_no_larger_than_what_is_there() {
    let rig = rig(10 * KIB);
    let blocks = [(); 10].map(|()| rig.allocator.allocate(KIB).unwrap());
    assert_eq!(rig.device.statistics().committed_bytes, 10 * KIB as u64);
    assert!(rig.allocator.allocate(1).unwrap_err().is_out_of_memory());
    for block in blocks {
        rig.allocator.release(block, &[]).unwrap();
    }
    // Ten segments make room for one.
    let large = rig.allocator.allocate(10 * KIB).unwrap();
    rig.allocator.release(large, &[]).unwrap();
    rig.ends_clean();
}

#[test]
fn a_block_gets_what_others_leave_and_what_was_refused_is_not_asked_for_again() {
    let rig = rig(16 * MIB);
    let others = immediate(&rig.backend).allocate(13 * MIB).unwrap();
    let asked = || rig.device.call_count(CallKind::Commit);
    // A usual segment has two of them.
    let mut blocks = vec![rig.allocator.allocate(MIB).unwrap()];
    blocks.push(rig.allocator.allocate(MIB).unwrap());
    assert_eq!(rig.allocator.statistics().segments_made, 1);
    // Another one is refused, and one of the block's own size is there.
    let before = asked();
    blocks.push(rig.allocator.allocate(MIB).unwrap());
    assert_eq!(asked() - before, 2);
    let statistics = rig.allocator.statistics();
    assert_eq!(
        (statistics.segments_made, statistics.segment_bytes),
        (2, 3 * MIB as u64)
    );
    let refusal = rig.allocator.allocate(100 * KIB).unwrap_err();
    assert!(refusal.is_out_of_memory());
    assert_eq!(asked() - before, 3);
    drop(others);
    for block in blocks {
        rig.allocator.release(block, &[]).unwrap();
    }
    rig.ends_clean();
}

#[test]
fn a_refusal_costs_as_many_idle_segments_as_the_block_has_bytes() {
    let rig = rig(64 * MIB);
    let blocks = [(); 8].map(|()| rig.allocator.allocate(3 * MIB).unwrap());
    for block in blocks {
        rig.allocator.release(block, &[]).unwrap();
    }
    // Two idle ones go, so that segments stay few: just what is needed. That there is no memory all the same costs as many
    // again, and not all.
    let (once, full) = (Persistence::Once, Fault::OutOfMemory);
    rig.device.fail_nth(CallKind::Commit, 1, full, once);
    let block = rig.allocator.allocate(6 * MIB).unwrap();
    assert_eq!(
        rig.allocator.statistics().segment_bytes,
        (24 - 6 - 6 + 6) * MIB as u64
    );
    rig.allocator.release(block, &[]).unwrap();
    rig.ends_clean();
}

#[test]
fn failures_other_than_of_memory_cost_no_idle_segments() {
    let (once, broken) = (Persistence::Once, Fault::Backend(-5));
    let is_broken =
        |error: &Error| matches!(error, Error::Backend(found) if found.code == Some(-5));
    let rig = rig(64 * MIB);
    let idle = rig.allocator.allocate(100 * KIB).unwrap();
    rig.allocator.release(idle, &[]).unwrap();
    let segments = rig.allocator.statistics().segment_bytes;
    rig.device.fail_nth(CallKind::CreateBuffer, 1, broken, once);
    let error = rig.allocator.allocate(3 * MIB).unwrap_err();
    assert!(is_broken(&error), "{error}");
    assert_eq!(rig.allocator.statistics().segment_bytes, segments);
    // Nor do they cost more where some have gone for want of memory: two have here.
    rig.allocator.free_idle();
    let blocks = [(); 4].map(|()| rig.allocator.allocate(16 * MIB).unwrap());
    for block in blocks {
        rig.allocator.release(block, &[]).unwrap();
    }
    rig.device.fail_nth(CallKind::CreateBuffer, 2, broken, once);
    let error = rig.allocator.allocate(17 * MIB).unwrap_err();
    assert!(is_broken(&error), "{error}");
    assert_eq!(rig.allocator.statistics().segment_bytes, 32 * MIB as u64);
    rig.ends_clean();
}

#[test]
fn a_command_that_fails_while_it_is_waited_for_has_ended() {
    let rig = Rig::over(&manual(MIB), immediate);
    let block = rig.allocator.allocate(MIB).unwrap();
    let queue = &rig.queues[0];
    let broken = rig
        .backend
        .launch(queue, "broken", &[], &[&block], |_, _| panic!("on purpose"))
        .unwrap();
    rig.allocator.release(block, &[broken]).unwrap();
    let again = rig.allocator.allocate(MIB).unwrap();
    rig.allocator.release(again, &[]).unwrap();
    rig.ends_clean();
}

#[test]
fn only_as_many_idle_segments_go_as_are_needed() {
    let rig = rig(64 * MIB);
    let blocks = [(); 4].map(|()| rig.allocator.allocate(16 * MIB).unwrap());
    for block in blocks {
        rig.allocator.release(block, &[]).unwrap();
    }
    assert_eq!(rig.device.statistics().committed_bytes, 64 * MIB as u64);
    let block = rig.allocator.allocate(17 * MIB).unwrap();
    // Two made room for it, and no third.
    assert_eq!(
        rig.allocator.statistics().segment_bytes,
        (32 + 17) * MIB as u64
    );
    rig.allocator.release(block, &[]).unwrap();
    rig.ends_clean();
}

type Hook = Box<dyn Fn() + Send + Sync>;

/// Does something before each call.
struct Hooked {
    inner: ImmediateAllocator<MockBackend>,
    before_allocate: Hook,
    before_release: Hook,
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooked")
    }
}

impl Allocator for Hooked {
    type Backend = MockBackend;

    fn backend(&self) -> &MockBackend {
        self.inner.backend()
    }

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>> {
        (self.before_allocate)();
        self.inner.allocate(bytes)
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
        (self.before_release)();
        self.inner.release(memory, after)
    }

    fn is_deferred(&self) -> bool {
        false
    }
}

#[test]
fn what_another_thread_gives_back_is_waited_for() {
    let ((entered, has_entered), (go, go_on)) = (mpsc::channel(), mpsc::channel());
    let go_on = Mutex::new(go_on);
    let device = MockDevice::builder().capacity_bytes(MIB as u64).build();
    let rig = Rig::over(&device, |backend| Hooked {
        inner: immediate(backend),
        before_allocate: Box::new(|| {}),
        before_release: Box::new(move || {
            entered.send(()).unwrap();
            go_on.lock().recv().unwrap();
        }),
    });
    let block = rig.allocator.allocate(MIB).unwrap();
    rig.allocator.release(block, &[]).unwrap();
    thread::scope(|scope| {
        let freeing = scope.spawn(|| rig.allocator.free_idle());
        has_entered.recv().unwrap();
        let allocating = scope.spawn(|| rig.allocator.allocate(MIB));
        thread::sleep(Duration::from_millis(50));
        let gave_up = allocating.is_finished();
        go.send(()).unwrap();
        assert_eq!(freeing.join().unwrap(), MIB as u64);
        assert!(!gave_up);
        let block = allocating.join().unwrap().unwrap();
        rig.allocator.release(block, &[]).unwrap();
    });
    go.send(()).unwrap();
    rig.ends_clean();
}

type Action = Box<dyn FnOnce(&SegmentAllocator<Hooked>) + Send>;

/// What others do, one after the other, each time that the inner allocator is asked.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<VecDeque<Action>>>);

impl Script {
    fn then(&self, action: impl FnOnce(&SegmentAllocator<Hooked>) + Send + 'static) {
        self.0.lock().push_back(Box::new(action));
    }

    fn is_done(&self) -> bool {
        self.0.lock().is_empty()
    }
}

/// An allocator over a device of this capacity, no block of which is larger than [`BLOCK`].
fn scripted(capacity: usize) -> (Rig<Hooked>, Script) {
    let device = MockDevice::builder()
        .capacity_bytes(capacity as u64)
        .largest_block_bytes(BLOCK)
        .build();
    let script = Script::default();
    let outside: Arc<OnceLock<SegmentAllocator<Hooked>>> = Arc::default();
    let before_allocate = {
        let (script, outside) = (script.clone(), outside.clone());
        move || {
            let action = script.0.lock().pop_front();
            if let Some(action) = action {
                action(outside.get().unwrap());
            }
        }
    };
    let rig = Rig::over(&device, |backend| Hooked {
        inner: immediate(backend),
        before_allocate: Box::new(before_allocate),
        before_release: Box::new(|| {}),
    });
    assert!(outside.set(rig.allocator.clone()).is_ok());
    (rig, script)
}

const BLOCK: usize = 384 * KIB;

#[test]
fn what_comes_back_while_the_inner_allocator_is_asked_is_found() {
    let (rig, script) = scripted(MIB);
    let [first, second, idle] =
        [BLOCK, BLOCK, 4 * KIB].map(|bytes| rig.allocator.allocate(bytes).unwrap());
    rig.allocator.release(idle, &[]).unwrap();
    script.then(|_| {});
    // The idle segment has gone back, and all that was free has been looked through.
    script.then(|outside| outside.release(first, &[]).unwrap());
    let found = rig.allocator.allocate(BLOCK).unwrap();
    assert!(script.is_done());
    for block in [second, found] {
        rig.allocator.release(block, &[]).unwrap();
    }
    // The allocator is inside itself.
    assert_eq!(rig.allocator.free_idle(), 2 * BLOCK as u64);
    assert_eq!(rig.device.statistics().live_blocks, 0);
}

#[test]
fn what_comes_back_is_found_also_where_no_segment_has_gone() {
    let (rig, script) = scripted(MIB);
    let [first, second, small, other] =
        [BLOCK, BLOCK, 4 * KIB, 4 * KIB].map(|bytes| rig.allocator.allocate(bytes).unwrap());
    // Too little, but reason to ask again.
    script.then(|outside| outside.release(small, &[]).unwrap());
    script.then(|outside| outside.release(first, &[]).unwrap());
    let found = rig.allocator.allocate(BLOCK).unwrap();
    assert!(script.is_done());
    for block in [second, other, found] {
        rig.allocator.release(block, &[]).unwrap();
    }
    assert!(rig.allocator.free_idle() > 2 * BLOCK as u64);
    assert_eq!(rig.device.statistics().live_blocks, 0);
}

#[test]
fn threads_share_an_allocator_that_is_short_of_memory() {
    let device = MockDevice::builder()
        .capacity_bytes(512 * KIB as u64)
        .completion(Completion::Seeded(7))
        .host_waits(HostWait::Block)
        .build();
    let rig = Rig::over(&device, immediate);
    thread::scope(|scope| {
        for thread in 0..4_u8 {
            let rig = &rig;
            scope.spawn(move || {
                let queue = rig.backend.create_queue(QueueOrder::InOrder).unwrap();
                for round in 0..300_usize {
                    // At most a quarter of the device each, in blocks that always fit if all others are released.
                    let bytes = 1 + (round * 7919 + usize::from(thread) * 31) % (60 * KIB);
                    let block = match rig.allocator.allocate(bytes) {
                        Ok(block) => block,
                        Err(error) => panic!("{error} of {bytes}: {:?}", rig.allocator),
                    };
                    let mark = thread * 50 + u8::try_from(round % 50).unwrap();
                    let all = Region::first(block.bytes());
                    let fill = rig
                        .backend
                        .enqueue_fill(&queue, &block, all, &[mark])
                        .unwrap();
                    let read = rig.backend.enqueue_read(&queue, &block, all).unwrap();
                    let events = [fill, read.event().clone()];
                    rig.allocator.release(block, &events).unwrap();
                    let found = read.wait().unwrap();
                    assert!(found.iter().all(|byte| *byte == mark), "{mark}");
                }
            });
        }
    });
    rig.device.run();
    rig.allocator.free_idle();
    rig.ends_clean();
}
