//! `binpool tune`: compares the settings of a pool on a trace.

use std::error::Error;

use binpool_recordings::Trace;
use binpool_replay::{
    AllocatorChoice, Device, ReplaySettings,
    tune::{Candidate, Trial, TuneReport, candidates, page_candidates, tune},
};

use crate::command::{
    cli::Tune,
    output::{open_trace, print, print_report, remark, report},
    progress_bar::bar,
};

/// Tries all candidates on all traces and prints the report. Returns whether every trace was read, and one
/// setting is the best for all of them.
pub(crate) fn tune_all(options: &Tune) -> Result<bool, Box<dyn Error>> {
    let device = Device::Mock(options.profile.clone());
    let mut candidates = candidates();
    let mut allocator = options.allocator;
    if allocator == AllocatorChoice::VirtualMemory {
        candidates.extend(page_candidates());
        allocator = AllocatorChoice::Immediate;
    }
    let settings = ReplaySettings {
        allocator,
        capacity_bytes: options.capacity.map(|size| size.as_u64()),
        rounds: options.rounds,
        ..ReplaySettings::default()
    };
    let mut trials = Vec::new();
    for path in &options.traces {
        let trial = open_trace(path, None)
            .map_err(|error| Box::new(error) as Box<dyn Error>)
            .map(|trace| trace.scaled_down(options.scale))
            .and_then(|trace| try_one(&trace, &device, &candidates, &settings));
        match trial {
            Ok(trial) => trials.push(trial),
            Err(error) => report(&*error),
        }
    }
    let tuned = TuneReport {
        device: device.name(),
        settings,
        scale: options.scale,
        reserve: options.reserve,
        candidates,
        trials,
    };
    let overall = tuned.overall();
    if options.json {
        print(&tuned.json())?;
    } else if !tuned.trials.is_empty() {
        print_report(&format!("{}\n", tuned.tables()))?;
        print_report(&tuned.verdict(&overall))?;
    }
    Ok(tuned.trials.len() == options.traces.len() && overall.best.is_some())
}

fn try_one(
    trace: &Trace,
    device: &Device,
    candidates: &[Candidate],
    settings: &ReplaySettings,
) -> Result<Trial, Box<dyn Error>> {
    if let Some(warning) = device.too_small_for(trace, settings.capacity_bytes) {
        remark(&warning);
    }
    let bar = bar(candidates.len(), trace.name());
    Ok(tune(trace, device, candidates, settings, &|| bar.inc(1))?)
}
