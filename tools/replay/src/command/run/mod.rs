//! `binpool run`: runs a program with the layer, which records or pools its memory.

mod environment;
mod frames;
mod named;
mod options;
mod pools;
mod program;
mod recordings;

use std::{error::Error, ffi::OsStr, fs, io::Write, path::PathBuf, process::ExitCode};

use binpool_allocators::words::counted;
use binpool_recordings::Trace;
use binpool_replay::report::memory_report;
use binpool_trace::shown;

use self::{
    environment::{Environment, POOLS_CUDA},
    frames::Symbols,
    pools::Pools,
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
    let environment = Environment::new(options)?;
    let recordings = environment.recording().map(Recordings::at).transpose()?;
    if let Some(why) = program::python_without_hook(&options.program) {
        remark(&why);
    }
    let started = program::start(&options.program, &environment)?;
    let recordings = recordings.map(Recordings::replace_older);
    let ended = started.wait()?;
    let pools = environment.pools();
    // Whatever fails from here on, the program has ended as it did.
    let mut lacking = Vec::new();
    if let Some(recordings) = recordings {
        match tell(options, &recordings, pools.as_ref()) {
            Ok(false) => lacking.push("recording"),
            Ok(true) => {}
            Err(error) => report(&*error),
        }
    }
    if let Some(pools) = &pools {
        pools.tell(options.limit.map(|limit| limit.as_u64()));
        if !pools.has_any {
            lacking.push("pool");
        }
    }
    if !lacking.is_empty() {
        remark(&not_seen(&lacking.join(" and no "), pools.is_some()));
    }
    Ok(ended)
}

/// Finishes the recordings, lists them, and returns whether there are any, or would be if they could have been made.
fn tell(
    options: &Run,
    recordings: &Recordings,
    pools: Option<&Pools>,
) -> Result<bool, Box<dyn Error>> {
    let mut symbols = Symbols::default();
    let mut all = Vec::new();
    let made = recordings.made()?;
    for path in &made {
        match Recorded::finish(path, &mut symbols, pools) {
            Ok(recorded) => all.extend(recorded),
            Err(error) => report(&*error),
        }
    }
    if options.record.is_some() {
        for recorded in &all {
            remark(&where_it_is(recorded));
        }
    }
    if options.reports() {
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
    let could_not_be_made = remove_empty(&made);
    Ok(could_not_be_made || !all.is_empty())
}

/// Removes the empty files of recordings that could not be made, such as on a full disk, which the program's process has said. Returns whether
/// there were any.
fn remove_empty(made: &[PathBuf]) -> bool {
    let is_empty = |path: &&PathBuf| fs::metadata(path).is_ok_and(|file| file.len() == 0);
    let empty = made.iter().filter(is_empty);
    empty.map(fs::remove_file).count() > 0
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
        "no {what}: binpool covers OpenCL, CUDA, and PyTorch and CuPy on CUDA, not Vulkan, HIP or Level Zero, and neither the program nor one that it started called \
         these where binpool can see it. It cannot see programs whose OpenCL loader supports no layers or is linked into them, programs that \
         start others without their environment variables, and programs on CUDA {on_cuda}"
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
    if *allocations == 0 {
        return format!("{program} (process {process}) allocated nothing: {path}");
    }
    let allocations = counted(*allocations, "allocation");
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
