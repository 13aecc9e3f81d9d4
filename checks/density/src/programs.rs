//! The programs, their copies, and what pools take for them.

use std::{error::Error, path::Path};

use binpool::{GrowthPolicy, PoolOptions};
use binpool_conformance::Random;
use binpool_recordings::Trace;
use binpool_replay::{
    AllocatorChoice, Device, Failure, Profile, ReplaySettings, Warm, on_all_cores,
};
use binpool_trace::TraceError;

use crate::{one_range, sheet::Figures};

/// The copies of each program, each with a seed of its own.
const COPIES: u64 = 8;

/// The same of the programs by which rules are judged. There are more of these.
const JUDGED_COPIES: u64 = 2;

/// How many times in a row a program is replayed.
const ROUNDS: usize = 8;

/// The last of these count, when the pool has planned what repeats.
const WARM_ROUNDS: usize = 2;

/// The same for programs by which rules are judged, by the second half: what creeps from round to round shows.
const JUDGED_ROUNDS: usize = 60;

/// What pools carve blocks from.
const SOURCES: [(&str, AllocatorChoice); 2] = [
    ("segments", AllocatorChoice::Immediate),
    ("pages", AllocatorChoice::VirtualMemory),
];

/// The figures of each policy, source and program.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) cold: Figures,
    pub(crate) warm: Figures,
    /// Warm, and the most of any round.
    judged: Figures,
}

/// What a pool takes for one program.
#[derive(Clone, Copy)]
struct Taken {
    /// In the first round, the most that is reserved over the most that is live.
    cold_reserved: f64,
    /// The same in the last rounds, or in the second half of many.
    warm_reserved: f64,
    /// The same in any round.
    most_reserved: f64,
    /// The calls of one of these rounds that take memory from the device, or with pages map some.
    warm_calls: f64,
}

/// What places the blocks of programs: a name, and the policy and the source of a pool, or best fit in one range.
type Rule = (String, Option<(GrowthPolicy, AllocatorChoice)>);

/// Returns the figures of the programs in these files, with each policy.
pub(crate) fn measured(files: &[String]) -> Result<Measured, Box<dyn Error>> {
    let policies = GrowthPolicy::ALL.into_iter();
    let rules = policies.flat_map(|policy| {
        SOURCES
            .map(|(source, allocator)| (format!("{policy:?}/{source}"), Some((policy, allocator))))
    });
    figures(files, COPIES, ROUNDS, &rules.collect::<Vec<_>>())
}

/// Returns the figures of the default pool on the programs in these files, after many rounds, and those of the simplest rule.
pub(crate) fn judged(files: &[String]) -> Result<Figures, Box<dyn Error>> {
    let pools = SOURCES.map(|(source, allocator)| {
        (
            source.to_owned(),
            Some((GrowthPolicy::default(), allocator)),
        )
    });
    let rules = [&pools[..], &[("best-fit".to_owned(), None)]].concat();
    Ok(figures(files, JUDGED_COPIES, JUDGED_ROUNDS, &rules)?.judged)
}

/// Returns what each rule takes for each program and copies of it, by as many threads as there are cores.
fn figures(
    files: &[String],
    copies: u64,
    rounds: usize,
    rules: &[Rule],
) -> Result<Measured, Box<dyn Error>> {
    let programs = files.iter().map(|file| Program::open(file, copies));
    let programs: Vec<Program> = programs.collect::<Result<_, _>>()?;
    let jobs: Vec<_> = programs
        .iter()
        .flat_map(|program| rules.iter().map(move |rule| (program, rule)))
        .collect();
    let results = on_all_cores(&jobs, |(program, (rule, pool))| {
        let traces = program.traces.iter();
        let taken = traces.map(|trace| match pool {
            Some((policy, allocator)) => taken(trace, *policy, *allocator, rounds),
            None => Ok(by_best_fit(trace)),
        });
        let taken: Vec<Taken> = taken.collect::<Result<_, Failure>>()?;
        Ok::<_, Failure>((format!("{rule}/{}", program.name), taken))
    });
    let mut measured = Measured::default();
    for result in results {
        let (name, taken) = result?;
        let of = |figure: fn(&Taken) -> f64| of_all(&taken, figure);
        let cold = of(|taken| taken.cold_reserved);
        let warm = [
            of(|taken| taken.warm_calls),
            of(|taken| taken.warm_reserved),
        ];
        let most = of(|taken| taken.most_reserved);
        let judged = [&warm[..], &[most]].concat();
        measured.cold.insert(name.clone(), cold.to_vec());
        measured.warm.insert(name.clone(), warm.concat());
        measured.judged.insert(name, judged.concat());
    }
    Ok(measured)
}

/// Returns a figure of the program itself, which is the first, and the mean and the worst of its copies.
#[expect(clippy::cast_precision_loss, reason = "copies are few")]
fn of_all(taken: &[Taken], figure: fn(&Taken) -> f64) -> [f64; 3] {
    let mut figures = taken.iter().map(figure);
    let own = figures.next().unwrap_or(f64::NAN);
    let copies: Vec<f64> = figures.collect();
    let mean = copies.iter().sum::<f64>() / copies.len() as f64;
    [own, mean, copies.iter().copied().fold(0.0, f64::max)]
}

/// A recorded program, and copies of it with other sizes.
struct Program {
    name: String,
    /// Itself is the first.
    traces: Vec<Trace>,
}

impl Program {
    fn open(file: &str, copies: u64) -> Result<Self, TraceError> {
        let itself = Trace::open(Path::new(file))?;
        let copies = (0..copies).map(|seed| changed(itself.clone(), seed));
        let copies: Vec<_> = copies.collect();
        let name = Path::new(file).file_name().unwrap_or_default();
        Ok(Self {
            name: name.to_string_lossy().replace(".trace.gz", ""),
            traces: [vec![itself], copies].concat(),
        })
    }
}

/// Returns the program with every size multiplied by a factor from 0.7 to 1.4, the same one for equal sizes.
fn changed(trace: Trace, seed: u64) -> Trace {
    trace.with_sizes(|bytes| {
        let mut random = Random::new(seed << 48 ^ bytes as u64);
        let thousandths = 700 + random.next() % 701;
        let bytes = bytes as u128 * u128::from(thousandths) / 1000;
        usize::try_from(bytes).unwrap_or(usize::MAX)
    })
}

#[expect(clippy::cast_precision_loss, reason = "ratios of three digits")]
fn taken(
    trace: &Trace,
    policy: GrowthPolicy,
    allocator: AllocatorChoice,
    rounds: usize,
) -> Result<Taken, Failure> {
    let settings = ReplaySettings {
        allocator,
        pool: Some(PoolOptions::new().growth(policy)),
        rounds,
        ..ReplaySettings::default()
    };
    let measured = Device::Mock(Profile::H200).replay(trace, &settings, &|_| {})?;
    let rounds = &measured.outcome.rounds;
    let over_live = |reserved: u64, live: u64| reserved as f64 / live as f64;
    let nothing = (f64::NAN, f64::NAN);
    let warm = if rounds.len() < JUDGED_ROUNDS {
        WARM_ROUNDS
    } else {
        JUDGED_ROUNDS / 2
    };
    // Warm are those from the third on of these.
    let skipped = rounds.len().saturating_sub(warm + 2);
    let (warm_reserved, warm_calls) = Warm::of(&rounds[skipped..]).map_or(nothing, |warm| {
        let sum = &warm.sum;
        let calls = match allocator {
            AllocatorChoice::VirtualMemory => sum.maps,
            _ => sum.device_allocations,
        };
        let reserved = over_live(sum.peak_reserved_bytes, sum.peak_live_bytes);
        (reserved, warm.mean(calls))
    });
    Ok(Taken {
        cold_reserved: rounds.first().map_or(f64::NAN, |round| {
            over_live(round.peak_reserved_bytes, round.peak_live_bytes)
        }),
        warm_reserved,
        most_reserved: over_live(
            measured.outcome.peak_reserved_bytes,
            measured.outcome.peak_live_bytes,
        ),
        warm_calls,
    })
}

/// What best fit in one range takes, which never calls the device again.
fn by_best_fit(trace: &Trace) -> Taken {
    let reserved = one_range::reserved(trace, ROUNDS);
    Taken {
        cold_reserved: reserved,
        warm_reserved: reserved,
        most_reserved: reserved,
        warm_calls: 0.0,
    }
}
