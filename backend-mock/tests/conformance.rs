//! The mock keeps every promise of the traits, in each way of completing commands, also when it is erased.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

use binpool_allocators::{
    AnyBackend, DeferredAllocator, ImmediateAllocator, SvmAllocator, SvmGrain,
    allocator_conformance, backend_conformance,
    conformance::{AllocatorFixture, Fixture},
    svm_conformance,
};
use binpool_mock::{Completion, HostWait, MockBackend, MockDevice, MockDeviceBuilder};

const CAPACITY: u64 = 1 << 24;

fn builder() -> MockDeviceBuilder {
    // The checks with threads wait for each other's commands.
    MockDevice::builder()
        .capacity_bytes(CAPACITY)
        .host_waits(HostWait::Block)
}

/// A mock device as the builder makes it.
struct Mock(fn() -> MockDeviceBuilder);

impl Fixture for Mock {
    type Backend = MockBackend;

    fn backend(&self) -> MockBackend {
        (self.0)().build().backend()
    }

    fn enforced_capacity(&self) -> Option<u64> {
        Some(CAPACITY)
    }
}

mod at_once {
    use super::*;

    backend_conformance!(Mock(builder));
    svm_conformance!(Mock(builder));
}

mod seeded {
    use super::*;

    const MOCK: Mock = Mock(|| builder().completion(Completion::Seeded(7)));

    backend_conformance!(MOCK);
    svm_conformance!(MOCK);
}

mod seeded_otherwise {
    use super::*;

    const MOCK: Mock = Mock(|| builder().completion(Completion::Seeded(0xfeed)));

    backend_conformance!(MOCK);
    svm_conformance!(MOCK);
}

mod in_order_queues_and_coarse_svm_only {
    use binpool_allocators::SvmSupport;

    use super::*;

    const MOCK: Mock = Mock(|| {
        builder().out_of_order_queues(false).svm(SvmSupport {
            coarse: true,
            ..SvmSupport::default()
        })
    });

    backend_conformance!(MOCK);
    svm_conformance!(MOCK);
}

/// A mock device whose type nobody knows.
struct Erased {
    svm: bool,
}

impl Fixture for Erased {
    type Backend = AnyBackend;

    fn backend(&self) -> AnyBackend {
        let backend = builder().build().backend();
        if self.svm {
            AnyBackend::with_svm(backend)
        } else {
            AnyBackend::new(backend)
        }
    }

    fn enforced_capacity(&self) -> Option<u64> {
        Some(CAPACITY)
    }
}

mod erased {
    use super::*;

    backend_conformance!(Erased { svm: true });
    svm_conformance!(Erased { svm: true });
}

mod erased_without_svm {
    use super::*;

    svm_conformance!(Erased { svm: false });
}

struct Immediate;

impl AllocatorFixture for Immediate {
    type Allocator = ImmediateAllocator<MockBackend>;

    fn allocator(&self) -> Self::Allocator {
        ImmediateAllocator::new(&builder().build().backend()).unwrap()
    }
}

mod immediate {
    use super::*;

    allocator_conformance!(Immediate);
}

struct Deferred;

impl AllocatorFixture for Deferred {
    type Allocator = DeferredAllocator<MockBackend>;

    fn allocator(&self) -> Self::Allocator {
        DeferredAllocator::new(&builder().build().backend())
    }
}

mod deferred {
    use super::*;

    allocator_conformance!(Deferred);
}

struct Svm;

impl AllocatorFixture for Svm {
    type Allocator = SvmAllocator<MockBackend>;

    fn allocator(&self) -> Self::Allocator {
        SvmAllocator::new(&builder().build().backend(), SvmGrain::Coarse).unwrap()
    }
}

mod svm {
    use super::*;

    allocator_conformance!(Svm);
}
