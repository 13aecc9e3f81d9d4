//! What `backend-opencl/src/order` needs of the rest of its crate: a runtime that runs commands when it likes, on `shuttle`.
//!
//! A device of one lock. Its threads start any command that may start, and fail at once what waits for a failed one, as
//! OpenCL does, whatever else that waits for. A command that has not been flushed does not start.
//!
//! An in-order queue goes on after a command that failed early once what that waited for has ended. `PoCL` does not wait for
//! that, which is the *fragile* device. On both, the logs keep the order of the queue.

/// The files of the backend.
#[path = "../../../backend-opencl/src/order/mod.rs"]
#[allow(dead_code, reason = "the backend uses the rest")]
pub(crate) mod order;

/// Queues.
pub(crate) mod queue {
    use std::sync::{Arc, Weak};

    use binpool_allocators::{QueueId, QueueOrder, Result};

    use super::sys::{ClResult, Device, EventHandle};
    use crate::order::{
        access_log::AccessLog,
        weak_queue::{QueueCalls, WeakQueue},
    };

    #[derive(Clone, Debug)]
    pub(crate) struct ClQueue {
        pub(crate) id: QueueId,
        pub(crate) device: Arc<Device>,
        pub(crate) number: usize,
        pub(crate) is_in_order: bool,
        pub(crate) log: Arc<AccessLog>,
        pub(crate) flush: Arc<DeviceQueue>,
    }

    impl ClQueue {
        pub(crate) fn is_in_order(&self) -> bool {
            self.is_in_order
        }

        pub(crate) fn order_log(&self) -> &AccessLog {
            &self.log
        }

        pub(crate) fn check_order(&self) -> Result<()> {
            Ok(())
        }

        pub(crate) fn downgrade(&self) -> WeakQueue {
            let order = if self.is_in_order {
                QueueOrder::InOrder
            } else {
                QueueOrder::OutOfOrder
            };
            let flush: Weak<DeviceQueue> = Arc::downgrade(&self.flush);
            WeakQueue::new(self.id, order, flush)
        }

        pub(crate) fn identity(&self) -> QueueId {
            self.id
        }
    }

    /// What flushes a queue.
    #[derive(Debug)]
    pub(crate) struct DeviceQueue {
        pub(crate) device: Arc<Device>,
        pub(crate) number: usize,
    }

    impl QueueCalls for DeviceQueue {
        fn flush_up_to(&self, number: u64) -> ClResult<()> {
            self.device.flush(self.number, number);
            Ok(())
        }

        fn stand_in(&self, event: &EventHandle) -> ClResult<EventHandle> {
            event.another()
        }
    }

    impl Drop for DeviceQueue {
        fn drop(&mut self) {
            self.device.flush(self.number, u64::MAX);
        }
    }
}

/// The runtime's errors.
mod cl_error {
    use std::fmt;

    use binpool_allocators::Error;

    pub(crate) type ClResult<T> = Result<T, ClError>;

    #[derive(Debug)]
    pub(crate) struct ClError(pub(crate) i32);

    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Purpose {
        Control,
    }

    impl ClError {
        pub(crate) fn into_error(self, _: Purpose) -> Error {
            Error::unsupported(self.to_string())
        }
    }

    impl fmt::Display for ClError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "the command ended with {}", self.0)
        }
    }
}

/// The runtime.
pub(crate) mod sys {
    use std::sync::Arc;

    use binpool_allocators::Region;
    use parking_lot::{Condvar, Mutex};
    use shuttle::{
        rand::{Rng, thread_rng},
        thread::yield_now,
    };

    pub(crate) use super::cl_error::{ClError, ClResult, Purpose};
    use super::queue::ClQueue;
    use binpool_allocators::runtime::Access;

    /// What waits for a failed command fails with.
    const WAITED_FOR_A_FAILURE: i32 = -14;

    /// A failure of its own.
    const FAILED: i32 = -1;

    #[derive(Debug)]
    pub(crate) struct Device {
        state: Mutex<State>,
        changed: Condvar,
    }

    #[derive(Debug, Default)]
    struct State {
        is_fragile: bool,
        commands: Vec<Command>,
        /// How many commands of each queue have been flushed.
        flushed: [u64; 4],
        is_over: bool,
    }

    /// Bytes of an object, as a command uses them.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Touch {
        pub(crate) object: usize,
        pub(crate) region: Region,
        pub(crate) access: Access,
    }

    impl Touch {
        fn conflicts_with(&self, other: &Self) -> bool {
            self.object == other.object
                && self.region.overlaps(other.region)
                && [self.access, other.access].contains(&Access::Write)
        }
    }

    /// What a thread enqueues.
    #[derive(Clone, Debug)]
    pub(crate) struct Work {
        pub(crate) thread: usize,
        pub(crate) touches: Vec<Touch>,
        pub(crate) fails: bool,
    }

    impl Work {
        fn conflicts_with(&self, other: &Self) -> bool {
            let conflicts = |touch: &Touch| other.touches.iter().any(|it| it.conflicts_with(touch));
            self.touches.iter().any(conflicts)
        }
    }

    #[derive(Debug)]
    struct Command {
        queue: usize,
        is_in_order: bool,
        /// From 1 on in its queue.
        number: u64,
        waits: Vec<usize>,
        work: Work,
        status: Status,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Status {
        Queued,
        Running,
        Ended(i32),
    }

    impl Status {
        const fn has_failed(self) -> bool {
            matches!(self, Self::Ended(code) if code < 0)
        }

        const fn has_ended(self) -> bool {
            matches!(self, Self::Ended(_))
        }
    }

    impl State {
        /// The commands that may start, or fail, now.
        fn ready(&self) -> Vec<usize> {
            let is_ready = |index: &usize| {
                let command = &self.commands[*index];
                command.status == Status::Queued
                    && command.number <= self.flushed[command.queue]
                    && (self.is_doomed(command)
                        || (command
                            .waits
                            .iter()
                            .all(|it| self.commands[*it].status.has_ended())
                            && self.is_next(command)))
            };
            (0..self.commands.len()).filter(is_ready).collect()
        }

        fn is_doomed(&self, command: &Command) -> bool {
            let mut waits = command.waits.iter();
            waits.any(|it| self.commands[*it].status.has_failed())
        }

        /// Whether it is the queue's turn to start it: the command before it has ended, be it early; or, on a device that is
        /// not fragile, all of them have, and what they waited for.
        fn is_next(&self, command: &Command) -> bool {
            let mut before = self.before(command);
            if self.is_fragile {
                before.next_back().is_none_or(|it| it.status.has_ended())
            } else {
                before.all(|it| self.is_settled(it))
            }
        }

        /// What an in-order queue has before this command.
        fn before<'a>(
            &'a self,
            command: &'a Command,
        ) -> impl DoubleEndedIterator<Item = &'a Command> {
            self.commands.iter().filter(|it| {
                command.is_in_order && it.queue == command.queue && it.number < command.number
            })
        }

        /// Whether a command has ended, and what it waited for, too.
        fn is_settled(&self, command: &Command) -> bool {
            command.status.has_ended()
                && command
                    .waits
                    .iter()
                    .all(|it| self.is_settled(&self.commands[*it]))
                && self.before(command).all(|it| it.status.has_ended())
        }

        /// What must hold when a command starts.
        fn check_start(&self, index: usize) {
            let command = &self.commands[index];
            assert!(
                self.before(command).all(|it| self.is_settled(it)),
                "{index} overtook a command of its queue"
            );
            let work = &command.work;
            for (other, command) in self.commands.iter().enumerate() {
                if other == index || !command.work.conflicts_with(work) {
                    continue;
                }
                assert_ne!(command.status, Status::Running, "{other} and {index} race");
                assert!(
                    command.work.thread != work.thread
                        || other > index
                        || command.status.has_ended(),
                    "{index} overtook {other} of its own thread"
                );
            }
        }
    }

    impl Device {
        pub(crate) fn new(is_fragile: bool) -> Arc<Self> {
            let state = State {
                is_fragile,
                ..State::default()
            };
            Arc::new(Self {
                state: Mutex::new(state),
                changed: Condvar::new(),
            })
        }

        /// Enqueues a command that waits for these. Its event, and its number in its queue.
        pub(crate) fn enqueue(
            self: &Arc<Self>,
            queue: &ClQueue,
            waits: &[EventHandle],
            work: Work,
        ) -> (EventHandle, u64) {
            let mut state = self.state.lock();
            let before = state.commands.iter().filter(|it| it.queue == queue.number);
            let number = before.count() as u64 + 1;
            let index = state.commands.len();
            state.commands.push(Command {
                queue: queue.number,
                is_in_order: queue.is_in_order,
                number,
                waits: waits.iter().map(|it| it.index).collect(),
                work,
                status: Status::Queued,
            });
            let device = Arc::clone(self);
            (EventHandle { device, index }, number)
        }

        pub(crate) fn flush(&self, queue: usize, number: u64) {
            let mut state = self.state.lock();
            state.flushed[queue] = state.flushed[queue].max(number);
            drop(state);
            self.changed.notify_all();
        }

        /// Runs commands until [`finish`](Self::finish), in any order that is permitted.
        pub(crate) fn run(&self) {
            let mut state = self.state.lock();
            loop {
                let ready = state.ready();
                if ready.is_empty() {
                    let all_have_ended = state.commands.iter().all(|it| it.status.has_ended());
                    if state.is_over && all_have_ended {
                        return;
                    }
                    self.changed.wait(&mut state);
                    continue;
                }
                let index = ready[thread_rng().gen_range(0..ready.len())];
                if state.is_doomed(&state.commands[index]) {
                    state.commands[index].status = Status::Ended(WAITED_FOR_A_FAILURE);
                } else {
                    state.check_start(index);
                    state.commands[index].status = Status::Running;
                    drop(state);
                    yield_now();
                    state = self.state.lock();
                    let code = if state.commands[index].work.fails {
                        FAILED
                    } else {
                        0
                    };
                    state.commands[index].status = Status::Ended(code);
                }
                self.changed.notify_all();
            }
        }

        /// What must hold while the host uses these bytes: all commands on them have ended.
        pub(crate) fn check_unused(&self, mapped: &Touch) {
            for (index, command) in self.state.lock().commands.iter().enumerate() {
                let uses = |it: &Touch| it.conflicts_with(mapped);
                assert!(
                    command.status.has_ended() || !command.work.touches.iter().any(uses),
                    "{index} uses what the host has mapped"
                );
            }
        }

        /// Nothing more is enqueued.
        pub(crate) fn finish(&self) {
            let mut state = self.state.lock();
            state.flushed = [u64::MAX; 4];
            state.is_over = true;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// A command.
    #[derive(Debug)]
    pub(crate) struct EventHandle {
        device: Arc<Device>,
        index: usize,
    }

    impl EventHandle {
        pub(crate) fn another(&self) -> ClResult<Self> {
            let device = Arc::clone(&self.device);
            Ok(Self {
                device,
                index: self.index,
            })
        }

        pub(crate) const fn raw(&self) -> usize {
            self.index
        }
    }

    /// How far a command has come.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Progress {
        Pending,
        Complete,
        Failed(i32),
    }

    pub(crate) fn look(event: &EventHandle) -> ClResult<Progress> {
        let state = event.device.state.lock();
        Ok(match state.commands[event.index].status {
            Status::Queued | Status::Running => Progress::Pending,
            Status::Ended(0) => Progress::Complete,
            Status::Ended(code) => Progress::Failed(code),
        })
    }

    /// Waits for a command, and flushes its queue for that.
    pub(crate) fn wait_until_ended(event: &EventHandle) -> ClResult<()> {
        let device = &event.device;
        let mut state = device.state.lock();
        let (queue, number) = {
            let command = &state.commands[event.index];
            (command.queue, command.number)
        };
        state.flushed[queue] = state.flushed[queue].max(number);
        device.changed.notify_all();
        loop {
            match state.commands[event.index].status {
                Status::Ended(0) => return Ok(()),
                Status::Ended(code) => return Err(ClError(code)),
                _ => device.changed.wait(&mut state),
            }
        }
    }
}
