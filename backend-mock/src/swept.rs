//! Devices for sweeps, in which every call fails once.

use std::{fmt, sync::Arc};

use binpool_conformance::sweep::{FaultInjector, FaultPoint};
use parking_lot::Mutex;

use crate::{Fault, MockDevice, MockDeviceBuilder, Persistence};

/// The devices of one run of a [`sweep`](binpool_conformance::sweep). Clones are the same run.
///
/// The calls of one of the devices are counted and fail. All devices are checked for leaks and misuse.
///
/// ```
/// use binpool_allocators::{Allocator, ImmediateAllocator};
/// use binpool_conformance::sweep::{Ends, sweep};
/// use binpool_mock::{MockDevice, SweptDevices};
///
/// let fresh = || SweptDevices::new(MockDevice::builder());
/// let report = sweep("a block", Ends::Always, fresh, |devices| {
///     let backend = devices.device().backend();
///     let _failed = ImmediateAllocator::new(&backend).and_then(|it| it.allocate(100));
/// });
/// report.assert_no_findings();
/// ```
#[derive(Clone)]
pub struct SweptDevices {
    builder: MockDeviceBuilder,
    failing_index: usize,
    run: Arc<Mutex<Run>>,
}

#[derive(Debug, Default)]
struct Run {
    devices: Vec<MockDevice>,
    fault_point: Option<FaultPoint>,
    /// The number of calls before the first repair.
    calls: Option<u64>,
}

impl SweptDevices {
    /// Devices from `builder`; the first one fails.
    #[must_use]
    pub fn new(builder: MockDeviceBuilder) -> Self {
        Self::with_another_failing(builder, 0)
    }

    /// Devices from `builder`; the one after `others` other devices fails.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, ImmediateAllocator};
    /// use binpool_conformance::sweep::{Ends, sweep};
    /// use binpool_mock::{MockDevice, SweptDevices};
    ///
    /// // A program with two devices. The second fails; the first still works.
    /// let fresh = || SweptDevices::with_another_failing(MockDevice::builder(), 1);
    /// let report = sweep("two devices", Ends::Always, fresh, |devices| {
    ///     let [first, second] = [devices.device(), devices.device()].map(|device| {
    ///         let allocator = ImmediateAllocator::new(&device.backend());
    ///         allocator.and_then(|it| it.allocate(100))
    ///     });
    ///     assert!(first.is_ok());
    ///     assert!(second.is_ok() || devices.fault_point().is_some());
    /// });
    /// report.assert_no_findings();
    /// ```
    #[must_use]
    pub fn with_another_failing(builder: MockDeviceBuilder, others: usize) -> Self {
        Self {
            builder,
            failing_index: others,
            run: Arc::default(),
        }
    }

    /// One more device.
    #[must_use]
    pub fn device(&self) -> MockDevice {
        let device = self.builder.clone().build();
        let mut run = self.run.lock();
        if run.devices.len() == self.failing_index
            && run.calls.is_none()
            && let Some(point) = run.fault_point
        {
            let fault = if point.is_out_of_memory {
                Fault::OutOfMemory
            } else {
                Fault::Backend(-9999)
            };
            let persistence = if point.is_permanent {
                Persistence::Forever
            } else {
                Persistence::Once
            };
            device.fail_nth_any(point.call, fault, persistence);
        }
        run.devices.push(device.clone());
        device
    }

    /// The device whose calls fail, once it has been made.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, ImmediateAllocator};
    /// use binpool_conformance::sweep::{Ends, FaultInjector, sweep};
    /// use binpool_mock::{MockDevice, SweptDevices};
    ///
    /// let fresh = || SweptDevices::new(MockDevice::builder());
    /// let report = sweep("a block, twice", Ends::Always, fresh, |devices| {
    ///     let backend = devices.device().backend();
    ///     let allocate = || ImmediateAllocator::new(&backend).and_then(|it| it.allocate(100));
    ///     let first = allocate();
    ///     let failed = devices.failing().and_then(|device| device.first_failed_call());
    ///     assert_eq!(first.is_err(), failed.is_some());
    ///     // The run that counts the calls has no fault.
    ///     if let (Err(error), Some(point)) = (first, devices.fault_point()) {
    ///         assert_eq!(error.is_out_of_memory(), point.is_out_of_memory);
    ///     }
    ///     devices.repair();
    ///     assert!(allocate().is_ok());
    /// });
    /// report.assert_no_findings();
    /// ```
    #[must_use]
    pub fn failing(&self) -> Option<MockDevice> {
        self.run.lock().devices.get(self.failing_index).cloned()
    }

    /// The call of this run that fails, and how.
    #[must_use]
    pub fn fault_point(&self) -> Option<FaultPoint> {
        self.run.lock().fault_point
    }
}

impl FaultInjector for SweptDevices {
    fn inject(&self, point: FaultPoint) {
        self.run.lock().fault_point = Some(point);
    }

    fn repair(&self) {
        let calls = self.failing().map_or(0, |device| {
            device.clear_faults();
            device.statistics().total_calls()
        });
        self.run.lock().calls.get_or_insert(calls);
    }

    fn calls(&self) -> u64 {
        self.run.lock().calls.unwrap_or_default()
    }

    fn first_failed_call(&self) -> Option<String> {
        let call = self.failing()?.first_failed_call()?;
        Some(call.name().to_owned())
    }

    /// Lets all commands end first.
    fn violations(&self) -> Vec<String> {
        let devices = self.run.lock().devices.clone();
        let mut violations = Vec::new();
        for device in devices {
            device.run();
            let leaks = device.leaks();
            if !leaks.is_empty() {
                violations.push(leaks.to_string());
            }
            violations.extend(device.violations().iter().map(ToString::to_string));
        }
        violations
    }
}

impl fmt::Debug for SweptDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SweptDevices")
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}
