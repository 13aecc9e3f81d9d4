//! What the tests of the command share: running it.

mod unpickled;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

pub(crate) use unpickled::unpickled;

/// What a run of the command came to.
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) output: String,
    pub(crate) errors: String,
}

/// Runs `binpool` in the folder of the recorded traces.
pub(crate) fn binpool(arguments: &[&str]) -> Ran {
    binpool_with(arguments, |_| ())
}

/// Runs `binpool` in the folder of the recorded traces, or as `change` has it.
pub(crate) fn binpool_with(arguments: &[&str], change: impl FnOnce(&mut Command)) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_binpool"));
    command
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces"))
        .env_remove("COLUMNS")
        .args(arguments);
    change(&mut command);
    let output = command.output().unwrap();
    Ran {
        status: output.status.code().unwrap(),
        output: String::from_utf8(output.stdout).unwrap(),
        errors: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The path of a recorded trace.
pub(crate) fn trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../traces")
        .join(name)
}
