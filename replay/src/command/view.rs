//! `binpool view`.

use std::{
    error::Error,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use binpool::{PoolOptions, Snapshot};
use binpool_replay::{
    Profile, Trace,
    view::{By, SnapshotNumbers, record},
};
use bytesize::ByteSize;
use clap::Args;
use flate2::read::MultiGzDecoder;

use crate::command::{
    cli::at_least_one,
    output::{print, remark, write_file},
    progress::bar,
};

/// Show a program's memory as a page for the browser: what uses it, why it ran out, and what is leaked or only cached.
///
/// FILE is a recording (see `binpool replay`) or a snapshot of a pool as JSON (`MemoryPool::snapshot`), either of them
/// compressed or not; what it is, is seen by its content. A trace is replayed once, through a pool on the simulated device,
/// which tells where each block lies. The page is one file, which needs no network and no server: open it from the disk,
/// send it to somebody.
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
    /// By what blocks are told apart at first. Default: group where the trace has groups, or else size.
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

/// The file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be read", path.display())]
struct NotRead {
    path: PathBuf,
    source: std::io::Error,
}

/// The file says that it is a snapshot, and is none that can be read.
#[derive(Debug, thiserror::Error)]
#[error("{} is no snapshot that can be read", path.display())]
struct NotASnapshot {
    path: PathBuf,
    source: binpool::SnapshotError,
}

/// Writes the page, and prints its numbers where they are wanted. True: it is there.
pub(crate) fn view(options: &View) -> Result<bool, Box<dyn Error>> {
    let content = read(&options.file).map_err(|source| NotRead {
        path: options.file.clone(),
        source,
    })?;
    if is_snapshot(&content) {
        view_snapshot(options, &content)?;
    } else {
        view_trace(options, &content)?;
    }
    Ok(true)
}

/// All of a file, decompressed where it begins as compressed files do.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    const COMPRESSED: [u8; 2] = [0x1f, 0x8b];
    let mut file = File::open(path)?;
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    if !content.starts_with(&COMPRESSED) {
        return Ok(content);
    }
    let mut text = Vec::new();
    MultiGzDecoder::new(&*content).read_to_end(&mut text)?;
    Ok(text)
}

/// Whether it is JSON that says what format it has, which recordings of other tools do not.
fn is_snapshot(content: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Head {
        #[serde(rename = "format")]
        _format: serde::de::IgnoredAny,
    }
    content.trim_ascii_start().starts_with(b"{") && serde_json::from_slice::<Head>(content).is_ok()
}

fn view_trace(options: &View, content: &[u8]) -> Result<(), Box<dyn Error>> {
    let trace = Trace::read(options.name(), content, None)?.scaled_down(options.scale);
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
        path: options.file.clone(),
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
        self.file.display().to_string()
    }

    fn pool(&self) -> PoolOptions {
        let options = PoolOptions::new().segments(!self.no_segments);
        match self.leading_bits {
            Some(bits) => options.leading_bits(bits),
            None => options,
        }
    }
}
