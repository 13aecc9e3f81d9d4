//! The command `binpool`.

#![forbid(unsafe_code)]

mod bench_command;
mod cli;
mod device_bench_command;
mod not_written;
mod progress;
mod replay_command;
mod tune_command;
mod view_command;

use std::{
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use bench_command::bench_all;
use clap::Parser;
use cli::{Cli, Command};
use replay_command::replay_all;
use tracing_subscriber::EnvFilter;
use tune_command::tune_all;
use view_command::view;

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
        Command::Replay(options) => replay_all(&options),
        Command::Tune(options) => tune_all(&options),
        Command::View(options) => view(&options),
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

/// Writes `text` and an end of line to standard output. A reader that has gone away, such as `head`, has read
/// what it wanted: that is no failure.
fn print(text: &str) -> io::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
