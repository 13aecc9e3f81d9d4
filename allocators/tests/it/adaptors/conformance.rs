//! Every adaptor keeps the promises of `Allocator`.

use binpool_allocators::{
    Allocator, SegmentAllocator, SvmAllocator, SvmGrain,
    adaptors::{Failing, Fallback, Limit, Logging, Recording, Statistics},
    allocator_conformance,
    conformance::AllocatorFixture,
};
use binpool_mock::{MockBackend, MockDevice};

use crate::adaptors::{Immediate, immediate};

const CAPACITY: u64 = 1 << 24;

/// What is put around an allocator of a fresh device.
struct Around<A>(fn(Immediate) -> A);

impl<A: Allocator> AllocatorFixture for Around<A> {
    type Allocator = A;

    fn allocator(&self) -> A {
        let device = MockDevice::builder().capacity_bytes(CAPACITY).build();
        self.0(immediate(&device))
    }

    fn enforced_capacity(&self) -> Option<u64> {
        Some(CAPACITY)
    }
}

mod limit {
    use super::*;
    allocator_conformance!(Around(|inner| Limit::new(inner, CAPACITY)));
}

mod statistics {
    use super::*;
    allocator_conformance!(Around(Statistics::new));
}

mod failing {
    use super::*;
    allocator_conformance!(Around(Failing::new));
}

mod logging {
    use super::*;
    allocator_conformance!(Around(|inner| Logging::new(inner, "inner")));
}

mod recording {
    use super::*;
    allocator_conformance!(Around(|inner| Recording::new(inner, std::io::sink())));
}

type Second = SvmAllocator<MockBackend>;

/// Where the second is asked most of the time.
fn fallback(inner: Immediate) -> Fallback<Limit<Immediate>, Second> {
    let svm = SvmAllocator::new(inner.backend(), SvmGrain::Fine).unwrap();
    Fallback::new(Limit::new(inner, 10_000), svm)
}

mod fallback {
    use super::*;
    allocator_conformance!(Around(fallback));
}

mod segments {
    use super::*;
    allocator_conformance!(Around(SegmentAllocator::new));
}

mod segments_of_segments {
    use super::*;
    allocator_conformance!(Around(|inner| SegmentAllocator::new(
        SegmentAllocator::new(inner)
    )));
}

mod segments_of_svm {
    use super::*;
    allocator_conformance!(Around(|inner| {
        let svm = SvmAllocator::new(inner.backend(), SvmGrain::Coarse).unwrap();
        SegmentAllocator::new(svm)
    }));
}
