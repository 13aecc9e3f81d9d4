//! Shared virtual memory.

use std::{ptr::NonNull, sync::Arc};

use binpool_allocators::{
    Align, Backend, Error, InvalidRequest, MemoryFlags, OutOfMemory, Queue, QueueOrder, Result,
    Scope, SvmBackend, SvmGrain,
};
use cl3::memory::{CL_MEM_READ_WRITE, CL_MEM_SVM_ATOMICS, CL_MEM_SVM_FINE_GRAIN_BUFFER};

use crate::{
    backend::OpenClBackend,
    cl_error::Purpose,
    memory::cl_memory::{Body, ClMemory},
    queue::ClQueue,
    svm::block::SvmBlock,
    sys::SvmAllocation,
};

/// Alignments up to [`largest_svm_alignment`](binpool_allocators::DeviceLimits::largest_svm_alignment), 128
/// bytes, can be asked for. Where none is asked for and the device's buffers are aligned to more, the block
/// is too, at the cost of a little memory on runtimes that align SVM to no more than they must.
impl SvmBackend for OpenClBackend {
    fn allocate_svm(
        &self,
        bytes: usize,
        alignment: Option<Align>,
        grain: SvmGrain,
        queue: Option<&ClQueue>,
    ) -> Result<ClMemory> {
        let limits = self.limits();
        if !grain.is_in(limits.svm) {
            return Err(Error::svm_unsupported(&limits.device_name, grain));
        }
        limits.check_block(bytes)?;
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
        // Patterns of fills need alignment too, up to the largest: less is never asked of the runtime.
        let alignment = alignment.unwrap_or(limits.alignment).max(largest);
        let context = self.context();
        let allocation = SvmAllocation::new(
            &context.handle,
            svm_flags(grain),
            bytes,
            alignment,
            largest,
            context.svm_threads,
        )
        .map_err(|error| error.into_error(Purpose::Memory(bytes)))?
        // Everything that can be wrong with the call was looked at above.
        .ok_or_else(|| OutOfMemory::new(bytes, Scope::Device))?;
        let block = SvmBlock::new(allocation, grain, context, queue);
        let body = Body::Svm {
            block: Arc::new(block),
            offset: 0,
        };
        Ok(ClMemory::new(context, bytes, MemoryFlags::empty(), body))
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
    fn svm_block<'a>(&self, memory: &'a ClMemory) -> Result<&'a Arc<SvmBlock>> {
        self.check_own_memory(memory)?;
        memory.svm().ok_or_else(|| InvalidRequest::NotSvm.into())
    }
}

fn svm_flags(grain: SvmGrain) -> u64 {
    CL_MEM_READ_WRITE
        | match grain {
            SvmGrain::Coarse => 0,
            SvmGrain::Fine => CL_MEM_SVM_FINE_GRAIN_BUFFER,
            SvmGrain::FineAtomics => CL_MEM_SVM_FINE_GRAIN_BUFFER | CL_MEM_SVM_ATOMICS,
        }
}
