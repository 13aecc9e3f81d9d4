//! Holds the density of pools, with segments and with pages of virtual memory, against recorded figures, or records them: see `scripts/density`, which runs this.
//!
//! A figure is the most memory that the pool reserves over the most that the program has live, on each recorded program and on
//! copies of it whose sizes are multiplied by 0.7 to 1.4. The rules of the pool are judged by the copies: the sizes of the
//! programs themselves were before the eyes of those who wrote the rules.
//!
//! The exit status is 1 where a figure is above the recorded one, and 2 where there is nothing to compare.

use std::{
    collections::BTreeMap, env, error::Error, fmt::Write, fs, path::Path, process::ExitCode,
};

use binpool::{GrowthPolicy, PoolOptions, random::Random};
use binpool_replay::{AllocatorChoice, Device, Profile, Settings, Touch, Trace};

/// The copies of each program, each with a seed of its own.
const COPIES: u64 = 16;

/// The head of the file.
const HEAD: &str = "\
# The memory that a pool reserves at most over what the program has live at most, on the mock device, with segments and with pages of
# virtual memory: on a program itself, and the mean and the worst of 16 copies with other sizes, with each `GrowthPolicy`. Written by
# `scripts/density --record`.

";

/// What pools carve blocks from.
const SOURCES: [(&str, AllocatorChoice); 2] = [
    ("segments", AllocatorChoice::Immediate),
    ("pages", AllocatorChoice::Pages),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let checked = match arguments.as_slice() {
        [record, file, traces @ ..] if record == "--record" => record_all(file, traces),
        [file, traces @ ..] => check_all(file, traces),
        [] => Err("name the file of recorded figures, and traces".into()),
    };
    match checked {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn record_all(file: &str, traces: &[String]) -> Result<bool, Box<dyn Error>> {
    let mut text = HEAD.to_owned();
    for (name, [own, mean, worst]) in measured(traces)? {
        writeln!(text, "{name:40} {own:.3} {mean:.3} {worst:.3}")?;
    }
    fs::write(file, &text)?;
    print!("{text}");
    Ok(true)
}

/// Returns whether no figure is above the recorded one.
#[expect(clippy::cast_precision_loss, reason = "programs are few")]
fn check_all(file: &str, traces: &[String]) -> Result<bool, Box<dyn Error>> {
    let recorded = recorded(&fs::read_to_string(file)?)?;
    let measured = measured(traces)?;
    if recorded.keys().ne(measured.keys()) {
        return Err(format!("{file} has other programs: record it anew").into());
    }
    let mut is_dense = true;
    println!("{:40} itself  mean of copies  worst copy", "policy/program");
    for (name, now) in &measured {
        // The figures are the same on every machine, and recorded with three digits.
        let above = |index: usize| now[index] > recorded[name][index] + 0.0006;
        let mark = if (0..3).any(above) {
            format!("above the recorded {:?}", recorded[name])
        } else {
            String::new()
        };
        is_dense &= mark.is_empty();
        let [own, mean, worst] = now;
        println!("{name:40} {own:6.3}  {mean:14.3}  {worst:10.3}  {mark}");
    }
    for (policy, (source, _)) in settings() {
        let prefix = format!("{policy:?}/{source}/");
        let of_policy: Vec<_> = measured
            .iter()
            .filter(|(name, _)| name.starts_with(&prefix))
            .map(|(_, figures)| *figures)
            .collect();
        let mean = |index: usize| {
            let sum: f64 = of_policy.iter().map(|figures| figures[index]).sum();
            sum / of_policy.len() as f64
        };
        let worst = of_policy.iter().map(|figures| figures[2]);
        let (own, copies, worst) = (mean(0), mean(1), worst.fold(0.0, f64::max));
        println!("{prefix:40} {own:6.3}  {copies:14.3}  {worst:10.3}  all");
    }
    Ok(is_dense)
}

fn recorded(text: &str) -> Result<BTreeMap<String, [f64; 3]>, Box<dyn Error>> {
    let mut figures = BTreeMap::new();
    for line in text.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        let name = words.next().ok_or("a line without a name")?;
        let numbers: Vec<f64> = words.map(str::parse).collect::<Result<_, _>>()?;
        let numbers: [f64; 3] = numbers.try_into().map_err(|_| "three figures a line")?;
        figures.insert(name.to_owned(), numbers);
    }
    Ok(figures)
}

/// Returns the figures of each policy and program: of the program itself, and the mean and the worst of its copies.
#[expect(clippy::cast_precision_loss, reason = "copies are few")]
fn measured(files: &[String]) -> Result<BTreeMap<String, [f64; 3]>, Box<dyn Error>> {
    let mut figures = BTreeMap::new();
    for file in files {
        let trace = Trace::open(Path::new(file))?;
        let copies: Vec<_> = (0..COPIES)
            .map(|seed| changed(trace.clone(), seed))
            .collect();
        let name = Path::new(file).file_name().unwrap_or_default();
        let name = name.to_string_lossy().replace(".trace.gz", "");
        for (policy, (source, allocator)) in settings() {
            let copies = copies.iter().map(|copy| density(copy, policy, allocator));
            let copies: Vec<f64> = copies.collect::<Result<_, _>>()?;
            let mean = copies.iter().sum::<f64>() / COPIES as f64;
            let worst = copies.iter().copied().fold(0.0, f64::max);
            let figure = [density(&trace, policy, allocator)?, mean, worst];
            figures.insert(format!("{policy:?}/{source}/{name}"), figure);
        }
    }
    Ok(figures)
}

fn settings() -> impl Iterator<Item = (GrowthPolicy, (&'static str, AllocatorChoice))> {
    let policies = GrowthPolicy::ALL.into_iter();
    policies.flat_map(|policy| SOURCES.map(|source| (policy, source)))
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

/// Returns what a pool reserves at most over what the program has live at most.
#[expect(clippy::cast_precision_loss, reason = "a ratio of three digits")]
fn density(
    trace: &Trace,
    policy: GrowthPolicy,
    allocator: AllocatorChoice,
) -> Result<f64, Box<dyn Error>> {
    let settings = Settings {
        allocator,
        pool: Some(PoolOptions::new().growth(policy)),
        capacity_bytes: None,
        touch: Touch::Nothing,
        threads: 1,
        rounds: 1,
        behind: None,
    };
    let measured = Device::Mock(Profile::H200).replay(trace, &settings, &|_| {})?;
    let reserved = measured.outcome.peak_reserved_bytes;
    Ok(reserved as f64 / trace.peak_live_bytes() as f64)
}
