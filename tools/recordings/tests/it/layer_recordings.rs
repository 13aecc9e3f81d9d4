//! Recordings of programs without a pool, of version 3: they say on which streams blocks are used, and a program that is killed leaves
//! its file as it was mapped.

use binpool_recordings::{Event, Trace};
use binpool_trace::{TraceError, TraceErrorKind};

fn parse(text: impl AsRef<[u8]>) -> Result<Trace, TraceError> {
    Trace::parse("t", text.as_ref())
}

fn streams_of_blocks(trace: &Trace) -> Vec<u32> {
    let streams = trace.events().iter().filter_map(|event| match event {
        Event::Allocate { stream, .. } => Some(*stream),
        Event::Free { .. } => None,
    });
    streams.collect()
}

const USED: &str = "\
h version 3
a 1 100 0 5
a 2 200 0 6
a 3 300 4 6
p stream 0 7 2: a queue
u 2 2 8
u 2 1 8
u 3 1 9
f 2 9
a 2 50 0 9
u 2 3 10
";

#[test]
fn a_block_for_no_stream_has_that_of_its_first_use() {
    let trace = parse(USED).unwrap();
    assert_eq!(streams_of_blocks(&trace), [0, 2, 4, 3]);
    assert_eq!(trace.streams(), [0, 2, 3, 4]);
    let uses: Vec<_> = trace
        .uses()
        .iter()
        .map(|used| (used.events_before, used.time, used.block, used.stream))
        .collect();
    assert_eq!(
        uses,
        [(3, 8, 1, 2), (3, 8, 1, 1), (3, 9, 2, 1), (5, 10, 3, 3)]
    );
}

#[test]
fn uses_are_written_again_with_the_stream_of_each_block() {
    let trace = parse(USED).unwrap();
    let written = trace.to_string();
    let expected = USED
        .replace("a 2 200 0", "a 2 200 2")
        .replace("a 2 50 0", "a 2 50 3");
    assert_eq!(written, expected);
    assert_eq!(parse(&written).unwrap().to_string(), written);
    // Without the header, too.
    let scaled = trace.scaled_down(10);
    let again = parse(scaled.to_string()).unwrap();
    assert_eq!(again.events(), scaled.events());
    assert_eq!(again.uses(), scaled.uses());
}

#[test]
fn a_stream_0_of_an_older_recording_is_a_stream() {
    let trace = parse("h version 2\na 1 100 0\nu 1 7\n").unwrap();
    assert_eq!(trace.streams(), [0]);
}

#[test]
fn a_use_of_a_block_that_is_not_live_is_an_error() {
    let error = parse("a 1 100 0\nf 1\nu 1 7\n").unwrap_err();
    assert_eq!(error.place(), "line 3");
    assert!(
        error.message().starts_with("block 1 is not allocated"),
        "{error}"
    );
}

#[test]
fn nul_bytes_at_the_end_and_the_half_line_before_them_are_left_out() {
    for (cut, nuls) in [
        ("", 1),
        ("f 2", 5),
        ("f 7", 5),
        ("g 1 x", 1),
        ("", 5000),
        ("f 2", 200_000),
    ] {
        let text = format!("{USED}{cut}{}", "\0".repeat(nuls));
        let trace = Trace::read("t", text.as_bytes(), None).unwrap();
        assert_eq!(
            trace.to_string(),
            parse(USED).unwrap().to_string(),
            "{cut:?} {nuls}"
        );
        assert_eq!(
            trace.remarks(),
            ["the recording was not closed: its program crashed, was killed, or called _exit"]
        );
    }
    assert!(parse(USED).unwrap().remarks().is_empty());
}

#[test]
fn nul_bytes_before_other_lines_are_an_error() {
    for nuls in [1, 5, 70_000] {
        let text = format!("{USED}f {}\nf 1\n", "\0".repeat(nuls));
        assert_eq!(parse(&text).unwrap_err().place(), "line 12");
        let short = format!("h version 3\nf {}\nf 1\n", "\0".repeat(nuls));
        Trace::read("t", short.as_bytes(), None).unwrap_err();
    }
}

#[test]
fn a_recording_without_an_event_has_no_allocation_whether_it_was_closed_or_not() {
    for text in [
        "\0\0\0",
        "h version 3\n\0\0",
        "h version 3\nh time 12\0\0",
        "h version 3\n",
    ] {
        let error = Trace::read("t", text.as_bytes(), None).unwrap_err();
        assert_eq!(error.kind(), TraceErrorKind::NoAllocation, "{error}");
    }
}
