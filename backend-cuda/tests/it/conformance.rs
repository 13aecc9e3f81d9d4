//! The backend keeps every promise of the traits, but for user events that fail, which CUDA does not have.

use binpool_allocators::{ImmediateAllocator, Memory as _, On, runtime::Runtime};
use binpool_conformance::{
    AllocatorFixture, Fixture, allocator_conformance, backend_conformance, hazard_conformance,
    pending_conformance, virtual_memory_conformance,
};
use binpool_cuda::{
    Argument, CudaBackend, CudaEvent, CudaMemory, CudaModule, CudaQueue, DriverPoolAllocator, Grid,
};

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

    fn launch_add(
        &self,
        backend: &CudaBackend,
        on: OnCuda<'_>,
        sum: &CudaMemory,
        operand: &CudaMemory,
    ) -> Option<CudaEvent> {
        Some(launch_add(backend, on, sum, operand))
    }
}

type OnCuda<'a> = On<'a, CudaQueue, CudaEvent>;

fn launch_add(
    backend: &CudaBackend,
    on: OnCuda<'_>,
    sum: &CudaMemory,
    operand: &CudaMemory,
) -> CudaEvent {
    let text = ".version 6.4\n.visible .entry add_to(";
    let module = CudaModule::load_ptx(backend, text).unwrap();
    let kernel = module.kernel("add_to").unwrap();
    let count = u32::try_from(sum.bytes() / 4).unwrap();
    let arguments = [
        Argument::Memory(sum),
        Argument::Memory(operand),
        Argument::U64(count.into()),
    ];
    // SAFETY: These are the parameters of the kernel.
    unsafe {
        kernel.launch(
            on.queue,
            Grid::of_threads(count, 128),
            &arguments,
            on.wait_for,
        )
    }
    .unwrap()
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

    fn launch_add(
        &self,
        backend: &CudaBackend,
        on: OnCuda<'_>,
        sum: &CudaMemory,
        operand: &CudaMemory,
    ) -> Option<CudaEvent> {
        Some(launch_add(backend, on, sum, operand))
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
