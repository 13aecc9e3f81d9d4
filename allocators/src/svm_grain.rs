//! The kinds of shared virtual memory (SVM).

use std::fmt;

/// How finely host and device share SVM, after OpenCL 3.0, section 3.3.3.
///
/// ```
/// use binpool_allocators::{Backend, SvmAllocator, SvmGrain, SvmSupport};
/// use binpool_mock::MockDevice;
///
/// // The finest grain that the device has, so that the host need not map where possible.
/// let finest = |support: SvmSupport| {
///     let grains = [SvmGrain::FineAtomics, SvmGrain::Fine, SvmGrain::Coarse];
///     grains.into_iter().find(|grain| grain.is_in(support))
/// };
/// let coarse = SvmSupport { coarse: true, ..SvmSupport::default() };
/// assert_eq!(finest(coarse), Some(SvmGrain::Coarse));
/// assert_eq!(finest(SvmSupport { fine: true, ..coarse }), Some(SvmGrain::Fine));
/// assert_eq!(finest(SvmSupport::default()), None);
/// let backend = MockDevice::builder().svm(coarse).build().backend();
/// assert!(SvmAllocator::new(&backend, SvmGrain::Fine).is_err()); // The device does not support it.
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SvmGrain {
    /// The host maps the memory before it uses it.
    Coarse,
    /// Host and device use it without maps.
    Fine,
    /// Fine, with atomics that host and device both see.
    FineAtomics,
}

impl SvmGrain {
    /// Returns whether a device with `support` has this grain.
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

/// The kinds of shared virtual memory (SVM) that a device has, after OpenCL 3.0, section 3.3.3.
///
/// ```
/// use binpool_allocators::{
///     Allocator, ImmediateAllocator, Memory, MemoryKind, Result, SvmAllocator, SvmBackend, SvmGrain,
///     SvmSupport,
/// };
/// use binpool_mock::MockDevice;
///
/// /// A block of shared virtual memory, or a buffer where the device has no SVM.
/// fn block<B: SvmBackend>(backend: &B, bytes: usize) -> Result<B::Memory> {
///     if backend.limits().svm.any() {
///         SvmAllocator::new(backend, SvmGrain::Coarse)?.allocate(bytes)
///     } else {
///         ImmediateAllocator::new(backend)?.allocate(bytes)
///     }
/// }
///
/// let plain = MockDevice::builder().svm(SvmSupport::default()).build();
/// assert_eq!(block(&plain.backend(), 4096)?.kind(), MemoryKind::Buffer);
/// let coarse = SvmSupport { coarse: true, ..SvmSupport::default() };
/// let sharing = MockDevice::builder().svm(coarse).build();
/// assert_eq!(block(&sharing.backend(), 4096)?.kind(), MemoryKind::Svm(SvmGrain::Coarse));
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SvmSupport {
    /// Coarse-grained: the host maps it before using it.
    pub coarse: bool,
    /// Fine-grained: host and device use it without maps.
    pub fine: bool,
    /// Fine-grained, with atomics that host and device both see.
    pub atomics: bool,
    /// The device can use any pointer of the host's heap.
    pub system: bool,
}

impl SvmSupport {
    /// Returns whether the device has any SVM that can be allocated.
    #[must_use]
    pub const fn any(self) -> bool {
        self.coarse || self.fine
    }
}
