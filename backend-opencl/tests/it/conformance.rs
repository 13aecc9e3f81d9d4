//! OpenCL keeps every promise of the traits.

use binpool_allocators::{DeferredAllocator, ImmediateAllocator, SvmAllocator, SvmGrain};
use binpool_conformance::{
    AllocatorFixture, Fixture, allocator_conformance, backend_conformance, failure_conformance,
    hazard_conformance, pending_conformance, svm_conformance,
};
use binpool_opencl::OpenClBackend;

/// The device under test. No runtime keeps to its own capacity, so none is enforced.
struct OpenCl;

impl Fixture for OpenCl {
    type Backend = OpenClBackend;

    fn backend(&self) -> OpenClBackend {
        crate::common::open()
    }
}

mod backend {
    use super::*;

    backend_conformance!(OpenCl);
    pending_conformance!(OpenCl);
    failure_conformance!(OpenCl);
    hazard_conformance!(OpenCl);
}

mod svm {
    use super::*;

    svm_conformance!(OpenCl);
}

impl AllocatorFixture for OpenCl {
    type Allocator = ImmediateAllocator<OpenClBackend>;

    fn allocator(&self) -> Self::Allocator {
        ImmediateAllocator::new(&crate::common::open()).unwrap()
    }
}

mod immediate {
    use super::*;

    allocator_conformance!(OpenCl);
}

struct Deferred;

impl AllocatorFixture for Deferred {
    type Allocator = DeferredAllocator<OpenClBackend>;

    fn allocator(&self) -> Self::Allocator {
        DeferredAllocator::new(&crate::common::open())
    }
}

mod deferred {
    use super::*;

    allocator_conformance!(Deferred);
}

struct Svm;

impl AllocatorFixture for Svm {
    type Allocator = SvmAllocator<OpenClBackend>;

    fn allocator(&self) -> Self::Allocator {
        SvmAllocator::new(&crate::common::open(), SvmGrain::Coarse).unwrap()
    }
}

mod svm_allocator {
    use super::*;

    allocator_conformance!(Svm);
}
