//! The backend keeps every promise of the traits, but for user events that fail, which CUDA does not have.

use binpool_allocators::{ImmediateAllocator, runtime::Runtime};
use binpool_conformance::{
    AllocatorFixture, Fixture, allocator_conformance, backend_conformance, hazard_conformance,
    pending_conformance, virtual_memory_conformance,
};
use binpool_cuda::{CudaBackend, DriverPoolAllocator};

use crate::{common::Device, elsewhere::Elsewhere};

const CAPACITY: usize = 1 << 24;

struct Cuda;

impl Fixture for Cuda {
    type Backend = CudaBackend;

    fn backend(&self) -> CudaBackend {
        Device::new(CAPACITY).backend()
    }

    fn enforced_capacity(&self) -> Option<u64> {
        Some(CAPACITY as u64)
    }
}

mod backend {
    use super::*;

    backend_conformance!(Cuda);
    pending_conformance!(Cuda);
    virtual_memory_conformance!(Cuda);
}

/// The core puts conflicting commands in order.
struct Ordered;

impl Fixture for Ordered {
    type Backend = CudaBackend;

    fn backend(&self) -> CudaBackend {
        let backend = Device::new(CAPACITY).backend();
        backend.core().order_conflicts();
        backend
    }
}

mod hazards {
    use super::*;

    hazard_conformance!(Ordered);
}

/// Memory of one device, and queues of another that may not use it.
struct OnAnotherDevice;

impl Fixture for OnAnotherDevice {
    type Backend = Elsewhere;

    fn backend(&self) -> Elsewhere {
        let [memory, queues] = Device::pair(CAPACITY).map(|device| device.backend());
        Elsewhere { memory, queues }
    }

    fn enforced_capacity(&self) -> Option<u64> {
        Some(CAPACITY as u64)
    }
}

mod on_another_device {
    use super::*;

    backend_conformance!(OnAnotherDevice);
    pending_conformance!(OnAnotherDevice);
}

struct Immediate;

impl AllocatorFixture for Immediate {
    type Allocator = ImmediateAllocator<CudaBackend>;

    fn allocator(&self) -> Self::Allocator {
        ImmediateAllocator::new(&Device::new(CAPACITY).backend()).unwrap()
    }

    fn enforced_capacity(&self) -> Option<u64> {
        Some(CAPACITY as u64)
    }
}

mod immediate {
    use super::*;

    allocator_conformance!(Immediate);
}

struct OfDriver;

impl AllocatorFixture for OfDriver {
    type Allocator = DriverPoolAllocator;

    fn allocator(&self) -> Self::Allocator {
        DriverPoolAllocator::new(&Device::new(CAPACITY).backend()).unwrap()
    }

    fn enforced_capacity(&self) -> Option<u64> {
        Some(CAPACITY as u64)
    }
}

mod driver_pool {
    use super::*;

    allocator_conformance!(OfDriver);
}
