//! Threads that do the same side by side.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{Refused, Subject, Work, Workload};

/// Has `threads` threads work on one subject, each on blocks of its own, as often as `lead` asks for it. The calling
/// thread is one of them. All are warmed up before `lead` is called, and none is pinned.
///
/// # Panics
///
/// Where the operating system has no more threads to give.
pub fn race<S: Subject, R>(
    workload: Workload,
    subject: &S,
    threads: usize,
    lead: impl FnOnce(&mut Race<'_>) -> R,
) -> R {
    let course = Course {
        barrier: Barrier::new(threads.max(1)),
        pairs: AtomicU64::new(0),
        laps: Mutex::new(Vec::new()),
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| {
                let mut work = workload.start(subject, scope);
                while course.lap(&mut *work) {}
            });
        }
        let mut race = Race {
            course: &course,
            work: workload.start(subject, scope),
            refused: Refused {
                subject: S::NAME,
                workload,
            },
        };
        // The others leave once this is dropped, also where `lead` panics.
        lead(&mut race)
    })
}

/// Threads that are ready to work.
pub struct Race<'a> {
    course: &'a Course,
    work: Box<dyn Work + 'a>,
    refused: Refused,
}

/// What the threads share.
struct Course {
    barrier: Barrier,
    /// What each thread is to do; 0 when all is done.
    pairs: AtomicU64,
    laps: Mutex<Vec<Lap>>,
}

/// What a thread did.
struct Lap {
    start: Instant,
    end: Instant,
    has_succeeded: bool,
}

impl Course {
    /// Waits for the others, works, and waits for the others. Whether there was anything to do.
    fn lap(&self, work: &mut dyn Work) -> bool {
        self.barrier.wait();
        // Written before the barrier, by the thread that leads.
        let pairs = self.pairs.load(Ordering::Relaxed);
        if pairs == 0 {
            return false;
        }
        let start = Instant::now();
        let has_succeeded = work.run(pairs);
        let end = Instant::now();
        self.laps.lock().push(Lap {
            start,
            end,
            has_succeeded,
        });
        self.barrier.wait();
        true
    }
}

impl Race<'_> {
    /// Has each thread do `pairs` pairs, at least one. The time from the start of the first to the end of the last.
    ///
    /// # Errors
    ///
    /// [`Refused`] where there was no memory for a block.
    pub fn run(&mut self, pairs: u64) -> Result<Duration, Refused> {
        self.course.pairs.store(pairs.max(1), Ordering::Relaxed);
        self.course.lap(&mut *self.work);
        let laps = std::mem::take(&mut *self.course.laps.lock());
        let start = laps.iter().map(|lap| lap.start).min();
        let end = laps.iter().map(|lap| lap.end).max();
        let span = end.zip(start).map(|(end, start)| end - start);
        if laps.iter().all(|lap| lap.has_succeeded) {
            span.ok_or(self.refused)
        } else {
            Err(self.refused)
        }
    }
}

impl Drop for Race<'_> {
    fn drop(&mut self) {
        self.course.pairs.store(0, Ordering::Relaxed);
        self.course.lap(&mut *self.work);
    }
}

impl std::fmt::Debug for Race<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Race")
            .field("of", &self.refused)
            .finish_non_exhaustive()
    }
}
