//! `binpool view`: draws a recording as a page.

use std::{
    error::Error,
    fs::{self, File},
    io::{self, Cursor, Read},
    path::Path,
};

use binpool_allocators::words;
use binpool_recordings::{
    Content,
    view::{Comparison, Origin, SnapshotNumbers, page_of},
};
use binpool_replay::report::memory_report;
use binpool_trace::{Snapshot, TraceError, shown};
use serde::Serialize;

use crate::command::{
    histories::{Histories, histories_of},
    output::{is_standard_input, name_of, open_trace_beyond, print, print_report, remark},
    view_options::View,
    whole_file::{keep_inputs, write_file},
};

/// The most times its size that a compressed snapshot of a pool may expand to. Snapshots repeat much, as PyTorch's do.
const EXPANDS: u64 = 100;

/// What a file has.
enum Input {
    /// A recording of any kind.
    Recording(Content<'static>),
    /// A snapshot of a pool.
    Snapshot(Box<Snapshot>),
}

/// Writes the page, and prints its numbers if requested. Returns `true`: failures are errors.
pub(crate) fn view(options: &View) -> Result<bool, Box<dyn Error>> {
    let file = &options.file;
    if options.report {
        let trace = open_trace_beyond(file, options.device, &options.beyond)?;
        print_report(&memory_report(&trace.scaled_down(options.scale)))?;
        return Ok(true);
    }
    if let Some(page) = options.page() {
        keep_inputs(&page, options.inputs())?;
    }
    let input = open(file, &options.beyond)?;
    let Some(after) = &options.after else {
        match input {
            Input::Recording(content) => view_trace(options, content)?,
            Input::Snapshot(snapshot) => view_snapshot(options, &snapshot)?,
        }
        return Ok(true);
    };
    if is_standard_input(file) && is_standard_input(after) {
        return Err("only one of the files can come from standard input: name the other".into());
    }
    match (input, open(after, &options.beyond)?) {
        (Input::Recording(before), Input::Recording(content)) => {
            let (before, by) = histories_of(options, file, true, before)?.into_busiest();
            let (after, _) = histories_of(options, after, true, content)?.into_busiest();
            let by = options.by.unwrap_or(by);
            let sides = [&before, &after];
            let comparison = Comparison::of_histories(sides);
            let page = || comparison.page_of_histories(sides, by);
            show(options, || &comparison, page)?;
        }
        (Input::Snapshot(before), Input::Snapshot(snapshot)) => {
            let names = (name_of(file), name_of(after));
            let sides = [(names.0.as_str(), &*before), (names.1.as_str(), &*snapshot)];
            let comparison = Comparison::of_snapshots(sides);
            show(options, || &comparison, || comparison.page_of_snapshots())?;
        }
        _ => return Err(NotComparable(name_of(file), name_of(after)).into()),
    }
    Ok(true)
}

/// One file is a recording and the other a snapshot.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} and {1} are of different kinds: a recording can be compared with a recording, and a snapshot of a pool with a snapshot of a pool"
)]
struct NotComparable(String, String);

/// Prints the numbers and writes the page, as far as each of them is wanted.
fn show<N: Serialize>(
    options: &View,
    numbers: impl FnOnce() -> N,
    page: impl FnOnce() -> String,
) -> Result<(), Box<dyn Error>> {
    if options.json {
        print(&serde_json::to_string_pretty(&numbers())?)?;
    }
    options
        .page()
        .map_or(Ok(()), |path| write_page(options, &path, &page()))
}

/// Opens a file, and reads it if it is a snapshot.
fn open(file: &Path, beyond: &[String]) -> Result<Input, Box<dyn Error>> {
    let not_read = |error| TraceError::from(error).in_file(name_of(file));
    let content = if is_standard_input(file) {
        Content::new(io::stdin())
    } else {
        File::open(file).and_then(Content::new)
    };
    let content = content.map_err(not_read)?.beyond(beyond);
    if !content.is_json() {
        return Ok(Input::Recording(content));
    }
    // The format may be stated at its end.
    let mut text = Vec::new();
    let mut content = content.expanding_at_most(EXPANDS);
    content.read_to_end(&mut text).map_err(not_read)?;
    if !is_snapshot(&text) {
        let content = Content::new(Cursor::new(text))
            .map_err(not_read)?
            .beyond(beyond);
        return Ok(Input::Recording(content));
    }
    let snapshot = Snapshot::from_json(&String::from_utf8_lossy(&text));
    let snapshot = snapshot.map_err(|error| error.in_file(name_of(file)))?;
    Ok(Input::Snapshot(Box::new(snapshot)))
}

/// Returns whether it is JSON that names its format, which recordings of other tools do not.
fn is_snapshot(content: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Head {
        #[serde(rename = "format")]
        _format: serde::de::IgnoredAny,
    }
    serde_json::from_slice::<Head>(content).is_ok()
}

fn view_trace(options: &View, content: Content<'_>) -> Result<(), Box<dyn Error>> {
    let is_one = options.page().is_none();
    let histories = histories_of(options, &options.file, is_one, content)?;
    let Histories { all, busiest, by } = histories;
    let by = options.by.unwrap_or(by);
    let (_, history) = &all[busiest];
    if let Some(failed) = &history.out_of_memory {
        remark(&format!(
            "out of memory at {}: {}",
            failed.event, failed.report.verdict
        ));
    }
    if history.origin == Origin::Happened
        && let Some(report) = history.shortages.iter().find_map(|it| it.report)
    {
        remark(&format!(
            "out of memory, as it happened: {}",
            report.verdict
        ));
    }
    let named: Vec<_> = all.iter().map(|(name, of)| (name.as_str(), of)).collect();
    show(options, || history.numbers(), || page_of(&named, by))
}

fn view_snapshot(options: &View, snapshot: &Snapshot) -> Result<(), Box<dyn Error>> {
    let numbers = SnapshotNumbers::new(&name_of(&options.file), snapshot);
    show(options, || &numbers, || numbers.page(snapshot))
}

/// The page was written, but no browser opened it.
#[derive(Debug, thiserror::Error)]
#[error("{path} was written, but could not be opened: open it in a browser")]
struct NotOpened {
    path: String,
    source: io::Error,
}

/// Writes the page, says so, and opens it if requested.
fn write_page(options: &View, path: &Path, page: &str) -> Result<(), Box<dyn Error>> {
    write_file(path, page)?;
    // What a pipe or a device was given has no name to open.
    if !fs::metadata(path).is_ok_and(|file| file.is_file()) {
        return Ok(());
    }
    let name = shown(path.display());
    let bytes = words::bytes(page.len() as u64);
    if options.open {
        remark(&format!("wrote {name} ({bytes})"));
        open::that_detached(path).map_err(|source| NotOpened { path: name, source })?;
    } else {
        remark(&format!("wrote {name} ({bytes}): open it in a browser"));
    }
    Ok(())
}
