//! How many events a second are recorded of a program that does nothing but hot pairs, on some threads that share a pool. An event is
//! an allocation or a free, and a recording counts once its last line is written.
//!
//! ```text
//! cargo bench -p binpool-benches --bench recording -- 1 2 16
//! cargo bench -p binpool-benches --bench recording -- 16 --to FILE
//! ```
//!
//! The arguments are numbers of threads (default 1, 2, 4, 8, 16). Without a file, the lines are thrown away. Linux alone tells the time
//! of the processors and the memory.

use std::{
    error::Error,
    fs::{self, File},
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
use binpool_benches::NullBackend;
use clap::Parser;
use comfy_table::{Table, presets};

/// How long the program runs, without what is left to write then.
const TIME: Duration = Duration::from_secs(3);

/// Pairs between two looks at the clock.
const STRIDE: u64 = 4096;

#[derive(Parser)]
struct Arguments {
    /// The numbers of threads.
    threads: Vec<usize>,
    /// The pairs of each thread, instead of a time: for tools that count instructions.
    #[arg(long)]
    pairs: Option<u64>,
    /// The file that the recording is written to.
    #[arg(long)]
    to: Option<String>,
    /// What cargo says.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Counts the bytes that are written.
struct Counting(Box<dyn Write + Send>, Arc<AtomicU64>);

impl Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.0.write(bytes)?;
        self.1.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Does pairs on a pool until the time is over or the number is reached, and returns how many.
fn pairs(
    pool: &MemoryPool<NullBackend>,
    start: Instant,
    most: Option<u64>,
) -> Result<u64, binpool::PoolError> {
    let mut pairs = 0;
    while most.map_or_else(|| start.elapsed() < TIME, |most| pairs < most) {
        for _ in 0..STRIDE {
            drop(pool.allocate(4096)?);
        }
        pairs += STRIDE;
    }
    Ok(pairs)
}

/// The processors' time that this process has taken, in seconds.
fn processor_seconds() -> Result<f64, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let fields = text.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(ticks / 100.0)
}

/// The most memory that this process has had since `restart`, in MiB.
fn peak_mib(restart: bool) -> Result<u64, Box<dyn Error>> {
    if restart {
        fs::write("/proc/self/clear_refs", "5")?;
    }
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kib.unwrap_or_default().parse::<u64>()? / 1024)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = Arguments::parse();
    if arguments.threads.is_empty() {
        arguments.threads = vec![1, 2, 4, 8, 16];
    }
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header([
        "threads",
        "million events a second",
        "a second of a processor",
        "bytes an event",
        "peak MiB",
    ]);
    for threads in arguments.threads {
        let backend = NullBackend::new();
        let queue = backend.create_queue(QueueOrder::InOrder)?;
        let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
        let to: Box<dyn Write + Send> = match &arguments.to {
            Some(path) => Box::new(File::create(path)?),
            None => Box::new(io::sink()),
        };
        let bytes = Arc::new(AtomicU64::new(0));
        let recording = pool.record(Counting(to, Arc::clone(&bytes)))?;
        peak_mib(true)?;
        let (start, before) = (Instant::now(), processor_seconds()?);
        let events = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|_| scope.spawn(|| pairs(&pool, start, arguments.pairs)))
                .collect();
            let results = workers.into_iter().map(thread::ScopedJoinHandle::join);
            let results = results.map(|joined| joined.map_err(|_| "a thread panicked"));
            let pairs = results.map(|result| Ok::<_, Box<dyn Error>>(result??));
            Ok::<_, Box<dyn Error>>(2 * pairs.sum::<Result<u64, _>>()?)
        })?;
        let summary = recording.finish()?;
        let (time, taken) = (start.elapsed(), processor_seconds()? - before);
        if summary.allocations + summary.frees != events {
            return Err(format!("{events} events, and {summary:?}").into());
        }
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let (events, bytes) = (events as f64, bytes.load(Ordering::Relaxed) as f64);
        table.add_row([
            threads.to_string(),
            format!("{:.1}", events / time.as_secs_f64() / 1e6),
            format!("{:.1}", events / taken / 1e6),
            format!("{:.1}", bytes / events),
            peak_mib(false)?.to_string(),
        ]);
    }
    println!("{table}");
    Ok(())
}
