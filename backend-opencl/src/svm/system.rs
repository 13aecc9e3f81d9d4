//! Vectors of the program's own as shared virtual memory.

use std::{fmt, sync::Arc};

use binpool_allocators::{AsMemory, Error, InvalidRequest, Memory, MemoryFlags, Result, SvmGrain};
use bytemuck::Pod;

use super::SvmPointer;
use crate::{
    ClOn,
    backend::OpenClBackend,
    map::{Map, MapMut},
    memory::cl_memory::{ClMemory, MemoryBody},
    queue::ClQueue,
    refused::Refused,
    svm::block::SvmBlock,
    sys::{SvmAllocation, host_vec::HostVec},
};

/// A vector of the program's own as shared virtual memory, on devices that share all memory of the host (fine-grained
/// system SVM: [`SvmSupport::system`](binpool_allocators::SvmSupport::system)): `PyOpenCL`'s `SVM` around any array of
/// `numpy`.
///
/// The vector is handed over, and [`into_vec`](Self::into_vec) gives it back: even if this value is leaked or dropped,
/// elements that a command uses are not freed. Until then the host sees them through maps, which move nothing, but refuse
/// commands that would race with it.
///
/// Its address is aligned for `T` and no more. A fill needs an address that is a multiple of its pattern's size, and a
/// kernel one that is aligned for the type of its argument.
///
/// ```
/// use binpool_allocators::{Backend, QueueOrder, Region};
/// use binpool_opencl::{OpenClBackend, SvmPointer};
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// if backend.limits().svm.system {
///     let numbers = backend.system_svm(vec![1.0_f32; 1000])?;
///     assert_eq!(numbers.len(), 1000);
///     numbers.map_rw(&queue)?[3] = 2.0;
///     let zeros = Region::first(12);
///     backend.enqueue_fill(&queue, numbers.svm_memory()?, zeros, &[0_u8])?;
///     assert_eq!(numbers.map_ro(&queue)?[2..5], [0.0, 2.0, 1.0]);
///     assert_eq!(numbers.into_vec()?[3], 2.0); // the vector itself, nothing is copied
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SystemSvm<T> {
    memory: ClMemory,
    elements: Arc<HostVec<T>>,
}

impl OpenClBackend {
    /// Returns `elements` as shared virtual memory.
    ///
    /// If that fails, the vector comes back:
    ///
    /// ```
    /// # use binpool_allocators::{Backend, Error, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// match backend.system_svm(vec![1.0_f32, 2.0, 3.0]) {
    ///     Ok(shared) => assert_eq!(shared.into_vec()?, [1.0, 2.0, 3.0]),
    ///     Err(refused) => {
    ///         assert!(matches!(refused.error, Error::Unsupported { .. }));
    ///         let numbers = refused.value;
    ///         let copy = backend.csvm_empty_like(&numbers)?;
    ///         let copy = copy.write_all(&queue, &numbers)?;
    ///         assert_eq!(*copy.map_ro(&queue)?, [1.0, 2.0, 3.0]);
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
    ) -> Result<SystemSvm<T>, Refused<Vec<T>>> {
        let bytes = size_of_val(elements.as_slice());
        if let Err(error) = self.check_system_svm(bytes) {
            let value = elements;
            return Err(Refused { error, value });
        }
        let context = self.context();
        let elements = Arc::new(HostVec::new(elements));
        let allocation = match SvmAllocation::of_host(&context.handle, &elements) {
            Ok(allocation) => allocation,
            Err(error) => {
                let error = error.into();
                let value = elements.take();
                return Err(Refused { error, value });
            }
        };
        let block = SvmBlock::new(allocation, SvmGrain::Fine, None);
        Ok(SystemSvm {
            memory: ClMemory::new(context, bytes, MemoryFlags::empty(), whole(block)),
            elements,
        })
    }

    pub(super) fn check_system_svm(&self, bytes: usize) -> Result<()> {
        let limits = self.device_limits();
        if !limits.svm.system {
            return Err(Error::unsupported(format!(
                "memory of the host as shared virtual memory on {}, which has no fine-grained system SVM: copy them to \
                 memory of `svm_empty` or to a buffer",
                limits.device_name
            )));
        }
        if bytes == 0 {
            return Err(InvalidRequest::ZeroSize.into());
        }
        Ok(())
    }
}

impl<T: Pod> SystemSvm<T> {
    /// The number of elements; never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.memory.bytes() / size_of::<T>().max(1)
    }

    /// Maps all elements to be read, and waits until no command writes them any more.
    ///
    /// # Errors
    ///
    /// Those of [`map`](OpenClBackend::map).
    pub fn map_ro<'q>(&self, on: impl Into<ClOn<'q>>) -> Result<Map<'_, T>> {
        SvmPointer::map_ro(self, on)
    }

    /// Maps all elements to be read and written, and waits until no command uses them any more.
    ///
    /// # Errors
    ///
    /// Those of [`map_mut`](OpenClBackend::map_mut).
    pub fn map_rw<'q>(&self, on: impl Into<ClOn<'q>>) -> Result<MapMut<'_, T>> {
        SvmPointer::map_rw(self, on)
    }

    /// Waits until no command uses the vector any more, and returns it.
    ///
    /// # Errors
    ///
    /// [`StillUsed`](InvalidRequest::StillUsed) while there are regions of it or buffers over it; a failure of the runtime.
    /// The error has the value.
    pub fn into_vec(self) -> Result<Vec<T>, Refused<Self>> {
        let Self { memory, elements } = self;
        let (bytes, context) = (memory.bytes(), Arc::clone(memory.shared_context()));
        let (error, memory) = match memory.into_svm_block() {
            // No thread can enqueue commands any more: this was the only value of the block.
            Ok(block) => match block.wait_until_unused() {
                Ok(()) => {
                    drop(block);
                    return Ok(elements.take());
                }
                Err(error) => (
                    error,
                    ClMemory::new(&context, bytes, MemoryFlags::empty(), whole(block)),
                ),
            },
            Err(memory) => (InvalidRequest::StillUsed.into(), memory),
        };
        let value = Self { memory, elements };
        Err(Refused { error, value })
    }
}

pub(super) fn whole(block: SvmBlock) -> MemoryBody {
    MemoryBody::Svm {
        block: Arc::new(block),
        offset: 0,
    }
}

impl<T> AsMemory<OpenClBackend> for SystemSvm<T> {
    fn size(&self) -> usize {
        self.memory.bytes()
    }

    fn memory_on(&self, _queue: &ClQueue) -> Option<&ClMemory> {
        Some(&self.memory)
    }
}

impl<T> SvmPointer for SystemSvm<T> {
    fn svm_memory(&self) -> Result<&ClMemory> {
        Ok(&self.memory)
    }
}

impl<T> fmt::Debug for SystemSvm<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SystemSvm").field(&self.elements).finish()
    }
}
