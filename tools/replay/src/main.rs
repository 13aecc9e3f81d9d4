//! The command `binpool`: reads its options, and prints what went wrong.

#![forbid(unsafe_code)]

mod command;

use std::{env, io, process::ExitCode};

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use command::{
    cli::{Cli, Command},
    devices::show_devices,
    documents::{print_completions, print_recipe, write_man_pages},
    import::import_one,
    output::{print_parsed, report},
    replay::replay_all,
    tune::tune_all,
    view::view,
};

fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(parsed) => return print_parsed(parsed),
    };
    cli.color_choice().write_global();
    let default = if cli.verbose {
        LevelFilter::DEBUG
    } else {
        LevelFilter::ERROR
    };
    let chosen = env::var("RUST_LOG").ok().and_then(|it| it.parse().ok());
    let filter = chosen.unwrap_or_else(|| Targets::new().with_default(default));
    // Where standard error is full, logging the error there would panic.
    let log = fmt::layer()
        .with_writer(io::stderr)
        .log_internal_errors(false);
    tracing_subscriber::registry().with(filter).with(log).init();
    let succeeded = match cli.command {
        Command::Completions(options) => print_completions(&options),
        Command::Devices(options) => show_devices(&options),
        Command::Import(options) => import_one(&options),
        Command::Man(options) => write_man_pages(&options),
        Command::Record => print_recipe(),
        Command::Replay(options) => replay_all(&options),
        #[cfg(all(target_os = "linux", feature = "run"))]
        Command::Run(options) => return command::run::run(&options),
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
