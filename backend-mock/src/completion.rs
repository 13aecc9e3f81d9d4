//! Completion modes: when commands run, and what waits of the host do.

use std::time::Duration;

/// When the commands of a device run. Every mode runs them in legal orders only: queue order,
/// barriers and wait lists always hold, except for the effects of failed commands
/// ([`Failures`](crate::Failures)).
///
/// ```
/// use binpool_allocators::{Backend, QueueOrder};
/// use binpool_mock::{Completion, MockDevice};
///
/// // The number of pending commands after a hundred have been enqueued.
/// let pending = |completion| {
///     let device = MockDevice::builder().completion(completion).build();
///     let backend = device.backend();
///     let queue = backend.create_queue(QueueOrder::OutOfOrder).unwrap();
///     for _ in 0..100 {
///         backend.enqueue_marker(&queue).unwrap();
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
    /// A command runs when it is enqueued, if its queue and its wait list allow it; otherwise as soon as they do.
    #[default]
    AtOnce,
    /// Commands run only when the test runs them ([`MockDevice::step`](crate::MockDevice::step) and similar calls),
    /// or when the host waits for them. A wait runs the commands that it depends on, oldest first, and no others.
    Manual,
    /// At every enqueue and every status query, a seeded generator decides how many commands run, and
    /// which. A wait of the host runs commands that the generator picks until the wait is satisfied. The same program with
    /// the same seed gives the same run, as long as one thread drives the device.
    Seeded(u64),
    /// The device lags behind the host: by its clock ([`MockDevice::now`](crate::MockDevice::now)), a command ends this long after it was
    /// enqueued, and after those that it waits for.
    ///
    /// The clock advances by the costs of calls in the device's profile, by what the host does meanwhile
    /// ([`MockDevice::pass`](crate::MockDevice::pass)), and by waits of the host, which take until their commands end. Each query of a
    /// status takes 100 ns more than in the profile, so that a loop of queries ends. Commands that are due run at every enqueue,
    /// status query and wait, and when time passes. The same program gives the same run, as long as one thread drives the device.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use binpool_allocators::{Backend, Event, EventStatus, MemoryFlags, QueueOrder};
    /// use binpool_mock::{Completion, MockDevice};
    ///
    /// let behind = Completion::Behind {
    ///     commands: Duration::from_millis(2),
    ///     markers: Duration::from_micros(5),
    /// };
    /// let device = MockDevice::builder().completion(behind).build();
    /// let backend = device.backend();
    /// let [busy, idle] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// let buffer = backend.create_buffer(1024, MemoryFlags::empty())?;
    /// backend.enqueue_use(&busy, &buffer)?;
    /// let markers = [backend.enqueue_marker(&busy)?, backend.enqueue_marker(&idle)?];
    /// device.pass(Duration::from_micros(5));
    /// assert_eq!(markers[0].status()?, EventStatus::Pending);
    /// assert_eq!(markers[1].status()?, EventStatus::Complete);
    /// markers[0].wait()?;
    /// assert_eq!(device.now(), Duration::from_millis(2));
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    Behind {
        /// How long a command takes: a kernel, a transfer, a fill. A blocking one, and a commit, takes what the profile says.
        commands: Duration,
        /// How long a marker or a barrier takes on a queue that has nothing else to do.
        markers: Duration,
    },
}

/// What happens if the host would wait forever, because the commands wait for a user event that
/// has not been resolved.
///
/// ```
/// use binpool_allocators::{Queue, Backend, Event, Outcome, QueueOrder};
/// use binpool_mock::{HostWait, MockDevice};
///
/// let backend = MockDevice::builder().host_waits(HostWait::Block).build().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let gate = backend.create_user_event()?;
/// let behind = backend.enqueue_marker(queue.after(&[gate.clone()]))?;
/// std::thread::scope(|threads| {
///     threads.spawn(|| backend.resolve_user_event(&gate, Outcome::Complete));
///     behind.wait() // `Report` would return an error if the other thread is late.
/// })?;
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostWait {
    /// It fails, and the error names the user event. A blocking transfer or a commit that would wait forever is not enqueued. The check ignores that
    /// another thread may resolve the event: for such programs use [`Block`](Self::Block).
    #[default]
    Report,
    /// It blocks until another thread resolves the event, as real devices do.
    Block,
}
