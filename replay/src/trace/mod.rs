//! Recorded allocations and frees of a program, in order.

pub(crate) mod error;
pub(crate) mod lines;
pub(crate) mod name;
pub(crate) mod pool_step;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    io::{BufReader, Read},
    iter::Peekable,
};

use binpool::words;

use crate::trace::{
    error::{Problem, TraceError},
    lines::{LONGEST_LINE, Lines},
    name::{LONGEST_NAME, cut},
    pool_step::{PoolAction, PoolStep, ShortageReport},
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
/// | `a ID BYTES STREAM [TIME [GROUP [STACK]]]` | a block is allocated |
/// | `f ID [TIME]` | a block is freed |
/// | `o BYTES STREAM [TIME [GROUP [STACK]]]` | an allocation failed for lack of memory |
/// | `g GROUP NAME` | what the blocks of a group have in common: a tag of the program, or where it asked for them |
/// | `h KEY VALUE` | the header, before any event: see below |
/// | `k STACK FRAME` | the next frame of a call stack, innermost first; the last one may say how many there are more |
///
/// and, in recordings of a pool, what that did:
///
/// | line | says |
/// |---|---|
/// | `s MEMORY BYTES [TIME]` | it took memory from its allocator: a segment, or one block by itself |
/// | `S MEMORY [TIME]` | memory left the pool |
/// | `b BLOCK MEMORY OFFSET BYTES [TIME]` | a block lies there whenever it is handed out: all of its IDs are 256 times `BLOCK`, and a number below 256 |
/// | `r KEY=NUMBER ...` | the report of the allocation that failed last, whose keys are the fields of [`OutOfMemoryReport`](binpool::OutOfMemoryReport), and `verdict` |
/// | `p untracked BYTES TIME TEXT` | so much was in use when the recording began, of which it knows nothing |
/// | `p miss BYTES TIME TEXT` | a request of so many bytes found no free memory, and why |
/// | `p flush BYTES TIME TEXT` | cached blocks went back to their segments |
/// | `p trim BYTES TIME TEXT` | so much free memory was released, since the program called for it |
/// | `p sweep BYTES TIME` | so much was released, since it was idle |
/// | `p hook BYTES TIME` | a reclaim hook was called, for a request of so many bytes |
/// | `p wait 0 TIME TEXT` | the host waited for a queue |
/// | `m RESERVATION OFFSET BYTES [TIME]` | pages were mapped to these bytes of a reservation, which is the `MEMORY` of the blocks there |
/// | `M RESERVATION OFFSET BYTES [TIME]` | pages that were mapped there, as a whole, were unmapped |
/// | `w BLOCK [TIME]` | the program freed the block, and another stream's commands still use it; no pool of binpool writes this |
/// | `p map BYTES TIME TEXT` | so many bytes of pages were created for a request, and pages were mapped |
/// | `p spare BYTES TIME` | so many bytes of pages are mapped nowhere from now on, since a call failed |
/// | `p begin 0 TIME TEXT`, `p end 0 TIME TEXT` | a part of the program began or ended, as another tool noted it |
/// | `p annotate 0 TIME TEXT`, `p snapshot 0 TIME` | the program made a note, or a snapshot, by another tool |
///
/// Pools of pages have neither `s` nor `S`, and begin with an `m` for what is mapped already; those of older versions have no `m`. A
/// request that moves pages writes the `m` of each before its `M`. Other words behind `p` are kept. The header has one line for each of: `version` (2, the
/// first line), `time` (in seconds since 1970), `program`, `device`, `backend`, `allocator`, `capacity` (of the device, in bytes), `limit`
/// (of the allocator, if it is less), `source` (what another tool's recording was), `blocks` (`segments` or `bins`), `growth`, `reuse`, `scrub`, `thread_caches`,
/// `release_threshold`, `pages` (the bytes of one). Other keys are kept. Traces without a header have the lines of the first table alone.
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
    header: Vec<(String, String)>,
    pool_steps: Vec<PoolStep>,
    /// The frames of each call stack.
    stacks: Vec<Vec<String>>,
    /// The index of each block's stack in `stacks`.
    stack_of_block: Vec<Option<u32>>,
    remarks: Vec<String>,
    /// Set for a recording of a program on CUDA.
    is_of_cuda: bool,
}

/// What the header of a trace says that was a snapshot of `PyTorch`.
pub(crate) const SNAPSHOT_OF_PYTORCH: &str = "a memory snapshot of PyTorch";

/// The version of the recordings that this crate knows.
const VERSION: u64 = 2;

/// The most characters of a frame that count.
const LONGEST_FRAME: usize = 2048;

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
    /// The index of its call stack among [`Trace::stacks`].
    pub stack: Option<u32>,
    /// The pool's report.
    pub report: Option<ShortageReport>,
}

/// The state of reading a trace.
#[derive(Debug, Default)]
struct Reader {
    /// The block of each ID that is live.
    live: HashMap<u64, usize>,
    /// The index of each group among [`Trace::groups`].
    groups: HashMap<u64, u32>,
    /// The index of each call stack among [`Trace::stacks`].
    stacks: HashMap<u64, u32>,
    /// The keys of the header.
    keys: HashSet<String>,
    /// Set once there is a line that is not of the header.
    has_begun: bool,
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
                // The program ended while it wrote this.
                if line.may_be_cut && !trace.ids.is_empty() {
                    trace.push_remark(format!("line {} is cut: left out", line.number));
                    break;
                }
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

    /// Returns whether a line begins like one of a trace: a letter, and what comes behind that.
    pub(crate) fn looks_like_a_line(line: &str) -> bool {
        let mut words = line.split_ascii_whitespace();
        let letter = words.next().unwrap_or_default();
        let next = words.next().unwrap_or_default();
        let is_number = |word: &str| word.parse::<u64>().is_ok();
        match letter {
            "a" | "f" | "o" | "g" | "k" | "s" | "S" | "b" | "m" | "M" | "w" => is_number(next),
            "h" => next
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
            "p" => words.next().is_some_and(is_number),
            "r" => next.contains('='),
            _ => false,
        }
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
            header: Vec::new(),
            pool_steps: Vec::new(),
            stacks: Vec::new(),
            stack_of_block: Vec::new(),
            remarks: Vec::new(),
            is_of_cuda: false,
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
        let first = words.next();
        match first {
            None => return Ok(()),
            Some(word) if word.starts_with('#') => return Ok(()),
            Some("h") => return self.read_header(behind(text, 2)?, words.next(), so_far),
            _ => so_far.has_begun = true,
        }
        match first {
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
                let stack = so_far.read_stack(words.next())?;
                self.push_shortage(bytes, stream, time, group);
                if let Some(shortage) = self.shortages.last_mut() {
                    shortage.stack = stack;
                }
            }
            Some("r") => {
                let report = ShortageReport::read(&mut words)?;
                let shortage = self.shortages.last_mut();
                let shortage = shortage.filter(|shortage| shortage.report.is_none());
                shortage.ok_or(Problem::Report)?.report = Some(report);
            }
            Some("k") => {
                let number = parse_number(words.next(), "STACK", u64::MAX)?;
                let frame = cut(behind(text, 2)?, LONGEST_FRAME).into_owned();
                let index = *so_far.stacks.entry(number).or_insert_with(|| {
                    self.stacks.push(Vec::new());
                    u32::try_from(self.stacks.len() - 1).unwrap_or(u32::MAX)
                });
                self.stacks[index as usize].push(frame);
                return Ok(());
            }
            Some("g") => {
                let number = parse_number(words.next(), "GROUP", u64::MAX)?;
                let index = self.push_group(behind(text, 2)?);
                if so_far.groups.insert(number, index).is_some() {
                    return Err(Problem::GroupTwice { group: number });
                }
                return Ok(());
            }
            Some(letter @ ("s" | "S" | "b" | "m" | "M" | "p" | "w")) => {
                let step = so_far.read_pool_step(letter, text, &mut words)?;
                self.pool_steps.push(PoolStep {
                    events_before: self.events.len(),
                    ..step
                });
            }
            _ => return Err(Problem::Form),
        }
        match words.next() {
            Some(_) => Err(Problem::Form),
            None => Ok(()),
        }
    }

    fn read_header(
        &mut self,
        value: &str,
        key: Option<&str>,
        so_far: &mut Reader,
    ) -> Result<(), Problem> {
        let key = cut(key.unwrap_or_default(), LONGEST_NAME).into_owned();
        if so_far.has_begun {
            return Err(Problem::HeaderLate);
        }
        if (key == "version") != self.header.is_empty() {
            return Err(Problem::HeaderFirst);
        }
        if key == "version" {
            parse_number(Some(value), "the version", VERSION)?;
        }
        if key == "capacity" || key == "limit" {
            let what = if key == "limit" {
                "the limit"
            } else {
                "the capacity"
            };
            parse_number(Some(value), what, u64::MAX)?;
        }
        if !so_far.keys.insert(key.clone()) {
            return Err(Problem::HeaderTwice { key });
        }
        self.header
            .push((key, cut(value, LONGEST_NAME).into_owned()));
        Ok(())
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
        let stack = so_far.read_stack(words.next())?;
        if let Some(since) = so_far.live.insert(id, self.ids.len()) {
            return Err(Problem::Live {
                id,
                since: self.line_of_allocation(since),
            });
        }
        let block = self.push_allocation(id, (bytes, stream), (time, group), number);
        self.stack_of_block[block] = stack;
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
        self.stack_of_block.push(None);
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
            stack: None,
            report: None,
        });
    }

    /// Adds a group and returns its index. The name must be one line that is not blank; it is cut to
    /// [`LONGEST_NAME`] characters.
    pub(crate) fn push_group(&mut self, name: &str) -> u32 {
        let index = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        self.groups.push(cut(name, LONGEST_NAME).into_owned());
        index
    }

    /// Adds a line of the header.
    pub(crate) fn push_header(&mut self, key: &str, value: &str) {
        self.header.push((key.to_owned(), value.to_owned()));
    }

    /// Adds a step of the pool that comes before the next event.
    pub(crate) fn push_step(&mut self, action: PoolAction, time: u64) {
        self.pool_steps.push(PoolStep {
            events_before: self.events.len(),
            time,
            action,
        });
    }

    /// Sets the call stacks, to which blocks and shortages refer by index.
    pub(crate) fn set_stacks(&mut self, stacks: Vec<Vec<String>>) {
        self.stacks = stacks;
    }

    pub(crate) fn set_stack_of(&mut self, block: usize, stack: Option<u32>) {
        self.stack_of_block[block] = stack;
    }

    /// The shortage that was added last.
    pub(crate) fn last_shortage_mut(&mut self) -> Option<&mut Shortage> {
        self.shortages.last_mut()
    }

    /// Removes what the pool did.
    pub(crate) fn forget_pool(&mut self) {
        self.is_of_cuda = self.is_of_cuda();
        self.header = Vec::new();
        self.pool_steps = Vec::new();
        for shortage in &mut self.shortages {
            shortage.report = None;
        }
    }

    /// Removes the times of all events.
    pub(crate) fn forget_times(&mut self) {
        self.times = Vec::new();
    }

    /// Notes that the program ran on CUDA.
    pub(crate) fn set_of_cuda(&mut self) {
        self.is_of_cuda = true;
    }

    /// Returns whether the program is known to have run on CUDA.
    pub(crate) fn is_of_cuda(&self) -> bool {
        let says = |key, word: &str| {
            self.header_value(key)
                .is_some_and(|value| value.contains(word))
        };
        self.is_of_cuda || says("source", SNAPSHOT_OF_PYTORCH) || says("backend", "CudaBackend")
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

    /// The header of a recording of a pool: its keys and values, in order. Empty in other traces.
    ///
    /// ```
    /// use binpool_replay::Trace;
    ///
    /// let text = "h version 2\nh device pocl\ns 9 65536 0\nb 1 9 4096 1024 0\na 256 1000 0 0\n";
    /// let trace = Trace::parse("recorded", text.as_bytes())?;
    /// assert_eq!(trace.header_value("device"), Some("pocl"));
    /// assert_eq!(trace.header().len(), 2);
    /// assert_eq!(trace.pool_steps().len(), 2);
    /// # Ok::<(), binpool_replay::TraceError>(())
    /// ```
    #[must_use]
    pub fn header(&self) -> &[(String, String)] {
        &self.header
    }

    /// The value of a key of the header.
    #[must_use]
    pub fn header_value(&self, key: &str) -> Option<&str> {
        let found = self.header.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    /// What the pool did when the trace was recorded, in order.
    #[must_use]
    pub fn pool_steps(&self) -> &[PoolStep] {
        &self.pool_steps
    }

    /// The frames of each call stack, innermost first.
    #[must_use]
    pub fn stacks(&self) -> &[Vec<String>] {
        &self.stacks
    }

    /// The index among [`stacks`](Self::stacks) of the stack that a block was allocated in.
    #[must_use]
    pub fn stack_of(&self, block: usize) -> Option<usize> {
        let index = (*self.stack_of_block.get(block)?)?;
        Some(index as usize)
    }

    /// The ID of a block in the text.
    pub(crate) fn id_of(&self, block: usize) -> u64 {
        self.ids[block]
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
        self.live_bytes().0
    }

    /// The bytes that are live at the end, by requested sizes.
    pub(crate) fn end_live_bytes(&self) -> u64 {
        self.live_bytes().1
    }

    /// The most bytes that are live at once, and those that are live at the end.
    fn live_bytes(&self) -> (u64, u64) {
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
        (peak, live)
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

    /// Divides every size by `divisor`, but to no less than 1 byte unless it was 0. What the pool did is removed, as it does not
    /// hold for other sizes.
    #[must_use]
    pub fn scaled_down(self, divisor: usize) -> Self {
        if divisor <= 1 {
            return self;
        }
        self.with_sizes(|bytes| bytes / divisor.max(1))
    }

    /// Returns the trace with the size `changed(bytes)` for each block of `bytes` bytes: the same program with other sizes.
    /// Blocks of no bytes stay so, and the others have at least 1 byte. What the pool did is removed, as it does not hold for it.
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
        self.forget_pool();
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

    /// Reads what the pool did: a line that begins with this letter.
    fn read_pool_step<'w>(
        &mut self,
        letter: &str,
        text: &str,
        words: &mut impl Iterator<Item = &'w str>,
    ) -> Result<PoolStep, Problem> {
        let mut number = |what| parse_number(words.next(), what, u64::MAX);
        let mut action = match letter {
            "s" => PoolAction::Taken {
                memory: number("MEMORY")?,
                bytes: number("BYTES")?,
            },
            "S" => PoolAction::GivenBack {
                memory: number("MEMORY")?,
            },
            "b" => PoolAction::Placed {
                block: number("BLOCK")?,
                memory: number("MEMORY")?,
                offset: number("OFFSET")?,
                bytes: number("BYTES")?,
            },
            "m" => PoolAction::Mapped {
                reservation: number("RESERVATION")?,
                offset: number("OFFSET")?,
                bytes: number("BYTES")?,
            },
            "M" => PoolAction::Unmapped {
                reservation: number("RESERVATION")?,
                offset: number("OFFSET")?,
                bytes: number("BYTES")?,
            },
            "w" => PoolAction::Waiting {
                block: number("BLOCK")?,
            },
            _ => {
                let what = words.next().ok_or(Problem::Form)?;
                PoolAction::Did {
                    what: cut(what, LONGEST_NAME).into(),
                    bytes: parse_number(words.next(), "BYTES", u64::MAX)?,
                    text: Box::default(),
                }
            }
        };
        let time = self.read_time(words.next())?;
        if let PoolAction::Did { text: more, .. } = &mut action {
            if let Ok(rest) = behind(text, 4) {
                *more = cut(rest, LONGEST_NAME).into();
            }
            words.by_ref().for_each(drop);
        }
        Ok(PoolStep {
            events_before: 0,
            time,
            action,
        })
    }

    fn read_stack(&self, word: Option<&str>) -> Result<Option<u32>, Problem> {
        let Some(word) = word else {
            return Ok(None);
        };
        let stack = parse_number(Some(word), "STACK", u64::MAX)?;
        let index = self.stacks.get(&stack).ok_or(Problem::Stack { stack })?;
        Ok(Some(*index))
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

/// Returns what comes behind the first `words` words of a line; an error if there is nothing.
fn behind(line: &str, words: usize) -> Result<&str, Problem> {
    let mut rest = line.trim_ascii();
    for _ in 0..words {
        let split = rest.split_once(|letter: char| letter.is_ascii_whitespace());
        rest = split.ok_or(Problem::Form)?.1.trim_ascii_start();
    }
    Ok(rest)
}

fn parse_bytes(word: Option<&str>) -> Result<usize, Problem> {
    let bytes = parse_number(word, "BYTES", usize::MAX as u64)?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn parse_stream(word: Option<&str>) -> Result<u32, Problem> {
    let stream = parse_number(word, "STREAM", u64::from(u32::MAX))?;
    Ok(u32::try_from(stream).unwrap_or(u32::MAX))
}

pub(crate) fn parse_number(
    word: Option<&str>,
    what: &'static str,
    largest: u64,
) -> Result<u64, Problem> {
    let number = word.and_then(|word| word.parse().ok());
    number
        .filter(|number| *number <= largest)
        .ok_or(Problem::Number { what, largest })
}

/// The time, the group and the stack of a line, where the trace has them. A stack comes behind a group.
fn rest_of_line(time: Option<u64>, group: Option<u32>, stack: Option<u32>) -> String {
    let stack = stack.map_or_else(String::new, |stack| format!(" {stack}"));
    // A group follows a time, even where there are none.
    match (time, group) {
        (None, None) => String::new(),
        (Some(time), None) => format!(" {time}"),
        (time, Some(group)) => format!(" {} {group}{stack}", time.unwrap_or(0)),
    }
}

impl Trace {
    /// Writes the shortages and the steps of the pool that come before event number `index`, in the order of time.
    fn write_between<'t>(
        &self,
        f: &mut fmt::Formatter<'_>,
        index: usize,
        shortages: &mut Peekable<impl Iterator<Item = &'t Shortage>>,
        steps: &mut Peekable<impl Iterator<Item = &'t PoolStep>>,
    ) -> fmt::Result {
        let has_times = !self.times.is_empty();
        loop {
            let limit = shortages
                .peek()
                .filter(|shortage| shortage.events_before == index)
                .map_or(u64::MAX, |shortage| shortage.time);
            let step = steps.next_if(|step| step.events_before == index && step.time <= limit);
            if let Some(step) = step {
                let (words, text) = step.action.words();
                write!(f, "{words}")?;
                if has_times {
                    write!(f, " {}", step.time)?;
                    if !text.is_empty() {
                        write!(f, " {text}")?;
                    }
                }
                writeln!(f)?;
                continue;
            }
            let Some(shortage) = shortages.next_if(|it| it.events_before == index) else {
                return Ok(());
            };
            let Shortage {
                bytes,
                stream,
                time,
                group,
                stack,
                report,
                ..
            } = *shortage;
            let rest = rest_of_line(has_times.then_some(time), group, stack);
            writeln!(f, "o {bytes} {stream}{rest}")?;
            if let Some(report) = report {
                writeln!(f, "r {}", report.words())?;
            }
        }
    }
}

impl fmt::Display for Trace {
    /// Writes the trace as text that [`Trace::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in &self.header {
            writeln!(f, "h {key} {value}")?;
        }
        for (number, name) in self.groups.iter().enumerate() {
            writeln!(f, "g {number} {name}")?;
        }
        for (number, frames) in self.stacks.iter().enumerate() {
            for frame in frames {
                writeln!(f, "k {number} {frame}")?;
            }
        }
        let mut shortages = self.shortages.iter().peekable();
        let mut steps = self.pool_steps.iter().peekable();
        for index in 0..=self.events.len() {
            self.write_between(f, index, &mut shortages, &mut steps)?;
            let time = self.time_of(index);
            match self.events.get(index) {
                Some(Event::Allocate {
                    block,
                    bytes,
                    stream,
                }) => {
                    let (group, stack) = (self.group_of_block[*block], self.stack_of_block[*block]);
                    let rest = rest_of_line(time, group, stack);
                    writeln!(f, "a {} {bytes} {stream}{rest}", self.ids[*block])?;
                }
                Some(Event::Free { block }) => {
                    let rest = rest_of_line(time, None, None);
                    writeln!(f, "f {}{rest}", self.ids[*block])?;
                }
                None => {}
            }
        }
        Ok(())
    }
}
