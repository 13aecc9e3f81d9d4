//! The trace format: what it takes, and what it says about what it does not take.

use std::{fmt::Write as _, fs, io::Write as _, path::Path};

use binpool_recordings::{Event, Trace, view::History};
use binpool_trace::{PoolEvent, TraceError, TraceErrorKind, Verdict};
use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;

fn parse(text: &str) -> Result<Trace, TraceError> {
    Trace::parse("t", text.as_bytes())
}

/// The line number and the problem of a trace with a wrong line.
fn problem(text: &[u8]) -> (usize, String) {
    let error = Trace::parse("t", text).unwrap_err();
    let line = error.place().strip_prefix("line ").unwrap();
    let (problem, _) = error.message().rsplit_once("; the line is \"").unwrap();
    (line.parse().unwrap(), problem.to_owned())
}

/// The problem of a line of no known form.
fn form() -> String {
    "expected \"a ID BYTES STREAM [TIME [GROUP [STACK]]]\", \"f ID [TIME]\", \"u ID STREAM [TIME]\", \
     \"o BYTES STREAM [TIME [GROUP [STACK]]]\", \"g GROUP NAME\", \"k STACK FRAME\", \"h KEY VALUE\", \
     \"s MEMORY BYTES [TIME]\", \"S MEMORY [TIME]\", \"b BLOCK MEMORY OFFSET BYTES [TIME]\", \
     \"p WHAT BYTES [TIME [TEXT]]\" or \"r KEY=NUMBER ...\""
        .to_owned()
}

fn number(what: &str, largest: u64) -> String {
    format!("expected {what} to be a number up to {largest}")
}

fn wrong(message: &str) -> String {
    message.to_owned()
}

fn not_live(id: u64) -> String {
    format!("block {id} is not allocated: expected the ID of a live block")
}

fn kind(text: &str) -> TraceErrorKind {
    parse(text).unwrap_err().kind()
}

#[test]
fn comments_empty_lines_and_ids_used_again_are_fine() {
    let trace = parse("# a program\n\na 5 100 0\nf 5\na 5 200 3\r\n").unwrap();
    assert_eq!(
        trace.events(),
        [
            Event::Allocate {
                block: 0,
                bytes: 100,
                stream: 0
            },
            Event::Free { block: 0 },
            Event::Allocate {
                block: 1,
                bytes: 200,
                stream: 3
            },
        ]
    );
    assert_eq!(trace.streams(), [0, 3]);
    assert_eq!(trace.largest_block_bytes(), 200);
    assert_eq!(trace.peak_live_bytes(), 200);
}

#[test]
fn times_groups_and_shortages_are_read_and_written_as_they_were() {
    let text = "g 0 layer 1, weights\ng 1 src/main.rs:7\na 1 100 0 5 0\na 2 50 3 5\no 900 0 7 1\nf 1 9\no 1 2 9\n";
    let trace = parse(text).unwrap();
    assert_eq!(trace.groups(), ["layer 1, weights", "src/main.rs:7"]);
    assert_eq!(
        (trace.group_of(0), trace.group_of(1)),
        (Some("layer 1, weights"), None)
    );
    let times: Vec<_> = (0..4).map(|event| trace.time_of(event)).collect();
    assert_eq!(times, [Some(5), Some(5), Some(9), None]);
    let [first, last] = trace.shortages() else {
        panic!("two allocations failed")
    };
    assert_eq!(
        (first.events_before, first.bytes, first.stream),
        (2, 900, 0)
    );
    assert_eq!((first.time, first.group), (7, Some(1)));
    assert_eq!((last.events_before, last.bytes, last.stream), (3, 1, 2));
    assert_eq!(trace.to_string(), text);
}

#[test]
fn a_line_without_a_time_has_that_of_the_line_before() {
    let trace = parse("a 1 100 0\na 2 100 0 40\nf 1\n").unwrap();
    let times: Vec<_> = (0..3).map(|event| trace.time_of(event)).collect();
    assert_eq!(times, [Some(0), Some(40), Some(40)]);
    let untimed = parse("a 1 100 0\nf 1\n").unwrap();
    assert_eq!(untimed.time_of(0), None);
    assert_eq!(untimed.to_string(), "a 1 100 0\nf 1\n");
}

#[test]
fn a_wrong_line_is_named_with_what_was_expected() {
    assert_eq!(problem(b"a 0 1 0\nx 0\n"), (2, form()));
    assert_eq!(
        problem(b"a 0 1 0 0 0\n"),
        (
            1,
            wrong("group 0 is unknown: expected a line \"g 0 NAME\" before")
        )
    );
    assert_eq!(
        problem(b"g 0 x\na 0 1 0 0 0 0\n"),
        (
            2,
            wrong("stack 0 is unknown: expected a line \"k 0 FRAME\" before")
        )
    );
    assert_eq!(problem(b"g 0 x\nk 0 y\na 0 1 0 0 0 0 0\n"), (3, form()));
    assert_eq!(problem(b"g\n"), (1, number("GROUP", u64::MAX)));
    assert_eq!(
        problem(b"g 0 x\ng 0 y\n"),
        (
            2,
            wrong("group 0 has a name already: expected each group once")
        )
    );
    assert_eq!(
        problem(b"a 0 1 0 9\nf 0 8\n"),
        (
            2,
            wrong("time 8 ns comes after 9 ns: expected times that do not fall")
        )
    );
    assert_eq!(problem(b"f 0 0\n"), (1, not_live(0)));
    assert_eq!(
        problem(b"a 0 1\n"),
        (1, number("STREAM", u64::from(u32::MAX)))
    );
    assert_eq!(problem(b"a 0 -1 0\n"), (1, number("BYTES", u64::MAX)));
    assert_eq!(
        problem(b"a 0 18446744073709551616 0\n"),
        (1, number("BYTES", u64::MAX))
    );
    assert_eq!(problem(b"a\n"), (1, number("ID", u64::MAX)));
    assert_eq!(
        problem(b"# x\na 7 1 0\n\na 7 1 0\n"),
        (
            4,
            wrong("block 7 is allocated already, in line 2: expected an ID that no live block has")
        )
    );
    assert_eq!(problem(b"a 7 1 0\nf 7\nf 7\n"), (3, not_live(7)));
    assert_eq!(
        problem(b"a 0 1 0\n\xff\xfe\n"),
        (2, wrong("expected text in UTF-8"))
    );
    let error = Trace::parse("dir/t.trace", &b"a 0 1 0\na 1 12x 0\n"[..]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "dir/t.trace, line 2: expected BYTES to be a number up to 18446744073709551615; \
         the line is \"a 1 12x 0\""
    );
    let long = format!("a 0 {} 0", "9".repeat(500));
    assert!(parse(&long).unwrap_err().to_string().len() < 200);
}

const RECORDED: &str = "\
h version 2
h program train and more
h device pocl
h colour blue
h capacity 1000000
h limit 70000
h blocks segments
g 0 weights
k 0 layer at train/src/lib.rs:7
k 0 train::main at train/src/main.rs:9
s 9 65536 0
p miss 4096 0 too little is free
b 1 9 4096 1024 3
a 257 1000 0 3 0 0
p trim 0 4 to 0 bytes
o 90000 0 5 0 0
r verdict=limited class_bytes=90112 active_bytes=1000 active_blocks=1 viewed_bytes=0 managed_bytes=65536 held_bytes=64512 \
pending_bytes=0 largest_held_bytes=60416 released_bytes=0 largest_block_bytes=70000 capacity_bytes=70000 device_bytes=1000000
f 257 9
S 9 12
m 11 0 4096 12
M 11 0 4096 13
";

#[test]
fn control_characters_separate_words_and_end_no_text() {
    let with_controls = "h version 2\nh\0program \u{85}a\u{7f}b\x0b\na\x0b0 100\t0 1 \0\ng 0 \u{85}x\0\0y\0\np begin 7 1 \0\0\np miss 8 2 \0\0 too\u{9f}long \0\n";
    let written = parse(with_controls).unwrap().to_string();
    assert_eq!(parse(&written).unwrap().to_string(), written);
    assert!(written.contains("p miss 8 2 too long\n"), "{written}");
    assert!(written.contains("p begin 7 1\n"), "{written}");
    assert!(written.contains("h program a b\n"), "{written}");
}

#[test]
fn what_the_pool_did_is_read_and_written_again() {
    let trace = parse(RECORDED).unwrap();
    assert_eq!(trace.to_string(), RECORDED);
    assert_eq!(trace.header_value("program"), Some("train and more"));
    assert_eq!(
        trace.header_value("colour"),
        Some("blue"),
        "unknown keys are kept"
    );
    let actions: Vec<_> = trace
        .pool_steps()
        .iter()
        .map(|step| (step.events_before, step.time, &step.event))
        .collect();
    assert_eq!(actions.len(), 7);
    assert_eq!(
        actions[0],
        (
            0,
            0,
            &PoolEvent::Taken {
                memory: 9,
                bytes: 65536
            }
        )
    );
    let placed = PoolEvent::Placed {
        block: 1,
        memory: 9,
        offset: 4096,
        bytes: 1024,
    };
    assert_eq!(actions[2], (0, 3, &placed));
    assert_eq!(actions[4], (2, 12, &PoolEvent::GivenBack { memory: 9 }));
    assert_eq!(
        trace.stacks()[trace.stack_of(0).unwrap()][1],
        "train::main at train/src/main.rs:9"
    );
    let shortage = trace.shortages()[0];
    assert_eq!((shortage.events_before, shortage.stack), (1, Some(0)));
    let report = shortage.report.unwrap();
    assert_eq!(
        (report.verdict, report.largest_held_bytes),
        (Verdict::Limited, 60416)
    );
    // With other sizes none of that holds.
    let other = trace.clone().scaled_down(2);
    assert!(other.pool_steps().is_empty() && other.shortages()[0].report.is_none());
    assert_eq!(trace.scaled_down(1).pool_steps().len(), 7);
    let newer = RECORDED.replace("class_bytes", "unheard_of=7 class_bytes");
    assert_eq!(parse(&newer).unwrap().to_string(), RECORDED);
}

proptest! {
    #[test]
    fn a_damaged_recording_is_an_error_or_a_trace_whose_history_adds_up(
        damage in prop::collection::vec((any::<usize>(), any::<usize>(), 0..4_u8), 1..6),
    ) {
        let mut lines: Vec<Vec<String>> = RECORDED
            .lines()
            .map(|line| line.split(' ').map(str::to_owned).collect())
            .collect();
        for (line, word, what) in damage {
            let line = line % lines.len();
            let word = word % lines[line].len();
            match what {
                0 => lines[line][word] = u64::MAX.to_string(),
                1 => lines[line][word] = word.to_string(),
                2 => lines.insert(line, lines[word].clone()),
                _ if lines.len() > 1 => drop(lines.remove(line)),
                _ => {}
            }
        }
        let lines: Vec<_> = lines.iter().map(|words| words.join(" ")).collect();
        if let Ok(trace) = parse(&lines.join("\n")) {
            let written = trace.to_string();
            let again = parse(&written).unwrap();
            prop_assert_eq!(again.pool_steps(), trace.pool_steps());
            prop_assert_eq!(again.header(), trace.header());
            prop_assert_eq!(again.to_string(), written);
            if let Some(history) = History::happened(&trace) {
                prop_assert_eq!(history.numbers().blocks, trace.allocations());
            }
        }
    }
}

#[test]
fn a_wrong_line_about_the_pool_is_named_with_what_was_expected() {
    assert_eq!(
        problem(b"h device x\n"),
        (
            1,
            wrong("expected the header to begin with \"h version NUMBER\", once")
        )
    );
    assert_eq!(problem(b"h version 4\n"), (1, number("the version", 3)));
    assert_eq!(kind("h version 4\n"), TraceErrorKind::Version);
    assert_eq!(kind("h version 2\nh limit x\n"), TraceErrorKind::Malformed);
    assert_eq!(problem(b"h version\n"), (1, number("the version", 3)));
    assert_eq!(
        problem(b"h version 2\nh version 2\n"),
        (
            2,
            wrong("expected the header to begin with \"h version NUMBER\", once")
        )
    );
    assert_eq!(
        problem(b"h version 2\nh a 1\nh a 2\n"),
        (3, wrong("expected the key \"a\" of the header once"))
    );
    assert_eq!(
        problem(b"h version 2\nh limit x\n"),
        (2, number("the limit", u64::MAX))
    );
    assert_eq!(
        problem(b"a 0 1 0\nh version 2\n"),
        (2, wrong("expected the header before all other lines"))
    );
    assert_eq!(problem(b"s 1\n"), (1, number("BYTES", u64::MAX)));
    assert_eq!(problem(b"s 1 2 3 4\n"), (1, form()));
    assert_eq!(
        problem(b"S 1 9\nb 1 1 0 1 8\n"),
        (
            2,
            wrong("time 8 ns comes after 9 ns: expected times that do not fall")
        )
    );
    assert_eq!(problem(b"b 1 1 -1 1 8\n"), (1, number("OFFSET", u64::MAX)));
    assert_eq!(problem(b"p\n"), (1, form()));
    assert_eq!(problem(b"p miss\n"), (1, number("BYTES", u64::MAX)));
    assert_eq!(problem(b"k\n"), (1, number("STACK", u64::MAX)));
    assert_eq!(
        problem(b"r verdict=limited\n"),
        (
            1,
            wrong("expected a line \"o BYTES STREAM\" before, which has no report yet")
        )
    );
    assert_eq!(
        problem(b"o 1 0\nr verdict=limited\nr verdict=limited\n"),
        (
            3,
            wrong("expected a line \"o BYTES STREAM\" before, which has no report yet")
        )
    );
    assert_eq!(
        problem(b"o 1 0\nr verdict=other\n"),
        (
            2,
            wrong(
                "expected the verdict to be one of never_fits, limited, fragmented, pending, viewed, device_full"
            )
        )
    );
    assert_eq!(
        problem(b"o 1 0\nr held_bytes=x\n"),
        (2, number("held_bytes", u64::MAX))
    );
    assert_eq!(problem(b"o 1 0\nr held_bytes\n"), (2, form()));
}

#[test]
fn an_empty_trace_is_no_trace() {
    assert_eq!(kind(""), TraceErrorKind::NoAllocation);
    assert_eq!(kind("# nothing\n"), TraceErrorKind::NoAllocation);
}

#[test]
fn a_compressed_trace_is_decompressed_and_a_damaged_one_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.trace.gz");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(b"a 0 1 0\nf 0\n").unwrap();
    let whole = encoder.finish().unwrap();
    fs::write(&path, &whole).unwrap();
    assert_eq!(Trace::open(&path).unwrap().allocations(), 1);
    fs::write(&path, &whole[..whole.len() - 6]).unwrap();
    let error = Trace::open(&path).unwrap_err();
    assert_eq!(error.kind(), TraceErrorKind::Io);
    assert!(error.to_string().contains("x.trace.gz"), "{error}");
    fs::write(&path, "a 0 1 0\n").unwrap();
    for path in [path, folder.path().join("none")] {
        assert_eq!(Trace::open(&path).unwrap_err().kind(), TraceErrorKind::Io);
    }
}

#[test]
fn scaling_divides_sizes_but_loses_no_block() {
    let trace = parse("a 0 1000 0\na 1 3 0\na 2 0 0\n")
        .unwrap()
        .scaled_down(100);
    assert_eq!(trace.to_string(), "a 0 10 0\na 1 1 0\na 2 0 0\n");
}

/// Counted by another program.
#[test]
fn the_recorded_traces_have_the_known_peaks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces");
    let expected = [
        ("boxtree_builds", 7_425, 90_059_542, 24_463_936),
        ("eager_arrays", 4_472, 537_018_368, 201_326_592),
        ("gnn_sampled_train", 23_947, 2_716_035_780, 1_681_572_864),
        ("gpt2_varlen_train", 43_434, 13_523_171_200, 1_646_419_320),
        ("resnet50_train", 7_168, 3_265_807_076, 488_149_776),
    ];
    for (name, allocations, peak, largest) in expected {
        let trace = Trace::open(&folder.join(format!("{name}.trace.gz"))).unwrap();
        assert_eq!(trace.allocations(), allocations, "{name}");
        assert_eq!(trace.peak_live_bytes(), peak, "{name}");
        assert_eq!(trace.largest_block_bytes(), largest, "{name}");
    }
}

proptest! {
    #[test]
    fn what_is_written_can_be_read(
        steps in prop::collection::vec((any::<usize>(), 0_u32..4, any::<prop::sample::Index>()), 1..50),
    ) {
        let mut text = String::new();
        let mut live = Vec::new();
        for (id, (bytes, stream, index)) in steps.into_iter().enumerate() {
            writeln!(text, "a {id} {bytes} {stream}").unwrap();
            live.push(id);
            if bytes % 2 == 0 {
                let freed = live.swap_remove(index.index(live.len()));
                writeln!(text, "f {freed}").unwrap();
            }
        }
        prop_assert_eq!(parse(&text).unwrap().to_string(), text);
    }

    #[test]
    fn any_bytes_give_a_trace_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _either = Trace::parse("t", &bytes[..]);
    }

    #[test]
    fn any_words_give_a_trace_or_an_error(text in "([af#] ?[0-9x]{0,3} ?[0-9]{0,25} ?[0-9]{0,3}\n?){0,20}") {
        if let Ok(trace) = parse(&text) {
            let again = parse(&trace.to_string()).unwrap();
            prop_assert_eq!(trace.events(), again.events());
        }
    }
}
