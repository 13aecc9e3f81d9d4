//! Whichever call of the device fails under a recorded program, in whichever way: the replay says so, or gets over it, and
//! leaves nothing on the device; and a program that goes on has its blocks from the same pool.
//!
//! A process of its own, since every panic in it is a finding, whichever thread it is of.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test panics")]

use std::{
    collections::{HashMap, HashSet},
    env,
    fmt::Write,
    path::Path,
};

use binpool::{Backend, Budget, ImmediateAllocator, PoolOptions, PooledBuffer, QueueOrder, Region};
use binpool_conformance::sweep::{EXTENT, Ends, FaultInjector, SweepReport, sweep};
use binpool_mock::{MockBackend, MockDevice, SweptDevices};
use binpool_recordings::{Event, Trace};
use binpool_replay::{ReplaySettings, Touch, replay};

type Block = PooledBuffer<MockBackend>;

const TRACES: [&str; 5] = [
    "boxtree_builds",
    "eager_arrays",
    "gnn_sampled_train",
    "gpt2_varlen_train",
    "resnet50_train",
];

/// This many events of the middle of a recorded program, with its large blocks made smaller: what was allocated before is not
/// freed.
fn stretch(name: &str, events: usize) -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces");
    let whole = Trace::open(&folder.join(format!("{name}.trace.gz"))).unwrap();
    let middle = whole.events().len() / 3;
    let mut text = String::new();
    let mut live = HashSet::new();
    for event in whole.events().iter().skip(middle).take(events) {
        match *event {
            Event::Allocate {
                block,
                bytes,
                stream,
            } => {
                live.insert(block);
                writeln!(text, "a {block} {bytes} {stream}").unwrap();
            }
            Event::Free { block } => {
                if live.remove(&block) {
                    writeln!(text, "f {block}").unwrap();
                }
            }
        }
    }
    Trace::parse(name, text.as_bytes()).unwrap().scaled_down(64)
}

/// A device that is small for a trace, and large enough for one that falls into pieces.
fn device(trace: &Trace) -> SweptDevices {
    let capacity = trace.peak_live_bytes() + trace.peak_live_bytes() / 2 + 65_536;
    SweptDevices::new(MockDevice::builder().capacity_bytes(capacity))
}

fn everywhere(sweep: impl Fn(&Trace, &PoolOptions) -> SweepReport) {
    let mut all = SweepReport::default();
    for name in TRACES {
        let events = if env::var(EXTENT).is_ok_and(|extent| extent == "all") {
            400
        } else {
            100
        };
        let trace = stretch(name, events);
        let mut report = SweepReport::default();
        for segments in [true, false] {
            report.add(sweep(&trace, &PoolOptions::new().segments(segments)));
        }
        println!("{name}: {report}");
        all.add(report);
    }
    println!("{all}");
    all.assert_no_findings();
}

#[test]
fn a_replay_ends_with_its_first_failure() {
    everywhere(|trace, options| {
        let settings = ReplaySettings {
            pool: Some(options.clone()),
            touch: Touch::Fill,
            ..ReplaySettings::default()
        };
        let swept = trace.clone();
        sweep(
            trace.name(),
            Ends::Always,
            || device(trace),
            move |devices| {
                let backend = devices.device().backend();
                let Ok(allocator) = ImmediateAllocator::new(&backend) else {
                    return;
                };
                if let Err(failure) = replay(&swept, allocator, &settings, |_| {}) {
                    assert!(
                        devices.first_failed_call().is_some(),
                        "{failure}: {}",
                        failure.source
                    );
                }
            },
        )
    });
}

#[test]
fn a_program_that_goes_on_loses_nothing() {
    everywhere(|trace, options| {
        let (swept, options) = (trace.clone(), options.clone());
        sweep(
            trace.name(),
            Ends::Always,
            || device(trace),
            move |devices| {
                go_on(&swept, &options, devices);
            },
        )
    });
}

/// Does what a trace says as far as it goes, and goes on without a block that could not be allocated.
fn go_on(trace: &Trace, options: &PoolOptions, devices: &SweptDevices) {
    let device = devices.device();
    let backend = device.backend();
    let queues: Result<HashMap<_, _>, _> = trace
        .streams()
        .into_iter()
        .map(|stream| Ok((stream, backend.create_queue(QueueOrder::InOrder)?)))
        .collect();
    let Ok(queues) = queues.map_err(|error: binpool::Error| error) else {
        return;
    };
    let home = queues.values().next().unwrap();
    let Ok(allocator) = ImmediateAllocator::new(&backend) else {
        return;
    };
    let budget = Budget::new(device.limits().capacity_bytes);
    let options = options.clone().budget(&budget);
    let pool = options.build(allocator, home).unwrap();
    let mut blocks: HashMap<usize, Block> = HashMap::new();
    for event in trace.events() {
        match *event {
            Event::Allocate {
                block,
                bytes,
                stream,
            } => {
                let queue = &queues[&stream];
                if let Ok(memory) = pool.allocate_on(queue, bytes) {
                    let first = Region::first(1.min(bytes));
                    let _enqueued = memory.enqueue_fill(queue, first, &[0_u8]);
                    blocks.insert(block, memory);
                }
            }
            Event::Free { block } => drop(blocks.remove(&block)),
        }
    }
    devices.repair();
    let statistics = pool.statistics();
    let whole: usize = blocks.values().map(Block::class_size).sum();
    assert_eq!(
        statistics.managed_bytes - statistics.held_bytes,
        whole as u64
    );
    // What was released counts until no command uses it.
    device.run();
    assert_eq!(statistics.managed_bytes, budget.used_bytes());
    blocks.clear();
    // What the trace needs at most can be allocated.
    let most = usize::try_from(trace.peak_live_bytes()).unwrap();
    drop(pool.allocate(most).unwrap());
    pool.free_held();
    device.run();
    assert_eq!((pool.managed_bytes(), budget.used_bytes()), (0, 0));
    assert_eq!(device.statistics().live_blocks, 0);
    drop(pool);
}
