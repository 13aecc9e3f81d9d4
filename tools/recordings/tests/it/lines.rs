//! Each line of the format is read as it was written.

use std::borrow::Cow;

use binpool_recordings::Trace;
use binpool_trace::{Line, PoolEvent, Request, ShortageReport, Verdict, What};
use proptest::prelude::*;

fn written(line: &Line<'_>) -> String {
    let mut text = Vec::new();
    line.write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn a_line_of_each_kind_is_the_text_that_the_format_says() {
    let request = Request {
        bytes: 4096,
        stream: 2,
        time: Some(9),
        group: Some(1),
        stack: Some(3),
    };
    let pool = |event| Line::Pool {
        event: Cow::Owned(event),
        time: Some(9),
    };
    let what = What::Other("annotate".into());
    let cases = [
        (
            Line::Header {
                key: "device",
                value: "a device",
            },
            "h device a device\n",
        ),
        (
            Line::Group {
                group: 1,
                name: "the weights",
            },
            "g 1 the weights\n",
        ),
        (
            Line::Frame {
                stack: 3,
                frame: "main at m.rs:1",
            },
            "k 3 main at m.rs:1\n",
        ),
        (Line::Allocated { id: 7, request }, "a 7 4096 2 9 1 3\n"),
        (Line::Refused { request }, "o 4096 2 9 1 3\n"),
        (
            Line::Freed {
                id: 7,
                time: Some(9),
            },
            "f 7 9\n",
        ),
        (
            Line::Used {
                id: 7,
                stream: 2,
                time: Some(9),
            },
            "u 7 2 9\n",
        ),
        (
            pool(PoolEvent::Taken {
                memory: 5,
                bytes: 64,
            }),
            "s 5 64 9\n",
        ),
        (pool(PoolEvent::GivenBack { memory: 5 }), "S 5 9\n"),
        (pool(PoolEvent::Waiting { block: 8 }), "w 8 9\n"),
        (
            pool(PoolEvent::Placed {
                block: 1,
                memory: 5,
                offset: 2,
                bytes: 3,
            }),
            "b 1 5 2 3 9\n",
        ),
        (
            pool(PoolEvent::Mapped {
                reservation: 5,
                offset: 2,
                bytes: 3,
            }),
            "m 5 2 3 9\n",
        ),
        (
            pool(PoolEvent::Unmapped {
                reservation: 5,
                offset: 2,
                bytes: 3,
            }),
            "M 5 2 3 9\n",
        ),
        (
            pool(PoolEvent::did(What::Trim, 64, "to 0 bytes")),
            "p trim 64 9 to 0 bytes\n",
        ),
        (pool(PoolEvent::did(what, 0, "")), "p annotate 0 9\n"),
    ];
    for (line, text) in cases {
        assert_eq!(written(&line), text);
        assert_eq!(Line::read(text).unwrap(), Some(line));
        assert!(Line::looks_like_one(text), "{text}");
    }
}

#[test]
fn a_report_is_read_as_it_was_written_whatever_verdict_it_has() {
    for verdict in Verdict::ALL {
        let report = ShortageReport {
            class_bytes: 1,
            held_bytes: u64::MAX,
            device_free_bytes: Some(3),
            ..ShortageReport::new(verdict)
        };
        let event = Cow::Owned(PoolEvent::Report(Box::new(report)));
        let line = Line::Pool { event, time: None };
        let text = written(&line);
        assert!(text.starts_with(&format!("r verdict={}", verdict.name())));
        assert_eq!(Line::read(&text).unwrap(), Some(line));
        assert!(Line::looks_like_one(&text), "{text}");
    }
}

#[test]
fn a_name_is_one_line_of_text_whatever_is_in_it() {
    for (name, line) in [
        ("two\nlines", "g 1 two lines\n"),
        ("a\0b\r\u{1b}c\u{85}d", "g 1 a b  c d\n"),
        ("", "g 1 \n"),
        ("\n", "g 1  \n"),
    ] {
        assert_eq!(written(&Line::Group { group: 1, name }), line);
    }
    let long = "\u{10ffff}".repeat(70_000);
    let frame = Line::Frame {
        stack: 1,
        frame: &long,
    };
    let text = written(&frame);
    assert!(text.len() < 1 << 16 && text.ends_with("…\n"));
}

#[test]
fn a_recording_is_read_whatever_names_it_has() {
    for name in ["", " ", "\0", "\n", "two\nlines", &"a".repeat(1 << 17)] {
        let header = |key, value| Line::Header { key, value };
        let request = Request {
            bytes: 64,
            time: Some(1),
            group: Some(0),
            stack: Some(0),
            ..Request::default()
        };
        let lines = [
            header("version", "3"),
            header("program", name),
            Line::Group { group: 0, name },
            Line::Frame {
                stack: 0,
                frame: name,
            },
            Line::Allocated { id: 1, request },
        ];
        let text: String = lines.iter().map(written).collect();
        let trace = Trace::parse("t", text.as_bytes()).unwrap();
        assert_eq!((trace.allocations(), trace.groups().len()), (1, 1));
    }
}

proptest! {
    #[test]
    fn requests_are_read_as_they_were_written(
        id in any::<u64>(),
        (bytes, stream) in any::<(usize, u32)>(),
        time in any::<u64>(),
        group in any::<Option<u64>>(),
        stack in any::<Option<u64>>(),
    ) {
        let stack = group.and(stack);
        let request = Request { bytes, stream, time: Some(time), group, stack };
        let line = Line::Allocated { id, request };
        let text = written(&line);
        prop_assert_eq!(Line::read(&text).unwrap(), Some(line));
    }
}
