//! Blocks made from ranges of the thread's own arena.

use binpool_allocators::{Backend, Error, QueueId};

use crate::{
    block::{Lease, Shell},
    flow::{allocate::Entered, carve::TakenRange},
    free::spare_leases::SpareLease,
    request::Size,
    shared::{Block, CarvedHere, LeasedBlock, Shared},
};

impl<B: Backend> Shared<B> {
    /// Makes a block from a range of this thread's own arena, and counts it.
    #[expect(clippy::inline_always, reason = "its large result would be copied")]
    #[inline(always)]
    pub(crate) fn hand_out_carved(
        &self,
        queue: QueueId,
        size: Size,
        carved: CarvedHere<B>,
    ) -> Result<LeasedBlock<B>, Error> {
        let CarvedHere {
            ready,
            queue_key,
            lease,
        } = carved;
        let entered = Entered::new(self, queue_key);
        let taken = TakenRange::new(self, queue_key, ready.range, false);
        // Declared after `taken`, so that on failure both are dropped before the range is returned.
        let (segment, view) = (ready.segment, ready.view);
        // This may call the program's own size classes, which may panic.
        let above = self.classes.below(size.bin, self.alignment);
        let memory = match view {
            Some(view) => view,
            None => self.allocator.create_view(&segment, ready.region)?,
        };
        self.count_carved(size.asked, ready.region.bytes);
        let SpareLease { share, shell } = lease;
        let block = Block {
            bytes: ready.region.bytes,
            above,
            bin: size.bin,
            slot: size.slot,
            lease: Lease::on(queue, Some(entered.keep()), true),
            range: Some(taken.keep()),
            record: None,
            memory,
        };
        Ok(shell.unwrap_or_else(Shell::new).fill(share, block))
    }
}
