//! `binpool replay`: replays traces through a pool.

use std::error::Error;

use binpool_opencl::DeviceSelector;
use binpool_recordings::Trace;
use binpool_replay::{
    AllocatorChoice, Device, Failure, Measured, ReplaySettings, Touch,
    report::{Header, Row, behind_table, end_table, json, rounds_tables, table},
};

use crate::command::{
    cli::Replay,
    output::{open_trace, print, print_report, remark, report, report_short_of},
    progress_bar::bar,
};

/// Replays all traces and prints the report. Returns whether all succeeded.
pub(crate) fn replay_all(options: &Replay) -> Result<bool, Box<dyn Error>> {
    if options.need
        && options.allocator() == AllocatorChoice::Deferred
        && options.touch == Touch::Nothing
    {
        return Err(
            "deferred memory that is never touched fits any device: use --touch fill with --need"
                .into(),
        );
    }
    let selector = options.device.as_ref().unwrap_or(&DeviceSelector::Any);
    let device = options.backend().open(selector, options.profile())?;
    let settings = ReplaySettings {
        allocator: options.allocator(),
        pool: options.pool(),
        capacity_bytes: options.capacity.map(|size| size.as_u64()),
        touch: options.touch,
        threads: options.threads,
        rounds: options.rounds,
        behind: options.behind,
    };
    let mut rows = Vec::new();
    for path in &options.traces {
        let trace = match open_trace(path, None) {
            Ok(trace) => trace.scaled_down(options.scale),
            Err(error) => {
                report(&error);
                continue;
            }
        };
        let misfit = device.too_small_for(&trace, settings.capacity_bytes);
        match replay_one(&trace, &device, &settings, options) {
            Ok(row) => {
                rows.push(row);
                if let Some(misfit) = misfit {
                    remark(&misfit);
                }
            }
            Err(error) => report_short_of(&error, misfit.as_deref()),
        }
    }
    let header = Header {
        backend: device.backend_name(),
        device: device.name(),
        scale: options.scale,
        settings,
    };
    if options.json {
        print(&json(&header, &rows))?;
    } else if !rows.is_empty() {
        print_report(&table(&header, &rows))?;
        if options.behind.is_some() {
            print_report(&format!("\n{}", behind_table(&rows)))?;
        }
        if options.rounds > 1 {
            let tables = format!("\n{}", rounds_tables(&header, &rows));
            print_report(&tables)?;
        }
        if options.retain.is_some() {
            print_report(&format!("\n{}", end_table(&rows)))?;
        }
    }
    Ok(rows.len() == options.traces.len())
}

fn replay_one(
    trace: &Trace,
    device: &Device,
    settings: &ReplaySettings,
    options: &Replay,
) -> Result<Row, Failure> {
    let bar = bar(trace.events().len() * settings.rounds, trace.name());
    let progress = |events: usize| bar.set_position(events as u64);
    let Measured {
        outcome,
        device_time,
    } = device.replay(trace, settings, &progress)?;
    let need_bytes = if options.need {
        bar.set_message(format!("{}: looking for the smallest device", trace.name()));
        Some(device.need(trace, settings, &progress)?)
    } else {
        None
    };
    Ok(Row {
        trace: trace.name().to_owned(),
        peak_live_bytes: if settings.threads > 1 {
            outcome.peak_live_bytes
        } else {
            let rounds = outcome.rounds.iter();
            let of_rounds = rounds.map(|round| round.peak_live_bytes).max();
            of_rounds.unwrap_or_else(|| trace.peak_live_bytes())
        },
        device_time,
        outcome,
        need_bytes,
    })
}
