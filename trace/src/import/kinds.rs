//! What a file is, by its first bytes or by the keys of its document.

use super::objects::Objects;
use crate::{Line, TraceError, TraceErrorKind, name::cut};

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
        } else if FOREIGN.iter().any(|kind| kind.has_mark(start)) || start.contains(&0) {
            Self::Other
        } else if is_trace(text) {
            Self::Trace
        } else {
            Self::Text
        }
    }
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

/// A kind of file that is not read.
struct Foreign {
    what: &'static str,
    advice: &'static str,
    /// Its bytes at fixed places.
    marks: &'static [(usize, &'static [u8])],
    /// Words near its beginning, if it is text.
    words: &'static [&'static str],
    /// Keys of its outermost dictionary.
    keys: &'static [&'static str],
}

const RECORD: &str =
    "record PyTorch's memory history, a log of RMM, or a pool instead (`binpool record` says how)";
const SNAPSHOT: &str = "it does not say which blocks there were. A memory snapshot does: torch.cuda.memory._record_memory_history() before \
     the program, torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") after it";
const TOTALS: &str = "it says how much memory is in use, not by which blocks: record PyTorch's memory history, a log of RMM, or a pool \
     instead (`binpool record` says how)";
const UNPACK: &str = "unpack it, and give what is in it";

/// The kinds of files that are told apart.
const FOREIGN: &[Foreign] = &[
    Foreign {
        what: "an SQLite database, as Nsight Systems exports it",
        advice: RECORD,
        marks: &[(0, b"SQLite format 3\0")],
        words: &[],
        keys: &[],
    },
    Foreign {
        what: "a trace of a profiler (Kineto, Chrome)",
        advice: SNAPSHOT,
        marks: &[],
        words: &["\"traceEvents\"", "\"deviceProperties\"", "\"ph\":"],
        keys: &["traceEvents"],
    },
    Foreign {
        what: "the figures of torch.cuda.memory_stats()",
        advice: SNAPSHOT,
        marks: &[],
        words: &[],
        keys: &["allocated_bytes.all.current"],
    },
    Foreign {
        what: "text about PyTorch's memory",
        advice: SNAPSHOT,
        marks: &[],
        words: &["CUDA out of memory", "PyTorch CUDA memory summary"],
        keys: &[],
    },
    Foreign {
        what: "a snapshot of a pool of binpool",
        advice: "`binpool view` shows it",
        marks: &[],
        words: &[],
        keys: &["format"],
    },
    Foreign {
        what: "RMM's debug log, which has failures alone",
        advice: "allocate from a LoggingResourceAdaptor, whose log has every allocation (see `binpool record`)",
        marks: &[],
        words: &["RMM LOG BEGIN", "][Upstream "],
        keys: &[],
    },
    Foreign {
        what: "a file of memray, of the host's memory",
        advice: RECORD,
        marks: &[(0, b"memray\0")],
        words: &[],
        keys: &[],
    },
    Foreign {
        what: "a file of heaptrack, of the host's memory",
        advice: RECORD,
        marks: &[(0, b"v 10")],
        words: &["# heaptrack"],
        keys: &[],
    },
    Foreign {
        what: "a file of valgrind, of the host's memory",
        advice: RECORD,
        marks: &[(0, b"desc: ")],
        words: &["==Memcheck", " Memcheck, a memory", " Massif, a heap"],
        keys: &[],
    },
    Foreign {
        what: "what nvidia-smi prints",
        advice: TOTALS,
        marks: &[],
        words: &[
            "NVIDIA-SMI",
            "nvidia_smi_log",
            "memory.used",
            "memory.total",
            "# gpu ",
            "utilization.gpu",
        ],
        keys: &[],
    },
    Foreign {
        what: "a report of Nsight",
        advice: RECORD,
        marks: &[],
        words: &[
            "cuda_api_sum",
            "cuda_gpu_mem",
            "CUDA API Statistics",
            "NVPROF is profiling",
        ],
        keys: &[],
    },
    Foreign {
        what: "a pointer of Git LFS, in place of the file",
        advice: "`git lfs pull` gets the file itself",
        marks: &[(0, b"version https://git-lfs")],
        words: &[],
        keys: &[],
    },
    Foreign {
        what: "a page of HTML",
        advice: "if it was downloaded, get the file itself, not the page about it; if it is a page of a memory snapshot, give the snapshot",
        marks: &[],
        words: &["<!doctype html", "<!DOCTYPE html", "<html", "<HTML"],
        keys: &[],
    },
    Foreign {
        what: "a zip archive, such as torch.save and numpy.savez write",
        advice: "if a recording is in it, unpack that; a snapshot is written by torch.cuda.memory._dump_snapshot or pickle.dump",
        marks: &[(0, b"PK\x03\x04"), (0, b"PK\x05\x06")],
        words: &[],
        keys: &[],
    },
    Foreign {
        what: "a tar archive",
        advice: UNPACK,
        marks: &[(257, b"ustar")],
        words: &[],
        keys: &[],
    },
    Foreign {
        what: "compressed, but not with gzip",
        advice: "decompress it first (zstd -d, xz -d, bunzip2, lz4 -d, 7z x)",
        marks: &[
            (0, b"\x28\xb5\x2f\xfd"),
            (0, b"\xfd7zXZ"),
            (0, b"BZh"),
            (0, b"\x04\x22\x4d\x18"),
            (0, b"7z\xbc\xaf"),
        ],
        words: &[],
        keys: &[],
    },
    Foreign {
        what: "a file of weights or arrays",
        advice: RECORD,
        marks: &[
            (8, b"{\""),
            (0, b"\x89HDF"),
            (0, b"GGUF"),
            (0, b"\x93NUMPY"),
        ],
        words: &[],
        keys: &["__metadata__"],
    },
    Foreign {
        what: "a picture or a document",
        advice: "give the recording that it was made from",
        marks: &[
            (0, b"\x89PNG"),
            (0, b"\xff\xd8\xff"),
            (0, b"GIF8"),
            (0, b"%PDF"),
        ],
        words: &["<svg", "<?xml"],
        keys: &[],
    },
    Foreign {
        what: "a program",
        advice: RECORD,
        marks: &[(0, b"\x7fELF"), (0, b"MZ\x90\0")],
        words: &[],
        keys: &[],
    },
    Foreign {
        what: "a pickle of a protocol that is not known",
        advice: SNAPSHOT,
        marks: &[(0, b"\x80\x06"), (0, b"\x80\x07")],
        words: &[],
        keys: &[],
    },
];

impl Foreign {
    fn has_mark(&self, start: &[u8]) -> bool {
        let is_there = |(place, mark): &(usize, &[u8])| {
            start
                .get(*place..)
                .is_some_and(|rest| rest.starts_with(mark))
        };
        self.marks.iter().any(is_there)
    }

    fn error(&self) -> TraceError {
        error(self.what, self.advice)
    }
}

fn error(what: &str, advice: &str) -> TraceError {
    let message = format_args!("expected a recording of memory, and this is {what}: {advice}");
    TraceError::new(TraceErrorKind::Foreign, message)
}

/// Returns what is wrong with text that is known by its words.
pub(crate) fn foreign_text(start: &[u8]) -> Option<TraceError> {
    let text = String::from_utf8_lossy(start);
    let has_words = |kind: &&Foreign| kind.words.iter().any(|word| text.contains(word));
    FOREIGN.iter().find(has_words).map(Foreign::error)
}

/// Returns what is wrong with a file that is no recording, by its first bytes.
pub(crate) fn foreign(start: &[u8]) -> TraceError {
    if let Some(kind) = FOREIGN.iter().find(|kind| kind.has_mark(start)) {
        return kind.error();
    }
    let text = String::from_utf8_lossy(start);
    // The last character may be cut.
    let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
    if start.contains(&0) || text.contains(char::REPLACEMENT_CHARACTER) {
        return error("binary data of a kind that is not known", RECORD);
    }
    if let Some(error) = foreign_text(start) {
        return error;
    }
    let Some(line) = text.trim().lines().next() else {
        let advice = "the file is empty, so the program ended before it wrote anything, or it records elsewhere";
        return TraceError::no_allocation(advice);
    };
    let what = format!("text of a kind that is not known ({:?})", cut(line, QUOTED));
    error(&what, RECORD)
}

/// Returns what is wrong with a document that is no snapshot, by its keys.
pub(crate) fn foreign_document(objects: &Objects) -> TraceError {
    let root = objects.root();
    let has = |key: &&str| root.is_some_and(|root| objects.field(root, key).is_some());
    let known = FOREIGN.iter().find(|kind| kind.keys.iter().any(has));
    known.map_or_else(
        || {
            let message = "expected a memory snapshot of PyTorch, a dictionary with \"device_traces\" and \"segments\" as \
                 torch.cuda.memory._snapshot() gives it, or the list of segments of torch.cuda.memory_snapshot()";
            TraceError::new(TraceErrorKind::Foreign, message)
        },
        Foreign::error,
    )
}
