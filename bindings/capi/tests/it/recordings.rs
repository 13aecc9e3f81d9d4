//! Recordings.

use std::{
    ffi::CString,
    fs,
    path::{Path, PathBuf},
    ptr,
};

use binpool_capi::{
    Recording, RecordingSummary, Status, binpool_pool_record, binpool_recording_finish,
    binpool_tag_enter, binpool_tag_leave,
};
use tempfile::TempDir;

use crate::common::{Bench, failed, free, message, ok};

fn record(bench: &Bench, path: &Path) -> (Status, *mut Recording) {
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let mut recording = ptr::null_mut();
    // SAFETY: The pool and the path live.
    let status = unsafe { binpool_pool_record(bench.pool, path.as_ptr(), &raw mut recording) };
    (status, recording)
}

fn begun(bench: &Bench, path: &Path) -> *mut Recording {
    let (status, recording) = record(bench, path);
    ok(status);
    recording
}

fn finish(recording: *mut Recording) -> RecordingSummary {
    let mut summary = RecordingSummary::default();
    // SAFETY: The recording goes on.
    ok(unsafe { binpool_recording_finish(recording, &raw mut summary) });
    summary
}

fn file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program.trace");
    (folder, path)
}

#[test]
fn a_recording_can_be_read_back_with_the_tags_of_its_blocks() {
    let (bench, (_folder, path)) = (Bench::new(0), file());
    fs::write(&path, "what was there before\n".repeat(10_000)).unwrap();
    let recording = begun(&bench, &path);
    // SAFETY: The name is a text.
    ok(unsafe { binpool_tag_enter(c"weights".as_ptr()) });
    let weights = bench.allocate(1 << 20);
    ok(binpool_tag_leave());
    let other = bench.allocate(4096);
    free(other);
    let summary = finish(recording);
    assert_eq!(
        (summary.allocations, summary.frees, summary.shortages),
        (2, 1, 0)
    );
    free(weights);

    let trace = fs::read_to_string(path).unwrap();
    assert!(trace.starts_with("h version "), "{trace}");
    let count = |start| trace.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!((count("a "), count("f "), count("what")), (2, 1, 0));
    assert!(
        trace
            .lines()
            .any(|line| line.starts_with("g ") && line.ends_with(" weights")),
        "{trace}"
    );
}

#[test]
fn a_pool_has_one_recording_at_a_time_and_another_leaves_its_file_alone() {
    let (bench, (_folder, path)) = (Bench::new(0), file());
    let recording = begun(&bench, &path);
    free(bench.allocate(4096));
    let (status, second) = record(&bench, &path);
    assert!(failed(status, Status::Busy).contains("finish that recording first"));
    assert!(second.is_null());
    assert_eq!(finish(recording).allocations, 1);
    assert!(fs::read_to_string(&path).unwrap().starts_with("h version "));
    finish(begun(&bench, &path));
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let (bench, (folder, _)) = (Bench::new(0), file());
    let path = folder.path().join("no/such/folder");
    let (status, _) = record(&bench, &path);
    let text = failed(status, Status::Io);
    assert!(text.starts_with(path.to_str().unwrap()), "{text}");
}

#[test]
fn a_recording_goes_into_a_pipe() {
    use std::{io::Read, os::fd::AsRawFd};

    let bench = Bench::new(0);
    let (mut reads, writes) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", writes.as_raw_fd());
    let recording = begun(&bench, Path::new(&path));
    free(bench.allocate(4096));
    drop(writes);
    assert_eq!(finish(recording).allocations, 1);
    let mut text = String::new();
    reads.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("h version "), "{text}");
    assert!(text.lines().any(|line| line.starts_with("f ")), "{text}");
}

#[test]
fn a_file_that_gets_full_is_named() {
    let bench = Bench::new(0);
    let recording = begun(&bench, Path::new("/dev/full"));
    free(bench.allocate(4096));
    // SAFETY: The recording goes on.
    let status = unsafe { binpool_recording_finish(recording, ptr::null_mut()) };
    let text = failed(status, Status::Io);
    assert!(
        text.contains("/dev/full cannot be written: No space left on device"),
        "{text}"
    );
}

#[test]
fn a_recording_outlives_its_pool() {
    let (bench, (_folder, path)) = (Bench::new(0), file());
    let recording = begun(&bench, &path);
    free(bench.allocate(4096));
    drop(bench);
    assert_eq!(finish(recording).frees, 1);
}

#[test]
fn a_tag_that_was_not_entered_cannot_be_left() {
    failed(binpool_tag_leave(), Status::InvalidArgument);
    assert!(message().starts_with("this thread has no tag"));
}
