//! `&a * &b + &c` over and over, with and without the pool; then parts of an array, a host map and reductions; on the
//! mock device, an OpenCL device or a CUDA device:
//!
//! ```text
//! cargo run --release -p binpool-array --example expression            # the mock device
//! cargo run --release -p binpool-array --example expression -- opencl  # the first OpenCL device, or `opencl gpu`
//! cargo run --release -p binpool-array --example expression -- cuda    # the first CUDA device, or `cuda 1`
//! cargo run --release -p binpool-array --example expression -- vulkan  # the first Vulkan device, or `vulkan 1`
//! ```

use std::{
    env,
    error::Error,
    time::{Duration, Instant},
};

use binpool::{Backend, ImmediateAllocator, MemoryPool, Queue, QueueOrder};
use binpool_array::{
    Array, ArrayError, Context, HostMaps, Kernels, MockKernels, open_cuda, open_opencl, open_vulkan,
};
use binpool_mock::{DeviceProfile, MockDevice};

const ELEMENTS: usize = 1 << 20;
const ROUNDS: usize = 100;

/// Computes, and says how long it took and how many blocks came from the device.
fn compute<B: Backend, K: Kernels<B>>(
    context: &Context<B, K>,
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

/// Smooths a jagged line, whose every third point the host has set in place, and says how steep it was and is.
fn smooth<B: HostMaps, K: Kernels<B>>(context: &Context<B, K>) -> Result<(), ArrayError> {
    let mut line = context.array(&vec![0.0; ELEMENTS])?;
    for (place, height) in line.map_mut()?.iter_mut().step_by(3).enumerate() {
        *height = if place % 2 == 0 { 3.0 } else { -3.0 };
    }
    let third = context.array(&vec![1.0 / 3.0; ELEMENTS - 2])?;
    let steepest = |line: &Array<B, K>| -> Result<f32, ArrayError> {
        (line.slice(1..)? - line.slice(..line.len() - 1)?).max()
    };
    let before = steepest(&line)?;
    let sums = line.slice(..ELEMENTS - 2)? + line.slice(1..ELEMENTS - 1)? + line.slice(2..)?;
    line.slice_mut(1..ELEMENTS - 1)?.assign(&(sums * third))?;
    println!(
        "  a line: the steepest step was {before} and is {}; it begins with {:?}, lies between {} and {}, sum {}",
        steepest(&line)?,
        &line.slice(..6)?.map()?[..],
        line.min()?,
        line.max()?,
        line.sum()?
    );
    Ok(())
}

/// Prints both ways. `predicted` is the device's time so far, where it is simulated.
fn compare<B: HostMaps, K: Kernels<B>>(
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
    smooth(&context)?;
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
        Some("cuda") => {
            let ordinal = arguments.next().unwrap_or_else(|| "0".into());
            let (backend, kernels) = open_cuda(ordinal.parse()?)?;
            let queue = backend.create_queue(QueueOrder::InOrder)?;
            compare(&backend, &queue, kernels, || None)
        }
        Some("vulkan") => {
            let number = arguments.next().unwrap_or_else(|| "0".into());
            let (backend, kernels) = open_vulkan(number.parse()?)?;
            let queue = backend.create_queue(QueueOrder::InOrder)?;
            compare(&backend, &queue, kernels, || None)
        }
        Some(other) => {
            Err(format!("no backend {other:?}: use `mock`, `opencl`, `cuda` or `vulkan`").into())
        }
    }
}
