//! Recordings of programs whose framework has an allocator of its own: blocks have their addresses for IDs.

use binpool_recordings::{Event, Trace, view::History};
use binpool_trace::PoolEvent;

const MIB: u64 = 1 << 20;

/// A recording with these lines, after an allocator has begun.
fn recorded(lines: &str) -> Trace {
    let header = "h version 3\nh source a program on CUDA\ng 1 tensor, context 1\n";
    let text = format!("{header}p allocator 0 1 PyTorch's caching allocator\n{lines}");
    Trace::parse("t", text.as_bytes()).unwrap()
}

/// Where each block lay: its segment, its offset there, and what it took.
fn places(trace: &Trace) -> Vec<(usize, u64, u64)> {
    let history = History::happened(trace).unwrap();
    let lives = history.blocks.iter();
    lives
        .map(|life| (life.segment.unwrap(), life.offset, life.class_bytes))
        .collect()
}

fn remark(trace: &Trace) -> &str {
    trace.remarks().first().map_or("", String::as_str)
}

#[test]
fn blocks_lie_in_segments_and_take_what_pytorch_splits_off() {
    let trace = recorded(
        "s 20971520 2097152 2\na 20971520 700 0 2 1\na 20972544 1 0 3 1\ns 41943040 20971520 4\na 41943040 3000000 0 5 1\n\
         a 44943360 17000000 0 6 1\nf 20971520 7\na 20971520 512 0 8 1\n",
    );
    let expected = [
        (0, 0, 1024),
        (0, 1024, 512),
        (1, 0, 3_000_320),
        // The rest is too small to be split off.
        (1, 3_000_320, 20 * MIB - 3_000_320),
        (0, 0, 512),
    ];
    assert_eq!(places(&trace), expected);
    let history = History::happened(&trace).unwrap();
    assert_eq!(
        history.allocator.as_deref(),
        Some("PyTorch's caching allocator")
    );
    assert_eq!(trace.peak_live_bytes(), 701 + 3_000_000 + 17_000_000);
    assert!(trace.is_of_pool() && trace.is_of_cuda() && trace.is_of_program());
}

#[test]
fn what_an_allocator_says_that_a_block_takes_counts() {
    let trace = recorded(
        "m 0 20971520 2097152 2\nb 81920 0 20971520 4096\na 20971520 700 0 2 1\nf 20971520 3\na 20971520 700 0 4 1\n",
    );
    assert_eq!(places(&trace), [(0, 0, 4096), (0, 0, 4096)]);
}

#[test]
fn blocks_lie_across_pages_which_leave_in_other_parts_than_they_came() {
    let lines = format!(
        "m 0 {} {} 1\na {} 10000000 0 2 1\nm 0 {} {} 3\na {} 15000000 0 4 1\nf {} 5\nM 0 {} {} 6\na {} 512 0 7 1\n",
        100 * MIB,
        20 * MIB,
        100 * MIB,
        120 * MIB,
        20 * MIB,
        110 * MIB,
        110 * MIB,
        120 * MIB,
        10 * MIB,
        130 * MIB,
    );
    let trace = recorded(&lines);
    // The last one lies in what is left of the second pages.
    let places = places(&trace);
    assert_eq!(places[0], (0, 0, 10_000_384));
    assert_eq!(places[1], (0, 10 * MIB, 15_000_064));
    assert_eq!(places[2].1, 0);
    let history = History::happened(&trace).unwrap();
    let bytes: Vec<u64> = history
        .segments
        .iter()
        .map(|segment| segment.bytes)
        .collect();
    assert_eq!(bytes, [20 * MIB, 20 * MIB, 10 * MIB]);
    let offsets: Vec<u64> = history
        .segments
        .iter()
        .map(|segment| segment.offset)
        .collect();
    assert_eq!(offsets, [0, 20 * MIB, 30 * MIB]);
}

#[test]
fn a_block_that_a_stream_still_uses_is_waiting() {
    let trace = recorded(
        "s 20971520 2097152 2\na 20971520 700 0 2 1\nw 81920 3\na 20972544 5 0 4 1\nf 20971520 5\n",
    );
    let history = History::happened(&trace).unwrap();
    assert_eq!(
        (history.blocks[0].waiting, history.blocks[0].to),
        (Some(1), Some(2))
    );
}

#[test]
fn a_request_that_failed_has_a_report() {
    let trace =
        recorded("s 20971520 2097152 2\na 20971520 700 0 2 1\np free 1000 3\no 4194304 0 3 1\n");
    let report = trace.shortages()[0].report.unwrap();
    assert_eq!(report.managed_bytes, 2 * MIB);
    assert_eq!(
        (report.active_bytes, report.device_free_bytes),
        (700, Some(1000))
    );
    // What was free is of that request alone.
    assert!(
        !trace.pool_steps().iter().any(
            |step| matches!(&step.event, PoolEvent::Did { what, .. } if what.word() == "free")
        )
    );
}

#[test]
fn a_contradiction_leaves_the_requests() {
    for (lines, expected) in [
        (
            "a 20971520 700 0 2 1\n",
            "a block lies outside all known segments",
        ),
        (
            "s 20971520 2097152 2\na 20971520 700 0 2 1\nS 20971520 3\n",
            "memory is released while it has blocks",
        ),
        (
            "s 20971520 1024 2\na 20971520 4096 0 2 1\n",
            "a block goes on after the end of its memory",
        ),
        (
            "s 20971520 4096 2\na 20971520 700 0 2 1\na 20972032 700 0 2 1\n",
            "two blocks overlap",
        ),
        (
            "m 0 20971520 4096 2\nS 20971520 3\na 20971520 700 0 3 1\n",
            "memory is released while it has blocks, or with another size",
        ),
        (
            "m 0 20971520 4096 2\na 20971520 700 0 2 1\nM 0 20971520 4096 3\n",
            "memory is released while it has blocks",
        ),
    ] {
        let trace = recorded(lines);
        assert!(
            remark(&trace).contains(expected),
            "{lines}: {}",
            remark(&trace)
        );
        assert!(History::happened(&trace).is_none());
        assert!(matches!(trace.events()[0], Event::Allocate { .. }));
    }
}

#[test]
fn it_is_the_same_when_it_is_written_again() {
    let trace = recorded(
        "m 0 20971520 4194304 2\na 20971520 700 0 2 1\nf 20971520 3\na 20971520 3000000 0 4 1\n",
    );
    let again = Trace::parse("t", trace.to_string().as_bytes()).unwrap();
    assert_eq!(places(&again), places(&trace));
    assert_eq!(again.to_string(), trace.to_string());
}

#[test]
fn an_allocator_is_followed_only_in_the_recording_of_a_program_that_says_nothing_else_of_places() {
    let lines = "p allocator 0 1 its allocator\ns 20971520 2097152 2\na 20971520 700 0 2\n";
    let of = |before: &str| Trace::parse("t", format!("{before}{lines}").as_bytes()).unwrap();
    assert_eq!(
        of("h version 3\n").header_value("allocator"),
        Some("its allocator")
    );
    for before in [
        "",
        "h version 2\n",
        "h version 3\nh allocator another\n",
        "h version 3\nb 81920 7 0 1024\n",
    ] {
        let trace = of(before);
        assert_ne!(trace.header_value("allocator"), Some("its allocator"));
        assert_eq!(
            Trace::parse("t", trace.to_string().as_bytes())
                .unwrap()
                .to_string(),
            trace.to_string()
        );
    }
}
