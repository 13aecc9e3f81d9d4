//! The workload `lifo`: 64 blocks live, the last one in is the first one out.

use crate::{Subject, Work};

/// How many blocks are live at the end of a climb.
const DEPTH: u64 = 64;

/// The sizes of the blocks, in bytes, one after the other and over again: 4 KiB to 512 KiB, as the intermediate results
/// of an expression have them. 64 blocks come to 8 MiB.
const SIZES: [usize; 8] = [
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
];

/// 64 blocks are allocated and then dropped in reverse order, over and over: 64 pairs a round.
pub(crate) struct Lifo<'a, S: Subject> {
    subject: &'a S,
    blocks: Vec<S::Block>,
}

impl<'a, S: Subject> Lifo<'a, S> {
    /// The workload on `subject`, after a first round.
    pub(crate) fn warmed_up(subject: &'a S) -> Self {
        let mut workload = Self {
            subject,
            blocks: Vec::new(),
        };
        workload.run(DEPTH);
        workload
    }

    /// Allocates `depth` blocks and drops them. Whether all were there.
    fn round(&mut self, depth: u64) -> bool {
        let sizes = SIZES.iter().cycle();
        for (bytes, _) in sizes.zip(0..depth) {
            self.blocks.extend(self.subject.allocate(*bytes));
        }
        let all = self.blocks.len() as u64 == depth;
        while self.blocks.pop().is_some() {}
        all
    }
}

impl<S: Subject> Work for Lifo<'_, S> {
    /// The last round is not as deep where `pairs` is not a multiple of 64.
    fn run(&mut self, pairs: u64) -> bool {
        (0..pairs / DEPTH).all(|_| self.round(DEPTH)) && self.round(pairs % DEPTH)
    }
}
