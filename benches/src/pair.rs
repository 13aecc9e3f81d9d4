//! The workloads `hot` and `large`: one block, over and over.

use std::hint::black_box;

use crate::{Subject, Work};

/// The size of a block of the workload `hot`, in bytes.
pub(crate) const HOT_BYTES: usize = 4096;

/// The size of a block of the workload `large`, in bytes: 8 MiB.
pub(crate) const LARGE_BYTES: usize = 8 << 20;

/// A block is allocated and dropped, over and over.
#[derive(Debug)]
pub(crate) struct Pair<'a, S> {
    subject: &'a S,
    bytes: usize,
}

impl<'a, S: Subject> Pair<'a, S> {
    /// The workload with blocks of `bytes` bytes. The first block comes from the device; every later one is the same
    /// again.
    pub(crate) fn warmed_up(subject: &'a S, bytes: usize) -> Self {
        drop(subject.allocate(bytes));
        Self { subject, bytes }
    }
}

impl<S: Subject> Work for Pair<'_, S> {
    fn run(&mut self, pairs: u64) -> bool {
        (0..pairs).all(|_| black_box(self.subject.allocate(black_box(self.bytes))).is_some())
    }
}
