//! Holds counted instructions against the recorded ones, or records them: see `scripts/instructions`, which runs this.
//!
//! Reads what the benchmark `instructions` prints with `--output-format=json`. The exit status is 1 where a figure is above
//! its limit, and 2 where there are no figures to compare.

mod counts;
mod gate;
mod recorded;

use std::{error::Error, fs, io, process::ExitCode};

use clap::Parser;

use crate::{gate::Gate, recorded::Recorded};

#[derive(Debug, Parser)]
struct Arguments {
    /// The file of recorded figures.
    file: String,

    /// The line that `rustc --version` prints.
    #[arg(long)]
    compiler: String,

    /// Write the figures to the file.
    #[arg(long)]
    record: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether nothing has become dearer.
fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let now = Recorded {
        compiler: arguments.compiler.clone(),
        figures: counts::instructions(io::stdin().lock())?,
    };
    if arguments.record {
        fs::write(&arguments.file, now.to_string())?;
        print!("{now}");
        return Ok(true);
    }
    let recorded: Recorded = fs::read_to_string(&arguments.file)?.parse()?;
    let gate = Gate::new(&recorded, &now);
    print!("{gate}");
    Ok(gate.is_passed())
}
