//! Output to standard output and standard error, with colours.
//!
//! The library returns plain text. Here the most important lines are coloured, by how they begin; `anstream` removes the
//! colours where the output is not a terminal, where `NO_COLOR` is set, or with `--color never`. A message may quote a file, so
//! control characters of the text are escaped.

use std::{
    error::Error,
    fmt::Display,
    fs,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use anstyle::{AnsiColor, Style};
use binpool::PoolError;
use binpool_recordings::{Content, Trace};
use binpool_replay::report::named_beyond;
use binpool_trace::{TraceError, shown};
use clap::error::{ContextKind, ContextValue};

use crate::command::progress_bar::bar;

const HEADING: Style = Style::new().bold();
const BEST: Style = AnsiColor::Green.on_default().bold();
const ERROR: Style = AnsiColor::Red.on_default().bold();
const REMARK: Style = AnsiColor::Yellow.on_default();

/// The name of what is read from standard input.
pub(crate) const STANDARD_INPUT: &str = "standard input";

/// Writes `text` and a line break to standard output. A closed pipe, such as that of `head`, is not a failure: the reader
/// has all that it wanted.
pub(crate) fn print(text: &str) -> io::Result<()> {
    match writeln!(anstream::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Prints a report with colours for its headings and its best rows.
pub(crate) fn print_report(text: &str) -> io::Result<()> {
    print(&coloured(text))
}

/// Prints an error and its causes, down to the first line of the report of a pool that ran out of memory.
pub(crate) fn report(error: &dyn Error) {
    report_short_of(error, None);
}

/// The same, with a better reason why memory ran out, if there is one.
pub(crate) fn report_short_of(error: &dyn Error, reason: Option<&str>) {
    say(&format!("{ERROR}binpool:{ERROR:#} "), error);
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(report) = error.downcast_ref().and_then(PoolError::out_of_memory) {
            if let Some(reason) = reason {
                return say("  because: ", reason);
            }
            let text = report.to_string();
            let first = text.lines().next().unwrap_or_default();
            return say(
                "  because: ",
                format_args!("{first}; {}", report.verdict.advice()),
            );
        }
        say("  because: ", error);
        cause = error.source();
    }
}

/// Prints a remark, which is not a failure.
pub(crate) fn remark(text: &str) {
    say(&format!("{REMARK}binpool:{REMARK:#} "), text);
}

/// Prints a message to standard error. Where that is full or closed, only the exit status is left.
fn say(begin: &str, message: impl Display) {
    let message = message.to_string();
    let lines: Vec<String> = message.split('\n').map(shown).collect();
    let _not_said = writeln!(anstream::stderr(), "{begin}{}", lines.join("\n"));
}

/// Prints the parser's message: what is wrong with the command line, or the requested help. Returns
/// the exit status.
pub(crate) fn print_parsed(mut parsed: clap::Error) -> ExitCode {
    let quoted: Vec<_> = parsed
        .context()
        .filter_map(|(kind, value)| match value {
            ContextValue::String(text) if shown(text) != *text => Some((kind, shown(text))),
            _ => None,
        })
        .collect();
    for (kind, text) in quoted {
        parsed.insert(kind, ContextValue::String(text));
        // A suggestion quotes the text without escapes.
        parsed.remove(ContextKind::Suggested);
    }
    match parsed.print() {
        Err(error) if !parsed.use_stderr() && error.kind() != io::ErrorKind::BrokenPipe => {
            report(&error);
            ExitCode::FAILURE
        }
        _ if parsed.use_stderr() => ExitCode::from(2),
        _ => ExitCode::SUCCESS,
    }
}

/// Returns whether a name stands for standard input.
pub(crate) fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// Returns the name of a file, for display.
pub(crate) fn name_of(file: &Path) -> String {
    if is_standard_input(file) {
        STANDARD_INPUT.to_owned()
    } else {
        shown(file.display())
    }
}

/// Reads a trace, or a device of another tool's recording, and prints the remarks about the latter to standard error.
pub(crate) fn open_trace(path: &Path, device: Option<usize>) -> Result<Trace, TraceError> {
    open_trace_beyond(path, device, &[])
}

/// As [`open_trace`], with groups that are named beyond these packages.
pub(crate) fn open_trace_beyond(
    path: &Path,
    device: Option<usize>,
    beyond: &[String],
) -> Result<Trace, TraceError> {
    let trace = read_trace(path, device, beyond)?;
    print_remarks(&trace);
    Ok(named_beyond(trace, beyond))
}

/// Prints to standard error how the recording of a trace was interpreted.
pub(crate) fn print_remarks(trace: &Trace) {
    for text in trace.remarks() {
        remark(&format!("{}: {text}", trace.name()));
    }
}

fn read_trace(path: &Path, device: Option<usize>, beyond: &[String]) -> Result<Trace, TraceError> {
    let name = name_of(path);
    if is_standard_input(path) {
        return match Content::new(io::stdin()) {
            Ok(content) => Trace::read_content(name, content.beyond(beyond), device),
            Err(error) => Err(TraceError::from(error).in_file(name)),
        };
    }
    let bytes = fs::metadata(path).map_or(0, |file| file.len());
    let bar = bar(usize::try_from(bytes).unwrap_or(usize::MAX), &name);
    let progress = |read| bar.inc(read);
    let content = Content::open(path, &progress)?;
    Trace::read_content(name, content.beyond(beyond), device)
}

/// Colours the titles of tables, the devices, and the best settings of a report.
pub(crate) fn coloured(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(shown).collect();
    let styled = lines.iter().enumerate().map(|(index, line)| {
        let is_above_rule = line.starts_with('|')
            && lines[index..]
                .iter()
                .take_while(|line| line.starts_with('|'))
                .any(|line| line.starts_with("|--"))
            && !line.starts_with("|--");
        let is_device = line
            .strip_prefix('[')
            .and_then(|line| line.split_once("] "))
            .is_some_and(|(number, _)| number.parse::<usize>().is_ok());
        if line.contains("<-- best")
            || line.starts_with("best: ") && !line.contains("the least device time")
        {
            format!("{BEST}{line}{BEST:#}")
        } else if is_above_rule || is_device {
            format!("{HEADING}{line}{HEADING:#}")
        } else {
            line.clone()
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
best: the least device time among pools that reserve at most 1.15 times the live bytes

| a | b |
|---|---|
| 1 | <-- best |
| 2 |  |

best: segments 6
[0] a device (cpu, x)
";
        let styled = coloured(text);
        assert_eq!(anstream::adapter::strip_str(&styled).to_string(), text);
        let is_coloured = |line: &str| {
            styled
                .lines()
                .any(|own| own.contains('\x1b') && own.contains(line))
        };
        for line in ["| a | b |", "| 1 |", "best: segments 6", "[0] a device"] {
            assert!(is_coloured(line), "{line}");
        }
        for line in ["mock on", "best: the least", "|---", "| 2 |"] {
            assert!(!is_coloured(line), "{line}");
        }
    }
}
