//! How a mock device is built.

use std::sync::Arc;

use binpool_allocators::{Align, DeviceLimits, SvmSupport};

use crate::{
    Completion, CostModel, DeviceProfile, HostWait, MockDevice, error::saturate, shared::Shared,
    state::Config,
};

const GIB: u64 = 1 << 30;

/// Builds a [`MockDevice`].
///
/// ```
/// use binpool_allocators::Align;
/// use binpool_mock::{Completion, MockDevice};
///
/// let device = MockDevice::builder()
///     .capacity_bytes(64 << 20)
///     .alignment(Align::new(512).expect("a power of two"))
///     .completion(Completion::Seeded(7))
///     .build();
/// assert_eq!(device.limits().capacity_bytes, 64 << 20);
/// assert_eq!(device.limits().largest_block_bytes, 64 << 20);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct MockDeviceBuilder {
    limits: DeviceLimits,
    /// `None` where the largest block follows the capacity.
    largest_block_bytes: Option<usize>,
    costs: Option<CostModel>,
    completion: Completion,
    host_waits: HostWait,
    commit_at_create: bool,
    log_calls: bool,
    detect_races: bool,
}

impl Default for MockDeviceBuilder {
    fn default() -> Self {
        let align = |bytes| Align::new(bytes).unwrap_or(Align::ONE);
        let mut limits = DeviceLimits::new("mock device", GIB, saturate(GIB), align(256));
        limits.largest_svm_alignment = align(4096);
        limits.svm = SvmSupport {
            coarse: true,
            fine: true,
            atomics: true,
            system: false,
        };
        limits.out_of_order_queues = true;
        Self {
            limits,
            largest_block_bytes: None,
            costs: None,
            completion: Completion::default(),
            host_waits: HostWait::default(),
            commit_at_create: false,
            log_calls: false,
            detect_races: true,
        }
    }
}

impl MockDeviceBuilder {
    /// All memory of the device, in bytes. Default: 1 GiB.
    pub fn capacity_bytes(mut self, bytes: u64) -> Self {
        self.limits.capacity_bytes = bytes;
        self
    }

    /// The largest single block, in bytes. Default: the capacity, or the profile's where that is less.
    pub fn largest_block_bytes(mut self, bytes: usize) -> Self {
        self.largest_block_bytes = Some(bytes);
        self
    }

    /// What sub-regions must start on. Default: 256 bytes.
    pub fn alignment(mut self, alignment: Align) -> Self {
        self.limits.alignment = alignment;
        self
    }

    /// The largest alignment that SVM can be asked for. Default: 4096 bytes.
    pub fn largest_svm_alignment(mut self, alignment: Align) -> Self {
        self.limits.largest_svm_alignment = alignment;
        self
    }

    /// Which kinds of SVM there are. Default: coarse and fine, with atomics.
    pub fn svm(mut self, support: SvmSupport) -> Self {
        self.limits.svm = support;
        self
    }

    /// Whether queues can be out of order. Default: yes.
    pub fn out_of_order_queues(mut self, available: bool) -> Self {
        self.limits.out_of_order_queues = available;
        self
    }

    /// Whether threads may use views of one buffer while others make and release such. Default: yes. The mock takes it
    /// either way.
    pub fn concurrent_views(mut self, available: bool) -> Self {
        self.limits.concurrent_views = available;
        self
    }

    /// When commands run. Default: [`Completion::AtOnce`].
    pub fn completion(mut self, completion: Completion) -> Self {
        self.completion = completion;
        self
    }

    /// What a host wait does that nothing can end. Default: [`HostWait::Report`].
    pub fn host_waits(mut self, host_waits: HostWait) -> Self {
        self.host_waits = host_waits;
        self
    }

    /// Whether buffers are committed when they are created, as by runtimes that do not defer. Default: no.
    pub fn commit_at_create(mut self, commit: bool) -> Self {
        self.commit_at_create = commit;
        self
    }

    /// Takes the limits and the costs of a real device. Calls after this one override its parts, calls before
    /// are overridden.
    pub fn profile(mut self, profile: DeviceProfile) -> Self {
        self.limits = profile.limits;
        self.largest_block_bytes = None;
        self.costs = Some(profile.costs);
        self
    }

    /// Whether every call and every command is kept in a log, which grows without bound. Default: no.
    pub fn log_calls(mut self, log: bool) -> Self {
        self.log_calls = log;
        self
    }

    /// Whether commands that touch the same bytes in no order are reported ([`Race`](crate::Race)). Default: yes.
    pub fn detect_races(mut self, detect: bool) -> Self {
        self.detect_races = detect;
        self
    }

    /// Builds the device.
    #[must_use]
    pub fn build(self) -> MockDevice {
        let mut limits = self.limits;
        let capacity = saturate(limits.capacity_bytes);
        limits.largest_block_bytes = self.largest_block_bytes.unwrap_or(if self.costs.is_some() {
            limits.largest_block_bytes.min(capacity)
        } else {
            capacity
        });
        MockDevice {
            shared: Arc::new(Shared::new(Config {
                limits,
                costs: self.costs,
                completion: self.completion,
                host_waits: self.host_waits,
                commit_at_create: self.commit_at_create,
                log_calls: self.log_calls,
                detect_races: self.detect_races,
            })),
        }
    }
}
