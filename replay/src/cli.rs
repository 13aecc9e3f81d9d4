//! The command line.

use std::path::PathBuf;

use binpool::PoolOptions;
use binpool_opencl::DeviceSelector;
use binpool_replay::{AllocatorChoice, Profile};
use bytesize::ByteSize;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Device-memory pools: see what they do to real programs.
#[derive(Debug, Parser)]
#[command(name = "binpool", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Tell what the pool and the backend do, on standard error; the variable `RUST_LOG` chooses in detail.
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Replay(Replay),
    Tune(Tune),
}

/// Replay recorded allocation traces through a pool, on a simulated or a real device.
///
/// A trace is text, one event a line: `a ID BYTES STREAM` allocates, `f ID` frees; `.gz` files are
/// decompressed. Every stream gets an in-order queue of its own.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 when every trace was replayed to its end; 1 when one could not be read or replayed, \
which names the file, the line and the block; 2 for a wrong command line.

Examples:
  binpool replay replay/traces/*.trace.gz
  binpool replay --no-pool --profile pocl replay/traces/eager_arrays.trace.gz
  binpool replay --backend opencl --device nvidia --need TRACE
  binpool replay --backend opencl --scale 64 --capacity 1GiB TRACE")]
pub(crate) struct Replay {
    /// The traces.
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// Where the memory comes from.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) backend: BackendChoice,
    /// The OpenCL device: a number, a part of its name, or gpu, cpu, accelerator, any.
    #[arg(long, default_value = "any")]
    pub(crate) device: DeviceSelector,
    /// The device whose costs and limits the mock has.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) profile: Profile,
    /// The way of getting memory.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) allocator: AllocatorChoice,
    /// Get every block from the device and give it back, for comparison.
    #[arg(long, conflicts_with_all = ["leading_bits", "no_segments"])]
    pub(crate) no_pool: bool,
    /// Get every block from the device by itself. Otherwise blocks are carved from segments, on every device: a replay
    /// is one thread, which every driver takes.
    #[arg(long)]
    pub(crate) no_segments: bool,
    /// How many leading bits of a size tell size classes apart: blocks are at most 1/2^BITS too large. Default: 8, or 4
    /// without segments.
    #[arg(long, value_name = "BITS")]
    pub(crate) leading_bits: Option<u32>,
    /// The most memory that may be taken from the device, such as 12GiB. Default: all of it.
    #[arg(long, value_name = "SIZE")]
    pub(crate) capacity: Option<ByteSize>,
    /// Find the smallest capacity at which the whole trace succeeds, to within 0.1 % of its live peak.
    #[arg(long, conflicts_with = "capacity")]
    pub(crate) need: bool,
    /// Divide every size by this.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub(crate) scale: usize,
    /// Enqueue a small fill on each block, as a program would, so that deferred memory becomes real.
    ///
    /// On the mock, this can take as much memory of this machine as the trace takes of the device, above all with
    /// `--need` or `--no-pool`: use `--scale` where that is too much.
    #[arg(long)]
    pub(crate) touch: bool,
    /// Replay each trace so often, and quote median times.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub(crate) repeat: usize,
    /// Print JSON: an array, an object a trace.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Try the pool's settings on recorded traces, on the simulated device, and print the best.
///
/// The best setting is the one with the least device time among those whose peak of reserved bytes is within
/// `--reserve` of the peak of live bytes; where none is, the one that reserves the least. `no pool` is there to
/// compare with, and is never the best. Of several traces, a table over all has the geometric mean of
/// reserved / live and the sum of the device times, and the same rule. A setting that runs out of memory on one
/// trace is not the best over all.
///
/// In the tables, `*` marks a setting that no other beats: none is as low in both respects and lower in one. The
/// plot is that of the last table.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 when there is a best setting for all traces; 1 when every setting of the pool runs out of memory on \
one of them, or one could not be read or replayed; 2 for a wrong command line.

Examples:
  binpool tune replay/traces/*.trace.gz
  binpool tune --reserve 1.5 --profile pocl replay/traces/eager_arrays.trace.gz
  binpool tune --capacity 4GiB --plot resnet50.svg replay/traces/resnet50_train.trace.gz")]
pub(crate) struct Tune {
    /// The traces.
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// The device whose costs and limits the mock has.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) profile: Profile,
    /// The way of getting memory.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) allocator: AllocatorChoice,
    /// The most memory that may be taken from the device, such as 12GiB. Default: all of it.
    #[arg(long, value_name = "SIZE")]
    pub(crate) capacity: Option<ByteSize>,
    /// How much the best setting may reserve, as a multiple of the live peak.
    #[arg(long, value_name = "RATIO", default_value_t = 1.15, value_parser = ratio)]
    pub(crate) reserve: f64,
    /// Divide every size by this.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub(crate) scale: usize,
    /// Write the plot as SVG, instead of printing it as text.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Print JSON: an object with the traces, and what holds for all of them.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendChoice {
    /// A simulated device in this process.
    #[default]
    Mock,
    /// An OpenCL device of this machine.
    Opencl,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if ratio.is_finite() && ratio >= 1.0 => Ok(ratio),
        Ok(_) => Err("must be a number of at least 1".into()),
        Err(error) => Err(format!("{error}")),
    }
}

impl Replay {
    /// The pool's settings; `None` for no pool.
    pub(crate) fn pool(&self) -> Option<PoolOptions> {
        let options = PoolOptions::new().segments(!self.no_segments);
        let options = match self.leading_bits {
            Some(bits) => options.leading_bits(bits),
            None => options,
        };
        (!self.no_pool).then_some(options)
    }
}
