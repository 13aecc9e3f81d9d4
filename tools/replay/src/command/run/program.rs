//! Running a program, as if it was run without this one: its input, output and signals are its own, and this process ends as it does.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::Path,
    process::{Child, Command, ExitCode, ExitStatus},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use binpool_trace::shown;
use rustix::process::{DumpableBehavior, Pid, Signal, kill_process, set_dumpable_behavior};
use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    flag::register_conditional_default,
    iterator::{SignalsInfo, exfiltrator::WithOrigin},
    low_level::{emulate_default_handler, siginfo::Cause},
};

use super::environment::Environment;

/// The signals that are passed on where another process sends them. Those of the terminal reach the program anyway: both are in its
/// foreground group.
const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// What a shell adds to the number of a signal that ended a program.
const BY_SIGNAL: i32 = 128;

/// The program could not be started.
#[derive(Debug, thiserror::Error)]
#[error("could not start {program}{hint}")]
pub(super) struct NotStarted {
    program: String,
    /// What may have been meant.
    hint: String,
    source: io::Error,
}

impl NotStarted {
    /// The exit status, as that of a shell and of `env`.
    pub(super) fn exit_status(&self) -> u8 {
        match self.source.kind() {
            io::ErrorKind::NotFound => 127,
            _ => 126,
        }
    }
}

/// How the program ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended(ExitStatus);

impl Ended {
    /// Returns the exit status of the program. Where a signal ended the program, it ends this process, too: shells and others tell that from
    /// an exit status.
    pub(super) fn as_it_did(self) -> ExitCode {
        let status = self.0.code().or_else(|| {
            let signal = self.0.signal()?;
            // A core of this process would be of no use.
            let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
            let _ = emulate_default_handler(signal);
            Some(BY_SIGNAL + signal)
        });
        let status = status.and_then(|status| u8::try_from(status).ok());
        ExitCode::from(status.unwrap_or(u8::MAX))
    }
}

/// A program that runs, and what waits for its end.
#[derive(Debug)]
pub(super) struct Started {
    child: Child,
    signals: SignalsInfo<WithOrigin>,
    /// Set once the program has ended.
    has_ended: Arc<AtomicBool>,
}

/// Starts a program.
pub(super) fn start(
    words: &[OsString],
    environment: &Environment,
) -> Result<Started, Box<dyn std::error::Error>> {
    let [program, arguments @ ..] = words else {
        return Err("no program was named".into());
    };
    let mut command = Command::new(program);
    command.args(arguments);
    environment.pass_to(&mut command);

    let has_ended = Arc::new(AtomicBool::new(false));
    // What is ignored stays ignored by the program, too: `nohup`, and jobs of scripts in the background.
    let ignored = signals_that("SigIgn");
    let passed_on = PASSED_ON.into_iter().filter(|it| !ignored.contains(it));
    for signal in passed_on.clone() {
        // What is done after the program may be interrupted.
        register_conditional_default(signal, Arc::clone(&has_ended))?;
    }
    // They are waited for before the program starts, so that none is missed.
    let signals = SignalsInfo::<WithOrigin>::new(passed_on.chain([SIGCHLD]))?;
    let child = command.spawn().map_err(|source| NotStarted {
        program: shown(program.display()),
        hint: hint(Path::new(program)).unwrap_or_default(),
        source,
    })?;
    Ok(Started {
        child,
        signals,
        has_ended,
    })
}

/// Returns what a user may have meant who names a file that is no command.
fn hint(program: &Path) -> Option<String> {
    let file = fs::metadata(program).ok().filter(fs::Metadata::is_file)?;
    let name = shown(program.display());
    let is_executable = file.permissions().mode() & 0o111 != 0;
    let is_of_python = program
        .extension()
        .is_some_and(|extension| extension == "py");
    match program.parent() {
        Some(folder) if is_executable && folder == Path::new("") => {
            Some(format!(": did you mean `./{name}`?"))
        }
        _ if is_of_python => Some(format!(": did you mean `python {name}`?")),
        _ => None,
    }
}

/// Returns why the Python that is to be started does not load what pools and records PyTorch and CuPy; `None` if it may.
pub(super) fn python_without_hook(words: &[OsString]) -> Option<String> {
    let mut words = words.iter().map(|word| word.to_string_lossy());
    let program = words.next()?;
    let name = program.rsplit('/').next()?;
    let version = name.strip_prefix("python")?;
    if !version
        .chars()
        .all(|letter| letter.is_ascii_digit() || letter == '.')
    {
        return None;
    }
    // Options of one letter, which may be written together: the rest of a word after `c`, `m`, `W` and `X` is not for Python's own options.
    let options = words.take_while(|word| word.starts_with('-') && !word.starts_with("--"));
    for option in options {
        for letter in option.chars().skip(1) {
            match letter {
                'I' | 'S' | 'E' => {
                    return Some(format!(
                        "{name} -{letter} loads nothing from outside: PyTorch and CuPy are left alone, neither pooled nor recorded one by one"
                    ));
                }
                'c' | 'm' => return None,
                'W' | 'X' => break,
                _ => {}
            }
        }
    }
    None
}

impl Started {
    /// Waits for the program's end.
    pub(super) fn wait(mut self) -> io::Result<Ended> {
        let status = if signals_that("SigBlk").contains(&SIGCHLD) {
            // No signal tells of the end.
            self.child.wait()?
        } else {
            self.pass_on_signals()?
        };
        self.has_ended.store(true, Ordering::SeqCst);
        Ok(Ended(status))
    }

    /// Passes signals on to the program until it has ended.
    fn pass_on_signals(&mut self) -> io::Result<ExitStatus> {
        loop {
            for origin in self.signals.wait() {
                if origin.signal != SIGCHLD && matches!(origin.cause, Cause::Sent(_)) {
                    pass_on(origin.signal, &self.child);
                }
            }
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
        }
    }
}

/// Sends a signal to the program, which has not been waited for, so that its process ID is its own.
fn pass_on(signal: i32, child: &Child) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        // It may have ended.
        let _ = kill_process(Pid::from_child(child), signal);
    }
}

/// Returns the signals that this process ignores (`SigIgn`), or blocks (`SigBlk`).
fn signals_that(field: &str) -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of_field = |line: &str| {
        let mask = line.strip_prefix(field)?.strip_prefix(':')?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    let mask = status.lines().find_map(of_field).unwrap_or(0);
    (1..=64)
        .filter(|signal| mask >> (signal - 1) & 1 == 1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Option<String> {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        python_without_hook(&words)
    }

    #[test]
    fn a_python_that_loads_nothing_from_outside_is_known_by_its_options() {
        for isolated in [
            "python -I a.py",
            "/usr/bin/python3.11 -uS a.py",
            "python3 -u -E -m a",
        ] {
            assert!(of(isolated).is_some(), "{isolated}");
        }
        for other in [
            "python a.py -I",
            "python -m a -S",
            "python -mES",
            "python -c I",
            "python -WI a.py",
            "python -X importtime -B a.py",
            "pythonic -I",
            "torchrun -I",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
