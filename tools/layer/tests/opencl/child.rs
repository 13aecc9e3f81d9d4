//! Programs in processes of their own: settings are those of a process.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use binpool_layer::PoolFigures;
use tempfile::TempDir;

use crate::recording::Recording;

const CHILD: &str = "BINPOOL_TEST_CHILD";

/// A program that has ended, and what it left.
pub(crate) struct Ran {
    folder: TempDir,
    /// What was printed on standard error.
    pub(crate) errors: String,
}

impl Ran {
    /// The recordings, that of the first process first.
    pub(crate) fn recordings(&self) -> Vec<Recording> {
        let files = fs::read_dir(self.folder.path()).unwrap();
        let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|name| name == "trace"));
        paths.sort_by_key(|path| !path.ends_with("out.trace"));
        paths.iter().map(|path| Recording::read(path)).collect()
    }

    /// The recording of the only process.
    pub(crate) fn recording(&self) -> Recording {
        let [recording] = <[_; 1]>::try_from(self.recordings()).unwrap();
        recording
    }

    /// The figures of the pools of all processes.
    pub(crate) fn figures(&self) -> Vec<PoolFigures> {
        let files = fs::read_dir(self.folder.path()).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        let of_pool = paths.filter(|path| path.to_str().unwrap().contains("/pooled."));
        of_pool
            .map(|path| PoolFigures::read(&path).unwrap())
            .collect()
    }

    /// A file in the folder that the program ran in.
    pub(crate) fn file(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }
}

/// Runs `program`, the closure of a test, in a process that is recorded. Returns `None` in that process.
pub(crate) fn recorded<F: FnOnce()>(program: F) -> Option<Ran> {
    run(&[], "out.trace", program)
}

/// Runs `program` as [`recorded`] does, without anything for the layer to do.
pub(crate) fn bare<F: FnOnce()>(program: F) -> Option<Ran> {
    run(&[("BINPOOL_RECORD", "")], "out.trace", program)
}

/// As [`recorded`], over a pool, too.
pub(crate) fn pooled<F: FnOnce()>(program: F) -> Option<Ran> {
    run(&[("BINPOOL_POOL", "1")], "out.trace", program)
}

/// As [`pooled`], with a limit in bytes, and a file of the pool's figures.
pub(crate) fn limited<F: FnOnce()>(limit: &str, program: F) -> Option<Ran> {
    let variables = [
        ("BINPOOL_POOL", "1"),
        ("BINPOOL_LIMIT", limit),
        ("BINPOOL_POOLED", "pooled"),
    ];
    run(&variables, "out.trace", program)
}

/// Runs `program` as [`recorded`] does, where the recording cannot be made: the layer says so on standard error at the first event.
pub(crate) fn with_a_fault<F: FnOnce()>(program: F) -> Option<Ran> {
    run(&[], "no/such/folder/out.trace", program)
}

fn run<F: FnOnce()>(variables: &[(&str, &str)], file: &str, program: F) -> Option<Ran> {
    if env::var_os(CHILD).is_some() {
        // A program that hangs is ended.
        unsafe { libc::alarm(60) };
        program();
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = output_of(test_of::<F>(), variables, folder.path(), file);
    let [text, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{}: {text}\n{errors}",
        output.status
    );
    let errors = errors.into_owned();
    Some(Ran { folder, errors })
}

/// The test that a closure is written in.
fn test_of<F>() -> &'static str {
    let name = std::any::type_name::<F>();
    let test = name.split_once("::").map_or(name, |(_, name)| name);
    test.split("::{{closure}}").next().unwrap_or(test)
}

fn output_of(test: &str, variables: &[(&str, &str)], folder: &Path, file: &str) -> Output {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .current_dir(folder)
        .env(CHILD, "1")
        .env("BINPOOL_RECORD", folder.join(file))
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// Runs `program` in a child that was made by `fork`, and returns its status, as `waitpid` has it. A child that hangs is ended by a signal.
pub(crate) fn fork(fork: fn() -> i32, program: impl FnOnce()) -> i32 {
    let child = fork();
    if child == 0 {
        unsafe { libc::alarm(20) };
        program();
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}
