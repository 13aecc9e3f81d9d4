//! The words of a line, read and written.

use crate::{TraceError, name::cut};

/// The most characters of a name or another text that are written, so that no line is too long to be read.
const LONGEST_TEXT: usize = 4096;

/// The words of a line that are not read yet. Spaces and control characters separate them: written text has a space for each of these.
pub(crate) struct Words<'t>(&'t str);

impl<'t> Words<'t> {
    pub(crate) fn of(line: &'t str) -> Self {
        Self(line.trim_matches(is_separator))
    }

    /// Returns the next word, and goes on after it.
    pub(crate) fn next(&mut self) -> Option<&'t str> {
        let end = self.0.find(is_separator).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest.trim_start_matches(is_separator);
        (!word.is_empty()).then_some(word)
    }

    /// Takes all words that are left; empty if there are none.
    pub(crate) fn take_rest(&mut self) -> &'t str {
        std::mem::take(&mut self.0)
    }

    /// Reads the next word as a number.
    pub(crate) fn number(&mut self, what: &'static str) -> Result<u64, TraceError> {
        number(self.next(), what, u64::MAX)
    }

    /// Reads the next word as a number, if there is one.
    pub(crate) fn number_if_any(&mut self, what: &'static str) -> Result<Option<u64>, TraceError> {
        match self.next() {
            None => Ok(None),
            word => number(word, what, u64::MAX).map(Some),
        }
    }

    /// Returns an error if words are left.
    pub(crate) fn end(&self) -> Result<(), TraceError> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(form())
    }
}

fn is_separator(letter: char) -> bool {
    letter == ' ' || letter.is_control()
}

/// The line is of no known form.
pub(crate) fn form() -> TraceError {
    TraceError::malformed(
        "expected \"a ID BYTES STREAM [TIME [GROUP [STACK]]]\", \"f ID [TIME]\", \"u ID STREAM [TIME]\", \
         \"o BYTES STREAM [TIME [GROUP [STACK]]]\", \"g GROUP NAME\", \"k STACK FRAME\", \"h KEY VALUE\", \
         \"s MEMORY BYTES [TIME]\", \"S MEMORY [TIME]\", \"b BLOCK MEMORY OFFSET BYTES [TIME]\", \
         \"p WHAT BYTES [TIME [TEXT]]\" or \"r KEY=NUMBER ...\"",
    )
}

/// Reads a number up to `largest`.
///
/// # Errors
///
/// Of the kind [`Malformed`](crate::TraceErrorKind::Malformed), with the name `what`.
pub fn number(word: Option<&str>, what: &'static str, largest: u64) -> Result<u64, TraceError> {
    let number = word.and_then(|word| word.parse().ok());
    number.filter(|number| *number <= largest).ok_or_else(|| {
        TraceError::malformed(format_args!(
            "expected {what} to be a number up to {largest}"
        ))
    })
}

/// Returns the eight digits of a number below 10^8, the first one in the lowest byte. They are computed at once, in half the time of one
/// after the other: a recording consists of numbers.
#[inline]
fn eight_digits(number: u64) -> u64 {
    // Two halves of four digits, then four parts of two, and then eight of one, each in bits of its own. The multiplications divide, by
    // 100 what is below 10000, and by 10 what is below 100.
    let halves = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | ((halves - 100 * hundreds) << 16);
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((pairs - 10 * tens) << 8)
}

/// Added to eight digits, their characters.
const ZEROS: u64 = u64::from_le_bytes(*b"00000000");

/// Appends a space and a number.
#[inline]
pub(crate) fn push_number(text: &mut Vec<u8>, number: u64) {
    if number >= 10_000_000 {
        return push_large_number(text, number);
    }
    let digits = eight_digits(number);
    // The first of the eight is zero, and makes room for the space. At least the last one counts.
    let leading = (digits | (1 << 56)).trailing_zeros() / 8 * 8;
    let word = (((digits + ZEROS) >> leading) << 8) | u64::from(b' ');
    text.extend_from_slice(&word.to_le_bytes());
    text.truncate(text.len() + 1 - leading as usize / 8);
}

#[inline(never)]
fn push_large_number(text: &mut Vec<u8>, number: u64) {
    const LIMIT: u64 = 100_000_000;
    let (before, digits) = (number / LIMIT, eight_digits(number % LIMIT));
    let mut leading = 0;
    if before > 0 {
        push_number(text, before);
    } else {
        text.push(b' ');
        leading = digits.trailing_zeros() / 8 * 8;
    }
    let word = (digits + ZEROS) >> leading;
    text.extend_from_slice(&word.to_le_bytes());
    text.truncate(text.len() - leading as usize / 8);
}

#[inline]
pub(crate) fn push_if_any(text: &mut Vec<u8>, number: Option<u64>) {
    if let Some(number) = number {
        push_number(text, number);
    }
}

/// Appends words with spaces between them, as one line of text whatever is in them.
pub(crate) fn push_words(text: &mut Vec<u8>, words: &[&str]) {
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            text.push(b' ');
        }
        let word = cut(word, LONGEST_TEXT).replace(char::is_control, " ");
        text.extend_from_slice(word.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(number: u64) -> Vec<u8> {
        let mut text = Vec::new();
        push_number(&mut text, number);
        text
    }

    #[test]
    fn numbers_of_any_length_are_written_as_the_standard_library_writes_them() {
        for digits in 0..20 {
            let power = 10_u64.pow(digits);
            for number in [
                power - 1,
                power,
                power + 1,
                7 * (power / 10),
                u64::MAX / power,
            ] {
                assert_eq!(written(number), format!(" {number}").into_bytes());
            }
        }
        // Every value of either half of eight digits.
        for half in 0..10_000 {
            for number in [half, half * 10_000 + 9_999] {
                assert_eq!(written(number), format!(" {number}").into_bytes());
            }
        }
    }

    proptest! {
        #[test]
        fn any_number_is_written_as_the_standard_library_writes_it(number in any::<u64>(), bits in 0..64) {
            let number = number >> bits;
            prop_assert_eq!(written(number), format!(" {number}").into_bytes());
        }
    }
}
