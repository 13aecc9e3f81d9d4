//! What the tests share. `BINPOOL_TEST_DEVICE` says on which OpenCL device they run (default `any`), and `BINPOOL_TEST_CUDA` on which
//! CUDA device, by its number: without it, on the stand-in for the driver. Those of Vulkan run on the first device, which is
//! Mesa's for the processor if there is no other.

#[path = "../../../../../backend-cuda/tests/it/common/stand_in_build.rs"]
mod stand_in_build;

use std::{
    env,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use binpool::{
    Allocator, Backend, DeferredAllocator, Error, ImmediateAllocator, InvalidRequest, MemoryPool,
    PoolError, PoolOptions, QueueOrder, SvmAllocator, SvmBackend, SvmGrain,
};
use binpool_array::{
    ArrayError, Context, CudaKernels, HostMaps, Kernels, MockKernels, OpenClKernels, VulkanKernels,
};
use binpool_cuda::{CudaBackend, CudaDevice, CudaLibrary, DriverPoolAllocator};
use binpool_mock::{Completion, MockBackend, MockDevice};
use binpool_opencl::OpenClBackend;
use binpool_vulkan::VulkanBackend;

pub(crate) type MockContext = Context<MockBackend, MockKernels>;

/// The OpenCL device under test.
///
/// Never skipped: without a device the test fails.
pub(crate) fn open_opencl() -> (OpenClBackend, OpenClKernels) {
    let device = env::var("BINPOOL_TEST_DEVICE").unwrap_or_default();
    binpool_array::open_opencl(&device.parse().unwrap()).unwrap()
}

/// The CUDA device under test.
pub(crate) fn open_cuda() -> (CudaBackend, CudaKernels) {
    static LIBRARY: OnceLock<CudaLibrary> = OnceLock::new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if let Ok(ordinal) = env::var("BINPOOL_TEST_CUDA") {
        return binpool_array::open_cuda(ordinal.parse().unwrap()).unwrap();
    }
    // SAFETY: The stand-in has the driver's signatures, and does nothing when it is loaded.
    let library =
        LIBRARY.get_or_init(|| unsafe { CudaLibrary::open(stand_in_build::build()) }.unwrap());
    let device = CudaDevice::of(library, NEXT.fetch_add(1, Ordering::Relaxed)).unwrap();
    let backend = device.backend().unwrap();
    let kernels = CudaKernels::new(&backend).unwrap();
    (backend, kernels)
}

/// The Vulkan device under test.
///
/// Never skipped: without a device the test fails.
pub(crate) fn open_vulkan() -> (VulkanBackend, VulkanKernels) {
    binpool_array::open_vulkan(0).unwrap()
}

/// Contexts over one pool, each with a queue of its own: two in order, and one out of order where the device has that.
pub(crate) fn contexts<B: Backend, K: Kernels<B> + Clone>(
    allocator: impl Allocator<Backend = B>,
    options: PoolOptions,
    kernels: &K,
) -> Vec<Context<B, K>> {
    let backend = allocator.backend().clone();
    let mut orders = vec![QueueOrder::InOrder; 2];
    if backend.limits().out_of_order_queues {
        orders.push(QueueOrder::OutOfOrder);
    }
    let queues = orders
        .into_iter()
        .map(|order| backend.create_queue(order).unwrap());
    let queues: Vec<_> = queues.collect();
    let pool = options.build(allocator, &queues[0]).unwrap();
    queues
        .into_iter()
        .map(|queue| Context::new(pool.clone(), queue, kernels.clone()))
        .collect()
}

/// What is checked with arrays of any device, over any allocator.
pub(crate) trait Check {
    /// Checks it with a context.
    fn check<B: HostMaps, K: Kernels<B>>(&self, context: &Context<B, K>);

    /// Checks it on the mock device.
    fn on_the_mock_device(&self) {
        let device = MockDevice::builder()
            .completion(Completion::Seeded(3))
            .build();
        self.with_allocators(&device.backend(), &MockKernels);
        assert!(device.violations().is_empty(), "{:#?}", device.violations());
    }

    /// Checks it on the OpenCL device.
    fn on_opencl(&self) {
        let (backend, kernels) = open_opencl();
        self.with_allocators(&backend, &kernels);
    }

    /// Checks it on the CUDA device.
    fn on_cuda(&self) {
        let (backend, kernels) = open_cuda();
        let allocator = ImmediateAllocator::new(&backend).unwrap();
        for context in contexts(allocator, PoolOptions::new(), &kernels) {
            self.check(&context);
        }
        let allocator = DriverPoolAllocator::new(&backend).unwrap();
        for context in contexts(allocator, PoolOptions::new().segments(false), &kernels) {
            self.check(&context);
        }
    }

    /// Checks it on the Vulkan device.
    fn on_vulkan(&self) {
        let (backend, kernels) = open_vulkan();
        let allocator = ImmediateAllocator::new(&backend).unwrap();
        for context in contexts(allocator, PoolOptions::new(), &kernels) {
            self.check(&context);
        }
    }

    /// Checks it with buffers and with shared virtual memory, on queues of both orders.
    fn with_allocators<B: SvmBackend + HostMaps, K: Kernels<B> + Clone>(
        &self,
        backend: &B,
        kernels: &K,
    ) {
        for context in contexts(DeferredAllocator::new(backend), PoolOptions::new(), kernels) {
            self.check(&context);
        }
        let svm = SvmAllocator::new(backend, SvmGrain::Coarse).unwrap();
        for context in contexts(svm, PoolOptions::new(), kernels) {
            self.check(&context);
        }
    }
}

/// Two contexts, each with a queue of its own, over one pool of a device on which commands run when the test says so.
pub(crate) fn two_queues(orders: [QueueOrder; 2]) -> (MockDevice, [MockContext; 2]) {
    let device = MockDevice::builder().completion(Completion::Manual).build();
    let backend = device.backend();
    let queues = orders.map(|order| backend.create_queue(order).unwrap());
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend).unwrap(), &queues[0]).unwrap();
    let contexts = queues.map(|queue| Context::new(pool.clone(), queue, MockKernels));
    (device, contexts)
}

/// All pairs of orders.
pub(crate) const PAIRS: [[QueueOrder; 2]; 4] = {
    use QueueOrder::{InOrder, OutOfOrder};
    [
        [InOrder, InOrder],
        [InOrder, OutOfOrder],
        [OutOfOrder, InOrder],
        [OutOfOrder, OutOfOrder],
    ]
};

/// Runs what is pending, the youngest first, as far as anything lets it.
pub(crate) fn run_youngest_first(device: &MockDevice) {
    while let Some(youngest) = device.runnable().pop() {
        assert!(device.run_command(youngest));
    }
}

/// What the device refused; any other outcome fails the test.
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, ArrayError>) -> InvalidRequest {
    match result {
        Err(ArrayError::Pool(PoolError::Allocator(Error::InvalidRequest(refusal)))) => refusal,
        other => panic!("{other:?} is no refusal"),
    }
}

/// 0, 1, 2, ...
#[expect(clippy::cast_precision_loss, reason = "small integers")]
pub(crate) fn numbered(length: usize) -> Vec<f32> {
    (0..length).map(|number| number as f32).collect()
}
