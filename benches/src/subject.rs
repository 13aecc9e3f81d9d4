//! What is measured, and what is done with it.

/// Anything that hands out blocks, to any thread.
pub trait Subject: Sync {
    /// A block in its user's hands, given back when it is dropped, by any thread.
    type Block: Send;

    /// The name in reports.
    const NAME: &'static str;

    /// A block of at least `bytes` bytes; `None` if there is no memory, which ends a measurement.
    fn allocate(&self, bytes: usize) -> Option<Self::Block>;

    /// Gives all free blocks back to where they came from. Nothing to do for a subject that keeps none, and for a peer
    /// that decides about this by itself.
    fn free_held(&self) {}

    /// From now on gives each block back to where it came from when it is dropped. Nothing to do for a subject that keeps
    /// none.
    fn stop_holding(&self) {}

    /// Gives some of the free blocks back, and looks at statistics: what a program does to a pool now and then.
    fn reclaim(&self) {}
}

/// A workload under way, in the hands of one thread.
pub trait Work {
    /// Does exactly this number of pairs of an allocation and a free. Returns whether there was memory for all of them.
    fn run(&mut self, pairs: u64) -> bool;
}
