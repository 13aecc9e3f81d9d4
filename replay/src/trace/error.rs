//! Why a trace could not be read.

use std::io;

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file could not be read, or is not what its name says.
    #[error("{name}: {source}")]
    Read {
        /// The file.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// A line is wrong.
    #[error("{name}, line {line}: {problem}; the line is {text:?}")]
    Line {
        /// The file.
        name: String,
        /// The line's number, counted from 1.
        line: usize,
        /// What is wrong, and what was expected.
        problem: Problem,
        /// The line, or its beginning.
        text: String,
    },
    /// The recording of another tool is wrong.
    #[error("{name}, {place}: {problem}")]
    Import {
        /// The file.
        name: String,
        /// Where in it, in words: a line, a byte or an entry.
        place: String,
        /// What is wrong, and what was expected.
        problem: ImportProblem,
    },
    /// There is nothing to replay.
    #[error("{name}: no allocation in it: expected lines like \"a 0 4096 0\" and \"f 0\"")]
    Empty {
        /// The file.
        name: String,
    },
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It has none of the forms.
    #[error(
        "expected \"a ID BYTES STREAM [TIME [GROUP]]\", \"f ID [TIME]\", \"o BYTES STREAM [TIME [GROUP]]\" \
         or \"g GROUP NAME\""
    )]
    Form,
    /// A number is missing, or not one.
    #[error("expected {what} to be a number up to {largest}")]
    Number {
        /// Which number.
        what: &'static str,
        /// The largest there can be.
        largest: u64,
    },
    /// The ID belongs to a block that lives.
    #[error(
        "block {id} is allocated already, in line {since}: expected an ID that no live block has"
    )]
    Live {
        /// The ID.
        id: u64,
        /// Where its block was allocated.
        since: usize,
    },
    /// The ID belongs to no block that lives.
    #[error("block {id} is not allocated: expected the ID of a live block")]
    NotLive {
        /// The ID.
        id: u64,
    },
    /// It is earlier than the line before.
    #[error("time {time} ns comes after {before} ns: expected times that do not fall")]
    Time {
        /// Its time, in nanoseconds.
        time: u64,
        /// That of the line before.
        before: u64,
    },
    /// The group has no name.
    #[error("group {group} is not known: expected a line \"g {group} NAME\" before")]
    Group {
        /// The group.
        group: u64,
    },
    /// The group has a name already.
    #[error("group {group} has a name already: expected each group once")]
    GroupTwice {
        /// The group.
        group: u64,
    },
    /// The line is no text.
    #[error("expected text in UTF-8")]
    Utf8,
}

/// What is wrong with the recording of another tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImportProblem {
    /// The file ends too early.
    #[error(
        "the file ends here, but more was expected: it is damaged, or was not written to its end"
    )]
    Truncated,
    /// A pickle does more than hold numbers, text, lists and dictionaries.
    #[error(
        "a pickle of plain numbers, text, lists and dictionaries was expected, as \
         torch.cuda.memory._dump_snapshot writes it; this one has opcode {opcode:#04x}"
    )]
    Opcode {
        /// The first byte that says so.
        opcode: u8,
    },
    /// A pickle uses what it never made.
    #[error("this step of the pickle needs {what}, which is not there: the file is damaged")]
    Pickle {
        /// What it needs.
        what: &'static str,
    },
    /// The JSON is none, or has other values than a snapshot.
    #[error("{message}")]
    Json {
        /// What the parser says.
        message: String,
    },
    /// The document is something else than a snapshot.
    #[error(
        "expected a dictionary with \"device_traces\" and \"segments\", as torch.cuda.memory._snapshot() gives it"
    )]
    NoSnapshot,
    /// A field is missing or has another type.
    #[error("expected {field} to be {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// An action that is not known.
    #[error("expected the action to be {expected}; it is {action:?}")]
    Action {
        /// The action, or its beginning.
        action: String,
        /// What there is.
        expected: &'static str,
    },
    /// The snapshot has no such device.
    #[error("there is no device {device}: the snapshot has {devices}")]
    NoDevice {
        /// The device that was asked for.
        device: usize,
        /// The number of devices.
        devices: usize,
    },
    /// Nothing was recorded.
    #[error("no allocation in it: {advice}")]
    NoAllocation {
        /// What to do.
        advice: &'static str,
    },
    /// The table cannot be read.
    #[error("{message}")]
    Table {
        /// What the parser says.
        message: String,
    },
}
