//! Segments of pages: every block lies in mapped pages, whatever fails, and pages that commands may use stay where they are.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

use binpool_allocators::{
    Allocator, Backend, Error, Memory, MemoryFlags, MemoryId, Region, Result,
    segments::{Carved, Mapping, RangeKey, RangeState, Segments},
};
use binpool_mock::{MockBackend, MockDevice, MockEvent, MockMemory};
use proptest::prelude::*;

const PAGE: usize = 2 << 20;

/// The number of the queue that may still use a range; 0 for none.
type Queue = u8;

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
struct PaperPages {
    backend: MockBackend,
    paper: Arc<Mutex<Paper>>,
    capacity: u64,
}

#[derive(Debug, Default)]
struct Paper {
    /// By reservation and offset: the bytes, and the pages.
    mapped: BTreeMap<(u64, usize), (usize, MemoryId)>,
    /// The bytes of all pages.
    pages: HashMap<MemoryId, usize>,
    calls: usize,
    /// The numbers of the calls that fail.
    failing: Vec<usize>,
}

impl Paper {
    fn call(&mut self) -> Result<()> {
        self.calls += 1;
        if self.failing.contains(&self.calls) {
            return Err(Error::unsupported("this call on paper"));
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.pages.values().map(|bytes| *bytes as u64).sum()
    }

    /// Whether pages are mapped to every byte of the region.
    fn covers(&self, reservation: u64, region: Region) -> bool {
        let end = region.offset + region.bytes;
        let mut at = region.offset;
        while at < end {
            let before = self.mapped.range(..=(reservation, at)).next_back();
            match before {
                Some((&(owner, start), &(bytes, _)))
                    if owner == reservation && start + bytes > at =>
                {
                    at = start + bytes;
                }
                _ => return false,
            }
        }
        true
    }
}

impl PaperPages {
    fn new(capacity: u64) -> Self {
        let device = MockDevice::builder()
            .capacity_bytes(1 << 50)
            .largest_block_bytes(1 << 49);
        Self {
            backend: device.build().backend(),
            paper: Arc::default(),
            capacity,
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
        assert!(
            !is_mapped || !paper.failing.is_empty(),
            "mapped pages are released"
        );
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
        let key = reservation.id().get();
        let region = Region::new(offset, bytes);
        let overlaps = paper.mapped.iter().any(|(&(owner, start), &(size, _))| {
            owner == key && Region::new(start, size).overlaps(region)
        });
        assert!(!overlaps, "pages are mapped over others");
        paper.mapped.insert((key, offset), (bytes, pages.id()));
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
        Ok(())
    }
}

/// A block, or a range that commands of a queue may still use.
#[derive(Debug)]
struct Used {
    range: RangeKey,
    reservation: u64,
    region: Region,
    /// The queue that it was given back with.
    queue: Queue,
}

struct World {
    allocator: PaperPages,
    segments: Segments<MockMemory, Queue>,
    blocks: Vec<Used>,
    /// Regions that were given back, and whose commands have not ended.
    pending: Vec<Used>,
}

impl World {
    fn new(capacity: u64) -> Self {
        Self {
            allocator: PaperPages::new(capacity),
            segments: Segments::new(join).with_arenas(3).with_pages(PAGE),
            blocks: Vec::new(),
            pending: Vec::new(),
        }
    }

    /// Takes a block for a queue, from what is mapped or by mapping pages. Returns whether that succeeded.
    fn take(&mut self, home: usize, bytes: usize, queue: Queue) -> bool {
        let usable = |uses: &Queue| *uses == 0 || *uses == queue;
        if let Some(carved) = self.segments.take_near(home, bytes, usable) {
            self.keep(&carved);
            return true;
        }
        let in_use = self
            .blocks
            .iter()
            .map(|block| block.region.bytes as u64)
            .sum();
        loop {
            let capacity = self.allocator.capacity;
            let over = |uses: &Queue| *uses == 0;
            match self
                .segments
                .plan(home, bytes, in_use, capacity, usable, over)
            {
                Mapping::Reserve { bytes, is_small } => {
                    let memory = self.allocator.reserve(bytes).unwrap();
                    let unused = self.segments.add_reservation(home, memory, bytes, is_small);
                    assert!(unused.is_none());
                }
                Mapping::Map(plan) => {
                    let done = plan.carry_out(&self.allocator);
                    let carved = self.segments.finish(done);
                    let is_there = carved.is_ok();
                    if let Ok(carved) = carved {
                        self.keep(&carved);
                    }
                    return is_there;
                }
                Mapping::NoAddresses => return false,
            }
        }
    }

    fn keep(&mut self, carved: &Carved<MockMemory, Queue>) {
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
            queue: 0,
        });
    }

    fn give(&mut self, number: usize, queue: Queue) {
        if self.blocks.is_empty() {
            return;
        }
        let block = self.blocks.swap_remove(number % self.blocks.len());
        self.segments.give(block.range, queue, None);
        if queue != 0 {
            self.pending.push(Used { queue, ..block });
        }
    }

    fn settle(&mut self, queue: Queue) {
        self.segments.settle(|uses| *uses == queue);
        self.pending.retain(|pending| pending.queue != queue);
    }

    fn release(&mut self, enough: u64, sweeps: bool) {
        let leaving = if sweeps {
            self.segments.sweep(|uses| *uses == 0)
        } else {
            self.segments.release(enough, |uses| *uses == 0)
        };
        for pages in leaving {
            if let Some(place) = &pages.place
                && place.unmap(&self.allocator).is_ok()
            {
                self.segments.forget(place);
            }
            self.allocator.release(pages.memory, &[]).unwrap();
        }
    }

    fn check(&self) {
        let paper = self.allocator.paper.lock().unwrap();
        for used in self.blocks.iter().chain(&self.pending) {
            assert!(
                paper.covers(used.reservation, used.region),
                "{used:?} is not mapped"
            );
        }
        for (number, one) in self.blocks.iter().enumerate() {
            for two in &self.blocks[..number] {
                let apart = one.reservation != two.reservation || !one.region.overlaps(two.region);
                assert!(apart, "{one:?} and {two:?} overlap");
            }
        }
        let in_blocks: u64 = self
            .blocks
            .iter()
            .map(|block| block.region.bytes as u64)
            .sum();
        if paper.failing.is_empty() {
            // Nothing was lost.
            assert_eq!(self.segments.bytes(), paper.bytes());
            assert_eq!(in_blocks + self.segments.free_bytes(), paper.bytes());
        }
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
}

#[derive(Clone, Debug)]
enum Step {
    Take {
        home: usize,
        bytes: usize,
        queue: Queue,
    },
    Give {
        block: usize,
        queue: Queue,
    },
    Settle {
        queue: Queue,
    },
    Release {
        pages: u64,
        sweeps: bool,
    },
    /// The calls with these numbers from now on fail.
    Fail {
        calls: Vec<usize>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![
        3 => 1..=64 * PAGE,
        2 => 1..=2 * PAGE,
        1 => 256..=64_usize << 10,
    ];
    prop_oneof![
        6 => (0..3_usize, bytes, 1..3_u8)
            .prop_map(|(home, bytes, queue)| Step::Take { home, bytes: bytes.next_multiple_of(256), queue }),
        5 => (any::<usize>(), 0..3_u8).prop_map(|(block, queue)| Step::Give { block, queue }),
        1 => (1..3_u8).prop_map(|queue| Step::Settle { queue }),
        1 => (0..100_u64, any::<bool>()).prop_map(|(pages, sweeps)| Step::Release { pages, sweeps }),
    ]
}

fn play(world: &mut World, steps: Vec<Step>) {
    for step in steps {
        match step {
            Step::Take { home, bytes, queue } => drop(world.take(home, bytes, queue)),
            Step::Give { block, queue } => world.give(block, queue),
            Step::Settle { queue } => world.settle(queue),
            Step::Release { pages, sweeps } => world.release(pages * PAGE as u64, sweeps),
            Step::Fail { calls } => {
                let mut paper = world.allocator.paper.lock().unwrap();
                let now = paper.calls;
                paper.failing = calls.into_iter().map(|call| now + call).collect();
            }
        }
        world.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Against what is on paper: blocks are apart and mapped, pages in use stay, and all bytes are accounted for.
    #[test]
    fn blocks_lie_apart_in_mapped_pages(
        steps in prop::collection::vec(step(), 1..120),
        capacity in 40..400_u64,
    ) {
        play(&mut World::new(capacity * PAGE as u64), steps);
    }

    /// The same where calls fail. What was mapped before a failed call is mapped after it.
    #[test]
    fn a_failed_call_leaves_blocks_where_they_are(
        steps in prop::collection::vec(
            prop_oneof![
                4 => step(),
                1 => prop::collection::vec(1..30_usize, 1..4).prop_map(|calls| Step::Fail { calls }),
            ],
            1..120,
        ),
        capacity in 40..400_u64,
    ) {
        play(&mut World::new(capacity * PAGE as u64), steps);
    }
}

#[test]
fn a_map_that_fails_leaves_everything_as_it_was() {
    let mut world = World::new(100 * PAGE as u64);
    assert!(world.take(0, 90 * PAGE, 1));
    assert!(world.take(0, 8 * PAGE, 1));
    world.give(0, 0);
    // It is free, but lies apart from where 95 pages are wanted, so pages have to move. Each call of that fails in turn.
    let before = world.allocator.paper.lock().unwrap().mapped.clone();
    for failing in 1.. {
        {
            let mut paper = world.allocator.paper.lock().unwrap();
            paper.failing = vec![paper.calls + failing];
        }
        let succeeded = world.take(0, 92 * PAGE, 1);
        world.check();
        let mut paper = world.allocator.paper.lock().unwrap();
        paper.failing.clear();
        if succeeded {
            assert!(failing > 2, "no call failed");
            break;
        }
        assert_eq!(paper.mapped.len(), before.len(), "after call {failing}");
    }
    assert_eq!(world.segments.bytes(), 100 * PAGE as u64);
    world.check();
}

#[test]
fn pages_that_commands_may_use_do_not_move() {
    let mut world = World::new(16 * PAGE as u64);
    assert!(world.take(0, 8 * PAGE, 1));
    assert!(world.take(0, 8 * PAGE, 1));
    world.give(0, 1);
    // Queue 2 may not have them, and they may not be unmapped.
    assert!(!world.take(0, 8 * PAGE, 2));
    world.settle(1);
    assert!(world.take(0, 8 * PAGE, 2));
    world.check();
}

#[test]
fn free_pages_move_before_more_is_taken_than_the_program_needs() {
    let mut world = World::new(1 << 40);
    // Blocks with gaps between them, half of which are free afterwards.
    for _ in 0..64 {
        assert!(world.take(0, 16 * PAGE, 1));
    }
    for number in 0..32 {
        world.give(number, 0);
    }
    // No gap has room for a block twice as large.
    for _ in 0..16 {
        assert!(world.take(0, 32 * PAGE, 1));
    }
    world.check();
    let high_water = 64 * 16 * PAGE as u64;
    assert!(world.segments.bytes() <= high_water + high_water / 33 + PAGE as u64);
}

#[test]
fn a_block_grows_out_of_the_free_range_before_a_hole() {
    let mut world = World::new(1 << 40);
    assert!(world.take(0, 10 * PAGE, 1));
    world.give(0, 0);
    assert!(world.take(0, 12 * PAGE, 1));
    // Two pages were mapped behind the ten.
    assert_eq!(world.blocks[0].region, Region::first(12 * PAGE));
    assert_eq!(world.segments.bytes(), 12 * PAGE as u64);
}

#[test]
fn a_sweep_releases_pages_that_were_free_at_the_last_one() {
    let mut world = World::new(1 << 40);
    assert!(world.take(0, 10 * PAGE, 1));
    world.give(0, 0);
    assert_eq!(world.segments.idle_bytes(), 10 * PAGE as u64);
    world.release(0, true);
    assert_eq!(world.segments.bytes(), 10 * PAGE as u64);
    world.release(0, true);
    assert_eq!(world.segments.bytes(), 0);
    world.check();
}
