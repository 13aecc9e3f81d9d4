//! The events of backends over `Runtime`: of a command, or ended by the program.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{Core, CoreQueue, Runtime};
use crate::{Event, EventId, EventStatus, FailureOrder, InvalidRequest, Outcome, Queue, Result};

/// An event of a [`Runtime`]: a mark with an identity and an owner.
///
/// ```
/// use binpool_allocators::{Result, runtime::{CoreEvent, Runtime}};
///
/// fn is_over<R: Runtime>(event: &CoreEvent<R>) -> Result<bool> {
///     Ok(R::status(event.mark())?.has_ended())
/// }
/// ```
///
/// A user event that is dropped before it is resolved fails, or completes where it cannot fail: what waits for it would wait forever.
pub struct CoreEvent<R: Runtime> {
    id: EventId,
    core: Arc<Core<R>>,
    mark: R::Mark,
    source: Source<R>,
}

/// What makes the event end.
enum Source<R: Runtime> {
    Command,
    /// A command whose failure does not tell that those before it have ended.
    OnQueue(CoreQueue<R>),
    User(Arc<User<R>>),
}

/// Whether a user event has been resolved.
struct User<R: Runtime> {
    mark: R::Mark,
    is_resolved: AtomicBool,
}

impl<R: Runtime> CoreEvent<R> {
    /// Returns the event of a command on `queue`.
    pub(super) fn of_command(queue: &CoreQueue<R>, mark: R::Mark) -> Self {
        let core = queue.backend().core();
        let source = match core.limits().failure_order {
            FailureOrder::Kept => Source::Command,
            FailureOrder::FailsEarly | FailureOrder::Lost => Source::OnQueue(queue.clone()),
        };
        Self::new(core, mark, source)
    }

    pub(super) fn of_user(core: &Arc<Core<R>>, mark: R::Mark) -> Self {
        let user = User {
            mark: mark.clone(),
            is_resolved: AtomicBool::new(false),
        };
        Self::new(core, mark, Source::User(Arc::new(user)))
    }

    fn new(core: &Arc<Core<R>>, mark: R::Mark, source: Source<R>) -> Self {
        Self {
            id: EventId::fresh(),
            core: Arc::clone(core),
            mark,
            source,
        }
    }

    /// The runtime's mark.
    #[must_use]
    pub fn mark(&self) -> &R::Mark {
        &self.mark
    }

    pub(super) fn core(&self) -> &Core<R> {
        &self.core
    }

    pub(super) fn resolve(&self, outcome: Outcome) -> Result<()> {
        let Source::User(user) = &self.source else {
            return Err(InvalidRequest::NotAUserEvent.into());
        };
        user.resolve(outcome)
    }
}

impl<R: Runtime> User<R> {
    fn resolve(&self, outcome: Outcome) -> Result<()> {
        if self.is_resolved.swap(true, Ordering::AcqRel) {
            return Err(InvalidRequest::AlreadyResolved.into());
        }
        // SAFETY: the mark is that of a user event, which nothing has resolved yet.
        let resolved = unsafe { R::resolve(&self.mark, outcome) };
        if resolved.is_err() {
            self.is_resolved.store(false, Ordering::Release);
        }
        resolved
    }
}

impl<R: Runtime> Drop for User<R> {
    fn drop(&mut self) {
        if *self.is_resolved.get_mut() {
            return;
        }
        let resolved = self.resolve(Outcome::Failed);
        if let Err(error) = resolved.or_else(|_| self.resolve(Outcome::Complete)) {
            tracing::error!(%error, "a dropped user event could not be resolved: commands that wait for it never end");
        }
    }
}

impl<R: Runtime> Event for CoreEvent<R> {
    fn id(&self) -> EventId {
        self.id
    }

    fn status(&self) -> Result<EventStatus> {
        R::status(&self.mark)
    }

    fn wait(&self) -> Result<()> {
        R::wait(&self.mark)
    }

    fn wait_for_all_before(&self) -> Result<()> {
        match (self.wait(), &self.source) {
            (Ok(()), _) => Ok(()),
            (Err(_), Source::OnQueue(queue)) => queue.finish(),
            (Err(_), _) if self.has_ended() => Ok(()),
            (failed, _) => failed,
        }
    }
}

impl<R: Runtime> Clone for CoreEvent<R> {
    fn clone(&self) -> Self {
        Self {
            id: self.id,
            core: Arc::clone(&self.core),
            mark: self.mark.clone(),
            source: match &self.source {
                Source::Command => Source::Command,
                Source::OnQueue(queue) => Source::OnQueue(queue.clone()),
                Source::User(user) => Source::User(Arc::clone(user)),
            },
        }
    }
}

impl<R: Runtime> PartialEq for CoreEvent<R> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<R: Runtime> Eq for CoreEvent<R> {}

impl<R: Runtime> Hash for CoreEvent<R> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl<R: Runtime> fmt::Debug for CoreEvent<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
