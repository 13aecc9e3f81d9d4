//! A command on its way to its stream.

use std::sync::Arc;

use parking_lot::MutexGuard;

use super::{CoreEvent, CoreQueue, Objects, Part, Runtime, memory::Root, uses::Uses};
use crate::{FailureOrder, ObjectKind, Queue as _, QueueOrder, Result};

/// Enqueues a command that uses these parts: checks its queue and its events, puts it in order if the core
/// [does so](super::Core::order_conflicts), calls `submit` with what the command comes after, and keeps the memory until the
/// command has ended.
///
/// Kernels, and everything else that only one runtime has, use this. The transfers of the core do, too.
///
/// # Errors
///
/// [`ForeignObject`](crate::InvalidRequest::ForeignObject), or what `submit` returns.
///
/// # Safety
///
/// `submit` enqueues a command on the stream, after the marks, and returns its mark. If it fails or panics, nothing was enqueued, or
/// [`after_failure`](Runtime::after_failure) tells what. The command uses no memory of the core but these parts, each as its access says. The
/// memory may be of another device of the [family](super::Core::of_family), which `submit` checks if the command cannot reach it.
pub unsafe fn enqueue<R: Runtime>(
    backend: &R,
    queue: &CoreQueue<R>,
    parts: &[&Part<'_, R>],
    wait_for: &[CoreEvent<R>],
    submit: impl FnOnce(&R::Stream, &[R::Mark]) -> Result<R::Mark>,
) -> Result<CoreEvent<R>> {
    let mut after = check(backend, queue, wait_for)?;
    let core = backend.core();
    for part in parts {
        core.check_family(part.core(), ObjectKind::Memory)?;
    }
    core.deferred.look_at_some();
    let mut commands = queue.commands().lock();
    let mut logs = core.orders_conflicts().then(|| Logs::lock(parts));
    if let Some(logs) = &mut logs {
        logs.collect_conflicting(queue, parts, &mut after);
    }
    let mark = match submit(queue.stream(), &after) {
        Ok(mark) => mark,
        Err(error) => {
            // What follows may wait for the device, and so for a thread that enqueues on this queue.
            drop((logs, commands));
            note_failure(backend, queue, parts);
            return Err(error);
        }
    };
    *commands += 1;
    let tells_of_earlier =
        queue.order() == QueueOrder::InOrder && core.limits().failure_order == FailureOrder::Kept;
    let number = tells_of_earlier.then_some(*commands);
    drop(commands);
    if !R::is_captured(&mark) {
        for part in parts {
            let used = part.as_use(queue.id(), number, &mark);
            if let Some(pages) = part.pages() {
                pages.note(&used);
            }
            match &mut logs {
                Some(logs) => logs.of(part.root()).note(used, true),
                None => part.root().uses.lock().note(used, false),
            }
        }
    }
    drop(logs);
    Ok(CoreEvent::of_command(queue, mark))
}

/// Keeps the memory of a call that has failed until nothing that it may have enqueued uses it.
pub(super) fn note_failure<R: Runtime>(backend: &R, queue: &CoreQueue<R>, parts: &[&Part<'_, R>]) {
    // SAFETY: the callers have checked the queue and the parts.
    let rest = unsafe { backend.after_failure(queue.stream(), parts) };
    let Some(rest) = rest else {
        return;
    };
    for part in parts {
        part.root().uses.lock().note_other(rest.clone());
        if let Some(pages) = part.pages() {
            pages.note_other(&rest);
        }
    }
}

/// Checks the objects of a command, and returns the marks that it comes after.
pub(super) fn check<R: Runtime>(
    backend: &R,
    queue: &CoreQueue<R>,
    wait_for: &[CoreEvent<R>],
) -> Result<Vec<R::Mark>> {
    check_queue(backend, queue)?;
    let marks = wait_for.iter().map(|event| {
        backend
            .core()
            .check_family(event.core(), ObjectKind::Event)?;
        Ok(event.mark().clone())
    });
    marks.collect()
}

pub(super) fn check_queue<R: Runtime>(backend: &R, queue: &CoreQueue<R>) -> Result<()> {
    let other = queue.backend().core();
    backend.core().check_family(other, ObjectKind::Queue)
}

/// The commands of all blocks that a command uses, locked in the order of their addresses while it is enqueued.
struct Logs<'a, R: Objects>(Vec<(*const Root<R>, MutexGuard<'a, Uses<R>>)>);

impl<'a, R: Runtime> Logs<'a, R> {
    fn lock(parts: &[&Part<'a, R>]) -> Self {
        let mut roots: Vec<_> = parts.iter().map(|part| part.root()).collect();
        roots.sort_by_key(|root| Arc::as_ptr(root));
        roots.dedup_by_key(|root| Arc::as_ptr(root));
        let locked = |root: &'a Arc<Root<R>>| (Arc::as_ptr(root), root.uses.lock());
        Self(roots.into_iter().map(locked).collect())
    }

    fn of(&mut self, root: &Arc<Root<R>>) -> &mut Uses<R> {
        let root = Arc::as_ptr(root);
        let at = self.0.binary_search_by_key(&root, |(known, _)| *known);
        &mut self.0[at.unwrap_or_default()].1
    }

    fn collect_conflicting(
        &mut self,
        queue: &CoreQueue<R>,
        parts: &[&Part<'_, R>],
        after: &mut Vec<R::Mark>,
    ) {
        for part in parts {
            let place = (part.region(), part.access());
            self.of(part.root())
                .collect_conflicting(queue.id(), place, after);
        }
    }
}
