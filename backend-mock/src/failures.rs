//! The effect of a failed command on others.

use binpool_allocators::FailureOrder;

/// How a failed command affects others: when its event fails, whether it keeps its place in the order, and whether
/// the commands after it fail as well.
///
/// The default is [`FailureOrder::Kept`] without spreading.
///
/// ```
/// use binpool_allocators::{Queue, Backend, Event, EventStatus, FailureOrder, Outcome, QueueOrder};
/// use binpool_mock::{Failures, MockDevice};
///
/// // A waits for one event, and F after it for another one, which fails. What is the status of F, and of a marker that
/// // is enqueued then, while A is pending?
/// let behind_a_failure = |order| {
///     let failures = Failures { order, spread: false };
///     let device = MockDevice::builder().failures(failures).build();
///     let backend = device.backend();
///     let queue = backend.create_queue(QueueOrder::InOrder)?;
///     let gates = [backend.create_user_event()?, backend.create_user_event()?];
///     let a = backend.enqueue_marker(queue.after(&gates[..1]))?;
///     let f = backend.enqueue_marker(queue.after(&gates[1..]))?;
///     backend.resolve_user_event(&gates[1], Outcome::Failed)?;
///     let marker = backend.enqueue_marker(&queue)?;
///     assert_eq!(a.status()?, EventStatus::Pending);
///     Ok::<_, binpool_allocators::Error>([f.status()?, marker.status()?])
/// };
/// use EventStatus::{Complete, Failed, Pending};
/// assert_eq!(behind_a_failure(FailureOrder::Kept)?, [Pending, Pending]);
/// assert_eq!(behind_a_failure(FailureOrder::FailsEarly)?, [Failed, Pending]);
/// assert_eq!(behind_a_failure(FailureOrder::Lost)?, [Failed, Complete]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failures {
    /// When a command with a failed event in its wait list fails, and whether it keeps its place in the order. The
    /// device reports it in [`DeviceLimits::failure_order`](binpool_allocators::DeviceLimits::failure_order).
    pub order: FailureOrder,
    /// Set if commands that are pending after it fail as well: by the order of its queue, or as markers
    /// and barriers for everything before them. The runtimes of NVIDIA and `PoCL` do so.
    pub spread: bool,
}

impl Default for Failures {
    fn default() -> Self {
        Self::of(FailureOrder::Kept, false)
    }
}

impl Failures {
    /// All combinations.
    pub const ALL: [Self; 6] = [
        Self::of(FailureOrder::Kept, false),
        Self::of(FailureOrder::Kept, true),
        Self::of(FailureOrder::FailsEarly, false),
        Self::of(FailureOrder::FailsEarly, true),
        Self::of(FailureOrder::Lost, false),
        Self::of(FailureOrder::Lost, true),
    ];

    const fn of(order: FailureOrder, spread: bool) -> Self {
        Self { order, spread }
    }
}
