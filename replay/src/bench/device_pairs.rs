//! Measures the cost of a pooled pair on a device, beside the device's own calls.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use binpool::{
    Allocator, Backend, ImmediateAllocator, MemoryPool, PoolError, QueueOrder, SvmAllocator,
    SvmBackend, SvmGrain,
};
use binpool_benches::Effort;
use serde::Serialize;

use binpool::words::bytes;

/// The least number of samples, however long they last.
const FEWEST_SAMPLES: usize = 5;

/// The time after which no more samples are taken.
const LONG_ENOUGH: Duration = Duration::from_secs(1);

/// The cost of a pair of one subject: an allocation and its free.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DevicePair {
    /// The size of the block in bytes.
    pub size_bytes: usize,
    /// `pool` and `immediate`: buffers that are committed before the allocation returns, with a pool and without. `svm-pool` and
    /// `svm`: coarse-grained shared virtual memory, with a pool and without.
    pub subject: &'static str,
    /// The least time per pair of all samples, in nanoseconds.
    pub ns_per_pair_min: f64,
    /// The median time per pair, in nanoseconds.
    pub ns_per_pair_median: f64,
    /// The median over that of the pool of the same kind of memory: 1 for the pools.
    pub times_pool: f64,
}

/// Why there are no figures for blocks of one size.
#[derive(Debug, thiserror::Error)]
#[error("blocks of {} are left out", bytes(*.size_bytes as u64))]
pub struct LeftOut {
    /// The size in bytes.
    pub size_bytes: usize,
    /// The failure.
    pub source: PoolError,
}

impl LeftOut {
    /// Returns whether the device does not have this much memory, or not in one piece. Anything else is a failure.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        match &self.source {
            PoolError::Allocator(error) => error.is_out_of_memory(),
            error => error.is_out_of_memory(),
        }
    }
}

/// Measures pairs of blocks of `size_bytes` on a fresh pool with the default settings and on the allocator below it: of
/// buffers, and of shared virtual memory where the device has it.
///
/// A sample is as many pairs as take the least time of `effort`. Where the samples together take longer than a second,
/// fewer are taken, but at least five.
///
/// # Errors
///
/// [`LeftOut`] where an allocation fails.
pub fn device_pairs<B: SvmBackend>(
    backend: &B,
    size_bytes: usize,
    effort: Effort,
) -> Result<Vec<DevicePair>, LeftOut> {
    let measure = || {
        let immediate = ImmediateAllocator::new(backend)?;
        let mut pairs = Vec::from(beside(
            &immediate,
            ["pool", "immediate"],
            size_bytes,
            effort,
        )?);
        if SvmGrain::Coarse.is_in(backend.limits().svm) {
            let svm = SvmAllocator::new(backend, SvmGrain::Coarse)?;
            pairs.extend(beside(&svm, ["svm-pool", "svm"], size_bytes, effort)?);
        }
        Ok(pairs)
    };
    measure().map_err(|source| LeftOut { size_bytes, source })
}

/// Measures a pool over `allocator`, and `allocator` without it. The pool releases its memory before that.
fn beside<A: Allocator + Clone>(
    allocator: &A,
    subjects: [&'static str; 2],
    size_bytes: usize,
    effort: Effort,
) -> Result<[DevicePair; 2], PoolError> {
    let queue = allocator.backend().create_queue(QueueOrder::InOrder)?;
    let pool = MemoryPool::new(allocator.clone(), &queue)?;
    let pooled = samples(effort, || {
        pool.allocate(black_box(size_bytes))
            .map(|block| drop(black_box(block)))
    })?;
    drop(pool);
    let unpooled = samples(effort, || {
        let memory = allocator.allocate(black_box(size_bytes))?;
        Ok(allocator.release(black_box(memory), &[])?)
    })?;
    let at = |samples: &[f64], index: usize| samples.get(index).copied().unwrap_or(f64::NAN);
    let median = |samples: &[f64]| at(samples, samples.len() / 2);
    let [pool, direct] = subjects;
    Ok(
        [(pool, &pooled), (direct, &unpooled)].map(|(subject, samples)| DevicePair {
            size_bytes,
            subject,
            ns_per_pair_min: at(samples, 0),
            ns_per_pair_median: median(samples),
            times_pool: median(samples) / median(&pooled),
        }),
    )
}

/// The nanoseconds per pair of each sample, sorted. The first pair of all, for which a pool calls the device, does not count.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn samples(
    effort: Effort,
    pair: impl Fn() -> Result<(), PoolError>,
) -> Result<Vec<f64>, PoolError> {
    let batch = |pairs: u32| -> Result<Duration, PoolError> {
        let start = Instant::now();
        (0..pairs).try_for_each(|_| pair())?;
        Ok(start.elapsed())
    };
    pair()?;
    let mut pairs = 1;
    while batch(pairs)? < effort.least {
        pairs *= 2;
    }
    let start = Instant::now();
    let mut samples = Vec::new();
    while samples.len() < FEWEST_SAMPLES
        || samples.len() < effort.samples && start.elapsed() < LONG_ENOUGH
    {
        samples.push(batch(pairs)?.as_nanos() as f64 / f64::from(pairs));
    }
    samples.sort_by(f64::total_cmp);
    Ok(samples)
}
