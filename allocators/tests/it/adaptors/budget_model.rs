//! Budgets against a simple model: a list of sizes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use binpool_allocators::{
    Allocator, Error, Memory, MemoryOf, OutOfMemory, Scope,
    adaptors::{Budget, Limit},
};
use proptest::{collection::vec, prelude::*};

use crate::adaptors::{KIB, device, odd::Odd};

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    /// One that the allocator itself fails.
    AllocateInVain(usize),
    Release(usize),
    SetMax(u64),
}

const MAX: u64 = 16 * KIB as u64;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..6 * KIB).prop_map(Step::Allocate),
        1 => (1..6 * KIB).prop_map(Step::AllocateInVain),
        3 => any::<usize>().prop_map(Step::Release),
        1 => (0..2 * MAX).prop_map(Step::SetMax),
    ];
    vec(step, 1..60)
}

/// Fails what is in vain, which is told by an odd number of bytes.
fn refuse_odd(bytes: usize) -> Result<(), Error> {
    if bytes % 2 == 1 {
        return Err(OutOfMemory::new(bytes, Scope::Device).into());
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_budget_counts_as_the_model_does(steps in steps()) {
        let limit = Limit::new(Odd::generous(&device()).on_allocate(refuse_odd), MAX);
        let budget = limit.budget();
        let mut live: Vec<MemoryOf<Odd>> = Vec::new();
        let (mut max, mut peak) = (MAX, 0);
        for step in steps {
            let used: u64 = live.iter().map(|block| block.bytes() as u64).sum();
            let free = max.saturating_sub(used);
            match step {
                Step::Allocate(bytes) => {
                    let bytes = bytes.next_multiple_of(2);
                    let given = bytes.next_multiple_of(KIB) as u64;
                    let block = limit.allocate(bytes);
                    prop_assert_eq!(block.is_ok(), given <= free, "{} of {}", given, free);
                    match block {
                        Ok(block) => {
                            peak = peak.max(used + given);
                            live.push(block);
                        }
                        Err(Error::OutOfMemory(refusal)) => {
                            prop_assert_eq!(refusal.scope, Scope::Limit);
                            prop_assert_eq!(refusal.available, Some(free));
                        }
                        Err(error) => prop_assert!(false, "{:?}", error),
                    }
                }
                Step::AllocateInVain(bytes) => prop_assert!(limit.allocate(bytes | 1).is_err()),
                Step::Release(which) if !live.is_empty() => {
                    let block = live.swap_remove(which % live.len());
                    limit.release(block, &[]).unwrap();
                }
                Step::Release(_) => {}
                Step::SetMax(bytes) => {
                    max = bytes;
                    budget.set_max_bytes(max);
                }
            }
            let used: u64 = live.iter().map(|block| block.bytes() as u64).sum();
            prop_assert_eq!(budget.used_bytes(), used);
            prop_assert_eq!(budget.available_bytes(), max.saturating_sub(used));
            prop_assert_eq!(budget.peak_bytes(), peak);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn threads_that_share_a_budget_stay_within_it_and_leave_nothing(
        programs in vec(steps(), 2..5), generous in any::<bool>(),
    ) {
        // What really is out, counted below the limit: a block before it is there and until it is gone.
        let out = Arc::new(AtomicU64::new(0));
        let most = Arc::new(AtomicU64::new(0));
        let budget = Budget::new(MAX);
        thread::scope(|scope| {
            for program in &programs {
                let odd = Odd::new(&device());
                let grain = if generous { KIB } else { odd.grain };
                let (taken, high, returned) = (Arc::clone(&out), Arc::clone(&most), Arc::clone(&out));
                let odd = Odd { grain, ..odd }
                    .on_allocate(move |bytes| {
                        refuse_odd(bytes)?;
                        let out = taken.fetch_add(bytes as u64, Ordering::SeqCst) + bytes as u64;
                        high.fetch_max(out, Ordering::SeqCst);
                        thread::yield_now();
                        Ok(())
                    })
                    .on_release(move |bytes| {
                        returned.fetch_sub(bytes as u64, Ordering::SeqCst);
                        Ok(())
                    });
                let limit = Limit::shared(odd, &budget);
                scope.spawn(move || {
                    let mut live = Vec::new();
                    for step in program {
                        match step {
                            Step::Allocate(bytes) => {
                                let unit = if generous { KIB } else { 2 };
                                live.extend(limit.allocate(bytes.next_multiple_of(unit)));
                            }
                            Step::AllocateInVain(bytes) => assert!(limit.allocate(bytes | 1).is_err()),
                            Step::Release(which) if !live.is_empty() => {
                                let block = live.swap_remove(which % live.len());
                                limit.release(block, &[]).unwrap();
                            }
                            // No other thread changes it meanwhile: the bound below is that of all.
                            Step::Release(_) | Step::SetMax(_) => {}
                        }
                    }
                    for block in live {
                        limit.release(block, &[]).unwrap();
                    }
                });
            }
        });
        prop_assert_eq!(out.load(Ordering::SeqCst), 0);
        prop_assert!(most.load(Ordering::SeqCst) <= MAX);
        prop_assert!(budget.peak_bytes() <= MAX);
        prop_assert_eq!((budget.used_bytes(), budget.available_bytes()), (0, MAX));
    }
}
