//! What a workload costs by itself.

use crate::Subject;

/// Hands out numbers and takes nothing back: what is left of a workload's time is the workload's own, its loop, its
/// table of sizes, its channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Subject for Nothing {
    type Block = usize;

    const NAME: &'static str = "nothing";

    fn allocate(&self, bytes: usize) -> Option<usize> {
        Some(bytes)
    }
}
