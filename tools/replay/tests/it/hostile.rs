//! What hostile files, full disks and odd names cannot do to the command.

use std::{
    cell::Cell,
    error::Error as _,
    fs,
    io::{self, Read, Write as _},
    path::Path,
    process::{Command, Output, Stdio},
};

use binpool_mock::DeviceProfile;
use binpool_recordings::Trace;
use binpool_replay::{Profile, ProfileError};
use binpool_trace::{TraceError, TraceErrorKind};
use flate2::{Compression, write::GzEncoder};
use serde_json::Value;

use crate::common::binpool;

const TRACE: &str = "g 1 weights\na 0 4096 0 0 1\na 1 100 0 5\nf 0 9\n";

/// The most bytes of a line.
const LONGEST: usize = 65_536;

/// A folder with a file in it, and the path of that.
fn file(name: &str, content: impl AsRef<[u8]>) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

/// Runs a line of the shell, where `$0` is the command and `$1` and so on are `arguments`.
fn shell(line: &str, arguments: &[&str]) -> Output {
    Command::new("sh")
        .args(["-c", line, env!("CARGO_BIN_EXE_binpool")])
        .args(arguments)
        .output()
        .unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// `content`, and then `times` times `piece`, compressed one by one: a bomb that is made as fast as its pieces are copied.
fn bomb(content: &[u8], piece: &[u8], times: usize) -> Vec<u8> {
    let member = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    [member(content), member(piece).repeat(times)].concat()
}

/// Never ends, and counts what was read.
struct Endless<'c> {
    start: &'c [u8],
    rest: u8,
    read: &'c Cell<usize>,
}

impl Read for Endless<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = match self.start.read(bytes)? {
            0 => {
                bytes.fill(self.rest);
                bytes.len()
            }
            read => read,
        };
        self.read.set(self.read.get() + read);
        Ok(read)
    }
}

/// Reads what begins with `start` and goes on with `rest` forever: the error, and how many bytes it took.
fn read_endless(start: &[u8], rest: u8) -> (TraceError, usize) {
    let read = Cell::new(0);
    let endless = Endless {
        start,
        rest,
        read: &read,
    };
    let error = Trace::read("t", endless, None).unwrap_err();
    (error, read.get())
}

#[test]
fn a_line_that_never_ends_is_named_and_read_no_further() {
    let (error, read) = read_endless(b"a 0 1 0\n#", b'a');
    let too_long = format!("expected a line of at most {LONGEST} bytes");
    assert_eq!(error.place(), "line 2");
    let quoted = error.message().strip_prefix(&too_long).unwrap();
    let text = quoted.strip_prefix("; the line is \"").unwrap();
    let text = text.strip_suffix('"').unwrap();
    assert_eq!(text.len(), 60);
    assert!(read < 4 * LONGEST, "{read} bytes");

    let (error, read) = read_endless(b"Thread,Time,Action,Pointer,Size,Stream\n1,\"", b'a');
    assert_eq!(error.place(), "line 2");
    assert_eq!(error.message(), too_long);
    assert!(read < 4 * LONGEST, "{read} bytes");
}

#[test]
fn the_longest_line_is_read_and_its_name_is_cut() {
    let name = "n".repeat(LONGEST - "g 0 ".len());
    let text = format!("g 0 {name}\na 0 1 0 0 0\n");
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    let cut = format!("{}…", "n".repeat(511));
    assert_eq!(trace.groups(), [cut]);
    let again = Trace::parse("t", trace.to_string().as_bytes()).unwrap();
    assert_eq!(again.groups(), trace.groups());
    assert!(Trace::parse("t", text.replace("g 0", "g 00").as_bytes()).is_err());
}

#[test]
fn a_compressed_document_that_expands_too_far_is_refused() {
    // In each of them, lists that begin and never end.
    for (start, piece, times) in [(&b"{\"a\":["[..], b"1,", 100), (b"\x80\x04", b"](", 32)] {
        let file = bomb(start, &piece.repeat(1 << 18), 64);
        let error = Trace::read("t", &*file, None).unwrap_err();
        assert_eq!(error.kind(), TraceErrorKind::Io, "{error}");
        let source = error.source().unwrap();
        let expected = format!("more than {times} times its size");
        assert!(source.to_string().contains(&expected), "{source}");
    }
    // Not compressed, it is as large as it says.
    let plain = [&b"{"[..], &vec![b' '; 20 << 20], b"\"device_traces\": 1}"].concat();
    let error = Trace::read("t", &*plain, None).unwrap_err();
    assert_eq!(error.kind(), TraceErrorKind::Foreign, "{error}");
}

/// 300 MB, in a process that may have 200 MB.
#[cfg(target_os = "linux")]
#[test]
fn what_a_pickle_has_no_use_for_takes_no_memory() {
    // Bytes, and a text.
    for opcode in ["B", "X"] {
        let begin = format!("printf '\\200\\004{opcode}\\000\\000\\300\\022'");
        let file = format!("{{ {begin}; head -c 314572800 /dev/zero; printf .; }}");
        let line = format!("{file} | {{ ulimit -v 200000; exec \"$0\" import /dev/stdin; }}");
        let ran = shell(&line, &[]);
        assert!(
            errors(&ran).contains("expected a memory snapshot of PyTorch"),
            "{ran:?}"
        );
    }
}

/// A trace that is read to its end before it is looked at would have all of it written.
#[test]
fn view_looks_at_a_trace_while_it_reads_it() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_binpool"))
        .args(["view", "--json", "/dev/stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = format!("no event\n{}", "#\n".repeat(16 << 20));
    let written = input.write_all(text.as_bytes());
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(written.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    assert!(errors(&output).contains("line 1: expected"), "{output:?}");
}

#[test]
fn a_full_disk_leaves_the_file_of_before_and_nothing_beside_it() {
    // No file may have more than 16 blocks, of 512 or 1024 bytes.
    let full = "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\"";
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces");
    let trace = traces.join("gpt2_varlen_train.trace.gz");
    let trace = trace.to_str().unwrap();
    for (arguments, name) in [
        (&["view", trace, "-o"][..], "page.html"),
        (&["import", trace, "-o"], "out.trace"),
        (&["import", trace, "-o"], "out.trace.gz"),
    ] {
        let (folder, out) = file(name, "the file of before");
        let ran = shell(full, &[arguments, &[&out]].concat());
        assert_eq!(ran.status.code(), Some(1), "{ran:?}");
        assert!(errors(&ran).contains("cannot be written"), "{ran:?}");
        assert_eq!(fs::read_to_string(&out).unwrap(), "the file of before");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{name}");
        fs::remove_file(&out).unwrap();
        shell(full, &[arguments, &[&out]].concat());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{name}");
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_is_replaced_keeps_its_permissions_and_its_links() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let (folder, trace) = file("t.trace", TRACE);
    let at = |name: &str| folder.path().join(name);
    let import = |out: &Path| binpool(&["import", &trace, "-o", out.to_str().unwrap()]).status;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;

    fs::write(at("usual"), "").unwrap();
    assert_eq!(import(&at("new")), 0);
    assert_eq!(mode(&at("new")), mode(&at("usual")));
    fs::set_permissions(at("new"), PermissionsExt::from_mode(0o640)).unwrap();
    assert_eq!(import(&at("new")), 0);
    assert_eq!(mode(&at("new")), 0o640);

    fs::create_dir(at("folder")).unwrap();
    symlink("folder/target", at("link")).unwrap();
    symlink("link", at("link to link")).unwrap();
    for target_is_there in [false, true] {
        assert_eq!(import(&at("link to link")), 0, "{target_is_there}");
        assert!(at("link").is_symlink() && at("link to link").is_symlink());
        assert_eq!(
            fs::read_to_string(at("folder/target")).unwrap(),
            TRACE.replace("g 1", "g 0").replace("0 1\n", "0 0\n")
        );
        fs::write(at("folder/target"), "old").unwrap();
    }
    symlink("round", at("round")).unwrap();
    assert_eq!(import(&at("round")), 1);
    assert!(at("round").is_symlink());
    assert_eq!(import(folder.path()), 1, "a folder is no file");
}

#[cfg(target_os = "linux")]
#[test]
fn pipes_and_open_files_are_written_into() {
    use std::os::unix::fs::FileTypeExt;

    let (folder, trace) = file("t.trace", TRACE);
    let first = "g 0 weights\n";
    for out in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let ran = shell("\"$0\" import \"$1\" -o \"$2\" | cat", &[&trace, out]);
        let written = String::from_utf8(ran.stdout.clone()).unwrap();
        assert!(written.starts_with(first), "{ran:?}");
        let into = folder.path().join("into");
        let into = into.to_str().unwrap();
        let line = "{ echo before; \"$0\" import \"$1\" -o \"$2\"; echo behind; } >>\"$3\"";
        fs::write(into, "").unwrap();
        shell(line, &[&trace, out, into]);
        let written = fs::read_to_string(into).unwrap();
        assert!(written.ends_with("behind\n"), "{out}: {written}");
    }
    let ran = shell(
        "cd \"$2\" && mkfifo pipe && { timeout 60 cat pipe & \"$0\" import \"$1\" -o pipe; wait; }",
        &[&trace, folder.path().to_str().unwrap()],
    );
    let written = String::from_utf8(ran.stdout.clone()).unwrap();
    assert!(written.contains(first), "{ran:?}");
    let pipe = fs::metadata(folder.path().join("pipe")).unwrap();
    assert!(pipe.file_type().is_fifo());
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_error_changes_no_exit_status() {
    let (folder, trace) = file("t.trace", TRACE);
    let out = folder.path().join("out.trace");
    let out = out.to_str().unwrap();
    for (arguments, status) in [
        (&["replay", "no such file"][..], 1),
        (&["--color", "always", "replay", "no such file"], 1),
        (&["replay", "--capacity", "1KiB", &trace], 1),
        (&["import", "../replay/tests/imports/rmm.csv", "-o", out], 0),
        (&["--verbose", "replay", &trace], 0),
        (&["replay"], 2),
        (&["no such command"], 2),
    ] {
        let line = "cd \"$D\" && exec \"$0\" \"$@\" 2>/dev/full"
            .replace("$D", concat!(env!("CARGO_MANIFEST_DIR"), "/../traces"));
        let ran = shell(&line, arguments);
        assert_eq!(ran.status.code(), Some(status), "{arguments:?}: {ran:?}");
        let closed = line.replace("2>/dev/full", "2>&-");
        let ran = shell(&closed, arguments);
        assert_eq!(ran.status.code(), Some(status), "{arguments:?}: {ran:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_output_is_a_failure_that_is_named() {
    let (_folder, trace) = file("t.trace", TRACE);
    for arguments in [
        &["import", &trace][..],
        &["replay", &trace],
        &["view", "--json", &trace],
        &["record"],
        &["man"],
        &["--help"],
        &["--version"],
    ] {
        let ran = shell("exec \"$0\" \"$@\" >/dev/full", arguments);
        assert_eq!(ran.status.code(), Some(1), "{arguments:?}: {ran:?}");
        assert!(errors(&ran).contains("No space left"), "{ran:?}");
    }
}

/// Returns whether a terminal would obey a part of it.
fn has_control(text: &str) -> bool {
    text.chars()
        .any(|letter| letter.is_control() && letter != '\n' || letter == '\u{202e}')
}

#[cfg(unix)]
#[test]
fn control_characters_of_a_files_name_reach_no_terminal() {
    let odd = "\u{1b}[31m\u{9b}32m\r\n\u{202e}odd";
    let (folder, trace) = file(&format!("{odd}.trace"), TRACE);
    let write = |name: &str, content: &str| {
        let path = folder.path().join(format!("{odd}{name}"));
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let wrong = write("wrong.trace", "a 0 many 0\n");
    let snapshot = write("snapshot.json", "{\"format\": \"\\u001b[31m\"}");
    let profile = write("profile.json", "{\"format\": \"\\u001b[31m\"}");
    let rmm = fs::read_to_string("tests/imports/rmm.csv").unwrap();
    let rmm = write("rmm.csv", &rmm);
    let out = write("out.trace", "");
    let nowhere = format!("{trace}/out");
    let missing = write("", "") + "missing";
    for arguments in [
        &["replay", &trace][..],
        &["replay", &trace, &wrong, &missing],
        &["replay", &trace, "--capacity", "1KiB"],
        &["replay", &trace, "--json"],
        &["replay", &trace, "--profile", &profile],
        &["replay", &trace, "--profile", &missing],
        &["tune", &trace],
        &["tune", &trace, "--capacity", "1KiB"],
        &["import", &rmm, "-o", &out],
        &["import", &rmm, "-o", &nowhere],
        &["view", &trace, "--json"],
        &["view", &trace, "--json", "--capacity", "1KiB"],
        &["view", &wrong, "--json"],
        &["view", &missing, "--json"],
        &["view", &snapshot, "--json"],
        &[odd],
        &["replay", &format!("--{odd}")],
        &["replay", &trace, "--backend", odd],
        &["replay", &trace, "--scale", odd],
        &["replay", &trace, "--capacity", odd],
    ] {
        let ran = binpool(arguments);
        assert!(!has_control(&ran.errors), "{arguments:?}: {:?}", ran.errors);
        assert!(!has_control(&ran.output), "{arguments:?}: {:?}", ran.output);
        assert!(!ran.output.is_empty() || !ran.errors.is_empty());
    }
}

#[test]
fn a_profile_of_an_impossible_device_is_refused_and_its_name_is_shown() {
    let open = |field: &str, value: Value| {
        let mut document = serde_json::to_value(DeviceProfile::pocl()).unwrap();
        document["limits"][field] = value;
        let (_folder, path) = file("profile.json", document.to_string());
        Profile::open(Path::new(&path))
    };
    let name = open("device_name", "\u{1b}[31m".into()).unwrap().name();
    assert_eq!(name, "\\u{1b}[31m");
    for field in ["capacity_bytes", "largest_block_bytes"] {
        assert!(open(field, (1_u64 << 60).into()).is_ok());
        let error = open(field, u64::MAX.into()).unwrap_err();
        assert!(matches!(error, ProfileError::TooLarge { .. }), "{error}");
    }
}
