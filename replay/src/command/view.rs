//! `binpool view`.

use std::{
    error::Error,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use binpool::{PoolOptions, Snapshot};
use binpool_replay::{
    Content, Profile, Trace, TraceError, shown,
    view::{By, SnapshotNumbers, record},
};
use bytesize::ByteSize;
use clap::Args;

use crate::command::{
    cli::at_least_one,
    output::{print, remark},
    progress_bar::bar,
    whole_file::write_file,
};

/// Show a program's memory as a page for the browser: what uses it, why it ran out, and what is leaked or only cached.
///
/// FILE is a recording (see `binpool replay`) or a snapshot of a pool as JSON (`MemoryPool::snapshot`), compressed or not; its
/// content tells which. A trace is replayed once, through a pool on the simulated device, to find out
/// where each block lies. The page is one file, which needs no network and no server: open it from the disk,
/// or send it.
///
/// The page of a trace shows what was active over time, stacked by group, size or stream, and what was reserved for it; and
/// the segments with all blocks in their places, at any moment. Press ? in the page for its keys. Where memory runs out,
/// the page says why: `--capacity` asks whether a smaller device is enough.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 when the page was written, also where the replay ran out of memory, which the page then explains; \
1 when the file could not be read or replayed, or the page not be written; 2 for a wrong command line.

Examples:
  binpool view replay/traces/gpt2_varlen_train.trace.gz -o page.html
  binpool view --capacity 4GiB replay/traces/resnet50_train.trace.gz -o why.html
  binpool view snapshot.json -o now.html
  binpool view replay/traces/gpt2_varlen_train.trace.gz -o timeline.svg
  binpool view --json replay/traces/eager_arrays.trace.gz | jq .peak_active")]
pub(crate) struct View {
    /// A trace, or a snapshot of a pool.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where the page goes. A name that ends on `.svg` gets the memory over time alone, as a picture.
    #[arg(
        long,
        short,
        value_name = "PAGE.html",
        required_unless_present = "json"
    )]
    output: Option<PathBuf>,
    /// Print the numbers of the page as JSON.
    #[arg(long)]
    json: bool,
    /// What the blocks are grouped by at first. Default: group where the trace has groups, or else size.
    #[arg(long, value_enum)]
    by: Option<By>,
    /// The device whose limits the simulated device has: h200, pocl, none (the H200's limits, no costs), or a file that
    /// `binpool devices --measure -o FILE.json` wrote.
    #[arg(long, value_name = "NAME|FILE", default_value = "h200")]
    profile: Profile,
    /// The most memory that may be taken from the device, such as 12GiB. Default: all of it.
    #[arg(long, value_name = "SIZE")]
    capacity: Option<ByteSize>,
    /// Get every block from the device by itself, instead of carving blocks from segments.
    #[arg(long)]
    no_segments: bool,
    /// How many leading bits of a size tell size classes apart. Default: 8, or 4 without segments.
    #[arg(long, value_name = "BITS")]
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
    let content = File::open(&options.file).and_then(Content::new);
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
    let trace = Trace::read_content(options.name(), content, None)?.scaled_down(options.scale);
    for text in trace.remarks() {
        remark(&format!("{}: {text}", trace.name()));
    }
    let by = options.by.unwrap_or(match trace.groups() {
        [] => By::Size,
        _ => By::Group,
    });
    let bar = bar(trace.events().len(), trace.name());
    let capacity = options.capacity.map(|size| size.as_u64());
    let history = record(
        &trace,
        &options.profile,
        capacity,
        &options.pool(),
        &|events| {
            bar.set_position(events as u64);
        },
    )?;
    bar.finish_and_clear();
    if let Some(failed) = &history.out_of_memory {
        remark(&format!(
            "out of memory at {}: {}",
            failed.event, failed.report.verdict
        ));
    }
    if options.json {
        print(&serde_json::to_string_pretty(&history.numbers())?)?;
    }
    if let Some(path) = &options.output {
        let picture = if is_svg(path) {
            history.svg(by)?
        } else {
            history.page(by)?
        };
        write_file(path, picture)?;
    }
    Ok(())
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
    if let Some(path) = &options.output {
        if is_svg(path) {
            return Err(
                "a snapshot is one moment, and has no memory over time to draw as SVG: \
                        use a name that ends on .html"
                    .into(),
            );
        }
        write_file(path, numbers.page(&snapshot)?)?;
    }
    Ok(())
}

fn is_svg(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "svg")
}

impl View {
    fn name(&self) -> String {
        shown(self.file.display())
    }

    fn pool(&self) -> PoolOptions {
        let options = PoolOptions::new().segments(!self.no_segments);
        match self.leading_bits {
            Some(bits) => options.leading_bits(bits),
            None => options,
        }
    }
}
