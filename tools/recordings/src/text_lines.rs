//! Reads text line by line, in no more memory than the longest allowed line takes.

use std::io::{self, BufRead, Read};

use binpool_trace::TraceError;

/// The most bytes of a line, without its end. A compressed file of some kilobytes may hold a line of gigabytes.
pub(crate) const LONGEST_LINE: usize = 1 << 16;

/// A line is longer than any event.
pub(crate) fn too_long() -> TraceError {
    TraceError::malformed(format_args!(
        "expected a line of at most {LONGEST_LINE} bytes"
    ))
}

/// The lines of a text.
#[derive(Debug)]
pub(crate) struct TextLines<R> {
    reader: R,
    /// The number of the line, counted from 1.
    number: usize,
    line: Vec<u8>,
}

/// A line of the text, including its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextLine<'l> {
    /// Its number, counted from 1.
    pub(crate) number: usize,
    /// Its bytes; only the beginning if the line is too long.
    pub(crate) bytes: &'l [u8],
    /// Set if it has more than [`LONGEST_LINE`] bytes.
    pub(crate) is_too_long: bool,
    /// Set if the text ends in this line, without an end of it: it may be cut.
    pub(crate) may_be_cut: bool,
    /// Set if the text ends in this line, in NUL bytes: the end of a file that was mapped, and was never cut to its length.
    pub(crate) ends_in_nuls: bool,
}

impl<R: BufRead> TextLines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader,
            number: 0,
            line: Vec::new(),
        }
    }

    /// Returns the next line; `None` at the end of the text.
    pub(crate) fn next(&mut self) -> io::Result<Option<TextLine<'_>>> {
        self.line.clear();
        let with_end = LONGEST_LINE as u64 + 1;
        let mut limited = (&mut self.reader).take(with_end);
        if limited.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let has_end = self.line.ends_with(b"\n");
        let ends_in_nuls = !has_end && self.has_only_nuls_left()?;
        let is_too_long = self.line.len() > LONGEST_LINE && !has_end;
        Ok(Some(TextLine {
            number: self.number,
            bytes: &self.line,
            is_too_long,
            may_be_cut: !has_end && !is_too_long,
            ends_in_nuls,
        }))
    }

    /// Returns whether the line has a NUL byte, and nothing else follows in the whole text.
    fn has_only_nuls_left(&mut self) -> io::Result<bool> {
        let are_nuls = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let first = self.line.iter().position(|byte| *byte == 0);
        if !first.is_some_and(|first| are_nuls(&self.line[first..])) {
            return Ok(false);
        }
        loop {
            let bytes = self.reader.fill_buf()?;
            if bytes.is_empty() || !are_nuls(bytes) {
                return Ok(bytes.is_empty());
            }
            let read = bytes.len();
            self.reader.consume(read);
        }
    }

    /// Skips the rest of a line that is too long. Returns whether it ended within the limit.
    pub(crate) fn skip_rest(&mut self, most: usize) -> io::Result<bool> {
        let mut skipped = 0;
        while skipped <= most {
            let bytes = self.reader.fill_buf()?;
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let read = end.map_or(bytes.len(), |end| end + 1);
            self.reader.consume(read);
            if end.is_some() || read == 0 {
                return Ok(true);
            }
            skipped += read;
        }
        Ok(false)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use super::*;

    fn are_too_long(text: &[u8]) -> Vec<bool> {
        let mut lines = TextLines::new(text);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push(line.is_too_long);
            if line.is_too_long {
                break;
            }
        }
        found
    }

    #[test]
    fn the_end_of_a_line_does_not_count() {
        let longest = vec![b'x'; LONGEST_LINE];
        assert_eq!(are_too_long(&longest), [false]);
        assert_eq!(are_too_long(&[&longest[..], b"\ny"].concat()), [false; 2]);
        assert_eq!(are_too_long(&[&longest[..], b"y\n"].concat()), [true]);
        assert_eq!(are_too_long(b""), [false; 0]);
    }
}
