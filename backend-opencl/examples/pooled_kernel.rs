//! A pool over an OpenCL device, and a kernel on its blocks.
//!
//! ```text
//! cargo run -p binpool-opencl --example pooled_kernel [SELECTOR]
//! ```
//!
//! With a selector (a number, a kind, a part of a name) it runs on that device, else on the first.

use std::error::Error;

use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
use binpool_opencl::{ClProgram, DeviceSelector, Extent, OpenClBackend, Parameter};

const ITEMS: usize = 1000;
const ROUNDS: usize = 50;

const SOURCE: &str = "
    kernel void add(global const float *a, global const float *b, global float *sum) {
        size_t i = get_global_id(0);
        sum[i] = a[i] + b[i];
    }";

fn main() -> Result<(), Box<dyn Error>> {
    add_up(&std::env::args().nth(1).unwrap_or_default().parse()?)
}

/// Adds 1 over and over, each time into a fresh block, as an array crate does it.
fn add_up(device: &DeviceSelector) -> Result<(), Box<dyn Error>> {
    let backend = OpenClBackend::open(device)?;
    let queue = backend.create_queue(QueueOrder::InOrder)?;
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;

    // Built once for each context, however often this runs.
    let add = backend.cached("add", || {
        let program = ClProgram::build(&backend, SOURCE, "")?;
        let each = Extent::PerItem(1);
        let parameters = [
            Parameter::input::<f32>(each),
            Parameter::input::<f32>(each),
            Parameter::output::<f32>(each),
        ];
        // SAFETY: each work item reads the two floats of its id and writes the one of its id, and nothing else.
        unsafe { program.kernel("add", &parameters) }
    })?;

    let floats = |value: f32| value.to_ne_bytes().repeat(ITEMS);
    let bytes = size_of::<f32>() * ITEMS;
    let ones = pool.allocate(bytes)?;
    ones.write(&queue, 0, &floats(1.0))?;
    let mut total = pool.allocate(bytes)?;
    total.write(&queue, 0, &floats(0.0))?;
    for _ in 0..ROUNDS {
        let sum = pool.allocate(bytes)?;
        // The blocks learn from the launch which queue uses them.
        add.launch(&queue, &[ITEMS])
            .memory(&total)
            .memory(&ones)
            .memory(&sum)
            .enqueue()?;
        total = sum; // The old total goes back while its kernel may still run: the queue keeps the two apart.
    }

    let mut result = vec![0; bytes];
    total.read(&queue, 0, &mut result)?;
    let statistics = pool.statistics();
    println!(
        "{}: {ROUNDS} sums, {} blocks from the device, {} from the pool",
        backend.limits().device_name,
        statistics.misses,
        statistics.hits
    );
    assert_eq!(result, floats(50.0));
    assert!(statistics.misses <= 3);
    Ok(())
}

#[test]
fn the_example_runs() {
    let selector = std::env::var("BINPOOL_TEST_DEVICE").unwrap_or_default();
    add_up(&selector.parse().unwrap()).unwrap();
}
