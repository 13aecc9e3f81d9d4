//! What the pool's tests share: a mock device, a queue, and a pool over them.

pub(crate) mod log;
pub(crate) mod periodic;
pub(crate) mod tenants;
pub(crate) mod worker;

use binpool::{
    Backend, ImmediateAllocator, MemoryPool, Outcome, PoolError, PoolOptions, PooledBuffer, Queue,
    QueueOrder, ReusePolicy,
};
use binpool_mock::{
    Fault, MockBackend, MockDevice, MockDeviceBuilder, MockEvent, MockQueue, Persistence,
};

pub(crate) type Pool = MemoryPool<MockBackend>;
pub(crate) type Block = PooledBuffer<MockBackend>;

/// What an alignment of 256 bytes makes of 1 byte.
pub(crate) const SMALLEST: usize = 256;

pub(crate) const MIB: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) device: MockDevice,
    pub(crate) backend: MockBackend,
    pub(crate) queue: MockQueue,
    pub(crate) pool: Pool,
}

impl Rig {
    /// A pool over a device with this much memory.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self::on(MockDevice::builder().capacity_bytes(bytes as u64))
    }

    pub(crate) fn on(builder: MockDeviceBuilder) -> Self {
        Self::with_policy(builder, ReusePolicy::default())
    }

    pub(crate) fn with_policy(builder: MockDeviceBuilder, policy: ReusePolicy) -> Self {
        Self::with_options(builder, PoolOptions::new().segments(false).reuse(policy))
    }

    pub(crate) fn with_options(builder: MockDeviceBuilder, options: PoolOptions) -> Self {
        Self::over(builder.build(), options)
    }

    pub(crate) fn over(device: MockDevice, options: PoolOptions) -> Self {
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let allocator = ImmediateAllocator::new(&backend).unwrap();
        let pool = options.build(allocator, &queue).unwrap();
        Self {
            device,
            backend,
            queue,
            pool,
        }
    }

    pub(crate) fn another_queue(&self, order: QueueOrder) -> MockQueue {
        self.backend.create_queue(order).unwrap()
    }

    pub(crate) fn gate(&self) -> MockEvent {
        self.backend.create_user_event().unwrap()
    }

    pub(crate) fn open(&self, gate: &MockEvent) {
        self.backend
            .resolve_user_event(gate, Outcome::Complete)
            .unwrap();
    }

    /// A block of 100 bytes for `queue`, whose fill there waits for `gate`.
    pub(crate) fn gated(&self, queue: &MockQueue, gate: &MockEvent) -> Block {
        let block = self.pool.allocate_on(queue, 100).unwrap();
        block
            .enqueue_fill(queue.after(std::slice::from_ref(gate)), 0..100, &[1_u8])
            .unwrap();
        block
    }

    /// Blocks that the device has now.
    pub(crate) fn blocks_on_device(&self) -> usize {
        self.device.statistics().live_blocks
    }
}

/// What the pool makes of a size: a multiple of the alignment, then of a 16th of the power of two below it.
pub(crate) fn class_size(asked: usize) -> usize {
    let rounded = asked.next_multiple_of(SMALLEST);
    let below = rounded.next_power_of_two() / 2;
    rounded.next_multiple_of((below / 16).max(1))
}

/// Has every call of a short program fail once, in each way, on a device of `all` bytes: nothing panics, nothing is
/// lost, and the pool goes on. The program is given an out-of-order queue besides the pool's.
pub(crate) fn every_call_fails_once(
    new_rig: impl Fn() -> Rig,
    all: usize,
    program: impl Fn(&Rig, &MockQueue) -> Result<(), PoolError>,
) {
    let run = |fail: Option<(u64, Fault)>| {
        let rig = new_rig();
        let other = rig.another_queue(QueueOrder::OutOfOrder);
        let before = rig.device.statistics().total_calls();
        if let Some((call, fault)) = fail {
            rig.device.fail_nth_any(call, fault, Persistence::Once);
        }
        let _expected_failures = program(&rig, &other);
        let calls = rig.device.statistics().total_calls() - before;
        rig.device.clear_faults();
        assert_eq!(rig.pool.active_blocks(), 0, "{fail:?}");
        assert!(rig.pool.allocate(all).is_ok(), "{fail:?}");
        let statistics = rig.pool.statistics();
        assert_eq!(statistics.held_bytes, statistics.managed_bytes, "{fail:?}");
        rig.pool.free_held();
        drop(rig.pool);
        assert_eq!(rig.device.statistics().live_blocks, 0, "{fail:?}");
        assert_eq!(rig.device.statistics().committed_bytes, 0, "{fail:?}");
        assert!(rig.device.violations().is_empty(), "{fail:?}");
        calls
    };
    let calls = run(None);
    assert!(calls > 10, "{calls} calls");
    for call in 1..=calls {
        for fault in [Fault::OutOfMemory, Fault::Backend(-9999), Fault::DeviceLost] {
            run(Some((call, fault)));
        }
    }
}
