//! Running a program of cases.

use std::{
    fs::{self, File},
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::compiled::{Program, driver, measure, stand_in};

/// A program that takes longer than this hangs. Its own alarm comes first.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Bare,
    Recorded,
    Pooled,
    Both,
}

/// What a run of a program came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) output: String,
    pub(crate) errors: String,
    pub(crate) status: String,
    /// The most memory that was resident, in KiB, and the time of the processor, in microseconds. None if the program was killed for its time.
    pub(crate) used: Option<[u64; 2]>,
    folder: TempDir,
}

impl Way {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Bare => &[],
            Self::Recorded => &["--record", "out.trace"],
            Self::Pooled => &["--pool"],
            Self::Both => &["--pool", "--record", "out.trace"],
        }
    }

    pub(crate) fn is_recorded(self) -> bool {
        matches!(self, Self::Recorded | Self::Both)
    }
}

impl Ran {
    /// Runs the program with these arguments and variables.
    pub(crate) fn new(
        program: &Program,
        arguments: &[&str],
        way: Way,
        variables: &[(&str, &str)],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [output, errors, used] =
            ["output", "errors", "used"].map(|name| folder.path().join(name));
        let mut command = if way == Way::Bare {
            Command::new(measure())
        } else {
            let mut command = Command::new(env!("CARGO_BIN_EXE_binpool"));
            command
                .arg("run")
                .args(way.options())
                .arg("--")
                .arg(measure());
            command
        };
        command.arg(&used).arg(program.path()).args(arguments);
        if cfg!(debug_assertions) {
            command.env("CASES_MORE_STACK", "8192");
        }
        // Two of them at least: a command that waits for the host takes one.
        command.env("POCL_PTHREAD_MIN_THREADS", "4");
        for variable in ["OPENCL_LAYERS", "CUDA_INJECTION64_PATH", "COLUMNS"] {
            command.env_remove(variable);
        }
        if program.is_on_cuda() {
            command
                .env("LD_LIBRARY_PATH", driver())
                .env("BINPOOL_LIBCUDA", stand_in());
        }
        command.envs(variables.iter().copied());
        command
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(File::create(&output).unwrap())
            .stderr(File::create(&errors).unwrap());
        let ended = end_of(command.spawn().unwrap());
        let text = |path: &PathBuf| {
            String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
        };
        let numbers: Vec<u64> = text(&used)
            .split_whitespace()
            .map(|number| number.parse().unwrap())
            .collect();
        Self {
            output: text(&output),
            errors: text(&errors),
            status: ended.map_or_else(|| "hangs".to_owned(), name_of),
            used: numbers.try_into().ok(),
            folder,
        }
    }

    /// The recordings that it left.
    pub(crate) fn recordings(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "trace")
            })
            .collect()
    }

    /// What `binpool run` and the layer say on standard error, but for where recordings are, and what pools did.
    pub(crate) fn complaints(&self) -> Vec<&str> {
        let is_complaint = |line: &&str| {
            let remarks = [
                ": binpool view ",
                "allocated nothing: ",
                " requests and reserved ",
            ];
            let is_remark = remarks.iter().any(|remark| line.contains(remark));
            (line.starts_with("binpool: ") && !is_remark) || line.contains("panicked at")
        };
        self.errors.lines().filter(is_complaint).collect()
    }
}

fn name_of(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("signal {signal}"),
        None => format!("status {}", status.code().unwrap_or_default()),
    }
}

/// Waits for a program; `None` if it hangs.
fn end_of(mut child: Child) -> Option<ExitStatus> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}
