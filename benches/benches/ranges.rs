//! Which bytes of one large range each block gets: what that costs, and how densely it packs, beside other crates that do
//! just this.
//!
//! The programs are the recorded ones of `tools/traces` and the mixed workload, the same for each subject, in units of 512
//! bytes, which is what blocks start on on an H200. Before anything is timed, a table tells how many bytes each needs, from
//! the first to the last that it ever uses, over the most that the program has live. The last column is not a fixed range, but
//! segments that come and go by the rules of growth: the most bytes that they have together.

#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that fails measures nothing"
)]

use std::{
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use binpool_benches::{Mixed, Subject};
use binpool_recordings::{Event, Trace};
use binpool_segments::{Carved, RangeKey, Segments};
use criterion::{
    BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime,
};
use offset_allocator::Allocation;
use range_alloc::RangeAllocator;

const UNIT: usize = 512;

/// What there is, in units: 64 GiB, so that no request runs out.
const UNITS: u32 = 1 << 27;

/// Steps of the mixed workload that are replayed, those that warm up among them.
const MIXED_STEPS: usize = 1 << 19;

/// Tells which units are whose.
trait Ranges {
    type Range;

    const NAME: &'static str;

    fn new() -> Self;

    /// A range of this many units.
    fn take(&mut self, units: u32) -> Self::Range;

    fn give(&mut self, range: Self::Range);

    /// The units that are needed for a range that was just taken: up to its end, unless there is more to it.
    fn needed(&self, range: &Self::Range) -> u64;
}

fn bytes(units: u32) -> usize {
    units as usize * UNIT
}

/// Ours, with one segment, where best fit is the only rule.
struct BestFit(Segments<(), ()>);

struct Taken {
    key: RangeKey,
    end: usize,
    bytes: usize,
}

impl From<Carved<(), ()>> for Taken {
    fn from(carved: Carved<(), ()>) -> Self {
        Self {
            key: carved.range,
            end: carved.region.end().unwrap(),
            bytes: carved.region.bytes,
        }
    }
}

impl Ranges for BestFit {
    type Range = Taken;

    const NAME: &'static str = "binpool";

    fn new() -> Self {
        let mut segments = Segments::new(|(), ()| Some(()));
        let first = segments.add(0, (), bytes(UNITS), UNIT).unwrap();
        segments.give(first.range, (), None);
        Self(segments)
    }

    fn take(&mut self, units: u32) -> Taken {
        let carved = self.0.take_anywhere(bytes(units), |()| true);
        carved.unwrap().into()
    }

    fn give(&mut self, range: Taken) {
        self.0.give(range.key, (), None);
    }

    fn needed(&self, range: &Taken) -> u64 {
        (range.end / UNIT) as u64
    }
}

/// Ours, with segments that come and go, as pools use it.
struct Growing {
    segments: Segments<(), ()>,
    in_use: u64,
}

impl Ranges for Growing {
    type Range = Taken;

    const NAME: &'static str = "binpool, segments";

    fn new() -> Self {
        Self {
            segments: Segments::new(|(), ()| Some(())),
            in_use: 0,
        }
    }

    fn take(&mut self, units: u32) -> Taken {
        let bytes = bytes(units);
        let carved = self.segments.take(0, bytes, |()| true).unwrap_or_else(|| {
            let in_use = self.in_use;
            let capacity = u64::from(UNITS) * UNIT as u64;
            let (size, _) = self.segments.grow(0, bytes, in_use, UNIT, capacity);
            self.segments.add(0, (), size, bytes).unwrap()
        });
        self.in_use += bytes as u64;
        carved.into()
    }

    fn give(&mut self, range: Taken) {
        self.in_use -= range.bytes as u64;
        self.segments.give(range.key, (), None);
    }

    fn needed(&self, _: &Taken) -> u64 {
        self.segments.bytes() / UNIT as u64
    }
}

impl Ranges for offset_allocator::Allocator {
    type Range = (Allocation, u32);

    const NAME: &'static str = "offset-allocator";

    fn new() -> Self {
        Self::new(UNITS)
    }

    fn take(&mut self, units: u32) -> (Allocation, u32) {
        (self.allocate(units).unwrap(), units)
    }

    fn give(&mut self, (allocation, _): (Allocation, u32)) {
        self.free(allocation);
    }

    fn needed(&self, (allocation, units): &(Allocation, u32)) -> u64 {
        u64::from(allocation.offset + units)
    }
}

impl Ranges for RangeAllocator<u32> {
    type Range = std::ops::Range<u32>;

    const NAME: &'static str = "range-alloc";

    fn new() -> Self {
        Self::new(0..UNITS)
    }

    fn take(&mut self, units: u32) -> std::ops::Range<u32> {
        self.allocate_range(units).unwrap()
    }

    fn give(&mut self, range: std::ops::Range<u32>) {
        self.free_range(range);
    }

    fn needed(&self, range: &std::ops::Range<u32>) -> u64 {
        u64::from(range.end)
    }
}

#[derive(Clone, Copy)]
enum Step {
    Take { block: usize, units: u32 },
    Give { block: usize },
}

/// What a program takes and gives, in order. Blocks are numbered from 0.
struct Program {
    name: String,
    steps: Vec<Step>,
    blocks: usize,
    peak_units: u64,
}

impl Program {
    fn new(name: String, events: &[Event]) -> Self {
        let mut sizes = Vec::new();
        let (mut live, mut peak_units) = (0_u64, 0);
        let steps = events.iter().map(|event| match *event {
            Event::Allocate { block, bytes, .. } => {
                let units = u32::try_from(bytes.div_ceil(UNIT).max(1)).unwrap();
                sizes.push(u64::from(units));
                live += u64::from(units);
                peak_units = peak_units.max(live);
                Step::Take { block, units }
            }
            Event::Free { block } => {
                live -= sizes[block];
                Step::Give { block }
            }
        });
        Self {
            name,
            steps: steps.collect(),
            blocks: sizes.len(),
            peak_units,
        }
    }

    fn all() -> Vec<Self> {
        let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/traces");
        let mut files: Vec<_> = traces
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "gz"))
            .collect();
        files.sort();
        let mut programs: Vec<_> = files
            .iter()
            .map(|file| {
                let name = file.file_name().unwrap().to_string_lossy();
                let name = name.trim_end_matches(".trace.gz").to_owned();
                Self::new(name, Trace::open(file).unwrap().events())
            })
            .collect();
        programs.push(Self::new("mixed workload".to_owned(), &mixed()));
        programs
    }

    /// Runs the program, and tells `taken` of each range.
    fn run<R: Ranges>(&self, ranges: &mut R, mut taken: impl FnMut(&R, &R::Range)) {
        let mut live: Vec<Option<R::Range>> = Vec::new();
        live.resize_with(self.blocks, || None);
        for step in &self.steps {
            match *step {
                Step::Take { block, units } => {
                    let range = ranges.take(units);
                    taken(ranges, &range);
                    live[block] = Some(range);
                }
                Step::Give { block } => ranges.give(live[block].take().unwrap()),
            }
        }
    }

    /// What the program needs, over the most that it has live.
    fn needed_over_peak<R: Ranges>(&self) -> f64 {
        let mut needed = 0;
        self.run(&mut R::new(), |ranges, range| {
            needed = needed.max(ranges.needed(range));
        });
        ratio(needed, self.peak_units)
    }

    /// The time that this many pairs take: the part of whole programs that they are, each from an empty range on.
    fn time<R: Ranges>(&self, pairs: u64) -> Duration {
        let rounds = pairs.div_ceil(self.blocks as u64);
        let mut total = Duration::ZERO;
        for _ in 0..rounds {
            let mut ranges = R::new();
            let start = Instant::now();
            self.run(&mut ranges, |_, _| {});
            total += start.elapsed();
        }
        total.mul_f64(ratio(pairs, rounds * self.blocks as u64))
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "both are far below 2^52, and few digits are shown"
)]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Writes down what is asked of it.
#[derive(Default)]
struct Scribe {
    events: Mutex<Vec<Event>>,
    blocks: AtomicUsize,
}

struct Written<'a> {
    scribe: &'a Scribe,
    block: usize,
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        let block = self.block;
        self.scribe
            .events
            .lock()
            .unwrap()
            .push(Event::Free { block });
    }
}

impl<'a> Subject for &'a Scribe {
    type Block = Written<'a>;

    const NAME: &'static str = "scribe";

    fn allocate(&self, bytes: usize) -> Option<Written<'a>> {
        let scribe: &'a Scribe = self;
        let block = scribe.blocks.fetch_add(1, Ordering::Relaxed);
        let stream = 0;
        scribe.events.lock().unwrap().push(Event::Allocate {
            block,
            bytes,
            stream,
        });
        Some(Written { scribe, block })
    }
}

fn mixed() -> Vec<Event> {
    let scribe = Scribe::default();
    drop(Mixed::warmed_up(&&scribe));
    let mut events = scribe.events.into_inner().unwrap();
    events.truncate(2 * MIXED_STEPS);
    events
}

fn time<R: Ranges>(group: &mut BenchmarkGroup<'_, WallTime>, program: &Program) {
    group.bench_function(R::NAME, |bencher| {
        bencher.iter_custom(|pairs| program.time::<R>(pairs));
    });
}

fn benchmarks(criterion: &mut Criterion) {
    let programs = Program::all();
    eprintln!("bytes needed over peak live bytes");
    let names = [
        BestFit::NAME,
        offset_allocator::Allocator::<u32>::NAME,
        RangeAllocator::<u32>::NAME,
        Growing::NAME,
    ];
    eprintln!(
        "{:<20}{}",
        "",
        names.map(|name| format!("{name:>20}")).concat()
    );
    for program in &programs {
        let needed = [
            program.needed_over_peak::<BestFit>(),
            program.needed_over_peak::<offset_allocator::Allocator>(),
            program.needed_over_peak::<RangeAllocator<u32>>(),
            program.needed_over_peak::<Growing>(),
        ];
        let needed = needed.map(|ratio| format!("{ratio:>20.3}")).concat();
        eprintln!("{:<20}{needed}", program.name);
    }
    for program in &programs {
        let mut group = criterion.benchmark_group(format!("a range and back, {}", program.name));
        group.sample_size(10);
        time::<BestFit>(&mut group, program);
        time::<offset_allocator::Allocator>(&mut group, program);
        time::<RangeAllocator<u32>>(&mut group, program);
        time::<Growing>(&mut group, program);
        group.finish();
    }
}

criterion_group!(ranges, benchmarks);
criterion_main!(ranges);
