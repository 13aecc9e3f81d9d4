//! Pairs whose instructions are counted.

use std::thread;

use crate::{Failure, Refused, Subject, SubjectChoice, Visitor, Work, Workload};

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
