//! Processes in which the stand-in is the installed driver: one for each test, whose pools it has alone.

use std::{env, os::unix::fs::symlink, process::Command, sync::OnceLock};

use tempfile::TempDir;

#[path = "../../../../backend-cuda/tests/it/common/stand_in_build.rs"]
mod stand_in_build;

const INSIDE: &str = "BINPOOL_TEST_OVER_STAND_IN";

/// A folder where `libcuda.so.1` is the stand-in.
fn drivers() -> &'static TempDir {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        symlink(stand_in_build::build(), folder.path().join("libcuda.so.1")).unwrap();
        folder
    })
}

/// A command that finds the stand-in where it looks for a driver.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", drivers().path());
    command
}

/// Runs the body of the test `name` in a process where the stand-in is the installed driver.
pub(crate) fn over_stand_in(name: &str, body: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        return body();
    }
    let output = command(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{errors}"
    );
}
