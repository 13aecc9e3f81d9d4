//! The trace parser, on text and on compressed text: any bytes give a trace or an error that names its line, and a trace
//! survives being written and read again.
#![no_main]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
};

use binpool_recordings::{Event, Trace};
use binpool_trace::{TraceError, TraceErrorKind};
use flate2::{
    Compression,
    read::{GzEncoder, MultiGzDecoder},
};
use libfuzzer_sys::fuzz_target;

const NAME: &str = "fuzz";

/// What every compressed file begins with.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

fn parse(bytes: &[u8]) -> Result<Trace, TraceError> {
    if bytes.starts_with(&MAGIC) {
        Trace::parse(NAME, MultiGzDecoder::new(bytes))
    } else {
        Trace::parse(NAME, bytes)
    }
}

/// Whether right lines leave a block of this ID alive.
fn is_live(lines: &[&[u8]], id: u64) -> bool {
    let mut live = BTreeSet::new();
    for line in lines {
        let text = str::from_utf8(line).expect("a right line is text");
        let mut words = text
            .split(|letter: char| letter == ' ' || letter.is_control())
            .filter(|word| !word.is_empty());
        let (Some(kind), Some(Ok(id))) = (words.next(), words.next().map(str::parse::<u64>)) else {
            continue;
        };
        match kind {
            "a" => live.insert(id),
            "f" => live.remove(&id),
            _ => continue,
        };
    }
    live.contains(&id)
}

/// An error says where it is, and all lines before that one are right.
fn check_error(error: &TraceError, bytes: &[u8]) {
    let message = error.to_string();
    assert!(
        message.starts_with(NAME) && message.len() > NAME.len() + 2,
        "{message}"
    );
    let Some(line) = line_of(error) else {
        return;
    };
    // The first 60 characters of the line are quoted, and the escape of each has at most 10.
    let (_, quoted) = message.rsplit_once("; the line is \"").expect("the line");
    assert!(quoted.chars().count() <= 601, "{message}");
    if bytes.starts_with(&MAGIC) {
        return;
    }
    let lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    assert!((1..=lines.len()).contains(&line), "{message}");
    let right = lines[..line - 1].concat();
    let is_right = |error: TraceError| error.kind() == TraceErrorKind::NoAllocation;
    assert!(parse(&right).err().is_none_or(is_right), "{message}");
    let block = error.message().strip_prefix("block ");
    if let Some((id, state)) = block.and_then(|block| block.split_once(' ')) {
        let is_said_live = state.starts_with("is allocated already");
        let id = id.parse().expect("the number of a block");
        assert_eq!(is_live(&lines[..line - 1], id), is_said_live, "{message}");
    }
    let with_it = lines[..line].concat();
    assert_eq!(line_of(&parse(&with_it).unwrap_err()), Some(line));
}

/// The line that is wrong.
fn line_of(error: &TraceError) -> Option<usize> {
    error.place().strip_prefix("line ")?.parse().ok()
}

/// What a trace says of itself is what its events say.
fn check_figures(trace: &Trace) {
    let mut live = BTreeMap::new();
    let (mut bytes_live, mut peak, mut largest, mut frees) = (0_u64, 0, 0, 0);
    let mut next = 0;
    for event in trace.events() {
        match *event {
            Event::Allocate { block, bytes, .. } => {
                assert_eq!(block, next, "blocks are numbered in order");
                next += 1;
                live.insert(block, bytes as u64);
                bytes_live = live
                    .values()
                    .fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
                peak = peak.max(bytes_live);
                largest = largest.max(bytes);
            }
            Event::Free { block } => {
                frees += 1;
                assert!(live.remove(&block).is_some(), "only what lives is freed");
            }
        }
    }
    let is_exact = bytes_live < u64::MAX && peak < u64::MAX;
    assert!(!is_exact || trace.peak_live_bytes() == peak);
    assert_eq!((trace.allocations(), trace.frees()), (next, frees));
    assert_eq!(trace.largest_block_bytes(), largest);
    assert!(trace.streams().is_sorted());
    assert!((0..=trace.events().len()).all(|index| trace.describe(index).starts_with(NAME)));
}

fn check_round_trip(trace: &Trace) {
    let written = trace.to_string();
    let again = parse(written.as_bytes()).expect("a written trace can be read");
    assert_eq!(trace.events(), again.events());
    assert_eq!(trace.uses(), again.uses());
    assert_eq!(written, again.to_string());
    let mut compressed = Vec::new();
    let mut encoder = GzEncoder::new(written.as_bytes(), Compression::fast());
    encoder
        .read_to_end(&mut compressed)
        .expect("text can be compressed");
    let again = parse(&compressed).expect("a compressed trace can be read");
    assert_eq!(trace.events(), again.events());
    let small = trace.clone().scaled_down(7);
    let again = parse(small.to_string().as_bytes()).expect("a scaled trace can be read");
    assert_eq!(small.events(), again.events());
}

fuzz_target!(|bytes: &[u8]| {
    match parse(bytes) {
        Ok(trace) => {
            check_figures(&trace);
            check_round_trip(&trace);
        }
        Err(error) => check_error(&error, bytes),
    }
});
