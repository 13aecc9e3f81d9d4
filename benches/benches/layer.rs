//! What `binpool run` costs a program on OpenCL: its calls bare, recorded, and over a pool, each in a process of its own.
//!
//! ```text
//! cargo build --release -p binpool-replay && cargo bench -p binpool-benches --bench layer
//! ```

use std::{error::Error, hint::black_box, path::PathBuf, process::Command, ptr, time::Instant};

use clap::Parser;
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use opencl3::{
    command_queue::CommandQueue,
    context::Context,
    device::{CL_DEVICE_TYPE_ALL, Device, get_all_devices},
    kernel::{ExecuteKernel, Kernel},
    memory::{Buffer, CL_MEM_READ_WRITE},
    program::Program,
    types::cl_uchar,
};

/// Set in the processes that measure.
const MEASURES: &str = "BINPOOL_BENCH_LAYER";

/// How often each call is made in one measurement. The best of some measurements counts.
const CALLS: u32 = 20_000;
const MEASUREMENTS: usize = 15;

#[derive(Debug, Parser)]
struct Options {
    /// The layer.
    #[arg(long, default_value = "target/release/binpool-layer")]
    layer: PathBuf,
    /// Cargo passes this.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::var_os(MEASURES).is_some() {
        return measure();
    }
    let options = Options::parse();
    // Cargo runs benchmarks in the folder of their package.
    let layer = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(options.layer)
        .canonicalize()?;
    let folder = std::env::temp_dir();
    let recording = folder.join(format!("binpool-bench-{}.trace", std::process::id()));
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN);
    table.set_header(["ns", "bare", "recorded", "over a pool"]);
    let bare = times(&mut Command::new(std::env::current_exe()?))?;
    let recorded = times(
        Command::new(std::env::current_exe()?)
            .env("OPENCL_LAYERS", &layer)
            .env("BINPOOL_RECORD", &recording),
    )?;
    let pooled = times(
        Command::new(std::env::current_exe()?)
            .env("OPENCL_LAYERS", &layer)
            .env("BINPOOL_POOL", "1"),
    )?;
    for ((bare, recorded), pooled) in bare.iter().zip(&recorded).zip(&pooled) {
        table.add_row([&bare.0, &bare.1, &recorded.1, &pooled.1]);
    }
    println!("{table}");
    std::fs::remove_file(recording)?;
    Ok(())
}

/// Runs a process that measures, and returns what it printed.
fn times(command: &mut Command) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let output = command.env(MEASURES, "1").output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let lines = String::from_utf8(output.stdout)?;
    let rows = lines.lines().filter_map(|line| line.split_once('\t'));
    Ok(rows
        .map(|(name, time)| (name.to_owned(), time.to_owned()))
        .collect())
}

fn measure() -> Result<(), Box<dyn Error>> {
    let device = get_all_devices(CL_DEVICE_TYPE_ALL)?
        .into_iter()
        .next()
        .ok_or("no OpenCL device")?;
    let context = Context::from_device(&Device::new(device))?;
    let queue = CommandQueue::create_default_with_properties(&context, 0, 0)?;
    let source = "kernel void set(global uchar *a) { a[0] = 1; }";
    let program = Program::create_and_build_from_source(&context, source, "")?;
    let kernel = Kernel::create(&program, "set")?;
    let create = |bytes| {
        // SAFETY: no memory of the host is named.
        unsafe { Buffer::<cl_uchar>::create(&context, CL_MEM_READ_WRITE, bytes, ptr::null_mut()) }
    };
    row(
        "a buffer of 4096 bytes is created and released, ten calls deep",
        || deep(10, &|| drop(create(4096))),
    )?;
    let mut bytes = 0;
    row("the same, of 256 sizes in turn", || {
        bytes = bytes % 256 + 1;
        drop(black_box(create(4096 + bytes)));
    })?;
    let kept = create(4096)?;
    row("an argument of a kernel is set", || {
        // SAFETY: the kernel takes such a buffer.
        let _ = black_box(unsafe { kernel.set_arg(0, &kept) });
    })?;
    let one = |buffer: &Buffer<cl_uchar>| {
        let mut launch = ExecuteKernel::new(&kernel);
        // SAFETY: the kernel takes such a buffer.
        unsafe { launch.set_arg(buffer) };
        launch.set_global_work_size(1);
        // SAFETY: it writes the first byte of that.
        unsafe { launch.enqueue_nd_range(&queue) }
    };
    row(
        "a buffer of 1 MiB is created, written by a kernel, and released",
        || {
            if let Ok(buffer) = create(1 << 20) {
                let _ = black_box(one(&buffer));
            }
        },
    )?;
    queue.finish()?;
    Ok(())
}

#[inline(never)]
fn deep(levels: u32, action: &dyn Fn()) {
    match levels {
        0 => action(),
        _ => black_box(deep)(levels - 1, action),
    }
    black_box(());
}

/// Prints what a call takes.
fn row(name: &str, mut call: impl FnMut()) -> Result<(), Box<dyn Error>> {
    let times = (0..MEASUREMENTS).map(|_| {
        let begin = Instant::now();
        (0..CALLS).for_each(|_| call());
        begin.elapsed()
    });
    let best = times.min().ok_or("no measurement")?;
    println!("{name}\t{}", best.as_nanos() / u128::from(CALLS));
    Ok(())
}
