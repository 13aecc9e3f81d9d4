//! What the pool does about a full device, and what it says when nothing helps.

use std::{
    error::Error as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use binpool::{Backend, MemoryFlags, PoolOptions, Queue, QueueOrder, Verdict};
use binpool_mock::{CallKind, Completion, Fault, MockDevice, Persistence};
use parking_lot::Mutex;

use crate::common::{MIB, Rig, SMALLEST};

#[test]
fn held_blocks_of_other_classes_make_room() {
    let rig = Rig::with_capacity(MIB);
    for size in [MIB / 2, MIB / 4, MIB / 8] {
        drop(rig.pool.allocate(size).unwrap());
    }
    let block = rig.pool.allocate(MIB).unwrap();
    assert_eq!(block.class_size(), MIB);
    assert_eq!(rig.pool.held_blocks(), 0);
}

#[test]
fn no_more_is_released_than_needed_largest_first() {
    let rig = Rig::with_capacity(MIB);
    let blocks = [MIB / 2, MIB / 4, MIB / 8].map(|size| rig.pool.allocate(size).unwrap());
    drop(blocks);
    // An eighth of the device is free already, and half of it is freed for this.
    let _block = rig.pool.allocate(MIB / 2 + MIB / 16).unwrap();
    assert_eq!(rig.pool.held_blocks(), 1);
    assert_eq!(rig.pool.statistics().released_blocks, 2);
}

#[test]
fn a_larger_held_block_serves_where_the_device_is_full() {
    let rig = Rig::with_capacity(MIB);
    drop(rig.pool.allocate(MIB).unwrap());
    let calls = rig.device.call_count(CallKind::Release);
    let block = rig.pool.allocate(MIB / 2).unwrap();
    assert_eq!((block.size(), block.class_size()), (MIB / 2, MIB));
    // The block kept its size: nothing was freed but the buffer that could not be committed.
    assert_eq!(rig.pool.statistics().released_blocks, 0);
    assert_eq!(rig.device.call_count(CallKind::Release), calls + 1);
    drop(block);
    // It went back to the bin of its own class.
    assert_eq!(rig.pool.allocate(MIB).unwrap().class_size(), MIB);
    assert_eq!(rig.pool.statistics().hits, 2);
}

#[test]
fn a_held_block_that_is_much_too_large_goes_back_instead() {
    let rig = Rig::with_capacity(MIB);
    drop(rig.pool.allocate(MIB).unwrap());
    let small = rig.pool.allocate(1000).unwrap();
    assert_eq!(small.class_size(), 1024);
    assert_eq!(rig.pool.statistics().released_blocks, 1);
    // What the small one did not take is there for others.
    assert!(rig.pool.allocate(MIB / 2).is_ok());
}

#[test]
fn reclaiming_takes_few_calls_however_many_blocks_are_held() {
    let rig = Rig::with_capacity(MIB);
    let blocks: Vec<_> = (0..64)
        .map(|_| rig.pool.allocate(MIB / 64).unwrap())
        .collect();
    drop(blocks);
    let before = rig.device.call_count(CallKind::Commit);
    let _block = rig.pool.allocate(MIB).unwrap();
    assert_eq!(rig.device.call_count(CallKind::Commit) - before, 2);
}

#[test]
fn a_hook_that_frees_memory_outside_the_pool_helps_a_pool_that_holds_nothing() {
    let rig = Rig::with_capacity(MIB);
    let outside = rig
        .backend
        .create_buffer(MIB, MemoryFlags::empty())
        .unwrap();
    rig.backend.commit(&rig.queue, &outside).unwrap();
    let outside = Mutex::new(Some(outside));
    rig.pool
        .add_reclaim_hook(move |_| outside.lock().take().is_some());
    assert_eq!(rig.pool.allocate(MIB).unwrap().size(), MIB);
}

#[test]
fn a_hook_may_drop_pooled_blocks_and_use_the_pool() {
    let rig = Rig::with_capacity(MIB);
    let cache = Mutex::new(vec![rig.pool.allocate(MIB / 2).unwrap()]);
    let _full = rig.pool.allocate(MIB / 2).unwrap();
    let pool = rig.pool.clone();
    let hook = rig.pool.add_reclaim_hook(move |shortage| {
        assert_eq!(shortage.bytes, MIB / 2);
        cache.lock().clear();
        drop(pool.allocate(SMALLEST).unwrap());
        assert!(pool.statistics().held_blocks > 0);
        false
    });
    assert!(rig.pool.allocate(MIB / 2).is_ok());
    // The hook holds the pool, which holds the hook.
    assert!(rig.pool.remove_reclaim_hook(hook));
    assert!(!rig.pool.remove_reclaim_hook(hook));
}

#[test]
fn hooks_are_called_in_order_until_one_helps() {
    let rig = Rig::with_capacity(MIB);
    let called = Arc::new(Mutex::new(Vec::new()));
    let note = |number| {
        let called = Arc::clone(&called);
        move |_: &binpool::Shortage| {
            called.lock().push(number);
            false
        }
    };
    let removed = rig.pool.add_reclaim_hook(note(0));
    rig.pool.add_reclaim_hook(note(1));
    rig.pool.remove_reclaim_hook(removed);
    // Takes the key that the removed hook had.
    rig.pool.add_reclaim_hook(note(2));
    let cache = Mutex::new(Some(rig.pool.allocate(MIB).unwrap()));
    rig.pool
        .add_reclaim_hook(move |_| cache.lock().take().is_some());
    rig.pool.add_reclaim_hook(note(3));
    assert!(rig.pool.allocate(MIB).is_ok());
    assert_eq!(*called.lock(), [1, 2]);
}

#[test]
fn a_hook_is_called_again_while_it_says_that_it_freed_something() {
    let rig = Rig::with_capacity(MIB);
    let cache: Vec<_> = (0..4)
        .map(|_| rig.pool.allocate(MIB / 4).unwrap())
        .collect();
    let (cache, calls) = (Mutex::new(cache), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&calls);
    rig.pool.add_reclaim_hook(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        cache.lock().pop().is_some()
    });
    let half = rig.pool.allocate(MIB / 2).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2, "no more than it needs");
    // Two blocks are left, and then nothing.
    assert!(rig.pool.allocate(MIB).is_err());
    assert_eq!(calls.load(Ordering::Relaxed), 5);
    drop(half);
}

#[test]
fn a_hook_that_always_says_that_it_freed_something_ends_too() {
    let rig = Rig::with_capacity(MIB);
    let calls = Arc::new(AtomicUsize::new(0));
    let counts = [Arc::clone(&calls), Arc::clone(&calls)];
    for count in counts {
        rig.pool.add_reclaim_hook(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            true
        });
    }
    let full = rig.pool.allocate(MIB).unwrap();
    assert!(rig.pool.allocate(MIB).unwrap_err().is_out_of_memory());
    assert_eq!(calls.load(Ordering::Relaxed), 200);
    drop(full);
}

#[test]
fn a_hook_that_panics_does_no_harm() {
    let rig = Rig::with_capacity(MIB);
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    rig.pool
        .add_reclaim_hook(|_| panic!("this hook always panics"));
    rig.pool.add_reclaim_hook(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        false
    });
    let full = rig.pool.allocate(MIB).unwrap();
    assert!(rig.pool.allocate(MIB).unwrap_err().is_out_of_memory());
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    drop(full);
    assert!(rig.pool.allocate(MIB).is_ok());
}

#[test]
fn giving_up_explains_itself() {
    let rig = Rig::with_capacity(MIB);
    let _active = rig.pool.allocate(MIB / 2 - 100).unwrap();
    drop(rig.pool.allocate(MIB / 4).unwrap());
    let error = rig.pool.allocate(MIB / 2 + 1).unwrap_err();
    let report = error.out_of_memory().unwrap();
    assert_eq!(report.verdict, Verdict::DeviceFull);
    assert_eq!(report.requested_bytes, MIB / 2 + 1);
    assert_eq!(report.class_bytes, MIB / 2 + MIB / 32);
    assert_eq!(report.active_bytes, (MIB / 2 - 100) as u64);
    assert_eq!(report.active_blocks, 1);
    assert_eq!(report.managed_bytes, (MIB / 2) as u64);
    assert_eq!(report.held_bytes, 0);
    assert_eq!(report.released_bytes, (MIB / 4) as u64);
    assert_eq!(report.capacity_bytes, MIB as u64);
    // The backend's own error is at the end of the chain.
    let refusal = error.source().unwrap();
    assert!(refusal.source().is_some(), "{refusal:?}");
    let text = error.to_string();
    for part in [
        "out of memory: could not allocate 512.0 KiB (a block of 544.0 KiB)",
        "511.9 KiB   in 1 block",
        "the device is full",
        "advice",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert_eq!(rig.pool.statistics().out_of_memory, 1);
}

#[test]
fn a_block_larger_than_the_device_gives_never_fits() {
    let builder = MockDevice::builder()
        .capacity_bytes(MIB as u64)
        .largest_block_bytes(MIB / 4);
    let rig = Rig::on(builder);
    drop(rig.pool.allocate(MIB / 8).unwrap());
    let calls = rig.device.statistics().calls;
    for size in [MIB / 4 + 1, MIB, usize::MAX - 1, usize::MAX] {
        let error = rig.pool.allocate(size).unwrap_err();
        let report = error.out_of_memory().unwrap();
        assert_eq!(report.verdict, Verdict::NeverFits);
        assert_eq!(report.requested_bytes, size);
        assert_eq!(report.largest_block_bytes, MIB / 4);
    }
    // Nothing was freed for it, and the device was not asked.
    assert_eq!(rig.device.statistics().calls, calls);
    assert_eq!(rig.pool.held_blocks(), 1);
}

#[test]
fn the_largest_block_can_be_had_though_its_class_is_larger() {
    // Not a class size: the class ends on 34/32 MiB, beyond what the device gives.
    let largest = MIB + MIB / 64;
    let builder = MockDevice::builder()
        .capacity_bytes(8 * MIB as u64)
        .largest_block_bytes(largest);
    let rig = Rig::on(builder);
    let block = rig.pool.allocate(largest).unwrap();
    assert_eq!(block.class_size(), largest);
    drop(block);
    assert_eq!(rig.pool.allocate(largest).unwrap().class_size(), largest);
    assert_eq!(rig.pool.statistics().hits, 1);
}

#[test]
fn a_bin_of_exact_sizes_hands_out_no_block_that_is_too_small() {
    let largest = MIB + MIB / 64;
    let builder = MockDevice::builder()
        .capacity_bytes(8 * MIB as u64)
        .largest_block_bytes(largest);
    let rig = Rig::on(builder);
    let small = rig.pool.allocate(MIB + SMALLEST).unwrap();
    assert_eq!(small.class_size(), MIB + SMALLEST);
    drop(small);
    assert_eq!(rig.pool.allocate(largest).unwrap().class_size(), largest);
    assert_eq!(rig.pool.statistics().misses, 2);
    // Both are held now, and each request finds one that fits.
    let both = [MIB + 1, largest].map(|size| rig.pool.allocate(size).unwrap());
    assert!(both[0].class_size() > MIB);
    assert_eq!(both[1].class_size(), largest);
}

#[test]
fn memory_held_for_another_queue_is_reclaimed_after_its_commands() {
    let rig = Rig::on(
        MockDevice::builder()
            .capacity_bytes(MIB as u64)
            .completion(Completion::Manual),
    );
    let other = rig.another_queue(QueueOrder::InOrder);
    let block = rig.pool.allocate_on(&other, MIB).unwrap();
    block.enqueue_fill(&other, 0..MIB, &[1_u8]).unwrap();
    drop(block);
    // The device keeps the buffer until the fill has run, so this has to wait for the other queue.
    assert_eq!(rig.device.pending_commands(), 1);
    let block = rig.pool.allocate(MIB).unwrap();
    assert_eq!(rig.device.pending_commands(), 0);
    assert_eq!(block.size(), MIB);
}

#[test]
fn memory_that_stuck_commands_hold_is_called_pending() {
    let rig = Rig::with_capacity(MIB);
    let other = rig.another_queue(QueueOrder::InOrder);
    let gate = rig.backend.create_user_event().unwrap();
    let block = rig.pool.allocate_on(&other, MIB).unwrap();
    block
        .enqueue_fill(other.after(std::slice::from_ref(&gate)), 0..MIB, &[1_u8])
        .unwrap();
    drop(block);
    let error = rig.pool.allocate(MIB).unwrap_err();
    assert_eq!(error.out_of_memory().unwrap().verdict, Verdict::Pending);
    rig.backend
        .resolve_user_event(&gate, binpool::Outcome::Complete)
        .unwrap();
    assert!(rig.pool.allocate(MIB).is_ok());
}

#[test]
fn trimming_gives_back_no_more_than_is_needed() {
    let rig = Rig::with_capacity(MIB);
    let active = rig.pool.allocate(1000).unwrap();
    drop([1 << 12, 1 << 14, 1 << 16].map(|bytes| rig.pool.allocate(bytes).unwrap()));
    let managed = rig.pool.managed_bytes();
    assert_eq!(rig.pool.trim_to(managed), 0);
    assert_eq!(rig.pool.trim_to(managed - 1), 1 << 16);
    assert_eq!(rig.pool.trim_to(0), (1 << 14) + (1 << 12));
    assert_eq!(rig.pool.managed_bytes(), 1024);
    assert_eq!(rig.blocks_on_device(), 1);
    drop(active);
}

#[test]
fn trimming_takes_what_commands_still_use_last() {
    for segments in [false, true] {
        let builder = MockDevice::builder().completion(Completion::Manual);
        let rig = Rig::with_options(builder, PoolOptions::new().segments(segments));
        let gate = rig.gate();
        drop(rig.gated(&rig.queue, &gate));
        let managed = rig.pool.managed_bytes();
        assert_eq!(rig.pool.trim_to(0), managed, "segments: {segments}");
        // Its command keeps it until it has ended.
        assert_eq!(rig.blocks_on_device(), 1);
        rig.open(&gate);
        rig.device.run();
        assert_eq!(rig.blocks_on_device(), 0);
        assert!(rig.device.violations().is_empty());
    }
}

#[test]
fn giving_back_what_is_enough_comes_before_hooks_and_before_all_the_rest() {
    let rig = Rig::with_capacity(8192);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    rig.pool.add_reclaim_hook(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        false
    });
    drop([(); 2].map(|()| rig.pool.allocate(4096).unwrap()));
    // Takes note that nothing uses the two.
    rig.pool.sweep();
    let _block = rig.pool.allocate(1000).unwrap();
    assert_eq!(rig.pool.statistics().held_bytes, 4096);
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[test]
fn trimming_stops_at_what_is_just_enough() {
    let rig = Rig::with_capacity(MIB);
    drop([(); 3].map(|()| rig.pool.allocate(4096).unwrap()));
    assert_eq!(rig.pool.trim_to(8192), 4096);
    assert_eq!(rig.pool.managed_bytes(), 8192);
}

#[test]
fn a_device_that_is_full_of_blocks_in_use_is_asked_twice() {
    let rig = Rig::with_capacity(MIB);
    let _full = rig.pool.allocate(MIB).unwrap();
    let before = rig.device.call_count(CallKind::Commit);
    assert!(rig.pool.allocate(MIB).is_err());
    // Other threads, whose memory is not the pool's, may have given some back meanwhile.
    assert_eq!(rig.device.call_count(CallKind::Commit) - before, 2);
}

#[test]
fn reclaiming_ends_with_a_failure_that_is_no_shortage() {
    let rig = Rig::with_capacity(MIB);
    let _full = rig.pool.allocate(MIB).unwrap();
    rig.device
        .fail_nth(CallKind::Commit, 2, Fault::DeviceLost, Persistence::Once);
    let error = rig.pool.allocate(MIB).unwrap_err();
    assert!(!error.is_out_of_memory(), "{error}");
    assert_eq!(rig.pool.statistics().out_of_memory, 0);
}

#[test]
fn a_queue_that_cannot_be_waited_for_is_told_of_however_little_it_holds() {
    let rig = Rig::with_capacity(MIB);
    let other = rig.another_queue(QueueOrder::InOrder);
    let gate = rig.gate();
    drop(rig.gated(&other, &gate));
    let error = rig.pool.allocate(MIB).unwrap_err();
    let report = error.out_of_memory().unwrap();
    assert_eq!(report.verdict, Verdict::Pending);
    assert_eq!(report.pending_bytes, SMALLEST as u64);
    assert_eq!(report.largest_held_bytes, SMALLEST as u64);
    rig.open(&gate);
}

#[test]
fn a_report_counts_what_is_cached() {
    let builder = MockDevice::builder().largest_block_bytes(MIB);
    let rig = Rig::on(builder);
    drop([MIB / 8, MIB / 4].map(|bytes| rig.pool.allocate(bytes).unwrap()));
    let error = rig.pool.allocate(MIB + 1).unwrap_err();
    let report = error.out_of_memory().unwrap();
    assert_eq!(report.verdict, Verdict::NeverFits);
    assert_eq!(report.held_bytes, (MIB / 8 + MIB / 4) as u64);
    assert_eq!(report.largest_held_bytes, (MIB / 4) as u64);
}

#[test]
fn people_get_a_table() {
    let rig = Rig::with_capacity(MIB);
    let _active = rig.pool.allocate(MIB / 2).unwrap();
    let text = |bytes| format!("{}", rig.pool.allocate(bytes).unwrap_err());
    let rounded = text(MIB / 2 + 1);
    let lines: Vec<_> = rounded.lines().collect();
    assert_eq!(
        lines[0],
        "out of memory: could not allocate 512.0 KiB (a block of 544.0 KiB): the device is full"
    );
    assert_eq!(
        lines[2],
        "  in use            512.0 KiB   in 1 block; `watch` the pool to see whose"
    );
    assert_eq!(
        lines[7],
        "  the device          1.0 MiB   at most 1.0 MiB in one piece"
    );
    assert!(lines[9].starts_with("advice: free blocks"), "{rounded}");
    assert_eq!(lines.len(), 10);
    let exact = text(3 * MIB / 4);
    let first = exact.lines().next().unwrap();
    assert_eq!(
        first,
        "out of memory: could not allocate 768.0 KiB: the device is full"
    );
}

#[test]
fn a_device_that_is_full_of_other_memory_is_told_from_one_that_the_pool_fills() {
    let rig = Rig::with_capacity(MIB);
    let outside = rig
        .backend
        .create_buffer(MIB, MemoryFlags::empty())
        .unwrap();
    rig.backend.commit(&rig.queue, &outside).unwrap();
    let text = rig.pool.allocate(MIB / 2).unwrap_err().to_string();
    for part in [
        "could not allocate 512.0 KiB: the device is full of memory outside the pool",
        "advice: free memory outside the pool",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(!text.contains("free blocks"), "{text}");
}
