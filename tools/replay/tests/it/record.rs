//! What `binpool record` says: its example is compiled and run here.

use std::{env, error::Error, process::Command};

use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
use binpool_mock::{MockBackend, MockDevice};
use binpool_recordings::Trace;

use crate::common::binpool;

/// The words of the part of this file between two comments.
fn example() -> String {
    let source = include_str!("record.rs");
    let (_, example) = source.rsplit_once("    // The example begins.").unwrap();
    let (example, _) = example.split_once("    // The example ends.").unwrap();
    words(example)
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The words of the code that is printed below a heading, up to another one.
fn printed(text: &str, heading: &str, next: &str) -> String {
    let (_, section) = text.split_once(heading).unwrap();
    let (section, _) = section.split_once(next).unwrap();
    let code = section.lines().filter(|line| line.starts_with("    "));
    words(&code.collect::<Vec<_>>().join("\n"))
}

#[test]
fn what_is_printed_is_what_is_run_below() {
    let ran = binpool(&["record"]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    let code = printed(
        &ran.output,
        "A program with a pool of binpool\n",
        "PyTorch\n",
    );
    assert_eq!(code, example());
}

/// It writes to the current folder, so it has a process whose current folder is its own.
#[test]
fn the_example_records_what_the_program_does() -> Result<(), Box<dyn Error>> {
    const NAME: &str = "record::the_example_records_what_the_program_does";
    const IS_CHILD: &str = "BINPOOL_TEST_RECORD";
    if env::var_os(IS_CHILD).is_none() {
        let folder = tempfile::tempdir()?;
        let child = Command::new(env::current_exe()?)
            .args(["--exact", NAME, "--nocapture"])
            .env(IS_CHILD, "1")
            .current_dir(&folder)
            .output()?;
        let [told, failures] = [&child.stdout, &child.stderr].map(|it| String::from_utf8_lossy(it));
        assert!(child.status.success(), "{told}\n{failures}");
        assert!(told.contains("1 passed"), "{told}");
        return Ok(());
    }
    let backend = MockDevice::new().backend();
    let queue = backend.create_queue(QueueOrder::InOrder)?;
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    pooled(&pool)?;
    let trace = Trace::open("program.trace".as_ref())?;
    assert_eq!((trace.allocations(), trace.frees()), (2, 1));
    assert_eq!(trace.group_of(0), Some("weights"));
    Ok(())
}

#[allow(clippy::items_after_statements, reason = "as it is printed")]
fn pooled(pool: &MemoryPool<MockBackend>) -> Result<(), Box<dyn Error>> {
    let build_weights = |pool: &MemoryPool<MockBackend>| pool.allocate(1 << 20);
    let run_your_program = |pool: &MemoryPool<MockBackend>| pool.allocate(4096).map(drop);
    let pool = pool.clone();
    // The example begins.
    use std::{fs::File, io::BufWriter};

    use binpool::Tag;

    let recording = pool.record(BufWriter::new(File::create("program.trace")?))?;
    let weights = Tag::new("weights").within(|| build_weights(&pool))?;
    run_your_program(&pool)?;
    let summary = recording.finish()?;
    // The example ends.
    assert_eq!((summary.allocations, summary.frees), (2, 1));
    drop(weights);
    Ok(())
}
