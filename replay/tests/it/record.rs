//! What `binpool record` says: its example is compiled and run here.

use std::{env, error::Error, fs::File, io::BufWriter, process::Command};

use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder, Tag, adaptors::Recording};
use binpool_mock::{MockBackend, MockDevice};
use binpool_replay::Trace;

use crate::common::binpool;

type Allocator = ImmediateAllocator<MockBackend>;

/// The words of the part of this file between two comments.
fn example(name: &str) -> String {
    let source = include_str!("record.rs");
    let (_, example) = source
        .split_once(&format!("// The {name} begins."))
        .unwrap();
    let (example, _) = example.split_once(&format!("// The {name} ends.")).unwrap();
    words(example)
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn what_is_printed_is_what_is_run_below() {
    let ran = binpool(&["record"]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    let printed = words(&ran.output);
    for name in ["first example", "second example"] {
        assert!(
            printed.contains(&example(name)),
            "{name}: {}",
            example(name)
        );
    }
}

/// Both write to the current folder, so they take turns, in a process whose current folder is theirs.
#[test]
fn the_examples_record_what_the_program_does() -> Result<(), Box<dyn Error>> {
    const NAME: &str = "record::the_examples_record_what_the_program_does";
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
    pooled(&backend)?;
    let trace = Trace::open("program.trace".as_ref())?;
    assert_eq!((trace.allocations(), trace.frees()), (2, 1));
    assert_eq!(trace.group_of(0), Some("weights"));

    bare(ImmediateAllocator::new(&backend)?)?;
    let trace = Trace::open("program.trace".as_ref())?;
    assert_eq!((trace.allocations(), trace.frees()), (1, 1));
    Ok(())
}

fn pooled(backend: &MockBackend) -> Result<(), Box<dyn Error>> {
    let queue = backend.create_queue(QueueOrder::InOrder)?;
    let pool = MemoryPool::new(ImmediateAllocator::new(backend)?, &queue)?;
    let build_weights = |pool: &MemoryPool<Allocator>| pool.allocate(1 << 20);
    let run_your_program = |pool: &MemoryPool<Allocator>| pool.allocate(4096).map(drop);
    // The first example begins.
    let recording = pool.record(BufWriter::new(File::create("program.trace")?))?;
    let weights = Tag::new("weights").within(|| build_weights(&pool))?;
    run_your_program(&pool)?;
    let summary = recording.finish()?;
    // The first example ends.
    assert_eq!((summary.allocations, summary.frees), (2, 1));
    drop(weights);
    Ok(())
}

fn bare(allocator: Allocator) -> Result<(), Box<dyn Error>> {
    let run_your_program = |allocator: &Recording<Allocator>| {
        use binpool::Allocator as _;
        allocator
            .allocate(4096)
            .and_then(|memory| allocator.release(memory, &[]))
    };
    // The second example begins.
    let allocator = Recording::new(allocator, BufWriter::new(File::create("program.trace")?));
    run_your_program(&allocator)?;
    allocator.finish()?;
    // The second example ends.
    Ok(())
}
