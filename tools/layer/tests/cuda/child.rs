//! Tests in processes of their own: settings are those of a process.

use std::{
    env,
    path::PathBuf,
    process::{Command, Output},
    sync::OnceLock,
};

use crate::stand_in_build;

const CHILD: &str = "BINPOOL_TEST_CHILD";

fn stand_in() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(stand_in_build::build)
}

/// Returns whether this process is one of those in which the bodies run.
pub(crate) fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Runs `body`, that of the test of this thread, in a process with these variables, which is to succeed. Returns its output, but nothing in
/// the process itself.
pub(crate) fn in_child(variables: &[(&str, &str)], body: impl FnOnce()) -> Option<Output> {
    if is_child() {
        body();
        return None;
    }
    let output = output_of_child(variables);
    let text = text_of(&output);
    assert!(!text.contains("binpool:"), "{text}");
    Some(output)
}

/// Runs `body` as [`in_child`] does, and returns what the process has said on standard error of the layer.
pub(crate) fn complaints(variables: &[(&str, &str)], body: impl FnOnce()) -> Option<Vec<String>> {
    if is_child() {
        body();
        return None;
    }
    let output = output_of_child(variables);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let complaints = text.lines().filter(|line| line.starts_with("binpool: "));
    Some(complaints.map(str::to_owned).collect())
}

/// Where the stand-in is.
pub(crate) fn stand_in_path() -> &'static str {
    stand_in().to_str().unwrap()
}

fn output_of_child(variables: &[(&str, &str)]) -> Output {
    let name = std::thread::current().name().unwrap().to_owned();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture", "--test-threads", "1"])
        .env(CHILD, "1")
        .env("BINPOOL_LIBCUDA", stand_in())
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = text_of(&output);
    assert!(output.status.success(), "{}: {text}", output.status);
    assert!(text.contains("1 passed"), "{text}");
    output
}

fn text_of(output: &Output) -> String {
    let [out, error] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}\n{error}")
}

/// As [`in_child`], with pools.
pub(crate) fn pooled(body: impl FnOnce()) {
    in_child(&[("BINPOOL_POOL", "1")], body);
}

/// As [`pooled`], with a limit of 32 MiB, which refuses requests of 20 MiB, if any.
pub(crate) fn limited(body: impl FnOnce()) {
    let variables = [("BINPOOL_POOL", "1"), ("BINPOOL_LIMIT", "33554432")];
    if let Some(complaints) = complaints(&variables, body) {
        let refusal = "binpool: out of memory: could not allocate 20.0 MiB: ";
        assert!(
            complaints.len() == 1 && complaints[0].starts_with(refusal),
            "{complaints:?}"
        );
    }
}
