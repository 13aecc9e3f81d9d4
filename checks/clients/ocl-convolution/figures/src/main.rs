//! Convolutions of several sizes: prints their result, and the figures of one side.

use std::time::{Duration, Instant};

use ndarray::Array4;
use ocl_convolution::{Convolution, ConvolutionBuilder, FeatureMap, Params};

/// Sides of the signals, and how many channels they have.
const SIGNALS: [(usize, usize); 8] = [
    (28, 8),
    (96, 4),
    (12, 32),
    (64, 8),
    (96, 4),
    (28, 16),
    (112, 4),
    (12, 32),
];

fn main() {
    let builder = Convolution::f32(3).unwrap();
    let mut sum = 0.0;
    for (side, channels) in SIGNALS {
        sum += convolved(&builder, side, channels);
    }
    let host_time = median(2000, host_time(&builder));
    let small = median(300, || {
        convolved(&builder, 4, 4);
    });
    println!(
        r#"{{"result": {sum}, "host_us": {:.3}, "memory_over_live": {:.2}, "small_us": {}}}"#,
        host_time.as_secs_f64() * 1e6,
        memory_over_live(&builder),
        small.as_micros(),
    );
}

/// Returns the sum of what a convolution computes.
fn convolved(builder: &ConvolutionBuilder<f32>, side: usize, channels: usize) -> f64 {
    let number = |place: usize| (place * 37 % 101) as f32 / 101.0 - 0.5;
    let array = |shape: [usize; 4]| {
        Array4::from_shape_vec(shape, (0..shape.iter().product()).map(number).collect()).unwrap()
    };
    let (signal, filters) = (
        array([1, side, side, channels]),
        array([channels, 3, 3, channels]),
    );
    let convolution = builder.build(Params::default()).unwrap();
    let output = convolution
        .compute(FeatureMap::nhwc(&signal), &filters)
        .unwrap();
    output.iter().map(|value| f64::from(*value)).sum()
}

/// Returns what makes a buffer of 1 MiB, as the crate does, and drops it.
#[cfg(feature = "pooled")]
fn host_time(builder: &ConvolutionBuilder<f32>) -> impl FnMut() + '_ {
    let pool = builder.pool();
    move || {
        let block = pool.allocate(1 << 20).unwrap();
        let handle = block.memory_on(pool.home_queue()).unwrap().raw().unwrap();
        // SAFETY: the block has the buffer.
        drop(unsafe { ocl::core::Mem::from_raw_copied_ptr(handle) });
    }
}

#[cfg(not(feature = "pooled"))]
fn host_time(_: &ConvolutionBuilder<f32>) -> impl FnMut() {
    let queue = ocl::ProQue::builder()
        .src("kernel void none() {}")
        .build()
        .unwrap()
        .queue()
        .clone();
    move || {
        drop(
            ocl::Buffer::<u8>::builder()
                .queue(queue.clone())
                .len(1 << 20)
                .build()
                .unwrap(),
        );
    }
}

/// Returns the most memory that was taken, over the most that was in use.
#[cfg(feature = "pooled")]
fn memory_over_live(builder: &ConvolutionBuilder<f32>) -> f64 {
    let statistics = builder.pool().statistics();
    statistics.peak_managed_bytes as f64 / statistics.peak_active_bytes as f64
}

/// Without a pool the crate takes from the runtime what is in use, to the byte.
#[cfg(not(feature = "pooled"))]
fn memory_over_live(_: &ConvolutionBuilder<f32>) -> f64 {
    1.0
}

fn median(times: usize, mut work: impl FnMut()) -> Duration {
    let mut times: Vec<_> = (0..times)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}
