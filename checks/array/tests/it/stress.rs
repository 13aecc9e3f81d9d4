//! Random expressions over arrays of several queues, computed by real kernels from several threads, with blocks that go
//! back to the pool while their commands are pending: every result is verified.
//!
//! `BINPOOL_STRESS_ROUNDS` says how many operations each thread enqueues under each policy (default 150), and
//! `BINPOOL_STRESS_THREADS` how many threads there are (default 4);
//! `BINPOOL_TEST_DEVICE` says on which OpenCL device.

use std::{env, thread};

use binpool::{
    Allocator, Backend, ImmediateAllocator, PoolOptions, ReusePolicy, SvmAllocator, SvmGrain,
};
use binpool_array::{Array, BinaryOperation, Context, Kernels, MockKernels, open_opencl};
use binpool_conformance::Random;
use binpool_mock::{Completion, HostWait, MockDevice};

use crate::common::contexts;

/// Sizes of a few classes, so that blocks meet again.
const LENGTHS: [usize; 4] = [1, 1000, 1024, 20_000];

/// A number from the environment.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    let setting = env::var(name).ok();
    setting.map_or(default, |number| number.parse().expect("a number"))
}

/// One of these; there is at least one.
fn pick<'a, T>(random: &mut Random, among: &'a [T]) -> &'a T {
    &among[random.below(among.len())]
}

/// An array all of whose elements are this number.
struct Known<B: Backend, K> {
    array: Array<B, K>,
    value: f32,
}

impl<B: Backend, K: Kernels<B>> Known<B, K> {
    fn new(context: &Context<B, K>, random: &mut Random) -> Self {
        let value = [1.0, 2.0, 3.0, 5.0][random.below(4)];
        let length = *pick(random, &LENGTHS);
        let array = context.array(&vec![value; length]).unwrap();
        Self { array, value }
    }

    fn verify(&self, what: &str) {
        let elements = self.array.to_vec().unwrap();
        // As bits, in which zeros of both signs are made equal.
        let bits = |element: f32| (element + 0.0).to_bits();
        let wrong = elements
            .iter()
            .position(|element| bits(*element) != bits(self.value));
        assert_eq!(
            wrong.map(|place| (place, elements[place])),
            None,
            "{what}: all {} elements are to be {}",
            elements.len(),
            self.value
        );
    }
}

fn stress_thread<B: Backend, K: Kernels<B>>(contexts: &[Context<B, K>], seed: u64, what: &str) {
    let mut random = Random::new(seed);
    let mut live: Vec<Known<B, K>> = Vec::new();
    for _ in 0..setting("BINPOOL_STRESS_ROUNDS", 150) {
        if live.len() < 4 {
            live.push(Known::new(pick(&mut random, contexts), &mut random));
            continue;
        }
        let (left, right) = (pick(&mut random, &live), pick(&mut random, &live));
        if left.array.len() == right.array.len() {
            let (one, two) = (left.value, right.value);
            let operation = *pick(&mut random, &BinaryOperation::ALL);
            let (operation, value) = match operation {
                BinaryOperation::Multiply if (one * two).abs() < 1e5 => (operation, one * two),
                BinaryOperation::Add if (one + two).abs() < 1e5 => (operation, one + two),
                _ => (BinaryOperation::Subtract, one - two),
            };
            let array = left.array.try_binary(operation, &right.array).unwrap();
            live.push(Known { array, value });
        } else {
            live.push(Known::new(pick(&mut random, contexts), &mut random));
        }
        let index = random.below(live.len());
        match random.below(8) {
            0 => live.swap_remove(index).verify(what),
            1 => {
                let Known { array, value } = live.swap_remove(index);
                let array = array.to_context(pick(&mut random, contexts)).unwrap();
                live.push(Known { array, value });
            }
            // Dropped, whatever is pending.
            2..=7 if live.len() > 12 => drop(live.swap_remove(index)),
            _ => {}
        }
    }
    for known in live {
        known.verify(what);
    }
}

pub(crate) fn stress<A: Allocator, K: Kernels<A::Backend> + Clone>(
    allocator: impl Fn() -> A,
    kernels: &K,
    threads: u64,
    what: &str,
) {
    let plain = ReusePolicy::ALL.map(|policy| (policy, false));
    let carved = ReusePolicy::ALL.map(|policy| (policy, true));
    for (policy, segments) in plain.into_iter().chain(carved) {
        let allocator = allocator();
        let options = PoolOptions::new().reuse(policy).segments(segments);
        let contexts = contexts(allocator, options, kernels);
        let pool = contexts[0].pool();
        let what = format!("{what}, {policy:?}, segments: {segments}");
        thread::scope(|scope| {
            for thread in 0..threads {
                let (contexts, what) = (&contexts, &what);
                scope.spawn(move || stress_thread(contexts, 1000 + thread, what));
            }
        });
        let statistics = pool.statistics();
        assert_eq!(statistics.active_blocks, 0, "{what}");
        assert!(
            statistics.hits > statistics.misses,
            "{what}: {statistics:?}"
        );
    }
}

#[test]
fn on_the_mock_device_no_command_races() {
    for seed in 0..8 {
        let device = MockDevice::builder()
            .completion(Completion::Seeded(seed))
            .build();
        let backend = device.backend();
        let allocator = || ImmediateAllocator::new(&backend).unwrap();
        stress(allocator, &MockKernels, 1, &format!("seed {seed}"));
        assert!(device.violations().is_empty(), "{:#?}", device.violations());
    }
}

#[test]
fn threads_on_the_mock_device() {
    let device = MockDevice::builder()
        .completion(Completion::Seeded(9))
        .host_waits(HostWait::Block)
        .build();
    let backend = device.backend();
    let allocator = || ImmediateAllocator::new(&backend).unwrap();
    stress(allocator, &MockKernels, 4, "mock");
    assert!(device.violations().is_empty(), "{:#?}", device.violations());
}

#[test]
fn buffers_on_opencl() {
    let device = env::var("BINPOOL_TEST_DEVICE").unwrap_or_default();
    let (backend, kernels) = open_opencl(&device.parse().unwrap()).unwrap();
    let allocator = || ImmediateAllocator::new(&backend).unwrap();
    let threads = setting("BINPOOL_STRESS_THREADS", 4);
    stress(allocator, &kernels, threads, "buffers");
}

#[test]
fn svm_on_opencl() {
    let device = env::var("BINPOOL_TEST_DEVICE").unwrap_or_default();
    let (backend, kernels) = open_opencl(&device.parse().unwrap()).unwrap();
    let allocator = || SvmAllocator::new(&backend, SvmGrain::Coarse).unwrap();
    let threads = setting("BINPOOL_STRESS_THREADS", 4);
    stress(allocator, &kernels, threads, "SVM");
}
