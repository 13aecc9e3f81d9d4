//! Blocks of memory: creating, committing and viewing them.

use std::{borrow::Cow, ptr::NonNull, sync::Arc};

use binpool_allocators::{Align, MemoryFlags, MemoryId, MemoryKind, Region, Result, SvmGrain};
use smallvec::SmallVec;

use super::{
    State,
    records::{Block, BlockKey, Object, ObjectKey, Operand, QueueKey, Touches},
    refuse,
};
use crate::{CallKind, Violation, cause::Cause, storage::Storage};

impl State {
    /// Returns the object and its block. Reports a violation and returns an error where it was released.
    pub(super) fn find(
        &mut self,
        operand: Operand,
        call: CallKind,
        command: &str,
    ) -> Result<BlockKey> {
        if let Some(object) = self.objects.get(operand.key)
            && self.blocks.get(object.block).is_some()
        {
            return Ok(object.block);
        }
        self.report(Violation::UseAfterFree {
            memory: operand.id,
            bytes: operand.region.bytes,
            call,
            command: Cow::Owned(command.to_owned()),
        });
        refuse(call, Cause::UseAfterFree { memory: operand.id })
    }

    pub(crate) fn create_buffer(
        &mut self,
        bytes: usize,
        flags: MemoryFlags,
    ) -> Result<(ObjectKey, MemoryId)> {
        let block = self.new_block(bytes, MemoryKind::Buffer, flags);
        if self.config.commit_at_create {
            self.reserve(bytes as u64, CallKind::CreateBuffer)?;
            self.charge(|costs| costs.commit.micros_at(bytes as u64));
        }
        self.charge(|costs| costs.create_buffer.micros_at(bytes as u64));
        let committed = self.config.commit_at_create;
        Ok(self.insert_block(Block { committed, ..block }))
    }

    pub(crate) fn allocate_svm(
        &mut self,
        bytes: usize,
        alignment: Align,
        grain: SvmGrain,
        queue: Option<QueueKey>,
        flags: MemoryFlags,
    ) -> Result<(ObjectKey, MemoryId)> {
        let block = self.new_block(bytes, MemoryKind::Svm(grain), flags);
        let Some(storage) = Storage::zeroed(bytes, alignment) else {
            let memory = block.id;
            let cause = Cause::OutOfHostMemory { memory, bytes };
            return refuse(CallKind::AllocateSvm, cause);
        };
        self.reserve(bytes as u64, CallKind::AllocateSvm)?;
        self.charge(|costs| costs.allocate_svm.micros_at(bytes as u64));
        let address = storage.address().addr().get();
        let (object, id) = self.insert_block(Block {
            committed: true,
            storage: Some(Arc::new(storage)),
            queue,
            ..block
        });
        self.freed_svm.remove(&address);
        if let Some(object) = self.objects.get(object) {
            self.svm.insert(address, object.block);
        }
        Ok((object, id))
    }

    pub(super) fn new_block(&self, bytes: usize, kind: MemoryKind, flags: MemoryFlags) -> Block {
        Block {
            id: MemoryId::fresh(),
            bytes,
            kind,
            flags,
            committed: false,
            storage: None,
            references: 1,
            views: 0,
            created_by_call: self.call_number(),
            queue: None,
            touches: Touches::default(),
            mappings: None,
            addresses: 0,
        }
    }

    pub(super) fn insert_block(&mut self, block: Block) -> (ObjectKey, MemoryId) {
        let (id, bytes, created_by_call) = (block.id, block.bytes, block.created_by_call);
        let created_bytes = block.created_bytes();
        let block = self.blocks.insert(block);
        let object = self.objects.insert(Object {
            id,
            block,
            region: Region::first(bytes),
            is_view: false,
            created_by_call,
        });
        let statistics = &mut self.statistics;
        statistics.live_blocks = self.blocks.len();
        statistics.created_bytes += created_bytes;
        statistics.peak_created_bytes = statistics.peak_created_bytes.max(statistics.created_bytes);
        (object, id)
    }

    /// Makes a view of a region, which is given as an operand.
    pub(crate) fn create_view(&mut self, part: Operand) -> Result<(ObjectKey, MemoryId)> {
        let kind = CallKind::CreateSubRegion;
        let key = self.find(part, kind, kind.name())?;
        let mut siblings = 0;
        if let Some(block) = self.blocks.get_mut(key) {
            block.references += 1;
            block.views += 1;
            siblings = block.views;
        }
        self.charge(|costs| costs.create_sub_region.micros_at(siblings));
        let id = MemoryId::fresh();
        let object = self.objects.insert(Object {
            id,
            block: key,
            region: part.region,
            is_view: true,
            created_by_call: self.call_number(),
        });
        self.statistics.live_sub_regions += 1;
        Ok((object, id))
    }

    /// Commits `bytes` bytes of the device, or none.
    pub(super) fn reserve(&mut self, bytes: u64, kind: CallKind) -> Result<()> {
        let free = self.free_bytes();
        if bytes > free {
            let requested = bytes;
            return refuse(kind, Cause::AllocationFailure { requested, free });
        }
        let statistics = &mut self.statistics;
        statistics.committed_bytes += bytes;
        statistics.peak_committed_bytes = statistics
            .peak_committed_bytes
            .max(statistics.committed_bytes);
        Ok(())
    }

    /// Commits those of these blocks that are not committed yet, all or none.
    pub(super) fn commit_blocks(
        &mut self,
        keys: impl Iterator<Item = BlockKey>,
        kind: CallKind,
    ) -> Result<()> {
        let mut fresh: SmallVec<[(BlockKey, u64); 4]> = SmallVec::new();
        for key in keys {
            if let Some(block) = self.blocks.get(key)
                && !block.committed
                && block.mappings.is_none()
                && !fresh.iter().any(|(seen, _)| *seen == key)
            {
                fresh.push((key, block.bytes as u64));
            }
        }
        if fresh.is_empty() {
            return Ok(());
        }
        let sum = fresh
            .iter()
            .fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        self.reserve(sum, kind)?;
        for (key, bytes) in fresh {
            self.charge(|costs| costs.commit.micros_at(bytes));
            if let Some(block) = self.blocks.get_mut(key) {
                block.committed = true;
            }
        }
        Ok(())
    }

    /// Orders the free of an object's block on another queue, or on none.
    pub(crate) fn bind(&mut self, key: ObjectKey, queue: Option<QueueKey>) {
        if let Some(object) = self.objects.get(key)
            && let Some(block) = self.blocks.get_mut(object.block)
        {
            block.queue = queue;
        }
    }

    /// Returns the address of a live object of shared or virtual memory.
    pub(crate) fn device_address(&self, key: ObjectKey) -> Option<u64> {
        let object = self.objects.get(key)?;
        match &self.blocks.get(object.block)?.mappings {
            Some(mappings) => Some(mappings.address + object.region.offset as u64),
            None => Some(self.svm_address(key)?.addr().get() as u64),
        }
    }

    /// Returns the address of a live object of SVM.
    pub(crate) fn svm_address(&self, key: ObjectKey) -> Option<NonNull<u8>> {
        let object = self.objects.get(key)?;
        let block = self.blocks.get(object.block)?;
        if block.kind == MemoryKind::Buffer {
            return None;
        }
        let start = block.storage.as_ref()?.address();
        // The wrapping form needs no unsafe code, and the address is valid: the region lies in the block.
        NonNull::new(start.as_ptr().wrapping_add(object.region.offset))
    }
}
