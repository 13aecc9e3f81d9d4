//! OpenCL keeps every promise of the traits.

use binpool_allocators::{
    DeferredAllocator, ImmediateAllocator, Memory as _, On, SvmAllocator, SvmGrain,
};
use binpool_conformance::{
    AllocatorFixture, Fixture, allocator_conformance, backend_conformance, failure_conformance,
    hazard_conformance, pending_conformance, svm_conformance,
};
use binpool_opencl::{
    Argument, ClEvent, ClMemory, ClProgram, ClQueue, Extent, OpenClBackend, Parameter,
};

/// The device under test. No runtime keeps to its own capacity, so none is enforced.
struct OpenCl;

impl Fixture for OpenCl {
    type Backend = OpenClBackend;

    fn backend(&self) -> OpenClBackend {
        crate::common::open()
    }

    fn launch_add(
        &self,
        backend: &OpenClBackend,
        on: On<'_, ClQueue, ClEvent>,
        sum: &ClMemory,
        operand: &ClMemory,
    ) -> Option<ClEvent> {
        let source = "kernel void add(global float *sum, global const float *operand) {
            sum[get_global_id(0)] += operand[get_global_id(0)];
        }";
        let program = ClProgram::build(backend, source, "").unwrap();
        let words = Extent::PerItem(1);
        let parameters = [
            Parameter::in_out::<f32>(words),
            Parameter::input::<f32>(words),
        ];
        // SAFETY: each work item touches the float of its id in both.
        let kernel = unsafe { program.kernel("add", &parameters) }.unwrap();
        let launch = kernel.launch(on, &[sum.bytes() / 4]);
        let arguments = [Argument::Memory(sum), Argument::Memory(operand)];
        Some(launch.arguments(arguments).enqueue().unwrap())
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
