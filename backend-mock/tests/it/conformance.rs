//! The mock keeps every promise of the traits, in each way of completing commands.

use binpool_allocators::{
    DeferredAllocator, FailureOrder, ImmediateAllocator, On, SvmAllocator, SvmGrain,
};
use binpool_conformance::{
    AllocatorFixture, Fixture, allocator_conformance, backend_checks, backend_conformance,
    failure_checks, failure_conformance, pending_checks, pending_conformance, run_all, svm_checks,
    svm_conformance, virtual_memory_checks, virtual_memory_conformance,
};
use binpool_mock::{
    Completion, Failures, HostWait, MockBackend, MockDevice, MockDeviceBuilder, MockEvent,
    MockMemory, MockQueue,
};

const CAPACITY: u64 = 1 << 24;

fn builder() -> MockDeviceBuilder {
    // The checks with threads wait for each other's commands.
    MockDevice::builder()
        .capacity_bytes(CAPACITY)
        .virtual_memory(true)
        .host_waits(HostWait::Block)
}

/// A mock device as the builder makes it.
struct Mock(fn() -> MockDeviceBuilder);

impl Fixture for Mock {
    type Backend = MockBackend;

    fn backend(&self) -> MockBackend {
        (self.0)().build().backend()
    }

    fn enforced_capacity(&self) -> Option<u64> {
        Some(CAPACITY)
    }

    fn launch_add(
        &self,
        backend: &MockBackend,
        on: On<'_, MockQueue, MockEvent>,
        sum: &MockMemory,
        operand: &MockMemory,
    ) -> Option<MockEvent> {
        let add = |operands: &[&[u8]], sums: &mut [&mut [u8]]| {
            for (sum, operand) in sums[0].chunks_mut(4).zip(operands[0].chunks(4)) {
                let [left, right] =
                    [&*sum, operand].map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap()));
                sum.copy_from_slice(&(left + right).to_ne_bytes());
            }
        };
        Some(backend.launch(on, "add", &[operand], &[sum], add).unwrap())
    }
}

mod at_once {
    use super::*;

    backend_conformance!(Mock(builder));
    pending_conformance!(Mock(builder));
    failure_conformance!(Mock(builder));
    svm_conformance!(Mock(builder));
    virtual_memory_conformance!(Mock(builder));
}

mod pages_at_one_place_at_a_time {
    use super::*;

    virtual_memory_conformance!(Mock(|| builder().page_aliases(false)));
}

mod seeded {
    use super::*;

    const MOCK: Mock = Mock(|| builder().completion(Completion::Seeded(7)));

    backend_conformance!(MOCK);
    pending_conformance!(MOCK);
    failure_conformance!(MOCK);
    svm_conformance!(MOCK);
    virtual_memory_conformance!(MOCK);
}

mod seeded_otherwise {
    use super::*;

    const MOCK: Mock = Mock(|| builder().completion(Completion::Seeded(0xfeed)));

    backend_conformance!(MOCK);
    pending_conformance!(MOCK);
    failure_conformance!(MOCK);
    svm_conformance!(MOCK);
}

mod behind {
    use std::time::Duration;

    use super::*;

    const MOCK: Mock = Mock(|| {
        builder().completion(Completion::Behind {
            commands: Duration::from_micros(50),
            markers: Duration::from_micros(5),
        })
    });

    backend_conformance!(MOCK);
    pending_conformance!(MOCK);
    failure_conformance!(MOCK);
    svm_conformance!(MOCK);
    virtual_memory_conformance!(MOCK);
}

mod in_order_queues_and_coarse_svm_only {
    use binpool_allocators::SvmSupport;

    use super::*;

    const MOCK: Mock = Mock(|| {
        builder().out_of_order_queues(false).svm(SvmSupport {
            coarse: true,
            ..SvmSupport::default()
        })
    });

    backend_conformance!(MOCK);
    pending_conformance!(MOCK);
    failure_conformance!(MOCK);
    svm_conformance!(MOCK);
}

/// A mock device on which commands fail in one way or another.
macro_rules! failing {
    ($($name:ident: $order:ident, $spread:literal, $completion:expr;)*) => {
        $(
            mod $name {
                use super::*;

                const MOCK: Mock = Mock(|| {
                    let (order, spread) = (FailureOrder::$order, $spread);
                    builder()
                        .completion($completion)
                        .failures(Failures { order, spread })
                });

                backend_conformance!(MOCK);
                pending_conformance!(MOCK);
                failure_conformance!(MOCK);
                svm_conformance!(MOCK);
            }
        )*
    };
}

failing! {
    failures_in_order_spread: Kept, true, Completion::AtOnce;
    failures_in_order_spread_seeded: Kept, true, Completion::Seeded(1);
    failures_are_early: FailsEarly, false, Completion::AtOnce;
    failures_are_early_seeded: FailsEarly, false, Completion::Seeded(2);
    failures_are_early_and_spread: FailsEarly, true, Completion::AtOnce;
    failures_are_early_and_spread_seeded: FailsEarly, true, Completion::Seeded(3);
    failures_lose_their_place: Lost, false, Completion::AtOnce;
    failures_lose_their_place_seeded: Lost, false, Completion::Seeded(4);
    failures_lose_their_place_and_spread: Lost, true, Completion::AtOnce;
    failures_lose_their_place_and_spread_seeded: Lost, true, Completion::Seeded(5);
}

mod committed_at_creation {
    use super::*;

    const MOCK: Mock = Mock(|| builder().commit_at_create(true));

    backend_conformance!(MOCK);
    pending_conformance!(MOCK);
    failure_conformance!(MOCK);
    svm_conformance!(MOCK);
}

struct Immediate;

impl AllocatorFixture for Immediate {
    type Allocator = ImmediateAllocator<MockBackend>;

    fn allocator(&self) -> Self::Allocator {
        ImmediateAllocator::new(&builder().build().backend()).unwrap()
    }

    fn enforced_capacity(&self) -> Option<u64> {
        Some(CAPACITY)
    }
}

mod immediate {
    use super::*;

    allocator_conformance!(Immediate);
}

struct Deferred;

impl AllocatorFixture for Deferred {
    type Allocator = DeferredAllocator<MockBackend>;

    fn allocator(&self) -> Self::Allocator {
        DeferredAllocator::new(&builder().build().backend())
    }

    fn enforced_capacity(&self) -> Option<u64> {
        Some(CAPACITY)
    }
}

mod deferred {
    use super::*;

    allocator_conformance!(Deferred);
}

struct Svm;

impl AllocatorFixture for Svm {
    type Allocator = SvmAllocator<MockBackend>;

    fn allocator(&self) -> Self::Allocator {
        SvmAllocator::new(&builder().build().backend(), SvmGrain::Coarse).unwrap()
    }

    fn enforced_capacity(&self) -> Option<u64> {
        Some(CAPACITY)
    }
}

mod svm {
    use super::*;

    allocator_conformance!(Svm);
}

mod chosen_at_run_time {
    use std::sync::Arc;

    use binpool_allocators::Allocator;

    use super::*;

    fn allocator() -> Arc<dyn Allocator<Backend = MockBackend>> {
        Arc::new(Immediate.allocator())
    }

    allocator_conformance!(allocator);
}

mod svm_freed_on_a_queue {
    use binpool_allocators::{Backend, QueueOrder};

    use super::*;

    fn allocator() -> SvmAllocator<MockBackend> {
        let device = builder().completion(Completion::Seeded(3)).build();
        let queue = device.backend().create_queue(QueueOrder::InOrder).unwrap();
        let allocator = SvmAllocator::new(&device.backend(), SvmGrain::Fine).unwrap();
        allocator.with_queue(&queue).unwrap()
    }

    allocator_conformance!(allocator);
}

/// Every order that a device may run commands in, as far as some seeds go.
#[test]
fn promises_are_kept_under_every_seed() {
    struct Seeded(u64);

    impl Fixture for Seeded {
        type Backend = MockBackend;

        fn backend(&self) -> MockBackend {
            let builder = builder().completion(Completion::Seeded(self.0));
            builder.build().backend()
        }

        fn enforced_capacity(&self) -> Option<u64> {
            Some(CAPACITY)
        }
    }

    for seed in 0..20 {
        let each = [
            backend_checks(),
            pending_checks(),
            failure_checks(),
            svm_checks(),
            virtual_memory_checks(),
        ];
        let checks: Vec<_> = each.into_iter().flatten().collect();
        let report = run_all(&checks, &Seeded(seed));
        assert!(report.passed(), "seed {seed}: {report}");
    }
}
