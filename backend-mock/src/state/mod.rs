//! The state of a device, behind its lock.
//!
//! # Invariants
//!
//! - I1: an event is in the table while the host holds it, something waits for it, or its command keeps its place.
//! - I2: a block is in the table while its `references` (objects, commands that use it, pending frees) are
//!   not 0, unless its address was freed by hand.
//! - I3: a command's `blocked_by` is the number of its entries among the waiters of events; commands with 0 are in
//!   `ready` or in `running`.
//! - I4: a command waits for events of older commands only, so that ascending numbers are a legal order.
//! - I5: no value here is a handle (`MockMemory`, `MockQueue`, `MockEvent`), since its drop would take the lock
//!   again. Kernels may hold handles, so they are moved to `trash`, which is emptied after the lock is released.

mod blocks;
mod commands;
mod events;
mod leaks;
mod races;
mod records;
mod release;
mod run;
mod submission;
mod submit;
mod virtual_memory;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use binpool_allocators::{Error, MemoryId, Result};
use fastrand::Rng;
use smallvec::SmallVec;

pub(crate) use records::{EventKey, ObjectKey, Operand, Progress, QueueKey};
pub(crate) use run::Started;
pub(crate) use submission::Submission;

use records::{Block, BlockKey, Command, EventRecord, Object, PendingFree, QueueRecord};

use crate::{
    Call, CallKind, CommandId, CommandRecord, Completion, CostModel, MockStatistics, Violation,
    clock::Clock,
    config::Config,
    effect::Effect,
    fault::Faults,
    sync::thread::{self, ThreadId},
    table::Table,
};

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Arc<Config>,
    pub(crate) objects: Table<Object>,
    pub(crate) blocks: Table<Block>,
    pub(crate) events: Table<EventRecord>,
    pub(crate) queues: Table<QueueRecord>,
    pending_frees: Table<PendingFree>,
    /// The commands that have not ended, and those that failed early and keep their places.
    pub(crate) commands: BTreeMap<CommandId, Command>,
    /// The commands that may run now.
    pub(crate) ready: BTreeSet<CommandId>,
    /// The kernels that are running now, without the lock.
    running: SmallVec<[(CommandId, ThreadId); 2]>,
    last_command: u64,
    /// The commands that the host knows to have ended.
    host_has_seen: Clock,
    pub(crate) random: Rng,

    pub(crate) statistics: MockStatistics,
    device_micros: f64,
    /// What the clock has beyond the costs of calls: what the host did meanwhile, and what it waited.
    passed: Duration,
    pub(crate) faults: Faults,
    pub(crate) call_log: Vec<Call>,
    pub(crate) command_log: Vec<CommandRecord>,
    pub(crate) violations: Vec<Violation>,

    /// Blocks of SVM by address: live ones, and freed ones whose address was not used again.
    svm: HashMap<usize, BlockKey>,
    freed_svm: HashMap<usize, (MemoryId, usize)>,
    /// Where the next reservation starts.
    next_address: u64,
    pub(crate) trash: Vec<Effect>,
}

impl State {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        let seed = match config.completion {
            Completion::Seeded(seed) => seed,
            Completion::AtOnce | Completion::Manual | Completion::Behind { .. } => 0,
        };
        Self {
            config,
            objects: Table::default(),
            blocks: Table::default(),
            events: Table::default(),
            queues: Table::default(),
            pending_frees: Table::default(),
            commands: BTreeMap::new(),
            ready: BTreeSet::new(),
            running: SmallVec::new(),
            last_command: 0,
            host_has_seen: Clock::default(),
            random: Rng::with_seed(seed),
            statistics: MockStatistics::default(),
            device_micros: 0.0,
            passed: Duration::ZERO,
            faults: Faults::default(),
            call_log: Vec::new(),
            command_log: Vec::new(),
            violations: Vec::new(),
            svm: HashMap::new(),
            freed_svm: HashMap::new(),
            next_address: records::FIRST_ADDRESS,
            trash: Vec::new(),
        }
    }

    /// Counts and logs a call of `kind` about `bytes` bytes, and makes it, unless a fault is injected.
    pub(crate) fn call<R>(
        &mut self,
        kind: CallKind,
        bytes: usize,
        body: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        self.statistics.calls.add(kind);
        let commands = self.last_command;
        let number = self.call_number();
        let result = match self.faults.failure_of(kind) {
            Some(fault) => {
                self.statistics.injected_faults += 1;
                Err(fault.into_error(kind, bytes, self.free_bytes()))
            }
            None => body(self),
        };
        if self.config.log_calls {
            self.call_log.push(Call {
                number,
                kind,
                bytes,
                command: (self.last_command > commands).then_some(CommandId(self.last_command)),
                succeeded: result.is_ok(),
            });
        }
        result
    }

    /// The number of the current call.
    fn call_number(&self) -> u64 {
        self.statistics.calls.total()
    }

    /// Adds to the simulated time of the calls.
    pub(crate) fn charge(&mut self, micros: impl FnOnce(&CostModel) -> f64) {
        if let Some(costs) = &self.config.costs {
            self.device_micros += micros(costs);
        }
    }

    pub(crate) fn device_time(&self) -> Duration {
        // The sum is not negative, as no cost is, but a cost model of the user's may overflow.
        Duration::try_from_secs_f64(self.device_micros / 1e6).unwrap_or(Duration::MAX)
    }

    /// The time by the device's clock.
    pub(crate) fn now(&self) -> Duration {
        self.device_time().saturating_add(self.passed)
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.passed = self.passed.saturating_add(time);
    }

    /// Lets the host wait until this time.
    pub(crate) fn wait_until(&mut self, time: Duration) {
        let waited = time.saturating_sub(self.now());
        self.statistics.waited = self.statistics.waited.saturating_add(waited);
        self.pass(waited);
    }

    /// When a command of this kind ends that is enqueued now and waits for nothing.
    fn due(&self, kind: CallKind) -> Duration {
        let Completion::Behind { commands, markers } = self.config.completion else {
            return Duration::ZERO;
        };
        let takes = match kind {
            CallKind::Marker | CallKind::Barrier => markers,
            CallKind::Commit | CallKind::Write | CallKind::Read => Duration::ZERO,
            _ => commands,
        };
        self.now().saturating_add(takes)
    }

    /// The bytes of the device that are not committed.
    pub(crate) fn free_bytes(&self) -> u64 {
        let capacity = self.config.limits.capacity_bytes;
        capacity.saturating_sub(self.statistics.committed_bytes)
    }

    /// Returns whether this thread is inside a kernel of this device.
    pub(crate) fn is_inside_kernel(&self) -> bool {
        !self.running.is_empty() && {
            let this = thread::current().id();
            self.running.iter().any(|(_, thread)| *thread == this)
        }
    }

    /// Records a violation.
    fn report(&mut self, violation: Violation) {
        self.violations.push(violation);
    }
}

/// The error of a call that fails with an error of the runtime.
pub(crate) fn refuse<R>(kind: CallKind, error: crate::cause::Cause) -> Result<R, Error> {
    Err(error.into_error(kind.name()))
}
