//! Replays on a device that is behind the host.

use std::{path::Path, time::Duration};

use binpool::{PoolOptions, ReusePolicy};
use binpool_recordings::Trace;
use binpool_replay::{AllocatorChoice, Device, Measured, Profile, ReplaySettings, Touch};
use serde_json::Value;

use crate::common::binpool;

const MOCK: Device = Device::Mock(Profile::H200);

const MILLISECOND: Duration = Duration::from_millis(1);

fn settings(behind: Option<Duration>) -> ReplaySettings {
    ReplaySettings {
        allocator: AllocatorChoice::Immediate,
        pool: Some(PoolOptions::new()),
        capacity_bytes: None,
        touch: Touch::Nothing,
        threads: 1,
        rounds: 1,
        behind,
    }
}

fn two_streams() -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/unseen");
    Trace::open(&folder.join("two_stream_pipeline.trace.gz")).unwrap()
}

fn replayed(trace: &Trace, settings: &ReplaySettings) -> Measured {
    MOCK.replay(trace, settings, &|_| {}).unwrap()
}

/// Stream 1 asks for what stream 0 has just freed.
#[test]
fn what_was_just_freed_is_not_there_for_another_stream() {
    let text = "a 0 100000000 0\nf 0\na 1 100000000 1\nf 1\n";
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    let segments = |behind| replayed(&trace, &settings(behind)).outcome;
    let at_once = segments(None);
    assert_eq!((at_once.device_allocations, at_once.pending), (1, None));
    let behind = segments(Some(MILLISECOND));
    assert_eq!(behind.device_allocations, 2);
    let pending = behind.pending.unwrap();
    assert!(pending.peak_bytes >= 2 * 100_000_000, "{pending:?}");
    assert_eq!(pending.waited, Some(Duration::ZERO));
}

#[test]
fn where_the_pool_waits_the_report_says_how_long() {
    let text = "a 0 100000000 0\nf 0\na 1 100000000 1\nf 1\n";
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    let waits = ReplaySettings {
        pool: Some(PoolOptions::new().reuse(ReusePolicy::WaitOnHost)),
        ..settings(Some(MILLISECOND))
    };
    let outcome = replayed(&trace, &waits).outcome;
    assert_eq!(outcome.device_allocations, 1);
    let waited = outcome.pending.unwrap().waited.unwrap();
    assert!(
        waited > MILLISECOND / 2 && waited <= MILLISECOND,
        "{waited:?}"
    );
}

#[test]
fn the_same_replay_gives_the_same_figures_in_every_round() {
    for allocator in [AllocatorChoice::Immediate, AllocatorChoice::VirtualMemory] {
        let settings = ReplaySettings {
            allocator,
            rounds: 3,
            ..settings(Some(2 * MILLISECOND))
        };
        let run = || {
            let Measured {
                outcome,
                device_time,
            } = replayed(&two_streams(), &settings);
            (outcome.rounds, outcome.pending, device_time)
        };
        let (rounds, pending, device_time) = run();
        assert_eq!((rounds.clone(), pending, device_time), run());
        let of_rounds = rounds.iter().map(|round| round.pending.unwrap().peak_bytes);
        assert_eq!(of_rounds.max(), Some(pending.unwrap().peak_bytes));
    }
}

/// What the program itself enqueues is no call of the pool.
#[test]
fn the_commands_of_the_program_are_not_in_the_device_time() {
    let trace = Trace::parse("t", &b"a 0 1000 0\nf 0\na 1 1000 0\nf 1\n"[..]).unwrap();
    let time = |behind| replayed(&trace, &settings(behind)).device_time;
    assert_eq!(time(Some(MILLISECOND)), time(None));
}

#[test]
fn kernels_find_every_block_whole_on_a_device_that_is_behind() {
    let trace = two_streams().scaled_down(1 << 14);
    for touch in [Touch::Fill, Touch::Kernels] {
        for (allocator, segments) in [
            (AllocatorChoice::Immediate, true),
            (AllocatorChoice::Immediate, false),
            (AllocatorChoice::VirtualMemory, true),
        ] {
            let settings = ReplaySettings {
                allocator,
                touch,
                pool: Some(PoolOptions::new().segments(segments)),
                ..settings(Some(MILLISECOND))
            };
            let outcome = replayed(&trace, &settings).outcome;
            assert!(outcome.pending.unwrap().peak_bytes > 0);
        }
    }
}

#[test]
fn without_a_pool_memory_is_in_use_until_its_commands_have_ended() {
    let text = "a 0 1000 0\nf 0\na 1 1000 0\nf 1\na 2 1000 0\n";
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    let fits = |capacity, behind| {
        let settings = ReplaySettings {
            pool: None,
            capacity_bytes: Some(capacity),
            ..settings(behind)
        };
        MOCK.replay(&trace, &settings, &|_| {}).is_ok()
    };
    assert!(fits(1000, None));
    assert!(!fits(2000, Some(MILLISECOND)));
    assert!(fits(3000, Some(MILLISECOND)));
}

fn report(arguments: &[&str]) -> Value {
    let ran = binpool(&[&["replay", "--json"], arguments].concat());
    assert_eq!(ran.status, 0, "{}", ran.errors);
    serde_json::from_str::<Value>(&ran.output).unwrap()[0].take()
}

#[test]
fn the_command_says_what_was_pending_in_all_and_in_each_round() {
    let trace = "eager_arrays.trace.gz";
    let object = report(&["--behind", "2ms", "--rounds", "3", trace]);
    assert_eq!(object["behind_us"], 2000.0);
    for part in [&object, &object["rounds"][1]] {
        assert!(part["peak_pending_bytes"].as_u64().unwrap() > 0);
        assert_eq!(part["wait_time_us"], 0.0);
    }
    assert!(object["warm"]["peak_pending_bytes"].as_u64().unwrap() > 0);
    assert_eq!(object["warm"]["wait_time_us_a_round"], 0.0);
    let plain = report(&["--rounds", "3", trace]);
    for part in [&plain, &plain["rounds"][1], &plain["warm"]] {
        assert_eq!(part.get("peak_pending_bytes"), None);
    }

    let ran = binpool(&["replay", "--behind", "500us", "--rounds", "3", trace]);
    assert!(
        ran.output.contains(", the device 500 us behind\n"),
        "{}",
        ran.output
    );
    assert!(
        ran.output
            .contains("\n| freed, and still in use | at most |")
    );
    assert!(
        ran.output.contains(" peak pending |   waits |"),
        "{}",
        ran.output
    );
    assert_eq!(binpool(&["replay", "--behind", "2", trace]).status, 2);
}

#[test]
fn on_an_opencl_device_kernels_take_the_time() {
    let object = report(&[
        "--backend",
        "opencl",
        "--scale",
        "1024",
        "--touch",
        "kernels",
        "--behind",
        "100us",
        "eager_arrays.trace.gz",
    ]);
    assert!(object["peak_pending_bytes"].as_u64().unwrap() > 0);
    assert_eq!(object["wait_time_us"], Value::Null);
}
