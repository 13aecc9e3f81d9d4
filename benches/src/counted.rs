//! Pairs whose instructions are counted.

use std::{sync::mpsc::sync_channel, thread};

use crate::{Failure, Refused, Subject, SubjectChoice, Visitor, Work, Workload, pair::HOT_BYTES};

/// How many pairs are counted: one round of the mixed workload, and whole rounds of the others.
pub const COUNTED_PAIRS: u64 = 65_536;

/// Does [`COUNTED_PAIRS`] pairs of a workload on a fresh subject, on one thread. A tool that counts instructions only
/// within the function `counted_pairs` counts those of the pairs, and none of what warms up.
///
/// # Errors
///
/// [`Failure`].
pub fn counted(workload: Workload, subject: SubjectChoice) -> Result<(), Failure> {
    Ok(subject.show(Count { workload })??)
}

struct Count {
    workload: Workload,
}

impl Visitor for Count {
    type Output = Result<(), Refused>;

    fn visit<S: Subject>(self, subject: &S) -> Self::Output {
        thread::scope(|scope| {
            let mut work = self.workload.start(subject, scope);
            if counted_pairs(&mut *work) {
                Ok(())
            } else {
                Err(Refused {
                    subject: S::NAME,
                    workload: self.workload,
                })
            }
        })
    }
}

/// What is counted. Never inlined, since the tool knows it by its name.
#[inline(never)]
fn counted_pairs(work: &mut dyn Work) -> bool {
    work.run(COUNTED_PAIRS)
}

/// How many blocks come from the other thread at once.
const BATCH: usize = 64;

/// Has another thread allocate [`COUNTED_PAIRS`] blocks of 4096 bytes, 64 at a time, and drops them on this one. Only the drops are counted,
/// with all that they do to make room for the next.
///
/// # Errors
///
/// [`Failure`].
pub fn counted_drops(subject: SubjectChoice) -> Result<(), Failure> {
    Ok(subject.show(CountDrops)??)
}

struct CountDrops;

impl Visitor for CountDrops {
    type Output = Result<(), Refused>;

    fn visit<S: Subject>(self, subject: &S) -> Self::Output {
        let rounds = COUNTED_PAIRS / BATCH as u64;
        thread::scope(|scope| {
            let (to_producer, emptied) = sync_channel::<Vec<S::Block>>(1);
            let (to_consumer, full) = sync_channel(1);
            scope.spawn(move || {
                for mut batch in emptied {
                    batch.extend((0..BATCH).filter_map(|_| subject.allocate(HOT_BYTES)));
                    if to_consumer.send(batch).is_err() {
                        break;
                    }
                }
            });
            let mut batch = Vec::with_capacity(BATCH);
            // The first rounds fill the caches of both threads.
            for round in 0..rounds + 8 {
                let filled = to_producer.send(batch).ok().and_then(|()| full.recv().ok());
                batch = filled.unwrap_or_default();
                if batch.len() < BATCH {
                    return Err(Refused {
                        subject: S::NAME,
                        workload: Workload::CrossThread,
                    });
                }
                if round < 8 {
                    batch.clear();
                } else {
                    counted_pairs_drops(&mut batch);
                }
            }
            Ok(())
        })
    }
}

/// What is counted of the drops, known by its name like [`counted_pairs`].
#[inline(never)]
fn counted_pairs_drops<T>(batch: &mut Vec<T>) {
    batch.clear();
}
