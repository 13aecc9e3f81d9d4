//! Memory of the host as shared virtual memory.

use std::sync::Arc;

use binpool_allocators::{Align, Error, InvalidRequest, MemoryFlags, Result, SvmGrain};
use bytemuck::Pod;

use super::pointer::SvmPointer;
use crate::{
    backend::OpenClBackend,
    error::Refused,
    memory::{
        cl_memory::{ClMemory, MemoryBody},
        host_memory::HostMemory,
        svm_block::SvmBlock,
    },
    sys::{
        SvmAllocation,
        host::{HostVec, Loan, with_lent},
    },
};

/// Memory of the host as shared virtual memory.
impl OpenClBackend {
    /// Returns `elements` as shared virtual memory, on devices that share all memory of the host (fine-grained system SVM:
    /// [`SvmSupport::system`](binpool_allocators::SvmSupport::system)): `PyOpenCL`'s `SVM` around any array of `numpy`.
    ///
    /// The vector is handed over, and [`into_host`](HostMemory::into_host) gives it back: even if the value is leaked or
    /// dropped, elements that a command uses are not freed. Until then the host sees them through maps, which move nothing,
    /// but refuse commands that would race with it.
    ///
    /// Its address is that of the vector, which is aligned for `T` and no more: a launch is refused if the kernel's type may not start there.
    ///
    /// ```
    /// use binpool_allocators::{Backend, QueueOrder, Region};
    /// use binpool_opencl::{OpenClBackend, SvmPointer};
    ///
    /// let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// if backend.limits().svm.system {
    ///     let numbers = backend.system_svm(vec![1.0_f32; 1000])?;
    ///     backend.map_mut::<f32>(&queue, &numbers, ..)?[3] = 2.0;
    ///     let zeros = Region::first(12);
    ///     backend.enqueue_fill(&queue, &numbers, zeros, &[0_u8])?;
    ///     assert_eq!(backend.map::<f32>(&queue, &numbers, ..)?[2..5], [0.0, 2.0, 1.0]);
    ///     assert_eq!(numbers.into_host()?[3], 2.0); // the vector itself, nothing is copied
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The error returns the vector:
    ///
    /// ```
    /// # use binpool_allocators::{Backend, Error, QueueOrder};
    /// # use binpool_opencl::{OpenClBackend, SvmOptions};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// match backend.system_svm(vec![1.0_f32, 2.0, 3.0]) {
    ///     Ok(shared) => assert_eq!(shared.into_host()?, [1.0, 2.0, 3.0]),
    ///     Err(refused) => {
    ///         assert!(matches!(refused.error, Error::Unsupported { .. }));
    ///         let numbers = refused.value;
    ///         let copy = backend.svm_empty(numbers.len(), &SvmOptions::coarse())?;
    ///         copy.write(&queue, 0, &numbers)?;
    ///         assert_eq!(copy.read_to_vec(&queue)?, [1.0, 2.0, 3.0]);
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) on a device that does not share all memory of the host;
    /// [`ZeroSize`](InvalidRequest::ZeroSize) for no elements, or elements of no bytes. The error has the vector.
    pub fn system_svm<T: Pod + Send>(
        &self,
        elements: Vec<T>,
    ) -> Result<HostMemory<T>, Refused<Vec<T>>> {
        HostMemory::new(HostVec::new(elements), |loan| self.svm_over::<T>(loan))
    }

    /// Calls `run` with `elements` as shared virtual memory, on devices that share all memory of the host (fine-grained
    /// system SVM: [`SvmSupport::system`](binpool_allocators::SvmSupport::system)), and waits until every command on it has
    /// ended, even if `run` panics: `PyOpenCL`'s `SVM` around an array that stays the program's.
    /// [`system_svm`](Self::system_svm) takes a vector instead, and keeps it as long as needed.
    ///
    /// Everything that would keep the memory beyond the call is refused with
    /// [`Lent`](binpool_allocators::InvalidRequest::Lent): views of it, buffers over it, maps. The call waits forever if a
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
        with_lent(lent, |loan| self.svm_over::<T>(loan), |memory| run(&memory))
    }

    fn svm_over<T>(&self, loan: Loan) -> Result<ClMemory> {
        let (limits, context, bytes) = (self.device_limits(), self.context(), loan.bytes());
        if !limits.svm.system {
            return Err(Error::unsupported(format!(
                "memory of the host as shared virtual memory on {}, which has no fine-grained system SVM: copy it to \
                 memory of `svm_empty` or to a buffer",
                limits.device_name
            )));
        }
        if bytes == 0 {
            return Err(InvalidRequest::ZeroSize.into());
        }
        let alignment = Align::new(align_of::<T>()).unwrap_or(Align::ONE);
        let allocation = SvmAllocation::of_host(&context.handle, loan, alignment)?;
        let block = Arc::new(SvmBlock::new(allocation, SvmGrain::Fine, None));
        let body = MemoryBody::Svm { block, offset: 0 };
        Ok(ClMemory::new(context, bytes, MemoryFlags::empty(), body))
    }
}

impl<T: Pod + Send> SvmPointer for HostMemory<T> {
    fn svm_memory(&self) -> Result<&ClMemory> {
        self.memory().svm_memory()
    }
}
