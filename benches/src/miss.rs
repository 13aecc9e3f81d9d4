//! The workload `miss`: every request goes to the allocator, and every block back to it.

use std::hint::black_box;

use crate::{Subject, Work};

/// The size of a block, in bytes: 8 MiB, for which a pool with segments takes a segment of just this size.
const BYTES: usize = 8 << 20;

/// A block is allocated and dropped, over and over, by a pool that [holds nothing](Subject::stop_holding): each request
/// finds nothing and goes to the allocator, and each block goes back there. The same calls of the allocator without a pool
/// are those of the subject [`Direct`](crate::Direct), so that the difference is the pool's.
#[derive(Debug)]
pub(crate) struct Miss<'a, S> {
    subject: &'a S,
}

impl<'a, S: Subject> Miss<'a, S> {
    /// The workload on `subject`, which holds no free blocks from now on.
    pub(crate) fn warmed_up(subject: &'a S) -> Self {
        subject.stop_holding();
        Self { subject }
    }
}

impl<S: Subject> Work for Miss<'_, S> {
    fn run(&mut self, pairs: u64) -> bool {
        (0..pairs).all(|_| black_box(self.subject.allocate(black_box(BYTES))).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bins, Pool};

    const PAIRS: u64 = 100;

    #[test]
    fn every_request_goes_to_the_allocator_and_every_block_back() {
        let pool = Pool::new().unwrap();
        assert!(Miss::warmed_up(&pool).run(PAIRS));
        let bins = Bins::new().unwrap();
        assert!(Miss::warmed_up(&bins).run(PAIRS));
        for statistics in [pool.pool().statistics(), bins.pool().statistics()] {
            assert_eq!((statistics.hits, statistics.misses), (0, PAIRS));
            assert_eq!(statistics.managed_bytes, 0);
            assert_eq!(statistics.peak_managed_bytes, BYTES as u64);
        }
    }
}
