//! Arrays compute what the host computes, on the mock and on OpenCL, with and without the pool.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failing test panics"
)]

use std::env;

use binpool::{
    Allocator, Backend, DeferredAllocator, ImmediateAllocator, MemoryPool, QueueOrder,
    SvmAllocator, SvmBackend, SvmGrain,
};
use binpool_array::{ArrayError, BinaryOperation, Context, Kernels, MockKernels, open_opencl};
use binpool_mock::MockDevice;

fn check<A: Allocator, K: Kernels<A::Backend>>(context: &Context<A, K>) {
    #[expect(clippy::cast_precision_loss, reason = "small integers")]
    let numbers = |factor: usize| -> Vec<f32> { (0..1000).map(|i| (i * factor) as f32).collect() };
    let (a, b, c) = (numbers(1), numbers(2), numbers(3));
    let [left, right, third] = [&a, &b, &c].map(|numbers| context.array(numbers).unwrap());
    for _ in 0..10 {
        let sum = (&left * &right + &third).to_vec().unwrap();
        let difference = (&left - &third * &third).to_vec().unwrap();
        for i in 0..1000 {
            assert!((sum[i] - (a[i] * b[i] + c[i])).abs() < f32::EPSILON);
            assert!((difference[i] - (a[i] - c[i] * c[i])).abs() < f32::EPSILON);
        }
    }
    let empty = context.array(&[]).unwrap();
    assert_eq!((&empty + &empty).to_vec().unwrap(), []);
    assert!(matches!(
        left.try_binary(BinaryOperation::Add, &empty),
        Err(ArrayError::Lengths {
            left: 1000,
            right: 0
        })
    ));
    assert!(context.pool().statistics().hits > 0);
}

fn check_allocators<B: SvmBackend, K: Kernels<B>>(backend: &B, kernels: &K) {
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let pool = MemoryPool::new(ImmediateAllocator::new(backend).unwrap(), &queue).unwrap();
    check(&Context::new(pool, queue.clone(), kernels));
    let pool = MemoryPool::new(DeferredAllocator::new(backend), &queue).unwrap();
    check(&Context::new(pool, queue.clone(), kernels));
    let svm = SvmAllocator::new(backend, SvmGrain::Coarse).unwrap();
    let pool = MemoryPool::new(svm, &queue).unwrap();
    check(&Context::new(pool, queue.clone(), kernels));
}

#[test]
fn on_the_mock_device() {
    check_allocators(&MockDevice::new().backend(), &MockKernels);
}

#[test]
fn on_opencl() {
    let selector = env::var("BINPOOL_TEST_DEVICE").unwrap_or_else(|_| "any".into());
    let (backend, kernels) = open_opencl(&selector.parse().unwrap()).unwrap();
    check_allocators(&backend, &kernels);
}

#[test]
fn a_warm_pool_asks_the_device_for_nothing() {
    let backend = MockDevice::new().backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend).unwrap(), &queue).unwrap();
    let context = Context::new(pool, queue, MockKernels);
    let [a, b, c] = [1.0, 2.0, 3.0].map(|number| context.array(&[number; 64]).unwrap());
    drop(&a * &b + &c);
    let misses = context.pool().statistics().misses;
    for _ in 0..100 {
        assert_eq!((&a * &b + &c).to_vec().unwrap(), [5.0; 64]);
    }
    assert_eq!(context.pool().statistics().misses, misses);
}
