//! What a trace says, and what it has to say.

use std::collections::{BTreeMap, BTreeSet};

use binpool_recordings::Trace;
use binpool_trace::{Line, PoolEvent, Request, ShortageReport, Verdict};

use super::{
    History, Tells, What,
    allocator::{Block, Note},
    rmm::thread_of,
};

/// The group of blocks from before the recording, where others have one.
const OLDER: &str = "(older than the recording)";

/// A block that is live.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    bytes: u64,
    stream: u32,
    group: Option<String>,
    stack: Vec<String>,
    /// Its memory, its offset there, and the bytes that it takes.
    place: Option<(u64, u64, u64)>,
    waits: bool,
}

/// What is there at a moment, by addresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Moment {
    time: Option<u64>,
    live: BTreeMap<u64, Seen>,
    memories: BTreeMap<u64, u64>,
}

/// A request that failed, after so many moments.
#[derive(Debug, PartialEq)]
pub(crate) struct Refused {
    after: usize,
    time: Option<u64>,
    bytes: u64,
    stream: u32,
    group: Option<String>,
    report: Option<ShortageReport>,
}

/// What a trace says of a program.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Told {
    capacity: Option<u64>,
    /// The first moments are the allocations from before the recording; after those, one for each event, and the end.
    moments: Vec<Moment>,
    refused: Vec<Refused>,
    /// After how many moments, when, and what.
    notes: Vec<(usize, Option<u64>, String)>,
}

impl Told {
    /// What the lines of a trace say.
    pub(crate) fn by(trace: &Trace) -> Self {
        let (mut told, mut now) = (Self::default(), Moment::default());
        let (mut groups, mut stacks, mut places) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        // A group follows a time, which is 0 in a trace without times.
        let is_timed = trace.time_of(0).is_some();
        let text = trace.to_string();
        for line in text.lines() {
            let of = |request: &Request, groups: &BTreeMap<u64, String>| {
                request.group.map(|group| groups[&group].clone())
            };
            match Line::read(line).unwrap().unwrap() {
                Line::Header { key, value } => match key {
                    "capacity" => told.capacity = value.parse().ok(),
                    _ => assert!(
                        ["version", "source", "device", "allocator", "blocks"].contains(&key)
                    ),
                },
                Line::Group { group, name } => drop(groups.insert(group, name.to_owned())),
                Line::Frame { stack, frame } => {
                    stacks
                        .entry(stack)
                        .or_insert_with(Vec::new)
                        .push(frame.to_owned());
                }
                Line::Allocated { id, request } => {
                    let stack = request.stack.map(|stack| stacks[&stack].clone());
                    let seen = Seen {
                        bytes: request.bytes as u64,
                        stream: request.stream,
                        group: of(&request, &groups),
                        stack: stack.unwrap_or_default(),
                        place: places.get(&(id >> 8)).copied(),
                        waits: false,
                    };
                    assert_eq!(now.live.insert(id, seen), None, "{line}");
                    now.time = request.time.filter(|_| is_timed);
                    told.moments.push(now.clone());
                }
                Line::Freed { id, time } => {
                    assert!(now.live.remove(&id).is_some(), "{line}");
                    now.time = time;
                    told.moments.push(now.clone());
                }
                Line::Refused { request } => told.refused.push(Refused {
                    after: told.moments.len(),
                    time: request.time.filter(|_| is_timed),
                    bytes: request.bytes as u64,
                    stream: request.stream,
                    group: of(&request, &groups),
                    report: None,
                }),
                Line::Pool { event, time } => match &*event {
                    PoolEvent::Taken { memory, bytes } => {
                        assert_eq!(now.memories.insert(*memory, *bytes), None, "{line}");
                    }
                    PoolEvent::GivenBack { memory } => {
                        assert!(now.memories.remove(memory).is_some(), "{line}");
                        places.retain(|_, (of, ..)| of != memory);
                    }
                    PoolEvent::Placed {
                        block,
                        memory,
                        offset,
                        bytes,
                    } => {
                        places.insert(*block, (*memory, *offset, *bytes));
                    }
                    PoolEvent::Waiting { block } => {
                        let mut live = now.live.iter_mut();
                        let waiting = live.find(|(id, _)| *id >> 8 == *block).unwrap().1;
                        assert!(!waiting.waits, "{line}");
                        waiting.waits = true;
                    }
                    PoolEvent::Report(report) => {
                        told.refused.last_mut().unwrap().report = Some(**report);
                    }
                    PoolEvent::Did {
                        what,
                        bytes: 0,
                        text,
                    } => {
                        let note = format!("{} {text}", what.word());
                        told.notes.push((told.moments.len(), time, note));
                    }
                    _ => panic!("{line}"),
                },
                Line::Used { .. } => panic!("{line}"),
            }
        }
        now.time = None;
        told.moments.push(now);
        told
    }

    /// Checks that another is the same, and names the first difference.
    pub(crate) fn assert_is(&self, other: &Self) {
        let pairs = self.moments.iter().zip(&other.moments);
        for (place, (own, other)) in pairs.enumerate() {
            assert_eq!(own, other, "moment {place}");
        }
        let parts = |told: &Self| (told.capacity, told.moments.len());
        assert_eq!(parts(self), parts(other));
        assert_eq!(self.refused, other.refused);
        assert_eq!(self.notes, other.notes);
    }

    /// The same without where blocks lie, which is not known exactly of every recording.
    pub(crate) fn without_places(mut self) -> Self {
        self.capacity = None;
        for moment in &mut self.moments {
            moment.live.values_mut().for_each(|seen| seen.place = None);
        }
        for refused in &mut self.refused {
            refused.report = None;
        }
        self
    }

    /// What a recording that can tell so much has to say of a device; `None` if it allocates nothing.
    pub(crate) fn of(history: &History, tells: Tells) -> Option<Self> {
        let mut teller = Teller::new(history, tells);
        for (time, what) in &history.happened[..history.lost] {
            teller.track(*time, what);
        }
        teller.begin();
        for (time, what) in history.recorded() {
            teller.track(*time, what);
        }
        let Teller {
            mut told, mut now, ..
        } = teller;
        now.time = None;
        told.moments.push(now);
        let refused = told.refused.iter().map(|refused| &refused.group);
        let seen = told.moments.iter().flat_map(|moment| moment.live.values());
        let groups = seen.map(|seen| &seen.group).chain(refused);
        let groups: BTreeSet<&String> = groups.flatten().collect();
        if groups.iter().all(|group| *group == OLDER) || tells.threads && groups.len() == 1 {
            let live = told
                .moments
                .iter_mut()
                .flat_map(|moment| moment.live.values_mut());
            live.for_each(|seen| seen.group = None);
            told.refused.iter_mut().for_each(|it| it.group = None);
        }
        (told.moments.len() > 1).then_some(told)
    }
}

impl Tells {
    /// The block that ends.
    fn end_of(self, what: &What) -> Option<usize> {
        match what {
            What::Freed(block) if self.completions => Some(*block),
            What::Requested(block) if !self.completions => Some(*block),
            _ => None,
        }
    }

    fn is_entry(self, what: &What) -> bool {
        match what {
            What::Noted(Note::Begin | Note::End) => false,
            What::Allocated(_) | What::Requested(_) | What::Refused { .. } => true,
            _ => self.places,
        }
    }

    /// The entries of the recording.
    fn entries(self, history: &History) -> impl Iterator<Item = &(u64, What)> {
        let recorded = history.recorded().iter();
        recorded.filter(move |(_, what)| self.is_entry(what))
    }

    /// Whether a block that the program frees is free at once: the next entry says so.
    fn is_free_at_once(self, history: &History, number: usize) -> bool {
        let mut entries = self.entries(history).map(|(_, what)| what);
        entries.find(|what| matches!(what, What::Requested(own) if *own == number));
        matches!(entries.next(), Some(What::Freed(own)) if *own == number)
    }

    /// The time of the first entry, or note after one, that says something by itself.
    fn begins(self, history: &History) -> Option<u64> {
        let (starts, _) = self.entries(history).next()?;
        let says = |(time, what): &&(u64, What)| match what {
            What::Requested(number) if self.completions => !self.is_free_at_once(history, *number),
            What::Noted(Note::Begin | Note::End) => self.places && time >= starts,
            what => self.is_entry(what),
        };
        let mut recorded = history.recorded().iter();
        recorded.find(says).map(|(time, _)| *time)
    }
}

/// Each block by its address, bytes and beginning, with its end. These are all that is known of a recording that has lost entries.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Lives {
    blocks: BTreeSet<(u64, u64, u64, Option<u64>)>,
    remarks: Vec<String>,
}

impl Lives {
    /// What the lines of a trace say.
    pub(crate) fn by(trace: &Trace) -> Self {
        let (mut blocks, mut live) = (BTreeSet::new(), BTreeMap::new());
        for line in trace.to_string().lines() {
            match Line::read(line).unwrap().unwrap() {
                Line::Allocated { id, request } => {
                    let is_new = live
                        .insert(id, (request.bytes as u64, request.time.unwrap()))
                        .is_none();
                    assert!(is_new, "{line}");
                }
                Line::Freed { id, time } => {
                    let (bytes, from) = live.remove(&id).unwrap();
                    blocks.insert((id, bytes, from, time));
                }
                _ => {}
            }
        }
        blocks.extend(
            live.iter()
                .map(|(id, (bytes, from))| (*id, *bytes, *from, None)),
        );
        let own = trace
            .remarks()
            .iter()
            .filter(|remark| remark.starts_with(|letter: char| letter.is_ascii_digit()));
        let remarks = own.map(|remark| remark.split(':').take(2).collect::<Vec<_>>().join(":"));
        Self {
            blocks,
            remarks: remarks.collect(),
        }
    }

    /// What the entries of each address say by themselves.
    pub(crate) fn of(history: &History, tells: Tells) -> Option<Self> {
        let first = tells.begins(history)?;
        let mut entries: BTreeMap<u64, Vec<(u64, u64, bool)>> = BTreeMap::new();
        for (time, what) in history.recorded() {
            let (number, is_free) = match (what, tells.end_of(what)) {
                (What::Allocated(number), _) => (*number, false),
                (_, Some(number)) => (number, true),
                _ => continue,
            };
            let block = history.blocks[number];
            let entry = ((time - first) * 1000, block.requested, is_free);
            entries.entry(block.address).or_default().push(entry);
        }
        let (mut blocks, mut counts) = (BTreeSet::new(), [0; 3]);
        for (address, entries) in &entries {
            let (start, bytes, is_free) = entries[0];
            if is_free {
                counts[0] += 1;
                blocks.insert((*address, bytes, 0, Some(start)));
            }
            for pair in entries.windows(2) {
                let [(from, bytes, is_free), (to, _, is_next_free)] = *pair else {
                    unreachable!()
                };
                match (is_free, is_next_free) {
                    (false, _) => drop(blocks.insert((*address, bytes, from, Some(to)))),
                    (true, true) => counts[2] += 1,
                    (true, false) => {}
                }
                counts[1] += usize::from(!is_free && !is_next_free);
            }
            if let Some((from, bytes, false)) = entries.last() {
                blocks.insert((*address, *bytes, *from, None));
            }
        }
        let words = [
            "allocated before the recording began",
            "allocated again without a free in between",
            "freed without being live",
        ];
        let remark = |(count, word): (&usize, &&str)| match count {
            0 => None,
            1 => Some(format!("1 block: {word}")),
            _ => Some(format!("{count} blocks: {word}")),
        };
        let remarks = counts.iter().zip(&words).filter_map(remark).collect();
        (!blocks.is_empty()).then_some(Self { blocks, remarks })
    }
}

struct Teller<'h> {
    history: &'h History,
    tells: Tells,
    told: Told,
    now: Moment,
    /// The number of the live block at each address.
    live: BTreeMap<u64, usize>,
    /// What was given back since the last event.
    released: u64,
    begins: Option<u64>,
    /// The time of the first entry.
    starts: Option<u64>,
    streams: Vec<usize>,
}

impl<'h> Teller<'h> {
    fn new(history: &'h History, tells: Tells) -> Self {
        Self {
            history,
            tells,
            told: Told::default(),
            now: Moment::default(),
            live: BTreeMap::new(),
            released: 0,
            begins: None,
            starts: tells.entries(history).next().map(|(time, _)| *time),
            streams: Vec::new(),
        }
    }

    fn stream(&mut self, stream: usize) -> u32 {
        let known = self.streams.iter().position(|own| *own == stream);
        let place = known.unwrap_or_else(|| {
            self.streams.push(stream);
            self.streams.len() - 1
        });
        u32::try_from(place).unwrap()
    }

    fn group(&self, site: usize) -> Option<String> {
        if self.tells.threads {
            return Some(format!("thread {}", thread_of(site)));
        }
        let name = match site {
            0 => "(backward pass?)".to_owned(),
            _ => format!("model/layers.py:{} forward", 10 + site),
        };
        self.tells.stacks.then_some(name)
    }

    fn add(&mut self, number: usize, bytes: u64, group: Option<String>, has_stack: bool) {
        let block @ Block { address, site, .. } = self.history.blocks[number];
        let frames = || {
            let inner = format!("forward at model/layers.py:{}", 10 + site);
            vec![inner, "<module> at model/train.py:77".to_owned()]
        };
        let (memory, _) = self
            .now
            .memories
            .range(..=address)
            .next_back()
            .unwrap_or((&0, &0));
        let seen = Seen {
            bytes: block.requested,
            place: self
                .tells
                .places
                .then_some((*memory, address - memory, bytes)),
            stream: self.stream(block.stream),
            group,
            stack: if has_stack { frames() } else { Vec::new() },
            waits: false,
        };
        self.now.live.insert(address, seen);
        self.live.insert(address, number);
        self.told.moments.push(self.now.clone());
    }

    /// The recording begins.
    fn begin(&mut self) {
        let recorded = self.history.recorded();
        self.begins = Some(self.tells.begins(self.history).unwrap_or(u64::MAX));
        self.released = 0;
        self.join_lasting();
        let before = std::mem::take(&mut self.live);
        self.now.live = BTreeMap::new();
        self.now.time = self.tells.times.then_some(0);
        // Those that end in the recording, in that order, and those that it lists at the end.
        let ends: Vec<usize> = recorded
            .iter()
            .filter_map(|(_, what)| self.tells.end_of(what))
            .collect();
        for number in &ends {
            let block = self.history.blocks[*number];
            if before.get(&block.address) == Some(number) {
                let rounded = block.requested.max(1).next_multiple_of(512);
                let group = self.tells.stacks.then(|| OLDER.to_owned());
                self.add(*number, rounded, group, false);
            }
        }
        let listed = self
            .history
            .ranges
            .values()
            .filter(|range| self.tells.completions || !range.waits);
        let listed: BTreeSet<usize> = listed.filter_map(|range| range.block).collect();
        let lasting = before
            .iter()
            .filter(|(_, number)| self.tells.ends && listed.contains(number));
        for number in lasting.map(|(_, number)| *number).collect::<Vec<_>>() {
            let block = self.history.blocks[number];
            let has_stack = self.tells.stacks && block.site > 0;
            // Without a stack, it is not known why.
            let group = if has_stack {
                self.group(block.site)
            } else {
                self.tells.stacks.then(|| OLDER.to_owned())
            };
            self.add(number, block.bytes, group, has_stack);
        }
    }

    /// Of a segment that grows, what came before the recording and is there at its end is not told apart.
    fn join_lasting(&mut self) {
        let is_given_back = |address| {
            let is_it = |(_, what): &(u64, What)| matches!(what, What::GivenBack(own, ..) if *own == address);
            self.history.recorded().iter().any(is_it)
        };
        let mut last: Option<(u64, u64)> = None;
        for (address, bytes) in self.now.memories.clone() {
            let pool = |address| &self.history.segments[&address].pool;
            if is_given_back(address) || !self.history.is_expandable {
                last = None;
            } else if let Some((start, joined)) = last
                && start + joined == address
                && pool(start) == pool(address)
            {
                self.now.memories.remove(&address);
                self.now.memories.insert(start, joined + bytes);
                last = Some((start, joined + bytes));
            } else {
                last = Some((address, bytes));
            }
        }
    }

    fn track(&mut self, time: u64, what: &What) {
        let has_begun = self.begins.is_some();
        let first = self.begins.unwrap_or(time);
        let now = self
            .tells
            .times
            .then(|| (time.saturating_sub(first)) * 1000);
        self.now.time = now;
        if let Some(number) = self.tells.end_of(what) {
            let address = self.history.blocks[number].address;
            self.now.live.remove(&address);
            self.live.remove(&address);
            self.released = 0;
            if has_begun {
                self.told.moments.push(self.now.clone());
            }
            return;
        }
        match what {
            What::Taken(address, bytes, _) if self.tells.places => {
                self.now.memories.insert(*address, *bytes);
            }
            What::GivenBack(address, bytes, _) if self.tells.places => {
                self.now.memories.remove(address);
                self.released += bytes;
            }
            What::Allocated(number) if has_begun => {
                let block = self.history.blocks[*number];
                let has_stack = self.tells.stacks && block.site > 0;
                self.released = 0;
                self.add(*number, block.bytes, self.group(block.site), has_stack);
            }
            What::Allocated(number) => {
                self.live
                    .insert(self.history.blocks[*number].address, *number);
                self.released = 0;
            }
            What::Requested(number) if has_begun => self.request(*number),
            What::Refused {
                requested,
                stream,
                site,
                device_free,
            } if has_begun => {
                let report = self
                    .tells
                    .places
                    .then(|| self.report(*requested, *device_free));
                if let Some(report) = report {
                    self.told.capacity = self.told.capacity.max(Some(report.capacity_bytes));
                }
                let refused = Refused {
                    after: self.told.moments.len(),
                    time: now,
                    bytes: *requested,
                    stream: self.stream(*stream),
                    group: self.group(*site),
                    report,
                };
                self.told.refused.push(refused);
            }
            What::Noted(note) if has_begun && self.tells.places => self.note(*note, time, now),
            _ => {}
        }
    }

    /// A block waits for other streams, unless it is free at once.
    fn request(&mut self, number: usize) {
        let address = self.history.blocks[number].address;
        let is_free_at_once = self.tells.is_free_at_once(self.history, number);
        if let Some(seen) = self.now.live.get_mut(&address) {
            seen.waits = self.tells.places && !is_free_at_once;
        }
    }

    fn note(&mut self, note: Note, time: u64, now: Option<u64>) {
        let (word, text) = match note {
            Note::Begin => ("begin", "step"),
            Note::End => ("end", "step"),
            Note::Annotate if self.tells.times => ("annotate", "a note"),
            Note::Annotate => ("annotate", ""),
            Note::Snapshot => ("snapshot", ""),
        };
        let is_own = matches!(note, Note::Begin | Note::End);
        if !is_own || (self.tells.times && self.starts.is_some_and(|first| time >= first)) {
            let after = self.told.moments.len();
            self.told.notes.push((after, now, format!("{word} {text}")));
        }
    }

    fn report(&self, requested: u64, device_free: u64) -> ShortageReport {
        let class = requested.max(1).next_multiple_of(512);
        let managed: u64 = self.now.memories.values().sum();
        let taken = |seen: &Seen| seen.place.unwrap().2;
        let held = managed - self.now.live.values().map(taken).sum::<u64>();
        // What is free between the blocks of each memory.
        let free = self.now.memories.iter().flat_map(|(start, bytes)| {
            let live = self.now.live.range(start..&(start + bytes));
            let mut from = *start;
            let mut free: Vec<u64> = Vec::new();
            for (address, seen) in live {
                free.push(address - from);
                from = address + taken(seen);
            }
            free.push(start + bytes - from);
            free
        });
        let verdict = if device_free >= class {
            Verdict::Limited
        } else if held >= class {
            Verdict::Fragmented
        } else {
            Verdict::DeviceFull
        };
        ShortageReport {
            class_bytes: class,
            active_bytes: self.now.live.values().map(|seen| seen.bytes).sum(),
            active_blocks: self.now.live.len() as u64,
            managed_bytes: managed,
            held_bytes: held,
            largest_held_bytes: free.max().unwrap_or(0),
            released_bytes: self.released,
            capacity_bytes: managed + device_free,
            device_free_bytes: Some(device_free),
            ..ShortageReport::new(verdict)
        }
    }
}
