//! Reads the log of RAPIDS Memory Manager's `logging_resource_adaptor`: a table with a line for each event.
//!
//! Times are wall-clock times to the microsecond: `14:21:19.998533`, or `14:21:19:998533` from older versions. They
//! start again at midnight. RMM's guide has seconds instead, and the action `deallocate`; both are accepted. RMM quotes no
//! field, so commas alone separate the columns.

use std::io::BufRead;

use super::{
    ImportError,
    blocks::{Block, Blocks, Moment},
};
use crate::trace::{
    Trace,
    error::ImportProblem,
    lines::{LONGEST_LINE, Line, Lines},
};

/// The first line of every log.
pub(crate) const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

const NS_PER_S: u64 = 1_000_000_000;
const DAY: u64 = 24 * 3600 * NS_PER_S;

/// Reads the trace of a log.
pub(crate) fn import(reader: impl BufRead, name: String) -> Result<Trace, ImportError> {
    let mut lines = Lines::new(reader);
    let mut log = Log::default();
    while let Some(line) = lines.next()? {
        log.push(line)
            .map_err(|problem| ImportError::at(format!("line {}", line.number), problem))?;
    }
    let mut trace = log.blocks.into_trace(name, "line", None).ok_or_else(|| {
        let advice =
            "the adaptor that wrote the log has to be the one that the program allocates from";
        ImportError::at("the whole file", ImportProblem::NoAllocation { advice })
    })?;
    let without_address = log.without_address;
    if without_address > 0 {
        let lines = if without_address == 1 {
            "line"
        } else {
            "lines"
        };
        trace.push_remark(format!(
            "{without_address} {lines} without an address: left out"
        ));
    }
    Ok(trace)
}

/// A log that is being read.
#[derive(Debug, Default)]
struct Log {
    blocks: Blocks,
    clock: Clock,
    /// The number of columns in the header, and in each line after it.
    columns: usize,
    without_address: usize,
}

impl Log {
    fn push(&mut self, line: Line<'_>) -> Result<(), ImportProblem> {
        if line.is_too_long {
            return Err(ImportProblem::TooLong {
                longest: LONGEST_LINE,
            });
        }
        let table = |message: String| ImportProblem::Table { message };
        let text = str::from_utf8(line.bytes.trim_ascii_end());
        let text = text.map_err(|_| table("expected text in UTF-8".into()))?;
        if text.is_empty() {
            return Ok(());
        }
        let columns = text.split(',').count();
        if line.number == 1 {
            self.columns = columns;
            return Ok(());
        }
        let mut fields = text.split(',').skip(1);
        let mut next = || fields.next();
        let (Some(time), Some(action), Some(address), Some(size), Some(stream), true) = (
            next(),
            next(),
            next(),
            next(),
            next(),
            columns == self.columns,
        ) else {
            let expected = self.columns;
            return Err(table(format!(
                "expected {expected} columns, as in the first line; there are {columns}"
            )));
        };
        let field = |field, expected| ImportProblem::Field { field, expected };
        let time = parse_time(time).ok_or_else(|| field("Time", "like 14:21:19.998533"))?;
        let address =
            parse_pointer(address).ok_or_else(|| field("Pointer", "a hexadecimal number"))?;
        let bytes = size
            .parse()
            .map_err(|_| field("Size", "a number of bytes"))?;
        let stream =
            parse_pointer(stream).ok_or_else(|| field("Stream", "a hexadecimal number"))?;
        let moment = Moment {
            time: Some(self.clock.read(time)),
            line: line.number,
        };
        let block = Block {
            address,
            bytes,
            stream: stream.into(),
            group: None,
            stack: None,
        };
        match action {
            "allocate failure" => self.blocks.fail(block, None, moment),
            "allocate" | "free" | "deallocate" if address == 0 => self.without_address += 1,
            "allocate" => self.blocks.allocate(block, moment),
            "free" | "deallocate" => self.blocks.free(block, moment),
            action => {
                return Err(ImportProblem::Action {
                    action: action.chars().take(40).collect(),
                    expected: "allocate, free or allocate failure",
                });
            }
        }
        Ok(())
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
    let (whole, micros) = text.rsplit_once(['.', ':'])?;
    let micros = number(&format!("{micros:0<6}"), 6)?;
    let parts: Vec<u64> = whole
        .split(':')
        .map(|part| number(part, 12))
        .collect::<Option<_>>()?;
    let seconds = match parts[..] {
        [seconds] => seconds,
        [hours @ 0..24, minutes @ 0..60, seconds @ 0..=60] => (hours * 60 + minutes) * 60 + seconds,
        _ => return None,
    };
    seconds.checked_mul(NS_PER_S)?.checked_add(micros * 1000)
}

/// A clock that starts again at midnight.
#[derive(Debug, Default)]
struct Clock {
    before: Option<u64>,
    /// The nanoseconds of the days that have passed.
    days: u64,
}

impl Clock {
    fn read(&mut self, time: u64) -> u64 {
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
