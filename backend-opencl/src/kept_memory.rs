//! Memory that the events of commands keep.
//!
//! Intel's runtime keeps a memory object as long as the event of a command that used it is kept, even after the command has ended. Logs
//! keep events: that of a queue has its last command, and that of a buffer has copies from other buffers. A command releases its event once
//! a thread has seen it end. So that no log keeps memory that the program has dropped, all other ended commands release theirs when memory
//! is released, and when the runtime is out of memory.
//!
//! Events that the program keeps do keep memory there, unless it is [awaited](crate::quirks::stand_in_events).

use std::{
    mem,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

use crate::{
    after_use::free_what_has_ended, order::tracked_command::TrackedCommand, queue::ClQueue,
    sys::ClResult,
};

/// The commands that may have events of their own, on runtimes where these keep memory.
static COMMANDS: Mutex<Commands> = Mutex::new(Commands {
    all: Vec::new(),
    limit: FIRST_LIMIT,
});

struct Commands {
    all: Vec<Weak<TrackedCommand>>,
    /// The number of commands at which those without an event are looked for.
    limit: usize,
}

const FIRST_LIMIT: usize = 64;

impl Commands {
    fn add(&mut self, command: &Arc<TrackedCommand>) {
        if self.all.len() >= self.limit {
            let has_event =
                |one: &Weak<TrackedCommand>| one.upgrade().is_some_and(|it| it.has_event());
            self.all.retain(has_event);
            self.limit = self.all.len().saturating_mul(2).max(FIRST_LIMIT);
        }
        self.all.push(Arc::downgrade(command));
    }
}

/// Set once there is a queue of a runtime whose events keep memory.
static IS_NEEDED: AtomicBool = AtomicBool::new(false);

/// Notes that `command` of `queue` has been enqueued.
pub(crate) fn note(queue: &ClQueue, command: Option<&Arc<TrackedCommand>>) {
    if let Some(command) = command
        && queue.context().quirks.events_keep_memory
    {
        // Relaxed: memory that this command uses reaches a thread that drops it by other means.
        IS_NEEDED.store(true, Ordering::Relaxed);
        COMMANDS.lock().add(command);
    }
}

/// Makes all commands release their events. Returns whether there may have been any.
pub(crate) fn let_go() -> bool {
    if !IS_NEEDED.load(Ordering::Relaxed) {
        return false;
    }
    // The lock is not held while the runtime is called.
    let commands = mem::take(&mut COMMANDS.lock().all);
    for command in commands.iter().filter_map(Weak::upgrade) {
        if let Err(error) = command.let_go_of_event() {
            tracing::warn!(%error, "memory stays until the next command of a queue");
        }
    }
    free_what_has_ended();
    true
}

/// A part of a memory object: when it is dropped, no log keeps the object any longer.
#[derive(Debug)]
pub(crate) struct LetGo;

impl Drop for LetGo {
    fn drop(&mut self) {
        let _any = let_go();
    }
}

/// Returns what `allocate` returns, which is called again if there is no memory and events may keep some.
pub(crate) fn allocate<T>(mut allocate: impl FnMut() -> ClResult<T>) -> ClResult<T> {
    match allocate() {
        Err(error) if error.is_exhaustion() && let_go() => allocate(),
        result => result,
    }
}
