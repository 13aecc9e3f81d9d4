//! Vectors of the program's own as shared virtual memory.

use std::{fmt, sync::Arc};

use binpool_allocators::{AsMemory, Error, InvalidRequest, Memory, MemoryFlags, Result, SvmGrain};
use bytemuck::Pod;

use super::SvmPointer;
use crate::{
    backend::OpenClBackend,
    cl_error::Purpose,
    event::ClEvent,
    map::{Map, MapMut},
    memory::cl_memory::{Body, ClMemory},
    queue::ClQueue,
    refused::Refused,
    svm::block::SvmBlock,
    sys::{SvmAllocation, host_vec::HostVec},
};

/// A vector of the program's own as shared virtual memory, on devices that share all memory of the host (fine-grained
/// system SVM: [`SvmSupport::system`](binpool_allocators::SvmSupport::system)): `PyOpenCL`'s `SVM` around any array of
/// `numpy`.
///
/// The vector is handed over, and [`into_vec`](Self::into_vec) gives it back: neither a leak nor a drop frees elements
/// that a command still uses. Until then the host sees them through maps, which move nothing, but keep away the commands
/// that would race with it.
///
/// It starts where the host's allocator has put it, which is aligned for `T` and no more. A fill needs a start that is a
/// multiple of its pattern, and a kernel one that suits the type of its argument.
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
///     numbers.map_rw(&queue, &[])?[3] = 2.0;
///     let zeros = Region::first(12);
///     backend.enqueue_fill(&queue, numbers.svm_memory()?, zeros, &[0], &[])?;
///     assert_eq!(numbers.map_ro(&queue, &[])?[2..5], [0.0, 2.0, 1.0]);
///     assert_eq!(numbers.into_vec()?[3], 2.0); // the vector itself, nothing is copied
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SystemSvm<T> {
    memory: ClMemory,
    elements: Arc<HostVec<T>>,
}

impl OpenClBackend {
    /// `elements` as shared virtual memory.
    ///
    /// Where that cannot be, the vector is not lost:
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
    ///         let copy = copy.write_all(&queue, &numbers, &[])?;
    ///         assert_eq!(*copy.map_ro(&queue, &[])?, [1.0, 2.0, 3.0]);
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) on a device that does not share all memory of the host;
    /// [`ZeroSize`](InvalidRequest::ZeroSize) for no elements, or elements of no bytes. The vector is in the error.
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
                let error = error.into_error(Purpose::Control);
                let value = elements.take();
                return Err(Refused { error, value });
            }
        };
        let block = SvmBlock::new(allocation, SvmGrain::Fine, context, None);
        Ok(SystemSvm {
            memory: ClMemory::new(context, bytes, MemoryFlags::empty(), whole(block)),
            elements,
        })
    }

    fn check_system_svm(&self, bytes: usize) -> Result<()> {
        let limits = self.device_limits();
        if !limits.svm.system {
            return Err(Error::unsupported(format!(
                "vectors of the host as shared virtual memory on {}, which has no fine-grained system SVM: copy them to \
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
    /// How many elements there are; never 0.
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
    pub fn map_ro(&self, queue: &ClQueue, wait_for: &[ClEvent]) -> Result<Map<'_, T>> {
        SvmPointer::map_ro(self, queue, wait_for)
    }

    /// Maps all elements to be read and written, and waits until no command uses them any more.
    ///
    /// # Errors
    ///
    /// Those of [`map_mut`](OpenClBackend::map_mut).
    pub fn map_rw(&self, queue: &ClQueue, wait_for: &[ClEvent]) -> Result<MapMut<'_, T>> {
        SvmPointer::map_rw(self, queue, wait_for)
    }

    /// Waits until no command uses the vector any more, and gives it back.
    ///
    /// # Errors
    ///
    /// [`StillUsed`](InvalidRequest::StillUsed) while there are regions of it or buffers over it; a failure of the runtime.
    /// Nothing is lost: the value is in the error.
    pub fn into_vec(self) -> Result<Vec<T>, Refused<Self>> {
        let Self { memory, elements } = self;
        let (bytes, context) = (memory.bytes(), Arc::clone(memory.shared_context()));
        let (error, memory) = match memory.into_svm_block() {
            // Nobody can enqueue anything any more: this was the only value of the block.
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

fn whole(block: SvmBlock) -> Body {
    Body::Svm {
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
