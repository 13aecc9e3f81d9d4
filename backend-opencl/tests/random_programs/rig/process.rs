//! A child process that runs programs, and what became of it.

use std::{
    env, fmt,
    io::{BufRead, BufReader, Read},
    ops::Range,
    os::unix::process::ExitStatusExt,
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use super::{
    counts::Counts,
    settings::{CHILD, KEEP, TRACE},
};

/// What a child's lines for its parent begin with; the test harness writes others.
pub(crate) const MARK: &str = "@@ ";
pub(crate) const PROGRAM: &str = "program ";
pub(crate) const FAILED: &str = "failed ";
pub(crate) const DONE: &str = "done ";

/// How many lines of standard error are kept.
const LINES: usize = 400;

/// How a child came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// A comparison failed, a call was refused, or something panicked.
    Violation(String),
    Signal(i32),
    Exit(Option<i32>),
    /// It did not come to the next program in time.
    Hang(Duration),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Violation(what) => f.write_str(what),
            Self::Signal(signal) => write!(f, "killed by signal {signal}"),
            Self::Exit(code) => write!(f, "ended with {code:?}"),
            Self::Hang(time) => write!(f, "no progress in {} s", time.as_secs()),
        }
    }
}

impl Outcome {
    /// What is the same for the same cause: the text without numbers, and one word for all crashes.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Violation(what) => what.chars().filter(|char| !char.is_ascii_digit()).collect(),
            Self::Signal(_) | Self::Exit(_) => String::from("crash"),
            Self::Passed | Self::Hang(_) => self.to_string(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) outcome: Outcome,
    /// The program that it was at.
    pub(crate) seed: Option<u64>,
    pub(crate) counts: Counts,
    /// The last lines of its standard error.
    pub(crate) errors: String,
}

/// What a child is to run.
#[derive(Clone, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) seeds: Range<u64>,
    pub(crate) keep: Option<&'a [usize]>,
    pub(crate) trace: bool,
    /// The longest time that a program may take.
    pub(crate) limit: Option<Duration>,
}

fn spawn(job: &Job<'_>) -> Child {
    let mut command = Command::new(env::current_exe().expect("a program knows its path"));
    command
        .args(["--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{}..{}", job.seeds.start, job.seeds.end))
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(keep) = job.keep {
        let steps: Vec<_> = keep.iter().map(usize::to_string).collect();
        // No step at all is something else than all of them.
        let steps = if steps.is_empty() {
            usize::MAX.to_string()
        } else {
            steps.join(",")
        };
        command.env(KEEP, steps);
    }
    if job.trace {
        command.env(TRACE, "1");
    }
    command.spawn().expect("a child can be started")
}

/// Runs a child to its end.
pub(crate) fn run(job: &Job<'_>) -> Report {
    let mut child = spawn(job);
    let lines = follow(child.stdout.take().expect("it is a pipe"));
    let errors = last_lines(child.stderr.take().expect("it is a pipe"));
    let mut seed = None;
    let mut counts = Counts::default();
    let mut violation = None;
    let mut hang = None;
    loop {
        let line = match job.limit {
            Some(limit) => lines.recv_timeout(limit),
            None => lines.recv().map_err(Into::into),
        };
        match line {
            Ok(line) => {
                if let Some(number) = line.strip_prefix(PROGRAM) {
                    seed = number.parse().ok();
                } else if let Some(what) = line.strip_prefix(FAILED) {
                    // It may crash on its way out, which is not news.
                    violation = Some(what.to_owned());
                    let _already_ended = child.kill();
                } else if let Some(done) = line.strip_prefix(DONE) {
                    counts.merge(&Counts::parse(done).unwrap_or_default());
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                hang = job.limit;
                let _already_ended = child.kill();
            }
        }
    }
    let status = child.wait().expect("a child can be waited for");
    let outcome = match (violation, hang) {
        (Some(what), _) => Outcome::Violation(what),
        (None, Some(limit)) => Outcome::Hang(limit),
        (None, None) => of_status(status),
    };
    Report {
        outcome,
        seed,
        counts,
        errors: errors.join().unwrap_or_default(),
    }
}

fn of_status(status: ExitStatus) -> Outcome {
    match (status.success(), status.signal()) {
        (true, _) => Outcome::Passed,
        (false, Some(signal)) => Outcome::Signal(signal),
        (false, None) => Outcome::Exit(status.code()),
    }
}

/// The lines that are for the parent.
fn follow(output: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // The harness does not end its own line first.
            if let Some((_, line)) = line.split_once(MARK) {
                let _parent_gone = sender.send(line.to_owned());
            }
        }
    });
    lines
}

fn last_lines(mut errors: ChildStderr) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut all = Vec::new();
        let _what_there_is = errors.read_to_end(&mut all);
        let text = String::from_utf8_lossy(&all);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    })
}
