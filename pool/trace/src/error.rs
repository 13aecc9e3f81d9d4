//! What may be wrong with a recording, and where in the file.

use std::{error::Error, fmt, io};

/// Why a recording could not be read or made.
///
/// ```
/// use binpool_trace::{Line, TraceErrorKind};
///
/// let error = Line::read("a 7 4096").unwrap_err();
/// assert_eq!(error.kind(), TraceErrorKind::Malformed);
/// assert_eq!(error.message(), "expected STREAM to be a number up to 4294967295");
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{}{message}", self.context())]
pub struct TraceError {
    kind: TraceErrorKind,
    /// The file; empty if it is not known.
    file: String,
    /// Where in the file; empty for all of it.
    place: String,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The kind of a [`TraceError`].
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// use std::io;
///
/// use binpool_trace::TraceErrorKind;
///
/// let recording = pool.record(io::sink())?;
/// let error = pool.record(io::sink()).unwrap_err();
/// assert_eq!(error.kind(), TraceErrorKind::AlreadyRecording);
/// recording.finish()?;
/// assert!(pool.record(io::sink()).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TraceErrorKind {
    /// The operating system could not read a file or start the thread that writes a recording; or a compressed file is damaged.
    Io,
    /// A part of the recording is wrong, or its end is missing.
    Malformed,
    /// The file is not a recording, or not a snapshot, where one was expected.
    Foreign,
    /// It has a version that this crate does not know.
    Version,
    /// It has no device with the requested number.
    NoDevice,
    /// It has no allocations.
    NoAllocation,
    /// The pool is being recorded already.
    AlreadyRecording,
}

impl TraceError {
    /// An error of this kind, whose place is not known yet.
    pub fn new(kind: TraceErrorKind, message: impl fmt::Display) -> Self {
        Self {
            kind,
            file: String::new(),
            place: String::new(),
            message: message.to_string(),
            source: None,
        }
    }

    /// An error of the kind [`Malformed`](TraceErrorKind::Malformed).
    pub fn malformed(message: impl fmt::Display) -> Self {
        Self::new(TraceErrorKind::Malformed, message)
    }

    /// Returns the error as one of another kind.
    #[must_use]
    pub fn of_kind(self, kind: TraceErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// Returns the error with the name of its file.
    #[must_use]
    pub fn in_file(self, file: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            ..self
        }
    }

    /// Returns the error with its place in the file, such as `line 7`.
    #[must_use]
    pub fn at(self, place: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            ..self
        }
    }

    /// Returns the error with the line that it is about.
    #[must_use]
    pub fn quoting(self, line: &str) -> Self {
        Self {
            message: format!("{}; the line is {line:?}", self.message),
            ..self
        }
    }

    /// Returns the error with its cause.
    #[must_use]
    pub fn because(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            source: Some(source.into()),
            ..self
        }
    }

    /// The kind of the error, for programs to distinguish.
    #[must_use]
    pub fn kind(&self) -> TraceErrorKind {
        self.kind
    }

    /// The place in the file: a line, a byte or an entry. Empty if it is the whole file.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What is wrong, and what was expected.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    fn context(&self) -> String {
        match (&*self.file, &*self.place) {
            ("", "") => String::new(),
            (file, _) if self.kind == TraceErrorKind::Io => format!("{file} "),
            ("", place) => format!("{place}: "),
            (file, "") => format!("{file}: "),
            (file, place) => format!("{file}, {place}: "),
        }
    }
}

impl From<io::Error> for TraceError {
    /// A file that cannot be read.
    fn from(source: io::Error) -> Self {
        Self::new(TraceErrorKind::Io, "cannot be read").because(source)
    }
}
