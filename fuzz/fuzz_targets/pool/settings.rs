//! What a program runs on: a device, an allocator, queues, and the settings of its pools.

use std::sync::Arc;

use arbitrary::Arbitrary;
use binpool::{
    Allocator, DeferredAllocator, ImmediateAllocator, PoolOptions, QueueOrder, Retain, ReusePolicy,
    ScrubPolicy, SvmAllocator, SvmGrain, VirtualMemoryAllocator,
    adaptors::{Budget, Fallback, Limit, Statistics},
};
use binpool_allocators::Align;
use binpool_mock::{Completion, Failures, MockBackend, MockDevice, MockQueue};

use crate::swarm::Swarm;

pub(crate) type AnyAllocator = Arc<dyn Allocator<Backend = MockBackend>>;

#[derive(Arbitrary, Debug)]
pub(crate) struct Settings {
    capacity: Capacity,
    alignment: Alignment,
    completion: CompletionOf,
    pub(crate) allocator: AllocatorOf,
    /// Whether each queue is out of order. The first one is the pools' home.
    out_of_order: [bool; 4],
    pub(crate) pools: [PoolSettings; 2],
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Capacity {
    Kib16,
    Kib64,
    Kib512,
    /// More than one segment.
    Mib3,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Alignment {
    Byte,
    Usual,
    Page,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum CompletionOf {
    AtOnce,
    Manual,
    Seeded(u8),
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocatorOf {
    Immediate,
    Deferred,
    Svm,
    /// Frees are ordered on the home queue, where that is in order.
    SvmOnQueue,
    Counted,
    Limited,
    Fallback,
    LimitedSvm,
    /// Pages that pools map, which have no blocks without segments.
    Pages,
}

#[derive(Arbitrary, Debug)]
pub(crate) struct PoolSettings {
    policy: u8,
    scrub: u8,
    segments: bool,
    leading_bits: Option<u8>,
    release_threshold: Option<u16>,
    decay: Option<u8>,
}

impl PoolSettings {
    pub(crate) fn scrub(&self, allocator: AllocatorOf) -> ScrubPolicy {
        // Scrubbing does without the thread caches, which are to be met more often.
        match self.scrub % 8 {
            // Pages may be anywhere by then.
            0 if allocator == AllocatorOf::Pages => ScrubPolicy::OnHandOut,
            0 => ScrubPolicy::OnFree,
            1 => ScrubPolicy::OnHandOut,
            _ => ScrubPolicy::Never,
        }
    }

    pub(crate) fn options(&self, allocator: AllocatorOf) -> PoolOptions {
        let mut options = PoolOptions::new()
            .reuse(ReusePolicy::ALL[usize::from(self.policy) % ReusePolicy::ALL.len()])
            .segments(self.has_segments(allocator))
            .scrub(self.scrub(allocator));
        if let Some(bits) = self.leading_bits {
            options = options.leading_bits(u32::from(bits) % 11);
        }
        let mut retain = Retain::new();
        if let Some(bytes) = self.release_threshold {
            retain = retain.at_most(bytes.into());
        }
        if let Some(allocations) = self.decay {
            retain = retain.unused_for_allocations(allocations.into());
        }
        options.retain(retain)
    }

    /// What becomes of commands after one that fails: from the part of a number that the policy leaves, so that saved
    /// inputs stand for what they stood for.
    fn failures(&self) -> Failures {
        let rest = usize::from(self.policy) / ReusePolicy::ALL.len();
        Failures::ALL[rest % Failures::ALL.len()]
    }

    pub(crate) fn has_segments(&self, allocator: AllocatorOf) -> bool {
        self.segments || allocator == AllocatorOf::Pages
    }
}

impl Settings {
    /// Which kinds of steps the program has: from the parts of two numbers that the scrub policies leave.
    pub(crate) fn swarm(&self) -> Swarm {
        let [first, second] = &self.pools;
        Swarm(u32::from(first.scrub / 8) * 32 + u32::from(second.scrub / 8))
    }

    pub(crate) fn capacity_bytes(&self) -> usize {
        match self.capacity {
            // Pages are of 2 MiB.
            _ if self.allocator == AllocatorOf::Pages => 16 << 20,
            Capacity::Kib16 => 16 << 10,
            Capacity::Kib64 => 64 << 10,
            Capacity::Kib512 => 512 << 10,
            Capacity::Mib3 => 3 << 20,
        }
    }

    pub(crate) fn device(&self) -> MockDevice {
        let alignment = match self.alignment {
            Alignment::Byte => 1,
            Alignment::Usual => 256,
            Alignment::Page => 4096,
        };
        let completion = match self.completion {
            CompletionOf::AtOnce => Completion::AtOnce,
            CompletionOf::Manual => Completion::Manual,
            CompletionOf::Seeded(seed) => Completion::Seeded(seed.into()),
        };
        MockDevice::builder()
            .capacity_bytes(self.capacity_bytes() as u64)
            .alignment(Align::new(alignment).expect("a power of two"))
            .completion(completion)
            .failures(self.pools[0].failures())
            .virtual_memory(self.allocator == AllocatorOf::Pages)
            .build()
    }

    pub(crate) fn orders(&self) -> [QueueOrder; 4] {
        self.out_of_order.map(|out_of_order| {
            if out_of_order {
                QueueOrder::OutOfOrder
            } else {
                QueueOrder::InOrder
            }
        })
    }

    /// An allocator, bounded by `budget` where it is one that has limits.
    pub(crate) fn allocator(
        &self,
        backend: &MockBackend,
        home: &MockQueue,
        budget: &Budget,
    ) -> AnyAllocator {
        let immediate = || ImmediateAllocator::new(backend).expect("no fault was asked for");
        let svm = || SvmAllocator::new(backend, SvmGrain::Coarse).expect("the mock has SVM");
        match self.allocator {
            AllocatorOf::Immediate => Arc::new(immediate()),
            AllocatorOf::Deferred => Arc::new(DeferredAllocator::new(backend)),
            AllocatorOf::Svm => Arc::new(svm()),
            AllocatorOf::SvmOnQueue => match svm().with_queue(home) {
                Ok(allocator) => Arc::new(allocator),
                Err(_out_of_order) => Arc::new(svm()),
            },
            AllocatorOf::Counted => Arc::new(Statistics::new(immediate())),
            AllocatorOf::Limited => Arc::new(Limit::shared(immediate(), budget)),
            AllocatorOf::Fallback => {
                Arc::new(Fallback::new(Limit::shared(immediate(), budget), svm()))
            }
            AllocatorOf::LimitedSvm => Arc::new(Limit::shared(svm(), budget)),
            AllocatorOf::Pages => Arc::new(VirtualMemoryAllocator::new(backend)),
        }
    }
}
