//! The state that the handles of a device share: its lock, and the calls that run without it.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use binpool_allocators::{Result, contained::contained};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    CallKind, CommandId, Completion, HostWait,
    cause::Cause,
    config::Config,
    state::{EventKey, Started, State, refuse},
};

/// A device, as its handles share it.
#[derive(Debug)]
pub(crate) struct Shared {
    /// A number that is unique among the devices of the process.
    pub(crate) number: u64,
    pub(crate) config: Arc<Config>,
    state: Mutex<State>,
    /// Signals that an event has ended.
    changed: Condvar,
}

impl Shared {
    pub(crate) fn new(config: Config) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let config = Arc::new(config);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            config: Arc::clone(&config),
            state: Mutex::new(State::new(config)),
            changed: Condvar::new(),
        }
    }

    /// Calls `body` with the state. It must not call back into the device.
    pub(crate) fn with<R>(&self, body: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let result = body(&mut state);
        unlock(state);
        result
    }

    /// Makes a call about `bytes` bytes, unless a fault is injected.
    pub(crate) fn call<R>(
        &self,
        kind: CallKind,
        bytes: usize,
        body: impl FnOnce(&mut State) -> Result<R>,
    ) -> Result<R> {
        self.with(|state| state.call(kind, bytes, body))
    }

    /// Makes a call that enqueues a command, and then runs commands as the completion mode says.
    pub(crate) fn enqueue<R>(&self, body: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
        let result = self.with(body);
        self.make_progress();
        result
    }

    /// Runs the commands that the completion mode runs by itself.
    pub(crate) fn make_progress(&self) {
        match self.config.completion {
            Completion::Manual => {}
            Completion::AtOnce => {
                self.run_all();
            }
            Completion::Behind { .. } => while self.run_one(due) {},
            Completion::Seeded(_) => {
                let commands = self.with(|state| {
                    let choices = state.ready.len() + 1;
                    state.random.usize(..choices)
                });
                for _ in 0..commands {
                    self.run_one(random);
                }
            }
        }
    }

    /// Runs commands, oldest first, until none can run. Returns how many ran.
    pub(crate) fn run_all(&self) -> usize {
        let mut count = 0;
        while self.run_one(oldest) {
            count += 1;
        }
        count
    }

    /// Runs the command that `pick` picks among those that are ready. Returns false if none is ready, or where this
    /// thread is inside a kernel: commands that a kernel enqueues run after it.
    pub(crate) fn run_one(&self, mut pick: impl FnMut(&mut State) -> Option<CommandId>) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.is_inside_kernel() {
                return false;
            }
            let Some(id) = pick(&mut state) else {
                return false;
            };
            match state.start(id) {
                Started::Ended => {
                    unlock(state);
                    self.changed.notify_all();
                    return true;
                }
                Started::Busy => self.changed.wait(&mut state),
                Started::Kernel(kernel) => {
                    drop(state);
                    let id = kernel.id;
                    let result = kernel.run();
                    self.with(|state| state.kernel_ended(id, result));
                    self.changed.notify_all();
                    return true;
                }
            }
        }
    }

    /// Waits until all of these events have ended, and runs the commands that they need.
    pub(crate) fn wait(&self, events: &[EventKey], call: CallKind) -> Result<()> {
        let mut ancestors: Option<BTreeSet<CommandId>> = None;
        let mut pick = |state: &mut State| match self.config.completion {
            Completion::Seeded(_) => random(state),
            Completion::AtOnce | Completion::Manual | Completion::Behind { .. } => {
                // The set does not grow: the events that a command waits for are fixed when it is enqueued.
                let ancestors = ancestors.get_or_insert_with(|| state.ancestors(events));
                let mut ready = state.ready.iter();
                let next = ready.find(|id| ancestors.contains(id)).copied()?;
                let due = state.commands.get(&next)?.due;
                state.wait_until(due);
                Some(next)
            }
        };
        loop {
            while self.is_any_pending(events) && self.run_one(&mut pick) {}
            let mut state = self.state.lock();
            if !events.iter().any(|event| state.is_pending(*event)) {
                return Ok(());
            }
            if state.is_inside_kernel() {
                return refuse(call, Cause::WaitInsideKernel);
            }
            if pick(&mut state).is_some() {
                // Another thread has made it ready meanwhile.
                continue;
            }
            match state.endless_wait(events) {
                Some(error) if self.config.host_waits == HostWait::Report => {
                    return refuse(call, error);
                }
                // Another thread runs a kernel, or is yet to resolve a user event.
                _ => self.changed.wait(&mut state),
            }
        }
    }

    fn is_any_pending(&self, events: &[EventKey]) -> bool {
        let state = self.state.lock();
        events.iter().any(|event| state.is_pending(*event))
    }

    /// Wakes the threads that wait for commands which a user event held back. No command runs here, since this is called from a drop.
    pub(crate) fn user_event_was_dropped(&self) {
        self.changed.notify_all();
    }

    /// Makes progress after the host has resolved a user event.
    pub(crate) fn event_was_resolved(&self) {
        self.changed.notify_all();
        match self.config.completion {
            Completion::AtOnce | Completion::Behind { .. } => self.make_progress(),
            Completion::Manual | Completion::Seeded(_) => {}
        }
    }
}

/// Picks the oldest command that is ready and due by the device's clock.
fn due(state: &mut State) -> Option<CommandId> {
    let now = state.now();
    let is_due = |id: &&CommandId| {
        let command = state.commands.get(*id);
        command.is_some_and(|command| command.due <= now)
    };
    state.ready.iter().find(is_due).copied()
}

/// Picks the oldest command that is ready.
pub(crate) fn oldest(state: &mut State) -> Option<CommandId> {
    state.ready.first().copied()
}

/// Picks a command that is ready by the seeded generator.
pub(crate) fn random(state: &mut State) -> Option<CommandId> {
    if state.ready.is_empty() {
        return None;
    }
    let index = state.random.usize(..state.ready.len());
    state.ready.iter().nth(index).copied()
}

/// Unlocks the state, and only then drops kernels that will not run: they may hold handles of this device.
fn unlock(mut state: MutexGuard<'_, State>) {
    if state.trash.is_empty() {
        return;
    }
    let trash = std::mem::take(&mut state.trash);
    drop(state);
    for work in trash {
        contained("what a kernel held", || drop(work));
    }
}
