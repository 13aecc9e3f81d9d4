//! Files that are no recordings: the message says what they are, and what to record instead.

use std::io::Write as _;

use binpool_recordings::Trace;
use flate2::{Compression, write::GzEncoder};

/// The message about a file with this content.
fn message(content: &[u8]) -> String {
    Trace::read("t", content, None).unwrap_err().to_string()
}

#[test]
fn what_is_no_recording_is_called_what_it_is() {
    let safetensors = [&100_u64.to_le_bytes()[..], b"{\"__metadata__\":{}}"].concat();
    let tar = [&[b'x'; 100][..], &[0; 157], b"ustar\0"].concat();
    for (content, what) in [
        (
            &b"{\"schemaVersion\": 1, \"traceEvents\": [{\"ph\": \"X\"}]}"[..],
            "a profiler",
        ),
        (b"[{\"ph\": \"X\", \"ts\": 1}]", "a profiler"),
        (
            b"{\"schemaVersion\": 1, \"deviceProperties\": [], \"traceEvents\": [{\"du",
            "a profiler",
        ),
        (
            b"{\"allocated_bytes.all.current\": 1}",
            "torch.cuda.memory_stats()",
        ),
        (
            b"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to",
            "PyTorch's memory",
        ),
        (
            b"[1][16:47:00:093520][info  ] ----- RMM LOG BEGIN [PTDS ENABLED] -----\n",
            "RMM's debug log",
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
            "Git LFS",
        ),
        (b"\n\n<!DOCTYPE html>\n<html>", "HTML"),
        (b"PK\x03\x04\x14\0", "an archive"),
        (&tar, "an archive"),
        (b"\x28\xb5\x2f\xfd\x04\0", "not with gzip"),
        (
            b"{\"format\": \"binpool snapshot\", \"version\": 1}",
            "a snapshot of a pool",
        ),
        (&safetensors, "binary data"),
        (b"\x93NUMPY\x01\0", "binary data"),
        (b"\x80\x06}.", "binary data"),
        (b"SQLite format 3\0\x10\0", "a profiler"),
        (b"\x01\x02\0\x03", "binary data"),
        (
            b"alloc 1 4096\nfree 1\n",
            "text of an unknown kind (\"alloc 1 4096\")",
        ),
        (b"import torch\n", "text of an unknown kind"),
        (b"", "the file is empty"),
        (b" \r\n\r\n", "the file is empty"),
    ] {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        for content in [content, &encoder.finish().unwrap()] {
            let message = message(content);
            let shown = String::from_utf8_lossy(content);
            assert!(message.contains(what), "{shown}: {message}");
            // One short text, and not the grammar of a trace.
            assert!(
                message.len() < 300 && !message.contains("a ID BYTES"),
                "{shown}: {message}"
            );
        }
    }
}

#[test]
fn a_file_is_wrong_as_a_whole_if_it_is_binary_and_from_its_first_line_on_if_it_is_text() {
    for (content, place) in [
        (&b"\x01\x02\0\x03"[..], "the whole file"),
        (b"import torch\n", "line 1"),
    ] {
        let error = Trace::read("t", content, None).unwrap_err();
        assert_eq!(error.place(), place);
    }
}

#[test]
fn what_looks_like_a_trace_is_told_what_a_trace_is() {
    for content in [
        "a 0\n",
        "a 0 4096 0\nx 1\n",
        "# mine\nf 1 2 3\n",
        "h\n",
        "h version 4\n",
    ] {
        let message = message(content.as_bytes());
        assert!(
            message.starts_with("t, line ") && !message.contains("this is"),
            "{message}"
        );
    }
}

/// A log may begin late in other output, but the search for it ends.
#[test]
fn text_is_searched_for_a_log_up_to_a_limit() {
    let text = |lines| {
        let line = "1,12:00:00.1,allocate,0x1000,64,0x0\n";
        format!("{}{line}", "a line of other output\n".repeat(lines))
    };
    assert!(Trace::read("t", text(40_000).as_bytes(), None).is_ok());
    assert!(message(text(60_000).as_bytes()).contains("text of an unknown kind"));
}
