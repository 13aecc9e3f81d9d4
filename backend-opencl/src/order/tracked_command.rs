//! Commands in the form in which logs track them.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use binpool_allocators::QueueId;
use parking_lot::{Condvar, Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::{
    order::{companions::Companions, weak_queue::WeakQueue},
    sys::{self, ClResult, EventHandle, Progress},
};

/// The commands that another one has to come after.
pub(crate) type Earlier = SmallVec<[Arc<TrackedCommand>; 4]>;

/// A command that logs track. It is in the logs before it is enqueued, so two threads that enqueue conflicting commands
/// find each other's.
#[derive(Debug)]
pub(crate) struct TrackedCommand {
    /// The queue that it runs on. Weak, since the queue's log has its commands: a strong reference would be a cycle.
    queue: WeakQueue,
    /// The queue that it is a command of: the same one, except for ends of maps that run on a queue of their own.
    home: QueueId,
    state: Mutex<CommandState>,
    decided: Condvar,
    /// The commands that it comes after, for a thread that finds that it has failed early: none once it has completed, and only those that
    /// were pending at the [last look](crate::order::failures) once it was found to have failed.
    before: Mutex<Earlier>,
    /// The companions of the user events that it comes after.
    companions: Mutex<Companions>,
    /// The length of the longest chain of commands, each after the other, that ends with this one.
    depth: AtomicUsize,
}

/// How many commands a chain grows by until those that have completed are looked for.
const CHAIN_SWEEP_INTERVAL: usize = 64;

#[derive(Debug)]
pub(crate) enum CommandState {
    /// Its thread is about to enqueue it.
    Entering,
    Enqueued {
        event: EventHandle,
        /// Its number among the commands of the queue, from 1 on.
        number: u64,
        /// Set if it waits for events: then it may fail before earlier commands of its queue have ended.
        waits: bool,
    },
    /// It has failed. Commands that it was to come after may be pending. Its event is released, since it might keep memory.
    Failed,
    /// It was never enqueued, or has completed, or has failed and nothing that it was to come after is pending.
    Gone,
}

/// The state of a tracked command.
pub(crate) enum Standing<'a> {
    /// It is entering the logs, or is enqueued and has not ended.
    Pending(MutexGuard<'a, CommandState>),
    /// It has failed, perhaps before the commands that it was to come after had ended.
    Failed,
    /// No later command has to wait for anything in order to come after it.
    Over,
}

/// What a later command has to wait for to come after a tracked one.
#[derive(Debug)]
pub(crate) enum Dependency {
    /// There is nothing to wait for.
    None,
    /// It waits for this event.
    Event(EventHandle),
    /// The tracked command has failed, perhaps before the commands that it was to come after had ended.
    Failed,
}

impl TrackedCommand {
    /// Returns a command of the queue `home` that is about to be enqueued on `queue`, after `before`.
    pub(crate) fn entering(queue: WeakQueue, home: QueueId, before: Earlier) -> Self {
        // Relaxed: the depth only decides when to tidy up.
        let depths = before.iter().map(|it| it.depth.load(Ordering::Relaxed));
        let depth = depths.max().map_or(0, |longest| longest + 1);
        Self {
            queue,
            home,
            state: Mutex::new(CommandState::Entering),
            decided: Condvar::new(),
            before: Mutex::new(before),
            companions: Mutex::default(),
            depth: AtomicUsize::new(depth),
        }
    }

    /// Returns the companions that this command has to wait for: `own`, which are those of its wait list, and those of the commands before it.
    pub(crate) fn companions<'e>(
        &self,
        own: impl IntoIterator<Item = &'e EventHandle>,
    ) -> ClResult<SmallVec<[EventHandle; 4]>> {
        let mut found = Companions::default();
        found.add_pending(own)?;
        for command in self.before.lock().iter() {
            found.add_pending(command.companions.lock().iter())?;
        }
        let events = found.iter().map(EventHandle::another).collect();
        *self.companions.lock() = found;
        events
    }

    /// Forgets, now and then, the commands that completed commands came after. Without this, a pipeline in which a command is always
    /// pending would remember all of its commands.
    pub(crate) fn tidy_up(&self) {
        if self.depth.load(Ordering::Relaxed) % CHAIN_SWEEP_INTERVAL != CHAIN_SWEEP_INTERVAL - 1 {
            return;
        }
        let mut pending = self.earlier();
        let mut seen = HashSet::new();
        while let Some(command) = pending.pop() {
            if !seen.insert(Arc::as_ptr(&command)) {
                continue;
            }
            if !command.is_over() {
                pending.extend(command.earlier());
            }
        }
    }

    /// Forgets the commands that it comes after, and those that these come after. A loop, since recursion over a long chain would overflow
    /// the stack.
    fn forget_earlier(&self) {
        let mut gone = std::mem::take(&mut *self.before.lock());
        while let Some(command) = gone.pop() {
            if let Some(mut last) = Arc::into_inner(command) {
                gone.append(last.before.get_mut());
            }
        }
    }

    pub(crate) const fn queue(&self) -> &WeakQueue {
        &self.queue
    }

    /// Returns whether it is a command of the queue `home`, whatever queue it runs on.
    pub(crate) fn is_of(&self, home: QueueId) -> bool {
        self.home == home
    }

    /// Returns whether it runs on another queue than the one that it is a command of.
    pub(crate) fn runs_elsewhere(&self) -> bool {
        self.queue.id() != self.home
    }

    /// Records that it is enqueued, with this event. If the event cannot be retained, this waits for the command.
    pub(crate) fn enqueued(&self, event: &EventHandle, number: u64, waits: bool) {
        let state = match event.another() {
            Ok(event) => CommandState::Enqueued {
                event,
                number,
                waits,
            },
            Err(error) => {
                tracing::error!(%error, "waiting for a command that cannot be tracked");
                let _ended = sys::wait_until_ended(event);
                CommandState::Gone
            }
        };
        self.decide(state);
        if !waits {
            // Nothing that it comes after was pending, except commands of its queue, whose order it keeps.
            self.forget_earlier();
        }
    }

    /// Records that it will not be enqueued, or that it has completed.
    pub(crate) fn gone(&self) {
        self.decide(CommandState::Gone);
        self.forget_earlier();
    }

    fn decide(&self, state: CommandState) {
        let old = std::mem::replace(&mut *self.state.lock(), state);
        self.decided.notify_all();
        // Dropped after the lock, since that calls the runtime.
        drop(old);
    }

    /// Waits until its thread has enqueued it or given it up.
    pub(crate) fn wait_until_decided(&self) {
        let mut state = self.state.lock();
        while matches!(*state, CommandState::Entering) {
            self.decided.wait(&mut state);
        }
    }

    /// Returns whether it has been enqueued and is not gone.
    pub(crate) fn is_enqueued(&self) -> bool {
        matches!(
            *self.state.lock(),
            CommandState::Enqueued { .. } | CommandState::Failed
        )
    }

    pub(crate) fn is_gone(&self) -> bool {
        matches!(*self.state.lock(), CommandState::Gone)
    }

    /// Returns whether the order of `queue` alone puts it before later commands there: it waits for no event, so it cannot
    /// fail before its turn.
    pub(crate) fn is_put_first_by(&self, queue: QueueId) -> bool {
        let waits_for_none = matches!(
            *self.state.lock(),
            CommandState::Enqueued { waits: false, .. }
        );
        waits_for_none && self.queue.is_in_order() && self.queue.id() == queue
    }

    /// Asks the runtime for its state, and records the answer.
    pub(crate) fn standing(&self) -> ClResult<Standing<'_>> {
        let mut state = self.state.lock();
        let (event, number) = match &*state {
            CommandState::Enqueued { event, number, .. } => (event, *number),
            CommandState::Entering => return Ok(Standing::Pending(state)),
            CommandState::Failed => return Ok(Standing::Failed),
            CommandState::Gone => return Ok(Standing::Over),
        };
        match sys::look(event)? {
            Progress::Pending => return Ok(Standing::Pending(state)),
            Progress::Complete => {
                drop(state);
                self.gone();
                return Ok(Standing::Over);
            }
            Progress::Failed(_) => {}
        }
        // Recorded before another thread can find the command gone.
        self.queue.note_failure(number);
        let old = std::mem::replace(&mut *state, CommandState::Failed);
        drop(state);
        // Dropped after the lock, since that calls the runtime.
        drop(old);
        let is_over = self.earlier().is_empty() && self.come_after_nothing()?;
        Ok(if is_over {
            Standing::Over
        } else {
            Standing::Failed
        })
    }

    /// Returns the commands that it comes after, as far as it remembers them.
    pub(crate) fn earlier(&self) -> Earlier {
        self.before.lock().clone()
    }

    /// Records that of the commands that this one, which has failed, was to come after, only `pending` may not have ended.
    pub(crate) fn comes_after_only(&self, pending: Earlier) -> ClResult<()> {
        let is_none = pending.is_empty();
        let old = std::mem::replace(&mut *self.before.lock(), pending);
        // Dropped after the lock: these may be the last references.
        drop(old);
        if is_none {
            self.come_after_nothing()?;
        }
        Ok(())
    }

    /// Records that none of the commands that this one, which has failed, was to come after is pending. Returns whether it is gone now: it
    /// is not while a companion of a user event is pending, for which later commands wait.
    fn come_after_nothing(&self) -> ClResult<bool> {
        for companion in self.companions.lock().iter() {
            if matches!(sys::look(companion)?, Progress::Pending) {
                return Ok(false);
            }
        }
        self.gone();
        Ok(true)
    }

    /// Returns whether no later command has to wait for anything in order to come after it. Asks the runtime.
    pub(crate) fn is_over(&self) -> bool {
        match self.standing() {
            Ok(Standing::Over) => true,
            // The commands that it was to come after are asked on their own.
            Ok(Standing::Failed) => {
                self.earlier().iter().all(|one| one.is_gone())
                    && self.come_after_nothing().unwrap_or(false)
            }
            Ok(Standing::Pending(_)) | Err(_) => false,
        }
    }

    /// Returns whether it was found to have failed, and is not gone.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(*self.state.lock(), CommandState::Failed)
    }

    /// Returns whether each of its pending companions is among `others`.
    pub(crate) fn shares_companions_with(&self, others: &[Arc<Self>]) -> bool {
        let is_theirs = |companion: &EventHandle| {
            let mut theirs = others.iter().map(|one| one.companions.lock());
            let is_pending = !matches!(sys::look(companion), Ok(Progress::Complete));
            !is_pending || theirs.any(|theirs| theirs.has(companion))
        };
        self.companions.lock().iter().all(is_theirs)
    }

    /// Returns whether it has an event, which may keep memory.
    pub(crate) fn has_event(&self) -> bool {
        matches!(*self.state.lock(), CommandState::Enqueued { .. })
    }

    /// Releases its event, which may keep memory. While the command is pending, the event of a marker takes its place.
    pub(crate) fn let_go_of_event(&self) -> ClResult<()> {
        let own = match self.standing()? {
            Standing::Pending(state) => match &*state {
                CommandState::Enqueued { event, .. } => event.another()?,
                _ => return Ok(()),
            },
            Standing::Failed | Standing::Over => return Ok(()),
        };
        let Some(mut other) = self.queue.stand_in(&own)? else {
            return Ok(());
        };
        // If the command has failed in the meantime, the marker may say nothing.
        if let Standing::Pending(mut state) = self.standing()?
            && let CommandState::Enqueued { event, .. } = &mut *state
        {
            std::mem::swap(event, &mut other);
        }
        Ok(())
    }

    /// Returns whether it has ended, with or without an error, or was given up. Asks the runtime.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.standing(), Ok(Standing::Failed | Standing::Over))
    }

    /// Returns what a command that is enqueued now has to wait for, to come after this one, which is enqueued or was given up. Flushes
    /// this command if it has to be waited for.
    ///
    /// If `queue` is the in-order queue of this command, the queue's order puts this one first, unless it has failed early.
    pub(crate) fn dependency(&self, queue: Option<QueueId>) -> ClResult<Dependency> {
        let is_own = queue == Some(self.queue.id());
        if queue.is_some_and(|queue| self.is_put_first_by(queue)) {
            return Ok(Dependency::None);
        }
        let state = match self.standing()? {
            Standing::Pending(state) => state,
            Standing::Failed => return Ok(Dependency::Failed),
            Standing::Over => return Ok(Dependency::None),
        };
        let CommandState::Enqueued { event, number, .. } = &*state else {
            return Ok(Dependency::None);
        };
        if is_own && self.queue.is_in_order() {
            return Ok(Dependency::None);
        }
        let (event, number) = (event.another()?, *number);
        drop(state);
        if !is_own {
            self.queue.flush_up_to(number)?;
        }
        Ok(Dependency::Event(event))
    }
}

impl Drop for TrackedCommand {
    fn drop(&mut self) {
        self.forget_earlier();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicU64},
        thread,
        time::Duration,
    };

    use binpool_allocators::QueueOrder;

    use super::*;
    use crate::{backend::OpenClBackend, order::weak_queue::QueueCalls, testing::open};

    /// The calls of a queue whose commands are user events.
    #[derive(Default)]
    struct Calls {
        /// The number of the last command that was flushed.
        flushed: AtomicU64,
        stand_in: Mutex<Option<EventHandle>>,
    }

    impl QueueCalls for Calls {
        fn flush_up_to(&self, number: u64) -> ClResult<()> {
            self.flushed.store(number, Ordering::Relaxed);
            Ok(())
        }

        fn stand_in(&self, event: &EventHandle) -> ClResult<EventHandle> {
            self.stand_in.lock().as_ref().unwrap_or(event).another()
        }
    }

    struct Queue {
        calls: Arc<Calls>,
        queue: WeakQueue,
    }

    impl Queue {
        fn new(order: QueueOrder) -> Self {
            let calls = Arc::new(Calls::default());
            let weak = Arc::downgrade(&calls);
            let queue = WeakQueue::new(QueueId::fresh(), order, weak);
            Self { calls, queue }
        }

        fn entering(&self, before: Earlier) -> TrackedCommand {
            TrackedCommand::entering(self.queue.clone(), self.queue.id(), before)
        }
    }

    fn in_order() -> Queue {
        Queue::new(QueueOrder::InOrder)
    }

    fn user_event(backend: &OpenClBackend) -> EventHandle {
        sys::create_user_event(&backend.context().handle).unwrap()
    }

    #[test]
    fn a_command_is_of_its_home_whatever_queue_it_runs_on() {
        let (home, other) = (in_order(), in_order());
        let here = home.entering(Earlier::new());
        assert!(here.is_of(home.queue.id()) && !here.runs_elsewhere());
        assert!(!here.is_of(other.queue.id()));
        let elsewhere =
            TrackedCommand::entering(other.queue.clone(), home.queue.id(), Earlier::new());
        assert!(elsewhere.is_of(home.queue.id()) && elsewhere.runs_elsewhere());
        assert!(!elsewhere.is_of(other.queue.id()));
    }

    #[test]
    fn who_waits_for_a_decision_goes_on_once_the_command_is_enqueued_or_given_up() {
        let backend = open();
        let event = user_event(&backend);
        for gives_up in [false, true] {
            let command = in_order().entering(Earlier::new());
            let is_decided = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(20));
                    is_decided.store(true, Ordering::SeqCst);
                    if gives_up {
                        command.gone();
                    } else {
                        command.enqueued(&event, 1, false);
                    }
                });
                command.wait_until_decided();
                assert!(is_decided.load(Ordering::SeqCst));
            });
        }
    }

    #[test]
    fn a_command_has_an_event_from_when_it_is_enqueued_until_it_is_over() {
        let backend = open();
        let command = in_order().entering(Earlier::new());
        let states = || {
            [
                command.is_enqueued(),
                command.has_event(),
                command.is_gone(),
            ]
        };
        assert_eq!(states(), [false, false, false]);
        let event = user_event(&backend);
        command.enqueued(&event, 1, false);
        assert_eq!(states(), [true, true, false]);
        assert!(!command.is_over());
        sys::set_user_event_status(&event, 0).unwrap();
        assert!(command.is_over());
        assert_eq!(states(), [false, false, true]);
    }

    #[test]
    fn the_order_of_a_queue_puts_its_own_commands_first_that_wait_for_nothing() {
        let backend = open();
        for (order, waits, is_first) in [
            (QueueOrder::InOrder, false, true),
            (QueueOrder::InOrder, true, false),
            (QueueOrder::OutOfOrder, false, false),
        ] {
            let queue = Queue::new(order);
            let command = queue.entering(Earlier::new());
            assert!(!command.is_put_first_by(queue.queue.id()));
            let event = user_event(&backend);
            command.enqueued(&event, 1, waits);
            assert_eq!(command.is_put_first_by(queue.queue.id()), is_first);
            assert!(!command.is_put_first_by(in_order().queue.id()));
        }
    }

    #[test]
    fn a_command_is_flushed_for_another_queue_that_waits_for_it() {
        let backend = open();
        let queue = Queue::new(QueueOrder::OutOfOrder);
        let command = queue.entering(Earlier::new());
        let event = user_event(&backend);
        command.enqueued(&event, 7, true);
        let waits_for = |queue: Option<QueueId>| {
            let dependency = command.dependency(queue).unwrap();
            matches!(dependency, Dependency::Event(found) if found.raw() == event.raw())
        };
        let flushed = || queue.calls.flushed.load(Ordering::Relaxed);
        assert!(waits_for(Some(queue.queue.id())));
        assert_eq!(flushed(), 0);
        assert!(waits_for(Some(in_order().queue.id())));
        assert_eq!(flushed(), 7);
        sys::set_user_event_status(&event, 0).unwrap();
        assert!(!waits_for(None));
    }

    #[test]
    fn a_failed_command_is_over_once_nothing_that_it_was_to_come_after_is_pending() {
        let backend = open();
        let companion = user_event(&backend);
        for has_companion in [false, true] {
            let command = in_order().entering(Earlier::new());
            let own = has_companion.then_some(&companion);
            assert_eq!(
                command.companions(own).unwrap().len(),
                usize::from(has_companion)
            );
            let event = user_event(&backend);
            command.enqueued(&event, 1, true);
            sys::set_user_event_status(&event, -1).unwrap();
            assert_eq!(command.is_over(), !has_companion);
            assert_eq!(
                (command.has_failed(), command.is_gone()),
                (has_companion, !has_companion)
            );
            if has_companion {
                sys::set_user_event_status(&companion, 0).unwrap();
                assert!(command.is_over() && command.is_gone());
            }
        }
    }

    #[test]
    fn a_companion_is_shared_with_commands_that_have_the_same_one() {
        let backend = open();
        let [one, other] = [(); 2].map(|()| user_event(&backend));
        let with = |companion: Option<&EventHandle>| {
            let command = in_order().entering(Earlier::new());
            command.companions(companion).unwrap();
            Arc::new(command)
        };
        let command = with(Some(&one));
        assert!(!command.shares_companions_with(&[]));
        assert!(!command.shares_companions_with(&[with(None), with(Some(&other))]));
        assert!(command.shares_companions_with(&[with(Some(&other)), with(Some(&one))]));
        assert!(with(None).shares_companions_with(&[]));
        sys::set_user_event_status(&one, 0).unwrap();
        assert!(
            command.shares_companions_with(&[]),
            "it is no longer pending"
        );
    }

    #[test]
    fn a_pending_command_that_lets_go_of_its_event_has_that_of_a_marker() {
        let backend = open();
        let queue = in_order();
        let command = queue.entering(Earlier::new());
        command.let_go_of_event().unwrap();
        let [event, marker] = [(); 2].map(|()| user_event(&backend));
        command.enqueued(&event, 1, true);
        *queue.calls.stand_in.lock() = Some(marker.another().unwrap());
        command.let_go_of_event().unwrap();
        sys::set_user_event_status(&event, 0).unwrap();
        assert!(!command.is_over(), "the marker is pending");
        sys::set_user_event_status(&marker, 0).unwrap();
        assert!(command.is_over());
        command.let_go_of_event().unwrap();
    }

    #[test]
    fn a_long_line_of_commands_is_dropped_without_a_call_for_each() {
        let queue = in_order();
        let mut last = Arc::new(queue.entering(Earlier::new()));
        for _ in 0..200_000 {
            last = Arc::new(queue.entering(Earlier::from_elem(last, 1)));
        }
        drop(last);
    }
}
