//! What a recording of a pool says is what the pool knows of itself.

use std::{
    collections::HashMap,
    fs,
    io::{self, Write},
    sync::{Arc, Mutex},
};

use binpool::{
    Backend, ImmediateAllocator, MemoryPool, PoolOptions, PooledBuffer, QueueOrder, ReusePolicy,
    VirtualMemoryAllocator, WatchOptions,
};
use binpool_mock::{CallKind, Completion, Fault, MockDevice, Persistence};
use binpool_recordings::{
    Trace,
    view::{By, History, Origin},
};
use proptest::{collection::vec, prelude::*};
use serde_json::Value;

use crate::{browser::Page, common::binpool};

/// Text that can be read after it was written.
#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Text {
    fn trace(&self) -> Trace {
        Trace::parse("recorded", &self.0.lock().unwrap()[..]).unwrap()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Of this many bytes, on one of two queues.
    Allocate(usize, usize),
    Free(usize),
    /// Commands use the block.
    Fill(usize),
    Detach(usize),
    Trim(usize),
    FreeHeld,
    Sweep,
    Watch,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![1..5000_usize, 1..(6_usize << 20)];
    let step = prop_oneof![
        8 => (size, 0..2_usize).prop_map(|(bytes, queue)| Step::Allocate(bytes, queue)),
        6 => any::<usize>().prop_map(Step::Free),
        2 => any::<usize>().prop_map(Step::Fill),
        1 => any::<usize>().prop_map(Step::Detach),
        1 => (0..40_usize << 20).prop_map(Step::Trim),
        1 => Just(Step::FreeHeld),
        1 => Just(Step::Sweep),
        1 => Just(Step::Watch),
    ];
    vec(step, 1..120)
}

/// Runs a step, and returns whether it is one.
fn run<B: Backend>(
    pool: &MemoryPool<B>,
    queues: &[B::Queue],
    live: &mut Vec<PooledBuffer<B>>,
    step: Step,
) {
    let index = |which: usize, live: &[PooledBuffer<B>]| which % live.len().max(1);
    match step {
        // The device may be full.
        Step::Allocate(bytes, queue) => live.extend(pool.allocate_on(&queues[queue], bytes).ok()),
        Step::Trim(bytes) => drop(pool.trim_to(bytes as u64)),
        Step::FreeHeld => drop(pool.free_held()),
        Step::Sweep => drop(pool.sweep()),
        Step::Watch => pool.watch(WatchOptions::new()),
        _ if live.is_empty() => {}
        Step::Free(which) => drop(live.swap_remove(index(which, live))),
        Step::Fill(which) => {
            let block = &live[index(which, live)];
            block.enqueue_fill(&queues[1], 0..1, &[7_u8]).unwrap();
        }
        Step::Detach(which) => drop(live.swap_remove(index(which, live)).detach()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn a_recording_has_the_pools_own_numbers_and_places(
        before in steps(),
        during in steps(),
        segments in any::<bool>(),
        policy in 0..ReusePolicy::ALL.len(),
        seed in any::<u64>(),
    ) {
        let device = MockDevice::builder()
            .capacity_bytes(48 << 20)
            .completion(Completion::Seeded(seed))
            .build();
        let backend = device.backend();
        let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
        let options = PoolOptions::new().segments(segments).reuse(ReusePolicy::ALL[policy]);
        let pool = options.build(ImmediateAllocator::new(&backend).unwrap(), &queues[0]).unwrap();
        // All blocks that live when the recording begins are known.
        pool.watch(WatchOptions::new());
        let mut live = Vec::new();
        for step in before {
            run(&pool, &queues, &mut live, step);
        }
        let text = Text::default();
        let recording = pool.record(text.clone()).unwrap();
        // So that there is something to read.
        for step in std::iter::once(Step::Allocate(1, 0)).chain(during) {
            run(&pool, &queues, &mut live, step);
        }
        let statistics = pool.statistics();
        let summary = recording.finish().unwrap();
        prop_assume!(summary.allocations > 0);
        let trace = text.trace();
        prop_assert_eq!(trace.shortages().len() as u64, summary.shortages);
        prop_assert!(trace.shortages().iter().all(|shortage| shortage.report.is_some()));
        let history = History::happened(&trace).unwrap();
        let numbers = history.numbers();
        prop_assert_eq!(numbers.at_end.active_blocks, statistics.active_blocks);
        prop_assert_eq!(numbers.at_end.active_bytes, statistics.active_bytes);
        prop_assert_eq!(numbers.at_end.reserved_bytes, statistics.managed_bytes);
        prop_assert!(numbers.peak_reserved.reserved_bytes <= statistics.peak_managed_bytes);

        // Each block lies where the pool says, and blocks of one memory in one segment.
        let last = history.last_moment();
        let there = history.blocks.iter().filter(|life| life.to.is_none());
        let mut told: Vec<_> = there
            .map(|life| {
                let segment = &history.segments[life.segment.unwrap()];
                assert!(segment.from < last && segment.to.is_none_or(|to| last <= to));
                (life.requested_bytes, life.class_bytes, segment.bytes, life.offset, life.segment.unwrap())
            })
            .collect();
        let mut segment_of = HashMap::new();
        for block in &live {
            let place = block.place().unwrap();
            let wanted = (block.size() as u64, place.bytes as u64, place.memory_bytes as u64, place.offset as u64);
            let found = told.iter().position(|&(asked, bytes, of, offset, segment)| {
                (asked, bytes, of, offset) == wanted
                    && *segment_of.get(&place.memory).unwrap_or(&segment) == segment
            });
            prop_assert!(found.is_some(), "{:?} is not among {:?}", wanted, told);
            segment_of.insert(place.memory, told.swap_remove(found.unwrap()).4);
        }
        prop_assert_eq!(told, []);

        // Blocks that live at the same time do not overlap, at any moment.
        for moment in (0..=last).step_by(7) {
            let there = history.blocks.iter();
            let there = there.filter(|life| life.from < moment && life.to.is_none_or(|to| moment <= to));
            let mut places: Vec<_> = there
                .map(|life| (life.segment.unwrap(), life.offset, life.class_bytes))
                .collect();
            places.sort_unstable();
            prop_assert!(places.windows(2).all(|pair| pair[0].0 < pair[1].0 || pair[0].1 + pair[0].2 <= pair[1].1));
        }
        prop_assert!(history.page(By::Size).len() > 1000);
        prop_assert_eq!(trace.to_string().into_bytes().len(), Trace::parse("again", trace.to_string().as_bytes()).unwrap().to_string().len());
    }
}

/// What is reserved at a moment, from the segments alone.
fn reserved(history: &History, moment: usize) -> u64 {
    let there = history.segments.iter();
    let there = there.filter(|it| it.from < moment && it.to.is_none_or(|to| moment <= to));
    there.map(|segment| segment.bytes).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn a_recording_of_a_pool_of_pages_has_its_bytes_at_each_moment_and_its_places(
        before in steps(),
        during in steps(),
        faults in vec((0..120_usize, 0..3_usize, 1..4_u64), 0..6),
        seed in any::<u64>(),
    ) {
        let device = MockDevice::builder()
            .capacity_bytes(48 << 20)
            .virtual_memory(true)
            .completion(Completion::Seeded(seed))
            .build();
        let backend = device.backend();
        let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
        let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queues[0]).unwrap();
        pool.watch(WatchOptions::new());
        let mut live = Vec::new();
        for step in before {
            run(&pool, &queues, &mut live, step);
        }
        let text = Text::default();
        let recording = pool.record(text.clone()).unwrap();
        let mut events = live.len();
        // The managed bytes before each event, unless a request failed since the one before: what it left shows with the next event.
        let (mut managed, mut has_failed) = (HashMap::new(), false);
        for (index, step) in std::iter::once(Step::Allocate(1, 0)).chain(during).enumerate() {
            for &(_, kind, nth) in faults.iter().filter(|(at, ..)| *at == index) {
                let kind = [CallKind::Map, CallKind::Unmap, CallKind::CreatePages][kind];
                device.fail_nth(kind, nth, Fault::Backend(-5), Persistence::Once);
            }
            let blocks = live.len();
            run(&pool, &queues, &mut live, step);
            let is_event = live.len() != blocks;
            events += usize::from(is_event);
            has_failed = !is_event && (has_failed || matches!(step, Step::Allocate(..)));
            if has_failed {
                managed.remove(&events);
            } else {
                managed.insert(events, pool.managed_bytes());
            }
        }
        device.clear_faults();
        let statistics = pool.statistics();
        let summary = recording.finish().unwrap();
        prop_assume!(summary.allocations > 0);
        let trace = text.trace();
        prop_assert_eq!(trace.events().len(), events);
        let history = History::happened(&trace).unwrap();
        for (moment, managed) in managed {
            prop_assert_eq!(reserved(&history, moment), managed, "at {}", moment);
        }
        let end = history.numbers().at_end;
        prop_assert_eq!(end.active_bytes, statistics.active_bytes);
        prop_assert_eq!(end.reserved_bytes, statistics.managed_bytes);
        prop_assert_eq!(end.free.bytes, end.held_bytes);

        let there = history.blocks.iter().filter(|life| life.to.is_none());
        let mut told: Vec<_> = there
            .map(|life| {
                let pages = &history.segments[life.segment.unwrap()];
                let offset = pages.offset + life.offset;
                (life.requested_bytes, life.class_bytes, offset, pages.reservation.unwrap())
            })
            .collect();
        let mut reservations = HashMap::new();
        for block in &live {
            let place = block.place().unwrap();
            let wanted = (block.size() as u64, place.bytes as u64, place.offset as u64);
            let found = told.iter().position(|&(asked, bytes, offset, reservation)| {
                (asked, bytes, offset) == wanted
                    && *reservations.get(&place.memory).unwrap_or(&reservation) == reservation
            });
            prop_assert!(found.is_some(), "{:?} is not among {:?}", wanted, told);
            reservations.insert(place.memory, told.swap_remove(found.unwrap()).3);
        }
        prop_assert_eq!(told, []);
    }
}

#[test]
fn pages_that_could_not_be_unmapped_stay_mapped_in_the_recording() {
    let device = MockDevice::builder().virtual_memory(true).build();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue).unwrap();
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    let kept = pool.allocate(8 << 20).unwrap();
    drop(pool.allocate(40 << 20).unwrap());
    device.fail_nth(CallKind::Unmap, 1, Fault::Backend(-5), Persistence::Once);
    let before = pool.managed_bytes();
    let released = pool.free_held();
    let stayed = pool.managed_bytes();
    assert_eq!(stayed, before - released);
    assert!(stayed > 8 << 20, "one of them could not");
    drop(kept);
    recording.finish().unwrap();
    let history = History::happened(&text.trace()).unwrap();
    let at_end = history.numbers().at_end;
    assert_eq!((at_end.reserved_bytes, at_end.free.bytes), (stayed, stayed));
}

const OF_PAGES: &str = "h version 2\nh capacity 99\nh blocks segments\nh pages 2\n";

#[test]
fn adjoining_pages_are_one_segment_and_a_gap_is_not_free() {
    // Of the second reservation, the pages at 10 move to 4 for the second block.
    let text = format!(
        "{OF_PAGES}m 5 0 4\nm 7 0 4\nm 7 10 6\nb 1 7 1 2\na 256 2 0\nm 7 4 6\nM 7 10 6\nb 2 7 3 5\na 512 5 0\np spare 3 0\nf 256\nM 5 0 4\n"
    );
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    assert_eq!(
        Trace::parse("t", trace.to_string().as_bytes())
            .unwrap()
            .pool_steps(),
        trace.pool_steps()
    );
    let history = History::happened(&trace).unwrap();
    let bytes: Vec<u64> = (0..=3).map(|moment| reserved(&history, moment)).collect();
    assert_eq!(bytes, [0, 14, 14, 13]);
    let numbers = history.numbers();
    let free = numbers.at_end.free;
    // 0 to 3 and 8 to 10 of the second, and the spare ones.
    assert_eq!((free.bytes, free.ranges, free.largest_bytes), (8, 3, 3));
    let page = Page::new(history.page(By::Size));
    let there = page.run("at=3", "return figures();");
    for (part, expected) in [
        ("reserved", 13),
        ("free", 8),
        ("largest", 3),
        ("ranges", 3),
        ("map", 5),
    ] {
        assert_eq!(
            there[part].to_string().trim_matches('"'),
            expected.to_string(),
            "{part} {there}"
        );
    }
}

#[test]
fn pages_that_cannot_be_are_no_history() {
    let most = u64::MAX;
    for lines in [
        // Nothing is mapped, or a part of the block only.
        "b 1 7 0 2\na 256 2 0\n".to_owned(),
        "m 7 0 4\nb 1 7 3 2\na 256 2 0\n".into(),
        "m 7 0 4\nm 7 6 4\nb 1 7 3 4\na 256 2 0\n".into(),
        "m 7 4 4\nb 1 7 3 2\na 256 2 0\n".into(),
        "m 8 0 4\nb 1 7 0 2\na 256 2 0\n".into(),
        "m 7 0 4\nM 7 0 4\nb 1 7 0 2\na 256 2 0\n".into(),
        // Pages over each other, of no bytes, or in parts.
        "m 7 0 4\nm 7 0 4\nb 1 7 0 2\na 256 2 0\n".into(),
        "m 7 0 4\nm 7 3 4\nb 1 7 0 2\na 256 2 0\n".into(),
        "m 7 3 4\nm 7 0 4\nb 1 7 4 2\na 256 2 0\n".into(),
        "m 7 0 9\nm 7 2 4\nb 1 7 0 2\na 256 2 0\n".into(),
        "m 7 0 4\nm 7 9 0\nb 1 7 0 2\na 256 2 0\n".into(),
        "m 7 0 4\nb 1 7 0 2\na 256 2 0\nM 7 0 2\n".into(),
        // Numbers that overflow.
        format!("m 7 2 {most}\nb 1 7 2 2\na 256 2 0\n"),
        format!("m 7 0 {most}\nm 8 0 {most}\nb 1 7 2 2\na 256 2 0\n"),
        format!("m 7 0 4\nb 1 7 2 {most}\na 256 2 0\n"),
        format!("m 7 0 {most}\np spare {most} 0\nb 1 7 2 2\na 256 2 0\n"),
    ] {
        let trace = Trace::parse("t", format!("{OF_PAGES}{lines}").as_bytes()).unwrap();
        assert!(History::happened(&trace).is_none(), "{lines}");
    }
    // Of pages that were on their way when the recording began, it knows nothing.
    let text = format!("{OF_PAGES}M 7 8 4\nm 7 0 4\nb 1 7 0 2\na 256 2 0\n");
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    assert!(History::happened(&trace).is_some());
}

/// A recording of a program that ran out under a limit of 64 MiB.
fn limited() -> Text {
    let backend = MockDevice::new().backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    let options = PoolOptions::new().limit(64 << 20);
    let pool = options.build(allocator, &queue).unwrap();
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    let kept = pool.allocate(40 << 20).unwrap();
    assert!(pool.allocate(30 << 20).is_err());
    drop(kept);
    recording.finish().unwrap();
    text
}

fn numbers(options: &[&str], file: &str) -> (Value, String) {
    let ran = binpool(&[&["view", "--json"], options, &[file]].concat());
    assert_eq!(ran.status, 0, "{}", ran.errors);
    (serde_json::from_str(&ran.output).unwrap(), ran.errors)
}

#[test]
fn a_program_that_ran_out_under_a_limit_is_told_of_the_limit_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limited.trace");
    fs::write(&path, &*limited().0.lock().unwrap()).unwrap();
    let path = path.to_str().unwrap();

    let (happened, errors) = numbers(&[], path);
    assert_eq!(happened["origin"], "happened");
    assert_eq!(happened["device"], "mock device");
    assert_eq!(happened["limit_bytes"], 64 << 20);
    assert_eq!(happened["capacity_bytes"], 64 << 20);
    assert_eq!(happened["peak_reserved"]["reserved_bytes"], 40 << 20);
    let report = &happened["shortages"][0]["report"];
    assert_eq!(report["requested_bytes"], 30 << 20);
    assert_eq!(report["active_bytes"], 40 << 20);
    assert_eq!(report["verdict"], "limited");
    assert!(
        errors.contains("out of memory, as it happened: a limit is reached"),
        "{errors}"
    );
    let events = happened["pool_events"].as_array().unwrap();
    assert_eq!(events[0]["what"], "miss");
    assert_eq!(
        (&events[1]["what"], &events[1]["bytes"]),
        (&"taken".into(), &(40 << 20).into())
    );

    for options in [
        &["--simulate"][..],
        &["--capacity", "1GiB"],
        &["--profile", "pocl"],
        &["--no-segments"],
    ] {
        let (simulated, _) = numbers(options, path);
        assert_eq!(simulated["origin"], "simulated", "{options:?}");
        assert!(simulated["limit_bytes"].is_null());
    }
}

#[test]
fn a_page_says_in_large_letters_what_it_shows() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("limited.trace");
    fs::write(&file, &*limited().0.lock().unwrap()).unwrap();
    let html = folder.path().join("page.html");
    for (options, expected) in [
        (&[][..], "As it happened"),
        (&["--simulate"][..], "Simulated"),
    ] {
        let paths = [file.to_str().unwrap(), "-o", html.to_str().unwrap()];
        let ran = binpool(&[&["view"], &paths[..], options].concat());
        assert_eq!(ran.status, 0, "{}", ran.errors);
        let page = Page::new(fs::read_to_string(&html).unwrap());
        let script =
            "return { origin: text('#origin'), head: text('.head'), ran: text('#ran-out') };";
        let there = page.run("", script);
        assert_eq!(there["origin"], expected);
        let has = |part: &str, words: &str| there[part].as_str().unwrap().contains(words);
        let happened = options.is_empty();
        assert_eq!(has("head", "limit 64.0 MiB"), happened, "{there}");
        assert_eq!(
            has("ran", "free of the limit of 64.0 MiB"),
            happened,
            "{there}"
        );
        assert_eq!(has("ran", "this replay had room"), !happened, "{there}");
    }
}

#[test]
fn a_trace_without_what_happened_is_simulated() {
    let (numbers, errors) = numbers(&[], "eager_arrays.trace.gz");
    assert_eq!(numbers["origin"], "simulated");
    assert!(!errors.contains("simulated"), "as ever: {errors}");
    for text in [
        "a 1 100 0\n".to_owned(),
        // A pool of pages, of which an older version does not say where they are.
        "h version 2\nh capacity 9\nh blocks segments\nh pages 2\ns 1 9\nb 0 1 0 9\na 1 9 0\n"
            .into(),
        // A block without a place, and places that cannot be.
        "h version 2\nh capacity 9\nh blocks segments\ns 1 9\na 1 9 0\n".into(),
        "h version 2\nh capacity 9\nh blocks segments\ns 1 9\nb 0 1 1 9\na 1 9 0\n".into(),
        "h version 2\nh capacity 9\nh blocks segments\ns 1 9\nb 0 1 0 8\na 1 9 0\n".into(),
        "h version 2\nh capacity 9\nh blocks segments\ns 1 9\nS 1\nb 0 1 0 9\na 1 9 0\n".into(),
        // Sums that overflow.
        format!(
            "h version 2\nh capacity 9\nh blocks bins\ns 1 {0}\ns 2 {0}\nb 0 1 0 9\na 1 9 0\n",
            u64::MAX
        ),
        format!(
            "h version 2\nh capacity 9\nh blocks bins\ns 1 {0}\nb 0 1 0 {0}\na 1 {0} 0\na 2 {0} 0\n",
            u64::MAX
        ),
    ] {
        let trace = Trace::parse("t", text.as_bytes()).unwrap();
        assert!(History::happened(&trace).is_none(), "{text}");
    }
    let right = "h version 2\nh capacity 9\nh blocks segments\ns 1 9\nb 0 1 0 9\na 1 9 0\n";
    let trace = Trace::parse("t", right.as_bytes()).unwrap();
    let history = History::happened(&trace).unwrap();
    assert_eq!(
        (history.origin, history.limit_bytes),
        (Origin::Happened, None)
    );
    assert!(
        History::happened(&trace.scaled_down(2)).is_none(),
        "other sizes did not happen"
    );
}

#[test]
fn memory_that_is_there_for_a_moment_or_at_the_end_alone_is_counted() {
    let text = "h version 2\nh capacity 99\nh blocks segments\ns 1 9\nb 0 1 0 9\na 1 9 0\ns 2 5\nS 2\nf 1\nS 1\ns 3 7\n";
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    let history = History::happened(&trace).unwrap();
    let numbers = history.numbers();
    assert_eq!(numbers.peak_reserved.reserved_bytes, 9);
    assert_eq!(numbers.at_end.reserved_bytes, 7);
    let words: Vec<_> = numbers
        .pool_events
        .iter()
        .map(|it| (it.moment, it.what.as_str(), it.bytes))
        .collect();
    let expected = [
        (0, "taken", 9),
        (1, "taken", 5),
        (1, "given back", 5),
        (2, "given back", 9),
        (2, "taken", 7),
    ];
    assert_eq!(words, expected);
}
