//! Measures the cost of a pooled pair on a device, beside the device's own calls.

use std::hint::black_box;

use binpool::{
    Allocator, Backend, Error, ImmediateAllocator, MemoryPool, PoolError, QueueOf, QueueOrder,
    SvmAllocator, SvmBackend, SvmGrain, VirtualMemoryAllocator, words::bytes,
};
use binpool_benches::Effort;
use binpool_cuda::{CudaBackend, DriverPoolAllocator};
use serde::Serialize;

use crate::bench::side_by_side::{Pairs, samples};

/// The cost of a pair of one subject: an allocation and its free.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DevicePair {
    /// The size of the block in bytes.
    pub size_bytes: usize,
    /// The number of threads, each with a queue of its own.
    pub threads: usize,
    /// `pool` and `immediate`: buffers that are committed before the allocation returns, with a pool and without. `svm-pool` and
    /// `svm`: coarse-grained shared virtual memory, with a pool and without. `virtual-memory-pool`: a pool of pages. `stream-ordered`: a
    /// pool of CUDA's driver.
    pub subject: &'static str,
    /// The least time of a sample over the pairs that each thread did, in nanoseconds.
    pub ns_per_pair_min: f64,
    /// The same of the middle sample.
    pub ns_per_pair_median: f64,
    /// The median over that of the pool of the same kind of memory: 1 for the pools. Of all subjects of CUDA, over that of `pool`.
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

/// Measures pairs of blocks of `size_bytes` on so many threads of a CUDA device, each with a stream of its own: of two pools with the
/// default settings, over buffers and over pages, each of which holds the blocks already; and the driver's own calls, on streams and without.
///
/// Samples are those of [`device_pairs`], from the start of the first thread to the end of the last.
///
/// # Errors
///
/// [`LeftOut`] where an allocation fails.
pub fn cuda_pairs(
    backend: &CudaBackend,
    size_bytes: usize,
    threads: usize,
    effort: Effort,
) -> Result<Vec<DevicePair>, LeftOut> {
    let measure = || {
        let queue = |_| backend.create_queue(QueueOrder::InOrder);
        let queues = (0..threads).map(queue).collect::<Result<Vec<_>, _>>()?;
        let bench = Bench {
            queues: &queues,
            size_bytes,
            effort,
        };
        let immediate = ImmediateAllocator::new(backend)?;
        let pool = bench.pool(&immediate)?;
        let of_pages = bench.pool(&VirtualMemoryAllocator::new(backend))?;
        let driver = DriverPoolAllocator::new(backend)?;
        let ordered = bench.samples(&|queue, pairs| {
            driver.time_pairs(queue, black_box(size_bytes), u64::from(pairs))?;
            Ok(())
        })?;
        drop(driver);
        let direct = bench.direct(&immediate)?;
        let all = [
            ("pool", &pool),
            ("virtual-memory-pool", &of_pages),
            ("stream-ordered", &ordered),
            ("immediate", &direct),
        ];
        let pairs = all.map(|(subject, samples)| bench.pair(subject, samples, &pool));
        Ok(pairs.into())
    };
    measure().map_err(|source| LeftOut { size_bytes, source })
}

/// Measures a pool over `allocator`, and `allocator` without it, on one thread. The pool releases its memory before that.
fn beside<A: Allocator + Clone>(
    allocator: &A,
    subjects: [&'static str; 2],
    size_bytes: usize,
    effort: Effort,
) -> Result<[DevicePair; 2], PoolError> {
    let queue = allocator.backend().create_queue(QueueOrder::InOrder)?;
    let bench = Bench {
        queues: &[queue],
        size_bytes,
        effort,
    };
    let pooled = bench.pool(allocator)?;
    let unpooled = bench.direct(allocator)?;
    let [pool, direct] = subjects;
    let pairs = [(pool, &pooled), (direct, &unpooled)];
    Ok(pairs.map(|(subject, samples)| bench.pair(subject, samples, &pooled)))
}

/// What is the same for the subjects of one size.
struct Bench<'a, Q> {
    /// A queue for each thread.
    queues: &'a [Q],
    size_bytes: usize,
    effort: Effort,
}

impl<Q: Send + Sync> Bench<'_, Q> {
    /// Measures a pool over `allocator`, which gives its memory back at the end.
    fn pool<A>(&self, allocator: &A) -> Result<Vec<f64>, PoolError>
    where
        A: Allocator<Backend: Backend<Queue = Q>> + Clone,
    {
        let home = self.queues.first().ok_or_else(no_threads)?;
        let pool = MemoryPool::new(allocator.clone(), home)?;
        let pair = |queue: &QueueOf<A>| {
            let block = pool.allocate_on(queue, black_box(self.size_bytes));
            block.map(|block| drop(black_box(block)))
        };
        self.samples(&|queue, pairs| (0..pairs).try_for_each(|_| pair(queue)))
    }

    /// Measures `allocator`.
    fn direct<A: Allocator>(&self, allocator: &A) -> Result<Vec<f64>, PoolError> {
        let pair = || {
            let memory = allocator.allocate(black_box(self.size_bytes))?;
            Ok(allocator.release(black_box(memory), &[])?)
        };
        self.samples(&|_, pairs| (0..pairs).try_for_each(|_| pair()))
    }

    fn samples(&self, pairs: Pairs<'_, Q>) -> Result<Vec<f64>, PoolError> {
        samples(self.effort, self.queues, pairs)
    }

    fn pair(&self, subject: &'static str, samples: &[f64], pooled: &[f64]) -> DevicePair {
        let at = |samples: &[f64], index: usize| samples.get(index).copied().unwrap_or(f64::NAN);
        let median = |samples: &[f64]| at(samples, samples.len() / 2);
        DevicePair {
            size_bytes: self.size_bytes,
            threads: self.queues.len(),
            subject,
            ns_per_pair_min: at(samples, 0),
            ns_per_pair_median: median(samples),
            times_pool: median(samples) / median(pooled),
        }
    }
}

fn no_threads() -> Error {
    Error::unsupported("a measurement on no threads: name at least one")
}
