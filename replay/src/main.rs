//! The command `binpool`.

mod cli;

use std::{
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use binpool_replay::{AllocatorChoice, Device, Failure, Header, Row, Settings, Trace, json, table};
use clap::Parser;
use cli::{BackendChoice, Cli, Command, Replay};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let default = if cli.verbose { "debug" } else { "error" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .init();
    let Command::Replay(options) = cli.command;
    match replay_all(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            report(&*error);
            ExitCode::FAILURE
        }
    }
}

/// Prints an error and what caused it.
fn report(error: &dyn Error) {
    eprintln!("binpool: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprintln!("  because: {error}");
        cause = error.source();
    }
}

/// Writes `text` and an end of line to standard output. A reader that has gone away, such as `head`, has read
/// what it wanted: that is no failure.
fn print(text: &str) -> io::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Replays all traces and prints the report. Whether all succeeded.
fn replay_all(options: &Replay) -> Result<bool, Box<dyn Error>> {
    if options.need && options.allocator == AllocatorChoice::Deferred && !options.touch {
        return Err(
            "deferred memory that nobody touches fits any device: use --touch with --need".into(),
        );
    }
    let device = match options.backend {
        BackendChoice::Mock => Device::Mock(options.profile),
        BackendChoice::Opencl => Device::opencl(&options.device)?,
    };
    let settings = Settings {
        allocator: options.allocator,
        pool: options.pool(),
        capacity_bytes: options.capacity.map(|size| size.as_u64()),
        touch: options.touch,
    };
    let mut rows = Vec::new();
    for path in &options.traces {
        let row = Trace::open(path)
            .map_err(|error| Box::new(error) as Box<dyn Error>)
            .map(|trace| trace.scaled_down(options.scale))
            .and_then(|trace| {
                if let Some(warning) = device.too_small_for(&trace, settings.capacity_bytes) {
                    eprintln!("binpool: {warning}");
                }
                Ok(replay_one(&trace, &device, &settings, options)?)
            });
        match row {
            Ok(row) => rows.push(row),
            Err(error) => report(&*error),
        }
    }
    let header = Header {
        backend: device.backend_name(),
        device: device.name(),
        allocator: options.allocator,
        pool: !options.no_pool,
        capacity_bytes: settings.capacity_bytes,
        scale: options.scale,
        touch: options.touch,
    };
    if options.json {
        print(&json(&header, &rows)?)?;
    } else if !rows.is_empty() {
        print(&table(&header, &rows))?;
    }
    Ok(rows.len() == options.traces.len())
}

fn replay_one(
    trace: &Trace,
    device: &Device,
    settings: &Settings,
    options: &Replay,
) -> Result<Row, Failure> {
    // Drawn on standard error, and only on a terminal.
    let bar = ProgressBar::new(trace.events().len() as u64)
        .with_style(
            ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} % {elapsed}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        )
        .with_message(trace.name().to_owned())
        // Also where the replay fails, so that the message stands alone.
        .with_finish(ProgressFinish::AndClear);
    let progress = |events: usize| bar.set_position(events as u64);
    let first = device.replay(trace, settings, &progress)?;
    let mut runs = vec![first];
    for _ in 1..options.repeat {
        runs.push(device.replay(trace, settings, &progress)?);
    }
    let need_bytes = if options.need {
        bar.set_message(format!("{}: looking for the need", trace.name()));
        Some(device.need(trace, settings, &progress)?)
    } else {
        None
    };
    Ok(Row {
        trace: trace.name().to_owned(),
        peak_live_bytes: trace.peak_live_bytes(),
        outcome: first.outcome,
        ns_per_pair: median(runs.iter().map(|run| run.outcome.ns_per_pair()).collect()),
        device_time_us: median(
            runs.iter()
                .map(|run| run.device_time.as_secs_f64() * 1e6)
                .collect(),
        ),
        need_bytes,
    })
}

/// The middle of some figures, of which there is at least one.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
