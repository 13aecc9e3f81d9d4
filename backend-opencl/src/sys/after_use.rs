//! The free of shared virtual memory, and the release of views, once no command uses them any more.
//!
//! The host frees all blocks. The runtime has a command for it (`clEnqueueSVMFree`), but a free that waits for a command
//! which fails is not carried out, without a word on `PoCL` 3.1; and NVIDIA's driver crashes where it frees one block while
//! a thread allocates another.
//!
//! A view may be released while commands use it, by the specification. NVIDIA's driver (580) crashes later where it is a
//! command that has the last reference to a view. So there the host has it, too.
//!
//! One thread waits for the events of all blocks and views, and lives as long as any is pending. A thread that is short of
//! memory can free the blocks whose events have ended without waiting for that thread.

use std::{
    fmt,
    mem::{self, ManuallyDrop},
    thread,
};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::{
    ClResult, EventHandle, Progress, QueueHandle,
    enqueue::finish,
    event::{look, wait_until_ended},
};

/// What has to end before a block or a view may go.
#[derive(Debug, Default)]
pub(crate) struct PendingUses {
    /// Events. One that stands for everything before it on its queue comes with that queue: if the event fails, it says
    /// nothing of earlier commands, so the queue has to be finished.
    events: SmallVec<[(EventHandle, Option<QueueHandle>); 4]>,
    /// Queues to be finished.
    queues: SmallVec<[QueueHandle; 1]>,
    /// Returns the pending commands. It is called when an event has failed, which may be before those that it
    /// was to come after.
    still_pending: Option<StillPending>,
}

type Pending = ClResult<SmallVec<[EventHandle; 4]>>;

struct StillPending(Box<dyn Fn() -> Pending + Send + Sync>);

impl fmt::Debug for StillPending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StillPending")
    }
}

impl PendingUses {
    /// Adds the commands that `still_pending` returns, which is called again whenever one of them has failed.
    pub(crate) fn after_commands(
        &mut self,
        still_pending: impl Fn() -> Pending + Send + Sync + 'static,
    ) -> ClResult<()> {
        let pending = still_pending()?;
        self.events.extend(pending.into_iter().map(|it| (it, None)));
        self.still_pending = Some(StillPending(Box::new(still_pending)));
        Ok(())
    }

    /// Adds an event that the block was released with.
    pub(crate) fn after(&mut self, event: EventHandle) {
        self.events.push((event, None));
    }

    /// Adds everything on `queue` up to the command of `event`.
    pub(crate) fn after_all_before(&mut self, event: EventHandle, queue: QueueHandle) {
        self.events.push((event, Some(queue)));
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
                if let Err(error) = wait_until_ended(event) {
                    tracing::debug!(%error, "a command failed before memory was freed");
                }
            }
            self.look();
        }
    }

    fn finish_queues(&mut self) {
        for queue in mem::take(&mut self.queues) {
            if let Err(error) = finish(&queue) {
                tracing::debug!(%error, "a command failed before memory was freed");
            }
        }
    }

    /// Forgets the events that have ended. In the place of one that failed come its queue and the commands that it was to
    /// come after.
    fn look(&mut self) {
        let mut failed = SmallVec::<[_; 4]>::new();
        for (event, queue) in mem::take(&mut self.events) {
            match look(&event) {
                Ok(Progress::Complete) => {}
                Ok(Progress::Failed(_)) => match queue {
                    Some(queue) => self.queues.push(queue),
                    None => failed.push((event, None)),
                },
                // If the runtime does not answer, the event counts as pending.
                Ok(Progress::Pending) | Err(_) => self.events.push((event, queue)),
            }
        }
        let Some(StillPending(still_pending)) = &self.still_pending else {
            return;
        };
        if failed.is_empty() {
            return;
        }
        match still_pending() {
            Ok(pending) => self.events.extend(pending.into_iter().map(|it| (it, None))),
            // Asked again the next time.
            Err(error) => {
                tracing::error!(%error, "memory is not freed yet");
                self.events.extend(failed);
            }
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

/// A block or a view, and what has to end before it is dropped.
struct PendingFree {
    uses: PendingUses,
    _dropped: Box<dyn Send>,
}

/// The blocks and views that wait for events.
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
    };
    if free.uses.events.is_empty() {
        finish_and_free(free);
    } else {
        put_back(vec![free]);
    }
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
        tracing::error!(%error, "memory was lost: no thread could be started to free it");
    }
}

/// Drops every block and view whose commands have ended. Returns whether there were any.
pub(crate) fn free_what_has_ended() -> bool {
    let mut waiting = mem::take(&mut WAITING.lock().frees);
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
    waiting.frees.extend(frees);
    if waiting.frees.is_empty() || mem::replace(&mut waiting.has_thread, true) {
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
            let Some(first) = waiting.frees.first() else {
                waiting.has_thread = false;
                return;
            };
            first.uses.events_again()
        };
        match events {
            Ok(events) => {
                for event in events {
                    // The next round looks how it ended.
                    let _ended = wait_until_ended(&event);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a command cannot be waited for; looking again and again");
                thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use binpool_allocators::{Align, Backend, Outcome};
    use smallvec::smallvec;

    use super::*;
    use crate::{
        sys::{SvmAllocation, Threads},
        testing::open,
    };

    /// A runtime may fail a command before those that it waits for have ended.
    #[test]
    fn in_the_place_of_a_failed_command_come_those_that_it_was_to_come_after() {
        let backend = open();
        let [earlier, failing] = [(); 2].map(|()| backend.create_user_event().unwrap());
        let commands = (earlier.clone(), failing.clone());
        let mut uses = PendingUses::default();
        let still_pending = move || {
            let (earlier, failing) = &commands;
            let last = if failing.has_failed() {
                earlier
            } else {
                failing
            };
            Ok(smallvec![last.handle().another()?])
        };
        uses.after_commands(still_pending).unwrap();
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
            SvmAllocation::new(context, 1, 4096, align, align, Threads::One, || false)
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
            uses.after(gate.handle().another().unwrap());
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
