//! Shared virtual memory of a broken backend.

use std::{num::NonZero, ptr::NonNull};

use binpool_allocators::{
    Align, Backend, Error, Memory, MemoryFlags, MemoryKind, Queue, QueueOrder, Result, SvmBackend,
    SvmGrain,
};

use crate::{
    backend::Broken,
    defect::Defect,
    objects::{BrokenMemory, BrokenQueue},
};

impl SvmBackend for Broken {
    fn allocate_svm_with_flags(
        &self,
        mut bytes: usize,
        mut alignment: Option<Align>,
        mut grain: SvmGrain,
        mut queue: Option<&BrokenQueue>,
        mut flags: MemoryFlags,
    ) -> Result<BrokenMemory> {
        let limits = self.limits();
        match self.defect {
            Defect::GrainsAreNotLookedAt => grain = SvmGrain::Coarse,
            Defect::SvmAlignmentIsClipped => {
                alignment = alignment.map(|align| align.min(limits.largest_svm_alignment));
            }
            Defect::NoBytesAreOneByte => bytes = bytes.max(1),
            Defect::TooLargeIsOutOfMemory if bytes > limits.largest_block_bytes => {
                return Err(Error::device_out_of_memory(bytes, "too large"));
            }
            Defect::SvmTakesAnyQueue => {
                queue = queue.filter(|queue| queue.order() == QueueOrder::InOrder);
            }
            Defect::SvmIgnoresItsQueue => queue = None,
            Defect::SvmFlagsAreDropped => flags = MemoryFlags::empty(),
            _ => {}
        }
        let queue = queue.map(|queue| self.queue(queue));
        let memory = self
            .mock
            .allocate_svm_with_flags(bytes, alignment, grain, queue, flags);
        let memory = memory.map_err(|error| self.told(error))?;
        Ok(BrokenMemory::new(memory, self, false))
    }

    fn svm_address(&self, memory: &BrokenMemory) -> Option<NonNull<u8>> {
        let address = self.mock.svm_address(memory.inner());
        match self.defect {
            Defect::BuffersHaveAddresses if memory.kind() == MemoryKind::Buffer => {
                Some(NonNull::dangling())
            }
            Defect::SvmRegionsStartAtTheirBlock if memory.is_region => {
                let alignment = self.limits().alignment.bytes();
                address.map(|address| moved(address, |start| start - alignment))
            }
            // Not an alignment of 1, with which the host may still give an aligned address.
            Defect::SvmIsUnaligned => address.map(|address| moved(address, |start| start | 1)),
            Defect::SvmAddressesAreRounded => {
                address.map(|address| moved(address, |start| start & !0xfff))
            }
            _ => address,
        }
    }

    fn bound_queue(&self, memory: &BrokenMemory) -> Result<Option<BrokenQueue>> {
        let bound = self.mock.bound_queue(memory.inner());
        let mut bound = bound.map_err(|error| self.told(error))?;
        match self.defect {
            Defect::BindingOrdersNothing => bound = None,
            Defect::ReleasesNeedNoQueue => bound = bound.or_else(|| Some(self.own.queue.clone())),
            _ => {}
        }
        Ok(bound.map(|inner| BrokenQueue {
            order: inner.order(),
            id: inner.id(),
            home: self.clone(),
            inner,
        }))
    }

    fn set_bound_queue(&self, memory: &BrokenMemory, queue: Option<&BrokenQueue>) -> Result<()> {
        match self.defect {
            Defect::BindingsAreForgotten => return Ok(()),
            Defect::RegionsAreNotBound if memory.is_region => return Ok(()),
            Defect::OnlyTheFirstQueueCounts if queue.is_some() => return Ok(()),
            Defect::SvmIsBoundToAnyQueue
                if queue.is_some_and(|queue| queue.order() == QueueOrder::OutOfOrder) =>
            {
                return Ok(());
            }
            _ => {}
        }
        let queue = queue.map(|queue| self.queue(queue));
        let bound = self.mock.set_bound_queue(memory.inner(), queue);
        bound.map_err(|error| self.told(error))
    }
}

fn moved(address: NonNull<u8>, to: impl Fn(usize) -> usize) -> NonNull<u8> {
    address.map_addr(|start| NonZero::new(to(start.get())).unwrap_or(start))
}
