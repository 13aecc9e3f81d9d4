//! The recorded figures, as they lie in the repository.

use std::{collections::BTreeMap, fmt, str::FromStr};

const HEAD: &str = "\
# How many instructions a pair of allocation and free takes, by workload and pool: what scripts/instructions holds the code
# against. Written by `scripts/instructions --record`.
";

/// Instructions a pair, by benchmark, and who compiled it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recorded {
    /// The line that `rustc --version` prints.
    pub(crate) compiler: String,
    /// By the name of the benchmark.
    pub(crate) figures: BTreeMap<String, f64>,
}

/// A line that is none of the file's.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// Neither a figure nor the compiler.
    #[error("not a name and a number of instructions: {0:?}")]
    Line(String),
    /// No line says who compiled it.
    #[error("no line begins with `rustc`")]
    NoCompiler,
}

impl FromStr for Recorded {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let (mut compiler, mut figures) = (None, BTreeMap::new());
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with("rustc ") {
                compiler = Some(line.to_owned());
                continue;
            }
            let figure = line.split_once(char::is_whitespace).and_then(|(name, it)| {
                let figure = it.trim().parse().ok()?;
                Some((name.to_owned(), figure))
            });
            figures.extend([figure.ok_or_else(|| Unreadable::Line(line.to_owned()))?]);
        }
        Ok(Self {
            compiler: compiler.ok_or(Unreadable::NoCompiler)?,
            figures,
        })
    }
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HEAD}\n{}\n\n", self.compiler)?;
        let mut figures = self.figures.iter();
        figures.try_for_each(|(name, figure)| writeln!(f, "{name:<12}{figure:>10.1}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> Recorded {
        Recorded {
            compiler: "rustc 1.96.0 (30a34c682 2026-05-25)".to_owned(),
            figures: [("hot_pool", 155.0), ("mixed_pool", 1234.5)]
                .map(|(name, figure)| (name.to_owned(), figure))
                .into(),
        }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        assert_eq!(recorded().to_string().parse(), Ok(recorded()));
    }

    #[test]
    fn a_line_that_is_no_figure_is_an_error_that_shows_it() {
        for line in ["hot_pool", "hot_pool many"] {
            let text = format!("{}{line}\n", recorded());
            let read: Result<Recorded, _> = text.parse();
            assert_eq!(read, Err(Unreadable::Line(line.to_owned())));
        }
        let read: Result<Recorded, _> = "hot_pool 155".parse();
        assert_eq!(read, Err(Unreadable::NoCompiler));
    }
}
