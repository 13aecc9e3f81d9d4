//! Slices of the program's own as shared virtual memory, for the duration of a call.
//!
//! A guard with a lifetime would not be sound, as for buffers over lent memory (`memory/lent_buffer.rs`).

use binpool_allocators::{Align, MemoryFlags, Result, SvmGrain};
use bytemuck::Pod;

use super::system::whole;
use crate::{
    backend::OpenClBackend, memory::cl_memory::ClMemory, svm::block::SvmBlock,
    sys::lent_svm::with_block_over,
};

/// Shared virtual memory that is lent for a call.
impl OpenClBackend {
    /// Calls `run` with `elements` as shared virtual memory, on devices that share all memory of the host (fine-grained
    /// system SVM: [`SvmSupport::system`](binpool_allocators::SvmSupport::system)), and waits until every command on it has
    /// ended, even if `run` panics: `PyOpenCL`'s `SVM` around an array that stays the program's.
    /// [`system_svm`](Self::system_svm) takes a vector instead, and keeps it as long as needed.
    ///
    /// Everything that would keep the memory beyond the call is refused with
    /// [`Lent`](binpool_allocators::InvalidRequest::Lent): views of it, buffers over it, maps. The call waits for ever if a
    /// command waits for an event that is never resolved.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, QueueOrder, Region};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// if backend.limits().svm.system {
    ///     let mut numbers = [1_u32; 100];
    ///     backend.with_system_svm(&mut numbers[10..20], |ten| {
    ///         backend.enqueue_fill(&queue, ten, ..8, &[0_u8])
    ///     })??;
    ///     assert_eq!(numbers[9..13], [1, 0, 0, 1]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`system_svm`](Self::system_svm).
    pub fn with_system_svm<T: Pod, R>(
        &self,
        elements: &mut [T],
        run: impl FnOnce(&ClMemory) -> R,
    ) -> Result<R> {
        let lent = bytemuck::cast_slice_mut::<T, u8>(elements);
        let bytes = lent.len();
        self.check_system_svm(bytes)?;
        let context = self.context();
        let alignment = Align::new(align_of::<T>()).unwrap_or(Align::ONE);
        with_block_over(&context.handle, lent, alignment, |allocation| {
            let block = SvmBlock::new(allocation, SvmGrain::Fine, None);
            let memory = ClMemory::new(context, bytes, MemoryFlags::empty(), whole(block));
            run(&memory)
        })
        .map_err(Into::into)
    }
}
