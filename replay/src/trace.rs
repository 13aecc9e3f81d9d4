//! Recorded allocations: what a program asked for, in order.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;

/// One step of a program. Blocks are numbered from 0 in the order of their allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block is allocated.
    Allocate {
        /// Its number.
        block: usize,
        /// Its size in bytes, as the program asked for it.
        bytes: usize,
        /// The stream (a queue, in OpenCL's words) that it is for.
        stream: u32,
    },
    /// A block is freed.
    Free {
        /// Its number.
        block: usize,
    },
}

/// A recorded program: its allocations and frees, in order.
///
/// As text, a line an event: `a ID BYTES STREAM` allocates, `f ID` frees. An ID is any number that no live
/// block has. Empty lines and lines that begin with `#` say nothing. Blocks may be live at the end.
///
/// ```
/// use binpool_replay::Trace;
///
/// let trace = Trace::parse("two blocks", &b"a 7 4096 0\na 8 100 0\nf 7\n"[..])?;
/// assert_eq!(trace.allocations(), 2);
/// assert_eq!(trace.peak_live_bytes(), 4196);
/// let error = Trace::parse("x", &b"a 7 4096 0\nf 9\n"[..]).unwrap_err();
/// assert!(error.to_string().starts_with("x, line 2"));
/// # Ok::<(), binpool_replay::TraceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trace {
    name: String,
    events: Vec<Event>,
    /// The line of each event.
    lines: Vec<usize>,
    /// The ID of each block.
    ids: Vec<u64>,
}

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
    /// It has neither form.
    #[error("expected \"a ID BYTES STREAM\" or \"f ID\"")]
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
    /// The line is no text.
    #[error("expected text in UTF-8")]
    Utf8,
}

/// The longest part of a line that an error quotes, in characters.
const QUOTED: usize = 60;

impl Trace {
    /// Reads a trace from a file, compressed where its name ends on `.gz`.
    ///
    /// # Errors
    ///
    /// [`TraceError`], which names the file and the line.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|source| TraceError::Read {
            name: name.clone(),
            source,
        })?;
        if path.extension().is_some_and(|extension| extension == "gz") {
            Self::parse(name, MultiGzDecoder::new(file))
        } else {
            Self::parse(name, file)
        }
    }

    /// Reads a trace from text.
    ///
    /// # Errors
    ///
    /// [`TraceError`], which calls the text `name`.
    pub fn parse(name: impl Into<String>, text: impl Read) -> Result<Self, TraceError> {
        let mut trace = Self {
            name: name.into(),
            events: Vec::new(),
            lines: Vec::new(),
            ids: Vec::new(),
        };
        let mut live = HashMap::new();
        let mut reader = BufReader::new(text);
        let mut bytes = Vec::new();
        for line in 1.. {
            bytes.clear();
            let read = reader.read_until(b'\n', &mut bytes);
            match read {
                Ok(0) => break,
                Ok(_) => {}
                Err(source) => {
                    return Err(TraceError::Read {
                        name: trace.name,
                        source,
                    });
                }
            }
            if let Err(problem) = trace.push_line(&bytes, line, &mut live) {
                let text = String::from_utf8_lossy(bytes.trim_ascii());
                return Err(TraceError::Line {
                    name: trace.name,
                    line,
                    problem,
                    text: text.chars().take(QUOTED).collect(),
                });
            }
        }
        if trace.ids.is_empty() {
            return Err(TraceError::Empty { name: trace.name });
        }
        Ok(trace)
    }

    fn push_line(
        &mut self,
        line: &[u8],
        number: usize,
        live: &mut HashMap<u64, usize>,
    ) -> Result<(), Problem> {
        let text = std::str::from_utf8(line).map_err(|_| Problem::Utf8)?;
        let mut words = text.split_ascii_whitespace();
        let event = match words.next() {
            None => return Ok(()),
            Some(word) if word.starts_with('#') => return Ok(()),
            Some("a") => {
                let id = parse_number(words.next(), "ID", u64::MAX)?;
                let bytes = parse_number(words.next(), "BYTES", usize::MAX as u64)?;
                let stream = parse_number(words.next(), "STREAM", u64::from(u32::MAX))?;
                let block = self.ids.len();
                if let Some(since) = live.insert(id, block) {
                    return Err(Problem::Live {
                        id,
                        since: self.line_of_allocation(since),
                    });
                }
                self.ids.push(id);
                Event::Allocate {
                    block,
                    bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
                    stream: u32::try_from(stream).unwrap_or(u32::MAX),
                }
            }
            Some("f") => {
                let id = parse_number(words.next(), "ID", u64::MAX)?;
                let block = live.remove(&id).ok_or(Problem::NotLive { id })?;
                Event::Free { block }
            }
            Some(_) => return Err(Problem::Form),
        };
        if words.next().is_some() {
            return Err(Problem::Form);
        }
        self.events.push(event);
        self.lines.push(number);
        Ok(())
    }

    fn line_of_allocation(&self, wanted: usize) -> usize {
        let is_it =
            |event: &Event| matches!(event, Event::Allocate { block, .. } if *block == wanted);
        let place = self.events.iter().position(is_it);
        place.map_or(0, |place| self.lines[place])
    }

    /// Where it came from.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The events, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The number of allocations, which is that of blocks too.
    #[must_use]
    pub fn allocations(&self) -> usize {
        self.ids.len()
    }

    /// The number of blocks that are freed before the end: that of pairs of an allocation and its free.
    #[must_use]
    pub fn frees(&self) -> usize {
        self.events.len() - self.ids.len()
    }

    /// The most bytes that are live at once, as the program asked for them.
    #[must_use]
    pub fn peak_live_bytes(&self) -> u64 {
        let mut sizes = vec![0; self.ids.len()];
        let (mut live, mut peak) = (0_u64, 0);
        for event in &self.events {
            match *event {
                Event::Allocate { block, bytes, .. } => {
                    sizes[block] = bytes as u64;
                    live = live.saturating_add(sizes[block]);
                    peak = peak.max(live);
                }
                Event::Free { block } => live = live.saturating_sub(sizes[block]),
            }
        }
        peak
    }

    /// The size of the largest block, in bytes.
    #[must_use]
    pub fn largest_block_bytes(&self) -> usize {
        let sizes = self.events.iter().map(|event| match event {
            Event::Allocate { bytes, .. } => *bytes,
            Event::Free { .. } => 0,
        });
        sizes.max().unwrap_or(0)
    }

    /// The streams that blocks are for, each once, in ascending order.
    #[must_use]
    pub fn streams(&self) -> Vec<u32> {
        let streams = self.events.iter().filter_map(|event| match event {
            Event::Allocate { stream, .. } => Some(*stream),
            Event::Free { .. } => None,
        });
        let mut streams: Vec<u32> = streams.collect();
        streams.sort_unstable();
        streams.dedup();
        streams
    }

    /// The same trace with every size divided by `divisor`, but no smaller than 1 byte unless it was 0.
    #[must_use]
    pub fn scaled_down(mut self, divisor: usize) -> Self {
        for event in &mut self.events {
            if let Event::Allocate { bytes, .. } = event {
                *bytes = (*bytes / divisor.max(1)).max(usize::from(*bytes > 0));
            }
        }
        self
    }

    /// Where event number `index` stands, for people: file, line and block.
    #[must_use]
    pub fn describe(&self, index: usize) -> String {
        let line = self.lines.get(index).copied().unwrap_or(0);
        let name = &self.name;
        match self.events.get(index) {
            Some(Event::Allocate { block, bytes, .. }) => {
                format!(
                    "{name}, line {line}: allocating {bytes} bytes as block {}",
                    self.ids[*block]
                )
            }
            Some(Event::Free { block }) => {
                format!("{name}, line {line}: freeing block {}", self.ids[*block])
            }
            None => format!("{name}: at the end"),
        }
    }
}

fn parse_number(word: Option<&str>, what: &'static str, largest: u64) -> Result<u64, Problem> {
    let number = word.and_then(|word| word.parse().ok());
    number
        .filter(|number| *number <= largest)
        .ok_or(Problem::Number { what, largest })
}

impl fmt::Display for Trace {
    /// The trace as text that [`Trace::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in &self.events {
            match event {
                Event::Allocate {
                    block,
                    bytes,
                    stream,
                } => writeln!(f, "a {} {bytes} {stream}", self.ids[*block])?,
                Event::Free { block } => writeln!(f, "f {}", self.ids[*block])?,
            }
        }
        Ok(())
    }
}
