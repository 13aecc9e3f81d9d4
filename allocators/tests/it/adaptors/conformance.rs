//! Every adaptor keeps the promises of `Allocator`.

use binpool_allocators::{
    Allocator, SvmAllocator, SvmGrain,
    adaptors::{Fallback, Limit, Statistics},
};
use binpool_conformance::Failing;
use binpool_conformance::{AllocatorFixture, allocator_conformance};
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
