//! The history of a recorded program, as its pool wrote it down.

use std::collections::{BTreeMap, HashMap, HashSet};

use binpool_trace::{PoolEvent, What};

use crate::{
    Event, PoolStep, Trace,
    view::{History, Life, Lives, Origin, Segment, history::EventRow},
};

/// An ID without these bits is the number of its block.
const USE_BITS: u32 = 8;

/// Where a block lies.
#[derive(Clone, Copy)]
struct Placed {
    /// The index of the segment.
    segment: usize,
    offset: u64,
    bytes: u64,
}

/// What is known at a moment.
#[derive(Default)]
struct Known {
    segments: Vec<Segment>,
    /// The index of the segment with each number that the pool has.
    by_memory: HashMap<u64, usize>,
    /// Set for a pool of pages.
    has_pages: bool,
    /// The index of each reservation, by its number.
    reservations: HashMap<u64, usize>,
    /// The index of the segment of the pages that are mapped, by reservation and offset.
    pages: BTreeMap<(usize, u64), usize>,
    /// The pages that are mapped nowhere, as a segment.
    spare: Option<usize>,
    /// The moment of the last request that found no free pages: until its event, it is what releases, moves and maps pages.
    served_at: Option<usize>,
    /// The place of each block, by its number.
    places: HashMap<u64, Placed>,
    /// The block in use with each number.
    live: HashMap<u64, usize>,
    /// The blocks in use that the program has freed, with the moment of that.
    waiting: HashMap<usize, usize>,
    events: Vec<EventRow>,
}

impl History {
    /// Returns the history in a recording of a pool: the memory that the pool had from its allocator, and the place of each
    /// block. `None` for a trace that does not say this (one of an older version, of another tool, or with other sizes than it was
    /// recorded with), or that says what cannot be. The command `binpool` replays such a trace.
    ///
    /// ```
    /// use binpool_recordings::{Trace, view::{History, Origin}};
    ///
    /// let text = "h version 2\nh device pocl\nh capacity 8589934592\nh limit 67108864\nh blocks segments\n\
    ///             s 9 65536 0\nb 1 9 4096 1024 0\na 257 1000 0 0\nf 257 9\n";
    /// let trace = Trace::parse("recorded", text.as_bytes())?;
    /// let history = History::happened(&trace).ok_or("an old trace")?;
    /// assert_eq!((history.origin, history.limit_bytes), (Origin::Happened, Some(64 << 20)));
    /// assert_eq!((history.device.as_str(), history.blocks[0].offset), ("pocl", 4096));
    /// let old = Trace::parse("old", "a 1 1000 0\n".as_bytes())?;
    /// assert!(History::happened(&old).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn happened(trace: &Trace) -> Option<Self> {
        trace.header_value("blocks")?;
        let bytes_of = |key| trace.header_value(key).and_then(|value| value.parse().ok());
        let source = trace.header_value("source");
        let capacity = bytes_of("capacity").or(source.map(|_| 0));
        let (device_bytes, limit_bytes) = (capacity?, bytes_of("limit"));
        let mut known = Known {
            has_pages: trace.header_value("pages").is_some(),
            ..Known::default()
        };
        known.add_from_before(trace.pool_steps());
        let mut steps = trace.pool_steps().iter().peekable();
        let mut blocks: Vec<Life> = Vec::with_capacity(trace.allocations());
        let mut frees = Vec::with_capacity(trace.events().len());
        let (mut in_use, mut requested) = (0_u64, 0_u64);
        for (index, event) in trace.events().iter().enumerate() {
            while let Some(step) = steps.next_if(|step| step.events_before <= index) {
                known.take(step, trace)?;
            }
            match *event {
                Event::Allocate {
                    block,
                    bytes,
                    stream,
                } => {
                    let requested_bytes = bytes as u64;
                    let place = known.places.get(&(trace.id_of(block) >> USE_BITS))?;
                    if place.bytes < requested_bytes {
                        return None;
                    }
                    // So that no sum over blocks overflows, whatever the trace says.
                    in_use = in_use.checked_add(place.bytes)?;
                    requested = requested.checked_add(requested_bytes)?;
                    blocks.push(Life {
                        requested_bytes,
                        class_bytes: place.bytes,
                        stream,
                        from: index,
                        to: None,
                        waiting: None,
                        segment: Some(place.segment),
                        offset: place.offset,
                        stack: trace.stack_of(block),
                    });
                    known.live.insert(trace.id_of(block) >> USE_BITS, block);
                    frees.push(None);
                }
                Event::Free { block } => {
                    known.live.remove(&(trace.id_of(block) >> USE_BITS));
                    let waiting = known.waiting.remove(&block);
                    let life = &mut blocks[block];
                    (life.to, life.waiting) = (Some(index), waiting);
                    in_use -= life.class_bytes;
                    requested -= life.requested_bytes;
                    frees.push(Some(block));
                }
            }
        }
        for step in steps {
            known.take(step, trace)?;
        }
        for (block, moment) in known.waiting {
            blocks[block].waiting = Some(moment);
        }
        // A segment whose memory was taken after the last event is there at the last moment.
        let last = frees.len().saturating_sub(1);
        for segment in &mut known.segments {
            segment.from = segment.from.min(last);
            segment.to = segment.to.map(|to| to.min(last).max(segment.from));
        }
        known
            .segments
            .iter()
            .try_fold(0_u64, |sum, segment| sum.checked_add(segment.bytes))?;
        let device = trace.header_value("device").unwrap_or("a device");
        let capacity_bytes = limit_bytes.unwrap_or(device_bytes);
        let lives = Lives {
            frees,
            blocks,
            segments: known.segments,
        };
        let allocator = source.and_then(|_| trace.header_value("allocator"));
        Some(Self {
            origin: Origin::Happened,
            allocator: allocator.map(str::to_owned),
            limit_bytes,
            pool_events: known.events,
            ..Self::simulated(trace, device, capacity_bytes, lives, None)
        })
    }
}

impl Known {
    /// Takes over a step of the pool. Returns `None` if it cannot be.
    fn take(&mut self, step: &PoolStep, trace: &Trace) -> Option<()> {
        let moment = step.events_before;
        let event = |what: &str, bytes: u64, segment: Option<usize>| EventRow {
            moment,
            time_ns: trace.time_of(0).map(|_| step.time),
            what: what.to_owned(),
            bytes,
            segment,
            text: String::new(),
        };
        match &step.event {
            // Written by no pool: what it has is mapped.
            PoolEvent::Taken { .. } if self.has_pages => return None,
            PoolEvent::Taken { memory, bytes } => {
                let segment = Some(self.segments.len());
                self.events.push(event("taken", *bytes, segment));
                self.add(*memory, *bytes, moment);
            }
            PoolEvent::GivenBack { memory } => {
                // Memory from before the recording, which does not know it, may leave, too.
                let index = self.by_memory.remove(memory);
                let segment = index.and_then(|index| self.segments.get_mut(index));
                let bytes = segment.map_or(0, |segment| {
                    // The event before is the one that was done when it left.
                    segment.to = Some(moment.saturating_sub(1).max(segment.from));
                    segment.bytes
                });
                self.events.push(event("given back", bytes, index));
            }
            PoolEvent::Placed {
                block,
                memory,
                offset,
                bytes,
            } => {
                let place = if self.has_pages {
                    self.place_in_pages(*memory, *offset, *bytes)?
                } else {
                    self.place_in_segment(*memory, *offset, *bytes)?
                };
                self.places.insert(*block, place);
            }
            PoolEvent::Mapped {
                reservation,
                offset,
                bytes,
            } => {
                let segment = Some(self.segments.len());
                self.events.push(event("mapped", *bytes, segment));
                self.map(*reservation, *offset, *bytes, moment)?;
            }
            PoolEvent::Unmapped {
                reservation,
                offset,
                bytes,
            } => {
                let segment = self.pages_at(*reservation, *offset);
                self.events.push(event("unmapped", *bytes, segment));
                self.unmap(*reservation, *offset, *bytes, moment)?;
            }
            PoolEvent::Waiting { block } => {
                let block = *self.live.get(block)?;
                self.waiting.entry(block).or_insert(moment);
            }
            PoolEvent::Did { what, bytes, text } => {
                self.events.push(EventRow {
                    text: text.to_string(),
                    ..event(what.word(), *bytes, None)
                });
                if *what == What::Miss {
                    self.served_at = Some(moment);
                }
                if self.has_pages && *what == What::Spare {
                    self.set_spare(*bytes, moment);
                }
            }
            // That of a shortage.
            PoolEvent::Report(_) => {}
        }
        Some(())
    }

    fn place_in_segment(&self, memory: u64, offset: u64, bytes: u64) -> Option<Placed> {
        let end = offset.checked_add(bytes)?;
        let segment = *self.by_memory.get(&memory)?;
        (end <= self.segments[segment].bytes).then_some(Placed {
            segment,
            offset,
            bytes,
        })
    }

    /// The place of a block in pages that adjoin. `None` if a part of it is not mapped.
    fn place_in_pages(&self, reservation: u64, offset: u64, bytes: u64) -> Option<Placed> {
        let end = offset.checked_add(bytes)?;
        let reservation = *self.reservations.get(&reservation)?;
        let up_to = |offset| self.pages.range((reservation, 0)..=(reservation, offset));
        let ((_, start), segment) = up_to(offset).next_back()?;
        let mut mapped = *start;
        for (_, pages) in self.pages.range((reservation, *start)..(reservation, end)) {
            let pages = &self.segments[*pages];
            if pages.offset != mapped {
                break;
            }
            mapped += pages.bytes;
        }
        (end <= mapped).then_some(Placed {
            segment: *segment,
            offset: offset - start,
            bytes,
        })
    }

    /// Adds pages. Returns `None` if some are mapped there.
    fn map(&mut self, reservation: u64, offset: u64, bytes: u64, moment: usize) -> Option<()> {
        let end = offset.checked_add(bytes)?;
        let next = self.reservations.len();
        let reservation = *self.reservations.entry(reservation).or_insert(next);
        let before = self.pages.range((reservation, 0)..(reservation, end));
        let before = before.last().map(|(_, pages)| &self.segments[*pages]);
        if bytes == 0 || before.is_some_and(|pages| pages.offset + pages.bytes > offset) {
            return None;
        }
        self.pages
            .insert((reservation, offset), self.segments.len());
        self.segments.push(Segment {
            reservation: Some(reservation),
            offset,
            ..Segment::new(bytes, moment)
        });
        self.served_at = Some(moment);
        Some(())
    }

    /// The segment of the pages that are mapped there.
    fn pages_at(&self, reservation: u64, offset: u64) -> Option<usize> {
        let reservation = self.reservations.get(&reservation)?;
        self.pages.get(&(*reservation, offset)).copied()
    }

    /// Ends pages. Returns `None` if others are mapped there; none may be, as those that were on their way when the recording began.
    fn unmap(&mut self, reservation: u64, offset: u64, bytes: u64, moment: usize) -> Option<()> {
        let reservation = self.reservations.get(&reservation);
        let pages = reservation.and_then(|reservation| self.pages.remove(&(*reservation, offset)));
        let Some(pages) = pages else {
            return Some(());
        };
        self.end(pages, moment);
        (self.segments[pages].bytes == bytes).then_some(())
    }

    /// Sets how many bytes of pages are mapped nowhere.
    fn set_spare(&mut self, bytes: u64, moment: usize) {
        if let Some(spare) = self.spare.take() {
            self.end(spare, moment);
        }
        if bytes > 0 {
            self.spare = Some(self.segments.len());
            self.segments.push(Segment::new(bytes, moment));
        }
    }

    /// Ends pages: with the event before, or with that of the request for which they were released or moved.
    fn end(&mut self, pages: usize, moment: usize) {
        let is_for_request = self.served_at == Some(moment);
        let segment = &mut self.segments[pages];
        let to = moment.saturating_sub(usize::from(!is_for_request));
        segment.to = Some(to.max(segment.from));
    }

    /// Adds the memory of blocks from before the recording that it did not know then: without segments, each is all of its memory.
    fn add_from_before(&mut self, steps: &[PoolStep]) {
        if self.has_pages {
            return;
        }
        let mut taken = HashSet::new();
        for step in steps {
            match step.event {
                PoolEvent::Taken { memory, .. } => drop(taken.insert(memory)),
                PoolEvent::Placed { memory, bytes, .. } if taken.insert(memory) => {
                    self.add(memory, bytes, 0);
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, memory: u64, bytes: u64, from: usize) {
        self.by_memory.insert(memory, self.segments.len());
        self.segments.push(Segment::new(bytes, from));
    }
}
