//! What every backend promises for memory that is committed.

use binpool_allocators::{Backend, Region};

use crate::{Fixture, bench::Bench};

/// Transfers work after a commit.
pub fn a_committed_buffer_can_be_used<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(4096);
    bench.backend.commit(&bench.queue, &buffer).unwrap();
    bench.write(&buffer, &[5; 4096]);
    assert_eq!(bench.read(&buffer), [5; 4096]);
}

/// A second commit has no effect.
pub fn a_commit_may_be_repeated<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(4096);
    for _ in 0..3 {
        bench.backend.commit(&bench.queue, &buffer).unwrap();
    }
}

/// A region can be committed, too.
pub fn a_region_can_be_committed<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(65_536);
    let alignment = bench.backend.limits().alignment.bytes();
    let region = bench.region(&buffer, Region::new(alignment, 1024));
    bench.backend.commit(&bench.queue, &region).unwrap();
    bench.write(&region, &[6; 1024]);
    assert_eq!(bench.read(&region), [6; 1024]);
}
