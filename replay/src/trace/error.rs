//! Errors of reading a trace.

use std::io;

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file could not be read, or does not have the format of its name.
    #[error("{name} cannot be read")]
    Read {
        /// The file.
        name: String,
        /// The cause.
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
    /// The line has none of the forms.
    #[error(
        "expected \"a ID BYTES STREAM [TIME [GROUP [STACK]]]\", \"f ID [TIME]\", \
         \"o BYTES STREAM [TIME [GROUP [STACK]]]\", \"g GROUP NAME\", \"k STACK FRAME\", \"h KEY VALUE\", \
         \"s MEMORY BYTES [TIME]\", \"S MEMORY [TIME]\", \"b BLOCK MEMORY OFFSET BYTES [TIME]\", \
         \"p WHAT BYTES [TIME [TEXT]]\" or \"r KEY=NUMBER ...\""
    )]
    Form,
    /// A number is missing, or is not a number in its range.
    #[error("expected {what} to be a number up to {largest}")]
    Number {
        /// The number.
        what: &'static str,
        /// The largest valid number.
        largest: u64,
    },
    /// The ID belongs to a live block.
    #[error(
        "block {id} is allocated already, in line {since}: expected an ID that no live block has"
    )]
    Live {
        /// The ID.
        id: u64,
        /// The line in which its block was allocated.
        since: usize,
    },
    /// The ID belongs to no live block.
    #[error("block {id} is not allocated: expected the ID of a live block")]
    NotLive {
        /// The ID.
        id: u64,
    },
    /// The time is earlier than that of the line before.
    #[error("time {time} ns comes after {before} ns: expected times that do not fall")]
    Time {
        /// The time, in nanoseconds.
        time: u64,
        /// The time of the line before.
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
    /// The stack has no frames.
    #[error("stack {stack} is not known: expected a line \"k {stack} FRAME\" before")]
    Stack {
        /// The stack.
        stack: u64,
    },
    /// A line of the header comes after another line.
    #[error("expected the header before all other lines")]
    HeaderLate,
    /// The header does not begin with its version, or says it again.
    #[error("expected the header to begin with \"h version NUMBER\", once")]
    HeaderFirst,
    /// A key of the header is there twice.
    #[error("expected the key {key:?} of the header once")]
    HeaderTwice {
        /// The key.
        key: String,
    },
    /// There is no shortage that the report may be of.
    #[error("expected a line \"o BYTES STREAM\" before, which has no report yet")]
    Report,
    /// The verdict of a report is unknown.
    #[error(
        "expected the verdict to be never_fits, limited, fragmented, pending, viewed or device_full"
    )]
    Verdict,
    /// The line is not valid UTF-8.
    #[error("expected text in UTF-8")]
    Utf8,
    /// The line is longer than any event.
    #[error("expected a line of at most {longest} bytes")]
    TooLong {
        /// The most bytes of a line, without its end.
        longest: usize,
    },
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
    /// A pickle does more than describe numbers, text, lists and dictionaries.
    #[error(
        "a pickle of plain numbers, text, lists and dictionaries was expected, as \
         torch.cuda.memory._dump_snapshot writes it; this one has opcode {opcode:#04x}"
    )]
    Opcode {
        /// The opcode of that step.
        opcode: u8,
    },
    /// A pickle uses a value that it did not make.
    #[error("this step of the pickle needs {what}, which is not there: the file is damaged")]
    Pickle {
        /// The missing value.
        what: &'static str,
    },
    /// The JSON is invalid, or has values that a snapshot has not.
    #[error("{message}")]
    Json {
        /// The parser's message.
        message: String,
    },
    /// The document is not a snapshot.
    #[error(
        "expected a memory snapshot of PyTorch, a dictionary with \"device_traces\" and \"segments\" as \
         torch.cuda.memory._snapshot() gives it, or the list of segments of torch.cuda.memory_snapshot()"
    )]
    NoSnapshot,
    /// The file is no recording, and is known for what it is.
    #[error("expected a recording of memory, and this is {what}: {advice}")]
    Foreign {
        /// What it is.
        what: String,
        /// What to do instead.
        advice: &'static str,
    },
    /// A field is missing or has another type.
    #[error("expected {field} to be {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// The expected type.
        expected: &'static str,
    },
    /// An action is unknown.
    #[error("expected the action to be {expected}; it is {action:?}")]
    Action {
        /// The action, or its beginning.
        action: String,
        /// The known actions.
        expected: &'static str,
    },
    /// The snapshot has no such device.
    #[error("there is no device {device}: the snapshot has {devices}")]
    NoDevice {
        /// The requested device.
        device: usize,
        /// The number of devices.
        devices: usize,
    },
    /// There is no allocation in the recording.
    #[error("no allocation in it: {advice}")]
    NoAllocation {
        /// The advice to the user.
        advice: &'static str,
    },
    /// The table cannot be read.
    #[error("{message}")]
    Table {
        /// What was expected.
        message: String,
    },
    /// A line is longer than any event.
    #[error("expected a line of at most {longest} bytes")]
    TooLong {
        /// The most bytes of a line, without its end.
        longest: usize,
    },
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::ProfileError;

    /// The texts of an error and its causes. Asserts that no cause is repeated.
    fn told_once(error: &dyn Error) -> Vec<String> {
        let chain = std::iter::successors(Some(error), |&error| error.source());
        let texts: Vec<_> = chain.map(ToString::to_string).collect();
        for (index, cause) in texts.iter().enumerate() {
            let before = &texts[..index];
            assert!(!before.iter().any(|text| text.contains(cause)), "{texts:?}");
        }
        texts
    }

    #[test]
    fn errors_about_files_tell_each_cause_once() {
        let why = || io::Error::other("it is a directory");
        let name = || "here.trace".to_owned();
        let (name_of_trace, source) = (name(), why());
        let error = TraceError::Read {
            name: name_of_trace,
            source,
        };
        assert_eq!(
            told_once(&error),
            ["here.trace cannot be read", "it is a directory"]
        );
        let (name, problem) = (name(), why());
        let error = ProfileError::Read { name, problem };
        // On one line, as the command line shows what is wrong with an option.
        assert!(told_once(&error)[0].ends_with("here.trace cannot be read: it is a directory"));
        let line = TraceError::Line {
            name: "here.trace".to_owned(),
            line: 1,
            problem: Problem::Form,
            text: "x".to_owned(),
        };
        assert_eq!(told_once(&line).len(), 1);
    }
}
