//! The log of RAPIDS Memory Manager's `logging_resource_adaptor`: a table with a line an event.
//!
//! Times are those of a clock on the wall, to the microsecond: `14:21:19.998533`, or `14:21:19:998533` from older versions. They
//! begin anew at midnight. RMM's guide has seconds instead, and the action `deallocate`; both are taken.

use std::io::BufRead;

use csv::{Reader, StringRecord};

use super::{
    ImportError,
    blocks::{Block, Blocks, Moment},
};
use crate::trace::{Trace, error::ImportProblem};

/// What every log begins with.
pub(crate) const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

const NS_PER_S: u64 = 1_000_000_000;
const DAY: u64 = 24 * 3600 * NS_PER_S;

/// The trace of a log.
pub(crate) fn import(reader: impl BufRead, name: String) -> Result<Trace, ImportError> {
    let mut reader = Reader::from_reader(reader);
    let mut blocks = Blocks::default();
    let mut clock = Clock::default();
    let mut without_address = 0;
    let mut record = StringRecord::new();
    loop {
        match reader.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return Err(table_error(error)),
        }
        let line = record.position().map_or(0, csv::Position::line);
        let wrong = |problem| ImportError::at(format!("line {line}"), problem);
        let [
            Some(_),
            Some(time),
            Some(action),
            Some(address),
            Some(size),
            Some(stream),
        ] = [0, 1, 2, 3, 4, 5].map(|column| record.get(column))
        else {
            // The parser has counted the columns.
            continue;
        };
        let field = |field, expected| wrong(ImportProblem::Field { field, expected });
        let time = parse_time(time).ok_or_else(|| field("Time", "like 14:21:19.998533"))?;
        let address =
            parse_pointer(address).ok_or_else(|| field("Pointer", "a hexadecimal number"))?;
        let bytes = size
            .parse()
            .map_err(|_| field("Size", "a number of bytes"))?;
        let stream =
            parse_pointer(stream).ok_or_else(|| field("Stream", "a hexadecimal number"))?;
        let moment = Moment {
            time: Some(clock.read(time)),
            line: usize::try_from(line).unwrap_or(usize::MAX),
        };
        let block = Block {
            address,
            bytes,
            stream: stream.into(),
            group: None,
        };
        match action {
            "allocate failure" => blocks.fail(block, moment),
            "allocate" | "free" | "deallocate" if address == 0 => without_address += 1,
            "allocate" => blocks.allocate(block, moment),
            "free" | "deallocate" => blocks.free(block, moment),
            action => {
                return Err(wrong(ImportProblem::Action {
                    action: action.chars().take(40).collect(),
                    expected: "allocate, free or allocate failure",
                }));
            }
        }
    }
    let mut trace = blocks.into_trace(name, "line").ok_or_else(|| {
        let advice =
            "the adaptor that wrote the log has to be the one that the program allocates from";
        ImportError::at("the whole file", ImportProblem::NoAllocation { advice })
    })?;
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

fn table_error(error: csv::Error) -> ImportError {
    let place = error.position().map_or_else(
        || "the whole file".into(),
        |position| format!("line {}", position.line()),
    );
    let message = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(source) => ImportError::Read(source),
        _ => ImportError::at(place, ImportProblem::Table { message }),
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

/// A time in nanoseconds, since midnight or since whenever.
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

/// A clock that begins anew at midnight.
#[derive(Debug, Default)]
struct Clock {
    before: Option<u64>,
    /// The nanoseconds of the days that have gone by.
    days: u64,
}

impl Clock {
    fn read(&mut self, time: u64) -> u64 {
        // Less than that is threads whose lines are out of order.
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
