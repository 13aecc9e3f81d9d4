//! What goes to standard output, standard error and files; and colours, where a terminal shows them.
//!
//! The library writes plain text. Here the lines that matter most get a colour, by what they begin with: `anstream` takes it
//! away again where the output is no terminal, where `NO_COLOR` is set, or with `--color never`.

use std::{
    error::Error,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anstyle::{AnsiColor, Style};
use binpool_replay::{Trace, TraceError};

use crate::command::progress::bar;

const HEADING: Style = Style::new().bold();
const BEST: Style = AnsiColor::Green.on_default().bold();
const ERROR: Style = AnsiColor::Red.on_default().bold();
const REMARK: Style = AnsiColor::Yellow.on_default();

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written", path.display())]
pub(crate) struct NotWritten {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

/// Writes a file, or says which one could not be.
pub(crate) fn write_file(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), NotWritten> {
    fs::write(path, contents).map_err(|source| NotWritten {
        path: path.to_owned(),
        source,
    })
}

/// Writes `text` and an end of line to standard output. A reader that has gone away, such as `head`, has read
/// what it wanted: that is no failure.
pub(crate) fn print(text: &str) -> io::Result<()> {
    match writeln!(anstream::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// The same for a report: its headings and its best rows are marked by colours.
pub(crate) fn print_report(text: &str) -> io::Result<()> {
    print(&coloured(text))
}

/// Prints an error and what caused it.
pub(crate) fn report(error: &dyn Error) {
    anstream::eprintln!("{ERROR}binpool:{ERROR:#} {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        anstream::eprintln!("  because: {error}");
        cause = error.source();
    }
}

/// Prints what people should know, but is no failure.
pub(crate) fn remark(text: &str) {
    anstream::eprintln!("{REMARK}binpool:{REMARK:#} {text}");
}

/// Reads a trace, or a device of another tool's recording, and says on standard error what was made of the latter.
pub(crate) fn open_trace(path: &Path, device: Option<usize>) -> Result<Trace, TraceError> {
    let bytes = fs::metadata(path).map_or(0, |file| file.len());
    let bar = bar(
        usize::try_from(bytes).unwrap_or(usize::MAX),
        &path.display().to_string(),
    );
    let trace = Trace::open_device(path, device, &|read| bar.inc(read))?;
    drop(bar);
    for text in trace.remarks() {
        remark(&format!("{}: {text}", trace.name()));
    }
    Ok(trace)
}

/// A report with colours: the titles of tables, devices, and what is best.
fn coloured(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let styled = lines.iter().enumerate().map(|(place, line)| {
        let is_above_rule = lines
            .get(place + 1)
            .is_some_and(|next| next.starts_with("|--"));
        let is_device = line
            .split_once(": ")
            .is_some_and(|(number, _)| number.parse::<usize>().is_ok());
        if line.contains("<-- best")
            || line.starts_with("best: ") && !line.contains("the least device time")
        {
            format!("{BEST}{line}{BEST:#}")
        } else if is_above_rule || is_device {
            format!("{HEADING}{line}{HEADING:#}")
        } else {
            (*line).to_owned()
        }
    });
    let mut styled = styled.collect::<Vec<_>>().join("\n");
    if text.ends_with('\n') {
        styled.push('\n');
    }
    styled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_and_the_best_are_coloured_and_no_letter_is_lost() {
        let text = "\
mock on x, immediate allocator
best: the least device time among pools that reserve at most 1.15 times what is live

| a | b |
|---|---|
| 1 | * <-- best |
| 2 | * |

best: segments 6
0: a device (cpu, x)
";
        let styled = coloured(text);
        assert_eq!(anstream::adapter::strip_str(&styled).to_string(), text);
        let is_coloured = |line: &str| {
            styled
                .lines()
                .any(|own| own.contains('\x1b') && own.contains(line))
        };
        for line in ["| a | b |", "| 1 |", "best: segments 6", "0: a device"] {
            assert!(is_coloured(line), "{line}");
        }
        for line in ["mock on", "best: the least", "|---", "| 2 |"] {
            assert!(!is_coloured(line), "{line}");
        }
    }
}
