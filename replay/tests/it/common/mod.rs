//! What the tests of the command share: running it.

use std::{path::Path, process::Command};

/// What a run of the command came to.
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) output: String,
    pub(crate) errors: String,
}

/// Runs `binpool` in the folder of the recorded traces.
pub(crate) fn binpool(arguments: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_binpool"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("traces"))
        .args(arguments)
        .output()
        .unwrap();
    Ran {
        status: output.status.code().unwrap(),
        output: String::from_utf8(output.stdout).unwrap(),
        errors: String::from_utf8(output.stderr).unwrap(),
    }
}
