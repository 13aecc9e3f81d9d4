//! Frees of shared virtual memory that the host makes, once the commands that use a block have ended.
//!
//! One thread for all of them, which lives as long as there are any. Whoever is short of memory can look for
//! blocks whose time has come without waiting for that thread.

use std::{mem, thread};

use parking_lot::Mutex;

use super::svm::PendingFree;

/// The blocks that wait to be freed.
///
/// The lock is held for a few instructions at a time, never while the runtime is called, so that a callback may
/// take it.
static WAITING: Mutex<Waiting> = Mutex::new(Waiting {
    frees: Vec::new(),
    has_thread: false,
});

struct Waiting {
    frees: Vec<PendingFree>,
    /// Whether a thread waits for them, or is about to.
    has_thread: bool,
}

/// Frees a block once its commands have ended. Does not wait.
pub(super) fn free_later(free: PendingFree) {
    put_back(vec![free]);
}

/// Frees every block whose commands have ended. Whether there were any.
pub(super) fn free_what_has_ended() -> bool {
    let waiting = mem::take(&mut WAITING.lock().frees);
    let (ended, pending): (Vec<_>, Vec<_>) = waiting.into_iter().partition(PendingFree::has_ended);
    put_back(pending);
    let any = !ended.is_empty();
    ended.into_iter().for_each(PendingFree::free_now);
    any
}

fn put_back(frees: Vec<PendingFree>) {
    let mut waiting = WAITING.lock();
    waiting.frees.extend(frees);
    if waiting.frees.is_empty() || mem::replace(&mut waiting.has_thread, true) {
        return;
    }
    drop(waiting);
    let started = thread::Builder::new()
        .name("binpool-svm-free".into())
        .spawn(wait_and_free);
    if let Err(error) = started {
        WAITING.lock().has_thread = false;
        tracing::warn!(%error, "blocks of shared virtual memory will be freed with the next ones");
    }
}

fn wait_and_free() {
    loop {
        free_what_has_ended();
        let uses = {
            let mut waiting = WAITING.lock();
            let Some(first) = waiting.frees.first() else {
                waiting.has_thread = false;
                return;
            };
            first.uses_again()
        };
        match uses {
            Ok(uses) => uses.wait(),
            Err(error) => {
                tracing::warn!(%error, "a command cannot be waited for; looking again and again");
                thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::env;

    use binpool_allocators::{Align, Backend, Outcome};

    use super::*;
    use crate::{
        OpenClBackend,
        sys::{SvmAllocation, Threads, Uses, free_on_the_host},
    };

    fn is_waiting(base: usize) -> bool {
        WAITING.lock().frees.iter().any(|free| free.base() == base)
    }

    #[test]
    fn a_block_waits_for_its_commands_and_no_longer() {
        let device = env::var("BINPOOL_TEST_DEVICE").unwrap_or_default();
        let backend = OpenClBackend::open(&device.parse().unwrap()).unwrap();
        let align = Align::new(128).unwrap();
        let block = || {
            SvmAllocation::new(
                &backend.context().handle,
                1,
                4096,
                align,
                align,
                Threads::One,
            )
            .unwrap()
            .unwrap()
        };
        let gates = [(); 2].map(|()| backend.create_user_event().unwrap());
        let bases = [0, 1].map(|index: usize| {
            let block = block();
            let base = block.base();
            let events = vec![gates[index].handle().another().unwrap()];
            free_on_the_host(
                block,
                Uses {
                    events,
                    queue: None,
                },
            );
            base
        });
        // The second may go before the first, which the thread waits for.
        backend
            .resolve_user_event(&gates[1], Outcome::Complete)
            .unwrap();
        while is_waiting(bases[1]) {
            free_what_has_ended();
        }
        backend
            .resolve_user_event(&gates[0], Outcome::Failed)
            .unwrap();
        while is_waiting(bases[0]) {
            thread::yield_now();
        }
    }
}
