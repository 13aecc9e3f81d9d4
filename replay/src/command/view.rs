//! `binpool view`.

use std::{
    error::Error,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Cursor, Read},
    path::{Path, PathBuf},
};

use binpool::{PoolOptions, words};
use binpool_replay::{Failure, Profile, simulate, timeline_svg};
use binpool_trace::{
    Content, Snapshot, Trace, TraceError, shown,
    view::{By, Comparison, History, Origin, SnapshotNumbers, page_of},
};
use bytesize::ByteSize;
use clap::{
    Args,
    builder::{NonEmptyStringValueParser, PathBufValueParser, TypedValueParser},
};

use crate::command::{
    histories::{Histories, Wanted, histories_of},
    output::{STANDARD_INPUT, is_standard_input, print, remark},
    progress_bar::bar,
    values::{at_least_one, by, leading_bits, size},
    whole_file::{keep_inputs, write_file},
};

/// Show a program's memory as a page for the browser: what uses it, why it ran out, and what is leaked or only cached.
///
/// FILE is a recording (see `binpool replay`) or a snapshot of a pool as JSON (`MemoryPool::snapshot`), compressed or not; its
/// content tells which. A recording of a pool, or a memory snapshot of PyTorch, says where each block lay and what the allocator did, and the page shows that;
/// the page of a snapshot of PyTorch has all of its devices in a menu, and what binpool would do with the same requests. Any other
/// trace is replayed once, through a pool on the simulated device, as are all with an option for the device or the pool. The page is one file, which needs no network and no server: open it from the disk,
/// or send it.
///
/// The page of a trace shows the bytes in use over time, stacked by group, size or stream, or block by block, and the reserved
/// bytes above them; the segments with all blocks in their places, at any moment; and a list of all events. Press ? in the page
/// for its keys and its filter. Where memory runs out, the page says why, and which blocks would have to end:
/// `--capacity` tries a smaller device.
///
/// With two files, the page shows both over time, side by side, and a table of the groups and call stacks whose bytes differ.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 when the page was written, also where the replay ran out of memory, which the page then explains; \
1 when the file could not be read or replayed, or the page not be written; 2 for a wrong command line.

Examples:
  binpool view replay/snapshots/tiny_gpt_train.pickle.gz --open
  binpool view --capacity 4GiB replay/traces/resnet50_train.trace.gz -o why.html
  binpool view snapshot.json -o now.html
  binpool view before.trace after.trace -o what_has_changed.html
  binpool view replay/traces/gpt2_varlen_train.trace.gz -o timeline.svg
  binpool view --json replay/traces/eager_arrays.trace.gz | jq .peak_active")]
pub(crate) struct View {
    /// A trace, or a snapshot of a pool; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Another one of the same kind, to show what is new, gone, or another size in it.
    #[arg(value_name = "AFTER")]
    after: Option<PathBuf>,
    /// Where the page goes. A name that ends on `.svg` gets the memory over time alone, as a picture. Default: the file's name with
    /// `.html`, or `comparison.html` for two files, in this folder; with `--json`, no page.
    #[arg(long, short, value_name = "PAGE.html", value_parser = page_name())]
    output: Option<PathBuf>,
    /// Open the page in a browser.
    #[arg(long)]
    open: bool,
    /// Print the numbers of the page as JSON.
    #[arg(long)]
    json: bool,
    /// Replay the trace on the simulated device, also if it says what happened.
    #[arg(long)]
    simulate: bool,
    /// What the blocks are grouped by at first. Default: group where the trace has groups, or else size.
    #[arg(long, value_parser = by())]
    by: Option<By>,
    /// Look beyond a package for the names of groups in a snapshot of PyTorch, such as einops: what it allocates belongs to its callers. For
    /// several, repeat it.
    #[arg(long, value_name = "PACKAGE", value_parser = NonEmptyStringValueParser::new())]
    beyond: Vec<String>,
    /// Which device of another tool's snapshot of several. Default: all, in a menu; for a picture or JSON, the one with most entries.
    #[arg(long, value_name = "N")]
    device: Option<usize>,
    /// The device whose limits the simulated device has: h200, pocl, none (the H200's limits, no costs), or a file that
    /// `binpool devices --measure -o FILE.json` wrote. Default: h200.
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<Profile>,
    /// The most memory that may be taken from the device, such as 12GiB. Default: all of it.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    capacity: Option<ByteSize>,
    /// Get every block from the device by itself, instead of carving blocks from segments.
    #[arg(long)]
    no_segments: bool,
    /// How many leading bits of a size tell size classes apart. Default: 8, or 4 without segments.
    #[arg(long, value_name = "BITS", value_parser = leading_bits())]
    leading_bits: Option<u32>,
    /// Divide every size by this.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    scale: usize,
}

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
        return Err("standard input has one file, not two: give the name of the other".into());
    }
    match (input, open(after, &options.beyond)?) {
        (Input::Recording(before), Input::Recording(content)) => {
            let replay = |trace: &Trace| replayed(options, trace);
            let one = |file, content| histories_of(&wanted(options, file, true, &replay), content);
            let (before, by) = one(file, before)?.into_busiest();
            let (after, _) = one(after, content)?.into_busiest();
            let by = options.by.unwrap_or(by);
            let sides = [&before, &after];
            let comparison = Comparison::of_histories(sides);
            if options.json {
                print(&serde_json::to_string_pretty(&comparison)?)?;
            }
            write_comparison(options, || comparison.page_of_histories(sides, by))?;
        }
        (Input::Snapshot(before), Input::Snapshot(snapshot)) => {
            let names = (name_of(file), name_of(after));
            let sides = [(names.0.as_str(), &*before), (names.1.as_str(), &*snapshot)];
            let comparison = Comparison::of_snapshots(sides);
            if options.json {
                print(&serde_json::to_string_pretty(&comparison)?)?;
            }
            write_comparison(options, || comparison.page_of_snapshots())?;
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

fn write_comparison(
    options: &View,
    page: impl FnOnce() -> io::Result<String>,
) -> Result<(), Box<dyn Error>> {
    let Some(path) = options.page() else {
        return Ok(());
    };
    if is_svg(&path) {
        return Err("two files are compared on a page: use a name that ends on .html".into());
    }
    write_page(options, &path, &page()?)
}

/// Opens a file, and reads it if it is a snapshot.
fn open(file: &Path, beyond: &[String]) -> Result<Input, Box<dyn Error>> {
    let not_read = |error| TraceError::from(error).in_file(name_of(file));
    let content = if is_standard_input(file) {
        Content::new(io::stdin())
    } else {
        File::open(file).and_then(Content::new)
    };
    let mut content = content.map_err(not_read)?.beyond(beyond);
    if !content.is_json().map_err(not_read)? {
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

/// Returns how the histories of a file are made. Where `is_one`, one of several is shown.
fn wanted<'w>(
    options: &'w View,
    file: &Path,
    is_one: bool,
    replay: &'w dyn Fn(&Trace) -> Result<History, Failure>,
) -> Wanted<'w> {
    Wanted {
        name: name_of(file),
        device: options.device,
        scale: options.scale,
        simulates: options.simulates(),
        is_one,
        replay,
    }
}

fn view_trace(options: &View, content: Content<'_>) -> Result<(), Box<dyn Error>> {
    let page = options.page();
    let is_picture = page.as_deref().is_none_or(is_svg);
    let replay = |trace: &Trace| replayed(options, trace);
    let wanted = wanted(options, &options.file, is_picture, &replay);
    let Histories { all, busiest, by } = histories_of(&wanted, content)?;
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
    if options.json {
        print(&serde_json::to_string_pretty(&history.numbers())?)?;
    }
    let Some(path) = page else {
        return Ok(());
    };
    let picture = if is_picture {
        timeline_svg(history, by)?
    } else {
        let named: Vec<_> = all.iter().map(|(name, of)| (name.as_str(), of)).collect();
        page_of(&named, by)?
    };
    write_page(options, &path, &picture)
}

fn replayed(options: &View, trace: &Trace) -> Result<History, Failure> {
    let bar = bar(trace.events().len(), trace.name());
    let capacity = options.capacity.map(|size| size.as_u64());
    let profile = options.profile.as_ref().unwrap_or(&Profile::H200);
    let history = simulate(trace, profile, capacity, &options.pool(), &|events| {
        bar.set_position(events as u64);
    })?;
    bar.finish_and_clear();
    Ok(history)
}

fn view_snapshot(options: &View, snapshot: &Snapshot) -> Result<(), Box<dyn Error>> {
    let numbers = SnapshotNumbers::new(&name_of(&options.file), snapshot);
    if options.json {
        print(&serde_json::to_string_pretty(&numbers)?)?;
    }
    let Some(path) = options.page() else {
        return Ok(());
    };
    if is_svg(&path) {
        return Err(
            "a snapshot is one moment, and has no memory over time to draw as SVG: \
             use a name that ends on .html"
                .into(),
        );
    }
    write_page(options, &path, &numbers.page(snapshot)?)
}

/// The page was written, but no browser opened it.
#[derive(Debug, thiserror::Error)]
#[error("{path} was written, and could not be opened: open it in a browser yourself")]
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

/// A parser of the name of a page or a picture: one with another ending would get something that its name does not say.
fn page_name() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        match path.extension().map(OsStr::to_string_lossy).as_deref() {
            None | Some("html" | "htm" | "svg") => Ok(path),
            Some(_) => {
                Err("expected a name that ends on .html, for a page, or on .svg, for a picture")
            }
        }
    })
}

fn name_of(file: &Path) -> String {
    if is_standard_input(file) {
        STANDARD_INPUT.to_owned()
    } else {
        shown(file.display())
    }
}

fn is_svg(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "svg")
}

impl View {
    /// Returns whether an option asks for a replay.
    const fn simulates(&self) -> bool {
        self.simulate
            || self.profile.is_some()
            || self.capacity.is_some()
            || self.no_segments
            || self.leading_bits.is_some()
            || self.scale > 1
    }

    /// Returns where the page goes; `None` if only its numbers were requested.
    fn page(&self) -> Option<PathBuf> {
        if self.output.is_some() || self.json && !self.open {
            return self.output.clone();
        }
        if self.after.is_some() {
            return Some("comparison.html".into());
        }
        // `memory.trace.gz` has the page `memory.html`.
        let mut name = Path::new(self.file.file_name().unwrap_or_default());
        if is_standard_input(&self.file) {
            name = Path::new("memory");
        }
        if name.extension().is_some_and(|extension| extension == "gz") {
            name = name.file_stem().map_or(name, Path::new);
        }
        Some(name.with_extension("html"))
    }

    /// Returns the files that are read.
    fn inputs(&self) -> impl Iterator<Item = &Path> {
        let after = self.after.as_deref();
        let profile = self.profile.as_ref().and_then(Profile::file);
        [&*self.file].into_iter().chain(after).chain(profile)
    }

    fn pool(&self) -> PoolOptions {
        let options = PoolOptions::new().segments(!self.no_segments);
        match self.leading_bits {
            Some(bits) => options.leading_bits(bits),
            None => options,
        }
    }
}
