//! Recorded allocations and frees of a program, in order.

use std::collections::HashMap;

use binpool_allocators::words;

use binpool_trace::{LONGEST_NAME, PoolEvent, ShortageReport, cut};

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
/// As text, it has a [line](binpool_trace::Line) for each of them. Blocks may be live at the end.
///
/// ```
/// use binpool_recordings::Trace;
///
/// let trace = Trace::parse("two blocks", &b"g 1 weights\na 7 4096 0 0 1\na 8 100 0 250\nf 7 900\n"[..])?;
/// assert_eq!(trace.group_of(0), Some("weights"));
/// assert_eq!(trace.time_of(2), Some(900));
/// assert_eq!(trace.allocations(), 2);
/// assert_eq!(trace.peak_live_bytes(), 4196);
/// let error = Trace::parse("x", &b"a 7 4096 0\nf 9\n"[..]).unwrap_err();
/// assert!(error.to_string().starts_with("x, line 2"));
/// # Ok::<(), binpool_trace::TraceError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub(crate) name: String,
    /// The unit of [`lines`](Self::lines): lines, or entries of another tool's recording.
    counted: &'static str,
    pub(crate) events: Vec<Event>,
    /// The line of each event, counted from 1; 0 for an event without a line.
    pub(crate) lines: Vec<usize>,
    /// The ID of each block.
    pub(crate) ids: Vec<u64>,
    /// The time of each event; empty if no line has one.
    pub(crate) times: Vec<u64>,
    /// The names of the groups.
    pub(crate) groups: Vec<String>,
    /// The index of each block's group in `groups`.
    pub(crate) group_of_block: Vec<Option<u32>>,
    pub(crate) shortages: Vec<Shortage>,
    pub(crate) header: Vec<(String, String)>,
    pub(crate) pool_steps: Vec<PoolStep>,
    pub(crate) uses: Vec<Use>,
    /// The frames of each call stack.
    pub(crate) stacks: Vec<Vec<String>>,
    /// The index of each block's stack in `stacks`.
    pub(crate) stack_of_block: Vec<Option<u32>>,
    remarks: Vec<String>,
    /// Set for a recording of a program on CUDA.
    is_of_cuda: bool,
    /// Set for a recording of what a program requests of a pool.
    is_of_pool: bool,
}

/// What the header of a trace says that was a snapshot of `PyTorch`.
pub(crate) const SNAPSHOT_OF_PYTORCH: &str = "a memory snapshot of PyTorch";

/// What it says of a program that `binpool run` recorded.
const PROGRAM: &str = "a program on ";
const PROGRAM_ON_CUDA: &str = "a program on CUDA";

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

/// The first use of a block on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Use {
    /// The number of events before it.
    pub events_before: usize,
    /// Its time, in nanoseconds since the recording began; 0 in a trace without times.
    pub time: u64,
    /// The block's number.
    pub block: usize,
    /// The stream.
    pub stream: u32,
}

/// Something that the pool of a recorded program did between two [events](Event) of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStep {
    /// The number of events before it.
    pub events_before: usize,
    /// Its time, in nanoseconds since the recording began; 0 in a trace without times.
    pub time: u64,
    /// What the pool did.
    pub event: PoolEvent,
}

/// A request for memory, as a trace stores it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) bytes: usize,
    pub(crate) stream: u32,
    pub(crate) time: u64,
    /// The index of its group.
    pub(crate) group: Option<u32>,
    /// The index of its call stack.
    pub(crate) stack: Option<u32>,
}

impl Trace {
    /// A trace without events, whose lines are called `counted`.
    pub(crate) fn empty(name: String, counted: &'static str) -> Self {
        Self {
            name,
            counted,
            ..Self::default()
        }
    }

    /// Appends the allocation of a block and returns its number. `line` is where it was read; 0 for nowhere.
    pub(crate) fn push_allocation(&mut self, id: u64, asked: Asked, line: usize) -> usize {
        let block = self.ids.len();
        self.ids.push(id);
        self.group_of_block.push(asked.group);
        self.stack_of_block.push(asked.stack);
        let event = Event::Allocate {
            block,
            bytes: asked.bytes,
            stream: asked.stream,
        };
        self.push(event, asked.time, line);
        block
    }

    /// Appends the free of a live block.
    pub(crate) fn push_free(&mut self, block: usize, time: u64, line: usize) {
        self.push(Event::Free { block }, time, line);
    }

    /// Appends an allocation that failed.
    pub(crate) fn push_shortage(&mut self, asked: Asked, report: Option<ShortageReport>) {
        self.shortages.push(Shortage {
            events_before: self.events.len(),
            bytes: asked.bytes,
            stream: asked.stream,
            time: asked.time,
            group: asked.group,
            stack: asked.stack,
            report,
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
    pub(crate) fn push_step(&mut self, event: PoolEvent, time: u64) {
        self.pool_steps.push(PoolStep {
            events_before: self.events.len(),
            time,
            event,
        });
    }

    /// Adds a use that comes before the next event.
    pub(crate) fn push_use(&mut self, block: usize, stream: u32, time: u64) {
        self.uses.push(Use {
            events_before: self.events.len(),
            time,
            block,
            stream,
        });
    }

    /// Sets the stream of the block that an event allocates.
    pub(crate) fn set_stream(&mut self, event: usize, of_block: u32) {
        if let Some(Event::Allocate { stream, .. }) = self.events.get_mut(event) {
            *stream = of_block;
        }
    }

    /// Sets the call stacks, to which blocks and shortages refer by index.
    pub(crate) fn set_stacks(&mut self, stacks: Vec<Vec<String>>) {
        self.stacks = stacks;
    }

    /// Removes what the pool did.
    pub(crate) fn forget_pool(&mut self) {
        self.is_of_cuda = self.is_of_cuda();
        self.is_of_pool = self.is_of_pool();
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

    /// Notes that these are requests to a pool on CUDA, as in what is imported from other tools.
    pub(crate) fn set_of_pool_on_cuda(&mut self) {
        (self.is_of_cuda, self.is_of_pool) = (true, true);
    }

    /// Returns whether the program is known to have run on CUDA.
    #[must_use]
    pub fn is_of_cuda(&self) -> bool {
        let says = |key, word: &str| {
            self.header_value(key)
                .is_some_and(|value| value.contains(word))
        };
        self.is_of_cuda
            || says("source", SNAPSHOT_OF_PYTORCH)
            || says("source", PROGRAM_ON_CUDA)
            || says("backend", "CudaBackend")
    }

    /// Returns whether these are requests to a pool: the program had one when it was recorded, be it binpool's, `PyTorch`'s or RMM's.
    ///
    /// ```
    /// use binpool_recordings::Trace;
    ///
    /// let of = |header: &str| Trace::parse("recorded", format!("{header}a 1 4096 0\n").as_bytes());
    /// assert!(of("h version 2\nh device pocl\nh allocator ImmediateAllocator\n")?.is_of_pool());
    /// assert!(!of("h version 3\nh source a program on OpenCL\n")?.is_of_pool());
    /// assert!(!of("")?.is_of_pool());
    /// # Ok::<(), binpool_trace::TraceError>(())
    /// ```
    #[must_use]
    pub fn is_of_pool(&self) -> bool {
        let says = |key| self.header_value(key).is_some();
        self.is_of_pool || says("pooled") || says("allocator")
    }

    /// Returns whether `binpool run` recorded the program.
    #[must_use]
    pub fn is_of_program(&self) -> bool {
        self.header_value("source")
            .is_some_and(|source| source.starts_with(PROGRAM))
    }

    /// Returns the trace with other groups: `name` returns that of a request, by its call stack and the name of its group.
    ///
    /// ```
    /// use binpool_recordings::Trace;
    ///
    /// let text = "g 1 buffer\nk 1 f at a.rs:1\nk 1 g at a.rs:2\na 7 64 0 0 1 1\na 8 64 0 0 1\n";
    /// let trace = Trace::parse("recorded", text.as_bytes())?;
    /// let trace = trace.with_groups(|stack, group| format!("{} ({group})", stack[1]));
    /// assert_eq!((trace.group_of(0), trace.group_of(1)), (Some("g at a.rs:2 (buffer)"), Some("buffer")));
    /// # Ok::<(), binpool_trace::TraceError>(())
    /// ```
    #[must_use]
    pub fn with_groups(mut self, name: impl Fn(&[String], &str) -> String) -> Self {
        let old = std::mem::take(&mut self.groups);
        let mut numbers = HashMap::new();
        let mut rename = |group: &mut Option<u32>, stack: Option<u32>| {
            let Some(number) = group else {
                return;
            };
            *number = *numbers
                .entry((*number, stack))
                .or_insert_with_key(|(number, stack)| {
                    let group = &old[*number as usize];
                    let stack = stack.and_then(|stack| self.stacks.get(stack as usize));
                    let named = stack.map_or_else(|| group.clone(), |stack| name(stack, group));
                    let known = self.groups.iter().position(|known| *known == named);
                    let index = known.unwrap_or_else(|| {
                        self.groups.push(named);
                        self.groups.len() - 1
                    });
                    u32::try_from(index).unwrap_or(u32::MAX)
                });
        };
        for (group, stack) in self.group_of_block.iter_mut().zip(&self.stack_of_block) {
            rename(group, *stack);
        }
        for shortage in &mut self.shortages {
            rename(&mut shortage.group, shortage.stack);
        }
        self
    }

    /// Returns the requests for these blocks alone, as a trace without what else was recorded. `keep` gets the number of each block.
    ///
    /// ```
    /// use binpool_recordings::Trace;
    ///
    /// let trace = Trace::parse("recorded", &b"a 7 64 0\na 8 100 0\nf 7\nf 8\n"[..])?;
    /// assert_eq!(trace.only(|block| block == 1).to_string(), "a 8 100 0\nf 8\n");
    /// # Ok::<(), binpool_trace::TraceError>(())
    /// ```
    #[must_use]
    pub fn only(&self, keep: impl Fn(usize) -> bool) -> Self {
        let mut only = Self::empty(self.name.clone(), self.counted);
        (only.is_of_cuda, only.is_of_pool) = (self.is_of_cuda(), self.is_of_pool());
        let mut numbers = vec![None; self.allocations()];
        for (index, event) in self.events.iter().enumerate() {
            let (time, line) = (self.time_of(index).unwrap_or(0), self.lines[index]);
            match *event {
                Event::Allocate {
                    block,
                    bytes,
                    stream,
                } if keep(block) => {
                    let asked = Asked {
                        bytes,
                        stream,
                        time,
                        group: None,
                        stack: None,
                    };
                    numbers[block] = Some(only.push_allocation(self.ids[block], asked, line));
                }
                Event::Free { block } => {
                    if let Some(number) = numbers[block] {
                        only.push_free(number, time, line);
                    }
                }
                Event::Allocate { .. } => {}
            }
        }
        if self.times.is_empty() {
            only.forget_times();
        }
        only
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
    /// use binpool_recordings::Trace;
    ///
    /// let text = "h version 2\nh device pocl\ns 9 65536 0\nb 1 9 4096 1024 0\na 256 1000 0 0\n";
    /// let trace = Trace::parse("recorded", text.as_bytes())?;
    /// assert_eq!(trace.header_value("device"), Some("pocl"));
    /// assert_eq!(trace.header().len(), 2);
    /// assert_eq!(trace.pool_steps().len(), 2);
    /// # Ok::<(), binpool_trace::TraceError>(())
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

    /// The first use of each block on each stream, in order, in a recording that says it. A block that was allocated for no stream has the
    /// stream of its first use.
    ///
    /// ```
    /// use binpool_recordings::{Event, Trace};
    ///
    /// let trace = Trace::parse("recorded", &b"h version 3\na 7 4096 0\nu 7 2\nu 7 1\n"[..])?;
    /// let streams: Vec<u32> = trace.uses().iter().map(|used| used.stream).collect();
    /// assert_eq!((streams, trace.streams()), (vec![2, 1], vec![2]));
    /// # Ok::<(), binpool_trace::TraceError>(())
    /// ```
    #[must_use]
    pub fn uses(&self) -> &[Use] {
        &self.uses
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

    /// Remarks on how a recording of another tool was interpreted: blocks from before it began, frees that were left
    /// out. One sentence each, for display; empty for a trace in binpool's own format.
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
    #[must_use]
    pub fn end_live_bytes(&self) -> u64 {
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

    /// Returns the trace with the size `changed(bytes)` for each block of `bytes` bytes: the same program with other sizes. Blocks of 0
    /// bytes keep that size, and the others have at least 1 byte. What the pool did is removed, as it does not hold for it.
    ///
    /// ```
    /// use binpool_recordings::Trace;
    ///
    /// let trace = Trace::parse("two blocks", &b"a 7 4096 0\na 8 100 0\n"[..])?;
    /// assert_eq!(trace.with_sizes(|bytes| bytes / 10 * 7).peak_live_bytes(), 2863 + 70);
    /// # Ok::<(), binpool_trace::TraceError>(())
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
