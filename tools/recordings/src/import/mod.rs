//! Reading recordings of any kind: traces, and recordings of other tools.
//!
//! The first bytes of a file identify its kind. Its name only says whether it must be compressed.

mod blocks;
pub(crate) mod content;
mod cpp;
mod frames;
mod json;
mod kinds;
mod notes;
mod objects;
mod owner;
mod pickle;
mod placing;
mod rmm;
mod snapshot;
mod stacks;
mod utf16;

use std::{
    io::{BufReader, Read},
    path::Path,
};

use binpool_trace::{TraceError, TraceErrorKind, shown};

use self::{content::Content, kinds::Kind, objects::Objects};

use crate::{Trace, error};

/// The most times its size that a compressed pickle may expand to. Snapshots of real programs expand about 12 times, and each
/// byte of a hostile one takes 30 bytes of memory.
const PICKLE_EXPANDS: u64 = 32;

/// The same limit for JSON, which repeats more: snapshots expand 25 times, and each byte takes 10 bytes of memory.
const JSON_EXPANDS: u64 = 100;

impl Trace {
    /// Reads a recording from a file: a trace, a memory snapshot of `PyTorch` (pickle or JSON, also of its segments alone; of its device with the
    /// most live bytes) or a log of RMM (CSV, also within other output). The content says which. It is decompressed if it is compressed with gzip,
    /// and must be if its name ends in `.gz`.
    ///
    /// [`remarks`](Self::remarks) explains how a recording was interpreted. The trace's name is that of the file, as
    /// [`shown`](binpool_trace::shown) writes it.
    ///
    /// # Errors
    ///
    /// [`TraceError`], which names the file and the line, byte or entry.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let content = Content::open(path, &|_| {})?;
        Self::read_content(shown(path.display()), content, None)
    }

    /// Reads a recording of any kind from `reader`, under the name `name`: of one device of a snapshot of several, by default the one with
    /// the most live bytes. Other recordings have one device, number 0.
    ///
    /// # Errors
    ///
    /// [`TraceError`], also if the device does not exist.
    pub fn read(
        name: impl Into<String>,
        reader: impl Read,
        device: Option<usize>,
    ) -> Result<Self, TraceError> {
        let name = name.into();
        match Content::new(reader) {
            Ok(content) => Self::read_content(name, content, device),
            Err(error) => Err(TraceError::from(error).in_file(name)),
        }
    }

    /// Reads a recording from the content of a file that was opened already.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read).
    pub fn read_content(
        name: impl Into<String>,
        content: Content<'_>,
        device: Option<usize>,
    ) -> Result<Self, TraceError> {
        let name = name.into();
        let start = content.start().to_vec();
        let kind = Kind::of(&start);
        let imported = match (kind, device) {
            (Kind::Text | Kind::Trace, Some(device @ 1..)) => {
                Err(error::no_device(device, 1).at("the whole file"))
            }
            (Kind::Trace, _) => {
                let has_packages = !content.packages().is_empty();
                let mut trace = Self::parse(name, content)?;
                // Groups of `binpool run` are named anew, by their stacks.
                if has_packages && !trace.is_of_program() {
                    let remark =
                        "its groups were named when it was recorded, so packages are not skipped";
                    trace.push_remark(remark.into());
                }
                return Ok(trace);
            }
            (Kind::Pickle | Kind::Json, _) => import_document(kind, content, |objects, beyond| {
                snapshot::import(objects, &name, device, beyond)
            }),
            (Kind::Text, _) => rmm::import(content, name.clone(), &start),
            (Kind::Other, _) => Err(kinds::foreign(&start).at("the whole file")),
        };
        imported.map_err(|error| error.in_file(name))
    }

    /// Reads a recording from the content of a file that was opened already: each device of a snapshot that allocates something,
    /// with its number. Other recordings have one device, number 0.
    ///
    /// ```
    /// use binpool_recordings::{Content, Trace};
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
        let kind = Kind::of(content.start());
        if !matches!(kind, Kind::Pickle | Kind::Json) {
            return Ok(vec![(0, Self::read_content(name, content, None)?)]);
        }
        let traces = import_document(kind, content, |objects, beyond| {
            snapshot::import_all(objects, &name, beyond)
        });
        traces.map_err(|error| error.in_file(name))
    }
}

/// Imports a pickle or JSON, which is held in memory as a whole, with the packages that groups are named beyond. The first bytes say what it is
/// if it is damaged or no snapshot.
fn import_document<T>(
    kind: Kind,
    content: Content<'_>,
    import: impl FnOnce(&Objects, &[String]) -> Result<T, TraceError>,
) -> Result<T, TraceError> {
    let (start, beyond) = (content.start().to_vec(), content.packages().to_vec());
    let named = |error: TraceError| match kinds::known_foreign(&start) {
        Some(foreign) if error.kind() != TraceErrorKind::Io => foreign.at("the whole file"),
        _ => error,
    };
    // It is read byte by byte, so the buffer has a known type.
    let objects = match kind {
        Kind::Pickle => pickle::read(BufReader::new(content.expanding_at_most(PICKLE_EXPANDS))),
        _ => json::read(BufReader::new(content.expanding_at_most(JSON_EXPANDS))),
    };
    import(&objects.map_err(named)?, &beyond).map_err(|error| match error.kind() {
        TraceErrorKind::Foreign => named(error),
        _ => error,
    })
}
