//! The command `binpool`.

#![forbid(unsafe_code)]

mod bench_command;
mod cli;
mod device_bench_command;
mod devices_command;
mod import_command;
mod output;
mod progress;
mod replay_command;
mod tune_command;

use std::{
    error::Error,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use bench_command::bench_all;
use binpool_replay::{Trace, TraceError};
use clap::Parser;
use cli::{Cli, Command};
use devices_command::show_devices;
use import_command::import_one;
use replay_command::replay_all;
use tracing_subscriber::EnvFilter;
use tune_command::tune_all;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let default = if cli.verbose { "debug" } else { "error" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .init();
    let succeeded = match cli.command {
        Command::Bench(options) => bench_all(&options),
        Command::Devices(options) => show_devices(&options),
        Command::Import(options) => import_one(&options),
        Command::Replay(options) => replay_all(&options),
        Command::Tune(options) => tune_all(&options),
    };
    match succeeded {
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

/// Reads a trace, or another tool's recording, and says on standard error what was made of the latter.
fn open_trace(path: &Path) -> Result<Trace, TraceError> {
    let trace = Trace::open(path)?;
    print_remarks(&trace);
    Ok(trace)
}

fn print_remarks(trace: &Trace) {
    for remark in trace.remarks() {
        eprintln!("binpool: {}: {remark}", trace.name());
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
