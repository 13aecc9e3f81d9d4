//! `binpool run`: a program runs as without it, and its recordings are finished.

use std::{
    ffi::OsStr,
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Read, Write as _},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use binpool_recordings::Trace;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A number that no process has.
const NO_PROCESS: u32 = u32::MAX;

/// What a process with a pool does.
const POOLED: &str = ": >\"$BINPOOL_POOLED\"";

/// `binpool run` with these arguments, in a folder.
fn command<S: AsRef<OsStr>>(folder: &TempDir, arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_binpool"));
    command.current_dir(folder.path()).arg("run");
    for variable in [
        "COLUMNS",
        "OPENCL_LAYERS",
        "LD_LIBRARY_PATH",
        "CUDA_INJECTION64_PATH",
        "BINPOOL_LAYER",
    ] {
        command.env_remove(variable);
    }
    // As on a machine with a driver for CUDA.
    command.env("BINPOOL_LIBCUDA", env!("CARGO_BIN_EXE_binpool"));
    command.args(arguments);
    command
}

fn run(folder: &TempDir, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// A recording as the layer writes it, of a process of this number.
fn recording(process: u32, frames: &[String]) -> String {
    let mut text = format!(
        "h version 3\nh time 1700000000\nh program train\nh process {process}\nh source a program on OpenCL\n\
         p context 0 10 1: a device\ng 0 buffer, context 1\ng 1 image, context 1\n"
    );
    let unknown = ["0x7f00".to_owned()];
    for frame in if frames.is_empty() { &unknown } else { frames } {
        writeln!(text, "k 0 {frame}").unwrap();
    }
    text.push_str(
        "k 1 /usr/lib/none/libOpenCL.so.1+0x10\nk 1 /home/me/train.py:12 in forward\n\
         a 1 4096 0 1000 0 0\nu 1 1 1500\na 2 1048576 0 2000 1 1\no 17179869184 0 2500 0 1\nf 1 3000000\n\
         a 3 1024 0 3000000 0 0\nf 2 5000000\np call 3 6000000 clCreateBuffer 1500000\n\
         p call 2 6000000 clReleaseMemObject 20000\n",
    );
    text
}

/// The same without native frames, as the command leaves it.
fn finished(process: u32) -> String {
    let raw = recording(process, &[]);
    let without_kinds = raw.replace("g 0 buffer, context 1\ng 1 image, context 1\n", "");
    let named = [
        ("a 1 4096 0 1000 0 0", "g 0 0x7f00 (buffer, context 1)"),
        (
            "a 2 1048576 0 2000 1 1",
            "g 1 me/train.py:12 in forward (image, context 1)",
        ),
        (
            "o 17179869184 0 2500 0 1",
            "g 2 me/train.py:12 in forward (buffer, context 1)",
        ),
    ];
    let named = named.iter().fold(without_kinds, |text, (line, group)| {
        text.replace(line, &format!("{group}\n{line}"))
    });
    named.replace("o 17179869184 0 2500 0 1", "o 17179869184 0 2500 2 1")
}

/// A program that copies files to `FILE` and, for each further one, beside it.
fn copying(contents: &[&Path]) -> Vec<String> {
    let script = r#"cp "$1" "$BINPOOL_RECORD"; shift; number=1
        for more; do cp "$more" "${BINPOOL_RECORD%.trace}.child-$number.trace"; number=$((number + 1)); done"#;
    let mut words = ["sh", "-c", script, "sh"].map(str::to_owned).to_vec();
    words.extend(
        contents
            .iter()
            .map(|path| path.to_str().unwrap().to_owned()),
    );
    words
}

/// Runs a program that leaves these recordings as `out.trace`, and beside it.
fn record(folder: &TempDir, options: &[&str], recordings: &[&[u8]]) -> Output {
    let contents = folder_with(recordings);
    let paths: Vec<PathBuf> = (0..recordings.len())
        .map(|number| contents.path().join(number.to_string()))
        .collect();
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let options = options.iter().map(ToString::to_string);
    let arguments = options.chain(["--".to_owned()]).chain(copying(&paths));
    command(folder, arguments).output().unwrap()
}

/// Maps a file into the memory of this process, as one that writes its recording does.
fn mapped(file: &fs::File) -> memmap2::Mmap {
    // SAFETY: nothing reads what is mapped.
    unsafe { memmap2::Mmap::map(file) }.unwrap()
}

fn folder_with(contents: &[&[u8]]) -> TempDir {
    let folder = folder();
    for (number, content) in contents.iter().enumerate() {
        fs::write(folder.path().join(number.to_string()), content).unwrap();
    }
    folder
}

fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_exit_status_is_that_of_the_program() {
    let folder = folder();
    for status in [0, 3, 125, 255] {
        let script = format!("{POOLED}; exit {status}");
        let ran = run(&folder, &["--pool", "--", "sh", "-c", &script]);
        assert_eq!(ran.status.code(), Some(status));
        assert_eq!(text(&ran.stderr), "");
    }
    let ran = run(&folder, &["--pool", "no such program"]);
    assert_eq!(ran.status.code(), Some(127));
    assert!(text(&ran.stderr).contains("could not start no such program"));
    fs::write(folder.path().join("text"), "no program").unwrap();
    let ran = run(&folder, &["--pool", "./text"]);
    assert_eq!(ran.status.code(), Some(126));
}

/// The command for a shell script. What runs the tests may ignore signals, as `nohup` and shells in the background do.
fn with_default_signals(folder: &TempDir, script: &str) -> Command {
    let mut command = Command::new("env");
    command
        .current_dir(folder)
        .args(["--default-signal", env!("CARGO_BIN_EXE_binpool")])
        .args(["run", "--pool", "--", "sh", "-c", script]);
    command
}

#[test]
fn a_signal_that_ends_the_program_ends_the_command() {
    let folder = folder();
    for signal in [
        Signal::KILL,
        Signal::TERM,
        Signal::INT,
        Signal::SEGV,
        Signal::PIPE,
    ] {
        let script = format!("kill -{} $$", signal.as_raw());
        let ran = with_default_signals(&folder, &script).output().unwrap();
        assert_eq!(ran.status.signal(), Some(signal.as_raw()));
        assert!(!ran.status.core_dumped());
    }
}

#[test]
fn signals_are_passed_on_to_the_program() {
    let folder = folder();
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::USR1] {
        let number = signal.as_raw();
        let script = format!(
            "trap 'echo got {number}; exit 5' {number}; echo ready; while :; do sleep 0.02; done"
        );
        let mut child = with_default_signals(&folder, &script)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, format!("got {number}\n"));
        assert_eq!(child.wait().unwrap().code(), Some(5));
    }
}

#[test]
fn the_end_of_the_program_is_seen_where_its_signal_is_blocked() {
    let binpool = env!("CARGO_BIN_EXE_binpool");
    let ran = Command::new("env")
        .args(["--block-signal=CHLD", binpool, "run", "--pool", "--"])
        .args(["sh", "-c", "sleep 0.1; exit 7"])
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(7));
}

/// `script` runs a command in a terminal of its own, where Ctrl-C is a signal to all of its processes. A second signal that comes after
/// the interrupt, and is passed on after it, ends the program: by then it has all interrupts that there will be. `exec`: a shell that waits
/// for the command would be interrupted, too.
#[test]
fn an_interrupt_at_the_terminal_comes_once() {
    let folder = folder();
    let program =
        "got=0; trap 'got=$((got + 1))' INT; trap 'echo interrupts: $got; exit 6' USR1; echo ready
        while [ $got = 0 ]; do sleep 0.01; done; kill -USR1 $PPID; while :; do sleep 0.01; done";
    fs::write(folder.path().join("program.sh"), program).unwrap();
    let binpool = env!("CARGO_BIN_EXE_binpool");
    let line = format!("exec env --default-signal '{binpool}' run --pool -- sh program.sh");
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .current_dir(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("ready") {
        assert!(output.read_line(&mut text).unwrap() > 0, "{text}");
    }
    let mut keys = child.stdin.take().unwrap();
    keys.write_all(b"\x03").unwrap();
    output.read_to_string(&mut text).unwrap();
    assert!(text.contains("interrupts: 1"), "{text}");
    assert_eq!(child.wait().unwrap().code(), Some(6));
}

#[test]
fn a_signal_that_is_ignored_is_ignored_by_the_program_too() {
    let ask = "grep SigIgn /proc/self/status";
    let ignoring = |words: &[&str]| {
        let script = "trap '' HUP INT; exec \"$@\"";
        Command::new("sh")
            .args(["-c", script, "sh"])
            .args(words)
            .output()
            .unwrap()
            .stdout
    };
    let without = ignoring(&["sh", "-c", ask]);
    let binpool = env!("CARGO_BIN_EXE_binpool");
    let with = ignoring(&[binpool, "run", "--pool", "--", "sh", "-c", ask]);
    assert_eq!(text(&with), text(&without));
}

#[test]
fn input_and_output_are_those_of_the_program() {
    let folder = folder();
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let script = format!("{POOLED}; cat; echo told >&2");
    let mut child = command(&folder, ["--pool", "--", "sh", "-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let written = bytes.clone();
    let writer = std::thread::spawn(move || input.write_all(&written).unwrap());
    let ran = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(ran.stdout == bytes);
    assert_eq!(text(&ran.stderr), "told\n");
}

#[test]
fn variables_are_added_to_those_of_the_user() {
    let folder = folder();
    let layer = Path::new(env!("CARGO_BIN_EXE_binpool")).with_file_name("binpool-layer");
    let layer = layer.to_str().unwrap();
    let print =
        "echo \"$OPENCL_LAYERS\"; echo \"$LD_LIBRARY_PATH\"; echo \"$CUDA_INJECTION64_PATH\"
        echo \"$BINPOOL_RECORD $BINPOOL_POOL $BINPOOL_LIMIT\"
        readlink \"${LD_LIBRARY_PATH%%:*}/libcuda.so.1\" \"${LD_LIBRARY_PATH%%:*}/libcuda.so\"";
    let lines = |options: &[&str], variables: &[(&str, &str)]| -> Vec<String> {
        let words = [options, &["--", "sh", "-c", print]].concat();
        let ran = command(&folder, words)
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        text(&ran.stdout).lines().map(str::to_owned).collect()
    };
    let file = folder.path().canonicalize().unwrap().join("out.trace");
    let recorded = lines(
        &["--record", "out.trace"],
        &[("BINPOOL_POOL", "1"), ("LD_LIBRARY_PATH", "/a")],
    );
    assert_eq!(
        [0, 2, 3, 4, 5].map(|line| &*recorded[line]),
        [layer, layer, &format!("{}  ", file.display()), layer, layer]
    );
    assert!(recorded[1].ends_with(":/a"), "{}", recorded[1]);

    let no_driver = [
        ("BINPOOL_LIBCUDA", "/no/such/file"),
        ("LD_LIBRARY_PATH", "/a"),
    ];
    for options in [["--record", "out.trace"], ["--pool", "--limit=2GiB"]] {
        assert_eq!(lines(&options, &no_driver)[1], "/a");
    }

    let pooled = lines(&["--pool", "--limit", "2GiB"], &[("BINPOOL_RECORD", "x")]);
    assert_eq!(
        (&*pooled[0], &*pooled[2], &*pooled[3]),
        (layer, "", " 1 2147483648")
    );
    if cfg!(not(target_arch = "x86_64")) {
        assert_eq!(pooled[1], "", "CUDA is not pooled");
        return;
    }
    assert!(!pooled[1].contains(':'), "{}", pooled[1]);
    assert_eq!(pooled[4..], [layer, layer]);
    assert!(!Path::new(&pooled[1]).exists());

    let others = [("OPENCL_LAYERS", "/b.so"), ("LD_LIBRARY_PATH", "/c:/d")];
    let added = lines(&["--pool"], &others);
    assert_eq!(added[0], format!("/b.so:{layer}"));
    assert!(added[1].ends_with(":/c:/d"), "{}", added[1]);
    let nested = lines(&["--pool"], &[("OPENCL_LAYERS", &added[0])]);
    assert_eq!(nested[0], added[0]);
}

#[test]
fn a_library_that_cuda_cannot_load_beside_the_layer_is_named() {
    let folder = folder();
    let ran = command(&folder, ["--report", "--", "true"])
        .env("CUDA_INJECTION64_PATH", "/other.so")
        .output()
        .unwrap();
    assert!(text(&ran.stderr).contains("CUDA does not load /other.so"));
    let layer = Path::new(env!("CARGO_BIN_EXE_binpool")).with_file_name("binpool-layer");
    for none_or_the_same in [Path::new(""), &layer] {
        let ran = command(&folder, ["--report", "--", "true"])
            .env("CUDA_INJECTION64_PATH", none_or_the_same)
            .output()
            .unwrap();
        assert!(!text(&ran.stderr).contains("CUDA does not load"));
    }
}

#[test]
fn a_missing_layer_is_an_error_that_says_what_to_install() {
    let folder = folder();
    let ran = command(&folder, ["--pool", "--", "echo", "ran"])
        .env("BINPOOL_LAYER", "nowhere/binpool-layer")
        .output()
        .unwrap();
    assert_eq!((ran.status.code(), text(&ran.stdout)), (Some(125), ""));
    let errors = text(&ran.stderr);
    assert!(errors.contains("was not found"), "{errors}");
    assert!(
        errors.contains("nowhere/binpool-layer") && errors.contains("cargo install"),
        "{errors}"
    );
}

#[test]
fn a_wrong_command_line_runs_nothing() {
    let folder = folder();
    for wrong in [
        &["--limit", "1GiB", "--", "echo", "ran"][..],
        &[
            "--record", "a.trace", "--limit", "1GiB", "--", "echo", "ran",
        ],
        &["--record", "a.trace.gz", "--", "echo", "ran"],
        &["--pool"],
        &["--pol", "--", "echo", "ran"],
    ] {
        let ran = run(&folder, wrong);
        assert_eq!(
            (ran.status.code(), text(&ran.stdout)),
            (Some(2), ""),
            "{wrong:?}"
        );
    }
    // What follows the program is its own.
    let ran = run(&folder, &["--pool", "echo", "--record", "-h", "--", "x"]);
    assert_eq!(text(&ran.stdout), "--record -h -- x\n");
}

#[test]
fn a_file_that_cannot_be_a_recording_is_refused_before_the_program_runs() {
    let folder = folder();
    fs::create_dir(folder.path().join("out.trace")).unwrap();
    for file in ["out.trace", "missing/out.trace", "/dev/null"] {
        let ran = run(&folder, &["--record", file, "--", "echo", "ran"]);
        assert_eq!(
            (ran.status.code(), text(&ran.stdout)),
            (Some(125), ""),
            "{file}"
        );
        let errors = text(&ran.stderr);
        assert!(
            errors.contains(&format!("{file} cannot be written")),
            "{errors}"
        );
    }
}

/// Frames of this thread as the layer writes them: files, and addresses by the numbering of each.
#[inline(never)]
fn raw_frames_of_a_function() -> Vec<String> {
    inlined_frames()
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "that is what is tested")]
fn inlined_frames() -> Vec<String> {
    let program = fs::read_link("/proc/self/exe").unwrap();
    let program = program.to_str().unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let first = maps.lines().find(|line| line.ends_with(program)).unwrap();
    let base = usize::from_str_radix(first.split('-').next().unwrap(), 16).unwrap();
    let mut frames = Vec::new();
    backtrace::trace(|frame| {
        let address = (frame.ip() as usize).wrapping_sub(1 + base);
        frames.push(format!("{program}+{address:#x}"));
        true
    });
    frames
}

#[test]
fn native_frames_become_the_names_of_functions_and_lines() {
    let folder = folder();
    let mut frames = raw_frames_of_a_function();
    frames.push("/no/such/library.so+0x12".to_owned());
    let recorded = record(
        &folder,
        &["--record", "out.trace"],
        &[recording(NO_PROCESS, &frames).as_bytes()],
    );
    assert_eq!(
        recorded.status.code(),
        Some(0),
        "{}",
        text(&recorded.stderr)
    );
    let trace = Trace::open(&folder.path().join("out.trace")).unwrap();
    let found = &trace.stacks()[0];
    let place = |name: &str| {
        let is_it = |frame: &String| {
            frame.contains(&format!("{name} at ")) && frame.contains("tests/it/run.rs:")
        };
        found
            .iter()
            .position(is_it)
            .unwrap_or_else(|| panic!("{name}: {found:#?}"))
    };
    assert!(
        found[place("raw_frames_of_a_function")].starts_with("it::run::"),
        "{found:#?}"
    );
    // Called by the next one, and inlined there.
    assert_eq!(
        place("inlined_frames") + 1,
        place("raw_frames_of_a_function")
    );
    assert_eq!(found.last().unwrap(), "/no/such/library.so+0x12");
    assert_eq!(trace.stacks()[1][1], "/home/me/train.py:12 in forward");
    assert_eq!(trace.allocations(), 3);
}

#[test]
fn functions_of_files_without_debug_information_have_the_names_of_their_symbols() {
    let folder = folder();
    // The layer exports it, and has debug information of other functions only, if any.
    let layer = Path::new(env!("CARGO_BIN_EXE_binpool")).with_file_name("binpool-layer");
    let stripped = folder.path().join("libstripped.so");
    let copied = Command::new("objcopy")
        .arg("--strip-all")
        .args([&layer, &stripped])
        .status()
        .unwrap();
    assert!(copied.success());
    let symbols = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&stripped)
        .output()
        .unwrap();
    let line = text(&symbols.stdout)
        .lines()
        .find(|line| line.ends_with(" clInitLayer"))
        .unwrap();
    let address = line.split(' ').next().unwrap().trim_start_matches('0');
    let frame = format!("{}+0x{address}", stripped.display());
    record(
        &folder,
        &["--record", "out.trace"],
        &[recording(NO_PROCESS, &[frame]).as_bytes()],
    );
    let trace = Trace::open(&folder.path().join("out.trace")).unwrap();
    let expected = format!("clInitLayer in {}", stripped.display());
    assert_eq!(trace.stacks()[0], [expected]);
}

#[test]
fn what_a_killed_process_leaves_is_cut_off() {
    let folder = folder();
    let whole = recording(NO_PROCESS, &[]);
    for (cut, nuls) in [("", 0), ("f 3 12", 0), ("", 200_000), ("f 3 12", 200_000)] {
        let left = format!("{whole}{cut}{}", "\0".repeat(nuls));
        record(&folder, &["--record", "out.trace"], &[left.as_bytes()]);
        let found = fs::read_to_string(folder.path().join("out.trace")).unwrap();
        assert_eq!(found, finished(NO_PROCESS), "{cut:?} {nuls}");
    }
}

#[test]
fn every_process_has_a_recording_and_what_was_there_before_is_left_alone() {
    let folder = folder();
    for (name, content) in [
        ("out.trace", "an older recording"),
        ("out.train-7.trace", "of another run"),
        ("other.trace", "x"),
    ] {
        fs::write(folder.path().join(name), content).unwrap();
    }
    let parent = recording(NO_PROCESS, &[]);
    let child = recording(NO_PROCESS - 1, &[]).replace("program train", "program it's");
    let no_recording = b"of the program itself";
    let ran = record(
        &folder,
        &["--record", "out.trace"],
        &[parent.as_bytes(), child.as_bytes(), no_recording],
    );
    let errors = text(&ran.stderr);
    let expected = [
        format!("binpool: 3 allocations of train (process {NO_PROCESS}): binpool view out.trace"),
        format!(
            "binpool: 3 allocations of it's (process {}): binpool view out.child-1.trace",
            NO_PROCESS - 1
        ),
    ];
    assert_eq!(errors.lines().collect::<Vec<_>>(), expected);
    assert_eq!(
        names(&folder),
        [
            "other.trace",
            "out.child-1.trace",
            "out.child-2.trace",
            "out.trace",
            "out.train-7.trace"
        ]
    );
    let read = |name| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("out.train-7.trace"), "of another run");
    assert_eq!(read("out.child-2.trace"), "of the program itself");
    assert_eq!(read("out.trace"), finished(NO_PROCESS));
}

#[test]
fn the_recording_of_a_process_that_goes_on_is_left_to_it() {
    let folder = folder();
    let content = format!("{}\0\0\0", recording(std::process::id(), &[]));
    let contents = folder_with(&[content.as_bytes()]);
    let script = r#"cp "$1" "$BINPOOL_RECORD"; echo ready; read line"#;
    let mut child = command(
        &folder,
        ["--record", "a b.trace", "--", "sh", "-c", script, "sh"],
    );
    let mut child = child
        .arg(contents.path().join("0"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let path = folder.path().join("a b.trace");
    let _mapped = mapped(&fs::File::open(&path).unwrap());
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let ran = child.wait_with_output().unwrap();
    let errors = text(&ran.stderr);
    assert!(
        errors.contains(", and goes on): binpool view 'a b.trace'"),
        "{errors}"
    );
    assert_eq!(fs::read_to_string(path).unwrap(), content);
}

#[test]
fn the_recording_of_a_process_whose_number_another_has_is_finished() {
    let folder = folder();
    let number = std::process::id();
    let content = format!("{}\0\0\0", recording(number, &[]));
    let ran = record(&folder, &["--record", "out.trace"], &[content.as_bytes()]);
    assert!(!text(&ran.stderr).contains("goes on"));
    let found = fs::read_to_string(folder.path().join("out.trace")).unwrap();
    assert_eq!(found, finished(number));
}

#[test]
fn an_older_recording_stays_where_the_program_does_not_start() {
    let folder = folder();
    let path = folder.path().join("out.trace");
    fs::write(&path, "older").unwrap();
    let ran = run(&folder, &["--record", "out.trace", "no such program"]);
    assert_eq!(ran.status.code(), Some(127));
    assert_eq!(fs::read_to_string(&path).unwrap(), "older");
    assert_eq!(names(&folder), ["out.trace"]);
    run(&folder, &["--record", "out.trace", "true"]);
    assert_eq!(names(&folder), [""; 0]);
}

#[test]
fn a_program_without_a_recording_is_explained_and_ends_as_it_does() {
    let folder = folder();
    for options in [&["--record", "out.trace"][..], &["--report"]] {
        let words = [options, &["--", "sh", "-c", "echo told; exit 4"]].concat();
        let ran = run(&folder, &words);
        assert_eq!((ran.status.code(), text(&ran.stdout)), (Some(4), "told\n"));
        let errors = text(&ran.stderr);
        let covered = "binpool: no recording: binpool covers OpenCL, CUDA, and PyTorch and CuPy on CUDA, not Vulkan, HIP or Level Zero";
        assert!(errors.starts_with(covered), "{errors}");
        assert!(errors.contains("CUPTI"), "{errors}");
    }
    assert_eq!(names(&folder), [""; 0]);
}

#[test]
fn a_program_without_a_pool_is_explained() {
    let folder = folder();
    let errors_of = |arguments: &[&str]| text(&run(&folder, arguments).stderr).to_owned();
    let lacking = errors_of(&["--pool", "--limit", "1GiB", "true"]);
    assert!(lacking.starts_with("binpool: no pool: "), "{lacking}");
    let both = errors_of(&["--pool", "--record", "out.trace", "true"]);
    assert!(
        both.starts_with("binpool: no recording and no pool: "),
        "{both}"
    );
    assert_eq!(both.lines().count(), 1, "{both}");
    assert_eq!(errors_of(&["--pool", "--", "sh", "-c", POOLED]), "");
}

#[test]
fn the_report_says_what_allocated_and_what_is_left() {
    let folder = folder();
    let temporary = self::folder();
    let contents = folder_with(&[recording(NO_PROCESS, &raw_frames_of_a_function()).as_bytes()]);
    let path = contents.path().join("0");
    let words = copying(&[&path]);
    let ran = command(
        &folder,
        ["--report", "--"]
            .map(str::to_owned)
            .into_iter()
            .chain(words),
    )
    .env("TMPDIR", temporary.path())
    .output()
    .unwrap();
    assert_eq!((ran.status.code(), text(&ran.stdout)), (Some(0), ""));
    let report = text(&ran.stderr);
    let has = |what: &str| assert!(report.contains(what), "{what}:\n{report}");
    has("train (process 4294967295) on a device\n");
    has("peak of live memory: 1.0 MiB in 2 blocks, 2.00 us after the recording began\n");
    has("allocations: 3, 1.0 MiB in all; refused: 1\n");
    has("never released: 1 block, 1.0 KiB\n");
    let row = |cells: &[&str]| {
        let is_it = |line: &str| {
            let found: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            found.len() == cells.len()
                && cells
                    .iter()
                    .zip(found)
                    .all(|(cell, found)| found.contains(cell))
        };
        assert!(report.lines().any(is_it), "{cells:?}\n{report}");
    };
    row(&["me/train.py:12 in forward", "1.0 MiB", "1", "1.0 MiB"]);
    row(&["inlined_frames at it/run.rs:", "4.0 KiB", "2", "5.0 KiB"]);
    row(&["inlined_frames at it/run.rs:", "1", "1.0 KiB"]);
    row(&["image", "1.0 MiB", "1", "1.0 MiB", "0 B"]);
    row(&["buffer", "4.0 KiB", "2", "5.0 KiB", "1.0 KiB"]);
    row(&["me/train.py:12 in forward", "1", "16.0 GiB"]);
    row(&["clCreateBuffer", "3", "1.50 ms", "500.00 us"]);
    row(&["clReleaseMemObject", "2", "20.00 us", "10.00 us"]);
    assert_eq!(names(&temporary), [""; 0]);
    assert_eq!(names(&folder), [""; 0]);
}

#[test]
fn a_report_of_a_program_over_a_pool_says_what_it_did_not_serve() {
    let folder = folder();
    let source = "h source a program on OpenCL\n";
    let mut text_of_it =
        recording(NO_PROCESS, &[]).replace(source, &format!("{source}h pooled yes\n"));
    text_of_it.push_str(
        "p passed 100 7000000 it has a host pointer\np passed 50 7000000 it has a host pointer\n",
    );
    let ran = record(
        &folder,
        &["--report", "--pool", "--record", "out.trace"],
        &[text_of_it.as_bytes()],
    );
    let report = text(&ran.stderr);
    assert!(
        report.contains("| it has a host pointer    |           2 | 150 B |"),
        "{report}"
    );
    assert!(
        report.contains("| call of the driver (not those that the pool served) |"),
        "{report}"
    );
    assert!(!report.contains("with a pool"), "{report}");
}

#[test]
fn the_report_of_a_recording_is_printed_later_too() {
    let folder = folder();
    let content = recording(NO_PROCESS, &[]);
    let recorded = record(
        &folder,
        &["--record", "out.trace", "--report"],
        &[content.as_bytes()],
    );
    let (_, at_once) = text(&recorded.stderr).split_once("\n\n").unwrap();
    let later = Command::new(env!("CARGO_BIN_EXE_binpool"))
        .current_dir(&folder)
        .env_remove("COLUMNS")
        .args(["view", "--report", "out.trace"])
        .output()
        .unwrap();
    assert_eq!(text(&later.stdout), at_once);
    assert_eq!(names(&folder), ["out.trace"]);
}

#[test]
fn long_tables_end_with_the_sum_of_the_others() {
    let folder = folder();
    let mut content = recording(NO_PROCESS, &[]);
    for number in 1..=20 {
        writeln!(
            content,
            "p call {number} 7000000 clFunction{number} {number}"
        )
        .unwrap();
    }
    let ran = record(&folder, &["--report"], &[content.as_bytes()]);
    let report = text(&ran.stderr);
    let row = report.lines().find(|line| line.contains("others")).unwrap();
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    // Two of the recording are first, and then those of 20 to 11.
    assert_eq!(
        cells[1..5],
        ["10 others", "55", "55 ns", "1 ns"],
        "{report}"
    );
}

#[test]
fn the_report_is_printed_where_nothing_else_is_asked_for() {
    let folder = folder();
    let ran = record(&folder, &[], &[recording(NO_PROCESS, &[]).as_bytes()]);
    let report = text(&ran.stderr);
    assert!(report.contains("peak of live memory: 1.0 MiB"), "{report}");
    assert_eq!(names(&folder), [""; 0]);
    let ran = record(&folder, &["--record", "out.trace"], &[b"h version 3\n"]);
    assert!(!text(&ran.stderr).contains("peak of live memory"));
}

#[test]
fn a_file_that_is_no_command_is_named_as_it_can_be_started() {
    use std::os::unix::fs::PermissionsExt;

    let folder = folder();
    let errors_of = |program: &str| {
        let ran = run(&folder, &["--pool", program]);
        text(&ran.stderr).to_owned()
    };
    let path = folder.path().join("plain.py");
    fs::write(&path, "print(1)").unwrap();
    for program in ["plain.py", "./plain.py"] {
        let errors = errors_of(program);
        let hint = format!("could not start {program}: did you mean `python {program}`?\n");
        assert!(errors.contains(&hint), "{errors}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let errors = errors_of("plain.py");
    assert!(errors.contains("did you mean `./plain.py`?"), "{errors}");
    assert!(!errors_of("other.py").contains("did you mean"));
}

#[test]
fn a_recording_that_could_not_be_made_leaves_no_file_and_no_other_reason() {
    let folder = folder();
    let script = r#": >"$BINPOOL_RECORD"; : >"${BINPOOL_RECORD%.trace}.child-1.trace"; exit 4"#;
    for options in [&["--record", "out.trace"][..], &["--report"]] {
        let ran = run(&folder, &[options, &["--", "sh", "-c", script]].concat());
        // The program's process has said why.
        assert_eq!((ran.status.code(), text(&ran.stderr)), (Some(4), ""));
        assert_eq!(names(&folder), [""; 0]);
    }
}

/// A program with a pool that leaves these figures, and `out.trace`, which is of process 12.
fn over_a_pool(folder: &TempDir, options: &[&str], figures: &[(&str, [u64; 5])]) -> String {
    let bytes: Vec<Vec<u8>> = figures
        .iter()
        .map(|(_, numbers)| numbers.iter().flat_map(|it| it.to_ne_bytes()).collect())
        .collect();
    let source = "h source a program on OpenCL\n";
    let header = format!("{source}h pooled yes\nh limit 4194304\n");
    let trace = recording(12, &[]).replace(source, &header);
    let mut contents: Vec<&[u8]> = vec![trace.as_bytes()];
    contents.extend(bytes.iter().map(Vec::as_slice));
    let left = folder_with(&contents);
    let script = format!(
        r#"{POOLED}; cd "$1"; test -z "$BINPOOL_RECORD" || cp 0 "$BINPOOL_RECORD"; shift; number=1
        for process; do cp $number "$BINPOOL_POOLED.$process"; number=$((number + 1)); done"#
    );
    let words = [options, &["--", "sh", "-c", &script, "sh"]].concat();
    let mut command = command(folder, words);
    command.arg(left.path());
    let ran = command.args(figures.iter().map(|(process, _)| process));
    text(&ran.output().unwrap().stderr).to_owned()
}

#[test]
fn what_the_pool_did_is_said_at_the_end_for_each_process_that_asked_it() {
    let folder = folder();
    let some = [281, 271, 0, 9 << 20, 5 << 20];
    let one = over_a_pool(
        &folder,
        &["--pool"],
        &[("train-12", some), ("sh-1", [0; 5])],
    );
    let line = "binpool: the pool served 271 of 281 requests and reserved 9.0 MiB at most, 5.0 MiB of that free for reuse then\n";
    assert_eq!(one, line);
    let several = over_a_pool(
        &folder,
        &["--pool", "--limit", "4MiB"],
        &[("train-12", some), ("a-b-13", [3, 1, 2, 64, 0])],
    );
    let expected = [
        "binpool: the pool of a-b (process 13) served 1 of 3 requests and reserved 64 B at most, 0 B of that free for reuse then; \
         the limit of 4.0 MiB refused 2",
        "binpool: the pool of train (process 12) served 271 of 281 requests and reserved 9.0 MiB at most, 5.0 MiB of that free for reuse then",
    ];
    assert_eq!(several.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn the_report_has_what_the_pool_did_and_that_the_limit_refused() {
    let folder = folder();
    let options = [
        "--pool",
        "--limit",
        "4MiB",
        "--report",
        "--record",
        "out.trace",
    ];
    let some = [281, 271, 1, 9 << 20, 5 << 20];
    let errors = over_a_pool(&folder, &options, &[("train-12", some)]);
    let row = "|      281 |                271 |                    1 |          9.0 MiB |             5.0 MiB |";
    assert!(errors.contains(row), "{errors}");
    let verdict = "; refused: 1, 1 of them because of the limit of 4.0 MiB\n";
    assert!(errors.contains(verdict), "{errors}");
    assert!(!errors.contains("with a pool"), "{errors}");
}

/// Runs `binpool view` on a recording of this text.
fn view(recording: &str, arguments: &[&str]) -> (String, String) {
    let folder = folder();
    let path = folder.path().join("recorded.trace");
    fs::write(&path, recording).unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_binpool"))
        .current_dir(&folder)
        .env_remove("COLUMNS")
        .args(["view", "recorded.trace"])
        .args(arguments)
        .output()
        .unwrap();
    let errors = text(&ran.stderr).to_owned();
    assert_eq!(ran.status.code(), Some(0), "{errors}");
    (text(&ran.stdout).to_owned(), errors)
}

#[test]
fn a_page_answers_about_the_device_that_the_program_ran_on() {
    let on = |header: &str| recording(12, &[]).replace("p context", &format!("{header}p context"));
    let about = |recording: &str, arguments: &[&str]| {
        let (json, _) = view(recording, &[&["--json"], arguments].concat());
        let numbers: serde_json::Value = serde_json::from_str(&json).unwrap();
        (
            numbers["device"].as_str().unwrap().to_owned(),
            numbers["capacity_bytes"].as_u64().unwrap(),
        )
    };
    let known = on("h device a device\nh capacity 8589934592\n");
    assert_eq!(about(&known, &[]), ("a device".to_owned(), 8 << 30));
    let (simulated, capacity) = about(&known, &["--capacity", "1GiB"]);
    assert_eq!((&*simulated, capacity), ("NVIDIA H200 (mock)", 1 << 30));
    // Memory of two devices is not that of the first.
    let two = format!("{known}p context 0 7000000 2: another\n");
    assert_eq!(about(&two, &[]).0, "NVIDIA H200 (mock)");
    assert_eq!(about(&on(""), &[]).0, "NVIDIA H200 (mock)");
}

#[test]
fn a_pool_is_advised_only_where_it_halves_the_requests_to_the_driver() {
    let report = |recording: &str| view(recording, &["--report"]).0;
    let once = "a 1 4096 0\na 2 4096 0\nf 1\na 3 4096 0\nf 2\n";
    assert!(
        report(once)
            .contains("with a pool, the driver would be asked for memory 1 time instead of 3")
    );
    // Blocks that no segment has room for twice.
    let large = "a 1 1073741824 0\na 2 1073741824 0\na 3 1073741824 0\nf 1\n";
    assert!(!report(large).contains("with a pool"));
}

#[test]
fn no_pool_is_advised_to_a_program_that_has_one() {
    let requests = "a 1 4096 0\na 2 4096 0\nf 1\na 3 4096 0\nf 2\n";
    let own = format!("h version 2\nh device pocl\nh allocator ImmediateAllocator\n{requests}");
    let entry = |action: &str, address: u64| {
        format!(
            r#"{{"action": "{action}", "addr": {address}, "size": 4096, "stream": 0, "time_us": 1}}"#
        )
    };
    let entries = [
        entry("alloc", 1 << 20),
        entry("alloc", 2 << 20),
        entry("alloc", 3 << 20),
    ];
    let of_pytorch = format!(
        r#"{{"device_traces": [[{}]], "segments": []}}"#,
        entries.join(",")
    );
    let log = "Thread,Time,Action,Pointer,Size,Stream\n1,0:0:0.1,allocate,0x100,4096,0x0\n1,0:0:0.2,allocate,0x2000,4096,0x0\n";
    let log = format!("{log}1,0:0:0.3,free,0x100,4096,0x0\n1,0:0:0.4,allocate,0x100,4096,0x0\n");
    for recording in [own, of_pytorch, log] {
        for scale in ["1", "2"] {
            let (report, errors) = view(&recording, &["--report", "--scale", scale]);
            assert!(report.contains("peak of live memory"), "{report}{errors}");
            assert!(!report.contains("with a pool"), "{report}");
        }
        let folder = folder_with(&[recording.as_bytes()]);
        let imported = Command::new(env!("CARGO_BIN_EXE_binpool"))
            .current_dir(&folder)
            .args(["import", "0"])
            .output()
            .unwrap();
        let (report, errors) = view(text(&imported.stdout), &["--report"]);
        assert!(report.contains("peak of live memory"), "{report}{errors}");
        assert!(!report.contains("with a pool"), "{report}");
    }
}

#[test]
fn groups_of_a_recorded_program_are_named_beyond_packages() {
    let frames = [
        "/home/me/nets/layers.py:7 in dense",
        "/home/me/train.py:12 in forward",
    ]
    .map(str::to_owned);
    let folder = folder();
    let raw = recording(NO_PROCESS, &frames);
    record(&folder, &["--record", "out.trace"], &[raw.as_bytes()]);
    let finished = fs::read_to_string(folder.path().join("out.trace")).unwrap();
    // That of a program that runs has no callers in its groups yet.
    for recording in [raw, finished] {
        for (beyond, caller) in [
            (&[][..], "nets/layers.py:7 in dense"),
            (&["--beyond", "nets"], "me/train.py:12 in forward"),
            (&["--beyond", "layers"], "me/train.py:12 in forward"),
        ] {
            let (report, errors) = view(&recording, &[&["--report"], beyond].concat());
            let row = format!("| {caller} ");
            assert!(report.contains(&row), "{report}");
            assert_eq!(errors, "");
        }
        let (json, _) = view(&recording, &["--json", "--beyond", "nets"]);
        assert!(
            json.contains("me/train.py:12 in forward (buffer, context 1)"),
            "{json}"
        );
        assert!(
            !json.contains("nets/layers.py:7 in dense (buffer"),
            "{json}"
        );
    }
}

#[test]
fn an_option_of_another_command_is_answered_by_its_name_here() {
    for (words, here) in [
        (&["replay", "--limit=4GiB", "x"][..], "'--capacity'"),
        (&["view", "--limit", "4GiB", "x"], "'--capacity'"),
        (&["run", "--capacity", "4GiB", "true"], "'--limit'"),
    ] {
        let ran = Command::new(env!("CARGO_BIN_EXE_binpool"))
            .args(words)
            .output()
            .unwrap();
        let errors = text(&ran.stderr);
        assert!(
            errors.contains(&format!("a similar argument exists: {here}")),
            "{errors}"
        );
    }
}
