//! The options of the command line.

use std::{env, path::PathBuf, time::Duration};

use binpool::{GrowthPolicy, PoolOptions, Retain};
use binpool_opencl::DeviceSelector;
use binpool_replay::{AllocatorChoice, Profile, Touch, devices::CostEffort};
use bytesize::ByteSize;
use clap::{
    Args, ColorChoice, CommandFactory, Parser, Subcommand,
    builder::NonEmptyStringValueParser,
    error::{ContextKind, ContextValue, ErrorKind},
};
use clap_complete::Shell;

#[cfg(all(target_os = "linux", feature = "run"))]
use crate::command::run::Run;
use crate::command::{
    backends::{BackendChoice, DeviceBackend},
    values::{allocator_of_mock, at_least_one, growth, ratio, retain, size, time},
    view_options::View,
};

/// Device-memory pools: see what they do to real programs.
#[derive(Debug, Parser)]
#[command(name = "binpool", version, max_term_width = 100)]
#[command(after_help = "\
Exit status: 0 on success; 1 on a failure, which standard error explains; 2 for a wrong command line.

Examples:
  binpool view snapshot.pickle --open
  binpool replay tools/traces/*.trace.gz
  binpool tune program.trace.gz
  binpool devices
  binpool help tune")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Log to standard error what the pool and the backend do; the variable `RUST_LOG` selects in detail.
    #[arg(long, short, global = true, help_heading = "Options of every command")]
    pub(crate) verbose: bool,
    /// When to use colours. `auto`: on a terminal, unless the variable `NO_COLOR` is set.
    #[arg(
        long,
        global = true,
        help_heading = "Options of every command",
        value_name = "WHEN",
        value_enum,
        default_value_t
    )]
    pub(crate) color: ColorChoice,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    View(View),
    Replay(Replay),
    Tune(Tune),
    /// Print how to record a program: one that uses OpenCL or CUDA, a pool of binpool, PyTorch, RMM, or anything else.
    #[command(after_help = "\
Exit status: 0.

Examples:
  binpool record | less")]
    Record,
    Import(Import),
    Devices(Devices),
    Completions(Completions),
    Man(ManPages),
    #[cfg(all(target_os = "linux", feature = "run"))]
    Run(Run),
}

impl Cli {
    /// Returns when to use colours.
    pub(crate) fn color_choice(&self) -> anstream::ColorChoice {
        match self.color {
            ColorChoice::Auto => anstream::ColorChoice::Auto,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        }
    }

    /// Reads the command line.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let cli = Self::try_parse().map_err(with_the_name_here)?;
        let contradiction = match &cli.command {
            Command::Replay(replay) => replay.contradiction(),
            _ => None,
        };
        match contradiction {
            Some(text) => {
                // With the usage of the subcommand.
                let mut command = Self::command();
                command.build();
                let replay = command.find_subcommand_mut("replay");
                let mut at_fault = replay.cloned().unwrap_or_else(Self::command);
                Err(at_fault.error(ErrorKind::ArgumentConflict, text))
            }
            None => Ok(cli),
        }
    }
}

/// Suggests the option of the same meaning, where one is given that has another name here: the limit of a program, and the capacity of a simulated
/// device.
fn with_the_name_here(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let name = match &**unknown {
        "--limit" => "capacity",
        "--capacity" => "limit",
        _ => return error,
    };
    let command = Cli::command();
    let here = env::args().find_map(|word| command.find_subcommand(word));
    let mut options = here.into_iter().flat_map(clap::Command::get_opts);
    if error.kind() == ErrorKind::UnknownArgument && options.any(|it| it.get_long() == Some(name)) {
        error.remove(ContextKind::Suggested);
        error.insert(
            ContextKind::SuggestedArg,
            ContextValue::String(format!("--{name}")),
        );
    }
    error
}

/// Print the completions of this command for a shell.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 when they were printed; 2 for a wrong command line.

Examples:
  binpool completions bash >~/.local/share/bash-completion/completions/binpool
  binpool completions zsh >\"${fpath[1]}/_binpool\"
  binpool completions fish >~/.config/fish/completions/binpool.fish")]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Print the manual page of this command, or write those of all commands.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 when they were written; 1 when they could not be; 2 for a wrong command line.

Examples:
  binpool man | man -l -
  binpool man -o ~/.local/share/man/man1")]
pub(crate) struct ManPages {
    /// A folder for the pages of all commands. It is created if missing.
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

/// Show the OpenCL, CUDA and Vulkan devices of this machine and their limits; for OpenCL also the features that a device lacks, and the
/// memory that suits a pool.
///
/// With `--measure`, also measure the costs of a device's slow calls: creating, committing and releasing buffers of 4 KiB to 4 GiB; views
/// of a buffer that has up to 1000 of them; shared virtual memory, or on CUDA and Vulkan pages of virtual memory; enqueueing a fill,
/// markers and barriers; waits, flushes and queries. That takes a few seconds, and up to an eighth of the device's memory at a time. `-o`
/// writes the costs as a profile for the simulated device: with `--profile FILE.json`, `replay` and `tune` predict times on this device, on
/// any machine.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 when the device was found and answered; 1 when there is no such device, or no OpenCL library or platform and no CUDA or Vulkan \
driver (standard error says what to install), or when a call of the device failed; 2 for a wrong command line.

Examples:
  binpool devices
  binpool devices --backend cuda --measure -o gpu.json
  binpool devices nvidia --json
  binpool devices gpu --measure -o gpu.json
  binpool tune --profile gpu.json TRACE")]
pub(crate) struct Devices {
    /// Which device: a number, a part of its name, or gpu, cpu, accelerator, any. Default: all; with `--measure`, any.
    #[arg(value_name = "DEVICE")]
    pub(crate) device: Option<DeviceSelector>,
    /// The backend whose devices are shown. Default: all, or opencl if one device is named or measured.
    #[arg(long, value_enum)]
    pub(crate) backend: Option<DeviceBackend>,
    /// Measure what the calls of the device cost.
    #[arg(long)]
    pub(crate) measure: bool,
    /// Write the limits and the costs as a profile, for `--profile`.
    #[arg(long, short, value_name = "FILE.json", requires = "measure")]
    pub(crate) output: Option<PathBuf>,
    /// Print JSON: an array with one object per device.
    #[arg(long)]
    pub(crate) json: bool,
    /// Measure next to nothing, to see whether it works: the figures are meaningless.
    #[arg(long, hide = true)]
    pub(crate) quick: bool,
}

impl Devices {
    /// How much to measure for each figure.
    pub(crate) fn effort(&self) -> CostEffort {
        if self.quick {
            CostEffort {
                samples: 1,
                most: Duration::ZERO,
            }
        } else {
            CostEffort::default()
        }
    }
}

/// Turn another tool's recording into a trace.
///
/// The kind of the file is detected from its content. It may be compressed with gzip:
///
/// - a memory snapshot of PyTorch: the pickle that `torch.cuda.memory._dump_snapshot` writes, or `torch.cuda.memory._snapshot()` as JSON;
///   or its segments alone, `torch.cuda.memory_snapshot()`. The group of a block is the innermost call of its stack outside of PyTorch:
///   `FILE:LINE FUNCTION`. Without Python, as in the backward pass, it is the step, such as `BmmBackward0`. A block ends when its free is
///   completed.
///
/// - a log of RMM (`rmm::mr::logging_resource_adaptor`): CSV with `Thread,Time,Action,Pointer,Size,Stream`, even if it is cut off, lacks
///   its header, or is mixed with other output of a program.
///
/// - a trace, which is written again.
///
/// The IDs of blocks are their addresses; streams are numbered in the order in which they appear. Blocks that the recording frees or still
/// has at its end, but never allocates, are allocated at the start. Standard error says how many blocks were added, and what was left out.
///
/// `replay` and `tune` also read such files directly; `import` keeps a small, readable trace of them.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 when the trace was written; 1 when the file could not be read or the trace could not be written \
(the message names the file, and the line, byte or entry); 2 for a wrong command line.

Examples:
  binpool import snapshot.pickle -o program.trace.gz
  binpool import --device 1 snapshot.json | head
  binpool import rmm_log.dev0.csv -o program.trace --json")]
pub(crate) struct Import {
    /// The recording; `-` is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Where to write the trace, compressed if the name ends in .gz. Default: standard output.
    #[arg(long, short, value_name = "OUT.trace[.gz]")]
    pub(crate) output: Option<PathBuf>,
    /// Which device of a snapshot with several. Default: the one with the most live bytes.
    #[arg(long, value_name = "N")]
    pub(crate) device: Option<usize>,
    /// Attribute the allocations of a package, such as einops, to its callers when naming groups. Repeat it for several packages.
    #[arg(long, value_name = "PACKAGE", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) beyond: Vec<String>,
    /// Print JSON: an object with the figures of the trace.
    #[arg(long, requires = "output")]
    pub(crate) json: bool,
}

/// Replay recorded allocation traces through a pool, on a simulated or a real device.
///
/// A trace is text with one event per line: `a ID BYTES STREAM` allocates, `f ID` frees; compressed files are decompressed. Memory
/// snapshots of PyTorch and logs of RMM work too (see `binpool import --help`). Every stream gets its own in-order queue.
///
/// In the table, `hit rate` is the share of allocations that the pool served without asking the device, `reserved / live` the most memory
/// allocated from the device divided by the most in use, `ns a pair` the host's time in nanoseconds for an allocation and its free, and
/// `device time` the time of the device's own calls: predicted by the mock's profile, or measured.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 when every trace was replayed to its end; 1 when one could not be read or replayed \
(the message names the file, the line and the block); 2 for a wrong command line.

Examples:
  binpool replay tools/traces/*.trace.gz
  binpool replay --no-pool --profile pocl tools/traces/eager_arrays.trace.gz
  binpool replay --rounds 4 --behind 2ms --allocator virtual-memory TRACE
  binpool replay --device nvidia --need TRACE
  binpool replay --retain at-most=1GiB TRACE
  binpool replay --backend cuda TRACE
  binpool replay --backend opencl --scale 64 --capacity 1GiB TRACE")]
pub(crate) struct Replay {
    /// The traces, or other tools' recordings; `-` is standard input.
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// Where the memory comes from. Default: mock, or opencl if `--device` is given.
    #[arg(help_heading = "Device", long, value_enum)]
    pub(crate) backend: Option<BackendChoice>,
    /// The OpenCL device, or with `--backend cuda` or `vulkan` a device of that backend: a number, a part of its name, or gpu, cpu,
    /// accelerator, any. Default: any.
    #[arg(help_heading = "Device", long)]
    pub(crate) device: Option<DeviceSelector>,
    /// The device whose costs and limits the mock has: h200, pocl, none (the H200's limits, no costs), or a file that `binpool devices
    /// --measure -o FILE.json` wrote. For recordings of programs on CUDA, h200 has CUDA's limits instead of OpenCL's. Default: h200.
    #[arg(help_heading = "Device", long, value_name = "NAME|FILE")]
    pub(crate) profile: Option<Profile>,
    /// The way of getting memory. Default: immediate; for a pool on CUDA, virtual-memory.
    #[arg(help_heading = "Device", long, value_enum)]
    pub(crate) allocator: Option<AllocatorChoice>,
    /// Allocate every block from the device and free it there, for comparison.
    #[arg(help_heading = "Pool", long, conflicts_with_all = ["no_segments", "growth", "retain"])]
    pub(crate) no_pool: bool,
    /// Allocate each block from the device separately, instead of carving blocks from segments.
    #[arg(help_heading = "Pool", long)]
    pub(crate) no_segments: bool,
    /// What to save when segments grow: balanced takes little memory and few calls to the device, dense the least memory.
    #[arg(help_heading = "Pool", long, default_value = "balanced", value_parser = growth(), conflicts_with = "no_segments")]
    pub(crate) growth: GrowthPolicy,
    /// How much free memory the pool keeps, as `Retain` of the library, and show what it has at the end of the trace, and after a trim:
    /// unused-for-allocations=N (release what N allocations did not use), at-most=SIZE (release what is free while the pool has more),
    /// percent-of-peak=PERCENT of the peak in use (only without segments; default: 125), or all. Several with commas between them.
    #[arg(help_heading = "Pool", long, value_name = "RULES", value_parser = retain)]
    pub(crate) retain: Option<Retain>,
    /// The most memory that may be taken from the device, such as 12GiB. Default: all of it.
    #[arg(help_heading = "Device", long, value_name = "SIZE", value_parser = size)]
    pub(crate) capacity: Option<ByteSize>,
    /// Find the smallest device that the whole trace fits on (to 0.1 % of its live peak).
    #[arg(help_heading = "Device", long, conflicts_with = "capacity")]
    pub(crate) need: bool,
    /// Divide every size by this.
    #[arg(help_heading = "Replay", long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub(crate) scale: usize,
    /// What to enqueue on each block, as a program would.
    ///
    /// On the mock, this can take as much memory of this machine as the trace takes of the device, above all with `--need` or `--no-pool`:
    /// use `--scale` if that is too much.
    #[arg(help_heading = "Replay", long, value_enum, default_value_t)]
    pub(crate) touch: Touch,
    /// Replay on this many threads over one pool: the streams of the trace are distributed over them, or, with fewer streams than threads,
    /// each replays a copy of the trace.
    ///
    /// Which blocks are live at the same time then depends on the progress of each thread.
    #[arg(help_heading = "Replay", long, value_name = "N", default_value_t = 1, value_parser = at_least_one, conflicts_with = "need")]
    pub(crate) threads: usize,
    /// Replay the trace this many times in a row in one pool, like a program that repeats its work, and show the calls and the memory of
    /// each round: a warm pool needs few calls.
    ///
    /// Blocks that the trace never frees are allocated only in the first round, and stay live. With three rounds or more, the report has
    /// the means of the third and all later ones.
    #[arg(help_heading = "Replay", long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub(crate) rounds: usize,
    /// Let the device lag behind the host by this time, such as 2ms: before a block is freed, a command that uses it is enqueued and ends
    /// this much later.
    ///
    /// Programs run ahead of a GPU by milliseconds, and freed memory stays in use until its commands have ended. On the mock, time is
    /// simulated, and each replay is the same: an operation of the program takes 10 us of the host's time, and a call of the device as long
    /// as the profile says. The report gives the most bytes that were freed but still in use, and on the mock the time that the host
    /// waited.
    #[arg(help_heading = "Replay", long, value_name = "TIME", value_parser = time)]
    pub(crate) behind: Option<Duration>,
    /// Print JSON: an array with one object per trace.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Try the pool's settings on recorded traces, on the simulated device, and print the best.
///
/// Each setting replays the trace several times in a row in one pool, like a program that repeats its work, and is judged by the rounds
/// from the third on, when the pool is warm: `device time a round` and `calls a round` (those that allocate, release, map and unmap) are
/// their means. `calls in round 1` are those of the first round.
///
/// The best setting is the one with the least device time a round among those whose peak of reserved bytes, in all rounds, is within
/// `--reserve` of the peak of live bytes, or up to a quarter more if it takes less than half the time; the verdict then has the best within
/// `--reserve` too. Of times that differ by 20 us, or 1 % of the time without a pool, the least reserved is the best, and within 1 % of that
/// the setting nearest to the default. If all reserve more, the one that reserves the least is the best.
///
/// `no pool` is for comparison, and never the best. For several traces, a table for all has the geometric mean of reserved / live and the sum
/// of the device times, and the same rule. A setting that runs out of memory on one trace cannot be the best for all.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 when there is a best setting for all traces; 1 when every setting of the pool runs out of memory on \
one of them, or a trace could not be read or replayed; 2 for a wrong command line.

Examples:
  binpool tune tools/traces/*.trace.gz
  binpool tune --reserve 1.5 --profile pocl tools/traces/eager_arrays.trace.gz
  binpool tune --capacity 4GiB tools/traces/resnet50_train.trace.gz")]
pub(crate) struct Tune {
    /// The traces, or other tools' recordings; `-` is standard input.
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// The device whose costs and limits the mock has: h200, pocl, none (the H200's limits, no costs), or a file that
    /// `binpool devices --measure -o FILE.json` wrote.
    #[arg(long, value_name = "NAME|FILE", default_value = "h200")]
    pub(crate) profile: Profile,
    /// The way of getting memory. With virtual-memory, for devices that have it, such as CUDA's, pools of pages are tried besides those of
    /// immediate.
    #[arg(long, value_name = "ALLOCATOR", default_value_t, value_parser = allocator_of_mock())]
    pub(crate) allocator: AllocatorChoice,
    /// The most memory that may be taken from the device, such as 12GiB. Default: all of it.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) capacity: Option<ByteSize>,
    /// How much the best setting may reserve, as a multiple of the live peak; for half the time, a quarter more. (`--capacity` is a strict
    /// limit.)
    #[arg(long, value_name = "RATIO", default_value_t = 1.25, value_parser = ratio)]
    pub(crate) reserve: f64,
    /// How many times in a row the trace is replayed. Fewer than 3 rounds are judged as a whole.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one)]
    pub(crate) rounds: usize,
    /// Divide every size by this.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub(crate) scale: usize,
    /// Print JSON: an object with the traces, and figures for all of them.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Replay {
    /// Where the memory comes from.
    pub(crate) fn backend(&self) -> BackendChoice {
        match (self.backend, &self.device) {
            (Some(backend), _) => backend,
            (None, Some(_)) => BackendChoice::Opencl,
            (None, None) => BackendChoice::Mock,
        }
    }

    /// The device that the mock simulates.
    pub(crate) fn profile(&self) -> Profile {
        self.profile.clone().unwrap_or_default()
    }

    /// Which two options contradict each other, if any do.
    fn contradiction(&self) -> Option<&'static str> {
        match self.backend() {
            BackendChoice::Mock if self.device.is_some() => Some(
                "`--device` names an OpenCL device, but `--backend mock` is simulated: leave one of them out",
            ),
            backend if backend != BackendChoice::Mock && self.profile.is_some() => Some(
                "`--profile` is for the mock: leave out `--backend` and `--device`, or the profile",
            ),
            _ => None,
        }
    }

    /// The way of getting memory.
    pub(crate) fn allocator(&self) -> AllocatorChoice {
        let carves = !self.no_pool && !self.no_segments;
        match self.allocator {
            Some(allocator) => allocator,
            None if self.backend() == BackendChoice::Cuda && carves => {
                AllocatorChoice::VirtualMemory
            }
            None => AllocatorChoice::Immediate,
        }
    }

    /// The pool's settings; `None` for no pool.
    pub(crate) fn pool(&self) -> Option<PoolOptions> {
        let options = PoolOptions::new()
            .retain(self.retain.unwrap_or_default())
            .growth(self.growth)
            .segments(!self.no_segments);
        (!self.no_pool).then_some(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_of_each_command_has_its_exit_status_and_examples_that_it_takes() {
        let whole = Cli::command();
        for command in whole.get_subcommands() {
            let name = command.get_name();
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(help.contains("Exit status: 0"), "{name}");
            let (_, examples) = help.split_once("Examples:\n").unwrap_or_default();
            let examples: Vec<&str> = examples.lines().collect();
            assert!(!examples.is_empty(), "{name}");
            assert!(
                examples
                    .iter()
                    .any(|line| line.starts_with(&format!("  binpool {name}"))),
                "{name}"
            );
            for example in examples {
                let words = example
                    .split_whitespace()
                    .take_while(|word| *word != "|" && !word.starts_with('>'));
                // A profile is read from its file when the command line is parsed.
                let words: Vec<&str> = words
                    .map(|word| if word == "gpu.json" { "pocl" } else { word })
                    .collect();
                let parsed = Cli::try_parse_from(&words);
                assert!(parsed.is_ok(), "{example}: {parsed:?}");
            }
        }
    }

    /// The calls of the command in a text: lines of its code, and what stands between backticks. Some name it by cargo.
    fn calls(text: &str) -> Vec<String> {
        let spans = text.split('`').skip(1).step_by(2);
        let spans = spans.filter(|span| !span.contains('\n'));
        let code = text.lines().chain(spans).map(str::trim);
        let call = |code: &str| {
            let by_cargo = code.split_once("-p binpool-replay").and_then(|(_, rest)| {
                let (_, rest) = rest.split_once(" -- ")?;
                Some(format!("binpool {rest}"))
            });
            let is_call = |code: &String| {
                let mut words = code.split(' ').skip(1);
                let names = [
                    "completions",
                    "devices",
                    "import",
                    "man",
                    "record",
                    "replay",
                    "run",
                    "tune",
                    "view",
                ];
                code.starts_with("binpool ")
                    && words.next().is_some_and(|word| names.contains(&word))
            };
            by_cargo.or_else(|| Some(code.to_owned())).filter(is_call)
        };
        code.filter_map(call).collect()
    }

    /// Every text of the repository that people read.
    fn texts() -> Vec<PathBuf> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut folders = vec![root];
        let mut found = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap();
                if path.is_dir() && !name.starts_with('.') && name != "target" {
                    folders.push(path);
                } else if ["md", "txt"]
                    .contains(&path.extension().unwrap_or_default().to_str().unwrap())
                {
                    found.push(path);
                }
            }
        }
        found
    }

    #[test]
    fn the_calls_of_the_command_in_every_text_are_such_as_it_takes() {
        let mut count = 0;
        for path in texts() {
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            for call in calls(&text) {
                let words = call
                    .split_whitespace()
                    .take_while(|word| !word.starts_with(['|', '>', '#']));
                // A profile is read from its file when the command line is parsed. `NAME` and `[--like this]` are for others.
                let words: Vec<&str> = words
                    .map(|word| match word {
                        "N" => "1",
                        "gpu.json" | "FILE.json" => "pocl",
                        _ => word,
                    })
                    .take_while(|word| !word.starts_with('['))
                    .collect();
                count += 1;
                let Err(error) = Cli::try_parse_from(&words) else {
                    continue;
                };
                let is_named_alone = words.last().is_some_and(|word| word.starts_with("--"));
                assert!(
                    match error.kind() {
                        ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelp => true,
                        ErrorKind::InvalidValue => is_named_alone,
                        _ => false,
                    },
                    "{}: {call}: {error}",
                    path.display()
                );
            }
        }
        assert!(count > 80, "{count}");
    }

    /// `clap` joins lines without an empty line between them.
    #[test]
    fn the_points_of_a_list_are_paragraphs() {
        let mut whole = Cli::command();
        for command in whole.get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            for paragraph in help.split("\n\n") {
                let words: Vec<&str> = paragraph.split_whitespace().collect();
                let points = words
                    .windows(2)
                    .skip(1)
                    .filter(|pair| pair[0].ends_with('.') && pair[1] == "-");
                assert_eq!(points.count(), 0, "{paragraph}");
            }
        }
    }

    #[test]
    fn every_option_is_explained_and_every_report_has_a_form_for_programs() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{name} {}",
                    argument.get_id()
                );
            }
            let has_json = command
                .get_arguments()
                .any(|argument| argument.get_id() == "json");
            // What `run` reports comes between what the program prints, and `view --json` has it of the recording.
            let is_text = ["completions", "man", "record", "run"].contains(&name);
            assert!(has_json != is_text, "{name}");
        }
    }
}
