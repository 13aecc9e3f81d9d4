//! A rule runs three times: bare, recorded, and pooled and recorded.

use std::{
    env,
    fs::{self, File},
    io::Write as _,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::rig::Rig;

/// Names the file that a child of the test writes down what it sees to.
const TRANSCRIPT: &str = "BINPOOL_RULE";

/// A program that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a run of a program came to.
#[derive(Debug)]
pub(crate) struct Run {
    /// What the program saw.
    pub(crate) transcript: String,
    pub(crate) status: String,
    /// Standard error.
    pub(crate) errors: String,
    /// The files that it left, and what is in them.
    left: Vec<(PathBuf, String)>,
    /// The lines of all recordings of the run, the program's own before those of its children.
    recordings: Vec<String>,
}

/// The runs of a rule.
#[derive(Debug)]
pub(crate) struct Runs {
    pub(crate) recorded: Run,
    pub(crate) pooled: Run,
}

/// Runs `program` bare, recorded and pooled: it must see the same, and end in the same way.
pub(crate) fn rule<P: FnOnce(&mut Rig)>(program: P) -> Option<Runs> {
    rule_with(&[], program)
}

/// As [`rule`], where the layer has something to say on standard error.
pub(crate) fn rule_that_fails<P: FnOnce(&mut Rig)>(program: P) -> Option<Runs> {
    agreeing(&[], program)
}

/// As [`rule`], with further variables of the environment for the runs under the layer.
pub(crate) fn rule_with<P: FnOnce(&mut Rig)>(
    variables: &[(&str, &str)],
    program: P,
) -> Option<Runs> {
    let runs = agreeing(variables, program)?;
    for run in [&runs.recorded, &runs.pooled] {
        assert!(!run.errors.contains("binpool: "), "{}", run.errors);
    }
    Some(runs)
}

fn agreeing<P: FnOnce(&mut Rig)>(variables: &[(&str, &str)], program: P) -> Option<Runs> {
    let name = name_or_run(program)?;
    let bare = run(name, false, false, &[]);
    let recorded = run(name, true, false, variables);
    let pooled = run(name, true, true, variables);
    assert!(
        !bare.transcript.is_empty(),
        "the rule says nothing: {bare:#?}"
    );
    for (how, run) in [("recorded", &recorded), ("pooled", &pooled)] {
        assert_eq!(
            run.transcript, bare.transcript,
            "what the program sees, {how}, and bare; its errors: {}",
            run.errors
        );
        assert_eq!(
            run.status, bare.status,
            "how the program ends, {how}; its errors: {}",
            run.errors
        );
        assert_eq!(
            run.left, bare.left,
            "the files that the program left, {how}, and bare"
        );
    }
    Some(Runs { recorded, pooled })
}

/// Runs `program` under the layer alone, recorded and pooled: it sees what these variables ask for.
pub(crate) fn under<P: FnOnce(&mut Rig)>(
    variables: &[(&str, &str)],
    program: P,
) -> Option<(Run, Run)> {
    let name = name_or_run(program)?;
    Some((
        run(name, true, false, variables),
        run(name, true, true, variables),
    ))
}

/// Runs the program of the test of this name, bare or pooled.
pub(crate) fn run_named(name: &str, is_pooled: bool, variables: &[(&str, &str)]) -> Run {
    run(name, false, is_pooled, variables)
}

/// Runs the program in a child of the test; in the test itself, returns the test's name.
fn name_or_run<P: FnOnce(&mut Rig)>(program: P) -> Option<&'static str> {
    if let Some(path) = env::var_os(TRANSCRIPT) {
        let mut rig = Rig::new(File::create(path).unwrap());
        // A loader goes on without a layer that it cannot load.
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let wanted = env::var("OPENCL_LAYERS").ok();
        assert!(
            wanted.is_none_or(|layer| maps.contains(&layer)),
            "the layer is not loaded"
        );
        program(&mut rig);
        return None;
    }
    // `layer::module::name::{{closure}}` is the test `module::name`.
    let name = std::any::type_name::<P>();
    let name = name.split_once("::").map_or(name, |(_, rest)| rest);
    Some(
        name.split_once("::{{closure}}")
            .map_or(name, |(name, _)| name),
    )
}

/// The layer: one that the variable `BINPOOL_LAYER` names, such as one with a sanitizer, or that of this build.
fn layer() -> String {
    env::var("BINPOOL_LAYER").unwrap_or_else(|_| env!("CARGO_BIN_EXE_binpool-layer").to_owned())
}

fn run(rule: &str, is_recorded: bool, is_pooled: bool, variables: &[(&str, &str)]) -> Run {
    let folder = TempDir::new().unwrap();
    let transcript = folder.path().join("transcript");
    let errors = folder.path().join("errors");
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", rule, "--nocapture", "--test-threads=1"])
        .env(TRANSCRIPT, &transcript)
        // Two of them at least: a command that waits for the host takes one.
        .env("POCL_PTHREAD_MIN_THREADS", "4")
        .env_remove("OPENCL_LAYERS")
        .envs(variables.iter().copied())
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(File::create(&errors).unwrap());
    if is_recorded || is_pooled {
        command.env("OPENCL_LAYERS", layer());
    }
    if is_recorded {
        command.env("BINPOOL_RECORD", folder.path().join("out.trace"));
    }
    if is_pooled {
        command.env("BINPOOL_POOL", "1");
    }
    let status = end_of(command.spawn().unwrap());
    Run {
        transcript: text(&transcript),
        status: status.map_or_else(
            || "hangs".to_owned(),
            |status| match status.signal() {
                Some(signal) => format!("signal {signal}"),
                None => format!("{:?}", status.code()),
            },
        ),
        errors: text(&errors),
        left: files(folder.path(), |path| {
            !is_recording(path) && *path != transcript && *path != errors
        })
        .map(|path| (path.file_name().unwrap().into(), text(&path)))
        .collect(),
        recordings: recordings(folder.path()),
    }
}

/// Waits for a program; `None` if it hangs.
fn end_of(mut child: Child) -> Option<ExitStatus> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

fn recordings(folder: &Path) -> Vec<String> {
    let mut paths: Vec<PathBuf> = files(folder, |path| is_recording(path)).collect();
    paths.sort_by_key(|path| path.file_name().is_none_or(|name| name != "out.trace"));
    paths.iter().map(|path| text(path)).collect()
}

fn is_recording(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "trace")
}

/// The files of a folder, by name.
fn files(folder: &Path, is_wanted: impl Fn(&PathBuf) -> bool) -> impl Iterator<Item = PathBuf> {
    let paths = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.filter(is_wanted).collect();
    paths.sort();
    paths.into_iter()
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

impl Run {
    /// How often the driver's functions were called whose names begin like this.
    pub(crate) fn calls(&self, name: &str) -> u64 {
        let count = |line: &str| {
            let mut words = line.strip_prefix("p call ")?.split(' ');
            let count: u64 = words.next()?.parse().ok()?;
            words.nth(0)?;
            words.next()?.starts_with(name).then_some(count)
        };
        self.lines().filter_map(count).sum()
    }

    /// The lines of the recording.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.recordings.iter().flat_map(|text| text.lines())
    }

    /// How many lines of the recording begin like this.
    pub(crate) fn count(&self, begin: &str) -> usize {
        self.lines().filter(|line| line.starts_with(begin)).count()
    }

    /// How many processes left a recording.
    pub(crate) fn processes(&self) -> usize {
        self.recordings.len()
    }
}

impl Runs {
    /// Asserts that memory was reused: fewer buffers were made than the program asked for.
    pub(crate) fn reuse(&self) {
        let [recorded, pooled] =
            [&self.recorded, &self.pooled].map(|run| run.calls("clCreateBuffer"));
        assert!(
            pooled < recorded,
            "{pooled} buffers were made in place of {recorded}"
        );
    }
}

/// Writes a line of a transcript at once, so that what ends a program leaves what it saw.
pub(crate) fn write_line(file: &mut File, line: &str) {
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}
