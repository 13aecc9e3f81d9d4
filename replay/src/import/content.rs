//! The content of a file, decompressed.

use std::{
    cell::Cell,
    fmt,
    io::{self, BufRead, BufReader, Read},
    rc::Rc,
};

use flate2::bufread::MultiGzDecoder;

/// The first bytes of every compressed file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The bytes that any compressed document may expand to.
const ALWAYS: u64 = 16 << 20;

/// The content of a file. It is decompressed while it is read if its first bytes say that it is compressed with gzip.
///
/// ```
/// use std::io::{Read, Write};
///
/// use binpool_replay::Content;
/// use flate2::{Compression, write::GzEncoder};
///
/// let mut file = GzEncoder::new(Vec::new(), Compression::default());
/// file.write_all(b"{}")?;
/// let file = file.finish()?;
/// let mut content = Content::new(&*file)?;
/// assert!(content.is_json()?);
/// let mut text = String::new();
/// content.read_to_string(&mut text)?;
/// assert_eq!(text, "{}");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Content<'r> {
    reader: Box<dyn BufRead + 'r>,
    /// The number of bytes of the compressed file that were read; `None` where it is not compressed.
    compressed: Option<Rc<Cell<u64>>>,
}

/// A document expands to more than a compressed file of its size should.
#[derive(Debug, thiserror::Error)]
#[error(
    "it expands to more than {times} times its size, and its content has to be held in memory: \
     if that is meant to be, decompress it first"
)]
struct Expands {
    times: u64,
}

impl<'r> Content<'r> {
    /// The content of the file that `reader` reads.
    ///
    /// # Errors
    ///
    /// The error of `reader`.
    pub fn new(reader: impl Read + 'r) -> io::Result<Self> {
        let mut reader = BufReader::new(reader);
        if reader.fill_buf()?.starts_with(&GZIP) {
            return Ok(Self::decompressed(reader));
        }
        Ok(Self {
            reader: Box::new(reader),
            compressed: None,
        })
    }

    /// The content of the compressed file that `reader` reads.
    pub(crate) fn decompressed(reader: impl BufRead + 'r) -> Self {
        let compressed = Rc::new(Cell::new(0));
        let count = Rc::clone(&compressed);
        let counted = Watched {
            inner: reader,
            progress: move |read| count.set(count.get() + read),
        };
        let decoder = MultiGzDecoder::new(BufReader::new(counted));
        Self {
            reader: Box::new(BufReader::new(decoder)),
            compressed: Some(compressed),
        }
    }

    /// Returns whether it begins like a JSON object. Call this before reading.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is damaged.
    pub fn is_json(&mut self) -> io::Result<bool> {
        let start = self.reader.fill_buf()?;
        Ok(start.trim_ascii_start().starts_with(b"{"))
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
            compressed: Some(compressed),
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
            let times = self.times;
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                Expands { times },
            ));
        }
        Ok(read)
    }
}
