//! The order that the OpenCL backend puts conflicting commands in, on a runtime that stands in for OpenCL's: the files of
//! `backend-opencl/src/order` as they are.

use std::sync::Arc;

use binpool_allocators::{QueueId, Region, runtime::Access};

use crate::{
    order::{
        access_log::{AccessLog, dependencies},
        admission::CommandAdmission,
        memory_use::MemoryUse,
        role::OrderRole,
        tracked_command::Earlier,
    },
    program::Program,
    program::library::thread::{self, JoinHandle},
    queue::{ClQueue, DeviceQueue},
    sys::{Device, EventHandle, Progress, Purpose, Touch, Work, wait_until_ended},
    world::join,
};

pub(crate) const PROGRAMS: &[Program] = &[
    Program::new("commands-of-three-queues", 6, of_three_queues),
    Program::new("commands-of-many-bytes", 6, of_many_bytes),
    Program::new("commands-of-two-objects", 5, of_two_objects),
    Program::new("commands-of-unordered-queues", 5, of_unordered_queues),
    Program::new("commands-that-fail", 6, that_fail),
    Program::new(
        "commands-that-fail-on-a-fragile-device",
        6,
        that_fail_on_a_fragile_device,
    ),
    Program::new("commands-that-are-not-flushed", 4, that_are_not_flushed),
    Program::new("commands-that-are-given-up", 5, that_are_given_up),
    Program::new("commands-beside-maps", 5, beside_maps),
    Program::new("commands-that-are-waited-for", 5, that_are_waited_for),
];

use Access::{Read, Write};

/// Two threads run what others enqueue on two objects.
struct Runtime {
    device: Arc<Device>,
    logs: Arc<[AccessLog; 2]>,
    running: [JoinHandle<()>; 2],
}

/// One thread's part in it.
struct Host {
    thread: usize,
    queue: ClQueue,
    logs: Arc<[AccessLog; 2]>,
}

fn touch(object: usize, first: usize, end: usize, access: Access) -> Touch {
    Touch {
        object,
        region: Region::new(first, end - first),
        access,
    }
}

impl Runtime {
    fn new(is_fragile: bool) -> Self {
        let device = Device::new(is_fragile);
        let running = [(); 2].map(|()| {
            let device = Arc::clone(&device);
            thread::spawn(move || device.run())
        });
        Self {
            device,
            logs: Arc::default(),
            running,
        }
    }

    /// A thread with a queue.
    fn spawn<R: Send + 'static>(
        &self,
        number: usize,
        is_in_order: bool,
        run: impl FnOnce(Host) -> R + Send + 'static,
    ) -> JoinHandle<R> {
        let host = Host {
            thread: number,
            queue: ClQueue {
                id: QueueId::fresh(),
                device: Arc::clone(&self.device),
                number,
                is_in_order,
                log: Arc::default(),
                flush: Arc::new(DeviceQueue {
                    device: Arc::clone(&self.device),
                    number,
                }),
            },
            logs: Arc::clone(&self.logs),
        };
        thread::spawn(move || run(host))
    }

    /// Has threads do the same with a queue each, and checks what must hold at the end.
    fn run(self, threads: usize, run: impl Fn(Host) + Clone + Send + 'static) {
        let hosts = (0..threads).map(|number| self.spawn(number, true, run.clone()));
        join(hosts.collect::<Vec<_>>());
        self.end();
    }

    fn end(self) {
        self.device.finish();
        join(self.running);
        for log in &*self.logs {
            assert!(
                dependencies(None, log.commands())
                    .unwrap()
                    .events
                    .is_empty()
            );
        }
    }
}

impl Host {
    fn uses(&self, touches: &[Touch]) -> Vec<MemoryUse<'_>> {
        let uses = touches.iter().map(|touch| MemoryUse {
            log: &self.logs[touch.object],
            region: touch.region,
            access: touch.access,
            is_svm: false,
        });
        uses.collect()
    }

    /// Enqueues a command as the backend does.
    fn submit(&self, touches: &[Touch]) -> EventHandle {
        self.try_submit(touches, false).unwrap()
    }

    /// The same for one that may fail; `None` if the host has mapped what it uses.
    fn try_submit(&self, touches: &[Touch], fails: bool) -> Option<EventHandle> {
        let uses = self.uses(touches);
        let mut admission =
            CommandAdmission::of_command(&self.queue, &uses, OrderRole::Command, Earlier::new())
                .ok()?;
        admission.wait_for_turn();
        let waits = admission.events(Purpose::Control).unwrap();
        let work = Work {
            thread: self.thread,
            touches: touches.to_vec(),
            fails,
        };
        let (event, number) = self.queue.device.enqueue(&self.queue, &waits, work);
        admission.enqueued(&event, number, !waits.is_empty());
        Some(event)
    }

    /// A command that stands in the logs, and is never enqueued.
    fn give_up(&self, touches: &[Touch]) {
        let uses = self.uses(touches);
        let admission =
            CommandAdmission::of_command(&self.queue, &uses, OrderRole::Command, Earlier::new())
                .unwrap();
        admission.wait_for_turn();
    }
}

/// Each of three queues writes and reads the same bytes.
fn of_three_queues() {
    Runtime::new(false).run(3, |host| {
        host.submit(&[touch(0, 0, 8, Write)]);
        host.submit(&[touch(0, 0, 8, Read)]);
    });
}

/// Bytes that overlap in part.
fn of_many_bytes() {
    Runtime::new(false).run(3, |host| {
        let number = host.thread;
        let first = 4 * number;
        host.submit(&[touch(0, first, first + 8, Write)]);
        host.submit(&[touch(0, 2, 14, if number == 1 { Write } else { Read })]);
    });
}

/// Two objects in either order.
fn of_two_objects() {
    Runtime::new(false).run(2, |host| {
        let number = host.thread;
        let other = 1 - number;
        host.submit(&[touch(number, 0, 8, Read), touch(other, 0, 8, Write)]);
        host.submit(&[touch(other, 0, 8, Write), touch(number, 4, 12, Write)]);
    });
}

fn of_unordered_queues() {
    let runtime = Runtime::new(false);
    let hosts = [0, 1].map(|number| {
        runtime.spawn(number, number == 1, |host| {
            host.submit(&[touch(0, 0, 8, Write)]);
            host.submit(&[touch(0, 0, 4, Read)]);
            host.submit(&[touch(0, 0, 8, Write)]);
        })
    });
    join(hosts);
    runtime.end();
}

/// What waits for a failed command fails before other commands that it waits for have ended; who comes later heeds those.
fn failing(is_fragile: bool) {
    Runtime::new(is_fragile).run(3, |host| {
        let number = host.thread;
        let both = [touch(0, 0, 8, Write), touch(1, 0, 8, Write)];
        let own = touch(number % 2, 0, 8, Write);
        host.try_submit(&[own], number == 0);
        host.try_submit(&both, false);
        host.try_submit(&[touch(1, 0, 8, Read)], false);
    });
}

fn that_fail() {
    failing(false);
}

fn that_fail_on_a_fragile_device() {
    failing(true);
}

/// A thread waits for a command after one of another queue whose thread has gone without flushing it.
fn that_are_not_flushed() {
    let runtime = Runtime::new(false);
    let first = runtime.spawn(0, true, |host| {
        host.submit(&[touch(0, 0, 8, Write)]);
    });
    let second = runtime.spawn(1, true, |host| {
        let event = host.submit(&[touch(0, 0, 8, Write)]);
        wait_until_ended(&event).unwrap();
    });
    join([first, second]);
    runtime.end();
}

/// A command after one that is never enqueued gets on, and comes after what that came after.
fn that_are_given_up() {
    Runtime::new(false).run(2, |host| {
        host.submit(&[touch(0, 0, 8, Write)]);
        host.give_up(&[touch(0, 0, 8, Write)]);
        host.submit(&[touch(0, 0, 8, Write)]);
    });
}

/// The host maps bytes that commands use: these are refused meanwhile, and those that were there are waited for.
fn beside_maps() {
    let runtime = Runtime::new(false);
    let mapping = runtime.spawn(0, true, |host| {
        let mapped = touch(0, 0, 8, Write);
        let uses = host.uses(&[mapped]);
        let (admission, map) =
            CommandAdmission::of_map(&host.queue, &uses[0], Earlier::new()).unwrap();
        admission.wait_for_turn();
        for event in admission.events(Purpose::Control).unwrap() {
            wait_until_ended(&event).unwrap();
        }
        host.queue.device.check_unused(&mapped);
        // Commands that use it are refused while it is there.
        assert!(host.try_submit(&[touch(0, 4, 12, Read)], false).is_none());
        assert!(host.logs[0].check_unmapped().is_err());
        host.queue.device.check_unused(&mapped);
        drop(admission);
        let unmap =
            CommandAdmission::of_unmap((&host.queue, &host.queue), &uses[0], map, Earlier::new())
                .unwrap();
        drop(unmap);
        host.logs[0].forget_map(map);
        host.submit(&[touch(0, 4, 12, Read)]);
    });
    let commanding = runtime.spawn(1, true, |host| {
        host.try_submit(&[touch(0, 0, 8, Write)], false);
        host.try_submit(&[touch(0, 6, 10, Write)], false);
        host.try_submit(&[touch(0, 8, 10, Write)], false).unwrap();
    });
    join([mapping, commanding]);
    runtime.end();
}

/// The host waits until no command uses an object any more, and is right.
fn that_are_waited_for() {
    Runtime::new(false).run(2, |host| {
        let event = host.submit(&[touch(0, 0, 8, Write)]);
        host.submit(&[touch(1, 0, 8, Read)]);
        host.logs[0].wait_until_unused().unwrap();
        assert_eq!(crate::sys::look(&event).unwrap(), Progress::Complete);
    });
}
