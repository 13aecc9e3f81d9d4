//! Pools that have seen what the program does: they come to rest, within a bound, and memory leaves once it is not asked for.

use std::time::Duration;

use binpool::{
    Allocator, Backend, GrowthPolicy, ImmediateAllocator, MemoryPool, PoolOptions, PooledBuffer,
    QueueOrder, VirtualMemoryAllocator,
};
use binpool_conformance::Random;
use binpool_mock::{CallKind, Completion, DeviceProfile, MockBackend, MockDevice, MockQueue};

use crate::common::{
    MIB,
    periodic::{self, Carves, Machine, Taken},
};

/// The calls by which memory comes from the device, goes to it or moves.
const CALLS: [CallKind; 5] = [
    CallKind::CreateBuffer,
    CallKind::Commit,
    CallKind::CreatePages,
    CallKind::Map,
    CallKind::Unmap,
];

/// What a program takes at most beyond what is in use once plans for it have failed, in percent: in segments, and in pages.
const MOST_BEYOND: [u64; 2] = [30, 15];

/// The rounds after which a program that repeats is planned.
const PLANNED: usize = 5;

/// A step of a program: it allocates this many MiB, or frees the block at this index.
#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate(usize),
    Free(usize),
}

/// A program that repeats.
struct Program {
    device: MockDevice,
    pool: MemoryPool<MockBackend>,
    /// The most bytes of blocks that were in use at once.
    peak: usize,
}

impl Program {
    fn new<A: Allocator<Backend = MockBackend>>(
        options: PoolOptions,
        capacity_mib: usize,
        allocator: impl FnOnce(&MockBackend) -> A,
    ) -> Self {
        let builder = MockDevice::builder().profile(DeviceProfile::h200());
        let builder = builder.virtual_memory(true);
        let device = builder.capacity_bytes((capacity_mib * MIB) as u64).build();
        let backend = device.backend();
        let queue: MockQueue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let pool = options.build(allocator(&backend), &queue).unwrap();
        Self {
            device,
            pool,
            peak: 0,
        }
    }

    fn calls(&self) -> u64 {
        CALLS.map(|kind| self.device.call_count(kind)).iter().sum()
    }

    /// Runs one round. Returns how many calls for memory it made.
    fn round(&mut self, steps: &[Step]) -> u64 {
        let before = self.calls();
        let mut blocks: Vec<PooledBuffer<MockBackend>> = Vec::new();
        for step in steps {
            // What a program takes on the host for an operation.
            self.device.pass(Duration::from_micros(10));
            match *step {
                Step::Allocate(bytes) => blocks.push(self.pool.allocate(bytes).unwrap()),
                Step::Free(number) => drop(blocks.swap_remove(number)),
            }
            let in_use = blocks.iter().map(PooledBuffer::class_size).sum();
            self.peak = self.peak.max(in_use);
        }
        drop(blocks);
        self.calls() - before
    }

    /// The calls of each of this many rounds.
    fn rounds(&mut self, rounds: usize, steps: &[Step]) -> Vec<u64> {
        (0..rounds).map(|_| self.round(steps)).collect()
    }

    /// The most that the pool has had beyond the most that was in use, in percent of that.
    fn percent_beyond(&self) -> u64 {
        let (managed, peak) = (self.pool.statistics().peak_managed_bytes, self.peak as u64);
        managed.saturating_sub(peak) * 100 / peak
    }

    /// Sweeps so often that nothing is left of what the pool has learned but the high water.
    fn forget(&self) {
        (0..64).for_each(|_| _ = self.pool.sweep());
        assert_eq!(self.pool.managed_bytes(), 0);
    }
}

fn with_segments(growth: GrowthPolicy) -> Program {
    Program::new(PoolOptions::new().growth(growth), 64 << 10, |backend| {
        ImmediateAllocator::new(backend).unwrap()
    })
}

fn with_pages(growth: GrowthPolicy) -> Program {
    Program::new(
        PoolOptions::new().growth(growth),
        64 << 10,
        VirtualMemoryAllocator::new,
    )
}

/// Blocks of these sizes in MiB, one at a time.
fn one_at_a_time(sizes: impl IntoIterator<Item = usize>) -> Vec<Step> {
    let steps = sizes
        .into_iter()
        .flat_map(|mib| [Step::Allocate(mib * MIB), Step::Free(0)]);
    steps.collect()
}

/// The steps of a program like a recorded one: some blocks that live long, and many of mixed sizes that live for a while.
fn mixed(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let mut steps: Vec<_> = (0..20)
        .map(|_| Step::Allocate(MIB + random.below(16 * MIB)))
        .collect();
    let mut live = steps.len();
    for _ in 0..300 {
        if live > 40 || (live > 20 && random.below(2) == 0) {
            steps.push(Step::Free(20 + random.below(live - 20)));
            live -= 1;
        } else {
            let most = [64 << 10, 2 * MIB, 40 * MIB][random.below(3)];
            steps.push(Step::Allocate(1 + random.below(most)));
            live += 1;
        }
    }
    steps
}

/// Checks that a program makes no call for memory once it has been planned, with at most 15 % more than the high water.
fn comes_to_rest(mut program: Program, steps: &[Step]) {
    let calls = program.rounds(20, steps);
    assert!(calls[0] > 0);
    assert_eq!(calls[PLANNED..], [0; 20 - PLANNED], "{calls:?}");
    let beyond = program.percent_beyond();
    assert!(beyond <= 15, "{beyond} %, {:?}", program.pool);
}

#[test]
fn a_program_that_repeats_asks_the_device_for_nothing_from_its_sixth_round_on() {
    let growth = GrowthPolicy::Balanced;
    for steps in [
        one_at_a_time([64, 96, 160]),
        one_at_a_time((1..=100).map(|step| 2 * step)),
    ] {
        comes_to_rest(with_segments(growth), &steps);
        comes_to_rest(with_pages(growth), &steps);
    }
    comes_to_rest(with_segments(growth), &mixed(1));
}

#[test]
fn programs_of_mixed_sizes_come_to_rest_in_segments() {
    // Those that call the device in any of the last twenty of sixty rounds.
    let mut restless = Vec::new();
    for seed in 1..10 {
        let calls = with_segments(GrowthPolicy::Balanced).rounds(60, &mixed(seed));
        let last: u64 = calls[40..].iter().sum();
        assert!(last <= calls[0], "{last}, program {seed}");
        restless.extend((last > 0).then_some(seed));
    }
    assert!(restless.len() <= 1, "{restless:?}");
}

#[test]
fn pages_of_programs_of_mixed_sizes_keep_to_their_budget_of_time_and_take_little_more_than_is_in_use()
 {
    let mut moved = Duration::ZERO;
    for seed in 1..10 {
        let mut program = with_pages(GrowthPolicy::Balanced);
        program.rounds(60, &mixed(seed));
        let beyond = program.percent_beyond();
        assert!(beyond <= 15, "{beyond} %, program {seed}");
        // The more time moves take, the more pages there are, and the fewer move. These programs last for tenths of a second.
        let spent = Duration::from_nanos(program.pool.statistics().move_nanoseconds);
        let passed = program.device.now() + Duration::from_secs(10);
        assert!(spent <= passed / 100 * 5, "{spent:?} of {passed:?}");
        moved += spent;
    }
    assert!(moved > Duration::from_millis(100), "{moved:?}");
}

#[test]
fn without_time_to_move_no_page_moves_while_the_device_has_others() {
    let of = |percent| {
        let options = PoolOptions::new().move_budget(percent);
        let mut program = Program::new(options, 64 << 10, VirtualMemoryAllocator::new);
        program.rounds(20, &mixed(1));
        (
            program.device.call_count(CallKind::Unmap),
            program.percent_beyond(),
        )
    };
    let ((moves, beyond), (none, more)) = (of(100), of(0));
    assert!(moves > 0 && none == 0, "{moves}, {none}");
    assert!(more > beyond, "{more} %, {beyond} %");
}

#[test]
fn the_densest_policy_keeps_nothing_for_what_is_asked_for_again() {
    let steps = one_at_a_time([64, 96, 160]);
    let (mut segments, mut pages) = (
        with_segments(GrowthPolicy::Dense),
        with_pages(GrowthPolicy::Dense),
    );
    // Each block replaces a segment in every round.
    assert_eq!(segments.rounds(20, &steps), [6; 20]);
    pages.rounds(20, &steps);
    assert_eq!((segments.percent_beyond(), pages.percent_beyond()), (0, 0));
}

/// Checks that a pool that was swept without requests does as one that asked for nothing again, for this many rounds.
fn forgets(new: impl Fn() -> Program, steps: &[Step], rounds: usize) {
    let mut program = new();
    program.rounds(10, steps);
    assert_eq!(program.round(steps), 0, "it is at rest");
    // A pool that knows the high water, and nothing else.
    let mut other = new();
    drop(other.pool.allocate(program.peak).unwrap());
    let [after, before] = [&mut program, &mut other].map(|program| {
        program.forget();
        let round = |_| (program.round(steps), program.pool.managed_bytes());
        (0..rounds).map(round).collect::<Vec<_>>()
    });
    assert_eq!(after, before);
}

#[test]
fn after_sweeps_without_requests_a_pool_grows_as_one_that_asked_for_nothing_again() {
    let growth = GrowthPolicy::Balanced;
    let steps = one_at_a_time([64, 96, 160]);
    forgets(|| with_segments(growth), &steps, 10);
    forgets(|| with_pages(growth), &steps, 10);
}

impl Program {
    /// What the pool manages now beyond the most that was in use, in percent of that.
    fn percent_beyond_now(&self) -> u64 {
        let (managed, peak) = (self.pool.managed_bytes(), self.peak as u64);
        managed.saturating_sub(peak) * 100 / peak
    }

    /// The most of that after each of some rounds.
    fn most_beyond(&mut self, rounds: impl IntoIterator<Item = Vec<Step>>) -> u64 {
        let after = |steps: Vec<Step>| {
            self.round(&steps);
            self.percent_beyond_now()
        };
        rounds.into_iter().map(after).max().unwrap_or(0)
    }
}

/// These steps with another size in each `every`th of those that allocate.
fn changed(steps: &[Step], every: usize, random: &mut Random) -> Vec<Step> {
    let steps = steps.iter().enumerate();
    let steps = steps.map(|(number, step)| match step {
        Step::Allocate(_) if number % every == every - 1 => {
            Step::Allocate(1 + random.below(40 * MIB))
        }
        same => *same,
    });
    steps.collect()
}

/// With segments and with pages.
fn pools() -> [Program; 2] {
    let growth = GrowthPolicy::Balanced;
    [with_segments(growth), with_pages(growth)]
}

#[test]
fn a_program_that_repeats_is_planned_and_takes_little_more_than_is_in_use() {
    let mut all = 0;
    for seed in 1..10 {
        for mut program in pools() {
            let steps = mixed(seed);
            program.rounds(PLANNED, &steps);
            let beyond = program.most_beyond(vec![steps; 5]);
            assert!(beyond <= 5, "{beyond} %, program {seed}");
            all += beyond;
        }
    }
    assert!(all <= 18, "{all} % of 18 pools");
}

#[test]
fn a_planned_program_that_changes_takes_no_more_than_others() {
    for seed in 1..10 {
        // A third of its blocks, a few of them, or one.
        for every in [3, 30, 300] {
            for (mut program, most) in pools().into_iter().zip(MOST_BEYOND) {
                let steps = mixed(seed);
                program.rounds(2 * PLANNED, &steps);
                let mut random = Random::new(seed);
                let later = (0..8).map(|_| changed(&steps, every, &mut random));
                let beyond = program.most_beyond(later);
                assert!(
                    beyond <= most,
                    "{beyond} %, program {seed}, every {every}th"
                );
            }
        }
    }
}

/// The worst for plans: rounds that repeat just until the program is planned, and then one that does not, again and again. So each plan is of no use.
#[test]
fn a_program_that_changes_whenever_it_is_planned_takes_no_more_than_others() {
    for seed in 1..10 {
        for (mut program, most) in pools().into_iter().zip(MOST_BEYOND) {
            let mut random = Random::new(seed);
            let mut steps = mixed(seed);
            program.rounds(PLANNED, &steps);
            let beyond = program.most_beyond((0..60).map(|round| {
                if round % 4 == 0 {
                    steps = changed(&steps, 10, &mut random);
                }
                steps.clone()
            }));
            assert!(beyond <= most, "{beyond} %, program {seed}");
        }
    }
}

/// The blocks of each of two threads repeat, but those of both together may not: their periods have different lengths, or the same one.
#[test]
fn two_threads_of_one_arena_that_repeat_work_of_their_own_take_no_more_than_others() {
    for (carves, most) in [Carves::Buffers, Carves::Pages]
        .into_iter()
        .zip(MOST_BEYOND)
    {
        for (seed, length) in (1..6).flat_map(|seed| [(seed, 40), (seed, 56)]) {
            let machine = Machine::new(carves, Completion::AtOnce);
            let mut machine = machine.with_threads(2, true);
            let programs = [(seed, 40), (seed + 100, length)];
            let programs = programs.map(|(seed, blocks)| periodic::mixed(seed, blocks));
            let mut beyond = 0;
            for step in 0..400 {
                for (thread, program) in programs.iter().enumerate() {
                    let block = program[step % program.len()];
                    machine.take(Taken {
                        // The other thread takes as many.
                        life: 2 * block.life,
                        thread,
                        freed_by: thread,
                        ..block
                    });
                }
                if step >= 200 {
                    beyond = beyond.max(machine.percent_beyond());
                }
            }
            assert!(
                beyond <= most,
                "{beyond} %, {carves:?}, programs {seed}, {length}"
            );
            machine.end();
        }
    }
}

#[test]
fn where_memory_is_tight_nothing_is_kept_for_what_is_asked_for_again() {
    let steps = one_at_a_time([64, 96, 160]);
    // Memory is tight below twice of what was in use.
    for (capacity, is_tight) in [(319, true), (320, false)] {
        let mut program = Program::new(PoolOptions::new(), capacity, |backend| {
            ImmediateAllocator::new(backend).unwrap()
        });
        let calls = program.rounds(20, &steps);
        let goes_on = calls[2..].iter().all(|calls| *calls > 0);
        let rests = calls[2..].iter().all(|calls| *calls == 0);
        assert_eq!((goes_on, rests), (is_tight, !is_tight), "{calls:?}");
    }
}
