//! The options of `binpool run`.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use bytesize::ByteSize;
use clap::{
    Args,
    builder::{PathBufValueParser, TypedValueParser},
};

use crate::command::values::size;

/// Run an unchanged program, and record or pool the device memory that it allocates.
///
/// The program, or a process that it starts, uses OpenCL or CUDA. Its input and output, its signals and its exit status are the same as
/// without binpool. Without `--record` and `--pool`, it prints the report.
///
/// For OpenCL, binpool is a layer of the OpenCL loader; for CUDA, a library in front of the driver's. A program that bypasses this library
/// is only recorded, through the driver's interface for tools (CUPTI). A recording has each allocation with its size, stream, time and call
/// stack, and each release. If the program is killed, its recording remains. `binpool view` shows it, and `binpool replay` and `binpool
/// tune` try pools on it.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 when the program ended with 0, otherwise the program's own; if a signal ended the program, the same signal ends this command. \
127 when the program was not found, 126 when it could not be started, 125 when binpool failed before that; 2 for a wrong command line.

Examples:
  binpool run --record out.trace -- python train.py
  binpool run darktable-cli photo.raw photo.jpg
  binpool run --pool --limit 4GiB -- python program.py")]
pub(crate) struct Run {
    /// Write what the program allocates and releases to this file, replacing it. Each further process that uses a device gets a file next
    /// to it, named after the program and its process ID: `out.python3-1234.trace` next to `out.trace`.
    #[arg(long, value_name = "FILE", value_parser = recording_name())]
    pub(crate) record: Option<PathBuf>,
    /// Record without call stacks, which take most of the time of a recording.
    #[arg(long, conflicts_with = "modules")]
    pub(crate) no_stacks: bool,
    /// Group the tensors of a program on PyTorch by the modules of its models (`layers.3.mlp`) and by the parts of a step: forward, backward,
    /// optimizer.
    #[arg(long)]
    pub(crate) modules: bool,
    /// Serve the program's allocations from a pool, which keeps and reuses the memory that the program releases.
    #[arg(long)]
    pub(crate) pool: bool,
    /// With `--pool`, have JAX and TensorFlow allocate from it, by variables that they have for such an allocator:
    /// `XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async`, `XLA_PYTHON_CLIENT_PREALLOCATE=false` and `TF_GPU_ALLOCATOR=cuda_malloc_async`, unless these are
    /// set.
    #[arg(long, requires = "pool")]
    pub(crate) switch: bool,
    /// With `--pool`, the most device memory that each process may allocate, such as 4GiB: further requests fail as on a full device.
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "pool")]
    pub(crate) limit: Option<ByteSize>,
    /// Print a report to standard error after the program has ended: what allocated the memory at the peak, what was never released, the
    /// time that the driver's calls took, and what a pool would save, or did. The default without `--record` and `--pool`.
    #[arg(long)]
    pub(crate) report: bool,
    /// The program, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

impl Run {
    /// Returns whether the report is to be printed.
    pub(super) fn reports(&self) -> bool {
        self.report || self.record.is_none() && !self.pool
    }
}

/// A parser of the name of a recording.
fn recording_name() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path: PathBuf| {
        if path.extension().is_some_and(|extension| extension == "gz") {
            return Err(
                "a recording is written uncompressed, while the program runs: use a name without .gz",
            );
        }
        match Path::new(&path).file_name() {
            Some(_) => Ok(path),
            None => Err("expected the name of a file"),
        }
    })
}
