//! What is dropped once commands have ended: blocks of shared virtual memory, views, and bytes of the host.
//!
//! The host frees all blocks. The runtime has a command for it (`clEnqueueSVMFree`), but on `PoCL` 3.1 a free that waits for a command
//! which fails is silently not carried out, and NVIDIA's driver crashes if it frees one block while a thread allocates another.
//!
//! A view may be released while commands use it, by the specification. NVIDIA's driver (580) crashes later if a command
//! holds the last reference to a view. So there the host holds one, too.
//!
//! Bytes of the host belong to their command's event, and come here if the event is dropped before its command has ended.
//! Callbacks of events would drop them soonest, but `PoCL` 3.1 does not call those of commands that fail, and NVIDIA's driver
//! deadlocks between them and releases of buffers on other threads.
//!
//! One thread waits for the events of all blocks and views, and lives as long as any is pending. No thread waits for bytes:
//! the next transfer drops them, or the next `finish` of a queue. A thread that is short of memory can free the blocks whose
//! events have ended without waiting for that thread.

use std::{
    mem::{self, ManuallyDrop},
    thread,
};

use binpool_allocators::Region;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::{
    order::{
        access_log::{AccessLog, dependencies},
        tracked_command::Earlier,
    },
    sys::{self, ClResult, EventHandle, Progress, QueueHandle},
};

/// What has to end before something may be dropped.
#[derive(Debug, Default)]
pub(crate) struct PendingUses {
    /// Events. One that stands for everything before it on its queue comes with that queue: if the event fails, it says
    /// nothing of earlier commands, so the queue has to be finished.
    events: SmallVec<[(EventHandle, Option<QueueHandle>); 4]>,
    /// Queues to be finished.
    queues: SmallVec<[QueueHandle; 1]>,
    /// The commands, which are asked for events again when one has failed: that may be before those that it was to come
    /// after.
    commands: Earlier,
}

impl PendingUses {
    /// Returns what has to end before commands no longer use `region`.
    pub(crate) fn of(log: &AccessLog, region: Region) -> ClResult<Self> {
        let mut uses = Self {
            commands: log.commands_on(region),
            ..Self::default()
        };
        uses.ask_commands()?;
        Ok(uses)
    }

    fn ask_commands(&mut self) -> ClResult<()> {
        let pending = dependencies(None, self.commands.clone())?.events;
        self.events.extend(pending.into_iter().map(|it| (it, None)));
        Ok(())
    }

    /// Adds an event; with a queue, everything on that queue up to its command.
    pub(crate) fn after(&mut self, event: (EventHandle, Option<QueueHandle>)) {
        self.events.push(event);
    }

    /// Adds everything on `queue`.
    pub(crate) fn after_queue(&mut self, queue: QueueHandle) {
        self.queues.push(queue);
    }

    /// Waits until all of it has ended. It does not matter whether it succeeded.
    pub(crate) fn wait(mut self) {
        self.wait_for_events();
        self.finish_queues();
    }

    /// Waits for the events. The queues of those that failed are left to be finished.
    fn wait_for_events(&mut self) {
        while !self.events.is_empty() {
            for (event, _) in &self.events {
                if let Err(error) = sys::wait_until_ended(event) {
                    tracing::debug!(%error, "a command failed before memory was freed");
                }
            }
            self.look();
        }
    }

    fn finish_queues(&mut self) {
        for queue in mem::take(&mut self.queues) {
            if let Err(error) = sys::finish(&queue) {
                tracing::debug!(%error, "a command failed before memory was freed");
            }
        }
    }

    /// Forgets the events that have ended. In the place of one that failed come its queue and the commands that it was to
    /// come after.
    fn look(&mut self) {
        let mut failed = SmallVec::<[_; 4]>::new();
        for (event, queue) in mem::take(&mut self.events) {
            match sys::look(&event) {
                Ok(Progress::Complete) => {}
                Ok(Progress::Failed(_)) => match queue {
                    Some(queue) => self.queues.push(queue),
                    None => failed.push((event, None)),
                },
                // If the runtime does not answer, the event counts as pending.
                Ok(Progress::Pending) | Err(_) => self.events.push((event, queue)),
            }
        }
        if failed.is_empty() {
            return;
        }
        if let Err(error) = self.ask_commands() {
            tracing::error!(%error, "memory is not freed yet");
            // Asked again the next time.
            self.events.extend(failed);
        }
    }

    /// Returns whether all of it had ended at the last look.
    fn is_over(&self) -> bool {
        self.events.is_empty() && self.queues.is_empty()
    }

    /// Returns references to the events, for a thread that waits for them without holding this value.
    fn events_again(&self) -> ClResult<SmallVec<[EventHandle; 4]>> {
        self.events
            .iter()
            .map(|(event, _)| event.another())
            .collect()
    }
}

/// Something to drop, and what has to end before.
struct PendingFree {
    uses: PendingUses,
    _dropped: Box<dyn Send>,
    /// Set if a thread waits for it.
    is_awaited: bool,
}

/// What waits to be dropped.
///
/// The lock is held for a few instructions at a time, never while the runtime is called.
static WAITING: Mutex<Waiting> = Mutex::new(Waiting {
    frees: Vec::new(),
    has_thread: false,
});

struct Waiting {
    frees: Vec<PendingFree>,
    /// Set if a thread waits for them, or is about to.
    has_thread: bool,
}

/// Drops a block or a view at once if all of `uses` has ended, otherwise on a thread that waits. This call does not wait.
pub(crate) fn drop_after_use(dropped: impl Send + 'static, mut uses: PendingUses) {
    uses.look();
    if uses.is_over() {
        return;
    }
    let free = PendingFree {
        uses,
        _dropped: Box::new(dropped),
        is_awaited: true,
    };
    if free.uses.events.is_empty() {
        finish_and_free(free);
    } else {
        put_back(vec![free]);
    }
}

/// Drops bytes of the host when [`free_what_has_ended`] finds that the command of `event` has ended.
pub(crate) fn drop_after_end(bytes: Box<dyn Send>, event: &EventHandle) {
    if matches!(sys::execution_status(event), Ok(..=0)) {
        return;
    }
    let mut uses = PendingUses::default();
    match event.another() {
        Ok(event) => uses.after((event, None)),
        Err(error) => {
            tracing::error!(%error, "host bytes were leaked: the end of their command is unknown");
            return mem::forget(bytes);
        }
    }
    put_back(vec![PendingFree {
        uses,
        _dropped: bytes,
        is_awaited: false,
    }]);
}

/// Drops a block or a view, on a thread of its own, once its queues are finished. That wait takes as long as all commands
/// of the queues, and must not hold up other frees.
fn finish_and_free(free: PendingFree) {
    // Where no thread can be started, the block or the view is leaked.
    let mut free = ManuallyDrop::new(free);
    let started = thread::Builder::new()
        .name("binpool-free".into())
        .spawn(move || {
            free.uses.finish_queues();
            drop(ManuallyDrop::into_inner(free));
        });
    if let Err(error) = started {
        tracing::error!(%error, "memory was leaked: could not start a thread to free it");
    }
}

/// Drops everything whose commands have ended. Returns whether there was anything.
pub(crate) fn free_what_has_ended() -> bool {
    let mut waiting = mem::take(&mut WAITING.lock().frees);
    if waiting.is_empty() {
        return false;
    }
    for free in &mut waiting {
        free.uses.look();
    }
    let (over, pending): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|it| it.uses.is_over());
    let (failed, pending): (Vec<_>, Vec<_>) = pending
        .into_iter()
        .partition(|it| it.uses.events.is_empty());
    put_back(pending);
    failed.into_iter().for_each(finish_and_free);
    !over.is_empty()
}

fn put_back(frees: Vec<PendingFree>) {
    let mut waiting = WAITING.lock();
    let needs_thread = frees.iter().any(|free| free.is_awaited);
    waiting.frees.extend(frees);
    if !needs_thread || mem::replace(&mut waiting.has_thread, true) {
        return;
    }
    drop(waiting);
    let started = thread::Builder::new()
        .name("binpool-free".into())
        .spawn(wait_and_free);
    if let Err(error) = started {
        WAITING.lock().has_thread = false;
        tracing::warn!(%error, "memory will be freed with the next block");
    }
}

fn wait_and_free() {
    loop {
        free_what_has_ended();
        let events = {
            let mut waiting = WAITING.lock();
            let Some(first) = waiting.frees.iter().find(|free| free.is_awaited) else {
                waiting.has_thread = false;
                return;
            };
            first.uses.events_again()
        };
        match events {
            Ok(events) => {
                for event in events {
                    // The next round looks how it ended.
                    let _ended = sys::wait_until_ended(&event);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "could not wait for a command; polling it instead");
                thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use binpool_allocators::{Align, Backend, Outcome, QueueOrder};
    use smallvec::smallvec;

    use super::*;
    use crate::{
        event::ClEvent,
        order::tracked_command::TrackedCommand,
        sys::{ONE_SVM_THREAD, SvmAllocation},
        testing::open,
    };

    /// A runtime may fail a command before those that it waits for have ended.
    #[test]
    fn in_the_place_of_a_failed_command_come_those_that_it_was_to_come_after() {
        let backend = open();
        let [earlier, failing] = [(); 2].map(|()| backend.create_user_event().unwrap());
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let command = |event: &ClEvent, before| {
            let command = TrackedCommand::entering(queue.downgrade(), queue.identity(), before);
            command.enqueued(event.handle(), 1, true);
            Arc::new(command)
        };
        let before = smallvec![command(&earlier, Earlier::new())];
        let mut uses = PendingUses {
            commands: smallvec![command(&failing, before)],
            ..PendingUses::default()
        };
        uses.ask_commands().unwrap();
        backend
            .resolve_user_event(&failing, Outcome::Failed)
            .unwrap();
        uses.look();
        assert!(!uses.is_over());
        backend
            .resolve_user_event(&earlier, Outcome::Complete)
            .unwrap();
        uses.look();
        assert!(uses.is_over());
    }

    static FREED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

    #[test]
    fn a_block_waits_for_its_commands_and_no_longer() {
        let backend = open();
        let align = Align::new(128).unwrap();
        let block = || {
            let context = &backend.context().handle;
            SvmAllocation::new(
                context,
                1,
                4096,
                align,
                align,
                Some(&ONE_SVM_THREAD),
                || false,
            )
            .unwrap()
            .unwrap()
        };
        let gates = [(); 2].map(|()| backend.create_user_event().unwrap());
        let frees = |index: usize| FREED[index].load(Ordering::Relaxed);
        for (gate, freed) in gates.iter().zip(&FREED) {
            let block = block();
            block.when_freed(|| {
                freed.fetch_add(1, Ordering::Relaxed);
            });
            let mut uses = PendingUses::default();
            uses.after((gate.handle().another().unwrap(), None));
            drop_after_use(block, uses);
        }
        assert_eq!(frees(0), 0);
        // The second block may be freed before the first one, for which the thread waits.
        backend
            .resolve_user_event(&gates[1], Outcome::Complete)
            .unwrap();
        while frees(1) == 0 {
            free_what_has_ended();
        }
        assert_eq!(frees(0), 0);
        backend
            .resolve_user_event(&gates[0], Outcome::Failed)
            .unwrap();
        while frees(0) == 0 {
            thread::yield_now();
        }
        assert_eq!((frees(0), frees(1)), (1, 1));
    }
}
