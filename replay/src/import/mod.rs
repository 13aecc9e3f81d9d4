//! Reading recordings of any kind: traces, and recordings of other tools.
//!
//! The first bytes of a file tell its kind. Its name only tells whether it must be compressed.

mod blocks;
pub(crate) mod content;
mod frames;
mod json;
mod notes;
mod objects;
mod pickle;
mod places;
mod placing;
mod rmm;
mod snapshot;
mod stacks;

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use self::{
    content::{Content, Watched},
    objects::Objects,
};
use crate::trace::{
    Trace,
    error::{ImportProblem, TraceError},
    name::shown,
};

/// The first byte of every pickle with a protocol of 2 or more; the next byte is the protocol.
const PICKLE: u8 = 0x80;

/// The most times its size that a compressed pickle may expand to. Snapshots of real programs expand about 12 times, and each
/// byte of a hostile one takes 30 bytes of memory.
const PICKLE_EXPANDS: u64 = 32;

/// The same limit for JSON, which repeats more: snapshots expand 25 times, and each byte takes 10 bytes of memory.
const JSON_EXPANDS: u64 = 100;

/// Why and where an import failed. The caller adds the file's name.
#[derive(Debug)]
pub(crate) enum ImportError {
    Read(io::Error),
    At {
        place: String,
        problem: ImportProblem,
    },
}

impl ImportError {
    pub(crate) fn at(place: impl Into<String>, problem: ImportProblem) -> Self {
        Self::At {
            place: place.into(),
            problem,
        }
    }

    fn of(self, name: String) -> TraceError {
        match self {
            Self::Read(source) => TraceError::Read { name, source },
            Self::At { place, problem } => TraceError::Import {
                name,
                place,
                problem,
            },
        }
    }
}

impl From<io::Error> for ImportError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl Trace {
    /// Reads a recording from a file: a trace, a memory snapshot of `PyTorch` (pickle or JSON; of its device with the most
    /// entries) or a log of RMM (CSV). The content tells which. It is decompressed where it is compressed with gzip,
    /// and must be where its name ends on `.gz`.
    ///
    /// [`remarks`](Self::remarks) explains how a recording was interpreted. The trace's name is that of the file, as
    /// [`shown`](crate::shown) writes it.
    ///
    /// # Errors
    ///
    /// [`TraceError`], which names the file and the line, byte or entry.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::open_device(path, None, &|_| {})
    }

    /// Reads a recording from a file, of one device of a snapshot of several. Other recordings have one device, number 0.
    /// `progress` is called now and then with the number of bytes that were read since.
    ///
    /// # Errors
    ///
    /// [`TraceError`], also where the device does not exist.
    pub fn open_device(
        path: &Path,
        device: Option<usize>,
        progress: &dyn Fn(u64),
    ) -> Result<Self, TraceError> {
        let name = shown(path.display());
        let file = File::open(path).map_err(|source| TraceError::Read {
            name: name.clone(),
            source,
        })?;
        let file = Watched {
            inner: file,
            progress,
        };
        if path.extension().is_some_and(|extension| extension == "gz") {
            let content = Content::decompressed(BufReader::new(file));
            Self::read_content(name, content, device)
        } else {
            Self::read(name, file, device)
        }
    }

    /// Reads a recording of any kind from `reader`, under the name `name`.
    ///
    /// # Errors
    ///
    /// Those of [`open_device`](Self::open_device).
    pub fn read(
        name: impl Into<String>,
        reader: impl Read,
        device: Option<usize>,
    ) -> Result<Self, TraceError> {
        let name = name.into();
        match Content::new(reader) {
            Ok(content) => Self::read_content(name, content, device),
            Err(source) => Err(TraceError::Read { name, source }),
        }
    }

    /// Reads a recording from the content of a file that was opened already.
    ///
    /// # Errors
    ///
    /// Those of [`open_device`](Self::open_device).
    pub fn read_content(
        name: impl Into<String>,
        mut content: Content<'_>,
        device: Option<usize>,
    ) -> Result<Self, TraceError> {
        let name = name.into();
        let start = match content.fill_buf() {
            Ok(start) => start,
            Err(source) => return Err(TraceError::Read { name, source }),
        };
        let kind = Kind::of(start);
        if let (Kind::Rmm | Kind::Text, Some(device @ 1..)) = (kind, device) {
            let problem = ImportProblem::NoDevice { device, devices: 1 };
            return Err(ImportError::at("the whole file", problem).of(name));
        }
        let imported = match kind {
            Kind::Text => return Self::parse(name, content),
            Kind::Pickle => read_pickle(content)
                .and_then(|objects| snapshot::import(&objects, name.clone(), device)),
            Kind::Json => read_json(content)
                .and_then(|objects| snapshot::import(&objects, name.clone(), device)),
            Kind::Rmm => rmm::import(content, name.clone()),
        };
        imported.map_err(|error| error.of(name))
    }

    /// Reads a recording from the content of a file that was opened already: each device of a snapshot that allocates something,
    /// with its number. Other recordings have one device, number 0.
    ///
    /// ```
    /// use binpool_replay::{Content, Trace};
    ///
    /// let entry = r#"{"action": "alloc", "addr": 512, "size": 8}"#;
    /// let snapshot = format!(r#"{{"device_traces": [[{entry}], [], [{entry}]], "segments": []}}"#);
    /// let traces = Trace::read_devices("two devices", Content::new(snapshot.as_bytes())?)?;
    /// let devices: Vec<usize> = traces.iter().map(|(device, _)| *device).collect();
    /// assert_eq!(devices, [0, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
    pub fn read_devices(
        name: impl Into<String>,
        mut content: Content<'_>,
    ) -> Result<Vec<(usize, Self)>, TraceError> {
        let name = name.into();
        let start = match content.fill_buf() {
            Ok(start) => start,
            Err(source) => return Err(TraceError::Read { name, source }),
        };
        let objects = match Kind::of(start) {
            Kind::Pickle => read_pickle(content),
            Kind::Json => read_json(content),
            Kind::Text | Kind::Rmm => {
                return Ok(vec![(0, Self::read_content(name, content, None)?)]);
            }
        };
        let traces = objects.and_then(|objects| snapshot::import_all(&objects, &name));
        traces.map_err(|error| error.of(name))
    }
}

fn read_pickle(content: Content<'_>) -> Result<Objects, ImportError> {
    pickle::read(document(content, PICKLE_EXPANDS))
}

fn read_json(content: Content<'_>) -> Result<Objects, ImportError> {
    json::read(document(content, JSON_EXPANDS))
}

/// The content of a document that is held in memory as a whole. It is read byte by byte, so the buffer has a known type.
fn document(content: Content<'_>, times: u64) -> BufReader<Content<'_>> {
    BufReader::new(content.expanding_at_most(times))
}

/// The kind of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A trace of binpool's own format.
    Text,
    /// A snapshot of `PyTorch`.
    Pickle,
    /// A snapshot of `PyTorch` as JSON.
    Json,
    /// A log of RMM.
    Rmm,
}

impl Kind {
    /// Returns the kind by the first bytes, as many as the first read returned.
    fn of(start: &[u8]) -> Self {
        if let [PICKLE, 2..=5, ..] = start {
            Self::Pickle
        } else if start.trim_ascii_start().starts_with(b"{") {
            Self::Json
        } else if start.starts_with(rmm::HEADER.as_bytes()) {
            Self::Rmm
        } else {
            Self::Text
        }
    }
}
