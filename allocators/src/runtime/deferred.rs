//! What is dropped once commands have ended.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

use super::Objects;
use crate::{Error, Result};

/// How many entries a call looks at. It adds at most two, so that the list gets shorter.
const LOOKS: usize = 4;

/// What is kept for commands. It has no clone of the backend, which drops this with its core.
pub(super) enum Held<R: Objects> {
    Block(R::Block),
    Other(#[expect(dead_code, reason = "it is dropped")] Box<dyn Send>),
}

impl<R: Objects> Held<R> {
    fn may_go(&self) -> Result<(), &'static str> {
        match self {
            Self::Block(block) => R::may_free(block),
            Self::Other(_) => Ok(()),
        }
    }
}

struct Entry<R: Objects> {
    after: Vec<R::Mark>,
    held: Held<R>,
}

impl<R: Objects> Entry<R> {
    fn may_go(&mut self) -> bool {
        self.after.retain(|mark| !R::has_ended(mark));
        self.after.is_empty() && self.held.may_go().is_ok()
    }
}

pub(super) struct Deferred<R: Objects> {
    entries: Mutex<VecDeque<Entry<R>>>,
    has_warned: AtomicBool,
}

impl<R: Objects> Default for Deferred<R> {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            has_warned: AtomicBool::new(false),
        }
    }
}

impl<R: Objects> Deferred<R> {
    pub(super) fn put(&self, held: Held<R>, after: Vec<R::Mark>) {
        let mut entry = Entry { after, held };
        if !entry.may_go() {
            self.entries.lock().push_back(entry);
        }
    }

    pub(super) fn look_at_some(&self) {
        self.look(LOOKS);
    }

    pub(super) fn look_at_all(&self) {
        let all = self.entries.lock().len();
        self.look(all);
    }

    fn look(&self, looks: usize) {
        for _ in 0..looks {
            let Some(mut entry) = self.entries.lock().pop_front() else {
                return;
            };
            if entry.may_go() {
                // The runtime is called here, outside the lock.
                drop(entry);
            } else {
                self.entries.lock().push_back(entry);
            }
        }
    }

    /// Allocates, and once more after a shortage, without the memory that commands have used and that was not freed yet.
    pub(super) fn allocate<T>(&self, allocate: impl Fn() -> Result<T>) -> Result<T> {
        self.look_at_some();
        allocate().or_else(|error| {
            if !error.is_out_of_memory() {
                return Err(error);
            }
            self.look_at_all();
            allocate().inspect_err(|error| self.warn_of_kept(error))
        })
    }

    /// Says once that memory is not freed for a reason that the program can end.
    fn warn_of_kept(&self, error: &Error) {
        let entries = self.entries.lock();
        let reason = entries.iter().find_map(|entry| entry.held.may_go().err());
        let blocks = entries.len();
        drop(entries);
        if let Some(reason) = reason.filter(|_| error.is_out_of_memory())
            && !self.has_warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                blocks,
                "memory ran out, and blocks cannot be freed: {reason}"
            );
        }
    }
}

impl<R: Objects> Drop for Deferred<R> {
    fn drop(&mut self) {
        self.look_at_all();
        let entries = std::mem::take(self.entries.get_mut());
        let mut marks = entries.iter().flat_map(|entry| &entry.after);
        let have_ended = marks.all(R::wait_at_end);
        if have_ended && entries.iter().all(|entry| entry.held.may_go().is_ok()) {
            return;
        }
        let blocks = entries.len();
        tracing::warn!(
            blocks,
            "memory is leaked: the backend is dropped before commands that use it can end"
        );
        std::mem::forget(entries);
    }
}
