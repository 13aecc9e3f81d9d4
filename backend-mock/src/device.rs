//! The mock device, as tests control it.

use std::{fmt, sync::Arc, time::Duration};

use binpool_allocators::DeviceLimits;
use fastrand::Rng;

use crate::{
    Call, CallCounts, CallKind, CommandId, CommandRecord, Completion, Fault, LeakReport,
    MockBackend, MockStatistics, Persistence, Violation,
    fault::{InjectedFault, Trigger},
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
/// let fill = backend.enqueue_fill(&queue, &buffer, Region::first(1024), &[7_u8])?;
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

impl fmt::Debug for MockDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockDevice")
            .field("number", &self.shared.number)
            .field("name", &self.shared.config.limits.device_name)
            .field("capacity_bytes", &self.shared.config.limits.capacity_bytes)
            .finish_non_exhaustive()
    }
}

impl MockDevice {
    /// The backend through which programs use the device.
    #[must_use]
    pub fn backend(&self) -> MockBackend {
        MockBackend {
            shared: Arc::clone(&self.shared),
        }
    }

    /// The limits and capabilities of the device.
    #[must_use]
    pub fn limits(&self) -> &DeviceLimits {
        &self.shared.config.limits
    }

    /// Runs the oldest command that may run. Returns false if none may run.
    pub fn step(&self) -> bool {
        self.shared.run_one(oldest)
    }

    /// Runs every command that may run, oldest first, including those that become ready meanwhile. Returns how many ran.
    ///
    /// ```
    /// use binpool_allocators::{Queue, Backend, Event, Outcome, QueueOrder};
    /// use binpool_mock::{Completion, MockDevice};
    ///
    /// let device = MockDevice::builder().completion(Completion::Manual).build();
    /// let backend = device.backend();
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let gate = backend.create_user_event()?;
    /// backend.enqueue_marker(&queue)?;
    /// let behind = backend.enqueue_marker(queue.after(&[gate.clone()]))?;
    /// assert_eq!((device.run(), device.pending_commands()), (1, 1)); // The other waits for the gate.
    /// backend.resolve_user_event(&gate, Outcome::Complete)?;
    /// assert_eq!((device.run(), device.pending_commands()), (1, 0));
    /// assert!(behind.status()?.has_ended());
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[allow(clippy::must_use_candidate, reason = "it is called for what it does")]
    pub fn run(&self) -> usize {
        self.shared.run_all()
    }

    /// The commands that may run now, oldest first. Each of them may run next.
    #[must_use]
    pub fn runnable(&self) -> Vec<CommandId> {
        self.shared
            .with(|state| state.ready.iter().copied().collect())
    }

    /// Runs this command if it may run now. Returns false if it may not.
    ///
    /// ```
    /// use binpool_allocators::{Backend, Error, MemoryFlags, QueueOrder, Region};
    /// use binpool_mock::{Completion, MockDevice};
    ///
    /// // The effect of a forgotten wait list, in one order and in the other.
    /// let last_of = |newest_first: bool| -> Result<u8, Error> {
    ///     let device = MockDevice::builder().completion(Completion::Manual).build();
    ///     let backend = device.backend();
    ///     let queue = backend.create_queue(QueueOrder::OutOfOrder)?;
    ///     let buffer = backend.create_buffer(1, MemoryFlags::empty())?;
    ///     for value in [1_u8, 2] {
    ///         backend.enqueue_fill(&queue, &buffer, Region::first(1), &[value])?;
    ///     }
    ///     let commands = device.runnable();
    ///     assert!(device.run_command(commands[usize::from(newest_first)]));
    ///     device.run();
    ///     let mut byte = [0_u8];
    ///     backend.read(&queue, &buffer, 0, &mut byte)?;
    ///     Ok(byte[0])
    /// };
    /// assert_eq!((last_of(false)?, last_of(true)?), (2, 1));
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[allow(clippy::must_use_candidate, reason = "it is called for what it does")]
    pub fn run_command(&self, command: CommandId) -> bool {
        self.shared
            .run_one(|state| state.ready.get(&command).copied())
    }

    /// Returns the number of commands that have not ended.
    #[must_use]
    pub fn pending_commands(&self) -> usize {
        self.shared.with(|state| state.pending_commands())
    }

    /// The counters of the device.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, ImmediateAllocator};
    /// use binpool_mock::MockDevice;
    ///
    /// let device = MockDevice::new();
    /// let allocator = ImmediateAllocator::new(&device.backend())?;
    /// for _ in 0..10 {
    ///     drop((allocator.allocate(1 << 20)?, allocator.allocate(2 << 20)?));
    /// }
    /// let statistics = device.statistics();
    /// assert_eq!((statistics.committed_bytes, statistics.live_blocks), (0, 0));
    /// assert_eq!(statistics.peak_committed_bytes, 3 << 20);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[must_use]
    pub fn statistics(&self) -> MockStatistics {
        self.shared.with(|state| {
            let mut statistics = state.statistics.clone();
            statistics.device_time = state.device_time();
            statistics
        })
    }

    /// Returns how often this kind of call was made.
    ///
    /// ```
    /// use binpool_allocators::{Backend, MemoryFlags, Region};
    /// use binpool_mock::{CallKind, MockDevice};
    ///
    /// // A test can check how often a program calls the device.
    /// let device = MockDevice::new();
    /// let backend = device.backend();
    /// let block = backend.create_buffer(100 << 10, MemoryFlags::empty())?;
    /// let parts: Result<Vec<_>, _> = (0..100)
    ///     .map(|part| backend.create_sub_region(&block, Region::new(part << 10, 1 << 10)))
    ///     .collect();
    /// assert_eq!(parts?.len(), 100);
    /// assert_eq!(device.call_count(CallKind::CreateBuffer), 1);
    /// assert_eq!(device.call_count(CallKind::CreateSubRegion), 100);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[must_use]
    pub fn call_count(&self, kind: CallKind) -> u64 {
        self.shared.with(|state| state.statistics.calls.get(kind))
    }

    /// All calls so far, if the device logs calls.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, ImmediateAllocator};
    /// use binpool_mock::{CallKind, MockDevice};
    ///
    /// let device = MockDevice::builder().log_calls(true).build();
    /// let allocator = ImmediateAllocator::new(&device.backend())?;
    /// for bytes in [1000, 3000] {
    ///     drop(allocator.allocate(bytes)?);
    /// }
    /// // The sizes that were requested from the device, in order.
    /// let mut calls = device.calls();
    /// calls.retain(|call| call.kind == CallKind::CreateBuffer);
    /// let sizes: Vec<_> = calls.iter().map(|call| call.bytes).collect();
    /// assert_eq!(sizes, [1000, 3000]);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.shared.with(|state| state.call_log.clone())
    }

    /// All commands that have ended so far, in the order in which they ended, if the device logs calls.
    ///
    /// ```
    /// use binpool_allocators::{Backend, Queue, QueueOrder};
    /// use binpool_mock::{Completion, MockDevice};
    ///
    /// let builder = MockDevice::builder().completion(Completion::Seeded(7));
    /// let device = builder.log_calls(true).build();
    /// let backend = device.backend();
    /// let [load, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// for _ in 0..10 {
    ///     let loaded = backend.launch(&load, "load", &[], &[], |_, _| {})?;
    ///     backend.launch(compute.after(&[loaded]), "sum", &[], &[], |_, _| {})?;
    /// }
    /// device.run();
    /// // With any seed, no more sums have begun than loads have ended.
    /// let mut loaded = 0;
    /// for command in device.ended_commands() {
    ///     loaded += if command.name == "load" { 1 } else { -1 };
    ///     assert!(loaded >= 0);
    /// }
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[must_use]
    pub fn ended_commands(&self) -> Vec<CommandRecord> {
        self.shared.with(|state| state.command_log.clone())
    }

    /// The time that all calls so far would have taken on the device of the profile. Zero without a profile.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use binpool_allocators::{Allocator, Error, ImmediateAllocator};
    /// use binpool_mock::{DeviceProfile, MockDevice};
    ///
    /// // The cost of a hundred buffers on an H200, and of one that is as large as all of them.
    /// let time_of = |count: usize, bytes: usize| -> Result<Duration, Error> {
    ///     let device = MockDevice::builder().profile(DeviceProfile::h200()).build();
    ///     let allocator = ImmediateAllocator::new(&device.backend())?;
    ///     let mut blocks = Vec::new();
    ///     for _ in 0..count {
    ///         blocks.push(allocator.allocate(bytes)?);
    ///     }
    ///     Ok(device.device_time())
    /// };
    /// let [many, one] = [time_of(100, 1 << 20)?, time_of(1, 100 << 20)?];
    /// assert!(many > 30 * one, "{many:?}, {one:?}");
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[must_use]
    pub fn device_time(&self) -> Duration {
        self.shared.with(|state| state.device_time())
    }

    /// The time on the device's clock: the costs of all calls, the time that [passed](Self::pass), and, on a device that is
    /// [behind](crate::Completion::Behind), waits and queries.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.shared.with(|state| state.now())
    }

    /// Lets time pass on the device's clock, in which the host does something else. On a device that is
    /// [behind](crate::Completion::Behind), the commands that are due then run.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use binpool_allocators::{Backend, Event, QueueOrder};
    /// use binpool_mock::{Completion, MockDevice};
    ///
    /// let [commands, markers] = [Duration::from_millis(1), Duration::from_micros(5)];
    /// let device = MockDevice::builder().completion(Completion::Behind { commands, markers }).build();
    /// let backend = device.backend();
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let marker = backend.enqueue_marker(&queue)?;
    /// assert_eq!(device.pending_commands(), 1);
    /// let before = device.now();
    /// device.pass(markers);
    /// assert_eq!(device.now() - before, markers);
    /// assert_eq!(device.pending_commands(), 0);
    /// # drop(marker);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn pass(&self, time: Duration) {
        self.shared.with(|state| state.pass(time));
        if matches!(self.shared.config.completion, Completion::Behind { .. }) {
            self.shared.make_progress();
        }
    }

    /// Returns the number of events that the host holds, that a command waits for, or whose command has not ended.
    ///
    /// ```
    /// use binpool_allocators::{Backend, QueueOrder};
    /// use binpool_mock::MockDevice;
    ///
    /// // A test can detect a cache of events that grows without bound.
    /// let device = MockDevice::new();
    /// let backend = device.backend();
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let mut kept = Vec::new();
    /// for _ in 0..100 {
    ///     kept.push(backend.enqueue_marker(&queue)?);
    ///     kept.truncate(8);
    /// }
    /// assert_eq!((device.live_events(), device.live_queues()), (8, 1));
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[must_use]
    pub fn live_events(&self) -> usize {
        self.shared.with(|state| state.events.len())
    }

    /// Returns the number of queues that the host holds, or that have commands which have not ended.
    ///
    /// ```
    /// use binpool_allocators::{Queue, Backend, Outcome, QueueOrder};
    /// use binpool_mock::MockDevice;
    ///
    /// let device = MockDevice::new();
    /// let backend = device.backend();
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let gate = backend.create_user_event()?;
    /// backend.enqueue_marker(queue.after(&[gate.clone()]))?;
    /// drop(queue);
    /// assert_eq!(device.live_queues(), 1); // Until its last command has ended.
    /// backend.resolve_user_event(&gate, Outcome::Complete)?;
    /// assert_eq!(device.live_queues(), 0);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[must_use]
    pub fn live_queues(&self) -> usize {
        self.shared.with(|state| state.queues.len())
    }

    /// The violations so far.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.with(|state| state.violations.clone())
    }

    /// All objects that are alive: at the end of a program, its leaks.
    #[must_use]
    pub fn leaks(&self) -> LeakReport {
        self.shared.with(|state| state.leaks())
    }

    /// Makes the `n`th call of this kind from now on fail (1 is the next), once or from there on. A failed call
    /// has no effect, except that a failed release still releases the memory.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, ImmediateAllocator};
    /// use binpool_mock::{CallKind, Fault, MockDevice, Persistence};
    ///
    /// let device = MockDevice::new();
    /// let allocator = ImmediateAllocator::new(&device.backend())?;
    /// // The third block seems to fill the device.
    /// device.fail_nth(
    ///     CallKind::Commit,
    ///     3,
    ///     Fault::OutOfMemory,
    ///     Persistence::Forever,
    /// );
    /// let blocks: Vec<_> = (0..10).flat_map(|_| allocator.allocate(1024)).collect();
    /// assert_eq!(blocks.len(), 2);
    /// // The failed call leaves nothing behind.
    /// assert_eq!(device.statistics().live_blocks, 2);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn fail_nth(&self, kind: CallKind, n: u64, fault: Fault, persistence: Persistence) {
        self.inject(Some(kind), nth(n, persistence), fault);
    }

    /// Makes the `n`th call of any kind from now on fail (1 is the next), once or from then on.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, Error, ImmediateAllocator};
    /// use binpool_mock::{Fault, MockBackend, MockDevice, Persistence};
    ///
    /// fn program(backend: &MockBackend) -> Result<(), Error> {
    ///     let allocator = ImmediateAllocator::new(backend)?;
    ///     let block = allocator.allocate(1024)?;
    ///     allocator.release(block, &[])
    /// }
    ///
    /// // Each call of the program fails once, and none leaves anything behind.
    /// let mut failed = Vec::new();
    /// for n in 1.. {
    ///     let device = MockDevice::new();
    ///     device.fail_nth_any(n, Fault::Backend(-5), Persistence::Once);
    ///     let ended_well = program(&device.backend()).is_ok();
    ///     assert!(device.leaks().is_empty(), "{}", device.leaks());
    ///     let Some(call) = device.first_failed_call() else {
    ///         break;
    ///     };
    ///     assert!(!ended_well);
    ///     failed.push(call.name());
    /// }
    /// assert_eq!(
    ///     failed.join(", "),
    ///     "create_queue, create_buffer, commit, release"
    /// );
    /// ```
    pub fn fail_nth_any(&self, n: u64, fault: Fault, persistence: Persistence) {
        self.inject(None, nth(n, persistence), fault);
    }

    /// Makes each call of this kind (`None`: of any kind) fail with this probability, from 0 to 1, as a
    /// seeded generator decides.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, ImmediateAllocator};
    /// use binpool_mock::{CallKind, Fault, MockDevice};
    ///
    /// let device = MockDevice::new();
    /// let allocator = ImmediateAllocator::new(&device.backend())?;
    /// // About every tenth block fails; the seed decides which.
    /// device.fail_randomly(CallKind::CreateBuffer, 0.1, 7, Fault::OutOfMemory);
    /// let failures = (0..1000)
    ///     .filter(|_| allocator.allocate(1024).is_err())
    ///     .count();
    /// assert_eq!(device.failed_calls().get(CallKind::CreateBuffer), failures as u64);
    /// assert!((50..200).contains(&failures));
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn fail_randomly(
        &self,
        kind: impl Into<Option<CallKind>>,
        probability: f64,
        seed: u64,
        fault: Fault,
    ) {
        let random = Rng::with_seed(seed);
        self.inject(
            kind.into(),
            Trigger::Random {
                random,
                probability,
            },
            fault,
        );
    }

    /// The counts of the calls that were made to fail so far.
    #[must_use]
    pub fn failed_calls(&self) -> CallCounts {
        self.shared.with(|state| state.faults.failed_calls)
    }

    /// The first call that was made to fail.
    #[must_use]
    pub fn first_failed_call(&self) -> Option<CallKind> {
        self.shared.with(|state| state.faults.first_failed_call)
    }

    /// Lets all calls succeed again.
    ///
    /// ```
    /// use binpool_allocators::{Backend, Error, QueueOrder};
    /// use binpool_mock::{Fault, MockDevice, Persistence};
    ///
    /// let device = MockDevice::new();
    /// let backend = device.backend();
    /// device.fail_nth_any(1, Fault::DeviceLost, Persistence::Forever);
    /// let lost = backend.create_queue(QueueOrder::InOrder).unwrap_err();
    /// assert!(matches!(
    ///     lost,
    ///     Error::DeviceLost {
    ///         operation: "create_queue",
    ///         ..
    ///     }
    /// ));
    /// // The device works again: does the program recover?
    /// device.clear_faults();
    /// assert!(backend.create_queue(QueueOrder::InOrder).is_ok());
    /// ```
    pub fn clear_faults(&self) {
        self.shared.with(|state| state.faults.clear());
    }

    fn inject(&self, kind: Option<CallKind>, trigger: Trigger, fault: Fault) {
        let injected = InjectedFault {
            kind,
            trigger,
            fault,
        };
        self.shared.with(|state| state.faults.add(injected));
    }
}

/// The trigger for the `n`th call. The 0th call never fails once, and fails forever from the next one on.
const fn nth(n: u64, persistence: Persistence) -> Trigger {
    Trigger::Nth {
        remaining: n,
        persistence,
    }
}
