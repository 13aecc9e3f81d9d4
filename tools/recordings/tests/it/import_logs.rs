//! Logs of RMM as they are met: cut, joined, without a header, within other output, from other versions, in other encodings.

use std::io::Write as _;

use binpool_recordings::Trace;
use flate2::{Compression, write::GzEncoder};

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

const LINES: &str = "\
1,14:21:19.998533,allocate,0x30a000000,1048576,0x2
1,14:21:20.100533,allocate,0x30a100000,268435456,0x2
1,14:21:21.000000,allocate failure,0x0,536870912,0x2
2,14:21:21.661875,free,0x30a100000,268435456,0x2
2,14:21:32.661999,free,0x30a000000,1048576,0x2
";

/// What is in these lines.
const PROGRAM: &str = "\
a 13052674048 1048576 0 0
a 13053722624 268435456 0 102000000
o 536870912 0 1001467000
f 13053722624 1663342000
f 13052674048 12663466000
";

fn read(bytes: impl AsRef<[u8]>) -> Trace {
    Trace::read("t", bytes.as_ref(), None).unwrap()
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn in_utf16(text: &str) -> Vec<u8> {
    let units = "\u{feff}".encode_utf16().chain(text.encode_utf16());
    units.flat_map(u16::to_le_bytes).collect()
}

#[test]
fn the_encoding_of_a_log_and_its_line_ends_change_nothing() {
    let log = format!("{HEADER}{LINES}");
    let crlf = log.replace('\n', "\r\n");
    let spaced = log.replace(',', ", ");
    for form in [
        log.clone().into_bytes(),
        crlf.clone().into_bytes(),
        spaced.into_bytes(),
        format!("\u{feff}{crlf}").into_bytes(),
        in_utf16(&crlf),
        LINES.as_bytes().to_vec(),
        in_utf16(LINES),
    ] {
        for form in [compressed(&form), form] {
            let trace = read(&form);
            assert_eq!(trace.to_string(), PROGRAM);
            assert_eq!(trace.remarks(), [""; 0]);
        }
    }
}

#[test]
fn a_log_cut_anywhere_has_its_whole_lines() {
    let log = format!("{HEADER}{LINES}");
    let first = HEADER.len() + LINES.find('\n').unwrap() + 1;
    for end in first..log.len() {
        let cut = &log[..end];
        let whole = &cut[..=cut.rfind('\n').unwrap()];
        let trace = read(cut);
        let lines = read(whole).to_string();
        let remarks = trace.remarks();
        if trace.to_string() == lines && cut != whole {
            assert_eq!(
                remarks[0],
                "the last line is cut off: what comes before it is used"
            );
        } else {
            // Nothing is missing but the end of a number.
            assert!(
                cut == whole || trace.to_string().starts_with(&lines),
                "{cut}"
            );
        }
        // Of a compressed log, what could be decompressed.
        let compressed = compressed(log.repeat(2000).as_bytes());
        if end % 40 == 0 {
            let trace = read(&compressed[..compressed.len() - end]);
            let remark = "the compressed file is cut off: what comes before it is used";
            assert!(
                trace.remarks().iter().any(|text| text == remark),
                "{:?}",
                trace.remarks()
            );
        }
    }
}

#[test]
fn a_log_within_other_output_is_found_and_the_other_lines_are_counted() {
    let mut output = "23/12/27 20:21:31 INFO SparkContext: a, b, c, d, e, f\n\n".repeat(400);
    for line in LINES.lines() {
        output += line;
        output += "\n23/12/27 20:21:32 WARN spilling \u{1f4be}\n";
    }
    let trace = read(&output);
    assert_eq!(trace.to_string(), PROGRAM);
    assert_eq!(
        trace.remarks(),
        ["405 lines without an event of RMM: left out"]
    );
    // A plan of a query may be longer than any line of a log.
    let plan = "x".repeat(300_000);
    let trace = read(format!("{plan}\n{LINES}{plan}"));
    assert_eq!(trace.to_string(), PROGRAM);
    let damaged = LINES.replacen("268435456", "26843\u{fffd}456", 1);
    let trace = read(format!("{HEADER}{damaged}"));
    assert_eq!(
        trace.remarks()[0],
        "1 block: allocated before the recording began: allocated at its start"
    );
    assert_eq!(
        trace.remarks()[1],
        "1 line without an event of RMM: left out"
    );
}

#[test]
fn logs_one_after_the_other_are_runs_whose_memory_ends_with_them() {
    let first =
        "1,12:00:00.000001,allocate,0x1000,64,0x0\n1,12:00:00.000002,allocate,0x2000,32,0x0\n";
    let second = "9,12:05:00.000001,allocate,0x1000,16,0x0\n9,12:05:00.000002,free,0x1000,16,0x0\n";
    let trace = read(format!("{HEADER}{first}\u{feff}{HEADER}{second}"));
    assert_eq!(
        trace.to_string(),
        "g 0 thread 1\ng 1 thread 9\na 4096 64 0 0 0\na 8192 32 0 1000 0\nf 4096 1000\nf 8192 1000\n\
         a 4096 16 0 300000000000 1\nf 4096 300000001000\n"
    );
    let remark = "2 logs, one after the other: 2 blocks, live at the end of one that is not the last, freed there";
    assert_eq!(trace.remarks(), [remark]);
    // Times that begin again, and the same log twice.
    let trace = read(format!("{HEADER}{first}{HEADER}{first}"));
    assert_eq!((trace.allocations(), trace.peak_live_bytes()), (4, 96));
    let times = (0..6).map(|event| trace.time_of(event).unwrap());
    assert!(times.is_sorted());
}

#[test]
fn a_log_whose_only_line_is_cut_names_that_line() {
    let error = Trace::read("t", format!("{HEADER}1,14:21:19.99").as_bytes(), None);
    let error = error.unwrap_err();
    assert_eq!(error.place(), "line 2");
    assert!(error.message().starts_with("expected 6 columns"), "{error}");
}

#[test]
fn a_line_of_a_log_that_is_too_long_is_not_skipped_as_other_output_is() {
    let long = "x".repeat(300_000);
    let error = Trace::read("t", format!("{HEADER}{long}\n{LINES}").as_bytes(), None);
    assert_eq!(error.unwrap_err().place(), "line 2");
    assert_eq!(read(format!("{long}\n{LINES}")).to_string(), PROGRAM);
}

#[test]
fn the_header_names_the_columns_whatever_their_order() {
    let lines = |header: &str, change: fn(&[&str]) -> String| {
        let lines = LINES
            .lines()
            .map(|line| change(&line.split(',').collect::<Vec<_>>()));
        read(format!(
            "{header}\n{}\n",
            lines.collect::<Vec<_>>().join("\n")
        ))
    };
    let without_thread = |fields: &[&str]| fields[1..].join(",").replacen('.', ":", 1);
    for header in [
        "Time,Action,Pointer,Size,Stream",
        "an older version, without a header:",
    ] {
        assert_eq!(
            lines(header, without_thread).to_string(),
            PROGRAM,
            "{header}"
        );
    }
    let turned = |fields: &[&str]| fields.iter().rev().copied().collect::<Vec<_>>().join(",");
    let trace = lines("Stream,Size,Pointer,Action,Time,Thread", turned);
    assert_eq!(trace.to_string(), PROGRAM);
}

#[test]
fn blocks_of_several_threads_are_grouped_by_them() {
    let log = format!(
        "{HEADER}1,14:21:19.998533,allocate,0x100,1000,0x0\n2,14:21:19.998534,allocate,0x200,2000,0x0\n\
         2,14:21:19.998535,free,0x100,1000,0x0\n1,14:21:19.998536,allocate failure,0x0,9000,0x0\n"
    );
    let trace = read(log);
    assert_eq!(
        (trace.group_of(0), trace.group_of(1)),
        (Some("thread 1"), Some("thread 2"))
    );
}

/// What `rmm.csv_log()` returned.
#[test]
fn the_first_logs_of_rmm_have_groups() {
    let log = "\
Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs,Start,End,Elapsed,Location
Alloc,0,0x7fae06600000,0,80,0,0,1,8.1e-05,0.0074,0.00191666,/numba/cuda/driver.py:683
Alloc,0,0x7fae06700000,0,99,0,0,2,1.10649,1.1074,0.00191666,<path>/numba/utils.py:6
Free,0,0x7fae06600000,0,0,0,0,1,1.10798,1.10921,0.00122238,/numba/utils.py:678
";
    assert_eq!(
        read(log).to_string(),
        "g 0 /numba/cuda/driver.py:683\ng 1 <path>/numba/utils.py:6\n\
         a 140385407991808 80 0 0 0\na 140385409040384 99 0 1106409000 1\nf 140385407991808 1107899000\n"
    );
}

#[test]
fn a_trace_cut_in_its_last_line_is_read_up_to_there() {
    let trace = read("a 0 4096 0 1\nf 0 2\na 1 40");
    assert_eq!(trace.to_string(), "a 0 4096 0 1\nf 0 2\n");
    assert_eq!(trace.remarks(), ["line 3 is cut: left out"]);
    // A line with an end is not cut, but wrong.
    let error = Trace::read("t", &b"a 0 4096 0 1\na 1 40\n"[..], None).unwrap_err();
    assert_eq!(error.place(), "line 2", "{error}");
    for form in [
        in_utf16("# a trace\r\na 0 8 0\r\n"),
        b"\xef\xbb\xbfa 0 8 0\n".to_vec(),
    ] {
        assert_eq!(read(&form).to_string(), "a 0 8 0\n");
        assert_eq!(read(compressed(&form)).to_string(), "a 0 8 0\n");
    }
}

#[test]
fn a_log_without_a_line_that_can_be_read_names_the_first() {
    let error = Trace::read(
        "t",
        format!("{HEADER}\n1,now,free,0x1,1,0\n").as_bytes(),
        None,
    );
    let error = error.unwrap_err();
    assert_eq!(error.place(), "line 3");
    assert!(error.message().starts_with("expected Time to be "));
}
