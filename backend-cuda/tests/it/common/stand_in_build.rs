//! Building the stand-in for the driver. The tests of the array crate and of the command `binpool` have this file, too.

use std::{env::consts::DLL_SUFFIX, path::PathBuf, process::Command};

/// Builds the stand-in, and returns where it is.
pub(crate) fn build() -> PathBuf {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("stand-in");
    let output = Command::new(env!("CARGO"))
        .args([
            "build",
            "--locked",
            "--quiet",
            "--package",
            "binpool-cuda-stand-in",
        ])
        .args(["--message-format", "json", "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let messages = String::from_utf8(output.stdout).unwrap();
    let built = messages
        .split('"')
        .find(|text| text.contains("binpool_cuda_stand_in") && text.ends_with(DLL_SUFFIX));
    PathBuf::from(built.unwrap().replace(r"\\", r"\"))
}
