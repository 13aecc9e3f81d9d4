//! `binpool view`.

use std::{
    error::Error,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use binpool::{PoolOptions, Snapshot, words};
use binpool_replay::{
    Content, Failure, Profile, Trace, TraceError, shown,
    view::{By, History, Origin, SnapshotNumbers, page_of, record},
};
use bytesize::ByteSize;
use clap::{
    Args,
    builder::{PathBufValueParser, TypedValueParser},
};

use crate::command::{
    cli::{at_least_one, leading_bits, size},
    histories::{Histories, Wanted, histories_of},
    output::{STANDARD_INPUT, is_standard_input, print, remark},
    progress_bar::bar,
    whole_file::write_file,
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
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 when the page was written, also where the replay ran out of memory, which the page then explains; \
1 when the file could not be read or replayed, or the page not be written; 2 for a wrong command line.

Examples:
  binpool view replay/snapshots/tiny_gpt_train.pickle.gz --open
  binpool view --capacity 4GiB replay/traces/resnet50_train.trace.gz -o why.html
  binpool view snapshot.json -o now.html
  binpool view replay/traces/gpt2_varlen_train.trace.gz -o timeline.svg
  binpool view --json replay/traces/eager_arrays.trace.gz | jq .peak_active")]
pub(crate) struct View {
    /// A trace, or a snapshot of a pool; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where the page goes. A name that ends on `.svg` gets the memory over time alone, as a picture. Default: the file's name with
    /// `.html`, in this folder; with `--json`, no page.
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
    #[arg(long, value_enum)]
    by: Option<By>,
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

/// The file claims to be a snapshot, but cannot be read as one.
#[derive(Debug, thiserror::Error)]
#[error("{name} is no snapshot that can be read")]
struct NotASnapshot {
    name: String,
    source: binpool::SnapshotError,
}

/// The most times its size that a compressed snapshot of a pool may expand to. Snapshots repeat much, as PyTorch's do.
const EXPANDS: u64 = 100;

/// Writes the page, and prints its numbers if requested. Returns `true`: failures are errors.
pub(crate) fn view(options: &View) -> Result<bool, Box<dyn Error>> {
    let not_read = |source| TraceError::Read {
        name: options.name(),
        source,
    };
    let content = if is_standard_input(&options.file) {
        Content::new(io::stdin())
    } else {
        File::open(&options.file).and_then(Content::new)
    };
    let mut content = content.map_err(not_read)?;
    if !content.is_json().map_err(not_read)? {
        view_trace(options, content)?;
        return Ok(true);
    }
    // The format may be stated at its end.
    let mut text = Vec::new();
    let mut content = content.expanding_at_most(EXPANDS);
    content.read_to_end(&mut text).map_err(not_read)?;
    if is_snapshot(&text) {
        view_snapshot(options, &text)?;
    } else {
        view_trace(options, Content::new(&*text).map_err(not_read)?)?;
    }
    Ok(true)
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
    let page = options.page();
    let is_picture = page.as_deref().is_none_or(is_svg);
    let wanted = Wanted {
        name: options.name(),
        device: options.device,
        scale: options.scale,
        simulates: options.simulates(),
        is_one: is_picture,
        replay: &|trace| simulate(options, trace),
    };
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
        history.svg(by)?
    } else {
        let named: Vec<_> = all.iter().map(|(name, of)| (name.as_str(), of)).collect();
        page_of(&named, by)?
    };
    write_page(options, &path, &picture)
}

fn simulate(options: &View, trace: &Trace) -> Result<History, Failure> {
    let bar = bar(trace.events().len(), trace.name());
    let capacity = options.capacity.map(|size| size.as_u64());
    let profile = options.profile.as_ref().unwrap_or(&Profile::H200);
    let history = record(trace, profile, capacity, &options.pool(), &|events| {
        bar.set_position(events as u64);
    })?;
    bar.finish_and_clear();
    Ok(history)
}

fn view_snapshot(options: &View, content: &[u8]) -> Result<(), Box<dyn Error>> {
    let text = String::from_utf8_lossy(content);
    let snapshot = Snapshot::from_json(&text).map_err(|source| NotASnapshot {
        name: options.name(),
        source,
    })?;
    let numbers = SnapshotNumbers::new(&options.name(), &snapshot);
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
    write_page(options, &path, &numbers.page(&snapshot)?)
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

fn is_svg(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "svg")
}

impl View {
    fn name(&self) -> String {
        if is_standard_input(&self.file) {
            STANDARD_INPUT.to_owned()
        } else {
            shown(self.file.display())
        }
    }

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

    fn pool(&self) -> PoolOptions {
        let options = PoolOptions::new().segments(!self.no_segments);
        match self.leading_bits {
            Some(bits) => options.leading_bits(bits),
            None => options,
        }
    }
}
