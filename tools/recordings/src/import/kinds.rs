//! What a file is, by its first bytes.

use binpool_trace::{Line, TraceError, TraceErrorKind, cut};

/// The first byte of every pickle with a protocol of 2 or more; the next byte is the protocol.
const PICKLE: u8 = 0x80;

/// The first bytes of a dictionary and of a list in the protocols 0 and 1, which do not name themselves.
const OLD_PICKLES: [&[u8]; 6] = [b"(dp", b"(lp", b"}q\0", b"]q\0", b"(d.", b"(l."];

/// The most characters of an unknown text that are quoted.
const QUOTED: usize = 40;

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A trace of binpool's own format.
    Trace,
    /// A snapshot of `PyTorch`.
    Pickle,
    /// A snapshot of `PyTorch` as JSON.
    Json,
    /// Text that may have lines of a log of RMM.
    Text,
    /// None of these.
    Other,
}

impl Kind {
    /// Returns the kind of a file with these first bytes.
    pub(crate) fn of(start: &[u8]) -> Self {
        let text = start.trim_ascii_start();
        if matches!(start, [PICKLE, 2..=5, ..])
            || OLD_PICKLES.iter().any(|old| start.starts_with(old))
        {
            Self::Pickle
        } else if is_json(text) {
            Self::Json
        } else if is_binary(start) {
            Self::Other
        } else if is_trace(text) {
            Self::Trace
        } else {
            Self::Text
        }
    }
}

/// Returns whether there are NUL bytes, but for those at the end, which a recording that was not closed has.
fn is_binary(start: &[u8]) -> bool {
    start
        .iter()
        .skip_while(|byte| **byte != 0)
        .any(|byte| *byte != 0)
}

/// Lists of numbers alone, such as `[12]`, begin lines of logs.
fn is_json(text: &[u8]) -> bool {
    let list = text.strip_prefix(b"[").map(<[u8]>::trim_ascii_start);
    text.starts_with(b"{") || list.is_some_and(|items| matches!(items, [b'{' | b'[' | b']', ..]))
}

/// Returns whether the first line that says something has the form of an event or of a header.
fn is_trace(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines().map(str::trim_start);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let Some(first) = first else {
        return !text.is_empty();
    };
    Line::looks_like_one(first)
}

const RECORD: &str =
    "record PyTorch's memory history, a log of RMM, or a pool instead (`binpool record` says how)";
const SNAPSHOT: &str = "it does not list the blocks. A memory snapshot does: torch.cuda.memory._record_memory_history() before \
     the program, torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") after it";

/// A kind of file that is often met, and not read.
struct Foreign {
    /// The beginning of such a file has one of these.
    signs: &'static [&'static [u8]],
    what: &'static str,
    /// What to do instead. Whatever else a file may be, [`RECORD`] says it.
    advice: &'static str,
}

const FOREIGN: [Foreign; 7] = [
    Foreign {
        signs: &[
            b"\"traceEvents\"",
            b"\"deviceProperties\"",
            b"\"ph\":",
            b"SQLite format 3",
        ],
        what: "a trace of a profiler (Kineto, Chrome, Nsight Systems)",
        advice: SNAPSHOT,
    },
    Foreign {
        signs: &[
            b"allocated_bytes.all.current",
            b"CUDA out of memory",
            b"CUDA memory summary",
        ],
        what: "torch.cuda.memory_stats() or text about PyTorch's memory",
        advice: SNAPSHOT,
    },
    Foreign {
        signs: &[b"\"binpool snapshot\""],
        what: "a snapshot of a pool of binpool",
        advice: "`binpool view` shows it",
    },
    Foreign {
        signs: &[b"RMM LOG BEGIN", b"][Upstream "],
        what: "RMM's debug log, which has only failures",
        advice: "allocate from a LoggingResourceAdaptor, whose log has every allocation (see `binpool record`)",
    },
    Foreign {
        signs: &[b"version https://git-lfs"],
        what: "a Git LFS pointer instead of the file",
        advice: "`git lfs pull` gets the file itself",
    },
    Foreign {
        signs: &[b"<!doctype html", b"<!DOCTYPE html", b"<html", b"<HTML"],
        what: "a page of HTML",
        advice: "if it was downloaded, get the file itself, not the page about it; if it is a page of a memory snapshot, give the snapshot",
    },
    Foreign {
        // Zip, tar, Zstandard, xz, 7z.
        signs: &[
            b"PK\x03\x04",
            b"ustar",
            b"\x28\xb5\x2f\xfd",
            b"\xfd7zXZ",
            b"7z\xbc\xaf",
        ],
        what: "an archive, or compressed, but not with gzip",
        advice: "unpack it, and pass the file inside",
    },
];

fn error(what: &str, advice: &str) -> TraceError {
    TraceError::new(
        TraceErrorKind::Foreign,
        format_args!("expected a recording of memory, but this is {what}: {advice}"),
    )
}

/// Returns what is wrong with a file of a known kind that is no recording, by its first bytes.
pub(crate) fn known_foreign(start: &[u8]) -> Option<TraceError> {
    let has = |sign: &&[u8]| start.windows(sign.len()).any(|part| part == *sign);
    let kind = FOREIGN.iter().find(|kind| kind.signs.iter().any(has));
    kind.map(|kind| error(kind.what, kind.advice))
}

/// Returns what is wrong with a file that is no recording, by its first bytes.
pub(crate) fn foreign(start: &[u8]) -> TraceError {
    if let Some(error) = known_foreign(start) {
        return error;
    }
    let text = String::from_utf8_lossy(start);
    // The last character may be cut.
    let text = text.trim_end_matches([char::REPLACEMENT_CHARACTER, '\0']);
    if is_binary(start) || text.contains(char::REPLACEMENT_CHARACTER) {
        return error("binary data of an unknown kind", RECORD);
    }
    let Some(line) = text.trim().lines().next() else {
        let advice = "the file is empty, so the program ended before it wrote anything, or it records elsewhere";
        return crate::error::no_allocation(advice);
    };
    let what = format!("text of an unknown kind ({:?})", cut(line, QUOTED));
    error(&what, RECORD)
}

/// Returns what is wrong with a document that is no snapshot.
pub(crate) fn foreign_document() -> TraceError {
    let message = "expected a memory snapshot of PyTorch, a dictionary with \"device_traces\" and \"segments\" as \
         torch.cuda.memory._snapshot() gives it, or the list of segments of torch.cuda.memory_snapshot()";
    TraceError::new(TraceErrorKind::Foreign, message)
}
