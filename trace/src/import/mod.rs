//! Reading recordings of any kind: traces, and recordings of other tools.
//!
//! The first bytes of a file tell its kind. Its name only tells whether it must be compressed.

mod blocks;
pub(crate) mod content;
mod cpp;
mod frames;
mod import_error;
mod json;
mod kinds;
mod notes;
mod objects;
mod owner;
mod pickle;
mod places;
mod placing;
mod rmm;
mod snapshot;
mod stacks;
mod utf16;

use std::{
    io::{BufReader, Read},
    path::Path,
};

use self::{content::Content, import_error::ImportError, kinds::Kind, objects::Objects};
use crate::{Problem, Trace, TraceError, name::shown};

/// The most times its size that a compressed pickle may expand to. Snapshots of real programs expand about 12 times, and each
/// byte of a hostile one takes 30 bytes of memory.
const PICKLE_EXPANDS: u64 = 32;

/// The same limit for JSON, which repeats more: snapshots expand 25 times, and each byte takes 10 bytes of memory.
const JSON_EXPANDS: u64 = 100;

impl Trace {
    /// Reads a recording from a file: a trace, a memory snapshot of `PyTorch` (pickle or JSON, also of its segments alone; of its device with the
    /// most entries) or a log of RMM (CSV, also within other output). The content tells which. It is decompressed where it is compressed with gzip,
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
        let content = Content::open(path, progress)?;
        Self::read_content(shown(path.display()), content, device)
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
        content: Content<'_>,
        device: Option<usize>,
    ) -> Result<Self, TraceError> {
        let name = name.into();
        let start = content.start().to_vec();
        let kind = Kind::of(&start);
        if let (Kind::Text | Kind::Trace, Some(device @ 1..)) = (kind, device) {
            let problem = Problem::NoDevice { device, devices: 1 };
            return Err(ImportError::at("the whole file", problem).of(name));
        }
        let imported = match kind {
            Kind::Trace => {
                let has_packages = !content.packages().is_empty();
                let mut trace = Self::parse(name, content)?;
                if has_packages {
                    let remark = "its groups were named when it was recorded: it is not looked beyond packages";
                    trace.push_remark(remark.into());
                }
                return Ok(trace);
            }
            Kind::Pickle | Kind::Json => {
                let beyond = content.packages().to_vec();
                read_document(kind, content)
                    .and_then(|objects| snapshot::import(&objects, &name, device, &beyond))
            }
            Kind::Text => rmm::import(content, name.clone(), &start),
            Kind::Other => Err(ImportError::at("the whole file", kinds::foreign(&start))),
        };
        imported.map_err(|error| named(error, &start).of(name))
    }

    /// Reads a recording from the content of a file that was opened already: each device of a snapshot that allocates something,
    /// with its number. Other recordings have one device, number 0.
    ///
    /// ```
    /// use binpool_trace::{Content, Trace};
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
        content: Content<'_>,
    ) -> Result<Vec<(usize, Self)>, TraceError> {
        let name = name.into();
        let start = content.start().to_vec();
        let kind = Kind::of(&start);
        if !matches!(kind, Kind::Pickle | Kind::Json) {
            return Ok(vec![(0, Self::read_content(name, content, None)?)]);
        }
        let beyond = content.packages().to_vec();
        let objects = read_document(kind, content);
        let traces = objects.and_then(|objects| snapshot::import_all(&objects, &name, &beyond));
        traces.map_err(|error| named(error, &start).of(name))
    }
}

/// Reads a pickle or JSON, which is held in memory as a whole. It is read byte by byte, so the buffer has a known type.
fn read_document(kind: Kind, content: Content<'_>) -> Result<Objects, ImportError> {
    if kind == Kind::Pickle {
        return pickle::read(BufReader::new(content.expanding_at_most(PICKLE_EXPANDS)));
    }
    json::read(BufReader::new(content.expanding_at_most(JSON_EXPANDS)))
}

/// Names what a document is, if it is no snapshot, by its first bytes.
fn named(error: ImportError, start: &[u8]) -> ImportError {
    let ImportError::At { problem, .. } = &error else {
        return error;
    };
    let is_snapshot = !matches!(problem, Problem::NoSnapshot | Problem::Damaged(_));
    let foreign = kinds::foreign_text(start).filter(|_| !is_snapshot);
    foreign.map_or(error, |problem| ImportError::at("the whole file", problem))
}
