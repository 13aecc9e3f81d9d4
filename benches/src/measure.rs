//! Figures of a workload.

use std::time::Duration;

use binpool::{PoolError, RecordError};

use crate::{Race, Refused, Subject, SubjectChoice, Visitor, Workload, race};

/// How much is done for a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// How many samples are taken, at least one.
    pub samples: usize,
    /// How long a sample takes at least.
    pub least: Duration,
}

impl Default for Effort {
    /// 15 samples of 20 ms.
    fn default() -> Self {
        Self {
            samples: 15,
            least: Duration::from_millis(20),
        }
    }
}

/// What a workload costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Threads that work side by side.
    pub threads: usize,
    /// The least time of a sample over the pairs that each thread did, in nanoseconds.
    pub ns_per_pair_min: f64,
    /// The same of the middle sample.
    pub ns_per_pair_median: f64,
}

impl Figures {
    /// The pairs that all threads together do, in millions a second, in the middle sample.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "threads are few")]
    pub fn million_pairs_per_s(&self) -> f64 {
        self.threads as f64 * 1e3 / self.ns_per_pair_median
    }
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// There is no pool.
    #[error("a pool to measure cannot be made")]
    Pool(#[from] PoolError),
    /// The pool cannot be recorded.
    #[error("a pool to measure cannot be recorded")]
    Recording(#[from] RecordError),
    /// There was no memory for a block.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Measures a workload on a fresh subject with so many threads, each on blocks of its own; in
/// [`Workload::CrossThread`], so many producers with a consumer each.
///
/// The pairs of a sample are as many as take the least time, found by trying, and the same for every thread; the time is
/// that from the start of the first thread to the end of the last.
///
/// # Errors
///
/// [`Failure`].
pub fn measure(
    workload: Workload,
    subject: SubjectChoice,
    threads: usize,
    effort: Effort,
) -> Result<Figures, Failure> {
    let measurement = Measurement {
        workload,
        threads,
        effort,
    };
    Ok(subject.show(measurement)??)
}

struct Measurement {
    workload: Workload,
    threads: usize,
    effort: Effort,
}

impl Visitor for Measurement {
    type Output = Result<Figures, Refused>;

    fn visit<S: Subject>(self, subject: &S) -> Self::Output {
        race(self.workload, subject, self.threads, |race| {
            let mut samples = samples(race, self.effort)?;
            samples.sort_by(f64::total_cmp);
            let at = |place: usize| samples.get(place).copied().unwrap_or(f64::NAN);
            Ok(Figures {
                threads: self.threads,
                ns_per_pair_min: at(0),
                ns_per_pair_median: at(samples.len() / 2),
            })
        })
    }
}

/// The nanoseconds a pair of each sample.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn samples(race: &mut Race<'_>, effort: Effort) -> Result<Vec<f64>, Refused> {
    let pairs = enough(race, effort.least)?;
    let sample = |_| Ok(race.run(pairs)?.as_nanos() as f64 / pairs as f64);
    (0..effort.samples.max(1)).map(sample).collect()
}

/// How many pairs take at least so long, and hardly more than twice that.
fn enough(race: &mut Race<'_>, least: Duration) -> Result<u64, Refused> {
    let mut pairs = 64;
    while race.run(pairs)? < least {
        pairs *= 2;
    }
    Ok(pairs)
}
