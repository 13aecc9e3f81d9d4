//! The high-water rule: a pool of bins manages little more than was in use at most, and releases only what no command uses.

use std::{sync::Barrier, thread};

use binpool::{PoolOptions, Retain};
use binpool_mock::{Completion, MockDevice};
use proptest::prelude::*;

use crate::common::{Block, MIB, Rig, class_size, every_call_fails_once};

fn bins(retain: Retain) -> PoolOptions {
    PoolOptions::new().segments(false).retain(retain)
}

fn exactly(percent: u32) -> Retain {
    Retain::new().percent_of_peak(percent).at_least(0)
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    Free(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1..64_000_usize).prop_map(Step::Allocate),
        any::<usize>().prop_map(Step::Free),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// On a device that runs commands at once: whatever is freed can be released, so the rule always holds, and nothing more
    /// is released than it demands.
    #[test]
    fn a_pool_of_bins_manages_at_most_so_much_more_than_was_in_use(
        steps in steps(),
        percent in 100..200_u32,
        least in prop_oneof![Just(0_u64), Just(100_000)],
    ) {
        let rig = Rig::with_options(MockDevice::builder(), bins(Retain::new().percent_of_peak(percent).at_least(least)));
        let mut live: Vec<(Block, u64)> = Vec::new();
        // Bytes that were released, and those of them that were asked for again.
        let (mut peak, mut gone, mut repeated) = (0, 0_u64, 0);
        for step in steps {
            match step {
                Step::Allocate(bytes) => {
                    let before = rig.pool.statistics();
                    let class = class_size(bytes);
                    let [most_class, most_repeated] = [3, 6].map(|halves| class_size(class * halves / 2));
                    let block = rig.pool.allocate(bytes).unwrap();
                    let block_bytes = block.class_size();
                    let in_use: u64 = live.iter().map(|(_, bytes)| bytes).sum();
                    live.push((block, block_bytes as u64));
                    let after = rig.pool.statistics();
                    let is_hit = after.misses == before.misses;
                    let asked = peak.max(in_use + class as u64);
                    let above = before.managed_bytes + class as u64 > (asked * u64::from(percent) / 100).max(least);
                    let is_own = is_hit && block_bytes == class;
                    if above && !is_own {
                        let again = gone.min(class as u64);
                        (gone, repeated) = (gone - again, repeated + again);
                        // Once as much was asked for again as was in use at the peak, larger ones serve.
                        let repeats = repeated >= peak;
                        let most = if repeats { most_repeated } else { most_class };
                        prop_assert!(block_bytes <= most);
                        gone += before.managed_bytes + u64::from(!is_hit) * block_bytes as u64 - after.managed_bytes;
                    } else {
                        prop_assert_eq!(block_bytes, class);
                    }
                    peak = peak.max(live.iter().map(|(_, bytes)| bytes).sum());
                    let most = (peak * u64::from(percent) / 100).max(least);
                    if after.misses > before.misses {
                        prop_assert!(after.managed_bytes <= most, "{} of {most}", after.managed_bytes);
                    } else {
                        prop_assert_eq!(after.managed_bytes, before.managed_bytes);
                    }
                    let is_released = after.released_blocks > before.released_blocks;
                    if is_released {
                        prop_assert!(before.managed_bytes + class as u64 > most, "{before:?} and {class}, of {most}");
                    }
                }
                Step::Free(_) if live.is_empty() => {}
                Step::Free(index) => drop(live.swap_remove(index % live.len())),
            }
        }
    }
}

#[test]
fn sizes_that_rise_and_repeat_are_served_by_the_largest_block_from_the_fifth_round_on() {
    let rig = Rig::with_options(MockDevice::builder(), bins(Retain::default()));
    for round in 0..20 {
        let before = rig.pool.statistics().misses;
        for mib in [64, 96, 160] {
            drop(rig.pool.allocate(mib * MIB).unwrap());
        }
        let misses = rig.pool.statistics().misses - before;
        assert!(round < 4 || misses == 0, "{misses} misses in round {round}");
    }
    // A sweep for each half that is forgotten: then small requests have small blocks again.
    for _ in 0..8 {
        rig.pool.sweep();
    }
    drop(rig.pool.allocate(160 * MIB).unwrap());
    assert_eq!(rig.pool.allocate(64 * MIB).unwrap().class_size(), 64 * MIB);
}

#[test]
fn a_free_block_up_to_half_as_large_again_is_taken_before_any_goes_back() {
    let rig = Rig::with_options(MockDevice::builder(), bins(exactly(150)));
    drop([1, 2, 3, 4].map(|mib| rig.pool.allocate(mib * MIB).unwrap()));
    // 10 MiB were in use, so 15 may be managed.
    let _five = rig.pool.allocate(5 * MIB).unwrap();
    let eighth = MIB / 8;
    let misses = rig.pool.statistics().misses;
    let larger = rig.pool.allocate(11 * eighth).unwrap();
    assert_eq!(larger.class_size(), 2 * MIB);
    let statistics = rig.pool.statistics();
    assert_eq!((statistics.misses, statistics.released_blocks), (misses, 0));
    // Those of 1 and of 3 MiB are too large and too small for this one. The smaller one is enough to go.
    let own = rig.pool.allocate(5 * eighth).unwrap();
    assert_eq!(own.class_size(), 5 * eighth);
    assert_eq!(rig.pool.statistics().released_blocks, 1);
    assert_eq!(rig.pool.managed_bytes(), (14 * MIB + 5 * eighth) as u64);
}

/// The bytes that a pool manages after each of these blocks, in MiB. It may manage 141 % of its peak.
fn managed_after(mib: &[usize]) -> Vec<u64> {
    let options = bins(exactly(141)).leading_bits(8);
    let rig = Rig::with_options(MockDevice::builder(), options);
    let managed = mib.iter().map(|mib| {
        drop(rig.pool.allocate(mib * MIB).unwrap());
        rig.pool.managed_bytes() / MIB as u64
    });
    managed.collect()
}

#[test]
fn a_request_that_fits_under_the_high_water_asks_for_nothing_again() {
    // That of 60 MiB releases the first one. 50 and 31 fit, so with the last one 19 MiB of these 100 are asked for again.
    let managed = managed_after(&[100, 60, 50, 31, 19]);
    assert_eq!(managed, [100, 60, 110, 141, 129]);
}

#[test]
fn much_larger_blocks_serve_once_more_than_the_peak_was_asked_for_again() {
    // 85 MiB go back for 90, and 90 for 100. With that of 90, both were asked for again.
    let managed = managed_after(&[85, 90, 100, 90, 40, 14]);
    assert_eq!(managed, [85, 90, 100, 100, 140, 140]);
    let managed = managed_after(&[85, 90, 100, 40, 14]);
    assert_eq!(managed, [85, 90, 100, 140, 114]);
}

#[test]
fn where_no_free_block_is_enough_the_largest_go_until_they_are() {
    let rig = Rig::with_options(MockDevice::builder(), bins(exactly(100)));
    drop([1, 2, 3, 4].map(|mib| rig.pool.allocate(mib * MIB).unwrap()));
    let _large = rig.pool.allocate(6 * MIB).unwrap();
    assert_eq!(rig.pool.statistics().released_blocks, 2);
    // That of 4 MiB, and then that of 2 is enough.
    assert_eq!(rig.pool.managed_bytes(), 10 * MIB as u64);
    for mib in [1, 3] {
        let misses = rig.pool.statistics().misses;
        drop(rig.pool.allocate(mib * MIB).unwrap());
        assert_eq!(rig.pool.statistics().misses, misses, "{mib} MiB are there");
    }
}

#[test]
fn what_commands_use_stays() {
    let rig = Rig::with_options(
        MockDevice::builder().completion(Completion::Manual),
        bins(exactly(100)),
    );
    let gate = rig.gate();
    drop(rig.gated(&rig.queue, &gate));
    let other = rig.pool.allocate(1000).unwrap();
    assert_eq!(rig.pool.statistics().released_blocks, 0, "a fill uses it");
    rig.open(&gate);
    rig.device.run();
    // By the marker that this request enqueues, the pool will see that the fill has ended.
    let more = rig.pool.allocate(2000).unwrap();
    rig.device.run();
    let last = rig.pool.allocate(3000).unwrap();
    assert_eq!(rig.pool.statistics().released_blocks, 1);
    assert_eq!(rig.pool.statistics().held_bytes, 0);
    drop((other, more, last));
    assert!(rig.device.violations().is_empty());
}

#[test]
fn blocks_in_thread_caches_of_other_threads_go_back_too() {
    let rig = Rig::with_options(MockDevice::builder(), bins(exactly(100)));
    let (cached, done) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            // Twice, so that it lies in the cache of this thread.
            drop(rig.pool.allocate(1000).unwrap());
            drop(rig.pool.allocate(1000).unwrap());
            cached.wait();
            done.wait();
        });
        cached.wait();
        let _large = rig.pool.allocate(MIB).unwrap();
        assert_eq!(rig.pool.managed_bytes(), MIB as u64);
        done.wait();
    });
}

#[test]
fn where_all_is_kept_nothing_goes_back() {
    for options in [
        bins(Retain::new().at_least(u64::MAX)),
        bins(Retain::default()), // 64 MiB may always lie there.
        PoolOptions::new().segments(true).retain(exactly(100)),
    ] {
        let rig = Rig::with_options(MockDevice::builder(), options);
        for kib in 1..200 {
            drop(rig.pool.allocate(kib << 10).unwrap());
        }
        assert_eq!(rig.pool.statistics().released_blocks, 0);
    }
}

#[test]
fn by_default_a_pool_of_bins_passes_its_peak_by_a_quarter() {
    let rig = Rig::with_capacity(1 << 34);
    for mib in 100..200 {
        drop(rig.pool.allocate(mib * MIB).unwrap());
        let most = (class_size(mib * MIB) * 5 / 4) as u64;
        assert!(rig.pool.managed_bytes() <= most, "{mib} MiB");
    }
}

#[test]
fn nothing_is_lost_whichever_call_fails() {
    let new_rig = || {
        Rig::with_options(
            MockDevice::builder().capacity_bytes(1 << 20),
            bins(exactly(100)),
        )
    };
    every_call_fails_once(new_rig, 1 << 19, |rig, other| {
        for kib in [10, 20, 30, 15, 25, 40] {
            let block = rig.pool.allocate(kib << 10)?;
            block.enqueue_fill(&rig.queue, 0..1024, &[1_u8])?;
            let second = rig.pool.allocate_on(other, kib << 9)?;
            second.enqueue_fill(other, 0..1024, &[2_u8])?;
        }
        Ok(())
    });
}
