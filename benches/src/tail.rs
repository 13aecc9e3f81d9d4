//! How long a single operation takes, at worst.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;

use crate::{Failure, Mixed, Refused, Subject, SubjectChoice, Visitor, Workload};

/// How long the thread that reclaims sleeps between two calls.
const PAUSE: Duration = Duration::from_millis(1);

/// Figures are kept to three digits, up to a minute.
const DIGITS: u8 = 3;
const MOST_NS: u64 = 60_000_000_000;

/// How long single operations took, in nanoseconds, to three digits. The clock's own time is in every one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Threads that work side by side; the one that reclaims comes on top.
    pub threads: usize,
    /// Half of them took less.
    pub ns_median: u64,
    /// 999 in 1000 took less.
    pub ns_99_9: u64,
    /// None took longer.
    pub ns_max: u64,
    /// How many there were: allocations and frees.
    pub operations: u64,
}

/// The latency of each allocation and each free of the mixed workload, in so many threads that do `pairs` pairs each,
/// while another thread has the subject [reclaim](Subject::reclaim) memory and [free](Subject::free_held) all that it
/// holds, every millisecond in turn. Peers do neither.
///
/// # Errors
///
/// [`Failure`].
pub fn tail(subject: SubjectChoice, threads: usize, pairs: u64) -> Result<Tail, Failure> {
    Ok(subject.show(Measurement { threads, pairs })??)
}

/// What the clock itself takes: the time between two readings with nothing between them, `pairs` times two in each of
/// this many threads.
#[must_use]
pub fn clock(threads: usize, pairs: u64) -> Tail {
    let all = thread::scope(|scope| {
        let readings = || {
            let mut histogram = empty();
            for _ in 0..2 * pairs {
                let start = Instant::now();
                record(&mut histogram, start.elapsed());
            }
            histogram
        };
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(readings)).collect();
        let own = readings();
        let others = others.into_iter().filter_map(|thread| thread.join().ok());
        others.fold(own, sum)
    });
    figures(&all, threads)
}

struct Measurement {
    threads: usize,
    pairs: u64,
}

impl Visitor for Measurement {
    type Output = Result<Tail, Refused>;

    fn visit<S: Subject>(self, subject: &S) -> Self::Output {
        let refused = Refused {
            subject: S::NAME,
            workload: Workload::Mixed,
        };
        let are_working = AtomicBool::new(true);
        let barrier = Barrier::new(self.threads.max(1));
        let all = thread::scope(|scope| {
            scope.spawn(|| {
                let mut calls = [S::reclaim, S::free_held].into_iter().cycle();
                while are_working.load(Ordering::Relaxed) {
                    if let Some(call) = calls.next() {
                        call(subject);
                    }
                    thread::sleep(PAUSE);
                }
            });
            let steps = || {
                let mut workload = Mixed::warmed_up(subject);
                let mut histogram = empty();
                barrier.wait();
                for _ in 0..self.pairs {
                    workload.timed_step(|time| record(&mut histogram, time));
                }
                workload.is_full().then_some(histogram)
            };
            let others: Vec<_> = (1..self.threads).map(|_| scope.spawn(steps)).collect();
            let own = steps();
            let others: Vec<_> = others
                .into_iter()
                .map(|thread| thread.join().ok()?)
                .collect();
            are_working.store(false, Ordering::Relaxed);
            others
                .into_iter()
                .try_fold(own?, |all, other| Some(sum(all, other?)))
        });
        Ok(figures(&all.ok_or(refused)?, self.threads))
    }
}

#[expect(
    clippy::expect_used,
    reason = "the bounds are constants that the histogram takes"
)]
fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MOST_NS, DIGITS).expect("a histogram of these bounds")
}

fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(MOST_NS));
}

/// Both together, which have the same bounds.
fn sum(mut all: Histogram<u64>, other: Histogram<u64>) -> Histogram<u64> {
    all += other;
    all
}

fn figures(histogram: &Histogram<u64>, threads: usize) -> Tail {
    Tail {
        threads,
        ns_median: histogram.value_at_quantile(0.5),
        ns_99_9: histogram.value_at_quantile(0.999),
        ns_max: histogram.max(),
        operations: histogram.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_allocation_and_every_free_of_every_thread_is_counted() {
        let found = tail(SubjectChoice::Pool, 3, 100).unwrap();
        assert_eq!((found.threads, found.operations), (3, 600));
        assert_eq!(clock(3, 100).operations, 600);
    }

    #[test]
    fn figures_are_of_all_operations() {
        let mut histogram = empty();
        for ns in 1..=1000 {
            record(&mut histogram, Duration::from_nanos(ns));
        }
        record(&mut histogram, Duration::from_secs(3600));
        let found = figures(&histogram, 1);
        assert_eq!((found.ns_median, found.ns_99_9), (501, 1000));
        assert!(found.ns_max >= MOST_NS && found.operations == 1001);
    }
}
