//! Plans for programs that repeat their work: blocks lie where they lay in the last period, and whatever a program does instead, none is
//! handed out twice, none is overwritten, and everything goes back.

use std::cell::Cell;

use binpool_mock::Completion;
use proptest::{
    prelude::*,
    sample::Index,
    test_runner::{TestError, TestRunner},
};

use crate::common::{
    MIB,
    periodic::{Carves, Machine, Taken, mixed},
};

/// The periods after which most programs that repeat are planned.
const PLANNED: usize = 5;

/// A program, which repeats but for some periods.
#[derive(Clone, Debug)]
struct Program {
    carves: Carves,
    seed: u64,
    threads: usize,
    share_an_arena: bool,
    queues: usize,
    period: Vec<Taken>,
    deviations: Vec<Deviation>,
}

/// After some periods, one with something else at this block: once, or from then on.
#[derive(Clone, Debug)]
struct Deviation {
    after: usize,
    block: Index,
    change: Change,
    stays: bool,
}

#[derive(Clone, Debug)]
enum Change {
    Resize(usize),
    Live(usize),
    OnTheOtherQueue,
    InAnotherThread,
    Skip,
    Again,
    First,
    Trim,
    Sweep,
    Run,
}

fn any_bytes() -> impl Strategy<Value = usize> {
    prop_oneof![8 => MIB..40 * MIB, 1 => 1..8_usize << 10]
}

fn any_program() -> impl Strategy<Value = Program> {
    let carves = prop::sample::select(&[Carves::Buffers, Carves::Shared, Carves::Pages][..]);
    let threads = (1..=3_usize, any::<bool>(), 1..=2_usize);
    let block = (any_bytes(), 1..10_usize, 0..3_usize, 0..3_usize, 0..2_usize);
    let period = prop::collection::vec(block, 12..40);
    let deviations = prop::collection::vec(any_deviation(), 1..6);
    let all = (
        carves,
        any::<u64>(),
        threads,
        any::<bool>(),
        period,
        deviations,
    );
    all.prop_map(|(carves, seed, threads, live_on, period, deviations)| {
        let (threads, share_an_arena, queues) = threads;
        let left = (1..=period.len()).rev();
        let blocks = period.into_iter().zip(left);
        let blocks = blocks.map(|((bytes, life, thread, freed_by, queue), left)| Taken {
            bytes,
            // Some live on into the next period.
            life: if live_on && life == 9 {
                life
            } else {
                life.min(left)
            },
            thread,
            freed_by,
            queue: queue % queues,
        });
        let period = blocks.collect();
        Program {
            carves,
            seed,
            threads,
            share_an_arena,
            queues,
            period,
            deviations,
        }
    })
}

fn any_deviation() -> impl Strategy<Value = Deviation> {
    let change = prop_oneof![
        any_bytes().prop_map(Change::Resize),
        (1..60_usize).prop_map(Change::Live),
        Just(Change::OnTheOtherQueue),
        Just(Change::InAnotherThread),
        Just(Change::Skip),
        Just(Change::Again),
        Just(Change::First),
        Just(Change::Trim),
        Just(Change::Sweep),
        Just(Change::Run),
    ];
    let all = (0..4_usize, any::<Index>(), change, any::<bool>());
    all.prop_map(|(after, block, change, stays)| Deviation {
        after,
        block,
        change,
        stays,
    })
}

impl Deviation {
    /// The period with this change.
    fn of(&self, period: &[Taken]) -> Vec<Taken> {
        let mut period = period.to_vec();
        let number = self.block.index(period.len());
        let block = period[number];
        match self.change {
            Change::Resize(bytes) => period[number].bytes = bytes,
            Change::Live(life) => period[number].life = life,
            Change::OnTheOtherQueue => period[number].queue = 1 - block.queue,
            Change::InAnotherThread => period[number].thread += 1,
            Change::Skip => _ = period.remove(number),
            Change::Again => period.insert(number, block),
            Change::First => period.swap(number, 0),
            Change::Trim | Change::Sweep | Change::Run => {}
        }
        period
    }

    /// Runs a period with this change.
    fn run(&self, machine: &mut Machine, changed: &[Taken]) {
        let (before, after) = changed.split_at(self.block.index(changed.len()));
        machine.period(before);
        match self.change {
            Change::Trim => _ = machine.pool.trim_to(0),
            Change::Sweep => _ = machine.pool.sweep(),
            Change::Run => _ = machine.device.run(),
            _ => {}
        }
        machine.period(after);
    }
}

impl Program {
    /// Runs it. Returns whether it was planned, if it is one that mostly is.
    fn run(&self) -> Option<bool> {
        let machine = Machine::new(self.carves, Completion::Seeded(self.seed));
        let mut machine = machine.with_threads(self.threads, self.share_an_arena);
        let mut period = self.period.clone();
        (0..PLANNED).for_each(|_| _ = machine.period(&period));
        let may_be_planned = self.queues == 1 && self.threads == 1 && machine.has_enough();
        let is_planned = may_be_planned && (0..8).any(|_| machine.follows_a_plan(&period));
        for deviation in &self.deviations {
            (0..deviation.after).for_each(|_| _ = machine.period(&period));
            let changed = deviation.of(&period);
            deviation.run(&mut machine, &changed);
            if deviation.stays {
                period = changed;
            }
        }
        machine.end();
        may_be_planned.then_some(is_planned)
    }
}

#[test]
fn programs_that_repeat_are_planned_and_share_no_byte_whatever_they_change() {
    let config = ProptestConfig {
        // Each takes a tenth of a second where nothing is optimized.
        cases: ProptestConfig::default().cases / 2,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    };
    let [all, planned] = [(); 2].map(|()| Cell::new(0));
    let found = TestRunner::new(config).run(&any_program(), |program| {
        if let Some(is_planned) = program.run() {
            all.set(all.get() + 1);
            planned.set(planned.get() + usize::from(is_planned));
        }
        Ok(())
    });
    if let Err(TestError::Fail(reason, program)) = found {
        panic!("{reason}\n{program:#?}");
    }
    // Without plans, one in eight has as little, and its blocks where they were.
    let (all, planned) = (all.get(), planned.get());
    assert!(planned * 3 > all, "{planned} of {all}");
}

#[test]
fn a_planned_block_has_the_same_address_in_each_period() {
    for carves in [Carves::Shared, Carves::Pages] {
        for seed in 2..=4 {
            let period = mixed(seed, 60);
            let mut machine = Machine::new(carves, Completion::Seeded(seed));
            (0..PLANNED).for_each(|_| _ = machine.period(&period));
            let first = machine.period(&period);
            for _ in 0..10 {
                assert_eq!(machine.period(&period), first, "{carves:?}");
            }
            assert!(machine.percent_beyond() <= 3, "{carves:?}");
            machine.end();
        }
    }
}

/// The first block of a plan is placed where the plan's segment is added. Nothing there asks which queue may have memory.
#[test]
fn the_first_block_of_a_plan_has_no_memory_that_another_queue_still_uses() {
    let machine = Machine::new(Carves::Buffers, Completion::Manual);
    let (pool, [queue, other]) = (&machine.pool, [&machine.queues[0], &machine.queues[1]]);
    let allocate = |mib: usize| pool.allocate_on(queue, mib * MIB).unwrap();
    let small = pool.managed_bytes();
    let managed_mib = || (pool.managed_bytes() - small) >> 20;
    // A segment that stays, and what another queue uses there.
    drop(pool.allocate_on(other, 40 * MIB).unwrap());
    let [kept, beside] = [10, 30].map(|mib| pool.allocate_on(other, mib * MIB).unwrap());
    machine.backend.enqueue_use(other, &beside).unwrap();
    let mut beside = Some(beside);
    for round in 1..=3 {
        let blocks = [90, 30].map(allocate);
        // A thread has for a while what it frees first.
        drop(pool.allocate_on(queue, 1).unwrap());
        drop(beside.take_if(|_| round == 3));
        blocks.into_iter().rev().for_each(drop);
    }
    assert_eq!(managed_mib(), 40 + 90 + 30);
    let first = allocate(30);
    assert_eq!(managed_mib(), 40 + 90, "the plan's segment, and no other");
    machine.backend.enqueue_use(queue, &first).unwrap();
    drop((first, kept));
    machine.end();
}
