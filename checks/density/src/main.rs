//! Holds the memory and the device calls of pools, with segments and with pages of virtual memory, against recorded figures, or records
//! them: see `scripts/density`, which runs this.
//!
//! Each recorded program is replayed several times in a row in one pool, and so are copies of it whose sizes are multiplied by 0.7 to 1.4.
//! Of the first round, the figure is the most memory that the pool reserves over the most that the program has live; of the last
//! rounds, when the pool has seen the work, that and the calls by which it takes or maps memory. The rules of the pool are judged by the
//! copies: the sizes of the programs themselves were before the eyes of those who wrote the rules.
//!
//! The exit status is 1 where a figure is above the recorded one, and 2 where there is nothing to compare.

mod one_range;
mod programs;
mod sheet;

use std::{env, error::Error, process::ExitCode};

use programs::{judged, measured};
use sheet::{COLD, JUDGED, Sheet, WARM};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let records = arguments.first().is_some_and(|it| it == "--record");
    let checked = match &arguments[usize::from(records)..] {
        [cold, warm, judged, traces @ ..] => run([cold, warm, judged], traces, records),
        _ => Err("name three files of figures, traces, and more after `--judges`".into()),
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

/// Records the figures of these traces, or compares them with the recorded ones. Returns whether none is above.
fn run(files: [&String; 3], traces: &[String], records: bool) -> Result<bool, Box<dyn Error>> {
    let mut parts = traces.splitn(2, |word| word == "--judges");
    let figures = measured(parts.next().unwrap_or_default())?;
    let judged = judged(parts.next().unwrap_or_default())?;
    let sheets: [(&Sheet, _); 3] = [
        (&COLD, figures.cold),
        (&WARM, figures.warm),
        (&JUDGED, judged),
    ];
    let mut is_good = true;
    for ((sheet, figures), file) in sheets.into_iter().zip(files) {
        if records {
            sheet.record(file, &figures)?;
        } else {
            is_good &= sheet.check(file, &figures)?;
        }
    }
    Ok(is_good)
}
