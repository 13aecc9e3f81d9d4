//! `&a * &b + &c` over and over, with and without the pool, on the mock device or on an OpenCL device:
//!
//! ```text
//! cargo run --release -p binpool-array --example expression            # the mock device
//! cargo run --release -p binpool-array --example expression -- opencl  # the first OpenCL device, or `opencl gpu`
//! ```

use std::{
    env,
    error::Error,
    time::{Duration, Instant},
};

use binpool::{Allocator, Backend, ImmediateAllocator, MemoryPool, Queue, QueueOrder};
use binpool_array::{ArrayError, Context, Kernels, MockKernels, open_opencl};
use binpool_mock::{DeviceProfile, MockDevice};

const ELEMENTS: usize = 1 << 20;
const ROUNDS: usize = 100;

/// Computes, and says how long it took and how many blocks came from the device.
fn compute<A: Allocator, K: Kernels<A::Backend>>(
    context: &Context<A, K>,
) -> Result<(Duration, u64), ArrayError> {
    let numbers = |step: f32| -> Vec<f32> {
        let mut number = 0.0;
        std::iter::repeat_with(|| {
            number += step;
            number
        })
        .take(ELEMENTS)
        .collect()
    };
    let (a, b, c) = (
        context.array(&numbers(0.5))?,
        context.array(&numbers(0.25))?,
        context.array(&numbers(1.0))?,
    );
    let before = context.pool().statistics().misses;
    let start = Instant::now();
    let mut result = &a * &b + &c;
    for _ in 1..ROUNDS {
        result = &result - &a * &b + &c;
    }
    context.queue().finish()?;
    let time = start.elapsed();
    let misses = context.pool().statistics().misses - before;
    assert_eq!(result.to_vec()?.len(), ELEMENTS);
    Ok((time, misses))
}

/// Prints both ways. `predicted` is the device's time so far, where it is simulated.
fn compare<B: Backend, K: Kernels<B>>(
    backend: &B,
    queue: &B::Queue,
    kernels: K,
    predicted: impl Fn() -> Option<Duration>,
) -> Result<(), Box<dyn Error>> {
    let pool = MemoryPool::new(ImmediateAllocator::new(backend)?, queue)?;
    let context = Context::new(pool.clone(), queue.clone(), kernels);
    let device = &backend.limits().device_name;
    println!("{device}: {ROUNDS} rounds over arrays of {ELEMENTS} floats");
    // Once before, so that what the runtime does only once is not counted.
    compute(&context)?;
    for name in ["with the pool:", "without the pool:"] {
        let before = predicted();
        let (time, blocks) = compute(&context)?;
        print!("  {name:18}{time:9.1?}, {blocks:4} blocks from the device");
        match (predicted(), before) {
            (Some(after), Some(before)) => {
                println!(", which would take {:.1?}", after.saturating_sub(before));
            }
            _ => println!(),
        }
        // From here on every block comes from the device and goes back to it.
        pool.stop_holding();
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    match arguments.next().as_deref() {
        None | Some("mock") => {
            let device = MockDevice::builder().profile(DeviceProfile::h200()).build();
            let backend = device.backend();
            let queue = backend.create_queue(QueueOrder::InOrder)?;
            compare(&backend, &queue, MockKernels, || Some(device.device_time()))
        }
        Some("opencl") => {
            let selector = arguments.next().unwrap_or_else(|| "any".into());
            let (backend, kernels) = open_opencl(&selector.parse()?)?;
            let queue = backend.create_queue(QueueOrder::InOrder)?;
            compare(&backend, &queue, kernels, || None)
        }
        Some(other) => Err(format!("no backend {other:?}: use `mock` or `opencl`").into()),
    }
}
