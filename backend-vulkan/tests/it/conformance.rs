//! The backend keeps every promise of the traits, but for user events that fail, which Vulkan does not have.

use binpool_allocators::{ImmediateAllocator, On, runtime::Runtime};
use binpool_conformance::{
    AllocatorFixture, Fixture, allocator_conformance, backend_conformance, hazard_conformance,
    pending_conformance,
};
use binpool_vulkan::{VulkanBackend, VulkanEvent, VulkanMemory, VulkanQueue};

use crate::{common, kernels};

/// The kernel of a fixture.
macro_rules! launches_kernels {
    () => {
        fn launch_add(
            &self,
            backend: &VulkanBackend,
            on: On<'_, VulkanQueue, VulkanEvent>,
            sum: &VulkanMemory,
            operand: &VulkanMemory,
        ) -> Option<VulkanEvent> {
            Some(kernels::add(backend, on, sum, operand))
        }
    };
}

struct Vulkan;

impl Fixture for Vulkan {
    type Backend = VulkanBackend;

    fn backend(&self) -> VulkanBackend {
        common::backend()
    }

    launches_kernels!();
}

mod backend {
    use super::*;

    backend_conformance!(Vulkan);
    pending_conformance!(Vulkan);
}

/// The core puts conflicting commands in order.
struct Ordered;

impl Fixture for Ordered {
    type Backend = VulkanBackend;

    fn backend(&self) -> VulkanBackend {
        let backend = common::backend();
        backend.core().order_conflicts();
        backend
    }

    launches_kernels!();
}

mod hazards {
    use super::*;

    hazard_conformance!(Ordered);
}

/// The same, and the queues are of two families of the device, which run their commands in any order.
struct OnSeveralQueues;

impl Fixture for OnSeveralQueues {
    type Backend = VulkanBackend;

    fn backend(&self) -> VulkanBackend {
        let backend = common::queues::parts(&[0, 1, 0], 7).backend();
        backend.core().order_conflicts();
        backend
    }

    launches_kernels!();
}

mod several_queues {
    use super::*;

    backend_conformance!(OnSeveralQueues);
    hazard_conformance!(OnSeveralQueues);
    pending_conformance!(OnSeveralQueues);
}

struct Immediate;

impl AllocatorFixture for Immediate {
    type Allocator = ImmediateAllocator<VulkanBackend>;

    fn allocator(&self) -> Self::Allocator {
        ImmediateAllocator::new(&common::backend()).unwrap()
    }
}

mod immediate {
    use super::*;

    allocator_conformance!(Immediate);
}
