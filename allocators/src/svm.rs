//! Shared virtual memory (SVM): pointers that host and device both understand.

use std::{fmt, ptr::NonNull};

use crate::{Align, Backend, Result, limits::SvmSupport};

/// How finely host and device share SVM, after OpenCL 3.0, section 3.3.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SvmGrain {
    /// The host maps the memory before touching it.
    Coarse,
    /// Host and device touch it without maps.
    Fine,
    /// Fine, with atomics that host and device both see.
    FineAtomics,
}

impl SvmGrain {
    /// Whether a device with `support` has this grain.
    #[must_use]
    pub const fn is_in(self, support: SvmSupport) -> bool {
        match self {
            Self::Coarse => support.coarse,
            Self::Fine => support.fine,
            Self::FineAtomics => support.fine && support.atomics,
        }
    }
}

impl fmt::Display for SvmGrain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Coarse => "coarse-grained",
            Self::Fine => "fine-grained",
            Self::FineAtomics => "fine-grained atomic",
        })
    }
}

/// A backend with shared virtual memory.
///
/// SVM has no reference counts of its own: the runtime frees it while commands still run. A backend
/// therefore remembers the commands that were enqueued with a block through [`Backend`], and frees the block
/// after them. Commands that were given the bare address are the caller's to wait for.
pub trait SvmBackend: Backend {
    /// Allocates `bytes` bytes of SVM, at an address that is a multiple of `alignment`
    /// ([`DeviceLimits::alignment`](crate::DeviceLimits::alignment) where that is `None`). It is never
    /// deferred. The free is ordered on `queue`, where one is given: it happens after everything that was
    /// enqueued there before the block is released.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::Error::Unsupported) for a grain that the device does not have;
    /// [`ZeroSize`](crate::InvalidRequest::ZeroSize), [`TooLarge`](crate::InvalidRequest::TooLarge),
    /// [`AlignmentTooLarge`](crate::InvalidRequest::AlignmentTooLarge),
    /// [`OutOfOrderQueue`](crate::InvalidRequest::OutOfOrderQueue);
    /// [`OutOfMemory`](crate::Error::OutOfMemory), also where the runtime answers with a null pointer.
    fn allocate_svm(
        &self,
        bytes: usize,
        alignment: Option<Align>,
        grain: SvmGrain,
        queue: Option<&Self::Queue>,
    ) -> Result<Self::Memory>;

    /// The address of a block or region of SVM; `None` for memory that has none.
    ///
    /// Whoever dereferences it, or passes it to a command, sees to it that the block still lives, that
    /// coarse-grained memory is mapped, and that host and device do not race.
    fn svm_address(&self, memory: &Self::Memory) -> Option<NonNull<u8>>;
}
