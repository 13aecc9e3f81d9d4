//! Segments of pages beside a paper on which stands what is mapped. The fuzz target `pages` plays with it, too.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

use binpool_allocators::{
    Allocator, Backend, Error, Memory, MemoryFlags, MemoryId, Region, Result,
};
use binpool_mock::{MockBackend, MockDevice, MockEvent, MockMemory};
use binpool_segments::{Carved, Leaving, Mapping, PageRequest, RangeKey, RangeState, Segments};

pub(crate) const PAGE: usize = 2 << 20;

/// The number of the queue that may still use a range; 0 for none.
pub(crate) type Queue = u8;

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "segments join uses of any size"
)]
fn join(one: &Queue, two: &Queue) -> Option<Queue> {
    (one == two || *two == 0)
        .then_some(*one)
        .or((*one == 0).then_some(*two))
}

/// Pages on paper: it knows what is mapped where, and fails on request.
#[derive(Clone, Debug)]
pub(crate) struct PaperPages {
    backend: MockBackend,
    paper: Arc<Mutex<Paper>>,
    capacity: u64,
    /// Whether pages may be mapped at two addresses.
    aliases: bool,
}

#[derive(Debug, Default)]
struct Paper {
    /// By reservation and offset: the bytes, and the pages.
    mapped: BTreeMap<(u64, usize), (usize, MemoryId)>,
    /// The bytes of all pages.
    pages: HashMap<MemoryId, usize>,
    /// Set once an unmap has failed: then pages may be released while they are mapped.
    has_failed: bool,
    calls: usize,
    /// How often pages were mapped.
    maps: u64,
    /// How often pages were unmapped.
    unmaps: u64,
    /// The numbers of the calls that fail.
    failing: Vec<usize>,
}

impl Paper {
    fn call(&mut self) -> Result<()> {
        self.calls += 1;
        if self.failing.contains(&self.calls) {
            self.has_failed = true;
            return Err(Error::unsupported("this call on paper"));
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.pages.values().map(|bytes| *bytes as u64).sum()
    }

    /// The bytes of pages that are mapped to a region; `None` unless some are mapped to every byte of it.
    fn bytes_at(&self, reservation: u64, region: Region) -> Option<Vec<(MemoryId, Region)>> {
        let end = region.offset + region.bytes;
        let mut at = region.offset;
        let mut parts = Vec::new();
        while at < end {
            let before = self.mapped.range(..=(reservation, at)).next_back();
            match before {
                Some((&(owner, start), &(bytes, pages)))
                    if owner == reservation && start + bytes > at =>
                {
                    let next = end.min(start + bytes);
                    parts.push((pages, Region::new(at - start, next - at)));
                    at = next;
                }
                _ => return None,
            }
        }
        Some(parts)
    }
}

impl PaperPages {
    fn new(capacity: u64, aliases: bool) -> Self {
        let device = MockDevice::builder()
            .capacity_bytes(1 << 50)
            .largest_block_bytes(1 << 49);
        Self {
            backend: device.build().backend(),
            paper: Arc::default(),
            capacity,
            aliases,
        }
    }
}

impl Allocator for PaperPages {
    type Backend = MockBackend;

    fn backend(&self) -> &MockBackend {
        &self.backend
    }

    fn allocate(&self, bytes: usize) -> Result<MockMemory> {
        let mut paper = self.paper.lock().unwrap();
        paper.call()?;
        assert_eq!(bytes % PAGE, 0);
        if paper.bytes() + bytes as u64 > self.capacity {
            return Err(Error::unsupported("more than there is on paper"));
        }
        let memory = self.backend.create_buffer(bytes, MemoryFlags::empty())?;
        paper.pages.insert(memory.id(), bytes);
        Ok(memory)
    }

    fn release(&self, memory: MockMemory, _: &[MockEvent]) -> Result<()> {
        let mut paper = self.paper.lock().unwrap();
        let is_mapped = paper
            .mapped
            .values()
            .any(|(_, pages)| *pages == memory.id());
        assert!(!is_mapped || paper.has_failed, "mapped pages are released");
        paper.pages.remove(&memory.id()).unwrap();
        Ok(())
    }

    fn is_deferred(&self) -> bool {
        false
    }

    fn page_bytes(&self) -> Option<usize> {
        Some(PAGE)
    }

    fn reserve(&self, bytes: usize) -> Result<MockMemory> {
        self.backend.create_buffer(bytes, MemoryFlags::empty())
    }

    fn map(&self, reservation: &MockMemory, offset: usize, pages: &MockMemory) -> Result<()> {
        let mut paper = self.paper.lock().unwrap();
        paper.call()?;
        let bytes = paper.pages[&pages.id()];
        assert!(offset.is_multiple_of(PAGE) && offset + bytes <= reservation.bytes());
        if !self.aliases && paper.mapped.values().any(|(_, other)| *other == pages.id()) {
            return Err(Error::unsupported("two addresses on paper"));
        }
        let key = reservation.id().get();
        let region = Region::new(offset, bytes);
        let overlaps = paper.mapped.iter().any(|(&(owner, start), &(size, _))| {
            owner == key && Region::new(start, size).overlaps(region)
        });
        assert!(!overlaps, "pages are mapped over others");
        paper.mapped.insert((key, offset), (bytes, pages.id()));
        paper.maps += 1;
        Ok(())
    }

    fn unmap(&self, reservation: &MockMemory, region: Region) -> Result<()> {
        let mut paper = self.paper.lock().unwrap();
        paper.call()?;
        let gone = paper
            .mapped
            .remove(&(reservation.id().get(), region.offset));
        assert_eq!(
            gone.map(|(bytes, _)| bytes),
            Some(region.bytes),
            "{region:?} is unmapped"
        );
        paper.unmaps += 1;
        Ok(())
    }
}

/// A block, or a range that commands of a queue may still use.
#[derive(Debug)]
pub(crate) struct Used {
    range: RangeKey,
    reservation: u64,
    pub(crate) region: Region,
    /// The queue that it was taken for, or given back with.
    queue: Queue,
    /// The queue that may still use it when it is taken; 0 for none.
    after: Queue,
}

pub(crate) struct World {
    allocator: PaperPages,
    pub(crate) segments: Segments<MockMemory, Queue>,
    pub(crate) blocks: Vec<Used>,
    /// Regions that were given back, and whose commands have not ended.
    pending: Vec<Used>,
    /// How often pages were mapped, as the plans say.
    maps: u64,
    /// How often pages were unmapped, by plans and for those that left.
    unmaps: u64,
    /// How often pages could not be mapped at a second address: it is not tried again.
    pub(crate) refused_aliases: u64,
    /// How often a plan began.
    pub(crate) plans: u64,
}

impl World {
    pub(crate) fn new(capacity: u64, aliases: bool) -> Self {
        Self {
            allocator: PaperPages::new(capacity, aliases),
            segments: Segments::new(join).with_arenas(3).with_pages(PAGE),
            blocks: Vec::new(),
            pending: Vec::new(),
            maps: 0,
            unmaps: 0,
            refused_aliases: 0,
            plans: 0,
        }
    }

    /// Takes a block for a queue, from what is mapped or by mapping pages. Returns whether that succeeded.
    pub(crate) fn take(&mut self, home: usize, bytes: usize, queue: Queue) -> bool {
        self.plan(home, bytes, queue);
        let usable = |uses: &Queue| *uses == 0 || *uses == queue;
        let found = self.segments.take(home, bytes, usable);
        match found.or_else(|| self.map(home, bytes, queue, false)) {
            Some(carved) => {
                self.keep(&carved, queue);
                true
            }
            None => false,
        }
    }

    /// At a low point, plans what follows, and maps pages for it.
    fn plan(&mut self, home: usize, bytes: usize, queue: Queue) {
        let usable = |uses: &Queue| *uses == 0 || *uses == queue;
        let over = |uses: &Queue| *uses == 0;
        let unneeded = self.segments.take_unneeded(home, over);
        self.let_go(unneeded);
        let Some(review) = self.segments.review(home, bytes, usize::MAX) else {
            return;
        };
        let reviewed = review.carry_out();
        let joined = self.segments.join_idle(reviewed, bytes, 1, usable, over);
        let Some((plan, leaving)) = joined else {
            return;
        };
        self.let_go(leaving);
        if let Some(carved) = self.map(home, plan.bytes, queue, true) {
            self.plans += 1;
            self.segments.follow(plan, carved);
        }
    }

    /// Maps pages for a block.
    fn map(
        &mut self,
        home: usize,
        bytes: usize,
        queue: Queue,
        is_for_plan: bool,
    ) -> Option<Carved<MockMemory, Queue>> {
        let usable = |uses: &Queue| *uses == 0 || *uses == queue;
        let blocks = self.blocks.iter();
        let request = PageRequest {
            home,
            bytes,
            in_use: blocks.map(|block| block.region.bytes as u64).sum(),
            capacity: self.allocator.capacity,
            slack: [0, 20, u64::MAX][bytes % 3],
            is_for_plan,
        };
        let mut after = Some(queue);
        loop {
            let over = |uses: &Queue| *uses == 0;
            match self.segments.plan(request, usable, over, after) {
                Mapping::Reserve { bytes, is_small } => {
                    let memory = self.allocator.reserve(bytes).unwrap();
                    let unused = self.segments.add_reservation(home, memory, bytes, is_small);
                    assert!(unused.is_none());
                }
                Mapping::Map(plan) => {
                    let done = plan.carry_out(&self.allocator);
                    self.maps += done.maps;
                    self.unmaps += done.unmaps;
                    let is_alias_refused = done.is_alias_refused;
                    let carved = self.segments.finish(done);
                    if is_alias_refused {
                        assert!(carved.is_err() && after.is_some());
                        self.refused_aliases += 1;
                        after = None;
                        continue;
                    }
                    return carved.ok();
                }
                Mapping::NoAddresses => return None,
            }
        }
    }

    fn keep(&mut self, carved: &Carved<MockMemory, Queue>, queue: Queue) {
        let reservation = carved.segment.id().get();
        let region = carved.region;
        // What it takes over is no longer pending by itself.
        self.pending.retain(|pending| {
            pending.reservation != reservation || !pending.region.overlaps(region)
        });
        self.blocks.push(Used {
            range: carved.range,
            reservation,
            region,
            queue,
            after: carved.uses,
        });
    }

    pub(crate) fn give(&mut self, number: usize, queue: Queue) {
        if self.blocks.is_empty() {
            return;
        }
        let block = self.blocks.swap_remove(number % self.blocks.len());
        // Its last commands come after those that used its pages before.
        let queue = if block.after == 0 { queue } else { block.after };
        self.segments.give(block.range, queue, None);
        if queue != 0 {
            self.pending.push(Used { queue, ..block });
        }
    }

    pub(crate) fn settle(&mut self, queue: Queue) {
        self.segments.settle(|uses| *uses == queue);
        self.pending.retain(|pending| pending.queue != queue);
        let ended = [&mut self.blocks, &mut self.pending].into_iter().flatten();
        ended
            .filter(|used| used.after == queue)
            .for_each(|used| used.after = 0);
        for place in self.segments.take_stale(|uses| [0, queue].contains(uses)) {
            if place.unmap(&self.allocator).is_ok() {
                self.segments.forget(&place);
                self.unmaps += 1;
            } else {
                self.segments.keep_stale(place);
            }
        }
    }

    pub(crate) fn release(&mut self, enough: u64, sweeps: bool) {
        let leaving = if sweeps {
            self.segments.sweep(|uses| *uses == 0)
        } else {
            self.segments.release(enough, |uses| *uses == 0)
        };
        self.let_go(leaving);
    }

    /// Unmaps pages that leave, and releases them.
    fn let_go(&mut self, leaving: Vec<Leaving<MockMemory, Queue>>) {
        for pages in leaving {
            match pages.place {
                Some(place) if place.unmap(&self.allocator).is_err() => {
                    self.segments.keep(&place, pages.memory);
                    continue;
                }
                Some(place) => {
                    self.segments.forget(&place);
                    self.unmaps += 1;
                }
                None => {}
            }
            self.allocator.release(pages.memory, &[]).unwrap();
        }
    }

    pub(crate) fn check(&self) {
        let paper = self.allocator.paper.lock().unwrap();
        let all: Vec<_> = self.blocks.iter().chain(&self.pending).collect();
        let parts: Vec<_> = all
            .iter()
            .map(|used| {
                let parts = paper.bytes_at(used.reservation, used.region);
                parts.unwrap_or_else(|| panic!("{used:?} is not mapped"))
            })
            .collect();
        for (number, block) in self.blocks.iter().enumerate() {
            for (other, used) in all.iter().enumerate().skip(number + 1) {
                let is_pending = other >= self.blocks.len();
                // Commands of the same queue come one after the other.
                let may_share = is_pending && used.queue == block.queue;
                let overlaps = |one: &(MemoryId, Region), two: &(MemoryId, Region)| {
                    one.0 == two.0 && one.1.overlaps(two.1)
                };
                let shares = parts[number]
                    .iter()
                    .any(|one| parts[other].iter().any(|two| overlaps(one, two)));
                assert!(may_share || !shares, "{block:?} and {used:?} overlap");
            }
        }
        let in_blocks: u64 = self
            .blocks
            .iter()
            .map(|block| block.region.bytes as u64)
            .sum();
        assert_eq!((self.maps, self.unmaps), (paper.maps, paper.unmaps));
        assert!(self.refused_aliases <= 1);
        // Nothing was lost.
        assert_eq!(self.segments.bytes(), paper.bytes());
        assert_eq!(in_blocks + self.segments.free_bytes(), paper.bytes());
        let mut in_states = 0;
        self.segments.each(|part| {
            let taken = part
                .ranges
                .iter()
                .filter(|(_, state)| matches!(state, RangeState::Taken(_)));
            in_states += taken.map(|(region, _)| region.bytes as u64).sum::<u64>();
        });
        assert!(in_states >= in_blocks);
        assert!(self.segments.bytes() <= paper.bytes().max(self.allocator.capacity));
    }

    /// The calls with these numbers from now on fail.
    pub(crate) fn fail(&mut self, calls: impl IntoIterator<Item = usize>) {
        let mut paper = self.allocator.paper.lock().unwrap();
        let now = paper.calls;
        paper.failing = calls.into_iter().map(|call| now + call).collect();
    }

    /// How often pages were mapped.
    #[allow(dead_code, reason = "the fuzz target does not ask")]
    pub(crate) fn maps(&self) -> u64 {
        self.maps
    }

    /// At how many places pages are mapped.
    #[allow(dead_code, reason = "the fuzz target does not ask")]
    pub(crate) fn places(&self) -> usize {
        self.allocator.paper.lock().unwrap().mapped.len()
    }
}
