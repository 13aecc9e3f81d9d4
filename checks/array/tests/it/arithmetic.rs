//! Arrays compute what the host computes, on the mock and on OpenCL, with and without the pool.

use std::{env, error::Error as _, io};

use binpool::{
    Backend, DeferredAllocator, Error, ImmediateAllocator, InvalidRequest, MemoryPool, PoolError,
    PoolOptions, QueueOrder, ReusePolicy, SvmAllocator, SvmBackend, SvmGrain,
};
use binpool_array::{ArrayError, BinaryOperation, Context, Kernels, MockKernels, open_opencl};
use binpool_mock::{CallKind, Completion, MockDevice};

use crate::common::{PAIRS, run_youngest_first, two_queues};

pub(crate) fn check<B: Backend, K: Kernels<B>>(context: &Context<B, K>) {
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
    let shifted = (2.0 * &left - 1.0).slice(1..).unwrap().to_vec().unwrap();
    let halves = (0.5 + context.full(3, 0.25).unwrap() * 2.0).to_vec();
    assert_eq!((shifted[0], shifted[998]), (1.0, 1997.0));
    assert_eq!(halves.unwrap(), [1.0; 3]);
    let empty = context.array(&[]).unwrap();
    assert!((&empty + 1.0).is_empty());
    assert!(empty.is_empty() && !left.is_empty());
    assert_eq!((&empty + &empty).to_vec().unwrap(), [0.0_f32; 0]);
    assert!(matches!(
        left.try_binary(BinaryOperation::Add, &empty),
        Err(ArrayError::Lengths {
            left: 1000,
            right: 0
        })
    ));
    assert!(context.pool().statistics().hits > 0);
}

fn check_allocators<B: SvmBackend, K: Kernels<B> + Clone>(backend: &B, kernels: &K) {
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let pool = MemoryPool::new(ImmediateAllocator::new(backend).unwrap(), &queue).unwrap();
    check(&Context::new(pool, queue.clone(), kernels.clone()));
    let pool = MemoryPool::new(DeferredAllocator::new(backend), &queue).unwrap();
    check(&Context::new(pool, queue.clone(), kernels.clone()));
    let svm = SvmAllocator::new(backend, SvmGrain::Coarse).unwrap();
    let pool = MemoryPool::new(svm, &queue).unwrap();
    check(&Context::new(pool, queue.clone(), kernels.clone()));
}

/// Arrays of several queues in one expression, dropped while their commands are pending: every sum is right.
pub(crate) fn check_queues<B: Backend, K: Kernels<B> + Clone>(
    backend: &B,
    kernels: &K,
    policy: ReusePolicy,
) {
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
        .map(|queue| Context::new(pool.clone(), queue.clone(), kernels.clone()))
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
fn a_queue_waits_for_what_another_one_computes() {
    for orders in PAIRS {
        let (device, [one, two]) = two_queues(orders);
        let (a, b) = (one.array(&[2.0; 8]).unwrap(), two.array(&[5.0; 8]).unwrap());
        let sum = &a + &a;
        let product = &b * &sum;
        let difference = &product - &sum;
        let moved = difference.to_context(&one).unwrap();
        let last = &moved * &moved;
        drop((a, b, sum, product, moved));
        run_youngest_first(&device);
        assert_eq!(last.to_vec().unwrap(), [256.0; 8], "{orders:?}");
        assert!(device.violations().is_empty(), "{:#?}", device.violations());
    }
}

#[test]
fn a_queue_is_made_to_wait_for_an_array_once() {
    for order in [QueueOrder::InOrder, QueueOrder::OutOfOrder] {
        let (device, [one, two]) = two_queues([order; 2]);
        let weights = one.array(&[3.0; 8]).unwrap();
        let waits = || device.call_count(CallKind::Barrier);
        let inputs = [1.0, 2.0, 4.0].map(|input| two.array(&[input; 8]).unwrap());
        let unasked = waits();
        drop(&inputs[0] * &weights);
        let before = waits();
        assert!(before > unasked, "{order:?}");
        drop([&inputs[0] * &weights, &inputs[0] + &weights]);
        assert_eq!(waits(), before, "{order:?}");
        let weights = weights.to_context(&two).unwrap();
        let moved = waits();
        drop([&weights - &weights, &weights * &inputs[0]]);
        assert_eq!(waits(), moved, "{order:?}");
    }
}

/// Whether an operation was refused since its operands are of two backends.
fn is_foreign<T>(result: &Result<T, ArrayError>) -> bool {
    matches!(
        result,
        Err(ArrayError::Pool(PoolError::Allocator(
            Error::InvalidRequest(InvalidRequest::ForeignObject { .. })
        )))
    )
}

fn do_not_mix<B: Backend, K: Kernels<B> + Clone>(one: (&B, &K), two: (&B, &K)) {
    let [one, two] = [one, two].map(|(backend, kernels)| {
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let pool = MemoryPool::new(ImmediateAllocator::new(backend).unwrap(), &queue).unwrap();
        Context::new(pool, queue, kernels.clone())
    });
    let (a, b) = (one.array(&[1.0]).unwrap(), two.array(&[2.0]).unwrap());
    for operation in BinaryOperation::ALL {
        assert!(is_foreign(&a.try_binary(operation, &b)));
        assert!(is_foreign(&b.try_binary(operation, &a)));
    }
    assert_eq!(one.pool().statistics().active_blocks, 1);
    assert!(is_foreign(&a.to_context(&two)));
    assert_eq!(b.to_vec().unwrap(), [2.0]);
}

#[test]
fn arrays_of_two_devices_do_not_mix() {
    let [one, two] = [(); 2].map(|()| MockDevice::new().backend());
    do_not_mix((&one, &MockKernels), (&two, &MockKernels));
    let device = env::var("BINPOOL_TEST_DEVICE").unwrap_or_default();
    let [one, two] = [(); 2].map(|()| open_opencl(&device.parse().unwrap()).unwrap());
    do_not_mix((&one.0, &one.1), (&two.0, &two.1));
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

#[test]
fn an_error_names_each_cause_once() {
    let lost = || {
        Error::backend(
            "enqueueing a kernel",
            None,
            io::Error::other("a lost device"),
        )
    };
    for error in [
        ArrayError::from(lost()),
        ArrayError::from(PoolError::from(lost())),
    ] {
        assert!(!error.to_string().contains("a lost device"), "{error}");
        assert_eq!(error.source().unwrap().to_string(), "a lost device");
    }
}
