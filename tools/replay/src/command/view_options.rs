//! The options of `binpool view`.

use std::path::{Path, PathBuf};

use binpool::PoolOptions;
use binpool_recordings::view::By;
use binpool_replay::Profile;
use bytesize::ByteSize;
use clap::{Args, builder::NonEmptyStringValueParser};

use crate::command::{
    output::is_standard_input,
    values::{at_least_one, by, page_name, size},
};

/// Show a program's memory as a page for the browser: what uses it, why it ran out, and what is leaked or only cached.
///
/// FILE is a recording (see `binpool replay`) or a snapshot of a pool as JSON (`MemoryPool::snapshot`), compressed or not; which one is
/// detected from its content. A recording of a pool, or a memory snapshot of PyTorch, says where each block was and what the allocator did,
/// and the page shows that. The page of a snapshot of PyTorch has all its devices in a menu, and shows what binpool would do with the same
/// requests. Any other trace is replayed once, through a pool on the simulated device; so is every trace if an option names the device or
/// the pool. The page is one file that needs no network and no server: open it from the disk, or send it.
///
/// The page of a trace shows the bytes in use over time, stacked by group, size or stream, or block by block, and the reserved bytes above
/// them; the segments with all blocks in their places, at any moment; and a list of all events. Press ? in the page for its keys and its
/// filter. Where memory runs out, the page says why, and which blocks would have to be freed: `--capacity` tries a smaller device.
///
/// With two files, the page shows both over time, side by side, and a table of the groups and call stacks whose bytes differ.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 when the page was written, even if the replay ran out of memory, which the page then explains; \
1 when the file could not be read or replayed, or the page could not be written; 2 for a wrong command line.

Examples:
  binpool view tools/snapshots/tiny_gpt_train.pickle.gz --open
  binpool view --capacity 4GiB tools/traces/resnet50_train.trace.gz -o why.html
  binpool view snapshot.json -o now.html
  binpool view before.trace after.trace -o what_has_changed.html
  binpool view --report tools/snapshots/tiny_gpt_train.pickle.gz
  binpool view --json tools/traces/eager_arrays.trace.gz | jq .peak_active")]
pub(crate) struct View {
    /// A trace, or a snapshot of a pool; `-` is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// A later file of the same kind, to show what is new, gone or has another size in it.
    #[arg(value_name = "AFTER")]
    pub(crate) after: Option<PathBuf>,
    /// The file of the page. Default: the file's name with `.html`, or `comparison.html` for two files, in this folder; with `--json`, no page.
    #[arg(long, short, value_name = "PAGE.html", value_parser = page_name())]
    pub(crate) output: Option<PathBuf>,
    /// Open the page in a browser.
    #[arg(long)]
    pub(crate) open: bool,
    /// Print the numbers of the page as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a report as text, and write no page: what allocated the memory at the peak, what was never released, and, for a program
    /// without a pool, what one would save. `binpool run --report` prints it as well.
    #[arg(long, conflicts_with_all = ["after", "output", "open", "json", "by"])]
    pub(crate) report: bool,
    /// Replay the trace on the simulated device, even if it says what the allocator did.
    #[arg(long)]
    pub(crate) simulate: bool,
    /// How blocks are grouped at first. Default: by group if the trace has groups, otherwise by size.
    #[arg(long, value_parser = by())]
    pub(crate) by: Option<By>,
    /// Attribute the allocations of a package, such as einops, to its callers when naming the groups of a recording with call
    /// stacks. Repeat it for several packages.
    #[arg(long, value_name = "PACKAGE", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) beyond: Vec<String>,
    /// Which device of another tool's snapshot with several. Default: all, in a menu; for JSON, the one with the most live bytes.
    #[arg(long, value_name = "N")]
    pub(crate) device: Option<usize>,
    /// The device whose limits the simulated device has: h200, pocl, none (the H200's limits, no costs), or a file that
    /// `binpool devices --measure -o FILE.json` wrote. Default: h200.
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) profile: Option<Profile>,
    /// The most memory that may be taken from the device, such as 12GiB. Default: all of it.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) capacity: Option<ByteSize>,
    /// Allocate each block from the device separately, instead of carving blocks from segments.
    #[arg(long)]
    pub(crate) no_segments: bool,
    /// Divide every size by this.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub(crate) scale: usize,
}

impl View {
    /// Returns whether an option asks for a replay.
    pub(crate) const fn simulates(&self) -> bool {
        self.simulate
            || self.profile.is_some()
            || self.capacity.is_some()
            || self.no_segments
            || self.scale > 1
    }

    /// Returns where the page goes; `None` if only its numbers were requested.
    pub(crate) fn page(&self) -> Option<PathBuf> {
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
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &Path> {
        let after = self.after.as_deref();
        let profile = self.profile.as_ref().and_then(Profile::file);
        [&*self.file].into_iter().chain(after).chain(profile)
    }

    pub(crate) fn pool(&self) -> PoolOptions {
        PoolOptions::new().segments(!self.no_segments)
    }
}
