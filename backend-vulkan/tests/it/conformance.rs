//! The backend keeps every promise of the traits, but for user events that fail, which Vulkan does not have.

use binpool_allocators::ImmediateAllocator;
use binpool_conformance::{
    AllocatorFixture, Fixture, allocator_conformance, backend_conformance, pending_conformance,
};
use binpool_vulkan::VulkanBackend;

use crate::common;

struct Vulkan;

impl Fixture for Vulkan {
    type Backend = VulkanBackend;

    fn backend(&self) -> VulkanBackend {
        common::backend()
    }
}

mod backend {
    use super::*;

    backend_conformance!(Vulkan);
    pending_conformance!(Vulkan);
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
