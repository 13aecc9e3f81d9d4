//! Which settings of a pool serve a program best: what `binpool tune` does, from code.
//!
//! ```text
//! cargo run --release -p binpool-replay --example tuning                    # a program of this example's own
//! cargo run --release -p binpool-replay --example tuning -- FILE.trace.gz
//! ```

use std::{env, error::Error, fmt::Write, path::Path};

use binpool_recordings::Trace;
use binpool_replay::{
    Device, Profile, ReplaySettings,
    tune::{Comparison, candidates, tune},
};

/// How much the pool may reserve, as a multiple of what the program has in use at most.
const RESERVE: f64 = 1.15;

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1) {
        Some(file) => show(&Trace::open(Path::new(&file))?),
        None => show(&own_program()?),
    }
}

/// A program whose sizes are never quite the same, as sequences of varying length have it: a line for each allocation
/// and each free. `MemoryPool::record` writes such lines for a program of yours.
fn own_program() -> Result<Trace, Box<dyn Error>> {
    let mut lines = String::new();
    for round in 0..200 {
        for (place, bytes) in [10_000_000, 15_000_000, 22_000_000].into_iter().enumerate() {
            let bytes = bytes + round * 7_919_000 % 5_000_000;
            writeln!(lines, "a {place} {bytes} 0")?;
        }
        lines.push_str("f 1\nf 0\nf 2\n");
    }
    Ok(Trace::parse("own program", lines.as_bytes())?)
}

fn show(trace: &Trace) -> Result<(), Box<dyn Error>> {
    // The mock has the costs of an H200, so times are predicted, and the same each time.
    let device = Device::Mock(Profile::H200);
    let settings = ReplaySettings {
        rounds: 4, // Judged by the third and fourth.
        ..ReplaySettings::default()
    };
    let candidates = candidates();
    let trial = tune(trace, &device, &candidates, &settings, &|| {})?;
    let comparison = Comparison::of_trial(&trial, &candidates, RESERVE);

    println!("{}, on {}", trace.name(), device.name());
    for (place, (candidate, cost)) in candidates.iter().zip(&comparison.costs).enumerate() {
        let mark = if comparison.is_best(place) {
            "<-- best"
        } else {
            ""
        };
        match cost {
            Some(cost) => println!(
                "{:20}{:8.3} times the peak{:>12.1?} {mark}",
                candidate.name, cost.reserved_over_live, cost.device_time
            ),
            None => println!("{:20}runs out of memory", candidate.name),
        }
    }
    let best = comparison.best.ok_or("no setting serves this program")?;
    println!("best: {}", candidates[best].code.unwrap_or_default());

    // Asking the device each time reserves the least, and takes the longest: that is what pools are for.
    let [asking, chosen] = [0, best].map(|place| comparison.costs[place].map(|it| it.device_time));
    assert_eq!(candidates[0].name, "no pool");
    assert!(chosen < asking, "{chosen:?} and {asking:?}");
    Ok(())
}

#[test]
fn the_example_runs() {
    show(&own_program().unwrap()).unwrap();
}
