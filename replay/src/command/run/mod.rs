//! `binpool run`.

mod environment;
mod frames;
mod named;
mod options;
mod program;
mod recordings;

use std::{error::Error, ffi::OsStr, io::Write, process::ExitCode};

use binpool_replay::report::memory_report;
use binpool_trace::{Trace, shown};

use self::{
    environment::{Environment, POOLS_CUDA},
    frames::Symbols,
    program::{Ended, NotStarted},
    recordings::{Recorded, Recordings},
};
use crate::command::output::{coloured, remark, report};

pub(crate) use self::options::Run;

/// The exit status of what failed before it tried to start the program, as that of `env` and `timeout`.
const NOT_TRIED: u8 = 125;

/// Runs the program. Returns its exit status, or ends by the signal that it ended by.
pub(crate) fn run(options: &Run) -> ExitCode {
    match watch(options) {
        Ok(ended) => ended.as_it_did(),
        Err(error) => {
            report(&*error);
            let status = error.downcast_ref().map(NotStarted::exit_status);
            ExitCode::from(status.unwrap_or(NOT_TRIED))
        }
    }
}

fn watch(options: &Run) -> Result<Ended, Box<dyn Error>> {
    let mut environment = Environment::new(options)?;
    let recordings = environment.recording().map(Recordings::at).transpose()?;
    let started = program::start(&options.program, &environment)?;
    let recordings = recordings.map(Recordings::replace_older);
    let ended = started.wait()?;
    let has_pool = environment.end_pool();
    // Whatever fails from here on, the program has ended as it did.
    let mut lacking = Vec::new();
    if let Some(recordings) = recordings {
        match tell(options, &recordings) {
            Ok(0) => lacking.push("recording"),
            Ok(_) => {}
            Err(error) => report(&*error),
        }
    }
    if has_pool == Some(false) {
        lacking.push("pool");
    }
    if !lacking.is_empty() {
        remark(&not_seen(&lacking.join(" and no "), has_pool.is_some()));
    }
    Ok(ended)
}

/// Finishes the recordings, lists them, and returns their number.
fn tell(options: &Run, recordings: &Recordings) -> Result<usize, Box<dyn Error>> {
    let mut symbols = Symbols::default();
    let mut all = Vec::new();
    for path in recordings.made()? {
        match Recorded::finish(&path, &mut symbols) {
            Ok(recorded) => all.extend(recorded),
            Err(error) => report(&*error),
        }
    }
    if options.record.is_some() {
        for recorded in &all {
            remark(&where_it_is(recorded));
        }
    }
    if options.report {
        for recorded in &all {
            if recorded.allocations == 0 {
                continue;
            }
            match Trace::open(&recorded.path) {
                Ok(trace) => {
                    let report = memory_report(&trace);
                    // Standard error may be full or closed.
                    let _not_said = writeln!(anstream::stderr(), "\n{}", coloured(&report));
                }
                Err(error) => report(&error),
            }
        }
    }
    Ok(all.len())
}

/// Says why there is no recording or pool.
fn not_seen(what: &str, is_pooled: bool) -> String {
    let on_cuda = match is_pooled {
        false => {
            "where CUPTI is missing (it comes with the CUDA toolkit, and from PyPI as nvidia-cuda-cupti)"
        }
        true if POOLS_CUDA => "that load libcuda.so.1 from a folder of their own",
        true => "on this machine: it is pooled on x86_64 only",
    };
    format!(
        "no {what}: neither the program nor one that it started called OpenCL or CUDA where binpool can see it. It cannot see programs \
         whose OpenCL loader supports no layers or is linked into them, programs that start others without their environment \
         variables, and programs on CUDA {on_cuda}"
    )
}

fn where_it_is(recorded: &Recorded) -> String {
    let Recorded {
        program,
        process,
        allocations,
        ..
    } = recorded;
    let path = shown(recorded.path.display());
    let allocations = match allocations {
        0 => return format!("{program} (process {process}) allocated nothing: {path}"),
        1 => "1 allocation".to_owned(),
        allocations => format!("{allocations} allocations"),
    };
    let more = if recorded.goes_on {
        ", and goes on"
    } else {
        ""
    };
    let name = quoted(recorded.path.as_os_str());
    format!("{allocations} of {program} (process {process}{more}): binpool view {name}")
}

/// Returns a name as a shell takes it.
fn quoted(name: &OsStr) -> String {
    let name = shown(name.display());
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+=:,@%".contains(letter);
    if name.chars().all(is_plain) {
        return name;
    }
    format!("'{}'", name.replace('\'', "'\\''"))
}
