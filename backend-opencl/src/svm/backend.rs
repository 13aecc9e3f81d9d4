//! Shared virtual memory.

use std::{ptr::NonNull, sync::Arc};

use binpool_allocators::{
    Align, Backend, Error, InvalidRequest, MemoryFlags, OutOfMemory, Queue, QueueOrder, Result,
    Scope, SvmBackend, SvmGrain,
};
use cl3::memory::{CL_MEM_READ_WRITE, CL_MEM_SVM_ATOMICS, CL_MEM_SVM_FINE_GRAIN_BUFFER};

use crate::{
    backend::OpenClBackend,
    kept_memory,
    memory::cl_memory::{ClMemory, MemoryBody},
    memory::flags,
    queue::ClQueue,
    svm::block::SvmBlock,
    svm::options::SvmOptions,
    sys::{self, Purpose, SvmAllocation},
};

/// Alignments up to [`largest_svm_alignment`](binpool_allocators::DeviceLimits::largest_svm_alignment), 128 bytes, can be
/// asked for. Without a request, a block is aligned like the device's buffers if that is more. This costs a little memory
/// on runtimes that align SVM to less.
impl SvmBackend for OpenClBackend {
    fn allocate_svm(
        &self,
        bytes: usize,
        alignment: Option<Align>,
        grain: SvmGrain,
        queue: Option<&ClQueue>,
    ) -> Result<ClMemory> {
        self.allocate(
            bytes,
            &SvmOptions {
                grain,
                alignment,
                queue: queue.cloned(),
                flags: MemoryFlags::empty(),
            },
        )
    }

    fn svm_address(&self, memory: &ClMemory) -> Option<NonNull<u8>> {
        memory.svm_address()
    }

    fn bound_queue(&self, memory: &ClMemory) -> Result<Option<ClQueue>> {
        Ok(self.svm_block(memory)?.bound())
    }

    fn set_bound_queue(&self, memory: &ClMemory, queue: Option<&ClQueue>) -> Result<()> {
        let block = self.svm_block(memory)?;
        if let Some(queue) = queue {
            self.check_own_queue(queue)?;
            if queue.order() == QueueOrder::OutOfOrder {
                return Err(InvalidRequest::OutOfOrderQueue.into());
            }
        }
        block.bind(queue);
        Ok(())
    }
}

impl OpenClBackend {
    /// Allocates shared virtual memory with these options. The errors are those of `allocate_svm`, and `ContradictoryFlags`.
    pub(super) fn allocate(&self, bytes: usize, options: &SvmOptions) -> Result<ClMemory> {
        let SvmOptions {
            grain,
            alignment,
            ref queue,
            flags,
        } = *options;
        let limits = self.limits();
        if !grain.is_in(limits.svm) {
            return Err(Error::svm_unsupported(&limits.device_name, grain));
        }
        limits.check_block(bytes)?;
        flags.check()?;
        let largest = limits.largest_svm_alignment;
        if let Some(alignment) = alignment.filter(|&alignment| alignment > largest) {
            return Err(InvalidRequest::AlignmentTooLarge { alignment, largest }.into());
        }
        if let Some(queue) = queue {
            self.check_own_queue(queue)?;
            if queue.order() == QueueOrder::OutOfOrder {
                return Err(InvalidRequest::OutOfOrderQueue.into());
            }
        }
        // Fills need an alignment of their patterns, up to the largest, so no less is asked of the runtime.
        let alignment = alignment.unwrap_or(limits.alignment).max(largest);
        let context = self.context();
        let allocation = SvmAllocation::new(
            &context.handle,
            svm_flags(grain, flags),
            bytes,
            alignment,
            largest,
            context.quirks.svm_threads,
            || kept_memory::let_go() | sys::free_what_has_ended(),
        )
        .map_err(|error| error.into_error(Purpose::Memory(bytes)))?
        // Every other reason for a failure was checked above.
        .ok_or_else(|| OutOfMemory::new(bytes, Scope::Device))?;
        let block = SvmBlock::new(allocation, grain, queue.as_ref());
        let body = MemoryBody::Svm {
            block: Arc::new(block),
            offset: 0,
        };
        Ok(ClMemory::new(context, bytes, flags, body))
    }

    fn svm_block<'a>(&self, memory: &'a ClMemory) -> Result<&'a Arc<SvmBlock>> {
        self.check_own_memory(memory)?;
        memory.svm().ok_or_else(|| InvalidRequest::NotSvm.into())
    }
}

fn svm_flags(grain: SvmGrain, flags: MemoryFlags) -> u64 {
    let kernels = match flags::to_cl(flags) {
        0 => CL_MEM_READ_WRITE,
        kernels => kernels,
    };
    kernels
        | match grain {
            SvmGrain::Coarse => 0,
            SvmGrain::Fine => CL_MEM_SVM_FINE_GRAIN_BUFFER,
            SvmGrain::FineAtomics => CL_MEM_SVM_FINE_GRAIN_BUFFER | CL_MEM_SVM_ATOMICS,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rect, testing::open};

    /// The runtime aligns its allocation to less, so the block starts within.
    #[test]
    fn commands_on_an_aligned_block_count_from_the_start_of_the_block() {
        const BYTES: usize = 4096;
        let backend = open();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let allocation = SvmAllocation::new(
            &backend.context().handle,
            CL_MEM_READ_WRITE,
            BYTES,
            Align::new(1 << 16).unwrap(),
            Align::new(64).unwrap(),
            backend.context().quirks.svm_threads,
            || false,
        );
        let block = SvmBlock::new(allocation.unwrap().unwrap(), SvmGrain::Coarse, None);
        let body = MemoryBody::Svm {
            block: Arc::new(block),
            offset: 0,
        };
        let memory = ClMemory::new(backend.context(), BYTES, MemoryFlags::empty(), body);
        let address = memory.svm_address().unwrap().addr().get();
        assert!(address.is_multiple_of(1 << 16));

        backend.enqueue_fill(&queue, &memory, .., &[9_u8]).unwrap();
        let data = backend.create_buffer_from(&[7_u8; 64], MemoryFlags::empty());
        let copied = backend.enqueue_copy(&queue, &data.unwrap(), .., &memory, 128);
        copied.unwrap();
        let (tight, rows) = (Rect::default(), Rect::in_rows([1, 1, 0], 10));
        let rect = (&[5_u8; 4][..], tight);
        backend
            .write_rect(&queue, (&memory, rows), rect, [2, 2, 1])
            .unwrap();
        let mut seen = [0_u8; BYTES];
        backend.read(&queue, &memory, 0, &mut seen).unwrap();
        let mut expected = [9; BYTES];
        expected[128..192].fill(7);
        for at in [11, 12, 21, 22] {
            expected[at] = 5;
        }
        assert_eq!(seen, expected);
    }
}
