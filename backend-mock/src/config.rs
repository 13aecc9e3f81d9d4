//! The settings of a device.

use binpool_allocators::{Align, DeviceLimits, SvmSupport};

use crate::{Completion, CostModel, Failures, HostWait, cause::saturate};

const GIB: u64 = 1 << 30;

/// The settings of a device.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) limits: DeviceLimits,
    pub(crate) costs: Option<CostModel>,
    pub(crate) completion: Completion,
    /// Set if the commands after one that fails fail as well. Their order is in the limits.
    pub(crate) failures_spread: bool,
    pub(crate) host_waits: HostWait,
    pub(crate) commit_at_create: bool,
    pub(crate) virtual_memory: bool,
    /// Set if pages may be mapped at several places.
    pub(crate) page_aliases: bool,
    pub(crate) log_calls: bool,
    pub(crate) detect_races: bool,
}

impl Default for Config {
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
        let failures = Failures::default();
        limits.failure_order = failures.order;
        Self {
            limits,
            costs: None,
            completion: Completion::default(),
            failures_spread: failures.spread,
            host_waits: HostWait::default(),
            commit_at_create: false,
            virtual_memory: false,
            page_aliases: true,
            log_calls: false,
            detect_races: true,
        }
    }
}
