//! Reads the log of RAPIDS Memory Manager's `logging_resource_adaptor`: a table with a line for each event.
//!
//! Times are wall-clock times to the microsecond: `14:21:19.998533`, or `14:21:19:998533` from older versions. They
//! start again at midnight. RMM's guide has seconds instead, and the action `deallocate`; both are accepted. RMM quotes no
//! field, so commas alone separate the columns.
//!
//! The header names the columns. Old versions have no threads, and `rmm.csv_log()`, which is older, has other names, and the line of the
//! program that asked. Logs are also met without a header, cut, one after the other, and within other output of a program: any line
//! that is an event is taken, and the others are counted.

use std::{
    collections::HashSet,
    io::{self, BufRead},
};

use binpool_allocators::words::{blocks, counted};
use binpool_trace::{TraceError, cut};

use super::{
    blocks::{Block, Blocks, Moment},
    kinds,
};

use crate::{Trace, error, text_lines::TextLine, text_lines::TextLines, text_lines::too_long};

const NS_PER_S: u64 = 1_000_000_000;
const DAY: u64 = 24 * 3600 * NS_PER_S;

/// The most characters of a location that count.
const LONGEST_LOCATION: usize = 240;

/// The most bytes that are read of a text to find the first line of a log.
const SEARCHED: usize = 1 << 20;

/// Reads the trace of a log, or of text that has one; `start` are the first bytes of it.
pub(crate) fn import(
    reader: impl BufRead,
    name: String,
    start: &[u8],
) -> Result<Trace, TraceError> {
    let mut lines = TextLines::new(reader);
    let mut log = Log::default();
    let mut read = 0;
    loop {
        let line = match lines.next() {
            Ok(Some(line)) => line,
            Ok(None) => break,
            // Of a compressed file.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && log.events > 0 => {
                log.cut = Some("the compressed file");
                break;
            }
            Err(error) => return Err(error.into()),
        };
        read += line.bytes.len();
        let place = format!("line {}", line.number);
        let problem = if line.is_too_long {
            // Other output of the program may have such lines.
            let is_skipped = log.columns.is_none() && lines.skip_rest(SEARCHED)?;
            if !is_skipped {
                return Err(too_long().at(place));
            }
            Some(too_long())
        } else {
            let may_be_cut = line.may_be_cut && log.events > 0;
            let problem = log.push(line).err();
            if may_be_cut && problem.is_some() {
                log.cut = Some("the last line");
                continue;
            }
            problem
        };
        if let Some(problem) = problem {
            log.others += 1;
            log.first_other.get_or_insert(problem.at(place));
        }
        if !log.is_log() && read > SEARCHED {
            break;
        }
    }
    log.into_trace(name, start)
}

/// Which column of a line has what.
#[derive(Clone, Copy, Debug)]
struct Columns {
    count: usize,
    time: usize,
    action: usize,
    pointer: usize,
    size: usize,
    stream: usize,
    /// The line of the program that asked.
    location: Option<usize>,
    /// The thread that asked.
    thread: Option<usize>,
}

impl Columns {
    /// Reads a header; `None` for any other line.
    fn named_by(line: &str) -> Option<Self> {
        let names: Vec<&str> = line.split(',').map(str::trim).collect();
        let place = |of: &[&str]| {
            let is_it = |name: &&str| of.iter().any(|own| name.eq_ignore_ascii_case(own));
            names.iter().position(is_it)
        };
        Some(Self {
            count: names.len(),
            time: place(&["Time", "Start"])?,
            action: place(&["Action", "Event Type"])?,
            pointer: place(&["Pointer", "Address"])?,
            size: place(&["Size", "Size (bytes)"])?,
            stream: place(&["Stream"])?,
            location: place(&["Location"]),
            thread: place(&["Thread"]),
        })
    }

    /// The columns of a line without a header: those of RMM's newer versions, or of those before, by the place of the action.
    fn guessed(fields: &[&str]) -> Self {
        let action = match *fields {
            [_, action, ..] if Action::named(action).is_some() => 1,
            _ => 2,
        };
        Self {
            count: action + 4,
            time: action - 1,
            action,
            pointer: action + 1,
            size: action + 2,
            stream: action + 3,
            location: None,
            thread: action.checked_sub(2),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Allocate,
    Free,
    Fail,
}

impl Action {
    fn named(name: &str) -> Option<Self> {
        match name {
            "allocate" | "Alloc" | "Realloc" => Some(Self::Allocate),
            "free" | "deallocate" | "Free" => Some(Self::Free),
            "allocate failure" => Some(Self::Fail),
            _ => None,
        }
    }
}

/// A log that is being read.
#[derive(Debug, Default)]
struct Log {
    blocks: Blocks,
    clock: Clock,
    /// The columns that the header names.
    columns: Option<Columns>,
    last: Moment,
    events: usize,
    /// The threads that have allocated.
    threads: HashSet<String>,
    without_address: usize,
    /// Lines that are no events.
    others: usize,
    first_other: Option<TraceError>,
    /// What is not whole.
    cut: Option<&'static str>,
    /// How many runs have ended, and the blocks that were live then.
    ended: (usize, usize),
}

impl Log {
    /// Returns whether a line of a log was read.
    fn is_log(&self) -> bool {
        self.columns.is_some() || self.events > 0
    }

    fn push(&mut self, line: TextLine<'_>) -> Result<(), TraceError> {
        let text = str::from_utf8(line.bytes.trim_ascii());
        let text = text.map_err(|_| TraceError::malformed("expected text in UTF-8"))?;
        // Files that were joined have byte order marks in their middle.
        let text = text.trim_start_matches('\u{feff}');
        if text.is_empty() {
            return Ok(());
        }
        if let Some(columns) = Columns::named_by(text) {
            if self.events > 0 {
                self.ended.0 += 1;
                self.ended.1 += self.blocks.end_run(self.last);
                self.clock.start_again();
            }
            self.columns = Some(columns);
            return Ok(());
        }
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        let columns = self.columns.unwrap_or_else(|| Columns::guessed(&fields));
        let expected = columns.count;
        if fields.len() != expected {
            let found = fields.len();
            return Err(TraceError::malformed(format_args!(
                "expected {expected} columns, as in the first line; there are {found}"
            )));
        }
        let field = error::field;
        let name = fields[columns.action];
        let action = Action::named(name).ok_or_else(|| {
            let name: String = name.chars().take(40).collect();
            TraceError::malformed(format_args!(
                "expected the action to be allocate, free or allocate failure; it is {name:?}"
            ))
        })?;
        let time = parse_time(fields[columns.time])
            .ok_or_else(|| field("Time", "like 14:21:19.998533"))?;
        let address = parse_pointer(fields[columns.pointer])
            .ok_or_else(|| field("Pointer", "a hexadecimal number"))?;
        let bytes = fields[columns.size].parse();
        let bytes = bytes.map_err(|_| field("Size", "a number of bytes"))?;
        let stream = parse_pointer(fields[columns.stream])
            .ok_or_else(|| field("Stream", "a hexadecimal number"))?;
        let location = columns.location.map(|column| fields[column]);
        let location = location.filter(|_| action != Action::Free);
        let named = location.filter(|name| !name.is_empty());
        let thread = columns.thread.map(|column| fields[column]);
        let thread = thread.filter(|_| action != Action::Free && columns.location.is_none());
        let thread = thread.map(|thread| format!("thread {thread}"));
        self.threads.extend(thread.clone());
        let group = named.or(thread.as_deref()).map(|name| {
            let name = name.replace(char::is_control, " ");
            self.blocks
                .group(cut(name.trim(), LONGEST_LOCATION).into_owned())
        });
        self.last = Moment {
            time: Some(self.clock.read(time)),
            line: line.number,
        };
        let block = Block {
            address,
            bytes,
            stream: stream.into(),
            group,
            stack: None,
        };
        self.events += 1;
        match action {
            Action::Fail => self.blocks.fail(block, None, self.last),
            _ if address == 0 => self.without_address += 1,
            Action::Allocate => self.blocks.allocate(block, self.last),
            Action::Free => self.blocks.free(block, self.last),
        }
        Ok(())
    }

    fn into_trace(mut self, name: String, start: &[u8]) -> Result<Trace, TraceError> {
        if self.threads.len() == 1 {
            // All blocks in one group would say nothing.
            self.blocks.forget_groups();
        }
        if !self.is_log() {
            return Err(kinds::foreign(start).at("line 1"));
        }
        if let (0, Some(error)) = (self.events, self.first_other) {
            return Err(error);
        }
        let advice =
            "the adaptor that wrote the log has to be the one that the program allocates from";
        let trace = self.blocks.into_trace(name, "line", None);
        let mut trace = trace.ok_or_else(|| error::no_allocation(advice).at("the whole file"))?;
        if self.without_address > 0 {
            let lines = counted(self.without_address as u64, "line");
            trace.push_remark(format!("{lines} without an address: left out"));
        }
        if self.others > 0 {
            let lines = counted(self.others as u64, "line");
            trace.push_remark(format!("{lines} without an event of RMM: left out"));
        }
        if let Some(what) = self.cut {
            trace.push_remark(format!("{what} is cut off: what comes before it is used"));
        }
        if let (ended @ 1.., live) = self.ended {
            let (runs, live) = (ended + 1, blocks(live as u64));
            trace.push_remark(format!(
                "{runs} logs, one after the other: {live}, live at the end of one that is not the last, freed there"
            ));
        }
        Ok(trace)
    }
}

/// A number as C++ prints pointers: `0x7f8a`, `7f8a`, `0`, `(nil)`.
fn parse_pointer(text: &str) -> Option<u64> {
    if text == "(nil)" {
        return Some(0);
    }
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let are_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    are_digits
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

/// A time in nanoseconds, since midnight or since any fixed moment.
fn parse_time(text: &str) -> Option<u64> {
    let number = |text: &str, digits: usize| {
        let are_digits = text.len() <= digits && text.bytes().all(|byte| byte.is_ascii_digit());
        are_digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    if text.contains("e-") {
        // Of a log that has just begun.
        return parse_small(text);
    }
    let (whole, part) = text.rsplit_once(['.', ':'])?;
    let nanos = number(&format!("{part:0<9}"), 9)?;
    let parts: Vec<u64> = whole
        .split(':')
        .map(|part| number(part, 12))
        .collect::<Option<_>>()?;
    let seconds = match parts[..] {
        [seconds] => seconds,
        [hours @ 0..24, minutes @ 0..60, seconds @ 0..=60] => (hours * 60 + minutes) * 60 + seconds,
        _ => return None,
    };
    seconds.checked_mul(NS_PER_S)?.checked_add(nanos)
}

/// A time of less than a second, as C++ prints it: `8.1e-05`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "from 0 to 1 000 000 000"
)]
fn parse_small(text: &str) -> Option<u64> {
    let seconds = text.parse::<f64>().ok()?;
    (0.0..1.0)
        .contains(&seconds)
        .then_some((seconds * 1e9) as u64)
}

/// A clock that starts again at midnight.
#[derive(Debug, Default)]
struct Clock {
    before: Option<u64>,
    /// The nanoseconds of the days that have passed.
    days: u64,
    /// The last time, if a log has begun since.
    start_after: Option<u64>,
}

impl Clock {
    /// Another log begins, later.
    fn start_again(&mut self) {
        self.start_after = self.before.map(|time| self.days.saturating_add(time));
        self.before = None;
    }

    fn read(&mut self, time: u64) -> u64 {
        if let Some(last) = self.start_after.take()
            && self.days.saturating_add(time) < last
        {
            // Its times may begin at 0, or be those of another day.
            self.days = last;
        }
        // A smaller step back comes from threads whose lines are out of order.
        if self
            .before
            .is_some_and(|before| time.saturating_add(DAY / 2) < before)
        {
            self.days = self.days.saturating_add(DAY);
        }
        self.before = Some(time);
        self.days.saturating_add(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_all_versions_are_read() {
        let noon = 12 * 3600 * NS_PER_S;
        assert_eq!(parse_time("12:00:01.000250"), Some(noon + 1_000_250_000));
        assert_eq!(parse_time("12:00:01:000250"), Some(noon + 1_000_250_000));
        assert_eq!(parse_time("1634567890.5"), Some(1_634_567_890_500_000_000));
        for wrong in [
            "",
            ".",
            "12",
            "24:00:00.0",
            "1:2.0000001",
            "1.0123456789",
            "1e-05x",
            "a:0:0.0",
            "12:00:01.-1",
        ] {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn midnight_is_no_step_back_and_a_line_out_of_order_is_no_midnight() {
        let mut clock = Clock::default();
        let late = DAY - 5_000;
        assert_eq!(clock.read(late), late);
        assert_eq!(clock.read(late - 1_000), late - 1_000);
        assert_eq!(clock.read(2_000), DAY + 2_000);
    }

    #[test]
    fn another_log_goes_on_after_the_one_before_unless_its_times_do() {
        let mut clock = Clock::default();
        assert_eq!(clock.read(100), 100);
        clock.start_again();
        assert_eq!((clock.read(100), clock.read(150)), (100, 150));
        clock.start_again();
        // They begin at 0 again.
        assert_eq!(
            (clock.read(40), clock.read(50), clock.read(45)),
            (190, 200, 195)
        );
        clock.start_again();
        assert_eq!((clock.read(60), clock.read(DAY)), (210, DAY + 150));
    }

    #[test]
    fn another_log_whose_hour_is_earlier_begins_after_the_one_before_and_no_day_later() {
        let (mut clock, hour) = (Clock::default(), DAY / 24);
        assert_eq!(clock.read(23 * hour), 23 * hour);
        clock.start_again();
        let times = (clock.read(hour), clock.read(2 * hour));
        assert_eq!(times, (24 * hour, 25 * hour));
    }

    #[test]
    fn pointers_are_read_as_they_are_printed() {
        assert_eq!(parse_pointer("0x30a000000"), Some(0x3_0a00_0000));
        assert_eq!(parse_pointer("0"), Some(0));
        assert_eq!(parse_pointer("(nil)"), Some(0));
        assert_eq!(parse_pointer("0x2"), Some(2));
        for wrong in ["", "0x", "+1", "x", "0x10000000000000000"] {
            assert_eq!(parse_pointer(wrong), None, "{wrong}");
        }
    }
}
