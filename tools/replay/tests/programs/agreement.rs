//! What a program must not notice of the layer, and the layer not cost it.

use std::{path::Path, process::Command};

use crate::{
    compiled::Program,
    ran::{Ran, Way},
};

/// The most memory that may be resident, in KiB: twice that of the bare program, and what a pool keeps anyway, and the layer itself.
fn most_memory(bare: u64) -> u64 {
    2 * bare + (128 << 10)
}

/// The most time of the processor, in microseconds. The layer of a build without optimization takes many times that of one with it.
fn most_time(bare: u64) -> u64 {
    10 * bare + 4_000_000
}

/// What cases do that lose their recording, and what is said then.
const WITHOUT_RECORDING: [&str; 2] = ["== another_root\n", "== another_user\n"];
const GOES_ON: &str = "the program goes on without it";

/// What PoCL 3.1 says when it ends a program, rarely, by a fault of its own: where it counts the commands that use a kernel's code, and where a command
/// fails after a barrier, which may be the layer's.
const FAULTS_OF_POCL: [&str; 2] = ["pocl_release_dlhandle_cache", "pocl_lock_events_inorder"];

/// Whether the driver has ended the program.
pub(crate) fn is_drivers_fault(ran: &Ran) -> bool {
    FAULTS_OF_POCL
        .iter()
        .any(|fault| ran.errors.contains(fault))
}

/// Runs these cases, and again if the driver has ended them.
fn run(program: &Program, cases: &[&str], way: Way) -> Ran {
    let ran = Ran::new(program, cases, way, &[]);
    if is_drivers_fault(&ran) {
        return Ran::new(program, cases, way, &[]);
    }
    ran
}

/// Runs these cases in one process each way, and returns what is not as in the bare one.
pub(crate) fn disagreements(program: &Program, cases: &[&str]) -> Vec<String> {
    let bare = run(program, cases, Way::Bare);
    if bare.status == "hangs" || bare.status == "signal 14" || bare.errors.contains("failed: ") {
        return vec![format!(
            "{cases:?}, bare: {}\n{}\n{}",
            bare.status, bare.output, bare.errors
        )];
    }
    let mut wrong = Vec::new();
    for way in [Way::Recorded, Way::Pooled, Way::Both] {
        let ran = run(program, cases, way);
        let mut found = differences(&bare, &ran, way);
        if way.is_recorded() {
            found.extend(unreadable(&ran));
        }
        wrong.extend(
            found
                .into_iter()
                .map(|what| format!("{cases:?}, {way:?}: {what}")),
        );
    }
    wrong
}

/// What differs in a run from one of the same program that was bare.
pub(crate) fn differences(bare: &Ran, ran: &Ran, way: Way) -> Vec<String> {
    let mut wrong = Vec::new();
    if ran.output != bare.output {
        wrong.push(format!(
            "the output differs {}",
            first_difference(&bare.output, &ran.output)
        ));
    }
    if ran.status != bare.status {
        wrong.push(format!(
            "it ends with {} instead of {}; errors: {}",
            ran.status, bare.status, ran.errors
        ));
    }
    if let ([bare_memory, bare_time], Some([memory, time])) =
        (bare.used.unwrap_or_default(), ran.used)
    {
        if memory > most_memory(bare_memory) {
            wrong.push(format!(
                "{memory} KiB were resident at the most, instead of {bare_memory} KiB"
            ));
        }
        if time > most_time(bare_time) {
            wrong.push(format!(
                "it took {time} us of a processor instead of {bare_time} us"
            ));
        }
    }
    let may_lose = WITHOUT_RECORDING
        .iter()
        .any(|case| bare.output.contains(case));
    let mut complaints = ran.complaints();
    complaints.retain(|line| !(may_lose && line.ends_with(GOES_ON)));
    if !complaints.is_empty() {
        wrong.push(complaints.join("\n"));
    }
    if way.is_recorded() && ran.recordings().is_empty() {
        wrong.push("it left no recording".to_owned());
    }
    wrong
}

/// Looking for settings replays a recording often, so those that are larger than this are only replayed once.
const LARGEST_TO_TUNE: u64 = 300 << 10;

/// What the commands that read recordings say of those that they cannot read.
pub(crate) fn unreadable(ran: &Ran) -> Vec<String> {
    let recordings = ran.recordings();
    let read = |arguments: &[&str], paths: &[&Path]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_binpool"));
        let output = command.args(arguments).args(paths).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (!output.status.success())
            .then(|| format!("binpool {}: {}", arguments.join(" "), errors.trim_end()))
    };
    let paths: Vec<&Path> = recordings.iter().map(|path| &**path).collect();
    if paths.is_empty() {
        return Vec::new();
    }
    let pages = paths
        .iter()
        .filter_map(|path| read(&["view", "--report"], &[path]));
    let bytes: u64 = paths
        .iter()
        .map(|path| path.metadata().unwrap().len())
        .sum();
    let tuned = (bytes <= LARGEST_TO_TUNE).then(|| read(&["tune"], &paths));
    pages
        .chain(read(&["replay"], &paths))
        .chain(tuned.flatten())
        .collect()
}

fn first_difference(bare: &str, ran: &str) -> String {
    let (mut bare_lines, mut lines) = (bare.lines(), ran.lines());
    let mut case = "";
    loop {
        let (expected, seen) = (bare_lines.next(), lines.next());
        if expected != seen || expected.is_none() {
            return format!("in {case}: {seen:?} instead of {expected:?}");
        }
        case = expected
            .filter(|line| line.starts_with("== "))
            .unwrap_or(case);
    }
}
