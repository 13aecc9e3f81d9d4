//! Reading recordings of any kind: traces, and what other tools write.
//!
//! Which kind a file is, its first bytes say; its name only says whether it must be compressed.

mod blocks;
mod frames;
mod json;
mod objects;
mod pickle;
mod rmm;
mod snapshot;

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use flate2::bufread::MultiGzDecoder;

use crate::trace::{
    Trace,
    error::{ImportProblem, TraceError},
};

/// What every compressed file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What every pickle begins with that has a protocol of 2 or more; the next byte is that.
const PICKLE: u8 = 0x80;

/// Why an import failed, and where: the file's name is known further out.
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
    /// entries) or a log of RMM (CSV). What it is, the content says. It is decompressed where it is compressed with gzip,
    /// and has to be where its name ends on `.gz`.
    ///
    /// [`remarks`](Self::remarks) has what was made of a recording that is not plainly in it.
    ///
    /// # Errors
    ///
    /// [`TraceError`], which names the file and the line, byte or entry.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::open_device(path, None, &|_| {})
    }

    /// The same, of one device of a snapshot of several. Other recordings have one device, number 0. `progress` is told
    /// now and then how many more bytes of the file were read.
    ///
    /// # Errors
    ///
    /// [`TraceError`], also where there is no such device.
    pub fn open_device(
        path: &Path,
        device: Option<usize>,
        progress: &dyn Fn(u64),
    ) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|source| TraceError::Read {
            name: name.clone(),
            source,
        })?;
        let file = Watched {
            inner: file,
            progress,
        };
        if path.extension().is_some_and(|extension| extension == "gz") {
            let decoder = MultiGzDecoder::new(BufReader::new(file));
            Self::read_plain(name, BufReader::new(decoder), device)
        } else {
            Self::read(name, file, device)
        }
    }

    /// Reads a recording of any kind from `reader`, and calls it `name`.
    ///
    /// # Errors
    ///
    /// As [`open_device`](Self::open_device).
    pub fn read(
        name: impl Into<String>,
        reader: impl Read,
        device: Option<usize>,
    ) -> Result<Self, TraceError> {
        let name = name.into();
        let mut reader = BufReader::new(reader);
        match reader.fill_buf() {
            Ok(start) if start.starts_with(&GZIP) => {
                let decoder = MultiGzDecoder::new(reader);
                Self::read_plain(name, BufReader::new(decoder), device)
            }
            Ok(_) => Self::read_plain(name, reader, device),
            Err(source) => Err(TraceError::Read { name, source }),
        }
    }

    fn read_plain(
        name: String,
        mut reader: impl BufRead,
        device: Option<usize>,
    ) -> Result<Self, TraceError> {
        let start = match reader.fill_buf() {
            Ok(start) => start,
            Err(source) => return Err(TraceError::Read { name, source }),
        };
        let kind = Kind::of(start);
        if let (Kind::Rmm | Kind::Text, Some(device @ 1..)) = (kind, device) {
            let problem = ImportProblem::NoDevice { device, devices: 1 };
            return Err(ImportError::at("the whole file", problem).of(name));
        }
        let imported = match kind {
            Kind::Text => return Self::parse(name, reader),
            Kind::Pickle => pickle::read(reader)
                .and_then(|objects| snapshot::import(&objects, name.clone(), device)),
            Kind::Json => json::read(reader)
                .and_then(|objects| snapshot::import(&objects, name.clone(), device)),
            Kind::Rmm => rmm::import(reader, name.clone()),
        };
        imported.map_err(|error| error.of(name))
    }
}

/// A reader that tells how much was read.
struct Watched<'p, R> {
    inner: R,
    progress: &'p dyn Fn(u64),
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        (self.progress)(read as u64);
        Ok(read)
    }
}

/// What a recording is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A trace of binpool's own format.
    Text,
    /// A snapshot of `PyTorch`.
    Pickle,
    /// The same as JSON.
    Json,
    /// A log of RMM.
    Rmm,
}

impl Kind {
    /// By its first bytes, as many as came with the first read.
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
