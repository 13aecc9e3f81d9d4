//! Arrays compute what the host computes, on the mock and on OpenCL, with and without the pool.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failing test panics"
)]

use std::env;

use binpool::{
    Allocator, Backend, DeferredAllocator, ImmediateAllocator, MemoryPool, PoolOptions, QueueOrder,
    ReusePolicy, SvmAllocator, SvmBackend, SvmGrain,
};
use binpool_array::{ArrayError, BinaryOperation, Context, Kernels, MockKernels, open_opencl};
use binpool_mock::{Completion, MockDevice};

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

/// Arrays of several queues in one expression, dropped while their commands are pending: every sum is right.
fn check_queues<B: Backend, K: Kernels<B>>(backend: &B, kernels: &K, policy: ReusePolicy) {
    let mut orders = vec![QueueOrder::InOrder; 2];
    if backend.limits().out_of_order_queues {
        orders.push(QueueOrder::OutOfOrder);
    }
    let queues: Vec<B::Queue> = orders
        .into_iter()
        .map(|order| backend.create_queue(order).unwrap())
        .collect();
    let pool = PoolOptions::new()
        .reuse(policy)
        .build(ImmediateAllocator::new(backend).unwrap(), &queues[0])
        .unwrap();
    let contexts: Vec<_> = queues
        .iter()
        .map(|queue| Context::new(pool.clone(), queue.clone(), kernels))
        .collect();
    for turn in 0..30_usize {
        let [one, two, three] = [0, 1, 2].map(|i| &contexts[(turn + i) % contexts.len()]);
        let a = one.array(&[1.0; 500]).unwrap();
        let b = two.array(&[2.0; 500]).unwrap();
        // Computed on the one, the other, and the third; moved in between.
        let sum = &(&a + &b) * &(&b - &a);
        let moved = (&b + &sum).to_context(three).unwrap();
        let result = &moved * &sum;
        drop((a, b, moved, sum));
        assert_eq!(
            result.to_vec().unwrap(),
            [15.0; 500],
            "{policy:?}, turn {turn}"
        );
    }
    assert!(pool.statistics().hits > 0);
}

#[test]
fn arrays_of_several_queues_on_the_mock_device() {
    for policy in ReusePolicy::ALL {
        for seed in 0..10 {
            let builder = MockDevice::builder().completion(Completion::Seeded(seed));
            let device = builder.build();
            check_queues(&device.backend(), &MockKernels, policy);
            assert!(device.violations().is_empty(), "{:#?}", device.violations());
        }
    }
}

#[test]
fn arrays_of_several_queues_on_opencl() {
    let device = env::var("BINPOOL_TEST_DEVICE").unwrap_or_default();
    let (backend, kernels) = open_opencl(&device.parse().unwrap()).unwrap();
    for policy in ReusePolicy::ALL {
        check_queues(&backend, &kernels, policy);
    }
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
