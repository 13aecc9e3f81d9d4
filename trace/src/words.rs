//! The words of a line, read and written.

use crate::TraceError;

/// The words of a line that are not read yet.
pub(crate) struct Words<'t>(&'t str);

impl<'t> Words<'t> {
    pub(crate) fn of(line: &'t str) -> Self {
        Self(line.trim_ascii())
    }

    /// Returns the next word, and goes on behind it.
    pub(crate) fn next(&mut self) -> Option<&'t str> {
        let mut bytes = self.0.bytes();
        let end = bytes.position(|byte| byte.is_ascii_whitespace());
        let (word, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest.trim_ascii_start();
        (!word.is_empty()).then_some(word)
    }

    /// Returns all words that are left; an error if there are none.
    pub(crate) fn rest(&self) -> Result<&'t str, TraceError> {
        if self.0.is_empty() {
            return Err(form());
        }
        Ok(self.0)
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
pub(crate) fn number(
    word: Option<&str>,
    what: &'static str,
    largest: u64,
) -> Result<u64, TraceError> {
    let number = word.and_then(|word| word.parse().ok());
    number.filter(|number| *number <= largest).ok_or_else(|| {
        TraceError::malformed(format_args!(
            "expected {what} to be a number up to {largest}"
        ))
    })
}

/// The digits of each number below 100.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// A line of a letter and numbers, which is made from its end to its beginning, in the order in which the digits of a number come out.
/// This takes a third of the time of appending them to a text one by one, and recordings consist of such lines.
pub(crate) struct NumberLine {
    /// Enough for a letter, six numbers and the end of the line.
    bytes: [u8; 128],
    /// Where the line begins so far.
    start: usize,
}

impl NumberLine {
    pub(crate) const fn new() -> Self {
        let mut bytes = [0; 128];
        bytes[127] = b'\n';
        Self { bytes, start: 127 }
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        self.start -= 1;
        self.bytes[self.start % 128] = byte;
    }

    /// Puts a space and a number before the line so far.
    #[inline]
    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 100 {
            let [tens, ones] = PAIRS[(number % 100) as usize];
            self.push(ones);
            self.push(tens);
            number /= 100;
        }
        let [tens, ones] = PAIRS[(number % 100) as usize];
        self.push(ones);
        if number >= 10 {
            self.push(tens);
        }
        self.push(b' ');
    }

    #[inline]
    pub(crate) fn number_if_any(&mut self, number: Option<u64>) {
        if let Some(number) = number {
            self.number(number);
        }
    }

    /// Appends the line to a text, with a letter before it.
    #[inline]
    pub(crate) fn append(mut self, letter: u8, text: &mut String) {
        self.push(letter);
        let line = &self.bytes[self.start % 128..];
        text.push_str(str::from_utf8(line).unwrap_or_default());
    }
}

/// Appends a space and a number.
#[inline]
pub(crate) fn push_number(text: &mut String, number: u64) {
    text.push(' ');
    text.push_str(itoa::Buffer::new().format(number));
}

#[inline]
pub(crate) fn push_if_any(text: &mut String, number: Option<u64>) {
    if let Some(number) = number {
        push_number(text, number);
    }
}

/// Appends words with spaces between them, as one line whatever is in them.
pub(crate) fn push_words(text: &mut String, words: &[&str]) {
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            text.push(' ');
        }
        text.push_str(&word.replace('\n', " "));
    }
}
