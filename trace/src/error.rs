//! Errors of reading a trace.

use std::io;

use crate::Problem;

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file could not be read, or does not have the format of its name.
    #[error("{name} cannot be read")]
    Read {
        /// The file.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// A line is wrong.
    #[error("{name}, line {line}: {problem}; the line is {text:?}")]
    Line {
        /// The file.
        name: String,
        /// The line's number, counted from 1.
        line: usize,
        /// What is wrong, and what was expected.
        problem: Problem,
        /// The line, or its beginning.
        text: String,
    },
    /// The recording of another tool is wrong.
    #[error("{name}, {place}: {problem}")]
    Import {
        /// The file.
        name: String,
        /// Where in it, in words: a line, a byte or an entry.
        place: String,
        /// What is wrong, and what was expected.
        problem: Problem,
    },
    /// There is nothing to replay.
    #[error("{name}: no allocation in it: expected lines like \"a 0 4096 0\" and \"f 0\"")]
    Empty {
        /// The file.
        name: String,
    },
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    /// The texts of an error and its causes. Asserts that no cause is repeated.
    fn told_once(error: &dyn Error) -> Vec<String> {
        let chain = std::iter::successors(Some(error), |&error| error.source());
        let texts: Vec<_> = chain.map(ToString::to_string).collect();
        for (index, cause) in texts.iter().enumerate() {
            let before = &texts[..index];
            assert!(!before.iter().any(|text| text.contains(cause)), "{texts:?}");
        }
        texts
    }

    #[test]
    fn errors_about_files_tell_each_cause_once() {
        let error = TraceError::Read {
            name: "here.trace".to_owned(),
            source: io::Error::other("it is a directory"),
        };
        assert_eq!(
            told_once(&error),
            ["here.trace cannot be read", "it is a directory"]
        );
        let line = TraceError::Line {
            name: "here.trace".to_owned(),
            line: 1,
            problem: Problem::Form,
            text: "x".to_owned(),
        };
        assert_eq!(told_once(&line).len(), 1);
    }
}
