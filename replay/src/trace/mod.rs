//! Recorded allocations and frees of a program, in order.

pub(crate) mod error;
pub(crate) mod lines;
pub(crate) mod name;

use std::{
    collections::HashMap,
    fmt,
    io::{BufReader, Read},
};

use binpool::words;

use crate::trace::{
    error::{Problem, TraceError},
    lines::{LONGEST_LINE, Lines},
    name::{LONGEST_NAME, cut},
};

/// One step of a program. Blocks are numbered from 0 in the order of their allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block is allocated.
    Allocate {
        /// The block's number.
        block: usize,
        /// The requested size in bytes.
        bytes: usize,
        /// The stream (a queue, in OpenCL's terms) that the block is for.
        stream: u32,
    },
    /// A block is freed.
    Free {
        /// The block's number.
        block: usize,
    },
}

/// A recorded program: its allocations and frees, in order.
///
/// As text, it has a line for each event:
///
/// | line | says |
/// |---|---|
/// | `a ID BYTES STREAM [TIME [GROUP]]` | a block is allocated |
/// | `f ID [TIME]` | a block is freed |
/// | `o BYTES STREAM [TIME [GROUP]]` | an allocation failed for lack of memory |
/// | `g GROUP NAME` | what the blocks of a group have in common: a tag of the program, or where it asked for them |
///
/// An ID is any number that no live block has. A time is in nanoseconds since the recording began, and no less than that of
/// any line before; a line without one has the time of the line before. A group is named before it is used, and its name is
/// the rest of the line, of which the first 512 characters count. Empty lines and lines that begin with `#` are ignored. Blocks
/// may be live at the end. A line has at most 65536 bytes.
///
/// ```
/// use binpool_replay::Trace;
///
/// let trace = Trace::parse("two blocks", &b"g 1 weights\na 7 4096 0 0 1\na 8 100 0 250\nf 7 900\n"[..])?;
/// assert_eq!(trace.group_of(0), Some("weights"));
/// assert_eq!(trace.time_of(2), Some(900));
/// assert_eq!(trace.allocations(), 2);
/// assert_eq!(trace.peak_live_bytes(), 4196);
/// let error = Trace::parse("x", &b"a 7 4096 0\nf 9\n"[..]).unwrap_err();
/// assert!(error.to_string().starts_with("x, line 2"));
/// # Ok::<(), binpool_replay::TraceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trace {
    name: String,
    /// The unit of [`lines`](Self::lines): lines, or entries of another tool's recording.
    counted: &'static str,
    events: Vec<Event>,
    /// The line of each event, counted from 1; 0 where it has none.
    lines: Vec<usize>,
    /// The ID of each block.
    ids: Vec<u64>,
    /// The time of each event; empty where no line has one.
    times: Vec<u64>,
    /// The names of the groups.
    groups: Vec<String>,
    /// The index of each block's group in `groups`.
    group_of_block: Vec<Option<u32>>,
    shortages: Vec<Shortage>,
    remarks: Vec<String>,
}

/// An allocation that failed for lack of memory when the program was recorded. A replay skips it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shortage {
    /// The number of events before it.
    pub events_before: usize,
    /// The requested size in bytes.
    pub bytes: usize,
    /// The stream that it was for.
    pub stream: u32,
    /// Its time, in nanoseconds since the recording began; 0 in a trace without times.
    pub time: u64,
    /// The index of its group among [`Trace::groups`].
    pub group: Option<u32>,
}

/// The state of reading a trace.
#[derive(Debug, Default)]
struct Reader {
    /// The block of each ID that is live.
    live: HashMap<u64, usize>,
    /// The index of each group among [`Trace::groups`].
    groups: HashMap<u64, u32>,
    /// The time of the line before.
    time: u64,
    has_times: bool,
}

/// The longest part of a line that an error quotes, in characters.
const QUOTED: usize = 60;

impl Trace {
    /// Reads a trace from text.
    ///
    /// # Errors
    ///
    /// [`TraceError`], with `name` as the file's name.
    pub fn parse(name: impl Into<String>, text: impl Read) -> Result<Self, TraceError> {
        let mut trace = Self::empty(name.into(), "line");
        let mut so_far = Reader::default();
        let mut lines = Lines::new(BufReader::new(text));
        loop {
            let line = match lines.next() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(source) => {
                    return Err(TraceError::Read {
                        name: trace.name,
                        source,
                    });
                }
            };
            let pushed = if line.is_too_long {
                Err(Problem::TooLong {
                    longest: LONGEST_LINE,
                })
            } else {
                trace.push_line(line.bytes, line.number, &mut so_far)
            };
            if let Err(problem) = pushed {
                let text = String::from_utf8_lossy(line.bytes.trim_ascii());
                return Err(TraceError::Line {
                    name: trace.name,
                    line: line.number,
                    problem,
                    text: text.chars().take(QUOTED).collect(),
                });
            }
        }
        if trace.ids.is_empty() {
            return Err(TraceError::Empty { name: trace.name });
        }
        if !so_far.has_times {
            trace.forget_times();
        }
        Ok(trace)
    }

    /// A trace without events, whose lines are called `counted`.
    pub(crate) fn empty(name: String, counted: &'static str) -> Self {
        Self {
            name,
            counted,
            events: Vec::new(),
            lines: Vec::new(),
            ids: Vec::new(),
            times: Vec::new(),
            groups: Vec::new(),
            group_of_block: Vec::new(),
            shortages: Vec::new(),
            remarks: Vec::new(),
        }
    }

    fn push_line(
        &mut self,
        line: &[u8],
        number: usize,
        so_far: &mut Reader,
    ) -> Result<(), Problem> {
        let text = std::str::from_utf8(line).map_err(|_| Problem::Utf8)?;
        let mut words = text.split_ascii_whitespace();
        match words.next() {
            None => return Ok(()),
            Some(word) if word.starts_with('#') => return Ok(()),
            Some("a") => self.read_allocation(&mut words, number, so_far)?,
            Some("f") => {
                let id = parse_number(words.next(), "ID", u64::MAX)?;
                let block = *so_far.live.get(&id).ok_or(Problem::NotLive { id })?;
                let time = so_far.read_time(words.next())?;
                so_far.live.remove(&id);
                self.push_free(block, time, number);
            }
            Some("o") => {
                let bytes = parse_bytes(words.next())?;
                let stream = parse_stream(words.next())?;
                let (time, group) = so_far.read_time_and_group(&mut words)?;
                self.push_shortage(bytes, stream, time, group);
            }
            Some("g") => {
                let number = parse_number(words.next(), "GROUP", u64::MAX)?;
                let behind_g = text.trim_ascii()[1..].trim_ascii_start();
                let name = behind_g.split_once(|letter: char| letter.is_ascii_whitespace());
                let (_, name) = name.ok_or(Problem::Form)?;
                let index = self.push_group(name.trim_ascii());
                if so_far.groups.insert(number, index).is_some() {
                    return Err(Problem::GroupTwice { group: number });
                }
                return Ok(());
            }
            Some(_) => return Err(Problem::Form),
        }
        match words.next() {
            Some(_) => Err(Problem::Form),
            None => Ok(()),
        }
    }

    fn read_allocation<'w>(
        &mut self,
        words: &mut impl Iterator<Item = &'w str>,
        number: usize,
        so_far: &mut Reader,
    ) -> Result<(), Problem> {
        let id = parse_number(words.next(), "ID", u64::MAX)?;
        let bytes = parse_bytes(words.next())?;
        let stream = parse_stream(words.next())?;
        let (time, group) = so_far.read_time_and_group(words)?;
        if let Some(since) = so_far.live.insert(id, self.ids.len()) {
            return Err(Problem::Live {
                id,
                since: self.line_of_allocation(since),
            });
        }
        self.push_allocation(id, (bytes, stream), (time, group), number);
        Ok(())
    }

    /// Appends the allocation of a block and returns its number. `line` is where it was read; 0 for nowhere.
    pub(crate) fn push_allocation(
        &mut self,
        id: u64,
        (bytes, stream): (usize, u32),
        (time, group): (u64, Option<u32>),
        line: usize,
    ) -> usize {
        let block = self.ids.len();
        self.ids.push(id);
        self.group_of_block.push(group);
        let event = Event::Allocate {
            block,
            bytes,
            stream,
        };
        self.push(event, time, line);
        block
    }

    /// Appends the free of a live block.
    pub(crate) fn push_free(&mut self, block: usize, time: u64, line: usize) {
        self.push(Event::Free { block }, time, line);
    }

    /// Appends an allocation that failed.
    pub(crate) fn push_shortage(
        &mut self,
        bytes: usize,
        stream: u32,
        time: u64,
        group: Option<u32>,
    ) {
        self.shortages.push(Shortage {
            events_before: self.events.len(),
            bytes,
            stream,
            time,
            group,
        });
    }

    /// Adds a group and returns its index. The name must be one line that is not blank; it is cut to
    /// [`LONGEST_NAME`] characters.
    pub(crate) fn push_group(&mut self, name: &str) -> u32 {
        let index = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        self.groups.push(cut(name, LONGEST_NAME).into_owned());
        index
    }

    /// Removes the times of all events.
    pub(crate) fn forget_times(&mut self) {
        self.times = Vec::new();
    }

    /// Adds a remark on how the trace was made.
    pub(crate) fn push_remark(&mut self, remark: String) {
        self.remarks.push(remark);
    }

    fn push(&mut self, event: Event, time: u64, line: usize) {
        self.events.push(event);
        self.times.push(time);
        self.lines.push(line);
    }

    fn line_of_allocation(&self, wanted: usize) -> usize {
        let is_it =
            |event: &Event| matches!(event, Event::Allocate { block, .. } if *block == wanted);
        let index = self.events.iter().position(is_it);
        index.map_or(0, |index| self.lines[index])
    }

    /// The name of the trace's file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The events, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The time of an event, in nanoseconds since the recording began; `None` in a trace without times.
    #[must_use]
    pub fn time_of(&self, event: usize) -> Option<u64> {
        self.times.get(event).copied()
    }

    /// The names of the groups of blocks: tags of the program, or the places of its requests.
    #[must_use]
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// The name of a block's group.
    #[must_use]
    pub fn group_of(&self, block: usize) -> Option<&str> {
        let index = (*self.group_of_block.get(block)?)?;
        self.groups.get(index as usize).map(String::as_str)
    }

    /// The allocations that failed for lack of memory, in order.
    #[must_use]
    pub fn shortages(&self) -> &[Shortage] {
        &self.shortages
    }

    /// Remarks on how a recording of another tool was interpreted: blocks from before it began, frees that were
    /// left out. A sentence each, for display; none for a trace of the own format.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// The number of allocations, which is also that of blocks.
    #[must_use]
    pub fn allocations(&self) -> usize {
        self.ids.len()
    }

    /// The number of blocks that are freed before the end, each a pair of an allocation and its free.
    #[must_use]
    pub fn frees(&self) -> usize {
        self.events.len() - self.ids.len()
    }

    /// The most bytes that are live at once, by requested sizes.
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

    /// The distinct streams of the blocks, in ascending order.
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

    /// Divides every size by `divisor`, but to no less than 1 byte unless it was 0.
    #[must_use]
    pub fn scaled_down(self, divisor: usize) -> Self {
        self.with_sizes(|bytes| bytes / divisor.max(1))
    }

    /// Returns the trace with the size `changed(bytes)` for each block of `bytes` bytes: the same program with other sizes.
    /// Blocks of no bytes stay so, and the others have at least 1 byte.
    ///
    /// ```
    /// use binpool_replay::Trace;
    ///
    /// let trace = Trace::parse("two blocks", &b"a 7 4096 0\na 8 100 0\n"[..])?;
    /// assert_eq!(trace.with_sizes(|bytes| bytes / 10 * 7).peak_live_bytes(), 2863 + 70);
    /// # Ok::<(), binpool_replay::TraceError>(())
    /// ```
    #[must_use]
    pub fn with_sizes(mut self, mut changed: impl FnMut(usize) -> usize) -> Self {
        for event in &mut self.events {
            if let Event::Allocate { bytes, .. } = event
                && *bytes > 0
            {
                *bytes = changed(*bytes).max(1);
            }
        }
        self
    }

    /// Describes event number `index` for display: file, line and block.
    #[must_use]
    pub fn describe(&self, index: usize) -> String {
        let name = &self.name;
        let place = match self.lines.get(index) {
            Some(0) => format!("{name}, before its first {}", self.counted),
            Some(line) => format!("{name}, {} {line}", self.counted),
            None => name.clone(),
        };
        match self.events.get(index) {
            Some(Event::Allocate { block, bytes, .. }) => {
                let id = self.ids[*block];
                format!(
                    "{place}: allocating {} as block {id}",
                    words::bytes(*bytes as u64)
                )
            }
            Some(Event::Free { block }) => format!("{place}: freeing block {}", self.ids[*block]),
            None => format!("{name}: at the end"),
        }
    }
}

impl Reader {
    /// Reads the time of a line from this word.
    fn read_time(&mut self, word: Option<&str>) -> Result<u64, Problem> {
        if word.is_some() {
            let (before, time) = (self.time, parse_number(word, "TIME", u64::MAX)?);
            if time < before {
                return Err(Problem::Time { time, before });
            }
            self.time = time;
            self.has_times = true;
        }
        Ok(self.time)
    }

    fn read_time_and_group<'w>(
        &mut self,
        words: &mut impl Iterator<Item = &'w str>,
    ) -> Result<(u64, Option<u32>), Problem> {
        let time = self.read_time(words.next())?;
        let Some(word) = words.next() else {
            return Ok((time, None));
        };
        let group = parse_number(Some(word), "GROUP", u64::MAX)?;
        let index = self.groups.get(&group).ok_or(Problem::Group { group })?;
        Ok((time, Some(*index)))
    }
}

fn parse_bytes(word: Option<&str>) -> Result<usize, Problem> {
    let bytes = parse_number(word, "BYTES", usize::MAX as u64)?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn parse_stream(word: Option<&str>) -> Result<u32, Problem> {
    let stream = parse_number(word, "STREAM", u64::from(u32::MAX))?;
    Ok(u32::try_from(stream).unwrap_or(u32::MAX))
}

fn parse_number(word: Option<&str>, what: &'static str, largest: u64) -> Result<u64, Problem> {
    let number = word.and_then(|word| word.parse().ok());
    number
        .filter(|number| *number <= largest)
        .ok_or(Problem::Number { what, largest })
}

/// The time and the group of a line, where the trace has them.
fn rest_of_line(time: Option<u64>, group: Option<u32>) -> String {
    // A group follows a time, even where there are none.
    match (time, group) {
        (None, None) => String::new(),
        (Some(time), None) => format!(" {time}"),
        (time, Some(group)) => format!(" {} {group}", time.unwrap_or(0)),
    }
}

impl fmt::Display for Trace {
    /// Writes the trace as text that [`Trace::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, name) in self.groups.iter().enumerate() {
            writeln!(f, "g {number} {name}")?;
        }
        let mut shortages = self.shortages.iter().peekable();
        for index in 0..=self.events.len() {
            while let Some(shortage) = shortages.next_if(|it| it.events_before == index) {
                let Shortage {
                    bytes,
                    stream,
                    time,
                    group,
                    ..
                } = *shortage;
                let time = (!self.times.is_empty()).then_some(time);
                let rest = rest_of_line(time, group);
                writeln!(f, "o {bytes} {stream}{rest}")?;
            }
            let time = self.time_of(index);
            match self.events.get(index) {
                Some(Event::Allocate {
                    block,
                    bytes,
                    stream,
                }) => {
                    let rest = rest_of_line(time, self.group_of_block[*block]);
                    writeln!(f, "a {} {bytes} {stream}{rest}", self.ids[*block])?;
                }
                Some(Event::Free { block }) => {
                    let rest = rest_of_line(time, None);
                    writeln!(f, "f {}{rest}", self.ids[*block])?;
                }
                None => {}
            }
        }
        Ok(())
    }
}
