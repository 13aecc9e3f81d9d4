//! The device as a test holds it.

use std::{fmt, sync::Arc, time::Duration};

use binpool_allocators::{DeviceLimits, random::Random};

use crate::{
    Call, CallCounts, CallKind, CommandId, CommandRecord, Fault, LeakReport, MockBackend,
    MockDeviceBuilder, MockStatistics, Persistence, Violation,
    fault::{Plan, Trigger},
    shared::{Shared, oldest},
};

/// A whole simulated device. Clones are the same device; all methods may be called from any thread.
///
/// ```
/// use binpool_allocators::{Backend, Event, EventStatus, MemoryFlags, QueueOrder, Region};
/// use binpool_mock::{Completion, MockDevice};
///
/// let device = MockDevice::builder().completion(Completion::Manual).build();
/// let backend = device.backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let buffer = backend.create_buffer(1024, MemoryFlags::empty())?;
/// let fill = backend.enqueue_fill(&queue, &buffer, Region::first(1024), &[7], &[])?;
/// assert_eq!(fill.status()?, EventStatus::Pending);
/// assert!(device.step());
/// assert_eq!(fill.status()?, EventStatus::Complete);
/// drop((fill, buffer, queue));
/// assert!(device.leaks().is_empty() && device.violations().is_empty());
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone)]
pub struct MockDevice {
    pub(crate) shared: Arc<Shared>,
}

impl Default for MockDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MockDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockDevice")
            .field("number", &self.shared.number)
            .field("limits", &self.shared.limits)
            .finish_non_exhaustive()
    }
}

impl MockDevice {
    /// A device as the defaults of [`builder`](Self::builder) have it.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Builds a device.
    pub fn builder() -> MockDeviceBuilder {
        MockDeviceBuilder::default()
    }

    /// The backend through which programs use the device.
    #[must_use]
    pub fn backend(&self) -> MockBackend {
        MockBackend {
            shared: Arc::clone(&self.shared),
        }
    }

    /// What the device can hold and do.
    #[must_use]
    pub fn limits(&self) -> &DeviceLimits {
        &self.shared.limits
    }

    /// Runs the oldest command that may run. False where none may.
    pub fn step(&self) -> bool {
        self.shared.run_one(oldest)
    }

    /// Runs every command that may run, oldest first, and those that may because of them. Answers how many.
    #[allow(clippy::must_use_candidate, reason = "it is called for what it does")]
    pub fn run(&self) -> usize {
        self.shared.run_all()
    }

    /// The commands that may run now, oldest first. Each may be the next.
    #[must_use]
    pub fn runnable(&self) -> Vec<CommandId> {
        self.shared
            .with(|state| state.ready.iter().copied().collect())
    }

    /// Runs this command, where it may run now. False where it may not.
    #[allow(clippy::must_use_candidate, reason = "it is called for what it does")]
    pub fn run_command(&self, command: CommandId) -> bool {
        self.shared
            .run_one(|state| state.ready.get(&command).copied())
    }

    /// Commands that have not ended.
    #[must_use]
    pub fn pending_commands(&self) -> usize {
        self.shared.with(|state| state.commands.len())
    }

    /// What the device has counted.
    #[must_use]
    pub fn statistics(&self) -> MockStatistics {
        self.shared.with(|state| {
            let mut statistics = state.statistics.clone();
            statistics.device_time = state.device_time();
            statistics
        })
    }

    /// How often this kind of call was made.
    #[must_use]
    pub fn call_count(&self, kind: CallKind) -> u64 {
        self.shared.with(|state| state.statistics.calls.get(kind))
    }

    /// Every call so far, where the device logs calls.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.shared.with(|state| state.call_log.clone())
    }

    /// Every command that has ended so far, in the order in which they did, where the device logs calls.
    #[must_use]
    pub fn ended_commands(&self) -> Vec<CommandRecord> {
        self.shared.with(|state| state.command_log.clone())
    }

    /// What all calls so far would have taken on the device of the profile. Zero without a profile.
    #[must_use]
    pub fn device_time(&self) -> Duration {
        self.shared.with(|state| state.device_time())
    }

    /// Events that the host holds, that something waits for, or whose command has not ended.
    #[must_use]
    pub fn live_events(&self) -> usize {
        self.shared.with(|state| state.events.len())
    }

    /// Queues that the host holds, or that have commands which have not ended.
    #[must_use]
    pub fn live_queues(&self) -> usize {
        self.shared.with(|state| state.queues.len())
    }

    /// What the program did wrong so far.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.with(|state| state.violations.clone())
    }

    /// Everything that is alive: at the end of a program, what it leaked.
    #[must_use]
    pub fn leaks(&self) -> LeakReport {
        self.shared.with(|state| state.leaks())
    }

    /// Makes the `n`th call of this kind from now on fail (1 is the next), once or from then on. A failed call
    /// has no effect; a failed release gives the memory back all the same.
    pub fn fail_nth(&self, kind: CallKind, n: u64, fault: Fault, persistence: Persistence) {
        self.plan(Some(kind), nth(n, persistence), fault);
    }

    /// Makes the `n`th call of any kind from now on fail (1 is the next), once or from then on.
    pub fn fail_nth_any(&self, n: u64, fault: Fault, persistence: Persistence) {
        self.plan(None, nth(n, persistence), fault);
    }

    /// Makes each call of this kind (`None`: of any kind) fail with this probability, from 0 to 1, as a
    /// generator with this seed decides.
    pub fn fail_randomly(
        &self,
        kind: impl Into<Option<CallKind>>,
        probability: f64,
        seed: u64,
        fault: Fault,
    ) {
        let random = Random::new(seed);
        self.plan(
            kind.into(),
            Trigger::Random {
                random,
                probability,
            },
            fault,
        );
    }

    /// The calls that were made to fail so far.
    #[must_use]
    pub fn struck(&self) -> CallCounts {
        self.shared.with(|state| state.faults.struck)
    }

    /// The first call that was made to fail.
    #[must_use]
    pub fn first_struck(&self) -> Option<CallKind> {
        self.shared.with(|state| state.faults.first_struck)
    }

    /// Lets all calls succeed again.
    pub fn clear_faults(&self) {
        self.shared.with(|state| state.faults.clear());
    }

    fn plan(&self, kind: Option<CallKind>, trigger: Trigger, fault: Fault) {
        let plan = Plan {
            kind,
            trigger,
            fault,
        };
        self.shared.with(|state| state.faults.add(plan));
    }
}

/// The 0th call is none: such a fault never strikes once, and always strikes forever.
const fn nth(n: u64, persistence: Persistence) -> Trigger {
    Trigger::Nth {
        remaining: n,
        persistence,
    }
}
