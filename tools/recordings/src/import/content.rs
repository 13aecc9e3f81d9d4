//! The content of a file, decompressed.

use std::{
    cell::Cell,
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, Cursor, Read},
    path::Path,
    rc::Rc,
};

use binpool_trace::{TraceError, shown};
use flate2::bufread::MultiGzDecoder;

use super::utf16::Utf16;

/// The first bytes of every compressed file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The most bytes that identify a file. They are read before anything else.
const START: u64 = 4096;

/// The bytes that any compressed document may expand to.
const ALWAYS: u64 = 16 << 20;

/// The content of a file. It is decompressed while it is read if its first bytes say that it is compressed with gzip. Text in UTF-16 is read as
/// UTF-8, and a byte order mark is left out.
///
/// ```
/// use std::io::{Read, Write};
///
/// use binpool_recordings::Content;
/// use flate2::{Compression, write::GzEncoder};
///
/// let mut file = GzEncoder::new(Vec::new(), Compression::default());
/// file.write_all(b"{}")?;
/// let file = file.finish()?;
/// let mut content = Content::new(&*file)?;
/// assert!(content.is_json());
/// let mut text = String::new();
/// content.read_to_string(&mut text)?;
/// assert_eq!(text, "{}");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Content<'r> {
    reader: Box<dyn BufRead + 'r>,
    /// A copy of its first bytes.
    start: Vec<u8>,
    /// The number of bytes of the compressed file that were read; `None` if it is not compressed.
    compressed: Option<Rc<Cell<u64>>>,
    /// The packages that groups are named beyond.
    beyond: Vec<String>,
}

impl<'r> Content<'r> {
    /// The content of the file that `reader` reads.
    ///
    /// # Errors
    ///
    /// The error of `reader`.
    pub fn new(reader: impl Read + 'r) -> io::Result<Self> {
        let (start, reader) = peek(reader)?;
        if start.starts_with(&GZIP) {
            return Self::decompressed(BufReader::new(reader));
        }
        Self::decoded(start, reader, None)
    }

    /// The content of a file, which must be compressed if its name ends in `.gz`. `progress` is called from time to time with the number of
    /// bytes that were read since.
    ///
    /// # Errors
    ///
    /// [`TraceError`].
    pub fn open(path: &Path, progress: &'r dyn Fn(u64)) -> Result<Self, TraceError> {
        let opened = File::open(path).and_then(|inner| {
            let file = Watched { inner, progress };
            match path.extension() {
                Some(extension) if extension == "gz" => Self::decompressed(BufReader::new(file)),
                _ => Self::new(file),
            }
        });
        opened.map_err(|error| TraceError::from(error).in_file(shown(path.display())))
    }

    /// The content of the compressed file that `reader` reads.
    fn decompressed(reader: impl BufRead + 'r) -> io::Result<Self> {
        let compressed = Rc::new(Cell::new(0));
        let count = Rc::clone(&compressed);
        let counted = Watched {
            inner: reader,
            progress: move |read| count.set(count.get() + read),
        };
        let (start, reader) = peek(MultiGzDecoder::new(BufReader::new(counted)))?;
        Self::decoded(start, reader, Some(compressed))
    }

    fn decoded(
        start: Vec<u8>,
        mut reader: Box<dyn Read + 'r>,
        compressed: Option<Rc<Cell<u64>>>,
    ) -> io::Result<Self> {
        let mark = match *start {
            [0xef, 0xbb, 0xbf, ..] => 3,
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => 2,
            _ => 0,
        };
        io::copy(&mut (&mut reader).take(mark), &mut io::sink())?;
        let (start, reader) = match mark {
            0 => (start, reader),
            2 => peek(Utf16::new(reader, start[0] == 0xfe))?,
            _ => peek(reader)?,
        };
        Ok(Self {
            reader: Box::new(BufReader::new(reader)),
            start,
            compressed,
            beyond: Vec::new(),
        })
    }

    /// Names groups by the innermost frame beyond these packages, if the file has call stacks of Python or C++: what a library
    /// allocates is then grouped by its callers. A package is a name that `import` takes, such as `einops` or `vllm.worker`, or a namespace of C++.
    ///
    /// ```
    /// use binpool_recordings::{Content, Trace};
    ///
    /// let frames = r#"[{"filename": "einops/einops.py", "line": 3, "name": "reduce"},
    ///                  {"filename": "my/model.py", "line": 7, "name": "forward"}]"#;
    /// let entry = format!(r#"{{"action": "alloc", "addr": 512, "size": 8, "frames": {frames}}}"#);
    /// let snapshot = format!(r#"{{"device_traces": [[{entry}]], "segments": []}}"#);
    /// let content = Content::new(snapshot.as_bytes())?.beyond(["einops"]);
    /// let trace = Trace::read_content("a model", content, None)?;
    /// assert_eq!(trace.groups(), ["my/model.py:7 forward"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn beyond(mut self, packages: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.beyond = packages.into_iter().map(Into::into).collect();
        self
    }

    /// The packages that groups are named beyond.
    pub(crate) fn packages(&self) -> &[String] {
        &self.beyond
    }

    /// A copy of its first bytes.
    pub(crate) fn start(&self) -> &[u8] {
        &self.start
    }

    /// Returns whether it begins like a JSON object.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.start.trim_ascii_start().starts_with(b"{")
    }

    /// Limits a document that must be held in memory as a whole: where it is compressed, reading fails as soon as there are
    /// 16 MiB and more than `times` times the bytes of the file. A compressed file can expand to a thousand times its size.
    #[must_use]
    pub fn expanding_at_most(self, times: u64) -> Self {
        let Some(compressed) = self.compressed else {
            return self;
        };
        let bounded = Bounded {
            inner: self.reader,
            compressed: Rc::clone(&compressed),
            times,
            read: 0,
        };
        Self {
            reader: Box::new(BufReader::new(bounded)),
            start: self.start,
            compressed: Some(compressed),
            beyond: self.beyond,
        }
    }
}

impl fmt::Debug for Content<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content")
            .field("compressed", &self.compressed)
            .finish_non_exhaustive()
    }
}

impl Read for Content<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.reader.read(bytes)
    }
}

impl BufRead for Content<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.reader.consume(amount);
    }
}

/// Returns the first bytes of a reader, and a reader of all of it. An error after them comes when it is read so far.
fn peek<'r>(mut reader: impl Read + 'r) -> io::Result<(Vec<u8>, Box<dyn Read + 'r>)> {
    let mut start = Vec::new();
    let read = (&mut reader).take(START).read_to_end(&mut start);
    let first = Cursor::new(start.clone());
    match read {
        Ok(_) => Ok((start, Box::new(first.chain(reader)))),
        Err(error) if start.is_empty() => Err(error),
        Err(error) => Ok((start, Box::new(first.chain(Failing(Some(error)))))),
    }
}

/// A reader that fails.
struct Failing(Option<io::Error>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// A reader that reports how much was read.
pub(crate) struct Watched<R, P> {
    pub(crate) inner: R,
    pub(crate) progress: P,
}

impl<R: Read, P: Fn(u64)> Read for Watched<R, P> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        (self.progress)(read as u64);
        Ok(read)
    }
}

/// The content of a compressed file, with a limit on how far it may expand.
struct Bounded<R> {
    inner: R,
    compressed: Rc<Cell<u64>>,
    times: u64,
    /// The number of bytes that were read.
    read: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.read += read as u64;
        let most = self.compressed.get().saturating_mul(self.times);
        if self.read > most.max(ALWAYS) {
            let message = format!(
                "it expands to more than {} times its size, and its content has to be held in memory: \
                 if that is intended, decompress it first",
                self.times
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(read)
    }
}
