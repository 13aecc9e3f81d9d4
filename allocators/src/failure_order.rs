//! The order of commands after one of them has failed.

/// What the order of commands guarantees once one of them has failed. A backend states it in
/// [`DeviceLimits::failure_order`](crate::DeviceLimits::failure_order); a pool relies on it to free and reuse memory.
///
/// Three rules hold on every device:
///
/// 1. A command whose event has ended, with or without an error, no longer touches memory.
/// 2. An event that *completed* says that every event of its wait list has completed.
/// 3. [`Queue::finish`](crate::Queue::finish) returns once every command that was enqueued before has ended, with or without an error.
///
/// Everything else depends on when a command fails. Take an in-order queue with a command A that waits for one event, and
/// after it a command F that waits for another event, which fails:
///
/// | | [`Kept`](Self::Kept) | [`FailsEarly`](Self::FailsEarly) | [`Lost`](Self::Lost) |
/// |---|---|---|---|
/// | F fails | after A has ended | at once | at once |
/// | a command that is enqueued now runs, or fails | after A has ended | after A has ended | at once |
/// | a marker or barrier that is enqueued now ends | after A has ended | after A has ended | at once |
/// | a marker that was enqueued before F failed | fails after A has ended | may fail at once | may fail at once |
/// | an event that completed: what comes before it in its queue has ended | yes | yes | no |
/// | an event that failed: what comes before it in its queue has ended | yes | no | no |
///
/// docs/failures.md has the measurements of each runtime.
///
/// ```
/// use binpool_allocators::{EventStatus, FailureOrder};
///
/// // May memory be reused that only commands before this marker have used?
/// assert!(FailureOrder::FailsEarly.ends_all_before(EventStatus::Complete));
/// assert!(!FailureOrder::FailsEarly.ends_all_before(EventStatus::Failed));
/// assert!(FailureOrder::Kept.ends_all_before(EventStatus::Failed));
/// assert!(!FailureOrder::Lost.ends_all_before(EventStatus::Complete));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailureOrder {
    /// A command fails in its turn, once everything before it has ended. So events, markers and barriers end in
    /// order, whether they complete or fail. CUDA's streams.
    Kept,
    /// A command fails as soon as an event of its wait list fails, while commands that it comes after may still run.
    /// It keeps its place: later commands, by the order of the queue or after a barrier, still come after everything that it
    /// comes after. An event that failed says nothing about other commands. `OpenClBackend` on `PoCL`.
    #[default]
    FailsEarly,
    /// A command fails early and loses its place: the commands after it on an in-order queue, including markers and barriers,
    /// run and complete without waiting for the commands before it. Only [`Queue::finish`](crate::Queue::finish) proves that
    /// commands have ended. `PoCL` without a remedy.
    Lost,
}

impl FailureOrder {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::Kept, Self::FailsEarly, Self::Lost];

    /// Returns whether a marker without a wait list, or the last command of an in-order queue, with an event of this status
    /// says that everything enqueued before it on its queue has ended.
    #[must_use]
    pub const fn ends_all_before(self, status: crate::EventStatus) -> bool {
        use crate::EventStatus::{Complete, Failed, Pending};
        match (self, status) {
            (Self::Kept, Complete | Failed) | (Self::FailsEarly, Complete) => true,
            (_, Pending) | (Self::FailsEarly, Failed) | (Self::Lost, _) => false,
        }
    }

    /// Returns whether in-order queues and barriers order later commands after earlier ones even when commands fail.
    ///
    /// ```
    /// use binpool_allocators::FailureOrder;
    ///
    /// assert!(FailureOrder::FailsEarly.keeps_places());
    /// assert!(!FailureOrder::Lost.keeps_places());
    /// ```
    #[must_use]
    pub const fn keeps_places(self) -> bool {
        !matches!(self, Self::Lost)
    }
}
