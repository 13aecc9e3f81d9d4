//! Samples of what threads do side by side.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use binpool::PoolError;
use binpool_benches::Effort;

/// The least number of samples, however long they last.
const FEWEST_SAMPLES: usize = 5;

/// The time after which no more samples are taken.
const LONG_ENOUGH: Duration = Duration::from_secs(1);

/// Does so many pairs, with the queue of the thread.
pub(super) type Pairs<'a, Q> = &'a (dyn Fn(&Q, u32) -> Result<(), PoolError> + Sync);

/// The nanoseconds per pair of each sample, sorted. There is a thread for each queue. The first pair of all, for which a pool calls the
/// device, does not count.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(super) fn samples<Q: Sync>(
    effort: Effort,
    queues: &[Q],
    run: Pairs<'_, Q>,
) -> Result<Vec<f64>, PoolError> {
    let batch = |pairs: u32| match queues {
        [queue] => {
            let start = Instant::now();
            run(queue, pairs)?;
            Ok(start.elapsed())
        }
        _ => side_by_side(queues, run, pairs),
    };
    queues.iter().try_for_each(|queue| run(queue, 1))?;
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

/// Has a thread for each queue do so many pairs. Returns the time from the start of the first to the end of the last.
fn side_by_side<Q: Sync>(
    queues: &[Q],
    run: Pairs<'_, Q>,
    pairs: u32,
) -> Result<Duration, PoolError> {
    let ready = Barrier::new(queues.len());
    let lap = |queue| {
        // So that what a new thread does first does not count.
        let first = run(queue, 1);
        ready.wait();
        let start = Instant::now();
        first.and_then(|()| run(queue, pairs))?;
        Ok((start, Instant::now()))
    };
    let laps = thread::scope(|scope| {
        let lap = &lap;
        let threads: Vec<_> = queues
            .iter()
            .map(|queue| scope.spawn(move || lap(queue)))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            let lap = thread.join();
            lap.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads
            .into_iter()
            .map(join)
            .collect::<Result<Vec<_>, PoolError>>()
    })?;
    let start = laps.iter().map(|(start, _)| *start).min();
    let end = laps.iter().map(|(_, end)| *end).max();
    let span = end.zip(start).map(|(end, start)| end - start);
    Ok(span.unwrap_or_default())
}
