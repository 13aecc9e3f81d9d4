//! What a file is, by its first bytes or by the keys of its document.

use Sign::{At, Key, Word};
use binpool_trace::{Line, TraceError, TraceErrorKind, cut};

use super::objects::Objects;

use crate::error;

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
        } else if Foreign::marked(start).is_some() || is_binary(start) {
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

/// A kind of file that is not read: what it is, what to do instead, and what it is known by.
struct Foreign(&'static str, &'static str, &'static [Sign]);

/// What a kind of file is known by.
enum Sign {
    /// Bytes at a fixed place.
    At(usize, &'static [u8]),
    /// Words near its beginning, if it is text.
    Word(&'static str),
    /// A key of its outermost dictionary.
    Key(&'static str),
}

const RECORD: &str =
    "record PyTorch's memory history, a log of RMM, or a pool instead (`binpool record` says how)";
const SNAPSHOT: &str = "it does not list the blocks. A memory snapshot does: torch.cuda.memory._record_memory_history() before \
     the program, torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") after it";
const TOTALS: &str = "it says how much memory is in use, not by which blocks: record PyTorch's memory history, a log of RMM, or a pool \
     instead (`binpool record` says how)";
const UNPACK: &str = "unpack it, and pass the file inside";

/// The kinds of files.
const FOREIGN: &[Foreign] = &[
    Foreign(
        "an SQLite database, as Nsight Systems exports it",
        RECORD,
        &[At(0, b"SQLite format 3\0")],
    ),
    Foreign(
        "a trace of a profiler (Kineto, Chrome)",
        SNAPSHOT,
        &[
            Word("\"traceEvents\""),
            Word("\"deviceProperties\""),
            Word("\"ph\":"),
            Key("traceEvents"),
        ],
    ),
    Foreign(
        "torch.cuda.memory_stats() or text about PyTorch's memory",
        SNAPSHOT,
        &[
            Key("allocated_bytes.all.current"),
            Word("CUDA out of memory"),
            Word("PyTorch CUDA memory summary"),
        ],
    ),
    Foreign(
        "a snapshot of a pool of binpool",
        "`binpool view` shows it",
        &[Key("format")],
    ),
    Foreign(
        "RMM's debug log, which has only failures",
        "allocate from a LoggingResourceAdaptor, whose log has every allocation (see `binpool record`)",
        &[Word("RMM LOG BEGIN"), Word("][Upstream ")],
    ),
    Foreign(
        "a file of memray, heaptrack or valgrind, of the host's memory",
        RECORD,
        &[
            At(0, b"memray\0"),
            At(0, b"v 10"),
            Word("# heaptrack"),
            At(0, b"desc: "),
            Word("==Memcheck"),
            Word(" Memcheck, a memory"),
            Word(" Massif, a heap"),
        ],
    ),
    Foreign(
        "what nvidia-smi prints",
        TOTALS,
        &[
            Word("NVIDIA-SMI"),
            Word("nvidia_smi_log"),
            Word("memory.used"),
            Word("memory.total"),
            Word("# gpu "),
            Word("utilization.gpu"),
        ],
    ),
    Foreign(
        "a report of Nsight",
        RECORD,
        &[
            Word("cuda_api_sum"),
            Word("cuda_gpu_mem"),
            Word("CUDA API Statistics"),
            Word("NVPROF is profiling"),
        ],
    ),
    Foreign(
        "a Git LFS pointer instead of the file",
        "`git lfs pull` gets the file itself",
        &[At(0, b"version https://git-lfs")],
    ),
    Foreign(
        "a page of HTML",
        "if it was downloaded, get the file itself, not the page about it; if it is a page of a memory snapshot, give the snapshot",
        &[
            Word("<!doctype html"),
            Word("<!DOCTYPE html"),
            Word("<html"),
            Word("<HTML"),
        ],
    ),
    Foreign(
        "a zip archive, such as torch.save and numpy.savez write",
        "if a recording is in it, unpack that; a snapshot is written by torch.cuda.memory._dump_snapshot or pickle.dump",
        &[At(0, b"PK\x03\x04"), At(0, b"PK\x05\x06")],
    ),
    Foreign("a tar archive", UNPACK, &[At(257, b"ustar")]),
    Foreign(
        "compressed, but not with gzip",
        "decompress it first (zstd -d, xz -d, bunzip2, lz4 -d, 7z x)",
        &[
            At(0, b"\x28\xb5\x2f\xfd"),
            At(0, b"\xfd7zXZ"),
            At(0, b"BZh"),
            At(0, b"\x04\x22\x4d\x18"),
            At(0, b"7z\xbc\xaf"),
        ],
    ),
    Foreign(
        "weights or arrays, a picture, a document or a program",
        RECORD,
        &[
            At(8, b"{\""),
            At(0, b"\x89HDF"),
            At(0, b"GGUF"),
            At(0, b"\x93NUMPY"),
            Key("__metadata__"),
            At(0, b"\x89PNG"),
            At(0, b"\xff\xd8\xff"),
            At(0, b"GIF8"),
            At(0, b"%PDF"),
            Word("<svg"),
            Word("<?xml"),
            At(0, b"\x7fELF"),
            At(0, b"MZ\x90\0"),
        ],
    ),
    Foreign(
        "a pickle of an unknown protocol",
        SNAPSHOT,
        &[At(0, b"\x80\x06"), At(0, b"\x80\x07")],
    ),
];

impl Foreign {
    /// Returns the first kind that has a sign.
    fn with(has: impl Fn(&Sign) -> bool) -> Option<&'static Self> {
        FOREIGN.iter().find(|kind| kind.2.iter().any(&has))
    }

    /// Returns the kind that has its bytes at their places.
    fn marked(start: &[u8]) -> Option<&'static Self> {
        Self::with(|sign| match sign {
            At(place, bytes) => start
                .get(*place..)
                .is_some_and(|rest| rest.starts_with(bytes)),
            _ => false,
        })
    }

    fn error(&self) -> TraceError {
        error(self.0, self.1)
    }
}

fn error(what: &str, advice: &str) -> TraceError {
    TraceError::new(
        TraceErrorKind::Foreign,
        format_args!("expected a recording of memory, but this is {what}: {advice}"),
    )
}

/// Returns what is wrong with text that is known by its words.
pub(crate) fn foreign_text(start: &[u8]) -> Option<TraceError> {
    let text = String::from_utf8_lossy(start);
    Foreign::with(|sign| matches!(sign, Word(word) if text.contains(word))).map(Foreign::error)
}

/// Returns what is wrong with a file that is not a recording, by its first bytes.
pub(crate) fn foreign(start: &[u8]) -> TraceError {
    if let Some(kind) = Foreign::marked(start) {
        return kind.error();
    }
    let text = String::from_utf8_lossy(start);
    // The last character may be cut.
    let text = text.trim_end_matches([char::REPLACEMENT_CHARACTER, '\0']);
    if is_binary(start) || text.contains(char::REPLACEMENT_CHARACTER) {
        return error("binary data of an unknown kind", RECORD);
    }
    if let Some(error) = foreign_text(start) {
        return error;
    }
    let Some(line) = text.trim().lines().next() else {
        let advice = "the file is empty, so the program ended before it wrote anything, or it records elsewhere";
        return error::no_allocation(advice);
    };
    let what = format!("text of an unknown kind ({:?})", cut(line, QUOTED));
    error(&what, RECORD)
}

/// Returns what is wrong with a document that is no snapshot, by its keys.
pub(crate) fn foreign_document(objects: &Objects) -> TraceError {
    let root = objects.root();
    let has = |key| root.is_some_and(|root| root.field(key).is_some());
    if let Some(known) = Foreign::with(|sign| matches!(sign, Key(key) if has(key))) {
        return known.error();
    }
    let message = "expected a memory snapshot of PyTorch, a dictionary with \"device_traces\" and \"segments\" as \
         torch.cuda.memory._snapshot() gives it, or the list of segments of torch.cuda.memory_snapshot()";
    TraceError::new(TraceErrorKind::Foreign, message)
}
