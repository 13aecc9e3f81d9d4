//! How the mock frees a released block once its commands have ended, and reports uses of freed memory.

use binpool_allocators::{MemoryId, MemoryKind, Result};
use smallvec::SmallVec;

use super::{
    State,
    records::{Access, Block, BlockKey, EventKey, Operand},
    refuse,
};
use crate::{CallKind, Violation, cause::Cause};

impl State {
    /// Releases an object: its block is freed once `after`, the commands that use it, and the earlier commands of its
    /// queue have ended. The object is gone whatever the result is.
    pub(crate) fn release(&mut self, operand: Operand, after: &[EventKey]) -> Result<()> {
        let kind = CallKind::Release;
        let result = self.call(kind, operand.region.bytes, |_| Ok(()));
        let result = result.and(self.release_object(operand, after));
        self.statistics.failed_releases += u64::from(result.is_err());
        result
    }

    fn release_object(&mut self, operand: Operand, after: &[EventKey]) -> Result<()> {
        let memory = operand.id;
        let Some(object) = self.objects.remove(operand.key) else {
            return self.double_free(CallKind::Release, memory, operand.region.bytes);
        };
        self.statistics.live_sub_regions -= usize::from(object.is_view);
        let Some(block) = self.blocks.get_mut(object.block) else {
            // Its address was freed by hand. A view has nothing else to free.
            if object.is_view {
                return Ok(());
            }
            return self.double_free(CallKind::Release, memory, operand.region.bytes);
        };
        let (siblings, bytes, committed, kind) =
            (block.views, block.bytes as u64, block.committed, block.kind);
        let is_reservation = block.mappings.is_some();
        block.views -= u64::from(object.is_view);
        let queue = block.queue;
        self.charge(|costs| match (object.is_view, kind) {
            (true, _) => costs.release_sub_region.micros_at(siblings),
            (false, MemoryKind::Svm(_)) => costs.free_svm.micros_at(bytes),
            (false, MemoryKind::Pages) => costs.release_pages.micros_at(bytes),
            (false, _) if is_reservation => 0.0,
            (false, _) if committed => costs.release_committed.micros_at(bytes),
            (false, _) => costs.release_deferred.micros_at(bytes),
        });
        let ordered = queue.map_or_else(Vec::new, |queue| self.unfinished(queue));
        let events: SmallVec<[EventKey; 4]> = after
            .iter()
            .copied()
            .chain(ordered)
            .filter(|event| self.is_pending(*event))
            .collect();
        if events.is_empty() {
            self.drop_block_reference(object.block);
        } else {
            self.free_after(object.block, &events);
        }
        Ok(())
    }

    fn double_free(&mut self, kind: CallKind, memory: MemoryId, bytes: usize) -> Result<()> {
        let bytes = Some(bytes);
        self.report(Violation::DoubleFree { memory, bytes });
        refuse(kind, Cause::DoubleFree { memory })
    }

    /// Drops one reference to a block, and frees the block with the last.
    pub(super) fn drop_block_reference(&mut self, key: BlockKey) {
        if let Some(block) = self.blocks.get_mut(key) {
            block.references -= 1;
            if block.references == 0 {
                self.free(key);
            }
        }
    }

    fn free(&mut self, key: BlockKey) -> Option<Block> {
        self.unmap_all(key);
        let block = self.blocks.remove(key)?;
        let statistics = &mut self.statistics;
        statistics.live_blocks = self.blocks.len();
        statistics.created_bytes -= block.created_bytes();
        if block.committed {
            statistics.committed_bytes -= block.bytes as u64;
        }
        if let (MemoryKind::Svm(_), Some(storage)) = (block.kind, &block.storage) {
            let address = storage.address().addr().get();
            self.svm.remove(&address);
            self.freed_svm.insert(address, (block.id, block.bytes));
        }
        Some(block)
    }

    /// Frees the block of SVM at `address` now, even while commands use it.
    pub(crate) fn free_svm_address(&mut self, address: usize) -> Result<()> {
        let kind = CallKind::FreeSvmAddress;
        self.call(kind, 0, |_| Ok(()))?;
        let Some(key) = self.svm.get(&address).copied() else {
            let Some((memory, bytes)) = self.freed_svm.get(&address).copied() else {
                self.report(Violation::UnknownAddress { address });
                return refuse(kind, Cause::UnknownAddress { address });
            };
            return self.double_free(kind, memory, bytes);
        };
        let Some(block) = self.free(key) else {
            return Ok(());
        };
        let bytes = block.bytes as u64;
        self.charge(|costs| costs.free_svm.micros_at(bytes));
        self.report_users(block.id, block.bytes, |access| access.block == key);
        Ok(())
    }

    /// Reports each command that has not ended and that has an access that `uses` memory which is gone now. Returns whether there is one.
    pub(super) fn report_users(
        &mut self,
        memory: MemoryId,
        bytes: usize,
        uses: impl Fn(&Access) -> bool,
    ) -> bool {
        let users: Vec<_> = self
            .commands
            .values()
            .filter(|command| command.reads.iter().chain(&command.writes).any(&uses))
            .map(|command| (command.id, command.name.clone()))
            .collect();
        let is_used = !users.is_empty();
        for (command, name) in users {
            self.report(Violation::FreedInUse {
                memory,
                bytes,
                command,
                name,
            });
        }
        is_used
    }
}
