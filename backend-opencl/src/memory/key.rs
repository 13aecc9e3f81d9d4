//! The identity of the runtime's memory that a value stands for.

use binpool_allocators::{Memory, Region};

use crate::{
    identity::same_by,
    memory::{
        cl_memory::{ClMemory, MemoryBody},
        root::Root,
    },
};

/// The identity of the runtime's memory under a [`ClMemory`]: a buffer, a part of one, or bytes of shared virtual memory.
///
/// It is for comparisons and look-ups, like `int_ptr` of `PyOpenCL`, and keeps nothing alive: the runtime may use it again
/// for other memory once this one is gone. [`Memory::id`] is never used again, and differs between values of the same
/// memory.
///
/// ```
/// use std::collections::HashMap;
/// # use binpool_allocators::{Backend, MemoryFlags};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
///
/// let weights = backend.create_buffer(4096, MemoryFlags::empty())?;
/// let names = HashMap::from([(weights.key(), "weights")]);
/// // Somewhere else the memory comes in by its handle, as another value.
/// let handle = weights.raw().ok_or("a buffer has a handle")?;
/// // SAFETY: (1) the buffer lives, and is retained; (2, 3) only values of this crate use it.
/// let came_in = unsafe { backend.wrap_raw_memory(handle, true) }?;
/// assert_eq!(names.get(&came_in.key()), Some(&"weights"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryKey(Key);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Buffer {
        /// The address of the `cl_mem` of the whole buffer.
        whole: usize,
        /// The offset and the size of a part, in bytes.
        part: Option<(usize, usize)>,
    },
    Svm {
        address: usize,
        bytes: usize,
    },
}

impl Root {
    /// Returns the key of the buffer.
    pub(crate) fn key(&self) -> MemoryKey {
        self.key_of_part(None)
    }

    fn key_of_part(&self, part: Option<Region>) -> MemoryKey {
        MemoryKey(Key::Buffer {
            whole: self.handle.raw().addr(),
            part: part.map(|Region { offset, bytes }| (offset, bytes)),
        })
    }
}

impl ClMemory {
    /// Returns the identity of the runtime's memory.
    pub fn key(&self) -> MemoryKey {
        MemoryKey(match self.body() {
            MemoryBody::Buffer(root) => return root.key(),
            MemoryBody::Part(part) => return part.root().key_of_part(Some(part.region())),
            MemoryBody::Svm { .. } => Key::Svm {
                address: self.address(Region::first(0)),
                bytes: self.bytes(),
            },
        })
    }

    /// Returns the [`key`](Self::key) of the whole block that this is a region of; `None` for a whole block.
    ///
    /// It is not the block itself, since other regions of that may belong to other owners, for example other blocks of the
    /// same pool.
    ///
    /// `PyOpenCL` calls it `associated_memobject` (OpenCL 3.0, section 5.5.6).
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let block = backend.create_buffer(4096, MemoryFlags::empty())?;
    /// let (head, tail) = (block.slice(..1024)?, block.slice(1024..)?);
    /// assert_eq!(tail.parent(), Some(block.key()));
    /// assert_eq!(tail.parent(), head.parent()); // Parts of one block, at 1024 and at 0.
    /// assert_eq!((tail.offset(), head.offset()), (1024, 0));
    /// assert_eq!(block.parent(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parent(&self) -> Option<MemoryKey> {
        match self.body() {
            MemoryBody::Buffer(_) => None,
            MemoryBody::Part(part) => Some(part.root().key()),
            MemoryBody::Svm { block, offset } => {
                if *offset == 0 && self.bytes() == block.allocation().bytes() {
                    return None;
                }
                let (address, bytes) = (block.address(), block.allocation().bytes());
                Some(MemoryKey(Key::Svm { address, bytes }))
            }
        }
    }

    /// Its offset in its whole block, in bytes; 0 for a whole block. `PyOpenCL` calls it `offset`.
    pub fn offset(&self) -> usize {
        match self.body() {
            MemoryBody::Buffer(_) => 0,
            MemoryBody::Part(part) => part.region().offset,
            MemoryBody::Svm { offset, .. } => *offset,
        }
    }
}

// Two values are equal if they stand for the same memory of the runtime: the same whole buffer, the same part of one, or the
// same bytes of shared virtual memory.
same_by!(ClMemory, |this| this.key());
