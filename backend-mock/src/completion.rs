//! When commands run.

/// When the commands of a device run. They run in legal orders only, whichever is chosen: queue order,
/// barriers and wait lists always hold.
///
/// ```
/// use binpool_allocators::{Backend, QueueOrder};
/// use binpool_mock::{Completion, MockDevice};
///
/// // How many of a hundred commands are pending when the last one has been enqueued.
/// let pending = |completion| {
///     let device = MockDevice::builder().completion(completion).build();
///     let backend = device.backend();
///     let queue = backend.create_queue(QueueOrder::OutOfOrder).unwrap();
///     for _ in 0..100 {
///         backend.enqueue_marker(&queue, &[]).unwrap();
///     }
///     device.pending_commands()
/// };
/// assert_eq!(pending(Completion::AtOnce), 0);
/// assert_eq!(pending(Completion::Manual), 100);
/// let some = pending(Completion::Seeded(7));
/// assert!(some < 100);
/// assert_eq!(pending(Completion::Seeded(7)), some);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completion {
    /// A command runs while it is enqueued, where its queue and its wait list allow; else as soon as they do.
    #[default]
    AtOnce,
    /// Nothing runs until the test says so ([`MockDevice::step`](crate::MockDevice::step) and its siblings),
    /// or the host waits for it. A host wait runs what it depends on, oldest first, and nothing else.
    Manual,
    /// At every enqueue and every status query, a generator with this seed decides how many commands run, and
    /// which. A host wait runs commands that the generator picks until it is satisfied. The same program with
    /// the same seed gives the same run, as long as one thread drives the device.
    Seeded(u64),
}

/// What a host wait does that nothing on the device can end, because the commands wait for a user event that
/// nobody has resolved.
///
/// ```
/// use binpool_allocators::{Backend, Event, Outcome, QueueOrder};
/// use binpool_mock::{HostWait, MockDevice};
///
/// let backend = MockDevice::builder().host_waits(HostWait::Block).build().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let gate = backend.create_user_event()?;
/// let behind = backend.enqueue_marker(&queue, &[gate.clone()])?;
/// std::thread::scope(|threads| {
///     threads.spawn(|| backend.resolve_user_event(&gate, Outcome::Complete));
///     behind.wait() // With `Report`, an error where the other thread is late.
/// })?;
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostWait {
    /// It fails, with [`MockError::WouldWaitForever`](crate::MockError::WouldWaitForever) as the source of its
    /// error. A blocking transfer or a commit that would wait forever is not even enqueued. Another thread that
    /// is about to resolve the event is not waited for: programs with such threads want [`Block`](Self::Block).
    #[default]
    Report,
    /// It blocks until another thread resolves the event, as real devices do.
    Block,
}
