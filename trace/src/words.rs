//! The words of a line, read and written.

use crate::TraceError;

/// The words of a line that are not read yet.
pub(crate) struct Words<'t>(&'t str);

impl<'t> Words<'t> {
    pub(crate) fn of(line: &'t str) -> Self {
        Self(line.trim_ascii())
    }

    /// Returns the next word, and goes on after it.
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
